"""Templates from a grammar: `{prefix} "{text}" {relation} [MASK] .`, each slot with its choices."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from essent._core.registry import did_you_mean
from essent.errors import DataError, RecipeError, UnknownNameError
from essent.recipe.recipe import SLOT

FIELD = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True)
class Grammar:
    """A template with named slots; {text} stands in the template itself or in the choices of one slot.

    Args:
        text: the template.
        choices: for every slot its candidates; the first is what stands there while other slots are searched.

    Raises:
        RecipeError: a filling without exactly one {text}, a slot without choices, or choices without a slot.
    """

    text: str
    choices: Mapping[str, tuple[str, ...]]

    def __post_init__(self) -> None:
        slots = self.slots()
        for slot in slots:
            if not self.choices.get(slot):
                raise RecipeError(f"The template grammar {self.text!r} has the slot {{{slot}}} and no choices for it.")
        if extra := [key for key in self.choices if key not in slots]:
            raise RecipeError(f"The template grammar {self.text!r} has no slot {{{extra[0]}}}.")
        for template in self.templates():
            if template.count(SLOT) != 1:
                raise RecipeError(
                    f"The template grammar {self.text!r} gives {template!r}, which must have exactly one {SLOT}."
                )

    def slots(self) -> list[str]:
        """The slots beside {text}, in the order of the template."""
        return list(dict.fromkeys(name for name in FIELD.findall(self.text) if "{" + name + "}" != SLOT))

    def fill(self, chosen: Mapping[str, str]) -> str:
        """The template with these choices; a slot left empty takes its space with it."""
        filled = FIELD.sub(lambda match: chosen.get(match[1], match[0]), self.text)
        return re.sub(r" {2,}", " ", filled).strip()

    def first(self) -> dict[str, str]:
        """Every slot's first choice."""
        return {slot: self.choices[slot][0] for slot in self.slots()}

    def templates(self) -> list[str]:
        """All fillings, in the order of the choices."""
        slots = self.slots()
        fillings = itertools.product(*(self.choices[slot] for slot in slots))
        return list(dict.fromkeys(self.fill(dict(zip(slots, filling, strict=True))) for filling in fillings))


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


def read_yaml(path: Path) -> Any:
    """A YAML file's plain values.

    Raises:
        DataError: missing, not UTF-8, or not YAML.
    """
    import yaml

    try:
        return yaml.safe_load(path.read_text("utf-8"))
    except FileNotFoundError:
        raise DataError(f"{path} does not exist.") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: {error}") from None
