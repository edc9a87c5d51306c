"""Distil any model into a static encoder: one table of context averages, fitted to sentences, shaped and reduced.

contexts ─ layer mix α ─ token weights u ─ fit to sentences ─ shaping g ─ dimensions ─ bits ─ StaticEmbedding
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
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
from essent.model.weights import move
from essent.recipe.recipe import Recipe
from essent.recipe.sources.layers import resolve
from essent.recipe.tokens.ids import count_tokens, fast_backend, text_ids
from essent.recipe.types import CorpusStats
from essent.static.gather import Settings, average_contexts
from essent.static.table import (
    Choice,
    Material,
    agreement,
    bag_matrix,
    check_choice,
    check_dimensions,
    parse_layers,
    reduce_table,
)
from essent.tasks.base import Task, unit_rows

if TYPE_CHECKING:
    from essent.tasks.base import LabeledTask

logger = logging.getLogger(__name__)

MAX_NEW = 0.02  # log a warning if the corpus lacks more than this share of further texts' tokens
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
    """Average the model's layers over a corpus and compute its sentence vectors, in one pass.

    Args:
        model: a hub name, a folder or a loaded SentenceTransformer.
        corpus: texts like those that will be encoded; no labels.
        layers: the layer mixes that tables will use; None averages every layer.
        teacher: the recipe of the sentence vectors, without shaping; by default the model's own pooling, or `mean` for
            a plain transformer.
        dimensions: number of dimensions that tables will have; too many raise an error before the model runs.
        settings: settings of the pass; the argument `layers` replaces their field `layers`.
        options: SentenceTransformer's keyword arguments (device, revision …).

    Returns:
        The material for `make_encoder` and `find_choice`, and the model.

    Raises:
        RecipeError: a teacher with shaping.
        InputError, RecipeError, ModelError: see `essent.static.gather.average_contexts`.

    Example:
        >>> from essent.static import Choice, collect, make_encoder
        >>> material, backbone = collect("my-mlm", ["A short text.", "Another short text."])
        >>> sorted(material.contexts.tables) == list(range(backbone.last + 1))
        True
        >>> encoder = make_encoder(material, Choice("0+L")).encoder
    """
    texts, settings = check_texts(corpus), settings or Settings()
    names = None if layers is None else {name for mix in map(parse_layers, layers) for name, _ in mix}
    recipe = None if teacher is None else Recipe.parse(teacher)
    if recipe is not None and recipe.shaping not in ((), UNIT):  # normalize is allowed: the fit ignores lengths
        raise RecipeError(f"teacher={teacher!r}: the sentence vectors must not be shaped. Remove the shaping.")
    # With a teacher, the model's own pooling does not matter. `mean` reads the last layer, so all layers are loaded.
    loaded = load(model, [] if recipe is None else [Recipe()], options or {})
    backbone = loaded.backbone
    backbone.compute_in(settings.precision)
    if dimensions is not None:
        check_dimensions(dimensions, backbone.dimensions)
    plan = Plan(replace(recipe or loaded.recipes[0], shaping=()), backbone)
    move(backbone, loaded.settings["device"])
    numbers = None if names is None else sorted({resolve(name, backbone.last).layer for name in names})
    contexts, vectors = average_contexts(backbone, texts, replace(settings, layers=numbers), plan)
    contexts.about["model"] = str(model)
    tokenizer = unlimited(backbone.tokenizer)
    ids, rows = text_ids(tokenizer, texts), 1 + max(tokenizer.get_vocab().values())
    token_counts = bag_matrix(ids, rows)
    count = np.bincount(np.fromiter(chain.from_iterable(ids), np.int64), minlength=rows)
    stats = CorpusStats(len(texts), token_counts.getnnz(axis=0).astype(np.int64), count)
    if (share := share_of_new(stats.count)) > MAX_NEW:
        logger.warning(
            "The corpus is small: it lacks about %.0f %% of the tokens of further texts of the same kind, and more for "
            "other kinds of text. Their rows follow the rule unseen=%s. Add texts like those to be encoded.",
            100 * share,
            settings.unseen,
        )
    return Material(tokenizer, contexts, vectors, texts, token_counts, stats), backbone


@dataclass(frozen=True)
class Distilled:
    """A static encoder, with the settings and measurements of its distillation.

    Attributes:
        encoder: the static encoder.
        choice: the choice from which the table was made.
        losses: effects of reducing the table: `variance`, the share of variance that fewer dimensions retain, 0 … 1;
            `dimensions` and `bits`, Spearman ×100 between the similarities before and after each reduction. A
            reduction that was not requested has no entry.
        material: the averages and sentence vectors from which the table was made.
    """

    encoder: Encoder
    choice: Choice
    losses: dict[str, float]
    material: Material

    def summary(self) -> Iterator[str]:
        """Yield lines about the choice, the share of the vocabulary in the corpus, and the effect of reductions."""
        contexts, losses = self.material.contexts, self.losses
        yield (
            f"{self.choice}; {contexts.about['tokens']} tokens, {int(contexts.seen.sum())} of {len(contexts.count)} "
            f"seen in the texts; rows of other tokens: {contexts.about['unseen']}"
        )
        if "variance" in losses:
            yield (
                f"Fewer dimensions: {100 * losses['variance']:.1f} % of the variance retained, similarities agree to "
                f"{losses['dimensions']:.2f} (Spearman ×100)"
            )
        if "bits" in losses:
            yield f"Fewer bits: similarities agree to {losses['bits']:.2f} (Spearman ×100)"


def make_encoder(
    material: Material, choice: Choice, *, dimensions: int | None = None, dtype: str = "float32", progress: bool = False
) -> Distilled:
    """Make a static encoder from collected averages.

    Args:
        material: the averages, from `collect`.
        choice: layers, weights, ridge and shaping of the table.
        dimensions: number of dimensions, at most the model's; by default the model's.
        dtype: number format of the saved table: float32, float16 or int8. The returned encoder already
            computes with the rounded rows.
        progress: show a progress bar.

    Raises:
        InputError: an unknown dtype, too many dimensions, or numbers too large for float16.

    Example:
        >>> from essent.static import Choice, collect, make_encoder
        >>> material, _ = collect("my-mlm", ["A short text.", "Another short text."])
        >>> distilled = make_encoder(material, Choice(shaping="centre"), dimensions=8, dtype="int8")
        >>> distilled.encoder.encode(["A text."]).shape
        (1, 8)
        >>> sorted(distilled.losses)
        ['bits', 'dimensions', 'variance']
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
    """Create an Encoder with the recipe `static | normalize` from a table."""
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
    """Distil a model into a static encoder, which is as fast as tokenization. Nothing is trained.

    Args:
        model: a hub name, a folder or a loaded SentenceTransformer.
        corpus: texts like those that will be encoded; no labels. Duplicates count as often as they occur.
        choice: layers, weights, ridge and shaping.
        dimensions: dimensions per row, at most the model's; by default the model's.
        dtype: number format of the rows: float32, float16 or int8.
        unseen: how to fill the rows of tokens that the corpus lacks: alone, static, zero or mean
            (`essent.static.gather.Settings`). "alone" runs the model once per such token.
        teacher: the recipe of the sentence vectors that the rows are fitted to; by default the model's own.
        state: a checkpoint file from which a killed run resumes.
        batch_size: size of a batch: 32 holds as many tokens as 32 texts of 64 tokens.
        progress: show progress bars.
        options: SentenceTransformer's keyword arguments (device, revision …).

    Returns:
        The encoder, whose `save` writes sentence-transformers' StaticEmbedding, and the effect of the reductions.

    Raises:
        InputError, RecipeError, ModelError, DataError: unsuitable texts, layers, models or checkpoint files.

    Example:
        >>> from essent import distill
        >>> texts = ["A man plays a flute.", "Two dogs run through a field.", "It rains."]
        >>> distilled = distill("my-mlm", texts, dimensions=16)
        >>> distilled.encoder.encode(["Two men play."]).shape
        (1, 16)
    """
    chosen = choice or Choice()
    check_choice(chosen, dtype, dimensions)
    path = None if state is None else Path(state)
    settings = Settings(unseen=unseen, state=path, batch_size=batch_size, progress=progress)
    material, _ = collect(
        model,
        corpus,
        layers=[chosen.layers],
        teacher=teacher,
        dimensions=dimensions,
        settings=settings,
        options=options,
    )
    return make_encoder(material, chosen, dimensions=dimensions, dtype=dtype, progress=progress)


