"""What a masked language model would put at a template's [MASK], with and without template denoising.

Source: PromptBERT (Jiang et al. 2022), 6.1, Table 7. The denoised state h − ĥ, ĥ what the template alone gives at its
mask (4.3), goes through the same masked-LM head as the state h.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from essent._core.texts import check_texts
from essent._core.types import ModelLike
from essent.errors import InputError, ModelError, RecipeError
from essent.model.backbone import Backbone, RequiredOutputs
from essent.model.loading import load, read_capabilities
from essent.model.mlm_head import NO_HEAD
from essent.model.template import check_room, debias, make_frame
from essent.recipe.recipe import MASK, Recipe, read_field
from essent.recipe.tokens.ids import Vocabulary, batches, framed_ids, pad

if TYPE_CHECKING:
    from rich.table import Table


@dataclass(frozen=True)
class Predicted:
    """A token with its probability, of all tokens of the vocabulary."""

    token: str
    probability: float


@dataclass(frozen=True)
class MaskPrediction:
    """One mask of one text: the most probable tokens, best first; `denoised` is empty where it was not asked for.

    Attributes:
        mask: its number in the template, from 1.
    """

    text: str
    mask: int
    tokens: tuple[Predicted, ...]
    denoised: tuple[Predicted, ...] = ()


@dataclass(frozen=True)
class MaskPredictions:
    """Predictions for every text and mask, in their order."""

    template: str
    rows: tuple[MaskPrediction, ...]

    def table(self) -> Table:
        """As PromptBERT's Table 7, for `rich`."""
        from rich import box
        from rich.table import Table
        from rich.text import Text

        several = any(row.mask > 1 for row in self.rows)
        denoised = any(row.denoised for row in self.rows)
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for name in ("sentence", *["mask"] * several, "most probable tokens", *["after template denoising"] * denoised):
            table.add_column(name, overflow="fold")
        for row in self.rows:
            cells = [row.text if row.mask == 1 else "", *[str(row.mask)] * several, _in_words(row.tokens)]
            table.add_row(*(Text(cell) for cell in [*cells, *[_in_words(row.denoised)] * denoised]))
        return table

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {"template": self.template, "rows": [asdict(row) for row in self.rows]}


def _in_words(tokens: Sequence[Predicted]) -> str:
    return ", ".join(f"{predicted.token} {100 * predicted.probability:.1f} %" for predicted in tokens)


@torch.inference_mode()
def mask_predictions(
    model: ModelLike | Backbone,
    texts: Sequence[str],
    *,
    template: str = "bert",
    top: int = 10,
    denoised: bool = False,
    batch_size: int = 32,
    **options: Any,
) -> MaskPredictions:
    """The most probable tokens at the masks of a template around each text (PromptBERT, Table 7).

    Args:
        model: a hub name, a folder, or a Backbone with its masked-LM head.
        template: the name of one, or a text with one {text} and at least one [MASK].
        top: how many tokens.
        denoised: also predict from the state less what the template alone gives.
        options: keyword arguments for SentenceTransformer (device, revision …).

    Raises:
        ModelError: the model has no masked-LM head.
        RecipeError: a template without {text} or [MASK].
        UnsupportedRecipeError: one too long for the model.
        InputError: no texts, or `top` is not a positive number.
    """
    sentences = check_texts(texts)
    if not sentences:
        raise InputError("Mask predictions need at least one text.")
    if isinstance(top, bool) or not isinstance(top, int) or top < 1:
        raise InputError(f"top={top!r} must be a positive number of tokens.")
    filled = str(read_field("template", template))
    if MASK not in filled:
        raise RecipeError(f"The template {filled!r} has no {MASK} to predict; e.g. T0.")
    backbone = _with_mlm_head(model, Recipe(template=filled, layers=(("topk:1", 1.0),), weights=("mask",)), options)
    frame, layer, count = make_frame(backbone.tokenizer, filled), backbone.last, filled.count(MASK)
    check_room(frame, filled, backbone.max_seq_length)
    head, vocabulary = backbone.mlm_head, backbone.vocabulary
    sequences = framed_ids(backbone.tokenizer, frame, sentences, backbone.max_seq_length)
    rows: dict[int, list[MaskPrediction]] = {}
    for chosen in batches([len(s) for s in sequences], batch_size):
        tokens = pad([sequences[i] for i in chosen], frame, backbone.pad_id).to(backbone.static_table.device)
        hidden = backbone.states(tokens, RequiredOutputs(frozenset({layer}))).hidden[layer]  # (B,T,D)
        at = tokens.attention_mask & (tokens.ids == vocabulary.mask_id)  # (B,T), `count` of them in every row
        kinds = [hidden[at]]
        if denoised:
            kinds.append(debias(hidden, tokens, frame, layer, backbone)[at])
        assert head is not None  # noqa: S101 — `_with_head` has refused models without one
        lists = [_named(*head.most_probable(states, top), vocabulary) for states in kinds]  # of B·count lists
        for batch_row, index in enumerate(chosen.tolist()):
            masks = range(batch_row * count, (batch_row + 1) * count)
            rows[index] = [
                MaskPrediction(sentences[index], number, lists[0][at_mask], lists[1][at_mask] if denoised else ())
                for number, at_mask in enumerate(masks, start=1)
            ]
    return MaskPredictions(filled, tuple(row for index in range(len(sentences)) for row in rows[index]))


def _with_mlm_head(model: ModelLike | Backbone, recipe: Recipe, options: dict[str, Any]) -> Backbone:
    if isinstance(model, Backbone):
        backbone = model
        if backbone.mlm_head is None or backbone.depth != backbone.last:
            raise ModelError(f"This {backbone.family} {NO_HEAD}.")
        return backbone.eval()
    name = str(model) if isinstance(model, Path) else model
    if not read_capabilities(name, options).mlm_head:
        raise ModelError(f"{name if isinstance(name, str) else type(name).__name__} {NO_HEAD}.")
    loaded = load(name, [recipe], options)
    return loaded.backbone.to(loaded.settings["device"]).eval()


def _named(probabilities: torch.Tensor, ids: torch.Tensor, vocabulary: Vocabulary) -> list[tuple[Predicted, ...]]:
    return [
        tuple(Predicted(shown(vocabulary, index), share) for index, share in zip(row, shares, strict=True))
        for row, shares in zip(ids.tolist(), probabilities.double().tolist(), strict=True)
    ]


def shown(vocabulary: Vocabulary, index: int) -> str:
    """A token for a reader: a word's start without its mark, a word's continuation with ## before it."""
    token = vocabulary.tokens[index]
    if not token:
        return f"row {index}"  # models pad their tables
    if index in vocabulary.special_ids:
        return token
    text = vocabulary.text(token)
    return f"##{text}" if vocabulary.is_subword(token) and text.isalnum() else text
