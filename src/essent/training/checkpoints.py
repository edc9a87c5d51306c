"""Checkpoints of a run: written, sealed, looked through; going on from one; Ctrl-C, which leaves one.

transformers' trainer writes a checkpoint file by file. When the last one is on the disk, the digests of all of them
are written (`essent._core.folders`): a checkpoint without them, or with other files, is not whole.
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import shutil
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from transformers import TrainerCallback, TrainerState

from essent._core.atomic import remove_leftovers, sync, sync_tree
from essent._core.folders.digests import DIGESTS, check_digests, listed_names, write_digests
from essent.errors import DataError, EssentError, ModelError, TrainingError
from essent.training.device import retained_memory

logger = logging.getLogger(__name__)

CHECKPOINTS, STARTED = "checkpoints", "run.json"
STATE = "trainer_state.json"  # what transformers' trainer writes last
TIMES = ("runtime", "samples_per_second", "steps_per_second", "total_flos")  # these differ from run to run
# What a full disk looks like: an OSError, safetensors' own error, or torch's RuntimeError of its zip writer.
WRITE_ERRORS = (OSError, SafetensorError, RuntimeError)


def last_checkpoint(folder: Path) -> Path | None:
    """The newest whole checkpoint."""
    return next((path for path in reversed(_numbered(folder)) if is_whole(path)), None)


def check_unfinished(output: Path) -> None:
    """Refuse a folder that holds the checkpoints of a run, or of runs with several seeds.

    Raises:
        DataError: says how to go on from them, and how to begin anew.
    """
    folders = [output / CHECKPOINTS, *output.glob(f"seed-*/{CHECKPOINTS}")]
    if checkpoint := next(filter(None, map(last_checkpoint, folders)), None):
        raise DataError(
            f"{output} holds a run, its last checkpoint is {checkpoint}. --resume (resume=True) goes on from there; "
            "--force (force=True) begins anew and removes its checkpoints."
        )


def remove_checkpoints(folder: Path) -> None:
    """Remove the checkpoints of an earlier run, and nothing else.

    Raises:
        DataError: they are not essent's.
    """
    if (folder / STARTED).is_file():
        shutil.rmtree(folder)
    elif folder.exists():
        raise DataError(f"{folder} is not essent's, and force leaves it alone. Choose another folder.")


def _numbered(folder: Path) -> list[Path]:
    """Checkpoints, whole or not, by their steps."""
    return sorted((path for path in folder.glob("checkpoint-*") if path.name[11:].isdigit()), key=_step_of)


def _step_of(checkpoint: Path) -> int:
    return int(checkpoint.name.removeprefix("checkpoint-"))


def is_whole(checkpoint: Path) -> bool:
    """Whether a checkpoint was written to its end, and has every file in its length."""
    try:
        check_digests(checkpoint, whole=False)
        return STATE in listed_names(checkpoint)
    except (OSError, ModelError):
        return False


def check_checkpoint(checkpoint: Path) -> None:
    """Compare every byte of a checkpoint with what was written, before a run goes on from it.

    What a run that was killed has left beside the digests is removed.

    Raises:
        DataError: names the file that has changed.
    """
    remove_leftovers(checkpoint / DIGESTS)
    try:
        check_digests(checkpoint, whole=True)
    except ModelError as error:
        reason = str(error).split(" Get the folder again")[0]
        raise DataError(f"{reason} Remove {checkpoint} to go on from the checkpoint before it.") from error


def check_same_run(started: Path, metadata: Mapping[str, Any], output: Path, may_change: Sequence[str] = ()) -> None:
    """Compare what a run wrote down about itself when it began with the run that would go on with its checkpoints.

    Args:
        may_change: settings that may differ.

    Raises:
        DataError: they differ; names each value that does.
    """
    try:
        before = json.loads(started.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{output} cannot be resumed: {started} cannot be read ({error}).") from error
    old, new = _flat(before), _flat(json.loads(json.dumps(metadata)))
    if changed := [name for name in new if old.get(name) != new[name] and name not in may_change]:
        differences = ", ".join(f"{name} was {old.get(name)!r} and is {new[name]!r}" for name in changed)
        raise DataError(f"{output} cannot be resumed with another run's model, data or settings: {differences}.")


def _flat(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """{"settings": {"seed": 0}, "data": {"rows": 2}} -> {"seed": 0, "data.rows": 2}."""
    flat: dict[str, Any] = {}
    for part, value in metadata.items():
        prefix = "" if part == "settings" else f"{part}."
        flat |= {prefix + name: inside for name, inside in value.items()} if isinstance(value, dict) else {part: value}
    return flat


def history_of(state: Any) -> list[dict[str, Any]]:
    """The log of transformers' trainer without times, so that it is the same for the same run."""
    return [{key: value for key, value in row.items() if not key.endswith(TIMES)} for row in state.log_history]


