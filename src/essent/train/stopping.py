"""Ctrl-C in a training run: the step is finished, a checkpoint saved, and the run says how to go on."""

from __future__ import annotations

import contextlib
import logging
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from transformers import TrainerCallback, TrainerState

from essent.train.checkpoints import left_over

logger = logging.getLogger(__name__)


class StopGently(TrainerCallback):
    """On the first Ctrl-C (or SIGTERM) the step is finished and a checkpoint saved; a second one stops at once."""

    def __init__(self) -> None:
        self.asked = False

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Within the block the signals are taken; only the main thread can."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before: dict[int, Any] = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

        def take(number: int, frame: Any) -> None:
            self.asked = True
            logger.warning("Stopping after this step, with a checkpoint. Ctrl-C again stops at once, without one.")
            signal.signal(number, before[number] or signal.SIG_DFL)

        for number in before:
            signal.signal(number, take)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler or signal.SIG_DFL)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> Any:
        """Save and stop, if asked."""
        if self.asked and state.global_step < state.max_steps:
            control.should_save = control.should_training_stop = True
        return control


def stopped(state: TrainerState, checkpoints: Path) -> KeyboardInterrupt:
    """What a run that was stopped raises: how far it came, and how to go on."""
    return KeyboardInterrupt(
        f"Stopped after step {state.global_step} of {state.max_steps}. {left_over(checkpoints)} "
        "The same command with --resume goes on from there (in Python: resume=True)."
    )
