"""Checkpoints of a run: write and check them, resume from one, save one on Ctrl-C; the progress of the steps.

transformers' trainer writes a checkpoint file by file. When the last file is on the disk, the digests of all files
are written (`essent._core.folders`). A checkpoint without digests, or with other files, is incomplete.
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import os
import shutil
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from transformers import ProgressCallback, TrainerCallback, TrainerState

from essent._core.atomic import remove_leftovers, sync, sync_tree, write_json
from essent._core.folders.files import DIGESTS, MEND, check_digests, listed_names, write_digests
from essent.errors import DataError, EssentError, ModelError, TrainingError
from essent.training.device import retained_memory

logger = logging.getLogger(__name__)

CHECKPOINTS, STARTED = "checkpoints", "run.json"
STATE = "trainer_state.json"  # transformers' trainer writes it last
# These differ from run to run, and `train_loss`, a mean over the steps of one process, between whole and resumed runs.
VARYING = ("runtime", "samples_per_second", "steps_per_second", "total_flos", "train_loss")
# A full disk raises an OSError, safetensors' own error, or a RuntimeError of torch's zip writer.
WRITE_ERRORS = (OSError, SafetensorError, RuntimeError)


def last_checkpoint(folder: Path) -> Path | None:
    """Return the newest complete checkpoint, or None."""
    return next((path for path in reversed(_numbered(folder)) if is_whole(path)), None)


def check_unfinished(output: Path) -> None:
    """Check that a folder contains no checkpoints of a run.

    Raises:
        DataError: the folder contains checkpoints; explains how to resume and how to start over.
    """
    if checkpoint := last_checkpoint(output / CHECKPOINTS):
        raise DataError(
            f"{output} contains an earlier run, with the checkpoint {checkpoint}. --resume (resume=True) resumes it; "
            "--force (force=True) removes its checkpoints and starts over."
        )


def _numbered(folder: Path) -> list[Path]:
    """Return the checkpoints, complete or not, sorted by step."""
    paths = (path for path in folder.glob("checkpoint-*") if path.name[11:].isdigit())
    return sorted(paths, key=lambda path: int(path.name[11:]))


def is_whole(checkpoint: Path) -> bool:
    """Return whether a checkpoint was written completely: every file is there, with its length."""
    try:
        check_digests(checkpoint, whole=False)
        return STATE in listed_names(checkpoint)
    except (OSError, ModelError):
        return False


def check_checkpoint(checkpoint: Path) -> None:
    """Compare every byte of a checkpoint with its digests, before a run resumes from it.

    Leftovers of a killed run beside the digests are removed.

    Raises:
        DataError: a file has changed; names it.
    """
    remove_leftovers(checkpoint / DIGESTS)
    try:
        check_digests(checkpoint, whole=True)
    except ModelError as error:
        reason = str(error).split(f" {MEND}")[0]
        raise DataError(f"{reason} Remove {checkpoint} to resume from the checkpoint before it.") from error


def start_or_resume(
    output: Path, metadata: Mapping[str, Any], *, resume: bool, force: bool, may_change: Sequence[str] = ()
) -> Path | None:
    """Write the identity of a new run, or return the last complete checkpoint of the same run, to resume from.

    Args:
        output: the folder of the run. Of several processes, only the first one changes it.
        metadata: what the run depends on: model, data and settings.
        may_change: settings that may differ in a resumed run.

    Raises:
        DataError: the folder contains another run, or a damaged checkpoint.
    """
    checkpoints, is_first = output / CHECKPOINTS, os.environ.get("RANK", "0") == "0"
    if not (resume or force):
        check_unfinished(output)
    newest = last_checkpoint(checkpoints) if resume else None
    if newest is not None:
        _check_same_run(checkpoints / STARTED, metadata, output, may_change)
        check_checkpoint(newest)
    elif is_first:
        if force and not resume and checkpoints.exists():
            if not (checkpoints / STARTED).is_file():
                raise DataError(
                    f"{checkpoints} was not written by essent, so it is not removed. Choose another output."
                )
            shutil.rmtree(checkpoints)
        checkpoints.mkdir(parents=True, exist_ok=True)
        write_json(checkpoints / STARTED, metadata)
    return newest


def _check_same_run(started: Path, metadata: Mapping[str, Any], output: Path, may_change: Sequence[str]) -> None:
    """Raise a DataError that names each value of `metadata` which differs from the file of the earlier run."""
    try:
        before = json.loads(started.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"Cannot resume {output}: cannot read {started} ({error}).") from error
    # a setting is compared by its own name
    old, new = ({**part["settings"], **part, "settings": None} for part in (before, json.loads(json.dumps(metadata))))
    if changed := [name for name in new if old.get(name) != new[name] and name not in may_change]:
        differences = ", ".join(f"{name} was {old.get(name)!r} and is {new[name]!r}" for name in changed)
        raise DataError(f"Cannot resume {output} with another model, other data or other settings: {differences}.")


def history_of(state: Any) -> list[dict[str, Any]]:
    """Return the log of transformers' trainer without times, so that equal runs have equal logs."""
    rows = [{key: value for key, value in row.items() if not key.endswith(VARYING)} for row in state.log_history]
    return [row for row in rows if row.keys() - {"epoch", "step"}]


def checkpoint_note(folder: Path) -> str:
    """Return the sentence about the last valid checkpoint, for error messages."""
    checkpoint = last_checkpoint(folder)
    return f"The last valid checkpoint is {checkpoint}." if checkpoint else "There is no checkpoint yet."