# -- find a choice, compare a table with its model --------------------------------------------------------------------


def find_choice(
    material: Material, task: LabeledTask, *, report: Callable[[float, Choice], object] = lambda score, choice: None
) -> list[tuple[float, Choice]]:
    """Find the best choice on labels: score layers × weights × shaping without a fit, then the best one with fits.

    The layer mixes are each averaged layer alone, the last two layers, and the first with the last layer.

    Args:
        material: the averages, from `collect`.
        task: labels of any kind; report results on other labels.
        report: called with each score and choice.

    Returns:
        Scores and choices, best first.

    Example:
        >>> from essent.static import collect, find_choice
        >>> from essent.tasks import load_task
        >>> texts = ["A man plays a flute.", "Two dogs run.", "It rains.", "The shop is closed.", "Where is the key?"]
        >>> material, _ = collect("my-mlm", texts, layers=["L"])
        >>> trials = find_choice(material, load_task("pairs.jsonl"))
        >>> len(trials)  # 4 weights × 4 shapings without a fit, 4 fits × 4 shapings
        32
        >>> score, choice = trials[0]
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
    """Main scores of a model and its static encoder on a task.

    Attributes:
        task: the name of the task.
        model, static: the main scores, ×100.
        coverage: the share of the task's tokens that occur in the corpus.
    """

    task: str
    model: float
    static: float
    coverage: float

    @property
    def share(self) -> float:
        """The static encoder's score as a percentage of the model's; NaN if the model's is 0."""
        return 100 * self.static / self.model if self.model else math.nan


