"""Which tokens matter to a model: by perturbed masking, by the attention diagonal of every head, both against tf-idf.

Source: Ditto (Chen et al. 2023), section 2, Appendix A.1, Tables 3 and 4; perturbed masking is Wu et al. 2020. Ditto
leaves open which tokens it counts; here they are the user's words, without special tokens.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from essent._core.texts import check_texts
from essent._core.types import ModelLike
from essent.errors import InputError, ModelError
from essent.model.backbone import Backbone, RequiredOutputs
from essent.model.loading import load
from essent.model.template import make_frame
from essent.recipe.recipe import Recipe
from essent.recipe.tokens.ids import Frame, batches, count_tokens, framed_ids, pad, portions
from essent.recipe.types import CorpusStats
from essent.recipe.weighting.base import ByToken, weightings

TOKENS = 8192  # of one batch of masked sequences


@dataclass(frozen=True)
class Impact:
    """The impact matrix of one text: (T,T) over its own tokens.

    `matrix[i, j]` is how far the representation of token i, itself masked, moves when j is masked too.
    """

    tokens: tuple[str, ...]
    ids: tuple[int, ...]
    matrix: np.ndarray

    @property
    def means(self) -> np.ndarray:
        """The impact of each token on the others: (1/T) Σ_i F_ij, (T,). The diagonal, which is 0, counts (Table 3)."""
        return np.asarray(self.matrix.sum(axis=0) / max(len(self.ids), 1))


@dataclass(frozen=True)
class Agreement:
    """Correlations ×100 between a model's importance of tokens and tf-idf, over all tokens of all texts as one.

    NaN where either side is constant, or there are fewer than two tokens.
    """

    pearson: float
    spearman: float
    tokens: int
    texts: int


@dataclass(frozen=True)
class HeadAgreement:
    """The same for every head: `pearson` and `spearman` (L,H), row 0 being layer 1 and column 0 head 1."""

    pearson: np.ndarray
    spearman: np.ndarray
    tokens: int
    texts: int

    def best(self, count: int = 10) -> list[tuple[str, float, float]]:
        """The heads with the highest Spearman correlation as ("layer-head", pearson, spearman), counted from 1."""
        flat = np.nan_to_num(self.spearman.ravel(), nan=-math.inf)
        order = [divmod(int(index), self.spearman.shape[1]) for index in np.argsort(-flat, kind="stable")[:count]]
        return [(f"{r + 1}-{c + 1}", float(self.pearson[r, c]), float(self.spearman[r, c])) for r, c in order]


def impact_matrix(model: ModelLike, text: str, *, layer: int | None = None, **options: Any) -> Impact:
    """Perturbed masking of one text: F_ij = ‖H(x∖{i})_i − H(x∖{i,j})_i‖ (Ditto A.1).

    A text of T tokens takes T(T+1)/2 masked copies: x∖{i,j} serves F_ij and F_ji.

    Args:
        model: a hub name, a folder, or a SentenceTransformer.
        layer: whose output is the representation H, 0 to L; by default the last one.
        options: keyword arguments for SentenceTransformer (device, revision …).

    Raises:
        InputError: the model has no mask token, or no such layer.
        ModelError: a static model, whose tokens do not look at each other.
    """
    return next(_impacts(_transformer(model, options), [text], layer))


def impact_agreement(
    model: ModelLike,
    texts: Sequence[str],
    *,
    weights: str = "tfidf",
    frequency_texts: Sequence[str] | None = None,
    layer: int | None = None,
    **options: Any,
) -> Agreement:
    """Column means of the impact matrices against tf-idf (Ditto Table 3).

    Args:
        model, layer, options: see `impact_matrix`.
        weights: a weighting by token, e.g. "tfidf" or "idf".
        frequency_texts: the corpus that counts come from; by default the texts themselves.

    Raises:
        InputError, ModelError: as `impact_matrix`, no texts, or a weighting that is not one by token.
    """
    backbone, sentences = _transformer(model, options), _non_empty(texts)
    table = _weights_by_token(backbone, weights, sentences if frequency_texts is None else frequency_texts)
    impacts = [(impact.means, impact.ids) for impact in _impacts(backbone, sentences, layer)]  # no matrix is kept
    ids = np.array([index for _, own in impacts for index in own], np.int64)
    ((pearson,), (spearman,)) = correlate(np.concatenate([means for means, _ in impacts])[None, :], table[ids])
    return Agreement(float(pearson), float(spearman), len(ids), len(sentences))


@torch.inference_mode()
def head_agreement(
    model: ModelLike,
    texts: Sequence[str],
    *,
    weights: str = "tfidf",
    frequency_texts: Sequence[str] | None = None,
    batch_size: int = 32,
    **options: Any,
) -> HeadAgreement:
    """Diagonal attention A_nn of every head against tf-idf, in one pass over the texts (Ditto Table 4).

    Args: see `impact_agreement`.

    Raises:
        InputError: no texts, or a weighting that is not one by token.
        ModelError: a static model.
    """
    backbone, sentences = _transformer(model, options), _non_empty(texts)
    table = _weights_by_token(backbone, weights, sentences if frequency_texts is None else frequency_texts)
    frame, layers = make_frame(backbone.tokenizer, None), backbone.depth or 0
    heads = [(layer, head) for layer in range(1, layers + 1) for head in range(1, backbone.attention_heads + 1)]
    diagonals, token_ids = [np.empty((len(heads), 0), np.float32)], [np.empty(0, np.int64)]
    for _, portion in portions(sentences):
        every = framed_ids(backbone.tokenizer, frame, list(portion), backbone.max_seq_length)
        sequences = [ids for ids in every if len(ids) > len(frame)]  # an empty text has no words to look at
        for chosen in batches([len(s) for s in sequences], batch_size):
            tokens = pad([sequences[i] for i in chosen], frame, backbone.pad_id).to(backbone.static_table.device)
            states = backbone.states(tokens, RequiredOutputs(attention_heads=frozenset(heads)))
            values = torch.stack([states.diagonals[head] for head in heads])  # (H,B,T)
            diagonals.append(values[:, tokens.content].float().cpu().numpy())  # (H,m)
            token_ids.append(tokens.ids[tokens.content].cpu().numpy())  # (m,)
    pearson, spearman = correlate(np.concatenate(diagonals, axis=1), table[np.concatenate(token_ids)])
    shape = (layers, backbone.attention_heads)
    return HeadAgreement(pearson.reshape(shape), spearman.reshape(shape), sum(map(len, token_ids)), len(sentences))


def correlate(rows: np.ndarray, against: np.ndarray) -> np.ndarray:
    """Pearson's and Spearman's correlation ×100 of every row of (H,M) with (M,): (2,H)."""
    from scipy.stats import rankdata

    ranks = rankdata(against)
    # one row at a time: float64 copies of all rows could fill the memory
    pairs: np.ndarray = np.array([(_pearson(row, against), _pearson(rankdata(row), ranks)) for row in rows])
    correlations: np.ndarray = pairs.reshape(-1, 2).T
    return correlations


def _pearson(first: np.ndarray, second: np.ndarray) -> float:
    if len(first) < 2 or np.ptp(first) == 0 or np.ptp(second) == 0:
        return math.nan
    return 100 * float(np.corrcoef(np.asarray(first, dtype=np.float64), second)[0, 1])


def backbone_of(model: ModelLike, recipe: Recipe | None = None, **options: Any) -> Backbone:
    """The transformer of a hub name, a folder or a SentenceTransformer, on its device, with what a recipe (mean) reads.

    Raises:
        ModelError: nothing to load there.
    """
    loaded = load(model, [recipe or Recipe()], options)
    return loaded.backbone.to(loaded.settings["device"]).eval()


def count_corpus(backbone: Backbone, texts: list[str], max_seq_length: int | None) -> CorpusStats:
    """How often, and in how many texts, each token occurs; texts are cut to `max_seq_length` tokens."""
    frame = make_frame(backbone.tokenizer, None)

    def tokenise(portion: Sequence[str]) -> list[list[int]]:
        return framed_ids(backbone.tokenizer, frame, list(portion), max_seq_length)

    return count_tokens(tokenise, texts, len(backbone.vocabulary))


def _transformer(model: ModelLike, options: dict[str, Any]) -> Backbone:
    backbone = backbone_of(model, **options)
    if backbone.only_static:
        raise ModelError(
            "A static model has no attention heads, and masking one token moves no other; word importance is measured "
            "on a transformer."
        )
    return backbone


def _non_empty(texts: Sequence[str]) -> list[str]:
    sentences = check_texts(texts)
    if not sentences:
        raise InputError("Word importance needs at least one text.")
    return sentences


def _weights_by_token(backbone: Backbone, spec: str, corpus: Sequence[str]) -> np.ndarray:
    """The weight of every token of the vocabulary (V,), counted on the corpus."""
    weighting = weightings.create(spec)
    if not isinstance(weighting, ByToken):
        raise InputError(f"weights={spec!r} is not a weight by token; give tfidf, idf or sif.")
    stats = count_corpus(backbone, check_texts(corpus), backbone.max_seq_length)
    return weighting.table(backbone.vocabulary, stats)


@torch.inference_mode()
def _impacts(backbone: Backbone, texts: list[str], layer: int | None) -> Iterator[Impact]:
    mask, top = backbone.vocabulary.mask_id, backbone.depth or 0
    read = top if layer is None else layer
    if mask is None:
        raise InputError(
            f"Perturbed masking needs a mask token, and the tokenizer of this {backbone.family} model has none."
        )
    if not 0 <= read <= top:
        raise InputError(f"There is no layer {layer}; this model has layers 0 to {top}.")
    frame = make_frame(backbone.tokenizer, None)
    for text in texts:
        (ids,) = framed_ids(backbone.tokenizer, frame, [text], backbone.max_seq_length)
        own = tuple(ids[len(frame.before) : len(ids) - len(frame.after)])
        names = tuple(backbone.vocabulary.tokens[i] for i in own)
        yield Impact(names, own, _impact(backbone, frame, ids, mask, read))


def _impact(backbone: Backbone, frame: Frame, ids: list[int], mask: int, layer: int) -> np.ndarray:
    """The matrix of one text: (T,T) over the tokens between the frame's."""
    start, count = len(frame.before), len(ids) - len(frame)
    matrix = np.zeros((count, count))
    if count == 0:
        return matrix
    single = _states_at_masks(backbone, frame, ids, mask, layer, np.arange(count)[:, None] + start)[:, 0]  # (T,D)
    first, second = np.triu_indices(count, 1)
    step = max(1, TOKENS // len(ids))
    for begin in range(0, len(first), step):
        i, j = first[begin : begin + step], second[begin : begin + step]
        both = _states_at_masks(backbone, frame, ids, mask, layer, np.stack([i, j], axis=1) + start)  # (b,2,D)
        matrix[i, j] = np.linalg.norm(single[i] - both[:, 0], axis=1)
        matrix[j, i] = np.linalg.norm(single[j] - both[:, 1], axis=1)
    return matrix


def _states_at_masks(
    backbone: Backbone, frame: Frame, ids: list[int], mask: int, layer: int, positions: np.ndarray
) -> np.ndarray:
    """The text once a row of `positions` (b,m), masked there; the states at these: (b,m,D) float64."""
    rows = np.arange(len(positions))[:, None]
    masked = np.tile(np.asarray(ids, dtype=np.int64), (len(positions), 1))  # (b,T)
    masked[rows, positions] = mask
    tokens = pad(masked.tolist(), frame, backbone.pad_id).to(backbone.static_table.device)
    hidden = backbone.states(tokens, RequiredOutputs(layers=frozenset({layer}))).hidden[layer]  # (b,T,D)
    return np.asarray(hidden[torch.from_numpy(rows), torch.from_numpy(positions)].double().cpu())
