"""The steps of a run: going on from a checkpoint, and Ctrl-C, which finishes the step and saves a checkpoint."""

from __future__ import annotations

import contextlib
import logging
import math
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from transformers import TrainerCallback, TrainerState

from essent.training.checkpoints import STATE, left_over
from essent.training.memory import kept_memory

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


def total_steps(trainer: Any) -> int:
    """How many steps the whole run of transformers' trainer has, those before its checkpoint too."""
    if trainer.args.max_steps > 0:
        return int(trainer.args.max_steps)
    return math.ceil(float(trainer.args.num_train_epochs) * len(trainer.get_train_dataloader()))


def go_on(trainer: Any, checkpoint: Path | None) -> bool:
    """Have transformers' trainer train, from a checkpoint if there is one; False if nothing was left to train.

    Of a run whose steps are all done the checkpoint is only read: in the middle of an epoch transformers would make one
    step more.

    Raises:
        KeyboardInterrupt: it was stopped, after a checkpoint; says at which step.
    """
    if checkpoint is not None:
        state = TrainerState.load_from_json(str(checkpoint / STATE))
        if state.global_step >= total_steps(trainer):
            trainer.state = state
            trainer._load_from_checkpoint(str(checkpoint))
            return False
    stop = StopGently()
    trainer.add_callback(stop)
    with stop.listening(), kept_memory():
        trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
    if trainer.state.global_step < trainer.state.max_steps:
        raise stopped(trainer.state, Path(str(trainer.args.output_dir)))
    return True
