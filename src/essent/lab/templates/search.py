"""Score the templates of a grammar (PromptBERT 4.2, Table 4), or those that a T5 has generated."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from essent._core.arguments import ModelLike
from essent._core.registry import did_you_mean
from essent.errors import DataError, InputError, UnknownNameError
from essent.selection.leaderboard import Leaderboard
from essent.selection.run import search
from essent.selection.space import Grammar as Grammar  # a public name of this package
from essent.selection.space import Grid, Space, read_yaml

PROMPT_BERT = Grammar(  # the candidates in PromptBERT's Table 4
    "{wrapping} {relation} [MASK] .",
    {
        "relation": ("", "is", "mean", "means"),
        "wrapping": (
            "{text}",
            "This {text}",
            "This sentence of {text}",
            'This sentence of "{text}"',
            'This sentence : "{text}"',
        ),
    },
)


def find_grammar(name: str | Path) -> Grammar:
    """Return the grammar "promptbert", or read one from a YAML file with `template` and a list of choices per slot.

    Raises:
        UnknownNameError: neither a named grammar nor a file.
        DataError: the file cannot be read.
        RecipeError: see `Grammar`.
    """
    if str(name) == "promptbert":
        return PROMPT_BERT
    path = Path(name)
    if path.suffix.lower() not in (".yaml", ".yml", ".json") and not path.is_file():
        hint = did_you_mean(str(name), ["promptbert"])
        raise UnknownNameError(f"Unknown template grammar {str(name)!r}. {hint} A .yaml file is also possible.")
    slots = read_yaml(path)
    template = slots.pop("template", None) if isinstance(slots, dict) else None
    if template is None or not all(isinstance(choices, list) for choices in slots.values()):
        raise DataError(f"{path}: expected `template` and a list of choices for each of its slots, got {slots!r}.")
    texts = {slot: tuple("" if choice is None else str(choice) for choice in slots[slot]) for slot in slots}
    return Grammar(str(template), texts)


def search_templates(
    model: ModelLike,
    data: Any,
    templates: Sequence[str] = tuple(PROMPT_BERT.templates()),
    *,
    weights: str = "mask",
    layers: str = "L",
    shaping: str = "",
    **arguments: Any,
) -> Leaderboard:
    """Score every template and compare the best recipe with the baselines, with one forward pass per template.

    Args:
        model, data: as in `essent.search`.
        templates: those of a grammar (`Grammar.templates`), or generated ones (`generate_templates`); by default the
            20 of PromptBERT's Table 4. Templates that do not fit the model are excluded: its tokenizer joins them with
            the text, or they leave no room for it.
        weights, layers, shaping: how the template's tokens become a vector: by default its [MASK] in the last layer.
        arguments: further arguments of `essent.search` (test, criterion, baselines, work, device …).

    Raises:
        UnsupportedRecipeError: no template fits the model, or [MASK] is needed and the model has no mask token.
        InputError: no templates.
        RecipeError: no template fits `weights`.

    Example:
        >>> from essent.lab.templates import Grammar, search_templates
        >>> grammar = Grammar("{text} {relation} [MASK] .", {"relation": ("is", "means")})
        >>> board = search_templates("my-mlm", "pairs.jsonl", grammar.templates(), baselines=["mean"])
        >>> len(board.trials)  # 2 templates, 1 baseline
        3
    """
    if isinstance(templates, (str, Grammar)) or not templates:
        raise InputError(f"templates={templates!r}: must be a list of templates, such as `grammar.templates()`.")
    grid = Grid(templates=tuple(templates), layers=(layers,), weights=(weights,), shaping=(shaping,))
    return search(model, data, Space((grid,), name="templates"), **arguments)
