"""A training run: a model and texts in, an Encoder out; the same run with several seeds."""

from __future__ import annotations

import contextlib
import copy
import json
import logging
import shutil
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from transformers import TrainerState

from essent._core.atomic import require_replaceable, write_text
from essent._core.folders.names import ENCODER, STATE_FOLDER
from essent._core.folders.places import check_replaceable
from essent._core.lazy import optional_import
from essent._core.texts import distinct_texts
from essent._core.types import ModelLike
from essent.encoder.encoder import Encoder
from essent.encoder.pipeline.digests import digest_of_backbone
from essent.encoder.saving.save import SavableModule
from essent.errors import DataError, EssentError, InputError, TrainingError
from essent.tasks.base import LabeledTask
from essent.tasks.locate import load_labelled
from essent.tasks.pairs import PairTask
from essent.tasks.result import library_versions
from essent.training.checkpoints import (
    CHECKPOINTS,
    STARTED,
    STATE,
    WRITE_ERRORS,
    check_checkpoint,
    check_same_run,
    check_unfinished,
    checkpoint_note,
    history_of,
    last_checkpoint,
    remove_checkpoints,
    total_steps,
    where_it_goes_on,
)
from essent.training.continuous import free_template, replace_module
from essent.training.device import find_device, on_device
from essent.training.examples import Examples, as_examples
from essent.training.loss import make_collator, make_loss
from essent.training.projection import ProjectionHead, with_head
from essent.training.settings import CONTINUOUS, Settings, resolve_settings

logger = logging.getLogger(__name__)

HISTORY, SEEDS = "training.json", "seeds.json"


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
        preset: a paper's settings, a name of `PRESETS`. With "optiprompt" the words of the template become free
            vectors, and nothing else is trained.
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
        InputError: data or settings that cannot be trained on; for optiprompt, other than one template.
        UnsupportedRecipeError: the model cannot run the templates; for optiprompt, a template without words.
        TrainingError: a loss that is not finite, a checkpoint that cannot be saved; the last good one stays.
        DataError: `output` holds another run.
        KeyboardInterrupt: it was stopped, after a checkpoint; says at which step.
        MissingDependencyError: without the extra `train`.
    """
    output = Path(output)
    find_device(device)
    examples = as_examples(data)
    task = None if validate is None else load_labelled(validate).for_choice()
    if isinstance(task, PairTask) and len({pair.score for pair in task.pairs}) < 2:
        raise InputError(f"All gold scores of {task.name!r} are equal: no checkpoint does better on it than another.")
    encoder = open_encoder(model, device, options)
    settings = resolve_settings(preset, tokenizer_kind(encoder), changes)
    checkpoint = str(model) if isinstance(model, (str, Path)) else encoder.module.backbone.model.config._name_or_path
    if preset == CONTINUOUS:
        settings = replace(settings, templates=(free_template(encoder, settings.templates),))
    if not 2 <= settings.batch_size <= len(examples):
        raise InputError(
            f"batch_size={settings.batch_size} on {len(examples)} examples: take a batch_size of at most "
            f"{len(examples)} and at least 2, as a text's negatives are the others of its batch."
        )
    on_device(encoder.device.type, settings.precision)  # refused before a folder is made
    backbone = encoder.module.backbone
    loss = make_loss(encoder, settings, examples.width, checkpoint=checkpoint)
    metadata: dict[str, Any] = {
        "settings": settings.to_dict(),
        "data": examples.digest(),
        "examples": len(examples),
        "validate": None if task is None else {"task": task.name, "sha256": task.digest()},
        "model": digest_of_backbone(backbone),
    }
    resumed = _prepare_folder(output, metadata, resume=resume, force=force)
    warn(encoder, settings, examples)
    with _progress_bars(progress):
        from essent.training.trainer import make_trainer  # needs accelerate and datasets

        collator = make_collator(encoder, loss, settings.max_seq_length)
        trainer = make_trainer(
            encoder, loss, examples, settings, output / CHECKPOINTS, collator, task, progress=progress
        )
        trainer.args.eval_on_start &= resumed is None  # which the run before has done
        if resumed is None:  # otherwise the checkpoint has it
            _fit_head(encoder, loss.projection_head, examples, settings.seed)
        steps = total_steps(trainer)
        if resumed is not None and steps < (before := TrainerState.load_from_json(str(resumed / STATE)).max_steps):
            raise DataError(
                f"The run in {output} has {before} steps, and {steps} would be fewer. A run that is resumed keeps its "
                "max_steps or epochs, or is given more."
            )
        if resume:
            note(where_it_goes_on(output, resumed, steps))
        trainer.run(resumed)
        encoder.eval()
        replace_module(encoder, SavableModule(backbone, settings.predicts))
        metadata |= _report(trainer.state, loss.projection_head, examples, task)
        trainer.accelerator.unwrap_model(encoder, keep_fp32_wrapper=False)  # mixed precision ends with the training
        _save(encoder, loss.projection_head if settings.keep_projection_head else None, output, metadata)
    return encoder


def open_encoder(model: ModelLike, device: str | None = None, options: Mapping[str, Any] | None = None) -> Encoder:
    """All layers of a model, in float32, as an Encoder of its own."""
    for name in ("accelerate", "datasets"):
        optional_import(name, "train")
    arguments = {**(options or {}), **({} if device is None else {"device": device})}
    if isinstance(model, SentenceTransformer):
        return Encoder(copy.deepcopy(model).float(), "mean", **arguments)
    arguments["model_kwargs"] = {"dtype": torch.float32, **(arguments.get("model_kwargs") or {})}
    return Encoder(model, "mean", **arguments)


def tokenizer_kind(encoder: Encoder) -> str:
    """ "bert" where word pieces continue a word with "##", "roberta" where a mark begins one."""
    return "bert" if encoder.module.backbone.vocabulary.marker == "##" else "roberta"


def has_dropout(encoder: Encoder) -> bool:
    """Whether the configuration of an encoder's model has a dropout above 0."""
    settings = encoder.module.backbone.model.config.to_dict().items()
    unused = ("classifier", "summary")
    return any(
        "drop" in key and not key.startswith(unused) and isinstance(rate, float) and rate for key, rate in settings
    )


