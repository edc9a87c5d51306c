"""Make a static table from averages: layer mix, weights, a fit to whole sentences, shaping, fewer dimensions.

The fit finds the rows R whose means are closest to the model's own sentence vectors e(s), at unit length:

min_R  Σ_s |mean_{t∈s} R_t − e(s)|² + λ Σ_t |R_t − P_t|²

where P are the context averages. This is linear least squares, with a unique solution, no seed and no learning rate,
solved by conjugate gradients on the sparse matrix of texts × tokens.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import chain, compress
from numbers import Real
from typing import Any, cast

import numpy as np
from scipy import sparse, stats
from tqdm.auto import tqdm

from essent._core.arguments import check_size
from essent.encoder.stock_modules import STORED, rounded
from essent.errors import InputError, RecipeError
from essent.recipe.contexts import Contexts
from essent.recipe.layers import parse_mix, resolve
from essent.recipe.recipe import Recipe
from essent.recipe.shaping.affine import AffineShaper
from essent.recipe.shaping.chain import Chain
from essent.recipe.tokens import Vocabulary, count_tokens, fast_backend, text_ids, unknown_token
from essent.recipe.types import CorpusStats
from essent.recipe.weighting.base import ByToken, weightings
from essent.static.sums import HeldOut
from essent.tasks.base import unit_rows

TOLERANCE = 1e-4  # the solver stops when each dimension's residual is below this share of its first one
MAX_STEPS = 100  # with preconditioning, a few dozen suffice
PAIRS = 20_000  # random pairs of texts on which the agreement of similarities is measured
PORTION = 8192  # texts whose vectors are in memory at a time


@dataclass(frozen=True)
class Choice:
    """Settings of a static table: how its rows are computed from context averages.

    Attributes:
        layers: layers whose states are averaged, as a mix: L, L-1+L, 0+L.
        weights: weights by token, or a product of them: uniform, sif:1e-2, idf, remove.
        ridge: strength λ of the ridge regression that fits the averages to the model's own sentence vectors;
            0 or None uses the averages without a fit.
        shaping: an affine chain, fitted on the corpus's static vectors: centre, abtt:2, whiten:256.

    Example:
        >>> from essent.static import Choice
        >>> print(Choice("0+L", weights="sif:0.01", shaping="abtt:2"))
        layers=0+L weights=sif:0.01, ridge 0.1 | abtt:2
    """

    layers: str = "L"
    weights: str = "uniform"
    ridge: float | None = 0.1
    shaping: str = ""

    def __post_init__(self) -> None:
        if self.ridge == 0:
            object.__setattr__(self, "ridge", None)

    def __str__(self) -> str:
        fit = "no fit" if self.ridge is None else f"ridge {self.ridge:g}"
        return f"layers={self.layers} weights={self.weights}, {fit}" + (f" | {self.shaping}" if self.shaping else "")


def mixed_layers(layers: str, last: int = 1) -> list[tuple[int, float]]:
    """Return the numbers and factors of a mix of layers 0 … L; without `last`, which is L, only check the mix.

    Raises:
        RecipeError: a source that is not a layer.
    """
    mix = []
    for name, factor in parse_mix(layers):
        source = resolve(name, last)
        if not isinstance(source.key, int) or source.debiased:
            raise RecipeError(f"layers={layers}: {name!r} is not a layer. A table is made of layers 0 to L.")
        mix.append((source.key, factor))
    return mix


def check_choice(choice: Choice, dtype: str = "float32", dimensions: int | None = None) -> None:
    """Check the settings of a table before a corpus is read.

    Raises:
        RecipeError, UnknownNameError: layers, weights or shaping that are not possible in a table.
        InputError: an unknown dtype, a ridge that is not positive, or more dimensions than the shaping leaves.
    """
    if dtype not in STORED:
        raise InputError(f"dtype={dtype!r}: must be one of {', '.join(STORED)}.")
    ridge = choice.ridge
    if ridge is not None and not (isinstance(ridge, Real) and not isinstance(ridge, bool) and 0 < ridge < math.inf):
        raise InputError(f"ridge={ridge!r}: must be a positive number such as 0.1, or None for averages without a fit.")
    mixed_layers(choice.layers)
    for spec in choice.weights.split("*"):
        if spec.strip() != "uniform" and not isinstance(weightings.create(spec), ByToken):
            raise RecipeError(f"weights={choice.weights}: {spec.strip()} is not a fixed weight per token.")
    shaping = _chain_of(choice.shaping)
    if not all(isinstance(step, AffineShaper) for step in shaping.steps):
        raise RecipeError(f"shaping={choice.shaping!r} is not affine, so it cannot be folded into a table.")
    if any(step.reads_output_embedding for step in shaping.steps):
        raise RecipeError(f"shaping={choice.shaping!r} reads a model's output embedding: a table learns from texts.")
    if dimensions is not None:
        check_dimensions(dimensions, shaping.dim_out(dimensions), f"the output of shaping {choice.shaping!r},")


def _chain_of(shaping: str) -> Chain:
    return Chain.parse(Recipe.parse(f"static | {shaping}").shaping) if shaping.strip() else Chain()


@dataclass
class Material:
    """Results of one pass over a corpus, from which tables are made with any choice.

    Attributes:
        tokenizer: the static encoder's tokenizer, without special tokens around a text.
        contexts: averages of all requested layers.
        vectors: the model's sentence vectors (N,D).
        texts: the corpus.
        token_counts: matrix of texts × tokens (N,V), see `bag_matrix`.
        stats: token counts, without special tokens around the texts.
        held_out: texts on which tables are compared with the teacher; None compares on all texts.
        fits: cache of the last fit: its rows before shaping, by layers, weights and ridge.
    """

    tokenizer: Any
    contexts: Contexts
    vectors: np.ndarray
    texts: list[str]
    token_counts: sparse.csr_matrix
    stats: CorpusStats
    held_out: HeldOut | None = None
    fits: dict[tuple[str, str, float | None], np.ndarray] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        """The number of rows V of a table."""
        return len(self.stats.count)

    def table(self, choice: Choice, *, progress: bool = False) -> np.ndarray:
        """Compute the table (V,K) of a choice; the row of the unknown token is zero.

        Raises:
            RecipeError, UnknownNameError, InputError: see `check_choice`.
        """
        check_choice(choice)
        key = (choice.layers, choice.weights, choice.ridge)
        if key not in self.fits:
            self.fits = {key: self._fit(choice, progress)}  # cache the last fit: all shapings share it
        rows, shaping = self.fits[key].copy(), _chain_of(choice.shaping)
        if shaping.steps:  # fitted on the means of the corpus's texts
            affine = shaping.fit(self.token_counts @ rows).as_affine()
            assert affine is not None  # noqa: S101  checked above
            rows = ((rows - affine.mean) @ affine.matrix + affine.offset).astype(np.float32)
        return self._without_unknown(rows)

    def without_held_out(self, layers: str) -> Material:
        """Return the material of the other texts, with the averages of the layers of a mix.

        Its contexts retain the counts of all texts, which no table reads.
        """
        assert self.held_out is not None  # noqa: S101
        is_held_out, stats = self.held_out.is_held_out, self.stats
        tables = {}
        for layer, _ in mixed_layers(layers, self.contexts.last):
            tables[layer] = self.contexts.table(layer).copy()
            tables[layer][self.held_out.tokens] = self.held_out.averages[layer]
        texts, held_out = ([*compress(self.texts, rows)] for rows in (~is_held_out, is_held_out))
        less = count_tokens(partial(text_ids, self.tokenizer), held_out, self.rows)
        return replace(
            self,
            contexts=replace(self.contexts, tables=tables),
            vectors=self.vectors[~is_held_out],
            texts=texts,
            token_counts=self.token_counts[~is_held_out],
            stats=CorpusStats(len(texts), stats.document_frequency - less.document_frequency, stats.count - less.count),
            held_out=None,
            fits={},
        )

    def _fit(self, choice: Choice, progress: bool) -> np.ndarray:
        """Return the weighted averages, fitted to the sentence vectors unless ridge is None: (V,D) float32."""
        layers = [
            np.float32(factor) * self.contexts.table(layer)[: self.rows]
            for layer, factor in mixed_layers(choice.layers, self.contexts.last)
        ]
        specs = [spec.strip() for spec in choice.weights.split("*") if spec.strip() != "uniform"]
        vocabulary = Vocabulary(self.tokenizer, self.rows)
        factors = [cast("ByToken", weightings.create(spec)).table(vocabulary, self.stats) for spec in specs]
        weights = np.prod([np.ones(self.rows), *factors], axis=0).astype(np.float32)  # (V,)
        rows = np.sum(layers, axis=0) * weights[:, None]
        if choice.ridge is not None:
            rows = fit_rows(self.token_counts, self.vectors, rows, choice.ridge, progress=progress)
        return self._without_unknown(rows.astype(np.float32))

    def _without_unknown(self, rows: np.ndarray) -> np.ndarray:
        """Set the unknown token's row to zero: sentence-transformers counts the token in a mean, model2vec does not."""
        if self.unknown_id is not None:
            rows[self.unknown_id] = 0.0
        return rows

    @cached_property
    def unknown_id(self) -> int | None:
        """The id of the unknown token."""
        backend = fast_backend(self.tokenizer)
        token = unknown_token(backend)
        return None if token is None else backend.token_to_id(token)


