"""A static encoder of any model: context averages, fitted to whole sentences, shaped, reduced, as one table.

contexts ─ layer mix α ─ token weights u ─ fit to sentences ─ shaping g ─ dimensions ─ bits ─ StaticEmbedding
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from essent._core.texts import check_texts
from essent._core.types import ModelLike
from essent.encoder.encoder import Encoder
from essent.encoder.pipeline.plan import Plan
from essent.encoder.saving.static_table import UNIT, rounded
from essent.errors import RecipeError
from essent.model.backbone import Backbone
from essent.model.loading import load
from essent.model.token_rows import unlimited
from essent.recipe.recipe import Recipe
from essent.recipe.sources.layers import resolve
from essent.recipe.tokens.ids import fast_backend, text_ids
from essent.static.gather import Settings, average_contexts
from essent.static.table import (
    Choice,
    Material,
    agreement,
    bag_matrix,
    check_choice,
    check_dimensions,
    flat_ids,
    parse_layers,
    reduce_table,
)
from essent.tasks.base import Task, unit_rows

if TYPE_CHECKING:
    from essent.tasks.base import LabeledTask

logger = logging.getLogger(__name__)

MANY_NEW = 0.02  # share of the tokens of further texts that the corpus lacks, from which on a warning is logged
WEIGHTS = ("uniform", "sif:0.01", "sif:0.001", "idf")
SHAPINGS = ("", "centre", "abtt:1", "abtt:2")
FITS = (0.03, 0.1, 0.3, 1.0)


def collect(
    model: ModelLike,
    corpus: Sequence[str],
    *,
    layers: Sequence[str] | None = None,
    teacher: str | None = None,
    dimensions: int | None = None,
    settings: Settings | None = None,
    options: dict[str, Any] | None = None,
) -> tuple[Material, Backbone]:
    """One pass over the corpus: averages of the layers, and the model's sentence vectors.

    Args:
        model: a hub name, folder or loaded SentenceTransformer.
        layers: the mixes that will be asked for; None averages every layer.
        teacher: the recipe of the sentence vectors, without shaping; None takes the model's own pooling, `mean` for a
            plain transformer.
        dimensions: that the table will be asked for, so that too many are refused before the model runs.
        settings: how to pass; `layers` are set here.

    Raises:
        RecipeError: a teacher with shaping.
        InputError, RecipeError, ModelError: see `essent.static.gather.average_contexts`.
    """
    texts, how = check_texts(corpus), settings or Settings()
    names = None if layers is None else {name for mix in map(parse_layers, layers) for name, _ in mix}
    recipe = None if teacher is None else Recipe.parse(teacher)
    if recipe is not None and recipe.shaping not in ((), UNIT):  # lengths do not matter to the fit
        raise RecipeError(
            f"teacher={teacher!r}: sentence vectors are fitted as they are pooled; leave the shaping out."
        )
    # with a teacher the model's own pooling may be anything; `mean` reads the last layer: none is cut
    loaded = load(model, [] if recipe is None else [Recipe()], options or {})
    backbone = loaded.backbone
    backbone.compute_in(how.precision)
    if dimensions is not None:
        check_dimensions(dimensions, backbone.dimensions)
    plan = Plan(replace(recipe or loaded.recipes[0], shaping=()), backbone)
    backbone.to(loaded.settings["device"])
    numbers = None if names is None else sorted({int(resolve(name, backbone.last).key) for name in names})
    contexts, vectors = average_contexts(backbone, texts, replace(how, layers=numbers), plan)
    contexts.about["model"] = str(model)
    tokenizer = unlimited(backbone.tokenizer)
    ids = text_ids(tokenizer, texts)
    if (share := share_of_new(ids)) > MANY_NEW:
        logger.warning(
            "The corpus is small: it lacks about %.0f %% of the tokens of further texts of the same kind, and more of "
            "texts of another kind. Their rows come from the rule unseen=%s. Add texts like those to be encoded.",
            100 * share,
            how.unseen,
        )
    return Material(
        tokenizer, contexts, vectors, texts, bag_matrix(ids, 1 + max(tokenizer.get_vocab().values()))
    ), backbone


@dataclass(frozen=True)
class Distilled:
    """A static encoder and how it came about.

    Attributes:
        losses: what making the table smaller lost: `variance`, the share that fewer dimensions keep, 0 … 1;
            `dimensions` and `bits`, Spearman ×100 between similarities before and after each. What was not done has no
            entry.
    """

    encoder: Encoder
    choice: Choice
    losses: dict[str, float]
    material: Material

    def summary(self) -> Iterator[str]:
        """The choice, how much of the vocabulary the corpus has, and what making the table smaller lost."""
        contexts, losses = self.material.contexts, self.losses
        yield (
            f"{self.choice}; {contexts.about['tokens']} tokens, {int(contexts.seen.sum())} of {len(contexts.count)} "
            f"seen, the others: {contexts.about['unseen']}"
        )
        if "variance" in losses:
            yield (
                f"Fewer dimensions: {100 * losses['variance']:.1f} % of the variance kept, similarities agree to "
                f"{losses['dimensions']:.2f} (Spearman ×100)"
            )
        if "bits" in losses:
            yield f"Fewer bits: similarities agree to {losses['bits']:.2f} (Spearman ×100)"


def make_encoder(
    material: Material, choice: Choice, *, dimensions: int | None = None, dtype: str = "float32", progress: bool = False
) -> Distilled:
    """The static encoder of a choice.

    Args:
        dimensions: fewer than the model's; None keeps them.
        dtype: float32, float16 or int8: how the saved table is stored. The encoder has the rounded rows already.

    Raises:
        InputError: an unknown dtype, too many dimensions, or numbers too large for float16.
    """
    check_choice(choice, dtype, dimensions)
    table = material.table(choice, progress=progress)
    losses: dict[str, float] = {}
    if dimensions is not None:
        table, losses["variance"], losses["dimensions"] = reduce_table(material.token_counts, table, dimensions)
    if dtype != "float32":
        exact, table = table, rounded(table, dtype)
        losses["bits"] = agreement(material.token_counts, exact, table)
    return Distilled(encoder_of(table, material.tokenizer, dtype), choice, losses, material)


def encoder_of(table: np.ndarray, tokenizer: Any, dtype: str = "float32") -> Encoder:
    """An Encoder `static | normalize` of a table."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Normalize
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding

    shell = SentenceTransformer(modules=[StaticEmbedding(fast_backend(tokenizer), table), Normalize()], device="cpu")
    encoder = Encoder(shell)
    encoder.module.backbone.model.config.stored = dtype
    return encoder


