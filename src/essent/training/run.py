"""Training runs: train an encoder on texts or pairs."""

from __future__ import annotations

import contextlib
import copy
import json
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sentence_transformers import SentenceTransformer

from essent._core.arguments import ModelLike
from essent._core.atomic import require_replaceable
from essent._core.folders.contents import weight_files
from essent._core.folders.files import ENCODER, check_replaceable
from essent._core.hub import file_options, reach_model
from essent._core.lazy import optional_import
from essent._core.texts import distinct_texts
from essent.encoder.encoder import Encoder
from essent.encoder.module import RecipeModule, digest_of_backbone
from essent.errors import InputError, ModelError
from essent.tasks.base import LabeledTask
from essent.tasks.locate import load_labelled
from essent.tasks.result import library_versions
from essent.training import checkpoints
from essent.training.device import find_device, on_device
from essent.training.examples import Examples, as_examples
from essent.training.loss import make_collator, make_loss
from essent.training.parameters import ProjectionHead, add_adapters, free_template, merge_adapters, replace_module
from essent.training.settings import CONTINUOUS, Settings, resolve_settings

logger = logging.getLogger(__name__)

HISTORY = "training.json"


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
        model: a hub name, a folder, or a loaded SentenceTransformer, which is copied and not changed.
        data: texts (unsupervised), pairs (anchor, positive) or triplets (… and hard negative); a list or `Examples`.
        preset: a paper's settings, a name in `PRESETS`. With "optiprompt", only the words of the template are trained,
            as free vectors.
        output: the folder to write: the encoder, `training.json` with settings and scores, and the checkpoints.
        validate: labels of any kind, a task's name or a file. The checkpoint with the best score on these labels
            becomes the encoder, instead of the last one. A test part is not read.
        resume: resume from the last complete checkpoint in `output`, to the same weights as an uninterrupted run. With
            more steps or epochs than before, it extends a run, finished or not.
        force: start over if `output` contains a run, and remove its checkpoints.
        device: "cpu", "cuda" or another accelerator of this machine; by default the best available one.
        progress: show a bar with step, loss and time left on a terminal.
        options: keyword arguments for Encoder.
        note: called with a line about the step at which a run resumes; by default the line is logged.
        changes: fields of `Settings` that override the preset.

    Returns:
        The trained encoder, without the head; it is also saved in `output`.

    Raises:
        InputError: unsuitable data or settings; for optiprompt, no template or more than one.
        UnsupportedRecipeError: the model cannot run the templates; for optiprompt, a template without words.
        TrainingError: a loss that is not finite, or a checkpoint that cannot be saved; the last valid one remains.
        DataError: `output` contains another run.
        KeyboardInterrupt: the run was stopped, after a checkpoint; names the step.
        MissingDependencyError: the extra `train` is not installed; for LoRA, the extra `lora`.

    Example:
        >>> from essent import train
        >>> texts = ["Two dogs run.", "A man plays a flute.", "It rains.", "The shop is closed."]
        >>> encoder = train(
        ...     "my-mlm", texts, "simcse-unsup", output="my-simcse", batch_size=4, max_steps=1, recipe="mean"
        ... )
        >>> str(encoder.recipe), len(encoder.encode(texts))
        ('mean', 4)
    """
    output = Path(output)
    find_device(device)
    examples = as_examples(data)
    task = None if validate is None else load_labelled(validate).for_choice()
    encoder = open_encoder(model, device, options)
    settings = resolve_settings(preset, tokenizer_kind(encoder), changes)
    if preset == CONTINUOUS:
        if settings.lora:
            raise InputError(f"lora={settings.lora}: the preset {CONTINUOUS!r} freezes the model. Use another preset.")
        settings = replace(settings, templates=(free_template(encoder, settings.templates),))
    if not 2 <= settings.batch_size <= len(examples):
        raise InputError(
            f"batch_size={settings.batch_size}: must be between 2 and {len(examples)}, the number of examples. The "
            "negatives of a text are the others of its batch."
        )
    on_device(encoder.device.type, settings.precision)  # raises before a folder is created
    backbone = encoder.module.backbone
    weights = own_weight_files(backbone.model.config._name_or_path, options)
    loss = make_loss(encoder, settings, examples.width, weights=weights)
    metadata: dict[str, Any] = {
        "settings": settings.to_dict(),
        "data": examples.digest(),
        "examples": len(examples),
        "validate": None if task is None else {"task": task.name, "sha256": task.digest()},
        "model": digest_of_backbone(backbone),
    }
    if settings.lora:
        add_adapters(encoder, settings.lora, settings.seed)
    require_replaceable(output)
    check_replaceable(output, ENCODER)
    length = ("max_steps", "epochs")
    resumed = checkpoints.start_or_resume(output, metadata, resume=resume, force=force, may_change=length)
    warn(encoder, settings, examples)
    with _no_library_bars():
        from essent.training.trainer import make_trainer  # needs accelerate and datasets

        collator = make_collator(encoder, loss, settings.max_seq_length)
        trainer = make_trainer(
            encoder, loss, examples, settings, output / checkpoints.CHECKPOINTS, collator, task, progress=progress
        )
        trainer.args.eval_on_start &= resumed is None  # the interrupted run has already evaluated
        if resumed is None:  # otherwise the checkpoint contains the fitted head
            _fit_head(encoder, loss.projection_head, examples, settings.seed)
        is_trained = checkpoints.train_or_resume(trainer, resumed, note if resume else None)
        if not is_trained and task is not None:  # all steps were done
            trainer._load_best_model()
        encoder.eval()
        merge_adapters(encoder)
        replace_module(encoder, RecipeModule(backbone, settings.predicts))
        metadata |= _report(trainer.state, loss.projection_head, examples, task)
        trainer.accelerator.unwrap_model(encoder, keep_fp32_wrapper=False)  # mixed precision ends with the training
        _save(encoder, output, metadata)
    return encoder


def open_encoder(model: ModelLike, device: str | None = None, options: Mapping[str, Any] | None = None) -> Encoder:
    """Open a model with all its layers in float32; a loaded model is copied."""
    for name in ("accelerate", "datasets"):
        optional_import(name, "train")
    arguments = {**(options or {}), **({} if device is None else {"device": device})}
    if isinstance(model, SentenceTransformer):
        return Encoder(copy.deepcopy(model).float(), "mean", **arguments)
    arguments["model_kwargs"] = {"dtype": torch.float32, **(arguments.get("model_kwargs") or {})}
    return Encoder(model, "mean", **arguments)


def own_weight_files(name: str, options: Mapping[str, Any] | None) -> list[Path]:
    """Return the safetensors files that a model was loaded from; [] if there are none any more."""
    try:
        return weight_files(name, file_options(reach_model(name, options))) if name else []
    except (ModelError, OSError, ValueError):  # a loaded model, whose folder or repository is not there
        return []


def tokenizer_kind(encoder: Encoder) -> str:
    """Return "bert" if "##" marks tokens that continue a word, "roberta" if a marker starts words."""
    return "bert" if encoder.module.backbone.vocabulary.marker == "##" else "roberta"


def has_dropout(encoder: Encoder) -> bool:
    """Return whether the configuration of an encoder's model has a dropout rate above 0."""
    settings = encoder.module.backbone.model.config.to_dict().items()
    unused = ("classifier", "summary")
    return any(
        "drop" in key and not key.startswith(unused) and isinstance(rate, float) and rate for key, rate in settings
    )


