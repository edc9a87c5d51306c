"""A training run: a model and texts in, an Encoder out; checkpoints, validation, resumption."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from sentence_transformers import SentenceTransformer

from essent._core.atomic import require_replaceable, write_text
from essent._core.folders.names import ENCODER, STATE_FOLDER
from essent._core.folders.places import check_replaceable
from essent._core.types import ModelLike
from essent.encoder.encoder import Encoder
from essent.encoder.pipeline.digests import digest_of_backbone
from essent.encoder.saving.save import SavableModule
from essent.errors import DataError, EssentError, InputError, TrainingError
from essent.model.capabilities import capabilities_of
from essent.tasks.base import LabeledTask
from essent.tasks.locate import load_labelled
from essent.tasks.pairs import PairTask
from essent.tasks.result import library_versions
from essent.training.build import (
    Run,
    bars,
    checkpoint_of,
    fit_head,
    make_loss,
    make_trainer,
    open_encoder,
    replace_module,
    tokenizer_kind,
    warn,
)
from essent.training.checkpoints import (
    STARTED,
    STATE,
    WRITE_ERRORS,
    check_checkpoint,
    check_same_run,
    check_unfinished,
    history_of,
    last_checkpoint,
    left_over,
    remove_checkpoints,
    where_it_goes_on,
)
from essent.training.device import on_device
from essent.training.examples import Examples, as_examples
from essent.training.projection import ProjectionHead
from essent.training.settings import Settings, resolve_settings
from essent.training.stopping import total_steps

logger = logging.getLogger(__name__)

ABOUT = "training.json"
LENGTH, EXTENDED = ("max_steps", "epochs"), "extended_after_steps"


def train(
    model: ModelLike,
    data: Any,
    preset: str = "promptbert-unsup",
    *,
    output: str | Path,
    validate: str | Path | LabeledTask | None = None,
    resume: bool = False,
    force: bool = False,
    device: str | None = None,
    progress: bool = False,
    options: Mapping[str, Any] | None = None,
    note: Callable[[str], None] = logger.info,
    **changes: Any,
) -> Encoder:
    """Train a model contrastively and save the encoder.

    Args:
        model: a hub name, a folder, or a loaded SentenceTransformer, which does not change (a copy is trained).
        data: texts (unsupervised), pairs (anchor, positive) or triplets (… and hard negative); a list or `Examples`.
        preset: a paper's settings, a name of `PRESETS`.
        output: the folder to write: the encoder, `training.json` about the run, and its checkpoints.
        validate: judgements of any kind, a task's name or a file: the checkpoint that does best on them is kept, not
            the last. A test part is not read.
        resume: go on from the last whole checkpoint in `output`; the same weights come out as without a break. More
            steps or epochs than before extend the run, be it finished or not.
        force: begin anew where `output` holds a run, and remove its checkpoints.
        device: "cpu", "cuda" or another accelerator of this machine, or None for the best there is.
        options: keyword arguments for Encoder.
        note: is called with a line about where a resumed run goes on; by default it is logged.
        changes: fields of `Settings`, instead of the preset's.

    Returns:
        The trained encoder, head dropped unless `keep_projection_head`; also in `output`.

    Raises:
        InputError: data or settings that cannot be trained on.
        UnsupportedRecipeError: the model cannot run the templates.
        TrainingError: a loss that is not finite, a checkpoint that cannot be saved; the last good one stays.
        DataError: `output` holds another run.
        KeyboardInterrupt: it was stopped, after a checkpoint; says at which step.
        MissingDependencyError: without the extra `train`.
    """
    run = Run(Path(output), resume, force, device, progress, options or {}, note)
    encoder, examples, settings, task = prepare(model, data, preset, changes, run, validate)
    return train_encoder(encoder, examples, settings, run, task, checkpoint=checkpoint_of(model, encoder))


def prepare(
    model: ModelLike,
    data: Any,
    preset: str,
    changes: Mapping[str, Any],
    run: Run,
    validate: str | Path | LabeledTask | None,
) -> tuple[Encoder, Examples, Settings, LabeledTask | None]:
    """What a run reads, the data first: nothing is loaded for what cannot be trained on; see `train`."""
    examples = as_examples(data)
    task = None if validate is None else load_labelled(validate).for_choice()
    if isinstance(task, PairTask) and len({pair.score for pair in task.pairs}) < 2:
        raise InputError(f"All gold scores of {task.name!r} are equal: no checkpoint does better on it than another.")
    encoder = open_encoder(model, run)
    return encoder, examples, resolve_settings(preset, tokenizer_kind(encoder), changes), task


def train_encoder(
    encoder: Encoder,
    examples: Examples,
    settings: Settings,
    run: Run,
    task: LabeledTask | None = None,
    *,
    checkpoint: str = "",
) -> Encoder:
    """Train an encoder in place by resolved settings; see `train`.

    Args:
        checkpoint: where the prediction head's weights may be found.
    """
    _check_sizes(examples, settings)
    on_device(encoder.device.type, settings.precision)  # refused before a folder is made
    backbone = encoder.module.backbone
    settings.check(capabilities_of(backbone))
    loss = make_loss(encoder, settings, examples.width, checkpoint=checkpoint)
    about = {"settings": settings.to_dict(), "data": examples.digest(), "examples": len(examples)}
    about["validate"] = None if task is None else {"task": task.name, "sha256": task.digest()}
    about["model"] = digest_of_backbone(backbone)
    resumed = _prepare_folder(run, about)
    warn(encoder, settings, examples)
    with bars(run.progress):
        trainer = make_trainer(encoder, loss, examples, settings, run, task)
        trainer.args.eval_on_start &= resumed is None  # which the run before has done
        if resumed is None:  # otherwise the checkpoint has it
            fit_head(encoder, loss.projection_head, examples, settings)
        steps = total_steps(trainer)
        if resumed is not None:
            about |= _extended(run, about, resumed, steps)
        if run.resume:
            run.note(where_it_goes_on(run.output, resumed, steps))
        trainer.run(resumed)
        encoder.eval()
        replace_module(encoder, SavableModule(backbone, settings.predicts))
        about |= _report(trainer.state, loss.projection_head, examples, task)
        trainer.accelerator.unwrap_model(encoder, keep_fp32_wrapper=False)  # mixed precision ends with the training
        _save(encoder, loss.projection_head, settings, run, about)
    return encoder


def _check_sizes(examples: Examples, settings: Settings) -> None:
    if settings.batch_size > len(examples):
        raise InputError(
            f"batch_size={settings.batch_size} is larger than the {len(examples)} examples: take a batch_size of at "
            f"most {len(examples)}, or more examples."
        )
    if settings.batch_size < 2:
        raise InputError("batch_size=1: a text's negatives are the others of its batch; take at least 2.")


def _prepare_folder(run: Run, about: dict[str, Any]) -> Path | None:
    """Make the folder of a new run, or find where an old one goes on."""
    started = run.checkpoints / STARTED
    require_replaceable(run.output)
    check_replaceable(run.output, ENCODER)
    if run.force and not run.resume:
        remove_checkpoints(run.checkpoints)
    elif not run.resume:
        check_unfinished(run.output)
    found = last_checkpoint(run.checkpoints) if run.checkpoints.is_dir() else None
    if found is not None:
        check_same_run(started, about, run.output, may_change=LENGTH)
        check_checkpoint(found)
    else:
        run.checkpoints.mkdir(parents=True, exist_ok=True)
        write_text(started, json.dumps(about, ensure_ascii=False, indent=2))
    return found


def _extended(run: Run, about: dict[str, Any], resumed: Path, steps: int) -> dict[str, Any]:
    """Note a run's new length beside its checkpoints; the steps after which it was extended, if it ever was.

    Raises:
        DataError: it would be shorter than it was.
    """
    started = run.checkpoints / STARTED
    state = json.loads((resumed / STATE).read_text(encoding="utf-8"))
    if steps < state["max_steps"]:
        raise DataError(
            f"The run in {run.output} has {state['max_steps']} steps, and {steps} would be fewer. A run that is "
            "resumed keeps its max_steps or epochs, or is given more."
        )
    before = json.loads(started.read_text(encoding="utf-8")).get(EXTENDED, [])
    found = sorted({*before, state["global_step"]} if steps > state["max_steps"] else {*before})
    extended = {EXTENDED: found} if found else {}
    write_text(started, json.dumps({**about, **extended}, ensure_ascii=False, indent=2))
    return extended


def _report(state: Any, head: ProjectionHead, examples: Examples, task: LabeledTask | None) -> dict[str, Any]:
    """What came of a run, the same for the same run."""
    history = history_of(state)
    metric = "" if task is None else f"eval_{task.score_names[0]}"
    scores = {row["step"]: row[metric] for row in history if metric in row}
    notes = list(examples.notes)
    best = state.best_metric
    if best is not None and scores.get(0) is not None and best <= scores[0]:
        notes.append(f"Training did not help: {scores[0]:.2f} before, {best:.2f} at best afterwards.")
    return {
        "steps": state.global_step,
        "before": scores.get(0),
        "best_step": state.best_global_step,
        "best_score": best,
        "projection_head_origin": head.origin,
        "history": history,
        "notes": notes,
        "versions": library_versions(),
    }


def _save(encoder: Encoder, head: ProjectionHead, settings: Settings, run: Run, about: Mapping[str, Any]) -> None:
    """Write the encoder and training.json, which appear together."""

    def finish(folder: Path, reason: str) -> None:
        encoder.write_card(folder, reason)
        if settings.keep_projection_head:
            whole = SentenceTransformer(str(folder), device="cpu")
            shutil.rmtree(folder / STATE_FOLDER)  # the recipe alone is not what the folder computes any more
            SentenceTransformer(modules=[*whole, *head.cpu().stock()], device="cpu").save(str(folder))
        (folder / ABOUT).write_text(json.dumps(about, ensure_ascii=False, indent=2), encoding="utf-8")

    try:
        encoder.write_folder(run.output, "stock", finish)
    except EssentError:
        raise
    except WRITE_ERRORS as error:
        raise TrainingError(
            f"The encoder is trained and cannot be written to {run.output}: {error}. {left_over(run.checkpoints)} "
            "It is a whole encoder too."
        ) from error