def distill(
    model: ModelLike,
    corpus: Sequence[str],
    choice: Choice | None = None,
    *,
    dimensions: int | None = None,
    dtype: str = "float32",
    unseen: str = "alone",
    teacher: str | None = None,
    state: str | Path | None = None,
    batch_size: int = 32,
    progress: bool = False,
    **options: Any,
) -> Distilled:
    """A static encoder of a model: as fast as tokenising, no training.

    Args:
        model: a hub name, a folder or a loaded SentenceTransformer.
        corpus: texts like those that will be encoded; no labels. Duplicates count as often as they stand there.
        choice: layers, weights, ridge and shaping.
        dimensions: dimensions of a row, fewer than the model's; by default as many.
        dtype: how rows are stored: float32, float16 or int8.
        unseen: rows of tokens that the corpus lacks: alone, static, zero or mean (essent.static.gather).
        teacher: the recipe of the sentence vectors that the rows are fitted to; None takes the model's own.
        state: a file that a killed run goes on from.
        options: SentenceTransformer's keyword arguments (device, revision …).

    Returns:
        The encoder, whose `save` writes sentence-transformers' StaticEmbedding, and what making it smaller lost.

    Raises:
        InputError, RecipeError, ModelError, DataError: bad texts, mixes, models, states.
    """
    chosen = choice or Choice()
    check_choice(chosen, dtype, dimensions)
    path = None if state is None else Path(state)
    settings = Settings(unseen=unseen, state=path, batch_size=batch_size, progress=progress)
    passes: dict[str, Any] = {"teacher": teacher, "dimensions": dimensions, "settings": settings, "options": options}
    material, _ = collect(model, corpus, layers=[chosen.layers], **passes)
    return make_encoder(material, chosen, dimensions=dimensions, dtype=dtype, progress=progress)


