"""A recipe bound to a model: its outputs and pooling; static recipes without padding; many recipes in one pass.

tokens ─ states ─ mix α ─ weights ω ─ reduce Σ          (shaping g follows in essent.encoder.encoder)
texts ─ ids of all texts ─ Σ ω_t h_t                    of static recipes, one text after the other
"""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, partial, reduce
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.functional import embedding, embedding_bag

from essent._core.display import text_progress
from essent._core.texts import distinct_texts, require_finite
from essent.errors import UnsupportedRecipeError
from essent.model.backbone import Backbone
from essent.model.capabilities import capabilities_of, check_recipe
from essent.model.loading import required_outputs_of
from essent.model.mlm_head import expected_rows, moments_of
from essent.model.template import check_room, debias, make_frame
from essent.recipe.layers import Source, format_mix, resolve, token_tables
from essent.recipe.pooling import Reduction, mix_sources, reductions
from essent.recipe.recipe import Recipe
from essent.recipe.shaping.chain import Chain
from essent.recipe.tokens import (
    Frame,
    Vocabulary,
    batches,
    count_ids,
    count_tokens,
    fast_backend,
    framed_ids,
    pad,
    portions,
    text_ids,
)
from essent.recipe.types import CorpusStats, RequiredOutputs, States, Tokens
from essent.recipe.weighting.base import ByToken, Weighting, combine_many, weightings
from essent.recipe.weighting.methods import Content, Sif, Uniform
from essent.recipe.words import SEPARATORS, Ragged, WordIds, cut, tokenizes_words_separately, whole_ids

PORTION = 8192  # texts whose words and ids are in memory at a time


