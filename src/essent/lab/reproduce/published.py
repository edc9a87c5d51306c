"""Published tables, read from one file per paper (`papers/*.yaml`): figures, and the settings of each cell.

A cell's settings are merged from those of its block, row and column; later ones override earlier ones. A row named
"idf^W + zscore" has the settings of "idf^W" and of "zscore". The settings:

    model       role of the model, a key of the paper's `models`
    recipe      text form, with {head} filled in; or its parts: template, layers ({contexts} filled in), weights,
                shaping
    fit, counts source of shaping and token counts: task (default) or corpus
    tasks       names of tasks; the figure is the mean of their main scores
    measure     a measure instead of the main score, see `essent.lab.reproduce.run`
    seeds       number of values of {seed} in the recipe, from 0; the figure is the mean
    most_seeds  maximum of `seeds`: k-means is slow, and repeats its own runs
    statistic   over several checkpoints of one role: mean (default), max or min
    lowercase   tasks whose texts are converted to lower case first
    missing     why the cell cannot be run
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import Any

from essent._core.registry import did_you_mean
from essent.errors import UnknownNameError
from essent.recipe.recipe import Recipe

PAPERS = ("ditto", "promptbert", "stankevicius", "heros")
parse_recipe, make_recipe = cache(Recipe.parse), cache(Recipe)  # thousands of cells share a few hundred recipes


@dataclass(frozen=True)
class Published:
    """A published figure.

    Attributes:
        value: the figure.
        spread: the value after ±, if there is one.
        over_all: the number of tasks that the figure is a mean over, if its cell covers fewer tasks; otherwise 0.

    Example:
        >>> from essent.lab.reproduce import Published
        >>> Published.read("71.56±0.18")
        Published(value=71.56, spread=0.18, over_all=0)
    """

    value: float
    spread: float | None = None
    over_all: int = 0

    @classmethod
    def read(cls, figure: float | str | None) -> Published | None:
        """Parse a figure such as 56.02 or "71.56±0.18"; None if the paper prints nothing."""
        if figure is None:
            return None
        value, _, spread = str(figure).partition("±")
        return cls(float(value), float(spread) if spread else None)


@dataclass(frozen=True)
class Cell:
    """One figure of a table and its settings.

    Attributes:
        row, column: name of the row, and heading of the column.
        published: the figure; None if the paper prints nothing.
        settings: see the docstring of `essent.lab.reproduce.published`.
        block: heading above the row; "" without one.

    Example:
        >>> from essent.lab.reproduce import find_table
        >>> cell = find_table("heros-1").cells()[0]
        >>> cell.row, cell.column, cell.published.value, cell.settings["measure"]
        ('STS-b', 'R1', 55.8, 'rouge-1')
    """

    row: str
    column: str
    published: Published | None
    settings: Mapping[str, Any]
    block: str = ""

    @property
    def missing(self) -> str | None:
        """The reason why the cell cannot be run; None if it can."""
        if self.published is None:
            return "not printed"
        return self.settings.get("missing")

    @property
    def reads_contexts(self) -> bool:
        """Whether the cell needs token vectors averaged over a corpus."""
        return "{contexts}" in str(self.settings.get("layers", ""))

    def recipe(self, seed: int = 0, contexts: str = "contexts") -> Recipe | None:
        """Return the recipe of the cell's vectors; None for a measure without vectors.

        Args:
            seed: the value of {seed}.
            contexts: the folder of averaged token vectors, as written in `avg:`.
        """
        settings = self.settings
        slots = {"{seed}": str(seed), "{head}": settings.get("head", ""), "{contexts}": contexts}

        def fill(text: str) -> str:
            for slot, content in slots.items():
                text = text.replace(slot, content)
            return text

        if text := settings.get("recipe"):
            return parse_recipe(fill(settings.get("prompt", text) if text == "prompt" else text))  # the model's prompt
        if not {"layers", "template"} & {*settings}:
            return None
        template, weights = settings.get("template"), settings.get("weights", "uniform")
        return make_recipe(
            settings.get("templates", {}).get(template, template),
            fill(settings.get("layers", "L")) + "-bias" * bool(settings.get("denoised")),
            settings.get("uniform", weights) if weights == "uniform" else weights,
            shaping=settings.get("shaping", ()),
        )


@dataclass(frozen=True)
class Table:
    """A published table.

    Attributes:
        name: name such as "ditto-6".
        paper: title, authors, year.
        caption: caption, written for essent.
        columns: headings.
        content: cells, row by row.
        models: role -> the model of the paper, a hub name.
        corpus: the texts that the paper used besides the tasks' own.
        note: remarks about the comparison.

    Example:
        >>> from essent.lab.reproduce import find_table
        >>> table = find_table("heros-1")
        >>> table.columns
        ('R1', 'R2', 'RL', 'Lev', 'Len')
        >>> table.models
        {'bert': 'bert-base-uncased'}
    """

    name: str
    paper: str
    caption: str
    columns: tuple[str, ...]
    content: tuple[Cell, ...]
    models: Mapping[str, str]
    corpus: str = ""
    note: str = ""

    def cells(self) -> list[Cell]:
        """Return all cells, row by row."""
        return list(self.content)

    @property
    def roles(self) -> tuple[str, ...]:
        """The roles of models that the cells use, the most frequent one first."""
        used = [cell.settings["model"] for cell in self.cells() if cell.missing is None and "model" in cell.settings]
        return tuple(sorted(dict.fromkeys(used), key=lambda role: -used.count(role)))


def tables() -> dict[str, Table]:
    """Return all published tables by name, paper by paper.

    Example:
        >>> from essent.lab.reproduce import tables
        >>> tables()["ditto-6"].paper
        'Ditto: A Simple and Efficient Approach to Improve Sentence Embeddings (Chen et al. 2023)'
    """
    return {table.name: table for paper in PAPERS for table in _read(paper)}


def find_table(name: str) -> Table:
    """Return a table by name, such as "ditto-6" or "stankevicius-A9".

    Raises:
        UnknownNameError: no such table; suggests the nearest name.

    Example:
        >>> from essent.lab.reproduce import find_table
        >>> find_table("heros-1").caption
        'Lexical overlap of the two sentences of a pair (ROUGE F1, token Levenshtein distance, length)'
    """
    by_name = {key.lower(): table for key, table in tables().items()}
    if name.lower() not in by_name:
        raise UnknownNameError(
            f"Unknown table {name!r}. {did_you_mean(name, list(tables()))} Run essent lab reproduce to list all tables."
        )
    return by_name[name.lower()]


@cache
def _read(paper: str) -> tuple[Table, ...]:
    import yaml

    text = (files("essent.lab.reproduce") / "papers" / f"{paper}.yaml").read_text(encoding="utf-8")
    content = yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506 — the C loader is safe too
    return tuple(
        Table(
            name=f"{content['paper']}-{number}",
            paper=content["title"],
            caption=table["caption"],
            columns=tuple(table["columns"]),
            content=tuple(cell for block in table["blocks"] for cell in _cells(block, table, content)),
            models=content["models"],
            corpus=table.get("corpus", content.get("corpus", "")),
            note=table.get("note", content.get("note", "")),
        )
        for number, table in content["tables"].items()
    )


def _cells(block: dict[str, Any], table: dict[str, Any], paper: dict[str, Any]) -> Iterator[Cell]:
    block_settings = {"templates": paper.get("templates", {}), **block.get("cell", {})}
    if "tasks" in block:
        block_settings["tasks"] = block["tasks"]
    named_settings = {**table.get("settings", {}), **block.get("settings", {})}
    for name, figures in block["values"].items():
        row_settings: dict[str, Any] = {}
        for part in [name] if name in named_settings else name.split(" + "):
            row_settings |= named_settings[part]
        for (column, column_settings), figure in zip(table["columns"].items(), figures, strict=True):
            settings = {**block_settings, **row_settings, **column_settings}
            yield Cell(name, column, Published.read(figure), settings, block.get("title", ""))


def only_tasks(table: Table, selects: Callable[[str], bool]) -> Table:
    """Return the table with each mean over the selected tasks only; cells without any of them are removed.

    The published figure of a mean over more tasks is marked (`Published.over_all`): it cannot be compared.
    """
    content = (_only(cell, selects) for cell in table.cells())
    return replace(table, content=tuple(cell for cell in content if cell is not None))


def _only(cell: Cell, selects: Callable[[str], bool]) -> Cell | None:
    tasks = list(cell.settings.get("tasks", ()))
    selected = [name for name in tasks if selects(name)]
    if selected == tasks:  # also true for a cell that measures a corpus instead of tasks
        return cell
    if not selected:
        return None
    published = cell.published and replace(cell.published, over_all=len(tasks))
    return replace(cell, published=published, settings={**cell.settings, "tasks": selected})