def _fit_head(encoder: Encoder, head: ProjectionHead, examples: Examples, seed: int) -> None:
    """Fit a projection head that learns from the model's vectors before training, on some of the texts."""
    if head.fitted_on:
        texts = distinct_texts(text for row in zip(*examples.rows, strict=True) for text in row)[0]
        chosen = np.sort(np.random.default_rng(seed).permutation(len(texts))[: head.fitted_on])
        head.fit(encoder.encode([texts[index] for index in chosen], show_progress_bar=False))


def warn(encoder: Encoder, settings: Settings, examples: Examples) -> None:
    """Warn of settings that can be trained but are probably a mistake."""
    if examples.width == 1 and settings.row.templates < 2 and not has_dropout(encoder):
        logger.warning("The model has no dropout: both views of a text are equal under %r.", settings.objective)
    if settings.predicts.weights == ("cls",) and encoder.module.backbone.tokenizer.cls_token is None:
        logger.warning(
            "The tokenizer has no token that stands for a text: recipe='cls' reads the first word, and in a decoder "
            "that sees nothing of the others. recipe='last-token' does."
        )


@contextlib.contextmanager
def _progress_bars(enabled: bool) -> Iterator[None]:
    """Without the libraries' own progress bars in this block, unless they are to be shown."""
    import datasets
    from transformers.utils import logging as transformers_logging

    for_data, for_models = not datasets.are_progress_bars_disabled(), transformers_logging.is_progress_bar_enabled()
    if not enabled:
        datasets.disable_progress_bars()
        transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        if for_data:
            datasets.enable_progress_bars()
        if for_models:
            transformers_logging.enable_progress_bar()


def _prepare_folder(output: Path, metadata: Mapping[str, Any], *, resume: bool, force: bool) -> Path | None:
    """Make the folder of a new run, or find the checkpoint from which an old one goes on."""
    checkpoints = output / CHECKPOINTS
    require_replaceable(output)
    check_replaceable(output, ENCODER)
    if force and not resume:
        remove_checkpoints(checkpoints)
    elif not resume:
        check_unfinished(output)
    newest = last_checkpoint(checkpoints)
    if newest is not None:
        check_same_run(checkpoints / STARTED, metadata, output, may_change=("max_steps", "epochs"))
        check_checkpoint(newest)
    else:
        checkpoints.mkdir(parents=True, exist_ok=True)
        write_text(checkpoints / STARTED, json.dumps(metadata, ensure_ascii=False, indent=2))
    return newest