# -- the fit ----------------------------------------------------------------------------------------------------------


def bag_matrix(sequences: Sequence[Sequence[int]], rows: int) -> sparse.csr_matrix:
    """Return the matrix of texts × tokens: each token's share of the text; a text without tokens is a row of zeros.

    Returns:
        (N,V) float32.
    """
    lengths = np.fromiter((len(ids) for ids in sequences), np.int64, len(sequences))
    flat = np.fromiter(chain.from_iterable(sequences), np.int64, lengths.sum())
    shares = np.repeat(1.0 / np.maximum(lengths, 1), lengths).astype(np.float32)
    starts = np.concatenate([[0], np.cumsum(lengths)])
    matrix = sparse.csr_matrix((shares, flat, starts), shape=(len(sequences), rows))
    matrix.sum_duplicates()
    return matrix


def fit_rows(
    token_counts: sparse.csr_matrix,
    vectors: np.ndarray,
    prior: np.ndarray,
    strength: float = 0.1,
    *,
    progress: bool = False,
) -> np.ndarray:
    """Compute the rows that minimize the sum in the module docstring.

    A token that occurs in no text retains its prior row. The prior is first scaled by one factor to fit the vectors.
    Then (XᵀX + λ) Δ = Xᵀ (target − X prior), with the matrix X of texts × tokens, is solved for the change Δ of the
    prior by conjugate gradients, for all dimensions at once, preconditioned by the diagonal.

    Args:
        token_counts: texts × tokens (N,V), see `bag_matrix`.
        vectors: the model's sentence vectors (N,D); their lengths are ignored.
        prior: prior rows (V,D).
        strength: λ > 0; a token in texts of n tokens must occur in about λ·n² of them to move away from its prior.
        progress: show a progress bar.

    Returns:
        (V,D) float32.

    Raises:
        InputError: vectors that are not finite.
    """
    if not np.isfinite(vectors).all():
        raise InputError("The sentence vectors contain NaN or infinite values.")
    target = unit_rows(vectors)  # (N,D)
    means = token_counts @ prior
    size = float((means * means).sum())
    scale = float((means * target).sum()) / size if size > 0 else 1.0
    rows = np.array(prior * scale, np.float32)  # (V,D)
    occurring = np.flatnonzero(token_counts.getnnz(axis=0))  # a few per cent of the rows of a large vocabulary
    token_counts, scaled = token_counts[:, occurring], rows[occurring]
    transposed = token_counts.T.tocsr()
    diagonal = np.asarray(token_counts.multiply(token_counts).sum(axis=0)).reshape(-1, 1) + strength  # (V,1)
    residual = (transposed @ (target - token_counts @ scaled)).astype(np.float32)  # (V,D)
    change = np.zeros_like(residual)
    preconditioned = residual / diagonal
    direction = preconditioned.copy()
    product = (residual * preconditioned).sum(axis=0)  # (D,)
    first_norms = np.linalg.norm(residual, axis=0)
    for _ in tqdm(range(MAX_STEPS), desc="Rows", unit="step", disable=not progress):
        if (np.linalg.norm(residual, axis=0) <= TOLERANCE * np.maximum(first_norms, 1e-30)).all():
            break
        mapped = transposed @ (token_counts @ direction) + strength * direction
        step_size = product / np.maximum((direction * mapped).sum(axis=0), 1e-30)
        change += step_size * direction
        residual -= step_size * mapped
        preconditioned = residual / diagonal
        next_product = (residual * preconditioned).sum(axis=0)
        direction = preconditioned + next_product / np.maximum(product, 1e-30) * direction
        product = next_product
    rows[occurring] += change
    return rows