def checkpoint_note(folder: Path) -> str:
    """What to say about the last good checkpoint."""
    checkpoint = last_checkpoint(folder)
    return f"The last good checkpoint is {checkpoint}." if checkpoint else "There is no checkpoint yet."


def where_it_goes_on(output: Path, checkpoint: Path | None, steps: int) -> str:
    """What to say about a run that is resumed: from which of how many steps, or that there is nothing to resume."""
    if checkpoint is None:
        return f"{output} has no checkpoint to resume from: the run begins at step 0."
    done = _step_of(checkpoint)
    if done >= steps:
        return f"{output}: all {steps} steps are done. More of them (max_steps or epochs) would extend the run."
    return f"{output}: going on after step {done} of {steps}."


@contextlib.contextmanager
def writing_checkpoint(trainer: Any) -> Iterator[None]:
    """Have transformers' trainer write its checkpoint in this block; older ones go when the new one is whole.

    Raises:
        TrainingError: it cannot be written (a full disk, say); half of it is removed, and the error says what is left.
    """
    arguments, step = trainer.args, trainer.state.global_step
    folder = Path(str(arguments.output_dir))
    checkpoint, limit = folder / f"checkpoint-{step}", arguments.save_total_limit
    arguments.save_total_limit = None
    try:
        if arguments.should_save:
            shutil.rmtree(checkpoint, ignore_errors=True)  # half of one, of a run that was killed
        trainer.accelerator.wait_for_everyone()
        yield
        trainer.accelerator.wait_for_everyone()
        if arguments.should_save:
            _seal(checkpoint)
            _rotate(checkpoint, limit, trainer.state.best_model_checkpoint)
    except EssentError:
        raise
    except WRITE_ERRORS as error:
        shutil.rmtree(checkpoint, ignore_errors=True)
        raise TrainingError(
            f"The checkpoint of step {step} cannot be written to {folder}: {error}. {checkpoint_note(folder)} "
            "Free some space and resume."
        ) from error
    finally:
        arguments.save_total_limit = limit


def _seal(checkpoint: Path) -> None:
    """Write the digests of all files, which are on the disk before."""
    sync_tree(checkpoint)
    write_digests(checkpoint)
    sync(checkpoint.parent)


def _rotate(written: Path, limit: int | None, best: str | None) -> None:
    """Remove what is not whole, and the oldest checkpoints; the one just written and the best one stay.

    One that is removed in part has no longer the files of its digests.
    """
    checkpoints = _numbered(written.parent)
    whole = [path for path in checkpoints if is_whole(path)]
    removable = [path for path in whole if path != written and str(path) != best]
    surplus = 0 if limit is None else min(max(len(whole) - limit, 0), len(removable))
    for path in {*checkpoints}.difference(whole).union(removable[:surplus]):
        shutil.rmtree(path, ignore_errors=True)


# -- the steps of a run -----------------------------------------------------------------------------------------------


class StopGently(TrainerCallback):
    """On the first Ctrl-C (or SIGTERM) the step is finished and a checkpoint saved; a second one stops at once."""

    def __init__(self) -> None:
        self.requested = False

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Within the block the signals are taken; only the main thread can."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before: dict[int, Any] = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

        def take(number: int, frame: Any) -> None:
            self.requested = True
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
        if self.requested and state.global_step < state.max_steps:
            control.should_save = control.should_training_stop = True
        return control


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
    with stop.listening(), retained_memory():
        trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
    if trainer.state.global_step < trainer.state.max_steps:
        raise KeyboardInterrupt(
            f"Stopped after step {trainer.state.global_step} of {trainer.state.max_steps}. "
            f"{checkpoint_note(Path(str(trainer.args.output_dir)))} The same command with --resume goes on from there "
            "(in Python: resume=True)."
        )
    return True