class Plan(nn.Module):
    """One recipe on one backbone, up to the pooled vector; external tables are buffers and move with the module.

    Args:
        tables: rows (V,D) of sources that are already loaded, for example from a saved encoder.

    Raises:
        UnsupportedRecipeError: the model cannot run the recipe.
    """

    def __init__(self, recipe: Recipe, backbone: Backbone, tables: Mapping[str, torch.Tensor] | None = None) -> None:
        super().__init__()
        check_recipe(recipe, capabilities_of(backbone))
        self.recipe = recipe
        self.weightings: list[Weighting] = [weightings.create(spec) for spec in recipe.weights]
        self.reduction: Reduction = reductions.create(recipe.reduce)
        self.sources: list[Source] = [resolve(name, backbone.last) for name, _ in recipe.layers]
        self.factors = [factor for _, factor in recipe.layers]
        self.reads_mlm_head = any(source.top for source in self.sources)
        self.reads_stats = any(weighting.reads_stats for weighting in self.weightings)
        self.required = required_outputs_of(recipe, backbone.last)
        self.is_static = self.required.depth is None  # it reads no transformer layer and no attention
        leading_space = any(w.leading_space for w in self.weightings) and backbone.vocabulary.marker == "Ġ"
        self.frames: dict[Frame, float] = {}  # frame of each template -> its factor; several make an ensemble
        for template, factor in recipe.terms:
            frame = make_frame(backbone.tokenizer, template, leading_space)
            check_room(frame, template, backbone.max_seq_length)
            self.frames[frame] = self.frames.get(frame, 0.0) + factor
        self.tables: dict[str, str] = {}  # source -> buffer
        for index, source in enumerate(self.sources):
            if isinstance(source.key, str) and source.key != "static":
                rows = (tables or {}).get(source.key)
                rows = token_tables.create(source.key).rows_of(backbone.vocabulary) if rows is None else rows
                self.register_buffer(f"table_{index}", rows, persistent=False)
                self.tables[source.key] = f"table_{index}"
        widths = [self._source_width(source, backbone) for source in self.sources]
        if len(set(widths)) > 1:
            listed = ", ".join(f"{name} has {width}" for (name, _), width in zip(recipe.layers, widths, strict=True))
            raise UnsupportedRecipeError(
                f"layers={format_mix(recipe.layers)} mixes sources of different widths: {listed} dimensions. Mix only "
                "sources of the same width."
            )
        self._mixed_width = widths[0]

    def _source_width(self, source: Source, backbone: Backbone) -> int:
        if isinstance(source.key, tuple):  # no configuration says it for all families: run one token
            ids = torch.full((1, 1), backbone.pad_id, device=backbone.static_table.device)
            token = Tokens(ids, torch.ones_like(ids, dtype=torch.bool), torch.ones_like(ids, dtype=torch.bool))
            with torch.no_grad():
                states = backbone.states(token, RequiredOutputs(attention_states=frozenset({source.key})))
            return int(states.hidden[source.key].shape[2])
        rows = isinstance(source.key, str) or source.top
        return int(self.rows_of(source, backbone).shape[1]) if rows else backbone.dimensions

    @property
    def width(self) -> int:
        """Number of dimensions of the pooled vector."""
        return self.reduction.width(self._mixed_width)

    def rows_of(self, source: Source, backbone: Backbone) -> torch.Tensor:
        """Return the rows (V,D) of a token table; the model's own table for any other source."""
        buffer = self.tables.get(str(source.key))
        rows: torch.Tensor = backbone.static_table if buffer is None else getattr(self, buffer)
        return rows

    @property
    def frame(self) -> Frame:
        """The frame of a recipe that is no ensemble."""
        (frame,) = self.frames
        return frame

    def room(self, max_seq_length: int) -> int:
        """Return the number of tokens of a text that fit in every template."""
        return min(frame.room(max_seq_length) for frame in self.frames)

    def carried(self) -> dict[str, torch.Tensor]:
        """Return the tables that a saved encoder must contain, by source."""
        return {key: getattr(self, buffer) for key, buffer in self.tables.items() if token_tables.create(key).carried}

    @cached_property
    def rows_digest(self) -> str:
        """The SHA-256 of the carried tables, which distinguishes files of the same name; "" without any."""
        total = [rows.detach().cpu().contiguous().numpy().tobytes() for rows in self.carried().values()]
        return hashlib.sha256(b"".join(total)).hexdigest() if total else ""

    def count(self, texts: Sequence[str], backbone: Backbone) -> CorpusStats:
        """Count the tokens of a corpus, including duplicated texts, as this recipe tokenizes them."""
        if (pooler := static_pooler_of(self, backbone)) is not None:
            return pooler.count(texts)
        tokenize = partial(framed_ids, backbone.tokenizer, self.frame, max_seq_length=backbone.max_seq_length)
        return count_tokens(tokenize, texts, len(backbone.vocabulary))

    def pool(
        self,
        tokens: Tokens,
        states: States,
        backbone: Backbone,
        stats: CorpusStats | None,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Compute the vectors (B,K), the mixed states Σ_k α_k h^(k) (B,T,D) and the weights ω (B,T).

        Raises:
            NotFittedError: the weights need token counts and `stats` is None.
        """
        hidden = []
        for source in self.sources:
            if isinstance(source.key, str) and source.key != "static":
                hidden.append(embedding(tokens.ids, self.rows_of(source, backbone)))
                continue
            values = states.hidden[source.key]  # (B,T,D)
            if source.debiased and isinstance(source.key, int):
                values = debias(values, tokens, self.frame, source.key, backbone)
            if source.top:  # rows of the most probable tokens at the template's masks, 0 elsewhere: (B,T,E)
                head = backbone.mlm_head
                assert head is not None  # noqa: S101 — `check_recipe` refuses models without one
                at = tokens.attention_mask & (tokens.ids == backbone.vocabulary.mask_id)  # (B,T)
                values = expected_rows(values, at, source.top, head, backbone.static_table)
            hidden.append(values)
        mixed = mix_sources(hidden, self.factors)
        weights = combine_many([self.weightings], tokens, states, backbone.vocabulary, stats)[:, 0]
        return self.reduction.reduce(mixed, weights, tokens.attention_mask), mixed, weights


def chain_of(recipe: Recipe, width: int, backbone: Backbone, previous: Chain | None = None) -> Chain:
    """Make the shaping of a recipe for pooled vectors of this width, unfitted except for what it reads in the model.

    Args:
        previous: the recipe's fitted chain, whose steps that read the output embedding are reused: a saved encoder
            does not contain that matrix.

    Raises:
        UnsupportedRecipeError: the model has no output embedding of the width that a step needs.
    """
    chain = Chain.parse(recipe.shaping)
    if previous is not None:
        pairs = zip(previous.steps, chain.steps, strict=True)
        chain.steps = [old if old.reads_output_embedding else new for old, new in pairs]
    return chain.fit_output_embedding(partial(moments_of, backbone), width)


# -- weights by token -------------------------------------------------------------------------------------------------


def by_token(weighting: Weighting) -> Weighting:
    """Return the equivalent weighting by token for texts without a template."""
    return weighting.by_token if isinstance(weighting, Content) else weighting


def weights_by_token(factors: Iterable[Weighting], vocabulary: Vocabulary, stats: CorpusStats | None) -> np.ndarray:
    """Compute the product of the weights by token, (V,) float64; other weights count as 1."""
    product = np.ones(len(vocabulary))
    for factor in map(by_token, factors):
        if isinstance(factor, ByToken):
            product *= factor.table(vocabulary, stats)
    return product


def static_pooler_of(plan: Plan, backbone: Backbone) -> StaticPooler | None:
    """Return the fast pooler of a plan, or None.

    It exists for sums of table rows (`static`, `random` …) with weights by token, without a template.
    """
    simple = plan.is_static and plan.recipe.template is None and plan.recipe.reduce == "sum"
    weighed = (Uniform.weights, Content.weights, ByToken.weights, Sif.weights)  # up to one factor per text
    return StaticPooler(plan, backbone) if simple and all(type(w).weights in weighed for w in plan.weightings) else None


class StaticPooler:
    """A pooler for static plans: Σ_t ω_t h_t over the ids of each text, without padding.

    It equals `Plan.pool` on padded batches up to the order of float sums. See `static_pooler_of` for its conditions.
    """

    def __init__(self, plan: Plan, backbone: Backbone) -> None:
        self.plan, self.backbone = plan, backbone
        self.frame_ids = np.array([*plan.frame.before, *plan.frame.after], np.int32)  # (F,)

    @cached_property
    def by_word(self) -> WordIds | None:
        """Tokenization word by word, if the tokenizer splits texts into words first; otherwise None."""
        if not tokenizes_words_separately(fast_backend(self.backbone.tokenizer)):
            return None
        vocabulary, unknown = self.backbone.vocabulary, self.backbone.tokenizer.unk_token_id
        rare = [vocabulary.text(token) for token in vocabulary.tokens[-16:]]  # tables of words can lack punctuation
        return WordIds(self._tokenize, [*SEPARATORS, *rare], unknown)

    def _tokenize(self, texts: list[str]) -> list[list[int]]:
        return text_ids(self.backbone.tokenizer, texts, self.plan.frame.plain_text)

    def ids(self, texts: Sequence[str]) -> Ragged:
        """Return the ids of each text (at least one) as in `framed_ids`, without the frame."""
        prepared = self.plan.frame.prepare(list(texts))
        ids, lengths = self.by_word(prepared) if self.by_word is not None else whole_ids(self._tokenize, prepared)
        if self.backbone.max_seq_length is None:
            return ids, lengths
        at_start = getattr(self.backbone.tokenizer, "truncation_side", "right") == "left"
        return cut(ids, lengths, max(self.backbone.max_seq_length - len(self.frame_ids), 0), at_start)

    def count(self, texts: Sequence[str]) -> CorpusStats:
        """Count the tokens of a corpus, including duplicated texts and the frame, like `count_tokens`."""
        stats = count_ids((self.ids(portion) for _, portion in portions(texts, PORTION)), len(self.backbone.vocabulary))
        np.add.at(stats.count, self.frame_ids, len(texts))
        stats.document_frequency[self.frame_ids] = len(texts)
        return stats

    def pool(self, ragged: Ragged, stats: CorpusStats | None) -> torch.Tensor:
        """Compute the pooled vectors (N,K) of texts from their `ids`, on the table's device.

        Raises:
            NotFittedError: the weights need token counts and `stats` is None.
        """
        ids, lengths = ragged
        if not len(self.frame_ids) and not lengths.all():  # an empty text is one pad token
            ids = np.insert(ids, (np.cumsum(lengths) - lengths)[lengths == 0], self.backbone.pad_id)
            lengths = np.maximum(lengths, 1)
        vocabulary, factors = self.backbone.vocabulary, self.plan.weightings
        table = vocabulary.cached(  # (V,), before any division by lengths
            ("bags", *factors, stats), lambda: weights_by_token(factors, vocabulary, stats).astype(np.float32)
        )
        weights, around = table[ids], table[self.frame_ids]  # (tokens,), (F,)
        if any(isinstance(factor, Content) for factor in factors):  # only the user's words count
            around = np.zeros_like(around)
        total = np.bincount(np.repeat(np.arange(len(lengths)), lengths), weights, len(lengths)) + around.sum()  # (N,)
        empty = total <= 0
        weights[np.repeat(empty, lengths)] = 1.0  # all weights are zero: uniform, as in `combine_many`
        sums = self._sums(ids, lengths, weights)  # (N,K)
        if len(around):
            own, uniform = (self._sums(self.frame_ids, [len(around)], w) for w in (around, np.ones_like(around)))
            sums += torch.where(torch.from_numpy(empty[:, None]).to(sums.device), uniform, own)
        count = lengths + len(around)
        if all(factor.normalized for factor in factors):
            divisor = np.where(empty, count, total)
        else:  # SIF: divided by the number of tokens
            divisor = count ** np.where(empty, 1, sum(isinstance(factor, Sif) for factor in factors))
        return sums.div_(torch.from_numpy(divisor[:, None]).to(sums.device, sums.dtype))

    def _sums(self, ids: np.ndarray, lengths: Sequence[int] | np.ndarray, weights: np.ndarray) -> torch.Tensor:
        """Compute Σ_t ω_t Σ_k α_k h_t^(k) of each text: (N,K)."""
        parts = []
        offsets = torch.from_numpy(np.concatenate([[0], np.cumsum(lengths)]))
        for source, factor in zip(self.plan.sources, self.plan.factors, strict=True):
            rows = self.plan.rows_of(source, self.backbone)  # (V,D)
            row_ids, kind = torch.from_numpy(ids).to(rows.device), torch.promote_types(rows.dtype, torch.float32)
            if rows.dtype != kind:  # 16 bits: sum in 32 bits, only the rows that occur
                used, row_ids = row_ids.unique(return_inverse=True)
                rows = rows[used].to(kind)
            scaled = torch.from_numpy(weights * np.float32(factor)).to(rows.device, kind)
            options: dict[str, Any] = {"per_sample_weights": scaled, "include_last_offset": True}
            parts.append(embedding_bag(row_ids, rows, offsets.to(row_ids), mode="sum", **options))
        return sum(parts[1:], parts[0])


# -- many recipes in one pass per template -----------------------------------------------------------------------------


def count_frames(backbone: Backbone, plans: Sequence[Plan], texts: Sequence[str]) -> dict[Frame, CorpusStats]:
    """Count the tokens of the texts for every frame of a plan that reads counts."""
    # the last plan of each frame counts: static ones need no padding
    ordered = sorted((plan for plan in plans if plan.reads_stats), key=operator.attrgetter("is_static"))
    counting = {plan.frame: plan for plan in ordered}
    return {frame: plan.count(texts, backbone) for frame, plan in counting.items()}


@torch.inference_mode()
def pool_texts(
    backbone: Backbone,
    plans: Sequence[Plan],
    texts: Sequence[str],
    stats: dict[Frame, CorpusStats],
    *,
    batch_size: int = 32,
    progress: bool = False,
) -> list[np.ndarray]:
    """Compute the pooled vectors (N,K) of every plan before shaping, with one pass per template.

    Each distinct text is computed once.

    Args:
        stats: token counts by frame, see `count_frames`.

    Raises:
        NotFiniteError: a vector has NaN or infinite numbers; the message names the text.
    """
    distinct, inverse = distinct_texts(texts)
    pooled = [np.zeros((len(distinct), plan.width), np.float32) for plan in plans]
    groups: dict[Frame, list[int]] = {}
    for index, plan in enumerate(plans):
        for frame in plan.frames:
            groups.setdefault(frame, []).append(index)
    backbone.eval()
    device = backbone.static_table.device
    with text_progress(len(distinct) * len(groups), progress) as update:
        for frame, members in groups.items():
            poolers = {i: pooler for i in members if (pooler := static_pooler_of(plans[i], backbone)) is not None}
            members = [i for i in members if i not in poolers]
            required = reduce(operator.or_, (plans[i].required for i in members), RequiredOutputs())
            for start, portion in portions(distinct):
                if poolers:
                    ids = next(iter(poolers.values())).ids(portion)
                    for index, pooler in poolers.items():
                        vectors = pooler.pool(ids, stats.get(frame))
                        pooled[index][start : start + len(portion)] = vectors.float().cpu().numpy()
                if not members:
                    update(len(portion))
                    continue
                sequences = framed_ids(backbone.tokenizer, frame, list(portion), backbone.max_seq_length)
                for chosen in batches([len(s) for s in sequences], batch_size):
                    tokens = pad([sequences[i] for i in chosen], frame, backbone.pad_id).to(device)
                    states = backbone.states(tokens, required)
                    for index in members:
                        vectors, _, _ = plans[index].pool(tokens, states, backbone, stats.get(frame))
                        pooled[index][start + chosen] += vectors.float().cpu().numpy() * plans[index].frames[frame]
                    update(len(chosen))
    return [require_finite(vectors, distinct, backbone.named_parameters())[inverse] for vectors in pooled]
