"""Token importance by perturbed masking and by attention diagonals, and its correlation with tf-idf.

Source: Ditto (Chen et al. 2023), section 2, Appendix A.1, Tables 3 and 4; perturbed masking is from Wu et al. 2020.
Ditto does not state which tokens it counts; here, they are the text's own tokens, without special tokens.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from essent._core.arguments import ModelLike
from essent._core.texts import check_texts
from essent.encoder.plan import Plan
from essent.errors import InputError, ModelError
from essent.model.backbone import Backbone
from essent.model.loading import load
from essent.model.template import make_frame
from essent.recipe.recipe import Recipe
from essent.recipe.tokens import batches, framed_ids, pad
from essent.recipe.types import RequiredOutputs
from essent.recipe.weighting.methods import TfIdf

TOKENS = 8192  # per batch of masked sequences


@dataclass(frozen=True)
class Impact:
    """The impact matrix (T,T) of one text, over its tokens without special tokens.

    `matrix[i, j]` is the distance by which the state of token i, itself masked, moves when token j is also masked.

    Example:
        >>> from essent.lab.explain import impact_matrix
        >>> impact = impact_matrix("sentence-transformers/all-MiniLM-L6-v2", "The museum opens at nine.")
        >>> impact.tokens, impact.matrix.shape
        (('the', 'museum', 'opens', 'at', 'nine', '.'), (6, 6))
        >>> impact.tokens[impact.means.argmax()]
        'museum'
    """

    tokens: tuple[str, ...]
    ids: tuple[int, ...]
    matrix: np.ndarray

    @property
    def means(self) -> np.ndarray:
        """Mean impact (T,) of each token: (1/T) Σ_i F_ij. The diagonal, which is 0, is included (Table 3)."""
        return np.asarray(self.matrix.sum(axis=0) / max(len(self.ids), 1))


@dataclass(frozen=True)
class Agreement:
    """Correlations ×100 between the impact of tokens and their tf-idf, over all tokens of all texts together.

    They are NaN if either side is constant, or if there are fewer than two tokens.

    Example:
        >>> from essent.lab.explain import impact_agreement
        >>> texts = ["The museum opens at nine.", "A dog runs along the beach.", "He sold the old car."]
        >>> agreement = impact_agreement("sentence-transformers/all-MiniLM-L6-v2", texts)
        >>> agreement.tokens, agreement.texts
        (19, 3)
    """

    pearson: float
    spearman: float
    tokens: int
    texts: int


@dataclass(frozen=True)
class HeadAgreement:
    """Correlations ×100 between the attention diagonal of each head and tf-idf.

    `pearson` and `spearman` are (L,H) arrays; row 0 is layer 1 and column 0 is head 1.

    Example:
        >>> from essent.lab.explain import head_agreement
        >>> texts = ["The museum opens at nine.", "A dog runs along the beach.", "He sold the old car."]
        >>> agreement = head_agreement("sentence-transformers/all-MiniLM-L6-v2", texts)
        >>> agreement.spearman.shape, agreement.tokens
        ((6, 12), 19)
        >>> agreement.best(1)[0][0]
        '2-2'
    """

    pearson: np.ndarray
    spearman: np.ndarray
    tokens: int
    texts: int

    def best(self, count: int = 10) -> list[tuple[str, float, float]]:
        """Return the heads with the highest Spearman correlation as ("layer-head", pearson, spearman) from 1."""
        order = np.argsort(-np.nan_to_num(self.spearman, nan=-math.inf), axis=None, kind="stable")[:count]
        heads = zip(*np.unravel_index(order, self.spearman.shape), strict=True)
        return [(f"{r + 1}-{c + 1}", float(self.pearson[r, c]), float(self.spearman[r, c])) for r, c in heads]


def impact_matrix(model: ModelLike, text: str, **options: Any) -> Impact:
    """Compute perturbed masking of one text: F_ij = ‖H(x∖{i})_i − H(x∖{i,j})_i‖, H from the last layer (Ditto A.1).

    A text of T tokens needs T(T+1)/2 masked copies, because x∖{i,j} serves F_ij and F_ji.

    Args:
        model: a hub name, a folder, or a SentenceTransformer.
        options: keyword arguments for SentenceTransformer (device, revision …).

    Raises:
        InputError: the model has no mask token.
        ModelError: the model is static, so its tokens do not influence each other.

    Example:
        >>> from essent.lab.explain import impact_matrix
        >>> impact = impact_matrix("sentence-transformers/all-MiniLM-L6-v2", "The museum opens at nine.")
        >>> impact.matrix.shape, impact.tokens[impact.means.argmax()]
        ((6, 6), 'museum')
    """
    return _impact(_transformer(model, options), text)


def impact_agreement(
    model: ModelLike, texts: Sequence[str], *, frequency_texts: Sequence[str] | None = None, **options: Any
) -> Agreement:
    """Correlate the column means of the impact matrices with tf-idf (Ditto Table 3).

    Args:
        model, options: see `impact_matrix`.
        frequency_texts: the corpus that tokens are counted in; by default the texts themselves.

    Raises:
        InputError: as `impact_matrix`; or there are no texts.
        ModelError: as `impact_matrix`.

    Example:
        >>> from essent.lab.explain import impact_agreement
        >>> texts = ["The museum opens at nine.", "A dog runs along the beach.", "He sold the old car."]
        >>> impact_agreement("sentence-transformers/all-MiniLM-L6-v2", texts).pearson > 0
        True
    """
    backbone, sentences, tfidf = _with_tfidf(model, texts, frequency_texts, options)
    impacts = ((impact.means, impact.ids) for impact in (_impact(backbone, text) for text in sentences))
    means, token_ids = (np.concatenate(parts) for parts in zip(*impacts, strict=True))
    ((pearson,), (spearman,)) = correlate(means[None, :], tfidf[token_ids.astype(np.int64)])
    return Agreement(float(pearson), float(spearman), len(token_ids), len(sentences))


@torch.inference_mode()
def head_agreement(
    model: ModelLike,
    texts: Sequence[str],
    *,
    frequency_texts: Sequence[str] | None = None,
    batch_size: int = 32,
    **options: Any,
) -> HeadAgreement:
    """Correlate the diagonal attention A_nn of each head with tf-idf, in one pass over the texts (Ditto Table 4).

    Args: see `impact_agreement`.

    Raises:
        InputError: there are no texts.
        ModelError: the model is static.

    Example:
        >>> from essent.lab.explain import head_agreement
        >>> texts = ["The museum opens at nine.", "A dog runs along the beach.", "He sold the old car."]
        >>> agreement = head_agreement("sentence-transformers/all-MiniLM-L6-v2", texts)
        >>> [head for head, pearson, spearman in agreement.best(1)]
        ['2-2']
    """
    backbone, sentences, tfidf = _with_tfidf(model, texts, frequency_texts, options)
    frame, layers = make_frame(backbone.tokenizer, None), backbone.depth or 0
    heads = [(layer, head) for layer in range(1, layers + 1) for head in range(1, backbone.attention_heads + 1)]
    diagonals, token_ids = [np.empty((len(heads), 0), np.float32)], [np.empty(0, np.int64)]
    sequences = framed_ids(backbone.tokenizer, frame, sentences, backbone.max_seq_length)
    sequences = [ids for ids in sequences if len(ids) > len(frame)]  # without empty texts
    for chosen in batches([len(ids) for ids in sequences], batch_size):
        tokens = pad([sequences[i] for i in chosen], frame, backbone.pad_id).to(backbone.static_table.device)
        states = backbone.states(tokens, RequiredOutputs(attention_heads=frozenset(heads)))
        values = torch.stack([states.diagonals[head] for head in heads])  # (H,B,T)
        diagonals.append(values[:, tokens.content].float().cpu().numpy())  # (H,m)
        token_ids.append(tokens.ids[tokens.content].cpu().numpy())  # (m,)
    pearson, spearman = correlate(np.concatenate(diagonals, axis=1), tfidf[np.concatenate(token_ids)])
    shape = (layers, backbone.attention_heads)
    return HeadAgreement(pearson.reshape(shape), spearman.reshape(shape), sum(map(len, token_ids)), len(sentences))


def correlate(rows: np.ndarray, against: np.ndarray) -> np.ndarray:
    """Compute Pearson's and Spearman's correlation ×100 of each row of (H,M) with (M,): (2,H)."""
    from scipy.stats import rankdata

    ranks = rankdata(against)
    # one row at a time: float64 copies of all rows could fill the memory
    pairs = [(_pearson(row, against), _pearson(rankdata(row), ranks)) for row in rows]
    correlations: np.ndarray = np.asarray(pairs, np.float64).reshape(-1, 2).T
    return correlations


def _pearson(first: np.ndarray, second: np.ndarray) -> float:
    if len(first) < 2 or np.ptp(first) == 0 or np.ptp(second) == 0:
        return math.nan
    return 100 * float(np.corrcoef(np.asarray(first, dtype=np.float64), second)[0, 1])


def backbone_of(model: ModelLike, recipe: Recipe | None = None, **options: Any) -> Backbone:
    """Load the transformer of a model on its device, with the outputs that a recipe (by default mean) reads.

    Raises:
        ModelError: the model cannot be loaded.
    """
    loaded = load(model, [recipe or Recipe()], options)
    return loaded.backbone.to(loaded.settings["device"]).eval()


def _transformer(model: ModelLike, options: dict[str, Any]) -> Backbone:
    backbone = backbone_of(model, **options)
    if backbone.only_static:
        raise ModelError(
            "A static model has no attention heads, and its token vectors do not depend on each other. Use a "
            "transformer."
        )
    return backbone


def _with_tfidf(
    model: ModelLike, texts: Sequence[str], corpus: Sequence[str] | None, options: dict[str, Any]
) -> tuple[Backbone, list[str], np.ndarray]:
    """Return the transformer, the texts, and the tf-idf (V,) of each token by its counts in the corpus."""
    backbone, sentences = _transformer(model, options), check_texts(texts)
    if not sentences:
        raise InputError("texts is empty: word importance needs at least one text.")
    stats = Plan(Recipe(), backbone).count(sentences if corpus is None else check_texts(corpus), backbone)
    return backbone, sentences, TfIdf().table(backbone.vocabulary, stats)


@torch.inference_mode()
def _impact(backbone: Backbone, text: str) -> Impact:
    """Compute the impact matrix of one text, over its tokens without special tokens."""
    layer, mask = backbone.depth or 0, backbone.vocabulary.mask_id
    if mask is None:
        raise InputError(
            f"Perturbed masking needs a mask token, but the tokenizer of this {backbone.family} model has none."
        )
    frame = make_frame(backbone.tokenizer, None)
    (ids,) = framed_ids(backbone.tokenizer, frame, [text], backbone.max_seq_length)
    start, count = len(frame.before), len(ids) - len(frame)
    content_ids = tuple(ids[start : start + count])
    tokens = tuple(backbone.vocabulary.tokens[index] for index in content_ids)
    matrix = np.zeros((count, count))
    if count == 0:
        return Impact(tokens, content_ids, matrix)

    def states_at_masks(positions: np.ndarray) -> np.ndarray:
        """Mask one copy of the text per row of `positions` (b,m); return the states there, (b,m,D) in float64."""
        rows = np.arange(len(positions))[:, None]
        masked = np.tile(np.asarray(ids, dtype=np.int64), (len(positions), 1))  # (b,T)
        masked[rows, positions] = mask
        tokens = pad(masked.tolist(), frame, backbone.pad_id).to(backbone.static_table.device)
        hidden = backbone.states(tokens, RequiredOutputs(layers=frozenset({layer}))).hidden[layer]  # (b,T,D)
        return np.asarray(hidden[torch.from_numpy(rows), torch.from_numpy(positions)].double().cpu())

    single = states_at_masks(np.arange(count)[:, None] + start)[:, 0]  # (T,D)
    first, second = np.triu_indices(count, 1)
    step = max(1, TOKENS // len(ids))
    for begin in range(0, len(first), step):
        i, j = first[begin : begin + step], second[begin : begin + step]
        both = states_at_masks(np.stack([i, j], axis=1) + start)  # (b,2,D)
        matrix[i, j] = np.linalg.norm(single[i] - both[:, 0], axis=1)
        matrix[j, i] = np.linalg.norm(single[j] - both[:, 1], axis=1)
    return Impact(tokens, content_ids, matrix)
