"""Predictions of a masked language model at a template's [MASK], with and without template denoising.

Source: PromptBERT (Jiang et al. 2022), 6.1, Table 7. The denoised state is h − ĥ, where ĥ is the state of the template
alone at its mask (4.3). It passes through the same masked-LM head as the state h.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import torch

from essent._core.arguments import ModelLike, check_size
from essent._core.texts import check_texts
from essent.errors import InputError, ModelError, RecipeError
from essent.lab.explain.importance import backbone_of
from essent.model.loading import read_capabilities
from essent.model.mlm_head import NO_HEAD
from essent.model.template import check_room, debias, make_frame
from essent.recipe.named import MASK, TOKENS_SLOT
from essent.recipe.recipe import Recipe, read_field
from essent.recipe.tokens import Vocabulary, batches, framed_ids, pad
from essent.recipe.types import RequiredOutputs
from essent.selection.evaluation import model_name

if TYPE_CHECKING:
    from rich.table import Table


@dataclass(frozen=True)
class Predicted:
    """A predicted token with its probability over the whole vocabulary.

    Example:
        >>> from essent.lab.explain import mask_predictions
        >>> predictions = mask_predictions("my-mlm", ["A man is playing a flute."], top=3)
        >>> tokens = predictions.rows[0].tokens
        >>> len(tokens), tokens[0].probability >= tokens[1].probability
        (3, True)
    """

    token: str
    probability: float


@dataclass(frozen=True)
class MaskPrediction:
    """The most probable tokens at one mask of one text, best first.

    Attributes:
        text: the text in the template.
        mask: number of the mask in the template, from 1.
        tokens: the predicted tokens.
        denoised: the predictions after template denoising; empty unless requested.

    Example:
        >>> from essent.lab.explain import mask_predictions
        >>> predictions = mask_predictions("my-mlm", ["A man is playing a flute."], top=3, denoised=True)
        >>> row = predictions.rows[0]
        >>> row.text, row.mask, len(row.tokens), len(row.denoised)
        ('A man is playing a flute.', 1, 3, 3)
    """

    text: str
    mask: int
    tokens: tuple[Predicted, ...]
    denoised: tuple[Predicted, ...] = ()


@dataclass(frozen=True)
class MaskPredictions:
    """The predictions for all texts and masks, in the order of the texts.

    Example:
        >>> from essent.lab.explain import mask_predictions
        >>> predictions = mask_predictions("my-mlm", ["Two dogs run.", "A man sings."], template="T0", top=3)
        >>> predictions.template
        'This sentence: “{text}” means [MASK].'
        >>> [column.header for column in predictions.table().columns]
        ['sentence', 'most probable tokens']
    """

    template: str
    rows: tuple[MaskPrediction, ...]

    def table(self) -> Table:
        """Return a table for `rich`, laid out as PromptBERT's Table 7."""
        from rich import box
        from rich.table import Column, Table
        from rich.text import Text

        multiple, denoised = any(row.mask > 1 for row in self.rows), any(row.denoised for row in self.rows)
        names = ["sentence", *["mask"] * multiple, "most probable tokens", *["after template denoising"] * denoised]
        table = Table(*(Column(name, overflow="fold") for name in names), box=box.SIMPLE_HEAD, pad_edge=False)
        for row in self.rows:
            cells = [row.text if row.mask == 1 else "", *[str(row.mask)] * multiple]
            for tokens in (row.tokens, *[row.denoised] * denoised):
                cells.append(", ".join(f"{shown.token} {100 * shown.probability:.1f} %" for shown in tokens))
            table.add_row(*map(Text, cells))
        return table

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as plain values."""
        return asdict(self)


@torch.inference_mode()
def mask_predictions(
    model: ModelLike,
    texts: Sequence[str],
    *,
    template: str = "bert",
    top: int = 10,
    denoised: bool = False,
    batch_size: int = 32,
    **options: Any,
) -> MaskPredictions:
    """Predict the most probable tokens at the masks of a template around each text (PromptBERT, Table 7).

    Args:
        model: a hub name, a folder, or a SentenceTransformer that was opened with its masked-LM head.
        template: the name of a template, or a text with one {text} and at least one [MASK].
        top: number of tokens per mask.
        denoised: also predict from the state minus the state of the template alone.
        batch_size: texts per batch.
        options: keyword arguments for SentenceTransformer (device, revision …).

    Raises:
        ModelError: the model has no masked-LM head.
        RecipeError: the template has no {text} or no [MASK].
        UnsupportedRecipeError: the template is too long for the model.
        InputError: there are no texts, or `top` is not a positive whole number.

    Example:
        >>> from essent.lab.explain import mask_predictions
        >>> predictions = mask_predictions("my-mlm", ["A man is playing a flute."], template="T0", top=5)
        >>> [len(row.tokens) for row in predictions.rows]
        [5]
    """
    sentences = check_texts(texts)
    if not sentences:
        raise InputError("texts is empty: mask predictions need at least one text.")
    check_size(top, "top")
    filled = read_field("template", template)
    if not isinstance(filled, str):
        raise RecipeError(f"template={template!r}: predictions need one template, not a sum or none.")
    if MASK not in filled:
        raise RecipeError(f"The template {filled!r} has no {MASK} to predict. Use one that has, e.g. T0.")
    recipe = Recipe(template=filled, layers=(("topk:1", 1.0),), weights=("mask",))
    if denoised and filled.count(TOKENS_SLOT) == 2:
        raise RecipeError(f"The template {filled!r} repeats the text: use denoised=False.")
    if not read_capabilities(model, options).mlm_head:
        raise ModelError(f"{model_name(model)} {NO_HEAD}.")
    backbone = backbone_of(model, recipe, **options)
    head = backbone.mlm_head
    assert head is not None  # noqa: S101 — its capabilities have it
    frame, layer, count = make_frame(backbone.tokenizer, filled), backbone.last, filled.count(MASK)
    check_room(frame, filled, backbone.max_seq_length)
    vocabulary = backbone.vocabulary
    sequences = framed_ids(backbone.tokenizer, frame, sentences, backbone.max_seq_length)
    rows: dict[tuple[int, int], MaskPrediction] = {}
    for chosen in batches([len(ids) for ids in sequences], batch_size):
        tokens = pad([sequences[i] for i in chosen], frame, backbone.pad_id).to(backbone.static_table.device)
        hidden = backbone.states(tokens, RequiredOutputs(frozenset({layer}))).hidden[layer]  # (B,T,D)
        is_mask = tokens.attention_mask & (tokens.ids == vocabulary.mask_id)  # (B,T), `count` of them in every row
        states = [hidden[is_mask]]
        states += [debias(hidden, tokens, frame, layer, backbone)[is_mask]] if denoised else []
        predicted = [_predicted(*head.most_probable(mask_states, top), vocabulary) for mask_states in states]
        for number, per_state in enumerate(zip(*predicted, strict=True)):
            index, mask = int(chosen[number // count]), number % count + 1
            rows[index, mask] = MaskPrediction(sentences[index], mask, *per_state)
    return MaskPredictions(filled, tuple(rows[key] for key in sorted(rows)))


def _predicted(probabilities: torch.Tensor, ids: torch.Tensor, vocabulary: Vocabulary) -> list[tuple[Predicted, ...]]:
    """Name the most probable tokens (M,k) of each mask."""
    return [
        tuple(Predicted(shown(vocabulary, index), share) for index, share in zip(row, shares, strict=True))
        for row, shares in zip(ids.tolist(), probabilities.double().tolist(), strict=True)
    ]


def shown(vocabulary: Vocabulary, index: int) -> str:
    """Return a token for display: a word start without its mark, a continuation with ## before it."""
    token = vocabulary.tokens[index]
    if not token:
        return f"row {index}"  # padding of the embedding table
    if index in vocabulary.special_ids:
        return token
    text = vocabulary.text(token)
    return f"##{text}" if vocabulary.is_subword(token) and text.isalnum() else text