@contextlib.contextmanager
def naming_checkpoint(problem: str, folder: Path) -> Iterator[None]:
    """Name the last valid checkpoint in `folder` if a file cannot be written in this block, for example to a full disk.

    Raises:
        TrainingError: begins with the problem; the checkpoints remain.
    """
    try:
        yield
    except EssentError:
        raise
    except WRITE_ERRORS as error:
        raise TrainingError(
            f"{problem}: {error}. {checkpoint_note(folder)} Free some disk space and resume."
        ) from error


@contextlib.contextmanager
def writing_checkpoint(trainer: Any) -> Iterator[None]:
    """Let transformers' trainer write its checkpoint in this block; remove older ones once it is complete.

    Raises:
        TrainingError: the checkpoint cannot be written. It is removed.
    """
    arguments, step = trainer.args, trainer.state.global_step
    folder = Path(str(arguments.output_dir))
    checkpoint, limit = folder / f"checkpoint-{step}", arguments.save_total_limit
    arguments.save_total_limit = None
    with naming_checkpoint(f"Cannot write the checkpoint of step {step} to {folder}", folder):
        try:
            if arguments.should_save:
                shutil.rmtree(checkpoint, ignore_errors=True)  # an incomplete one, of a killed run
            trainer.accelerator.wait_for_everyone()
            yield
            trainer.accelerator.wait_for_everyone()
            if arguments.should_save:
                sync_tree(checkpoint)
                write_digests(checkpoint)  # after the files themselves are on the disk
                sync(folder)
                _rotate(checkpoint, limit, trainer.state.best_model_checkpoint)
        except WRITE_ERRORS:
            shutil.rmtree(checkpoint, ignore_errors=True)
            raise
        finally:
            arguments.save_total_limit = limit


def writing_result(output: Path) -> contextlib.AbstractContextManager[None]:
    """Return the context in which the trained model is written, see `naming_checkpoint`."""
    return naming_checkpoint(f"Training is finished, but the model cannot be written to {output}", output / CHECKPOINTS)


def _rotate(written: Path, limit: int | None, best: str | None) -> None:
    """Remove incomplete checkpoints and the oldest ones; retain the one just written and the best one.

    A partly removed checkpoint lacks files that its digests list, so it counts as incomplete.
    """
    checkpoints = _numbered(written.parent)
    whole = [path for path in checkpoints if is_whole(path)]
    removable = [path for path in whole if path != written and str(path) != best]
    surplus = 0 if limit is None else min(max(len(whole) - limit, 0), len(removable))
    for path in {*checkpoints}.difference(whole).union(removable[:surplus]):
        shutil.rmtree(path, ignore_errors=True)


# -- the steps of a run -----------------------------------------------------------------------------------------------


class GracefulStop(TrainerCallback):
    """Callback that finishes the step and saves a checkpoint on Ctrl-C or SIGTERM; a second signal stops at once."""

    def __init__(self) -> None:
        self.requested = False

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Handle the signals in this block; do nothing outside the main thread."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before: dict[int, Any] = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

        def take(number: int, frame: Any) -> None:
            self.requested = True
            logger.warning("Stopping after this step, with a checkpoint. Press Ctrl-C again to stop without one.")
            signal.signal(number, before[number] or signal.SIG_DFL)

        for number in before:
            signal.signal(number, take)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler or signal.SIG_DFL)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> Any:
        """Save and stop if a signal was received."""
        if self.requested and state.global_step < state.max_steps:
            control.should_save = control.should_training_stop = True
        return control


class LossBar(ProgressCallback):
    """The bar of transformers' trainer, with the last loss beside it, not in lines above it."""

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **parts: Any) -> None:
        """Show the loss."""
        if self.training_bar is not None and logs and "loss" in logs:
            self.training_bar.set_postfix(loss=float(logs["loss"]))


def train_or_resume(trainer: Any, checkpoint: Path | None, note: Callable[[str], object] | None = None) -> bool:
    """Run transformers' trainer, from a checkpoint if there is one; return False if no step was left.

    When all steps are done, the checkpoint is only loaded: in the middle of an epoch transformers would run one more
    step.

    Args:
        note: called with a line about the step at which the run starts or resumes.

    Raises:
        DataError: the run is shorter than that of the checkpoint.
        KeyboardInterrupt: the run was stopped, after a checkpoint; names the step.
    """
    output, steps = Path(str(trainer.args.output_dir)).parent, int(trainer.args.max_steps)
    if steps <= 0:
        steps = math.ceil(float(trainer.args.num_train_epochs) * len(trainer.get_train_dataloader()))
    state = TrainerState() if checkpoint is None else TrainerState.load_from_json(str(checkpoint / STATE))
    if steps < state.max_steps:
        raise DataError(
            f"Cannot shorten the run in {output} from {state.max_steps} to {steps} steps. Resume with the same or "
            "larger max_steps or epochs."
        )
    is_done = checkpoint is not None and state.global_step >= steps
    if note is not None:
        line = f"resuming after step {state.global_step} of {steps}."
        if checkpoint is None:
            line = "no checkpoint to resume from: the run starts at step 0."
        elif is_done:
            line = f"all {steps} steps are done. Increase max_steps or epochs to extend the run."
        note(f"{output}: {line}")
    if is_done:
        trainer.state = state
        trainer._load_from_checkpoint(str(checkpoint))
        return False
    stop = GracefulStop()
    trainer.add_callback(stop)
    with stop.listening(), retained_memory():
        trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
    if trainer.state.global_step < trainer.state.max_steps:
        raise KeyboardInterrupt(
            f"Stopped after step {trainer.state.global_step} of {trainer.state.max_steps}. "
            f"{checkpoint_note(Path(str(trainer.args.output_dir)))} Run the same command with --resume to continue "
            "(in Python: resume=True)."
        )
    return True