# -- smaller tables, and agreement ------------------------------------------------------------------------------------


def reduced_table(
    material: Material, choice: Choice, dimensions: int | None, dtype: str, *, progress: bool = False
) -> np.ndarray:
    """Compute the table (V,K) of a choice with fewer dimensions and bits."""
    table = material.table(choice, progress=progress)
    if dimensions is not None:
        table = reduce_table(material.token_counts, table, dimensions)
    return rounded(table, dtype) if dtype != "float32" else table


def reduce_table(token_counts: sparse.csr_matrix, table: np.ndarray, dimensions: int) -> np.ndarray:
    """Project a table on the first principal components (without centring) of the corpus's unit vectors: (V,K).

    Raises:
        InputError: more dimensions than the table has, or fewer than one.
    """
    check_dimensions(dimensions, table.shape[1])
    products = np.zeros((table.shape[1], table.shape[1]))  # Σ_s v_s v_sᵀ: (D,D)
    for start in range(0, token_counts.shape[0], PORTION):
        vectors = unit_rows(token_counts[start : start + PORTION] @ table).astype(np.float64)
        products += vectors.T @ vectors
    axes = np.linalg.eigh(products)[1][:, ::-1][:, :dimensions]  # (D,K)
    largest = axes[np.abs(axes).argmax(axis=0), np.arange(dimensions)]  # signs are arbitrary: make them positive
    return np.asarray(table @ (axes * np.where(largest < 0, -1.0, 1.0)), np.float32)


def check_dimensions(dimensions: int, width: int, owner: str = "the model's") -> None:
    """Check a number of dimensions.

    Raises:
        InputError: not a whole number from 1 to `width`.
    """
    check_size(dimensions, "dimensions")
    if dimensions > width:
        raise InputError(f"dimensions={dimensions}: must be between 1 and {owner} {width}.")


def rank_agreement(first: np.ndarray, second: np.ndarray) -> float:
    """Compute Spearman ×100 between two arrays of cosines; NaN if one is constant and the arrays differ."""
    first, second = first.round(6), second.round(6)  # rounding errors must not order equal values
    if min(np.ptp(first), np.ptp(second)) == 0:
        return 100.0 if np.array_equal(first, second) else math.nan
    return 100.0 * float(stats.spearmanr(first, second).statistic)
