"""A static encoder of any model: context averages, fitted to whole sentences, shaped, reduced, as one table.

contexts ─ layer mix α ─ token weights u ─ fit to sentences ─ shaping g ─ dimensions ─ bits ─ StaticEmbedding
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from essent._core.texts import check_texts
from essent._core.types import ModelLike
from essent.encoder.encoder import Encoder
from essent.encoder.pipeline.plan import Plan
from essent.encoder.saving.static_table import STORED, UNIT, rounded
from essent.errors import InputError, RecipeError
from essent.model.backbone import Backbone
from essent.model.loading import load
from essent.model.token_rows import unlimited
from essent.recipe.recipe import Recipe
from essent.recipe.shaping.base import AffineShaper
from essent.recipe.shaping.chain import Chain
from essent.recipe.sources.contexts import Contexts
from essent.recipe.sources.layers import Mix, parse_mix, resolve
from essent.recipe.tokens.ids import Vocabulary, count_tokens, fast_backend, text_ids, unknown_token
from essent.recipe.types import CorpusStats
from essent.recipe.weighting.base import ByToken, weightings
from essent.static.coverage import warn_of_new
from essent.static.gather import Settings, average_contexts
from essent.static.regress import bag_matrix, fit_rows, is_strength
from essent.static.settings import Choice, TableSettings
from essent.static.smaller import Losses, agreement, check_dimensions, reduce_table
from essent.static.vocabulary import extended, find_extension


@dataclass
class Material:
    """What one pass over the corpus gave, enough for tables of every choice.

    Attributes:
        tokenizer: of the static encoder: nothing around a text, words of its own perhaps.
        contexts: averages of all layers that were asked for.
        vectors: the model's sentence vectors (N,D), or None.
        texts: the corpus.
        token_counts: texts × tokens, see `essent.static.regress.bag_matrix`.
    """

    tokenizer: Any
    contexts: Contexts
    vectors: np.ndarray | None
    texts: list[str]
    token_counts: sparse.csr_matrix
    fits: dict[tuple[str, str, float], np.ndarray] = field(default_factory=dict)

    @cached_property
    def rows(self) -> int:
        """The number of rows V of a table."""
        return int(1 + max(self.tokenizer.get_vocab().values()))

    @cached_property
    def stats(self) -> CorpusStats:
        """Counts without special tokens around the texts."""
        return count_tokens(lambda some: text_ids(self.tokenizer, list(some)), self.texts, self.rows)

    def mixed(self, layers: str) -> np.ndarray:
        """Σ_k α_k of the averages: (V,D)."""
        total = np.zeros_like(next(iter(self.contexts.tables.values()))[: self.rows])
        for name, factor in _mix(layers):
            total = (
                total
                + np.float32(factor) * self.contexts.table(int(resolve(name, self.contexts.last).key))[: self.rows]
            )
        return total

    def table(self, choice: Choice, *, progress: bool = False) -> np.ndarray:
        """The table (V,K) of a choice, unknown tokens zero.

        Raises:
            RecipeError: weights that are not by token, or shaping that is not affine.
            InputError: a fit without sentence vectors.
        """
        check_choice(choice)
        key = (choice.layers, choice.weights, choice.ridge or 0.0)
        if key not in self.fits:
            rows = self.mixed(choice.layers) * self._weights(choice.weights)[:, None]
            if choice.ridge is not None:
                if self.vectors is None:
                    raise InputError("A fit needs the model's sentence vectors, which were not taken along.")
                rows = fit_rows(self.token_counts, self.vectors, rows, choice.ridge, progress=progress)
            self.fits = {key: self._known(rows.astype(np.float32))}  # the last one is kept: shapings share it
        return self._known(self.shaped(self.fits[key], choice.shaping))

    def _known(self, rows: np.ndarray) -> np.ndarray:
        """The rows with the unknown token's zero: sentence-transformers counts it in a mean, model2vec does not."""
        if self.unknown is not None:
            rows[self.unknown] = 0.0
        return rows

    @cached_property
    def unknown(self) -> int | None:
        """The id of the unknown token."""
        backend = fast_backend(self.tokenizer)
        token = unknown_token(backend)
        return None if token is None else backend.token_to_id(token)

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """The tokens of the table by their ids."""
        return Vocabulary(self.tokenizer, self.rows)

    def _weights(self, text: str) -> np.ndarray:
        total = np.ones(self.rows)
        for spec in (spec.strip() for spec in text.split("*")):
            if spec != "uniform":
                factor = weightings.create(spec)
                total = total * factor.table(self.vocabulary, self.stats)  # type: ignore[attr-defined]  # checked
        return total.astype(np.float32)

    def shaped(self, rows: np.ndarray, shaping: str) -> np.ndarray:
        """Rows with an affine chain folded in, fitted on the means of the corpus's texts."""
        if not shaping.strip():
            return np.array(rows)
        chain = Chain.parse(Recipe.parse(f"static | {shaping}").shaping)
        chain.fit(self.token_counts @ rows)
        affine = chain.as_affine()
        if affine is None:
            raise RecipeError(f"shaping {shaping!r} has no steps.")
        found: np.ndarray = ((rows - affine.mean) @ affine.matrix + affine.offset).astype(np.float32)
        return found