def _report(state: Any, head: ProjectionHead, examples: Examples, task: LabeledTask | None) -> dict[str, Any]:
    """What came of a run, the same for the same run."""
    history, notes, best = history_of(state), list(examples.notes), state.best_metric
    metric = "" if task is None else f"eval_{task.score_names[0]}"
    before = next((row[metric] for row in history if metric in row and row["step"] == 0), None)
    if best is not None and before is not None and best <= before:
        notes.append(f"Training did not help: {before:.2f} before, {best:.2f} at best afterwards.")
    return {
        "steps": state.global_step,
        "before": before,
        "best_step": state.best_global_step,
        "best_score": best,
        "projection_head_origin": head.origin,
        "history": history,
        "notes": notes,
        "versions": library_versions(),
    }


def _save(encoder: Encoder, head: ProjectionHead | None, output: Path, metadata: Mapping[str, Any]) -> None:
    """Write the encoder, with a head that is kept behind it, and training.json, which appear together."""

    def finish(folder: Path, reason: str) -> None:
        encoder.write_card(folder, reason)
        if head is not None:
            stock = SentenceTransformer(str(folder), device="cpu")
            shutil.rmtree(folder / STATE_FOLDER)  # the recipe alone is not what the folder computes any more
            with_head(stock, head.cpu()).save(str(folder))
        (folder / HISTORY).write_text(json.dumps(metadata, ensure_ascii=False, indent=2), encoding="utf-8")

    try:
        encoder.write_folder(output, "stock", finish)
    except EssentError:
        raise
    except WRITE_ERRORS as error:
        raise TrainingError(
            f"The encoder is trained and cannot be written to {output}: {error}. "
            f"{checkpoint_note(output / CHECKPOINTS)} It is a whole encoder too."
        ) from error


# -- several seeds ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Spread:
    """Scores of one task over seeds."""

    scores: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Their mean."""
        return statistics.fmean(self.scores)

    @property
    def deviation(self) -> float | None:
        """Their sample standard deviation (n − 1), None for one seed."""
        return statistics.stdev(self.scores) if len(self.scores) > 1 else None

    def __str__(self) -> str:
        return f"{self.mean:.2f}" + ("" if self.deviation is None else f" ± {self.deviation:.2f}")


def train_seeds(
    model: ModelLike,
    data: Any,
    *arguments: Any,
    seeds: int | Sequence[int],
    output: str | Path,
    validate: str | Path | LabeledTask,
    test: Sequence[str | Path | LabeledTask] = (),
    **settings: Any,
) -> dict[str, Spread]:
    """Train once per seed, each run in `output`/seed-N, and say how far they lie apart; also in `output`/seeds.json.

    Args:
        seeds: how many, from the setting `seed` (42) upwards, or which ones.
        validate: what each run chooses its checkpoint on, judgements of any kind.
        test: tasks that the chosen encoders are scored on.
        arguments, settings: as of `train`.

    Returns:
        Name of the task -> its scores: the best of the validation, then the tests.

    Raises:
        InputError: no seed, or one twice; and whatever `train` raises.
    """
    first = settings.pop("seed", 42)
    chosen = list(range(first, first + seeds)) if isinstance(seeds, int) else list(seeds)
    if not chosen or len(set(chosen)) < len(chosen):
        raise InputError(f"seeds={seeds!r}: give a number of at least 1, or different seeds.")
    task, *tests = map(load_labelled, (validate, *test))
    task = task.for_choice()
    scores: dict[str, list[float]] = {part.name: [] for part in (task, *tests)}
    if len(scores) <= len(tests):
        raise InputError(f"Of the tasks {', '.join(scores)} one is given twice; test on others than you validate on.")
    for seed in chosen:
        folder = Path(output) / f"seed-{seed}"
        encoder = train(model, data, *arguments, output=folder, validate=task, seed=seed, **settings)
        scores[task.name].append(json.loads((folder / HISTORY).read_text(encoding="utf-8"))["best_score"])
        for part in tests:
            scores[part.name].append(part.run(encoder).main_score)
    spreads = {name: Spread(tuple(seed_scores)) for name, seed_scores in scores.items()}
    tasks = {
        name: {"mean": spread.mean, "deviation": spread.deviation, **asdict(spread)} for name, spread in spreads.items()
    }
    written = {"seeds": chosen, "validate": task.name, "tasks": tasks}
    write_text(Path(output) / SEEDS, json.dumps(written, ensure_ascii=False, indent=2))
    return spreads
