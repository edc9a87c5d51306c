"""Named template grammars, and grammars from YAML files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from essent._core.registry import did_you_mean
from essent.errors import DataError, UnknownNameError
from essent.selection.space import Grammar, read_yaml

PROMPT_BERT = Grammar(  # the candidates in PromptBERT's Table 4; relation is searched first, then the wrapping
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
    values = read_yaml(path)
    if not isinstance(values, Mapping) or "template" not in values:
        raise DataError(f"{path}: expected `template` and a list of choices for each of its slots.")
    slots = {str(slot): choices for slot, choices in values.items() if slot != "template"}
    for slot, choices in slots.items():
        if not isinstance(choices, list) or any(isinstance(choice, list | Mapping) for choice in choices):
            raise DataError(f"{path}: {slot} must be a list of texts, got {choices!r}.")
    texts = {slot: tuple("" if text is None else str(text) for text in choices) for slot, choices in slots.items()}
    return Grammar(str(values["template"]), texts)
