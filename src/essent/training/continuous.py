"""Continuous templates: the words of a template become free vectors, and nothing else is trained.

Every token of the template, other than [MASK] and the special tokens around a text, becomes a new token "[V1]", "[V2]"
and so on, whose row of the embedding table begins as a copy of that token's. The template is then literally
"[V1][V2]{text}[V3]" on a model with a few more rows, so that whatever runs, saves or loads a model runs this one too.

Source: PromptBERT (Jiang et al. 2022), 4.2 and App. B; OptiPrompt (Zhong et al. 2021).
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from tokenizers import AddedToken
from torch import nn

from essent._core.types import ModelLike, TextsLike
from essent.encoder.encoder import Encoder
from essent.encoder.saving.save import SavableModule
from essent.errors import InputError, UnsupportedRecipeError
from essent.model.backbone import Backbone
from essent.model.template import make_frame
from essent.recipe.recipe import MASK, SLOT, Recipe
from essent.recipe.tokens.ids import Frame
from essent.tasks.base import LabeledTask
from essent.training.build import Run, checkpoint_of, replace_module
from essent.training.run import prepare, train_encoder

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class FreeTemplate:
    """A template whose words are rows of their own.

    Attributes:
        template: as a recipe takes it, "[V1][V2]{text}[V3][MASK][V4]".
        rows: ids of its tokens, in their order.
        began_as: ids of the tokens that their vectors are copies of.
    """

    template: str
    rows: tuple[int, ...]
    began_as: tuple[int, ...]


def train_continuous(
    model: ModelLike,
    texts: TextsLike,
    preset: str = "optiprompt",
    *,
    output: str | Path,
    validate: str | Path | LabeledTask | None = None,
    resume: bool = False,
    force: bool = False,
    device: str | None = None,
    progress: bool = False,
    options: Mapping[str, Any] | None = None,
    note: Callable[[str], None] = logger.info,
    **changes: Any,
) -> Encoder:
    """Train the vectors of a template with the model frozen, and save the encoder; arguments and errors as of `train`.

    Args:
        changes: fields of `Settings`; `templates` holds the one template that is begun with.

    Raises:
        InputError: an objective with other than one template.
        UnsupportedRecipeError: a template without words, or a tokenizer that cannot take tokens of its own.
    """
    run = Run(Path(output), resume, force, device, progress, options or {}, note)
    encoder, examples, settings, task = prepare(model, texts, preset, changes, run, validate)
    if len(settings.templates) != 1:
        raise InputError(
            f"A continuous template is trained with one template: objective='same-template' or "
            f"'same-template-denoised', not {settings.objective!r}."
        )
    free = free_template(encoder, settings.templates[0])
    freeze_all_but(encoder.module.backbone, free.rows)
    settings = replace(settings, templates=(free.template,))
    return train_encoder(encoder, examples, settings, run, task, checkpoint=checkpoint_of(model, encoder))


def free_template(encoder: Encoder, template: str) -> FreeTemplate:
    """Give an encoder's model and tokenizer a row and a token for each word of a template, in place.

    Raises:
        UnsupportedRecipeError: no words in the template, or a tokenizer that does not keep the new tokens whole.
    """
    old = encoder.module.backbone
    frame, own = make_frame(old.tokenizer, template), make_frame(old.tokenizer, None)
    special = set(old.tokenizer.all_special_ids)
    inner = (frame.before[len(own.before) :], frame.after[: len(frame.after) - len(own.after)])
    words = [index for part in inner for index in part if index not in special]
    if not words:
        raise UnsupportedRecipeError(f"The template {template!r} has no words that could become free vectors.")
    tokenizer = copy.deepcopy(old.tokenizer)
    names = _new_names(set(tokenizer.get_vocab()), len(words))
    tokenizer.add_tokens([AddedToken(name, special=True, normalized=False) for name in names], special_tokens=True)
    rows = tuple(int(tokenizer.convert_tokens_to_ids(name)) for name in names)  # type: ignore[arg-type]
    left = iter(names)
    shown = [
        "".join(_written(index, old.tokenizer) if index in special else next(left) for index in part) for part in inner
    ]
    free = FreeTemplate(f"{shown[0]}{' ' * frame.space}{SLOT}{shown[1]}", rows, tuple(words))
    _check_frame(make_frame(tokenizer, free.template), frame, dict(zip(rows, words, strict=True)), template)
    _append_rows(old, free)
    backbone = Backbone(old.model, tokenizer, old.max_seq_length, old.last)
    replace_module(encoder, SavableModule(backbone, Recipe(template=free.template, weights=("mask",))))
    return free


def _written(index: int, tokenizer: Any) -> str:
    """A special token as a template writes it."""
    return MASK if index == tokenizer.mask_token_id else str(tokenizer.convert_ids_to_tokens(index))


def _new_names(taken: set[str], count: int) -> list[str]:
    """ "[V1]", "[V2]" …, those that the vocabulary has left out."""
    names: list[str] = []
    number = 1
    while len(names) < count:
        if f"[V{number}]" not in taken:
            names.append(f"[V{number}]")
        number += 1
    return names


def _check_frame(found: Frame, wanted: Frame, began_as: dict[int, int], template: str) -> None:
    back = [tuple(began_as.get(index, index) for index in part) for part in (found.before, found.after)]
    if back != [wanted.before, wanted.after] or (found.space, found.dot_rule) != (wanted.space, wanted.dot_rule):
        raise UnsupportedRecipeError(
            f"This tokenizer does not read the words of {template!r} as single new tokens: {found} instead of {wanted}."
        )


def _append_rows(backbone: Backbone, free: FreeTemplate) -> None:
    """Put the copies into the embedding table, which grows where the tokens have no row yet (tables may be padded)."""
    model: Any = backbone.model
    old = model.get_input_embeddings()
    size = max(old.weight.shape[0], max(free.rows) + 1)
    table = nn.Embedding(size, old.weight.shape[1], padding_idx=old.padding_idx)
    table = table.to(old.weight.device, old.weight.dtype)
    with torch.no_grad():
        table.weight.zero_()
        table.weight[: old.weight.shape[0]] = old.weight
        table.weight[list(free.rows)] = old.weight[list(free.began_as)]
    model.set_input_embeddings(table)
    model.config.vocab_size = size


def freeze_all_but(backbone: Backbone, rows: tuple[int, ...]) -> None:
    """Let gradients reach these rows of the embedding table and nothing else.

    The others get a gradient of exactly 0, with which Adam without weight decay changes no bit.
    """
    for weight in backbone.model.parameters():
        weight.requires_grad_(False)
    table: Any = backbone.model.get_input_embeddings()
    free = torch.zeros(table.weight.shape[0], 1, dtype=torch.bool)
    free[list(rows)] = True
    table.weight.requires_grad_(True)
    table.weight.register_hook(lambda gradient: gradient * free.to(gradient.device))
