"""Template t: from its text to the frame of ids around a text, and the bias that denoising subtracts.

The template is tokenized once, with a placeholder word in its slot that is then removed. For tokenizers that split
words at punctuation and spaces (BERT's), this equals tokenizing the filled template. Others may merge characters of the
text with its neighbours: for them the frame also has the template itself, which is filled with each text.

Denoising (PromptBERT 4.3) subtracts the template's own states from its tokens. The template is encoded with an empty
slot, and the position ids after the slot are shifted by the number of tokens of the sentence. The bias depends only on
that number: one pass per length, cached for later texts of the same length.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING

import torch

from essent.errors import UnsupportedRecipeError
from essent.model.backbone import Backbone
from essent.recipe.named import MASK, SLOT, TOKENS_SLOT
from essent.recipe.recipe import Recipe
from essent.recipe.tokens import Frame, dropped_ids, fast_backend
from essent.recipe.types import RequiredOutputs, Tokens
from essent.recipe.words import tokenizes_template_separately

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

STAND_INS = ("a", "word", "0", "中", "x")  # several, since the template may form one token with a letter


def make_frame(tokenizer: PreTrainedTokenizerBase, template: str | None, leading_space: bool = False) -> Frame:
    """Tokenize a template, special tokens included, into the ids before and after the text.

    Args:
        template: text with one {text} or {tokens} and any number of [MASK], or None for special tokens only. {text} is
            filled with the text before it is tokenized; {tokens} is replaced by the tokens of the text alone. Two
            {tokens} repeat the text.
        leading_space: tokenize a text without a template as after a space, as in the middle of a sentence.

    Raises:
        UnsupportedRecipeError: the template has [MASK] and the tokenizer has no mask token, or no token boundary
            separates the slot from its neighbours.
    """
    if template is None and not fast_backend(tokenizer).encode("").ids:  # no special tokens
        return Frame((), (), space=leading_space)
    text = SLOT if template is None else template
    if MASK in text:
        if tokenizer.mask_token is None:
            raise UnsupportedRecipeError(
                f"The template {template!r} has {MASK}, and the tokenizer {type(tokenizer).__name__} has no mask token."
            )
        text = text.replace(MASK, tokenizer.mask_token)
    slot = TOKENS_SLOT if TOKENS_SLOT in text else SLOT
    parts = text.split(slot)  # before and after the text, and between its occurrences
    quoted = slot == SLOT and MASK not in (template or "") and (parts[0][-1:], parts[1][:1]) == ('"', '"')
    separate = template is None or slot == TOKENS_SLOT or bool(dropped_ids(tokenizer))
    filled = not separate and not tokenizes_template_separately(fast_backend(tokenizer), *parts[:2])
    spaces = {part.endswith(" ") for part in parts[:-1]}
    space = spaces == {True}
    if space:
        parts = [*(part[:-1] for part in parts[:-1]), parts[-1]]
    for stand_in in chain(STAND_INS, _own_words(tokenizer)) if len(spaces) == 1 else ():
        pieces = _cut(tokenizer, parts, " " * space + stand_in)
        if pieces is not None:
            space = not filled and (space or leading_space)
            between = pieces[1] if len(pieces) > 2 else None
            template_text = text if filled else ""
            dotted = template is not None and between is None  # Echo's code appends no dot to a text
            return Frame(pieces[0], pieces[-1], space, dotted, quoted, template_text, between)
    raise UnsupportedRecipeError(
        f"In the template {template!r}, this tokenizer merges {slot} with its neighbours, or only one of two slots is "
        "after a space. Put spaces or quotation marks around each."
    )


def check_room(frame: Frame, template: str | None, max_seq_length: int | None) -> None:
    """Check that `max_seq_length` tokens leave room for a text in this frame.

    Raises:
        UnsupportedRecipeError: the template alone fills the sequence.
    """
    if template is not None and max_seq_length is not None and not frame.room(max_seq_length):
        raise UnsupportedRecipeError(
            f"The template {template!r} has {len(frame)} tokens, and the model reads at most {max_seq_length}, text "
            "included. Use a shorter template or increase the model's max_seq_length."
        )


def with_room(
    recipes: Iterable[Recipe], tokenizer: PreTrainedTokenizerBase, max_seq_length: int | None
) -> list[Recipe]:
    """Return the recipes whose templates this tokenizer can frame, with room for a text.

    Raises:
        UnsupportedRecipeError: there is no such recipe.
    """
    recipes, refusals = list(recipes), {}
    for template in dict.fromkeys(template for recipe in recipes for template, _ in recipe.terms if template):
        try:
            check_room(make_frame(tokenizer, template), template, max_seq_length)
        except UnsupportedRecipeError as error:
            refusals[template] = error
    fitting = [recipe for recipe in recipes if not any(template in refusals for template, _ in recipe.terms)]
    if recipes and not fitting:
        raise next(iter(refusals.values()))
    return fitting


def _own_words(tokenizer: PreTrainedTokenizerBase) -> Iterator[str]:
    """Yield words of the vocabulary, for word-level tokenizers that contain none of STAND_INS."""
    vocabulary = tokenizer.get_vocab()
    for token in sorted(vocabulary, key=vocabulary.__getitem__)[:1000]:
        word = token.removeprefix("▁")
        if word.isalnum():
            yield word


def _cut(tokenizer: PreTrainedTokenizerBase, parts: list[str], middle: str) -> list[tuple[int, ...]] | None:
    """Return the ids of the parts that `middle` joins; None if it is several tokens, or a token crosses its border."""
    backend = fast_backend(tokenizer)
    backend.encode_special_tokens = False  # [MASK] in a template is a special token
    encoding = backend.encode(middle.join(parts), add_special_tokens=True)
    pieces, first, start = [], 0, 0
    for part in parts[:-1]:
        start += len(part)
        stop = start + len(middle)
        word = stop - len(middle.lstrip())
        inside = []
        for index, (left, right) in enumerate(encoding.offsets):
            if encoding.special_tokens_mask[index] and not (left < right and (right <= start or left >= stop)):
                continue  # [CLS], [SEP]: not part of the template's text
            if right > word and left < stop:
                if left < start or right > stop:
                    return None
                inside.append(index)
        if len(inside) != 1:
            return None
        pieces.append(tuple(encoding.ids[first : inside[0]]))
        first, start = inside[0] + 1, stop
    return [*pieces, tuple(encoding.ids[first:])]


# -- denoising --------------------------------------------------------------------------------------------------------


def debias(hidden: torch.Tensor, tokens: Tokens, frame: Frame, layer: int, backbone: Backbone) -> torch.Tensor:
    """Subtract the states of the empty template from the template's tokens; tokens of the text are unchanged.

    Args:
        hidden: states of the layer, (B,T,D).

    Returns:
        (B,T,D)
    """
    words = tokens.content.sum(dim=1)  # (B,)
    lengths, inverse = words.unique(return_inverse=True)
    bias = template_states(frame, layer, lengths.tolist(), backbone, hidden)[inverse]  # (B,F,D)
    template = tokens.attention_mask & ~tokens.content  # (B,T), F of them in every row
    rank = (template.long().cumsum(dim=1) - 1).clamp(min=0)  # (B,T)
    shift = bias.gather(1, rank.unsqueeze(-1).expand(-1, -1, hidden.shape[-1]))  # (B,T,D)
    return hidden - shift * template.unsqueeze(-1)


def template_states(
    frame: Frame, layer: int, lengths: list[int], backbone: Backbone, like: torch.Tensor
) -> torch.Tensor:
    """Return the states (len(lengths),F,D) of the empty template for each length of the missing sentence.

    Cached between calls, except with gradients enabled: the weights may change.
    """
    if torch.is_grad_enabled():
        return _run(frame, layer, lengths, backbone, like.device)
    cached = backbone.template_states
    key = (frame, layer, like.dtype, like.device)
    missing = [length for length in lengths if (key, length) not in cached]
    if missing:
        for length, states in zip(missing, _run(frame, layer, missing, backbone, like.device), strict=True):
            cached[key, length] = states
    return torch.stack([cached[key, length] for length in lengths])


def _run(frame: Frame, layer: int, lengths: list[int], backbone: Backbone, device: torch.device) -> torch.Tensor:
    ids = torch.tensor([[*frame.before, *frame.after]] * len(lengths), device=device)  # (U,F)
    attended = torch.ones_like(ids, dtype=torch.bool)
    index = torch.arange(len(frame), device=device).expand(len(lengths), -1)  # (U,F)
    shift = torch.tensor(lengths, device=device).unsqueeze(1)  # (U,1)
    positions = torch.where(index >= len(frame.before), index + shift, index)
    states = backbone.states(Tokens(ids, attended, ~attended), RequiredOutputs(frozenset({layer})), positions)
    return states.hidden[layer]
