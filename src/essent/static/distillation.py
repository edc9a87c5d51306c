"""Distil any model into a static encoder: one table of context averages, fitted to sentences, shaped and reduced.

contexts ─ layer mix α ─ token weights u ─ fit to sentences ─ shaping g ─ dimensions ─ bits ─ StaticEmbedding
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, product
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from torch import nn

from essent._core.arguments import ModelLike
from essent._core.texts import check_texts, distinct_texts
from essent.encoder.encoder import Encoder
from essent.encoder.plan import Plan
from essent.encoder.stock_modules import UNIT
from essent.errors import InputError, RecipeError
from essent.model.backbone import Backbone
from essent.model.loading import load
from essent.model.token_rows import unlimited
from essent.model.weights import move
from essent.recipe.recipe import Recipe
from essent.recipe.tokens import fast_backend, text_ids
from essent.recipe.types import CorpusStats
from essent.static.gather import average_contexts
from essent.static.sums import MOST, SEED, hold_out
from essent.static.table import (
    PAIRS,
    Choice,
    Material,
    bag_matrix,
    check_choice,
    check_dimensions,
    mixed_layers,
    rank_agreement,
    reduced_table,
)
from essent.tasks.base import unit_rows
from essent.tasks.result import plain

if TYPE_CHECKING:
    from essent.tasks.base import LabeledTask

logger = logging.getLogger(__name__)

WEIGHTS = ("uniform", "sif:0.01", "sif:0.001", "idf")
SHAPINGS = ("", "centre", "abtt:1", "abtt:2")
FITS = (0.03, 0.1, 0.3, 1.0)
FAR_WORSE = 65.0  # log a warning if the agreement with the teacher is lower, see docs/evidence/static.md


def collect(
    model: ModelLike,
    corpus: Sequence[str],
    *,
    layers: Sequence[str] | None = None,
    teacher: str | None = None,
    dimensions: int | None = None,
    options: dict[str, Any] | None = None,
    score: bool = True,
    **averaging: Any,
) -> tuple[Material, Backbone]:
    """Average the model's layers over a corpus and compute its sentence vectors, in one pass without a template.

    Args:
        model: a hub name, a folder or a loaded SentenceTransformer.
        corpus: texts like those that will be encoded; no labels.
        layers: the layer mixes that tables will use; None averages every layer.
        teacher: the recipe of the sentence vectors, without shaping; by default the model's own pooling, or `mean` for
            a plain transformer. Contexts never contain its templates.
        dimensions: number of dimensions that tables will have; too many raise an error before the model runs.
        options: SentenceTransformer's keyword arguments (device, revision …).
        score: hold out a tenth of the texts, by which `make_encoder` scores a table.
        averaging: other keyword arguments of `essent.static.gather.average_contexts`: unseen, state, batch_size ….

    Returns:
        The material for `make_encoder` and `find_choice`, and the model.

    Raises:
        RecipeError: a teacher with shaping, or with vectors of another size than the model's states.
        InputError, ModelError, DataError: see `essent.static.gather.average_contexts`.

    Example:
        >>> from essent.static import Choice, collect, make_encoder
        >>> material, backbone = collect("my-mlm", ["A short text.", "Another short text."])
        >>> sorted(material.contexts.tables) == list(range(backbone.last + 1))
        True
        >>> encoder = make_encoder(material, Choice("0+L")).encoder
    """
    texts = check_texts(corpus)
    for mix in layers or ():
        mixed_layers(mix)
    recipe = None if teacher is None else Recipe.parse(teacher)
    if recipe is not None and recipe.shaping not in ((), UNIT):  # normalize is allowed: the fit ignores lengths
        raise RecipeError(f"teacher={teacher!r}: the sentence vectors must not be shaped. Remove the shaping.")
    # With a teacher, the model's own pooling does not matter. `mean` reads the last layer, so all layers are loaded.
    loaded = load(model, [] if recipe is None else [recipe, Recipe()], options or {})
    backbone = loaded.backbone
    if dimensions is not None:
        check_dimensions(dimensions, backbone.dimensions)
    plan = Plan(replace(loaded.recipes[0], shaping=()), backbone)
    if plan.width != backbone.dimensions:
        raise RecipeError(
            f"teacher={teacher!r}: its vectors have {plan.width} dimensions, but the model's states, of which the "
            f"table is made, {backbone.dimensions}. Use a recipe with vectors of {backbone.dimensions} dimensions."
        )
    move(nn.ModuleList([backbone, plan]), loaded.settings["device"])
    numbers = None if layers is None else [layer for mix in layers for layer, _ in mixed_layers(mix, backbone.last)]
    contexts, vectors, held_out = average_contexts(
        backbone, texts, plan, hold_out(texts) if score else None, layers=numbers, **averaging
    )
    contexts.about["model"] = str(model) if isinstance(model, (str, Path)) else type(model).__name__
    contexts.about["teacher"] = str(plan.recipe)
    assert vectors is not None  # noqa: S101  those of the plan
    tokenizer = unlimited(backbone.tokenizer)
    rows = 1 + max(tokenizer.get_vocab().values())
    ids = text_ids(tokenizer, texts)
    token_counts = bag_matrix(ids, rows)  # (N,V)
    count = np.bincount(np.fromiter(chain.from_iterable(ids), np.int64), minlength=rows)
    stats = CorpusStats(len(texts), token_counts.getnnz(axis=0).astype(np.int64), count)
    scored = held_out if held_out.is_held_out.any() else None
    return Material(tokenizer, contexts, vectors, texts, token_counts, stats, scored), backbone


# -- a table, and its agreement with the teacher ----------------------------------------------------------------------


class TeacherScore(NamedTuple):
    """Agreement of a static encoder with its teacher.

    Attributes:
        spearman: Spearman ×100 between the cosines of random pairs of texts, by the teacher and by the table.
        texts: number of texts in the pairs.
        held_out: whether the compared table is made of the other texts. Otherwise it is made of these texts as well,
            and the agreement is too high.
    """

    spearman: float
    texts: int
    held_out: bool

    def __str__(self) -> str:
        if math.isnan(self.spearman):
            return "Agreement with the teacher: not measured, all similarities are equal"
        texts = f"{self.texts:,} " + ("held-out texts" if self.held_out else "texts of the table, so it is too high")
        return f"Agreement with the teacher: {self.spearman:.1f} (Spearman ×100 of the similarities of {texts})"


@dataclass(frozen=True)
class Distilled:
    """A static encoder, with the settings and measurements of its distillation.

    Attributes:
        encoder: the static encoder.
        choice: the choice from which the table was made.
        material: the averages and sentence vectors from which the table was made.
        teacher_score: agreement with the teacher; None if it was not measured.
    """

    encoder: Encoder
    choice: Choice
    material: Material
    teacher_score: TeacherScore | None = None

    def summary(self) -> Iterator[str]:
        """Yield a line about the choice and the share of the vocabulary in the corpus."""
        contexts = self.material.contexts
        yield (
            f"{self.choice}; {contexts.about['tokens']} tokens, {int(contexts.seen.sum())} of {len(contexts.count)} "
            f"seen in the texts; rows of other tokens: {contexts.about['unseen']}"
        )

    def provenance(self) -> dict[str, Any]:
        """Return the origin of the table and its agreement with the teacher, as values for JSON."""
        metadata, score = self.material.contexts.about, self.teacher_score
        model = metadata["model"]
        return {
            "model": Path(model).name if Path(model).is_dir() else model,  # without the user's folders
            "teacher": metadata["teacher"],
            "texts": len(self.material.texts),
            "choice": str(self.choice),
            "unseen": metadata["unseen"],
            "teacher_score": None if score is None else plain(score._asdict()),
        }


def make_encoder(
    material: Material,
    choice: Choice,
    *,
    dimensions: int | None = None,
    dtype: str = "float32",
    score: bool = True,
    progress: bool = False,
) -> Distilled:
    """Make a static encoder from collected averages.

    Args:
        material: the averages, from `collect`.
        choice: layers, weights, ridge and shaping of the table.
        dimensions: number of dimensions, at most the model's; by default the model's.
        dtype: number format of the saved table: float32, float16 or int8. The returned encoder already
            computes with the rounded rows.
        score: measure the agreement with the teacher (`score_against_teacher`), which takes
            a second fit, and log a warning if it is low.
        progress: show progress bars.

    Raises:
        InputError: an unknown dtype, too many dimensions, or numbers too large for float16.

    Example:
        >>> from essent.static import Choice, collect, make_encoder
        >>> material, _ = collect("my-mlm", ["A short text.", "Another short text."])
        >>> distilled = make_encoder(material, Choice(shaping="centre"), dimensions=8, dtype="int8")
        >>> distilled.encoder.encode(["A text."]).shape
        (1, 8)
    """
    check_choice(choice, dtype, dimensions)
    table = reduced_table(material, choice, dimensions, dtype, progress=progress)
    teacher_score = None
    if score:
        teacher_score = score_against_teacher(material, table, choice, dimensions, dtype)
        if teacher_score.spearman < FAR_WORSE:  # never of NaN
            logger.warning(
                "The static encoder is far worse than its teacher: their similarities agree to only %.1f (Spearman "
                "×100, good tables have 72 or more). Distil on more texts like those to be encoded, or export a graph "
                "of the model instead (essent save --format openvino).",
                teacher_score.spearman,
            )
    distilled = Distilled(encoder_of(table, material.tokenizer, dtype), choice, material, teacher_score)
    distilled.encoder.module.provenance = distilled.provenance()
    distilled.encoder.chosen = (
        "Distilled from {model} on {texts:,} texts.".format(**distilled.encoder.module.provenance),
        *distilled.summary(),
        *(() if teacher_score is None else (str(teacher_score),)),
    )
    return distilled


def score_against_teacher(
    material: Material, table: np.ndarray, choice: Choice, dimensions: int | None, dtype: str
) -> TeacherScore:
    """Score a table against its teacher on texts that it is not made of.

    The held-out texts remain in the table, which would be worse without them. A second table is made of the other
    texts, with the same settings, and scored; the table itself is at least as good. If there are too few texts to hold
    some out, the table itself is scored on the texts that it is made of.

    Args:
        table: the table (V,K) of all texts.
    """
    rows = np.unique(distinct_texts(material.texts)[1], return_index=True)[1]  # the first of each distinct text
    if material.held_out is None:
        rows = np.sort(np.random.default_rng(SEED).permutation(rows)[:MOST])
    else:
        rows = rows[material.held_out.is_held_out[rows]]
        table = reduced_table(material.without_held_out(choice.layers), choice, dimensions, dtype)
    first, second = np.random.default_rng(SEED).integers(0, len(rows), (2, PAIRS))
    distinct = first != second
    cosines = [
        np.einsum("pd,pd->p", units[first[distinct]], units[second[distinct]])
        for units in map(unit_rows, (material.vectors[rows], material.token_counts[rows] @ table))
    ]
    spearman = rank_agreement(*cosines) if distinct.any() else math.nan
    return TeacherScore(spearman, len(rows), material.held_out is not None)


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
    unseen: str = "auto",
    teacher: str | None = None,
    state: str | Path | None = None,
    batch_size: int = 32,
    progress: bool = False,
    note: Callable[[str], object] = logger.info,
    **options: Any,
) -> Distilled:
    """Distil a model into a static encoder, which is as fast as tokenization. Nothing is trained.

    Args:
        model: a hub name, a folder or a loaded SentenceTransformer.
        corpus: texts like those that will be encoded; no labels. Duplicates count as often as they occur.
        choice: layers, weights, ridge and shaping.
        dimensions: dimensions per row, at most the model's; by default the model's.
        dtype: number format of the rows: float32, float16 or int8.
        unseen: how to fill the rows of tokens that the corpus lacks: auto, alone, static, zero or mean
            (`essent.static.gather.average_contexts`). "alone" runs the model once per such token; "auto" does so unless
            it takes more tokens than the texts and a vocabulary of 50,000 tokens.
        teacher: the recipe of the sentence vectors that the rows are fitted to; by default the model's own. Each
            template in it takes one more pass over the texts.
        state: a checkpoint file from which a killed run resumes; at most one minute of the passes is lost.
        batch_size: size of a batch: 32 holds as many tokens as 32 texts of 64 tokens.
        progress: show progress bars.
        note: called with lines about the estimated time, a resumed run, and tokens that do not occur in the texts.
        options: SentenceTransformer's keyword arguments (device, revision …).

    Returns:
        The encoder, whose `save` writes sentence-transformers' StaticEmbedding, and its agreement with the teacher.

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
    if teacher is not None and chosen.ridge is None:
        raise InputError(
            f"teacher={teacher!r}: averages without a fit (ridge=0) do not depend on a teacher. Set ridge to a "
            "positive number such as 0.1, or remove the teacher."
        )
    material, _ = collect(
        model,
        corpus,
        layers=[chosen.layers],
        teacher=teacher,
        dimensions=dimensions,
        options=options,
        unseen=unseen,
        state=None if state is None else Path(state),
        batch_size=batch_size,
        progress=progress,
        note=note,
    )
    return make_encoder(material, chosen, dimensions=dimensions, dtype=dtype, progress=progress)


# -- find a choice ----------------------------------------------------------------------------------------------------


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

    combinations = product([*map(str, layers), *pairs], WEIGHTS, SHAPINGS)
    trials = [score(Choice(mix, weights, None, shaping)) for mix, weights, shaping in combinations]
    best = max(trials, key=lambda trial: trial[0])[1]
    trials += [score(replace(best, ridge=ridge, shaping=shaping)) for ridge in FITS for shaping in SHAPINGS]
    return sorted(trials, key=lambda trial: -trial[0])