def _mix(layers: str) -> Mix:
    mix = parse_mix(layers)
    for name, _ in mix:
        source = resolve(name, 1)
        if not isinstance(source.key, int) or source.debiased:
            raise RecipeError(f"layers={layers} — {name!r} is no layer; a table is made of layers 0 … L.")
    return mix


def _teacher(text: str) -> Recipe:
    recipe = Recipe.parse(text)
    if recipe.shaping not in ((), UNIT):  # lengths do not matter to the fit; anything else would have to be learnt
        raise RecipeError(f"teacher={text!r}: sentence vectors are fitted as they are pooled; leave the shaping out.")
    return recipe


def collect(
    model: ModelLike,
    corpus: Sequence[str],
    *,
    layers: Sequence[str] | None = None,
    words: int = 0,
    expressions: int = 0,
    teacher: str | None = None,
    dimensions: int | None = None,
    settings: Settings | None = None,
    options: dict[str, Any] | None = None,
) -> tuple[Material, Backbone]:
    """One pass over the corpus: averages of the layers, and the model's sentence vectors.

    Args:
        model: a hub name, folder or loaded SentenceTransformer.
        layers: the mixes that will be asked for; None averages every layer.
        words, expressions: whole words and expressions of two words to add to the vocabulary, at most.
        teacher: the recipe of the sentence vectors, without shaping; None takes the model's own pooling, `mean` for a
            plain transformer.
        dimensions: that the table will be asked for, so that too many are refused before the model runs.
        settings: how to pass; `layers` and `reader` are set here.

    Raises:
        RecipeError: a teacher with shaping.
        InputError, RecipeError, ModelError: see `essent.static.gather.average_contexts`.
    """
    texts = check_texts(corpus)
    how = settings or Settings()
    mixes = None if layers is None else [_mix(text) for text in layers]
    taught = None if teacher is None else _teacher(teacher)
    # with a teacher the model's own pooling may be anything; `mean` reads the last layer: none is cut
    loaded = load(model, [] if taught is None else [Recipe()], options or {})
    backbone = loaded.backbone
    backbone.compute_in(how.precision)
    if dimensions is not None:
        check_dimensions(dimensions, backbone.dimensions)
    plan = Plan(replace(taught or loaded.recipes[0], shaping=()), backbone)
    backbone.to(loaded.settings["device"])
    wanted = None if mixes is None else sorted({int(resolve(n, backbone.last).key) for mix in mixes for n, _ in mix})
    backend = fast_backend(unlimited(backbone.tokenizer))
    extension = find_extension(backend, texts, words=words, expressions=expressions)
    reader = extended(backend, extension) if len(extension) else None
    contexts, vectors = average_contexts(backbone, texts, replace(how, layers=wanted, reader=reader), plan)
    tokenizer = unlimited(backbone.tokenizer if reader is None else reader)
    ids = text_ids(tokenizer, texts)
    token_counts = bag_matrix(ids, 1 + max(tokenizer.get_vocab().values()))
    warn_of_new(ids, how.unseen)
    contexts.about.update(model=str(model), words=len(extension.words), expressions=len(extension.expressions))
    return Material(tokenizer, contexts, vectors, texts, token_counts), backbone


