"""The parts of a training run: the encoder that is trained, its loss, its batches, its trainer."""

from __future__ import annotations

import contextlib
import copy
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sentence_transformers import SentenceTransformer

from essent._core.lazy import optional_import
from essent._core.texts import distinct_texts
from essent._core.types import ModelLike
from essent.encoder.encoder import Encoder
from essent.encoder.pipeline.module import RecipeModule
from essent.encoder.pipeline.plan import Plan
from essent.encoder.saving.stock_modules import NoStockModulesError, stock_modules
from essent.errors import RecipeError
from essent.model.capabilities import capabilities_of
from essent.tasks.base import LabeledTask
from essent.training.checkpoints import CHECKPOINTS
from essent.training.device import find_device, on_device
from essent.training.examples import Examples
from essent.training.loss import ContrastiveLoss
from essent.training.projection import ProjectionHead, projection_heads
from essent.training.settings import Settings
from essent.training.views import ShuffledBatches, ViewCollator, ViewedModule, places_of

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Run:
    """Where a run reads and writes, and how it shows itself; none of it changes the result.

    Attributes:
        output: the folder of the trained encoder; checkpoints stand below it.
        resume: go on from the last checkpoint there, if there is one.
        force: remove the checkpoints that are there, and begin anew.
        device: "cpu", "cuda" or another accelerator of this machine, or None for the best there is.
        progress: show a bar.
        options: keyword arguments for Encoder (revision, token, trust_remote_code …).
        note: is called with a line about where a resumed run goes on; by default it is logged.
    """

    output: Path
    resume: bool = False
    force: bool = False
    device: str | None = None
    progress: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)
    note: Callable[[str], None] = logger.info

    def __post_init__(self) -> None:
        object.__setattr__(self, "output", Path(self.output))
        find_device(self.device)

    @property
    def checkpoints(self) -> Path:
        """The folder of the checkpoints."""
        return self.output / CHECKPOINTS


def open_encoder(model: ModelLike, run: Run) -> Encoder:
    """All layers of a model, in float32, as an Encoder of its own."""
    for name in ("accelerate", "datasets"):
        optional_import(name, "train")
    given = dict(run.options)
    if run.device is not None:
        given["device"] = run.device
    if isinstance(model, SentenceTransformer):
        return Encoder(copy.deepcopy(model).float(), "mean", **given)
    given["model_kwargs"] = {"dtype": torch.float32, **(given.get("model_kwargs") or {})}
    return Encoder(model, "mean", **given)


def tokenizer_kind(encoder: Encoder) -> str:
    """ "bert" where word pieces continue a word with "##", "roberta" where a mark begins one."""
    return "bert" if encoder.module.backbone.vocabulary.marker == "##" else "roberta"


def checkpoint_of(model: ModelLike, encoder: Encoder) -> str:
    """Where a prediction head may be found."""
    return str(model) if isinstance(model, (str, Path)) else str(encoder.module.backbone.model.config._name_or_path)


def make_loss(encoder: Encoder, settings: Settings, columns: int = 1, *, checkpoint: str = "") -> ContrastiveLoss:
    """The loss of a run, for a trainer of your own; the encoder takes on the recipe that will predict.

    The head `whiten` must then be fitted: `loss.projection_head.fit(encoder.encode(texts))`.

    Args:
        encoder: changed in place, as training changes it.
        columns: of the data: 1 (texts), 2 (pairs), 3 (with hard negatives).
        checkpoint: where the prediction head's weights may be found.

    Raises:
        UnsupportedRecipeError: the model cannot run the templates, or has no room for them.
        RecipeError: weights that count tokens, `keep_projection_head` for a head or a recipe that has no stock modules.
    """
    backbone = encoder.module.backbone
    settings.check(capabilities_of(backbone))
    generator = torch.Generator().manual_seed(settings.seed)
    head = projection_heads[settings.projection_head](backbone.dimensions, backbone.model.config, generator, checkpoint)
    module = ViewedModule(backbone, settings.predicts)
    if module.plan.reads_stats:
        raise RecipeError(
            f"{str(settings.predicts)!r} counts tokens, which nothing does in training; train with weights that do not "
            "(mean, cls …), and take these afterwards."
        )
    plans = [Plan(recipe, backbone) for recipe in settings.views]
    replace_module(encoder, module)
    if settings.keep_projection_head:  # refused before anything is trained
        _check_stock(encoder, head)
    return ContrastiveLoss(
        encoder,
        plans,
        places_of(columns, len(settings.views)),
        head,
        denoised=settings.row.denoised,
        temperature=settings.temperature,
    )


