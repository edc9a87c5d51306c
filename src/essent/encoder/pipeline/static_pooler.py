"""Vectors of static recipes without padding: ids of all texts, one after the other, to one weighted sum of rows each.

texts ─ ids (essent.recipe.tokens.by_word) ─ Σ ω_t h_t ─ vectors
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import torch
from torch.nn.functional import embedding_bag

from essent.encoder.pipeline.plan import Plan
from essent.model.backbone import Backbone
from essent.recipe.tokens.by_word import SEPARATORS, Ragged, WordIds, cut, whole_ids, words_apart
from essent.recipe.tokens.ids import fast_backend, portions, text_ids
from essent.recipe.types import CorpusStats
from essent.recipe.weighting.base import ByToken, Weighting
from essent.recipe.weighting.frequency import Sif
from essent.recipe.weighting.position import Content, Uniform

PORTION = 8192  # texts whose words and ids are held at a time


def is_by_token(weighting: Weighting) -> bool:
    """Whether the weighting is a number for every token id, up to one factor a text."""
    kind = type(weighting)
    if kind is Uniform or kind.weights is Content.weights:
        return True
    return isinstance(weighting, ByToken) and kind.weights in (ByToken.weights, Sif.weights)


def static_pooler_of(plan: Plan, backbone: Backbone) -> StaticPooler | None:
    """The fast way to the plan's pooled vectors, None where there is none.

    There is one for sums of table rows (`static`, `random` …) with weights by token, without a template.
    """
    simple = plan.required.depth is None and plan.recipe.template is None and plan.recipe.reduce == "sum"
    return StaticPooler(plan, backbone) if simple and all(map(is_by_token, plan.weightings)) else None


class StaticPooler:
    """Pooled vectors of a static plan: Σ_t ω_t h_t over the ids of each text, nothing padded.

    Equal to `Plan.pool` on padded batches up to the order of float sums. See `bags_of` for when it applies.
    """

    def __init__(self, plan: Plan, backbone: Backbone) -> None:
        self.plan, self.backbone = plan, backbone
        self.frame_ids = np.array([*plan.frame.before, *plan.frame.after], np.int32)  # (F,)

    @cached_property
    def by_word(self) -> WordIds | None:
        """Ids by words, where the tokenizer keeps them apart."""
        if not words_apart(fast_backend(self.backbone.tokenizer)):
            return None
        vocabulary, unknown = self.backbone.vocabulary, self.backbone.tokenizer.unk_token_id
        rare = [vocabulary.text(token) for token in vocabulary.tokens[-16:]]  # tables of words may have no marks
        return WordIds(self._tokenise, [*SEPARATORS, *rare], unknown)

    def _tokenise(self, texts: list[str]) -> list[list[int]]:
        return text_ids(self.backbone.tokenizer, texts, self.plan.frame.plain_text)

    def ids(self, texts: Sequence[str]) -> Ragged:
        """Ids of each text (at least one) as `framed_ids` has them, less the frame."""
        prepared = self.plan.frame.prepare(list(texts))
        ids, lengths = self.by_word(prepared) if self.by_word is not None else whole_ids(self._tokenise, prepared)
        if self.backbone.max_seq_length is None:
            return ids, lengths
        at_start = getattr(self.backbone.tokenizer, "truncation_side", "right") == "left"
        return cut(ids, lengths, max(self.backbone.max_seq_length - len(self.frame_ids), 0), at_start)

    def count(self, texts: Sequence[str]) -> CorpusStats:
        """Token counts of a corpus, duplicated texts and the frame included, as `count_tokens` has them."""
        rows = len(self.backbone.vocabulary)
        frequency, count = np.zeros(rows, np.int64), np.zeros(rows, np.int64)
        for _, portion in portions(texts, PORTION):
            ids, lengths = self.ids(portion)
            count += np.bincount(ids, minlength=rows)
            owner = np.repeat(np.arange(len(lengths)), lengths)
            frequency += np.bincount(np.unique(owner * rows + ids) % rows, minlength=rows)
        np.add.at(count, self.frame_ids, len(texts))
        frequency[self.frame_ids] = len(texts)
        return CorpusStats(len(texts), frequency, count)

    def pool(self, ragged: Ragged, stats: CorpusStats | None) -> torch.Tensor:
        """The pooled vectors (N,K) of texts by their `ids`, on the table's device.

        Raises:
            NotFittedError: the weights need token counts and `stats` is None.
        """
        ids, lengths = ragged
        if not len(self.frame_ids) and not lengths.all():  # a text of nothing at all is one pad token
            ids = np.insert(ids, (np.cumsum(lengths) - lengths)[lengths == 0], self.backbone.pad_id)
            lengths = np.maximum(lengths, 1)
        table = self._table(stats)  # (V,)
        weights, around = table[ids], self._around(table)  # (tokens,), (F,)
        total = np.bincount(np.repeat(np.arange(len(lengths)), lengths), weights, len(lengths)) + around.sum()  # (N,)
        empty = total <= 0
        weights[np.repeat(empty, lengths)] = 1.0  # nothing is left of these: uniform, as in `combine_many`
        sums = self._sums(ids, lengths, weights)  # (N,K)
        if len(around):
            own, uniform = (self._sums(self.frame_ids, [len(around)], w) for w in (around, np.ones_like(around)))
            sums += torch.where(torch.from_numpy(empty[:, None]).to(sums.device), uniform, own)
        count = lengths + len(around)
        if all(weighting.normalised for weighting in self.plan.weightings):
            divisor = np.where(empty, count, total)
        else:  # SIF: divided by the number of tokens
            divisor = count ** np.where(empty, 1, sum(isinstance(w, Sif) for w in self.plan.weightings))
        return sums.div_(torch.from_numpy(divisor[:, None]).to(sums.device, sums.dtype))

    def _table(self, stats: CorpusStats | None) -> np.ndarray:
        """The weight of every token id (V,) float32, before anything is divided by lengths."""
        vocabulary = self.backbone.vocabulary

        def product() -> np.ndarray:
            table = np.ones(len(vocabulary))
            for weighting in self.plan.weightings:
                by_token = weighting.by_token if isinstance(weighting, Content) else weighting
                if isinstance(by_token, ByToken):
                    table *= by_token.table(vocabulary, stats)
            return table.astype(np.float32)

        return vocabulary.cached(("bags", *self.plan.weightings, stats), product)

    def _around(self, table: np.ndarray) -> np.ndarray:
        """The weights of the frame's ids (F,): none where only the user's words count."""
        if any(isinstance(weighting, Content) for weighting in self.plan.weightings):
            return np.zeros(len(self.frame_ids), np.float32)
        return table[self.frame_ids]

    def _sums(self, ids: np.ndarray, lengths: Sequence[int] | np.ndarray, weights: np.ndarray) -> torch.Tensor:
        """Σ_t ω_t Σ_k α_k h_t^(k) of each text: (N,K)."""
        sums: torch.Tensor | None = None
        for source, factor in zip(self.plan.sources, self.plan.factors, strict=True):
            key = str(source.key)
            rows = self.backbone.static_table if key == "static" else getattr(self.plan, self.plan.tables[key])  # (V,D)
            row_ids, kind = torch.from_numpy(ids).to(rows.device), torch.promote_types(rows.dtype, torch.float32)
            if rows.dtype != kind:  # 16 bits: sums are taken in 32, of the rows that occur
                used, row_ids = row_ids.unique(return_inverse=True)
                rows = rows[used].to(kind)
            offsets = torch.from_numpy(np.concatenate([[0], np.cumsum(lengths)])).to(row_ids)
            scaled = torch.from_numpy(weights * np.float32(factor)).to(rows.device, kind)
            part = embedding_bag(
                row_ids, rows, offsets, mode="sum", per_sample_weights=scaled, include_last_offset=True
            )
            sums = part if sums is None else sums.add_(part)
        assert sums is not None  # noqa: S101  (a recipe has a source)
        return sums