# -- all of it --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Distilled:
    """A static encoder and how it came about."""

    encoder: Encoder
    choice: Choice
    losses: Losses
    material: Material

    def in_words(self) -> Iterator[str]:
        """The choice, how much of the vocabulary the corpus has, and what making the table smaller lost."""
        contexts, losses = self.material.contexts, self.losses
        yield (
            f"{self.choice}; {contexts.about['tokens']} tokens, {int(contexts.seen.sum())} of {len(contexts.count)} "
            f"seen, the others: {contexts.about['unseen']}"
        )
        if losses.variance is not None:
            yield (
                f"Fewer dimensions: {100 * losses.variance:.1f} % of the variance kept, similarities agree to "
                f"{losses.dimensions:.2f} (Spearman ×100)"
            )
        if losses.bits is not None:
            yield f"Fewer bits: similarities agree to {losses.bits:.2f} (Spearman ×100)"


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
    losses = Losses()
    if dimensions is not None:
        table, variance, kept = reduce_table(material.token_counts, table, dimensions)
        losses = Losses(variance, kept)
    if dtype != "float32":
        near = rounded(table, dtype)
        losses = replace(losses, bits=agreement(material.token_counts, table, near))
        table = near
    return Distilled(encoder_of(table, material.tokenizer, dtype), choice, losses, material)


def check_choice(choice: Choice, dtype: str = "float32", dimensions: int | None = None) -> None:
    """Refuse what can be refused before a corpus is read.

    Raises:
        RecipeError, UnknownNameError: a mix, weights or shaping that no table has.
        InputError: an unknown dtype, a strength that is not positive, or more dimensions than the shaping leaves.
    """
    if dtype not in STORED:
        raise InputError(f"dtype={dtype!r}; a table is stored as {', '.join(STORED)}.")
    if choice.ridge is not None and not is_strength(choice.ridge):
        raise InputError(f"ridge={choice.ridge!r} must be a positive number, e.g. 0.1, or None for averages alone.")
    _mix(choice.layers)
    for spec in choice.weights.split("*"):
        if spec.strip() != "uniform" and not isinstance(weightings.create(spec), ByToken):
            raise RecipeError(f"weights={choice.weights} — {spec.strip()} is not a fixed weight for each token.")
    chain = Chain.parse(Recipe.parse(f"static | {choice.shaping}").shaping) if choice.shaping.strip() else Chain()
    if not all(isinstance(step, AffineShaper) for step in chain.steps):
        raise RecipeError(f"shaping {choice.shaping!r} is not affine: it does not fold into a table.")
    if dimensions is not None:
        check_dimensions(dimensions, chain.dim_out(dimensions), f"what shaping {choice.shaping!r} leaves:")


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
    dimensions: int | None = TableSettings.dimensions,
    dtype: str = TableSettings.dtype,
    words: int = TableSettings.words,
    expressions: int = TableSettings.expressions,
    unseen: str = TableSettings.unseen,
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
        dimensions, dtype, words, expressions, unseen: see `TableSettings`.
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
    settings = Settings(
        unseen=unseen, state=None if state is None else Path(state), batch_size=batch_size, progress=progress
    )
    material, _ = collect(
        model,
        corpus,
        layers=[chosen.layers],
        words=words,
        expressions=expressions,
        teacher=teacher,
        dimensions=dimensions,
        settings=settings,
        options=options,
    )
    return make_encoder(material, chosen, dimensions=dimensions, dtype=dtype, progress=progress)


__all__ = ["Choice", "Distilled", "Losses", "Material", "collect", "distill", "make_encoder"]
