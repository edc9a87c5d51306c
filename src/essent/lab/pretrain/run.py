"""Masked language modelling, from scratch or continued: texts in, a plain transformers folder out, runs that resume.

Source: Devlin et al. 2019 (the objective); PromptBERT, App. A.2 and Table 12 (an output matrix tied to the static
embeddings, or not).
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from essent._core.arithmetic import has_bfloat16
from essent._core.atomic import remove_leftovers, replacing_folder, require_replaceable, write_text
from essent._core.folders.names import is_read
from essent._core.lazy import optional_import
from essent.errors import DataError, TrainingError
from essent.lab.pretrain.settings import Pretraining
from essent.lab.pretrain.start import Prepared, Start, prepare
from essent.tasks.result import library_versions
from essent.training.checkpoints import (
    WRITE_ERRORS,
    check_checkpoint,
    check_same_run,
    go_on,
    history_of,
    last_checkpoint,
    left_over,
    total_steps,
    where_it_goes_on,
)
from essent.training.device import find_device, on_device

ABOUT, CHECKPOINTS, STARTED = "training.json", "checkpoints", "run.json"


class RunFolder:
    """An output folder; `checkpoints` stand below it until the run is done.

    Args:
        resume: go on from the last whole checkpoint, `resumed`, if there is one.
        force: replace a model that is there, and drop the checkpoints of an unfinished run.

    Raises:
        DataError: it holds something that must not be replaced.
    """

    def __init__(self, output: Path, *, resume: bool, force: bool) -> None:
        self.output, self.checkpoints, self.resume = output, output / CHECKPOINTS, resume
        require_replaceable(output)
        remove_leftovers(output)
        found = last_checkpoint(self.checkpoints)
        if found is not None and not (resume or force):
            raise DataError(
                f"{output} holds an unfinished run, the last checkpoint is {found.name}. Resume it (resume=True, "
                "--resume), replace it (force=True, --force), or choose another folder."
            )
        if (output / "modules.json").exists():
            raise DataError(
                f"{output} holds a sentence-transformers model (modules.json), whose files would mix with this one's; "
                "choose another folder."
            )
        if found is None and not force and (output / "config.json").exists():
            finished = "holds a model already" + (", no unfinished run to resume" if resume else "")
            raise DataError(f"{output} {finished}. force=True (--force) replaces it.")
        self.resumed = found if resume else None
        if self.resumed is not None:
            check_checkpoint(self.resumed)

    def begin(self, about: Mapping[str, Any]) -> None:
        """Write down which run this is, and drop the checkpoints of another; of a resumed run, compare.

        Of the processes that torchrun starts only the first one writes.

        Raises:
            DataError: the run that is resumed was another one; says what differs.
        """
        if self.resumed is not None:
            check_same_run(self.checkpoints / STARTED, about, self.output)
        elif os.environ.get("RANK", "0") == "0":
            if self.checkpoints.is_dir():
                shutil.rmtree(self.checkpoints)
            self.checkpoints.mkdir(parents=True, exist_ok=True)
            write_text(self.checkpoints / STARTED, json.dumps(about, ensure_ascii=False, indent=2))

    def finish(self, model: Any, tokenizer: Any, about: Mapping[str, Any]) -> None:
        """Save model, tokenizer and `training.json`; in one step they appear, and an older model and checkpoints go.

        Files that libraries do not read as a part of a model stay.

        Raises:
            TrainingError: they cannot be written; the checkpoints stay.
        """
        others = [entry.name for entry in self.output.iterdir() if not is_read(entry.name)]
        carried = set(others) - {CHECKPOINTS, ABOUT}
        try:
            with replacing_folder(self.output, sorted(carried)) as whole:
                model.save_pretrained(whole)
                tokenizer.save_pretrained(whole)
                (whole / ABOUT).write_text(json.dumps(about, ensure_ascii=False, indent=2), encoding="utf-8")
        except WRITE_ERRORS as error:
            raise TrainingError(
                f"The model is trained and cannot be written to {self.output}: {error}. {left_over(self.checkpoints)} "
                "Free some space and resume."
            ) from error


Note = Callable[[str], None]


@dataclass(frozen=True)
class Pretrained:
    """What came of a run; `loss` (nats) and `accuracy` are of the masked tokens of the held-out texts.

    `history` is the log of transformers' trainer: rows with `step` and either `loss` and `learning_rate`, or
    `eval_masked_loss` and `eval_masked_accuracy`.
    """

    folder: Path
    steps: int
    loss: float
    accuracy: float
    history: tuple[dict[str, float], ...]


def pretrain(
    texts: Sequence[str],
    output: str | Path,
    start: Start,
    settings: Pretraining,
    *,
    held_out: Sequence[str] | None = None,
    resume: bool = False,
    force: bool = False,
    device: str | None = None,
    progress: bool = False,
    note: Note | None = None,
) -> Pretrained:
    """Train a masked language model on texts; save it as a transformers folder with `training.json` about the run.

    Args:
        texts: texts to learn from; of equal texts one is used.
        output: the folder to write. Checkpoints stand below it until the run is done.
        start: the model, or what a new one is like.
        settings: the settings of the run.
        held_out: texts to measure on; by default one in a hundred of `texts`.
        resume: go on from the last whole checkpoint in `output`; on a CPU the same bytes come out as without a break.
        force: replace a model that is there, and drop the checkpoints of an unfinished run.
        device: "cpu", "cuda" or another accelerator of this machine, or None for the best there is.
        progress: show a bar.
        note: called with a line about each validation, and about what else a user should know.

    Raises:
        InputError: texts or settings that cannot be trained on, or a device that is not there.
        ModelError: no masked language model there.
        DataError: `output` holds something else.
        TrainingError: a loss that is not finite, or a folder that cannot be written; the last good checkpoint stays.
        KeyboardInterrupt: it was stopped, after a checkpoint; says at which step.
        MissingDependencyError: without the extra `train`.
    """
    for name in ("accelerate", "datasets"):
        optional_import(name, "train")
    kind = find_device(device)
    precision = settings.precision or ("bfloat16" if has_bfloat16(kind) else "float32")
    on_device(kind, precision)  # refuses a precision that the device lacks
    folder = RunFolder(Path(output), resume=resume, force=force)
    prepared = prepare(texts, held_out, start, settings)
    say = note or (lambda line: None)

    from essent.lab.pretrain.model import open_model
    from essent.lab.pretrain.trainer import Bar, Notes

    about = prepared.about(settings)
    folder.begin(about)
    options = dict(start.options)
    model, new = open_model(start.model, prepared.config, options, untied=settings.untied, seed=settings.seed)
    if new and start.model is not None:
        say(f"The model has no weights for its prediction head ({', '.join(new)}): they begin at random.")
    trainer = _trainer(model, prepared, settings, folder, kind, precision)
    trainer.add_callback(Notes(say))
    if progress:
        trainer.add_callback(Bar())
    if resume:
        say(where_it_goes_on(folder.output, folder.resumed, total_steps(trainer)))
    go_on(trainer, folder.resumed)
    result = _measured(trainer, folder.output)
    about |= {
        "new_weights": "all" if start.model is None else new,
        "precision": precision,
        "device": trainer.args.device.type,
        "processes": trainer.args.world_size,
        "steps": result.steps,
        "held_out_loss": result.loss,
        "held_out_accuracy": result.accuracy,
        "history": result.history,
        "versions": library_versions(),
    }
    if trainer.is_world_process_zero():
        folder.finish(trainer.accelerator.unwrap_model(trainer.model), prepared.tokenizer, about)
    return result


def _trainer(
    model: Any, prepared: Prepared, settings: Pretraining, folder: RunFolder, device: str, precision: str
) -> Any:
    from transformers import default_data_collator

    from essent.lab.pretrain.trainer import MaskedTrainer, arguments_of

    arguments = arguments_of(settings, folder.checkpoints, device=device, precision=precision)
    arguments.eval_on_start = folder.resumed is None  # which the run before has done
    return MaskedTrainer(
        model,
        arguments,
        prepared.masking,
        data_collator=default_data_collator,
        train_dataset=prepared.train,
        eval_dataset=prepared.held_out,
        processing_class=prepared.tokenizer,
    )


def _measured(trainer: Any, folder: Path) -> Pretrained:
    """The scores of the last step, which is validated now if it has not been yet."""
    state = trainer.state
    if not any("eval_masked_loss" in row and row["step"] == state.global_step for row in state.log_history):
        trainer.evaluate()
    history = tuple(row for row in history_of(state) if "loss" in row or "eval_masked_loss" in row)
    last = next(row for row in reversed(history) if "eval_masked_loss" in row)
    return Pretrained(folder, state.global_step, last["eval_masked_loss"], last["eval_masked_accuracy"], history)
