"""Progress of a training run: a bar with the loss on a terminal, lines elsewhere.

Import this only when training starts: it needs transformers.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

from transformers import ProgressCallback, TrainerCallback

from essent._core.display import FIRST_LINE, LINE_INTERVAL, duration


class LossBar(ProgressCallback):
    """The bar of transformers' trainer, with the last loss and validation score beside it, not in lines above it."""

    def on_train_begin(self, *arguments: Any, **parts: Any) -> None:
        """Open the bar."""
        super().on_train_begin(*arguments, **parts)
        self.last_values: dict[str, float] = {}

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **parts: Any) -> None:
        """Show the loss, or the score of a validation."""
        labels = {"loss": "loss", f"eval_{str(args.metric_for_best_model).removeprefix('eval_')}": "score"}
        self.last_values |= {labels[key]: float(value) for key, value in (logs or {}).items() if key in labels}
        if self.training_bar is not None:
            self.training_bar.set_postfix(self.last_values)


class StepLines(TrainerCallback):
    """Prints step, loss and time left on standard error, after five seconds and then every half minute.

    Args:
        last_loss: returns the loss of the last step.
        clock: returns seconds.
    """

    def __init__(self, last_loss: Callable[[], float], clock: Callable[[], float] = time.monotonic) -> None:
        self.last_loss, self.clock = last_loss, clock

    def on_train_begin(self, args: Any, state: Any, control: Any, **parts: Any) -> None:
        """Remember the time and the step at which the run begins or resumes."""
        self.start_time, self.start_step = self.clock(), state.global_step
        self.line_time = self.start_time + FIRST_LINE

    def on_step_end(self, args: Any, state: Any, control: Any, **parts: Any) -> None:
        """Print a line if it is time for one."""
        seconds, steps_left = self.clock(), state.max_steps - state.global_step
        if seconds >= self.line_time and steps_left and state.is_world_process_zero:
            self.line_time = seconds + LINE_INTERVAL
            step_seconds = (seconds - self.start_time) / (state.global_step - self.start_step)
            print(  # noqa: T201  a log's line
                f"Step {state.global_step:,} of {state.max_steps:,}: loss {self.last_loss():.3f}, "
                f"about {duration(step_seconds * steps_left)} left",
                file=sys.stderr,
                flush=True,
            )