def fit_head(encoder: Encoder, head: ProjectionHead, examples: Examples, settings: Settings) -> None:
    """Fit a projection head that learns from the model's vectors before training, on some of the texts."""
    if not head.fitted_on:
        return
    texts = distinct_texts(text for column in examples.columns().values() for text in column)[0]
    chosen = np.sort(np.random.default_rng(settings.seed).permutation(len(texts))[: head.fitted_on])
    head.fit(encoder.encode([texts[place] for place in chosen], show_progress_bar=False))


def _check_stock(encoder: Encoder, head: ProjectionHead) -> None:
    head.stock()
    try:
        stock_modules(encoder.module)
    except NoStockModulesError as error:
        raise RecipeError(
            f"keep_projection_head saves stock modules, and {str(encoder.recipe)!r} has none: {error}."
        ) from None


def make_collator(encoder: Encoder, loss: ContrastiveLoss, max_seq_length: int = 32) -> ViewCollator:
    """What makes the batches of such a loss: give it to the trainer as `data_collator`."""
    return ViewCollator(
        encoder.preprocess,
        backbone=encoder.module.backbone,
        frames=[plan.frame for plan in loss.plans],
        places=loss.places,
        max_seq_length=max_seq_length,
    )


def replace_module(encoder: Encoder, module: RecipeModule) -> None:
    """Put another recipe's module in the place of the encoder's."""
    encoder._modules[next(iter(encoder._modules))] = module
    encoder._sign()


def warn(encoder: Encoder, settings: Settings, examples: Examples) -> None:
    """Warn of settings that can be trained but are probably a mistake."""
    same_view = examples.width == 1 and settings.row.templates < 2
    config = encoder.module.backbone.model.config
    rates = [
        value
        for key, value in config.to_dict().items()
        if "drop" in key and not key.startswith(("classifier", "summary")) and isinstance(value, float)
    ]
    if same_view and not any(rates):
        logger.warning("The model has no dropout: both views of a text are equal under %r.", settings.objective)
    if settings.predicts.weights == ("cls",) and encoder.module.backbone.tokenizer.cls_token is None:
        logger.warning(
            "The tokenizer has no token that stands for a text: recipe='cls' reads the first word, and in a decoder "
            "that sees nothing of the others. recipe='last-token' does."
        )


@contextlib.contextmanager
def bars(shown: bool) -> Iterator[None]:
    """Without the libraries' own progress bars in this block, unless they are to be shown."""
    import datasets
    from transformers.utils import logging as transformers_logging

    for_data, for_models = not datasets.are_progress_bars_disabled(), transformers_logging.is_progress_bar_enabled()
    if not shown:
        datasets.disable_progress_bars()
        transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        if for_data:
            datasets.enable_progress_bars()
        if for_models:
            transformers_logging.enable_progress_bar()


def make_trainer(
    encoder: Encoder,
    loss: ContrastiveLoss,
    examples: Examples,
    settings: Settings,
    run: Run,
    task: LabeledTask | None = None,
) -> Any:
    """sentence-transformers' trainer of a run, not started."""
    import datasets
    from sentence_transformers import SentenceTransformerTrainingArguments
    from transformers import PrinterCallback

    from essent.training.trainer import ContrastiveTrainer, TaskScore

    validation: dict[str, Any] = {}
    if task is not None:
        validation = {"eval_strategy": "steps", "eval_steps": settings.validate_every, "eval_on_start": True}
        validation |= {"load_best_model_at_end": True, "greater_is_better": True}
        validation["metric_for_best_model"] = task.score_names[0]
    arguments = SentenceTransformerTrainingArguments(
        output_dir=str(run.checkpoints),
        per_device_train_batch_size=settings.batch_size,
        learning_rate=settings.learning_rate,
        num_train_epochs=settings.epochs,
        max_steps=settings.max_steps or -1,
        seed=settings.seed,
        save_strategy="steps",
        save_steps=settings.validate_every,
        save_total_limit=2,  # the last and the best
        logging_steps=min(settings.validate_every, 50),
        report_to="none",
        disable_tqdm=not run.progress,
        **on_device(encoder.device.type, settings.precision),
        batch_sampler=ShuffledBatches,
        **validation,
    )
    if arguments.n_gpu > 1:  # one process on several GPUs would multiply the batch; torchrun starts one for each
        arguments._n_gpu = 1
    trainer = ContrastiveTrainer(
        model=encoder,
        args=arguments,
        train_dataset=datasets.Dataset.from_dict(examples.columns()),
        loss=loss,
        evaluator=None
        if task is None
        else TaskScore(task, loss.projection_head if settings.keep_projection_head else None),
        data_collator=make_collator(encoder, loss, settings.max_seq_length),
    )
    trainer.remove_callback(PrinterCallback)  # prints to standard output
    return trainer
