"""Named template grammars, and grammars from YAML files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from essent._core.registry import did_you_mean
from essent.errors import DataError, UnknownNameError
from essent.selection.space import Grammar, read_yaml

PROMPT_BERT = Grammar(  # the candidates that PromptBERT's Table 4 prints; relation is searched first, then the wrapping
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

GRAMMARS = {"promptbert": PROMPT_BERT}


def find_grammar(grammar: str | Path | Grammar) -> Grammar:
    """A grammar by name, from a YAML file (`template`, and a list of choices for each slot), or as it is.

    Raises:
        UnknownNameError: neither a named grammar nor a file.
        DataError: the file cannot be read.
        RecipeError: see `Grammar`.
    """
    if isinstance(grammar, Grammar):
        return grammar
    if str(grammar) in GRAMMARS:
        return GRAMMARS[str(grammar)]
    path = Path(grammar)
    if path.suffix.lower() not in (".yaml", ".yml", ".json") and not path.is_file():
        hint = did_you_mean(str(grammar), list(GRAMMARS))
        raise UnknownNameError(f"Unknown template grammar {str(grammar)!r}. {hint} Or a .yaml file.")
    values = read_yaml(path)
    if not isinstance(values, Mapping) or "template" not in values:
        raise DataError(f"{path}: expected `template` and a list of choices for each of its slots.")
    slots = {str(key): _listed(value, f"{path}: {key}") for key, value in values.items() if key != "template"}
    return Grammar(str(values["template"]), slots)


def _listed(value: Any, where: str) -> tuple[str, ...]:
    if not isinstance(value, list) or any(isinstance(item, (list, Mapping)) for item in value):
        raise DataError(f"{where} must be a list of texts, not {value!r}.")
    return tuple("" if item is None else str(item) for item in value)
