"""Continuous templates: train the words of a template as free vectors, and nothing else.

Every token of the template, except [MASK] and the special tokens around a text, becomes a new token "[V1]", "[V2]"
and so on. Its row of the embedding table is initialized with a copy of the original token's row. The template is then
literally "[V1][V2]{tokens}[V3]" on a model with a few more rows, so all code for models also runs, saves and loads it.

Source: PromptBERT (Jiang et al. 2022), 4.2 and App. B; OptiPrompt (Zhong et al. 2021).
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from itertools import count, islice
from typing import Any

import torch
from tokenizers import AddedToken

from essent.encoder.encoder import Encoder
from essent.encoder.module import RecipeModule
from essent.errors import InputError, UnsupportedRecipeError
from essent.model.backbone import Backbone
from essent.model.template import make_frame
from essent.recipe.named import MASK, TOKENS_SLOT
from essent.recipe.recipe import Recipe
from essent.recipe.tokens.ids import Frame


def free_template(encoder: Encoder, templates: Sequence[str]) -> str:
    """Give an encoder, in place, a new token and embedding row for each word of a template; freeze all other weights.

    Returns:
        The template for a recipe, "[V1][V2]{tokens}[V3][MASK][V4]".

    Raises:
        InputError: no template, or more than one.
        UnsupportedRecipeError: no words in the template, or a tokenizer that splits the new tokens.
    """
    if len(templates) != 1:
        raise InputError(
            f"Continuous templates are trained one at a time, got {len(templates)}. Use objective='same-template' or "
            "'same-template-denoised'."
        )
    (template,) = templates
    old = encoder.module.backbone
    frame, own = make_frame(old.tokenizer, template), make_frame(old.tokenizer, None)
    special = set(old.tokenizer.all_special_ids)
    inner = (frame.before[len(own.before) :], frame.after[: len(frame.after) - len(own.after)])
    words = [index for part in inner for index in part if index not in special]
    if not words:
        raise UnsupportedRecipeError(f"The template {template!r} contains no words to train as free vectors.")
    tokenizer = copy.deepcopy(old.tokenizer)
    vocabulary = tokenizer.get_vocab()
    names = list(islice((name for number in count(1) if (name := f"[V{number}]") not in vocabulary), len(words)))
    tokenizer.add_tokens([AddedToken(name, special=True, normalized=False) for name in names], special_tokens=True)
    rows = [int(tokenizer.convert_tokens_to_ids(name)) for name in names]  # type: ignore[arg-type]
    specials = {index: str(tokenizer.convert_ids_to_tokens(index)) for index in special}
    specials[tokenizer.mask_token_id], unused_names = MASK, iter(names)
    written = ["".join(specials.get(index) or next(unused_names) for index in part) for part in inner]
    free = f"{written[0]}{' ' * frame.space}{TOKENS_SLOT}{written[1]}"
    _check_frame(make_frame(tokenizer, free), frame, dict(zip(rows, words, strict=True)), template)
    # The table grows if its padding has no rows for the new tokens.
    model: Any = old.model
    size = max(model.get_input_embeddings().weight.shape[0], max(rows) + 1)
    weight = model.resize_token_embeddings(size, mean_resizing=False).weight
    with torch.no_grad():
        weight[rows] = weight[words]
    _freeze_all_but(model, rows)
    backbone = Backbone(model, tokenizer, old.max_seq_length, old.last)
    replace_module(encoder, RecipeModule(backbone, Recipe(template=free, weights=("mask",))))
    return free


def replace_module(encoder: Encoder, module: RecipeModule) -> None:
    """Replace the encoder's recipe module."""
    encoder._modules[next(iter(encoder._modules))] = module
    encoder._sign()


def _check_frame(actual: Frame, expected: Frame, began_as: dict[int, int], template: str) -> None:
    back = [tuple(began_as.get(index, index) for index in part) for part in (actual.before, actual.after)]
    rules_differ = (actual.space, actual.dot_rule) != (expected.space, expected.dot_rule)
    if back != [expected.before, expected.after] or rules_differ:
        raise UnsupportedRecipeError(
            f"The tokenizer does not keep the new tokens for the words of {template!r} whole: got {actual}, expected "
            f"{expected}."
        )


def _freeze_all_but(model: Any, rows: Sequence[int]) -> None:
    """Freeze all weights except these rows of the embedding table.

    The other rows have a gradient of exactly 0, so Adam without weight decay changes no bit of them.
    """
    for weight in model.parameters():
        weight.requires_grad_(False)
    table = model.get_input_embeddings()
    free = torch.zeros(table.weight.shape[0], 1, dtype=torch.bool)
    free[list(rows)] = True
    table.weight.requires_grad_(True)
    table.weight.register_hook(lambda gradient: gradient * free.to(gradient.device))
