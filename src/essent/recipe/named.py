"""Published recipes (`named.tsv`: name, text form, paper, section, description), and the templates of recipes.

Published templates (`templates.tsv`) are stored byte-exact: straight and curly quotes are different tokens. A recipe
has none, one, or an ensemble `0.5*T0+0.5*T4` whose pooled vectors are added.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

from essent._core.registry import did_you_mean
from essent.errors import RecipeError, UnknownNameError
from essent.recipe.layers import NUMBER, Mix, checked_mix, format_mix

SLOT, TOKENS_SLOT, MASK = "{text}", "{tokens}", "[MASK]"  # filled with the text; replaced by the text's tokens


@dataclass(frozen=True)
class NamedRecipe:
    """A published method; `{}` in `text` stands for Ditto's attention head, the only argument of any method.

    Example:
        >>> from essent.recipe import NAMED
        >>> ditto = NAMED["ditto"]
        >>> ditto.form, ditto.fields, ditto.paper
        ('ditto:HEAD', 'layers=0+L weights=ditto:HEAD', 'Ditto (Chen et al. 2023)')
    """

    name: str
    text: str
    paper: str
    section: str
    about: str

    @property
    def argument(self) -> str:
        """Name of the argument; "" for a recipe without one."""
        return "head" if "{}" in self.text else ""

    @property
    def form(self) -> str:
        """Text form with a placeholder for the argument: `mean`, `ditto:HEAD`."""
        return f"{self.name}:{self.argument.upper()}" if self.argument else self.name

    @property
    def instance(self) -> str:
        """Text form with an example of the argument: `mean`, `ditto:1-10`."""
        return f"{self.name}:1-10" if self.argument else self.name

    @property
    def fields(self) -> str:
        """Fields of the recipe: `layers=0+L weights=ditto:HEAD`."""
        return self.text.format(self.argument.upper())


def _rows(file: str) -> list[list[str]]:
    """Return the rows of a table beside this file, without its header."""
    lines = Path(__file__).with_name(file).read_text(encoding="utf-8").splitlines()
    return [line.split("\t") for line in lines[1:]]


TEMPLATES: dict[str, str] = {row[0]: row[1] for row in _rows("templates.tsv")}
NAMED: dict[str, NamedRecipe] = {row[0]: NamedRecipe(*row) for row in _rows("named.tsv")}

# -- templates --------------------------------------------------------------------------------------------------------

Ensemble = Mix
QUOTED = r'"(?:[^"\\]|\\.)*"'
TERM = rf"\s*(?:({NUMBER})\s*\*\s*)?({QUOTED}|[A-Za-z][\w-]*)\s*"  # factor, template
SUM = re.compile(rf"{TERM}(?:\+{TERM})+")


def parse_template(text: str) -> str | Ensemble | None:
    """Read "none", the name of a template, a template, or a sum of at least two names or quoted templates.

    Without factors, the terms of a sum have equal weights, as layers do.

    Raises:
        UnknownNameError: an unknown name in a sum.
        RecipeError: factors for only some terms of a sum, or a repeated term.
    """
    terms = re.findall(TERM, text) if SUM.fullmatch(text) else []
    if not terms or any(name.startswith('"') and SLOT not in name and TOKENS_SLOT not in name for _, name in terms):
        return None if text == "none" else TEMPLATES.get(text, text)  # no sum, whatever it contains
    templates = []
    for factor, name in terms:
        if not name.startswith('"') and name not in TEMPLATES:
            raise UnknownNameError(f"Unknown template {name!r} in {text!r}. {did_you_mean(name, list(TEMPLATES))}")
        template = json.loads(name) if name.startswith('"') else TEMPLATES[name]
        templates.append((template, float(factor) if factor else None))
    return checked_mix(templates, f"template={text}")


def format_template(template: str | Ensemble) -> str:
    """Write templates as the text that `parse_template` reads; those without a name as JSON."""
    names = {text: name for name, text in TEMPLATES.items()}
    if isinstance(template, str):
        return names.get(template, template)
    return format_mix(
        tuple((names.get(text) or json.dumps(text, ensure_ascii=False), factor) for text, factor in template)
    )


def templates_of(template: str | Ensemble | None) -> tuple[str, ...]:
    """Return the templates of a recipe's field: none, one, or those of the ensemble."""
    if template is None:
        return ()
    return (template,) if isinstance(template, str) else tuple(text for text, _ in template)


def checked_templates(template: str | Ensemble | None) -> str | Ensemble | None:
    """Check that each template has one slot, or two {tokens} (Echo), and that factors are finite.

    Raises:
        RecipeError: names the template and what is allowed.
    """
    for text in templates_of(template):
        slots, twice = text.count(SLOT) + text.count(TOKENS_SLOT), text.count(TOKENS_SLOT) == 2
        if slots != 1 and not (slots == 2 and twice):
            raise RecipeError(
                f"template={text!r} has {slots} {SLOT}; it must have exactly one, or two {TOKENS_SLOT} (echo). "
                f"Named templates: {', '.join(TEMPLATES)}."
            )
    if not isinstance(template, tuple):
        return template
    if len(template) < 2:
        raise RecipeError(f"template={template!r}: a sum needs at least two templates. Give a single one as text.")
    return checked_mix(template, f"template={format_template(template)}")