# -- choosing, and what a table keeps of its model --------------------------------------------------------------------


def find_choice(
    material: Material, task: LabeledTask, *, report: Callable[[float, Choice], object] = lambda score, choice: None
) -> list[tuple[float, Choice]]:
    """Try layers × weights × shaping without a fit, then strengths of the fit × shaping on the best of them.

    Layers: every averaged one alone, the last two, the first and the last.

    Args:
        task: judgements of any kind; use none that results are reported on.
        report: called with each score and choice.

    Returns:
        Scores and choices, best first.
    """
    token_counts = bag_matrix(text_ids(material.tokenizer, task.texts()), material.rows)
    layers, last = sorted(material.contexts.tables), material.contexts.last
    pairs = [f"{low}+{high}" for low, high in ((last - 1, last), (0, last)) if {low, high} <= {*layers} and low != high]

    def score(choice: Choice) -> tuple[float, Choice]:
        vectors = unit_rows(token_counts @ material.table(choice)).astype(np.float32)
        main_score = float(task.score_vectors(vectors).main_score)
        report(main_score, choice)
        return main_score, choice

    trials = [
        score(Choice(mix, weights, None, shaping))
        for mix in [*map(str, layers), *pairs]
        for weights in WEIGHTS
        for shaping in SHAPINGS
    ]
    if material.vectors is not None:
        best = max(trials, key=lambda trial: trial[0])[1]
        trials += [score(replace(best, ridge=ridge, shaping=shaping)) for ridge in FITS for shaping in SHAPINGS]
    return sorted(trials, key=lambda trial: -trial[0])


class TaskScores(NamedTuple):
    """Both main scores on a task.

    Attributes:
        task: its name.
        model, static: the main scores, ×100.
        coverage: the share of the task's tokens that the corpus has.
    """

    task: str
    model: float
    static: float
    coverage: float

    @property
    def share(self) -> float:
        """The static encoder's score in per cent of the model's; NaN where that is 0."""
        return 100 * self.static / self.model if self.model else math.nan


def compare(distilled: Distilled, model: Callable[[list[str]], Any], tasks: Sequence[Task]) -> list[TaskScores]:
    """The static encoder beside the model that it was made of, task by task.

    Args:
        model: its `encode`, or anything that gives vectors (N,D) of N texts.
        tasks: tasks with a main score.
    """
    return [
        TaskScores(
            task.name,
            task.run(model).main_score,
            task.run(distilled.encoder).main_score,
            coverage_of(distilled.material, task.texts()),
        )
        for task in tasks
    ]


def coverage_of(material: Material, texts: Sequence[str]) -> float:
    """The share of the texts' tokens, each place counted, that the corpus has; NaN for texts without tokens."""
    ids = flat_ids(text_ids(material.tokenizer, list(texts)))
    return float((material.contexts.count[ids] > 0).mean()) if len(ids) else math.nan


def share_of_new(sequences: Sequence[Sequence[int]]) -> float:
    """The share of the tokens of further texts that these texts lack: their tokens found once among all (Good 1953).

    Right for texts of one kind in random order; too low for texts of another kind.
    """
    ids = flat_ids(sequences)
    return float((np.bincount(ids) == 1).sum() / len(ids)) if len(ids) else math.nan