def compare(distilled: Distilled, model: Callable[[list[str]], Any], tasks: Sequence[Task]) -> list[TaskScores]:
    """Compare a static encoder with its model, task by task.

    Args:
        distilled: the static encoder.
        model: the model's `encode`, or another function from N texts to vectors (N,D).
        tasks: tasks with a main score.

    Example:
        >>> from essent import Encoder
        >>> from essent.static import compare, distill
        >>> from essent.tasks import load_task
        >>> distilled = distill("my-mlm", ["A short text.", "Another short text."])
        >>> (scores,) = compare(distilled, Encoder("my-mlm", "mean").encode, [load_task("data/sts/stsb.jsonl")])
        >>> scores.task, 0 < scores.coverage < 1
        ('stsb', True)
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
    """Return the share of the texts' tokens, counting repetitions, that occur in the corpus; NaN if they have none."""
    count = count_tokens(lambda portion: text_ids(material.tokenizer, list(portion)), texts, material.rows).count
    known = material.contexts.seen[: material.rows]
    return float(count[known].sum() / count.sum()) if count.any() else math.nan


def share_of_new(count: np.ndarray) -> float:
    """Estimate the share of tokens of further texts that a corpus with these counts (V,) lacks.

    The estimate is the number of tokens that occur once, divided by the number of all occurrences (Good 1953). It is
    accurate for further texts of the same kind in random order, and too low for texts of another kind.
    """
    return float((count == 1).sum() / count.sum()) if count.any() else math.nan