def _fit_head(encoder: Encoder, head: ProjectionHead, examples: Examples, seed: int) -> None:
    """Fit the projection head, if it has something to fit, to the model's vectors of some of the texts."""
    if head.fitted_on:
        texts = distinct_texts(text for row in zip(*examples.rows, strict=True) for text in row)[0]
        chosen = np.sort(np.random.default_rng(seed).permutation(len(texts))[: head.fitted_on])
        head.fit(encoder.encode([texts[index] for index in chosen], show_progress_bar=False))


def warn(encoder: Encoder, settings: Settings, examples: Examples) -> None:
    """Warn if both views of a text are equal."""
    if examples.width == 1 and settings.row.templates < 2 and not (settings.lora or has_dropout(encoder)):
        logger.warning("The model has no dropout: both views of a text are equal under %r.", settings.objective)


@contextlib.contextmanager
def _no_library_bars() -> Iterator[None]:
    """Disable the progress bars of datasets and transformers in this block."""
    import datasets
    from transformers.utils import logging as transformers_logging

    with contextlib.ExitStack() as after:
        if not datasets.are_progress_bars_disabled():
            datasets.disable_progress_bars()
            after.callback(datasets.enable_progress_bars)
        if transformers_logging.is_progress_bar_enabled():
            transformers_logging.disable_progress_bar()
            after.callback(transformers_logging.enable_progress_bar)
        yield


def _report(state: Any, head: ProjectionHead, examples: Examples, task: LabeledTask | None) -> dict[str, Any]:
    """Return the outcome of a run for `training.json`; equal runs have equal reports."""
    history, notes, best = checkpoints.history_of(state), list(examples.notes), state.best_metric
    metric = "" if task is None else f"eval_{task.score_names[0]}"
    before = next((row[metric] for row in history if metric in row and row["step"] == 0), None)
    if best is not None and before is not None and best <= before:
        notes.append(f"Training did not improve the score: {before:.2f} before, at most {best:.2f} afterwards.")
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


def _save(encoder: Encoder, output: Path, metadata: Mapping[str, Any]) -> None:
    """Write the encoder and training.json in one step."""

    def finish(folder: Path, reason: str) -> None:
        encoder.write_card(folder, reason)
        (folder / HISTORY).write_text(json.dumps(metadata, ensure_ascii=False, indent=2), encoding="utf-8")

    with checkpoints.writing_result(output):
        encoder.write_folder(output, "stock", finish)
