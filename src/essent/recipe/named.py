"""Published recipes (`named.tsv`: name, text form, paper, section, description) and their templates (`templates.tsv`).

Templates are stored byte-exact: straight and curly quotes are different tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

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
