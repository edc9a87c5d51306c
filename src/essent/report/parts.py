"""Parts of a report: sections of tables and figures as plain data, the names of their rows, and the colours."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from essent.tasks.result import Key, row_labels, short_name, short_names

TEMPLATES = Path(__file__).parent / "templates"
MISSING = "–"  # a cell that is not measured, or undefined
MAX_STEPS = 6  # between ticks of an axis
WHOLE_NUMBERS = ("n", "rank")  # columns
NO_MODEL, AS_IT_IS = "a model", "as it is"
PATH = re.compile(
    r"(?<![\w./\\:<])(?:~?/|[A-Za-z]:[/\\])(?:[^\s/\\'\",;<>|]+[/\\])+[^\s/\\'\",;<>|]+"
)  # an absolute path of at least two parts


@dataclass(frozen=True)
class Number:
    """A value with its interval; None replaces numbers that are not finite, and an interval without both ends."""

    value: float | None = None
    low: float | None = None
    high: float | None = None

    def __post_init__(self) -> None:
        ends = finite(self.low), finite(self.high)
        low, high = (None, None) if None in ends else ends
        vars(self).update(value=finite(self.value), low=low, high=high)

    @property
    def interval(self) -> tuple[float, float] | None:
        """Both ends of the interval, if there is one."""
        return None if self.low is None or self.high is None else (self.low, self.high)


@dataclass(frozen=True)
class Column:
    """A column of a table; `decimals` is None for text."""

    name: str
    decimals: int | None = 2


Line = tuple[str | Number, ...]
Record = Mapping[str, str | float | Number | None]  # a line of a table by column


@dataclass(frozen=True)
class Table:
    """Rows of texts and numbers; the first column names the row. A folded table is collapsed at first."""

    title: str
    columns: Sequence[Column]
    rows: Sequence[Line]
    caption: str = ""
    folded: bool = False


class Row(NamedTuple):
    """A row of a section: its label, and the index of its model, which determines the colour."""

    label: str
    series: int = 0


@dataclass(frozen=True)
class Bars:
    """Horizontal bars from 0, with intervals."""

    title: str
    rows: Sequence[tuple[Row, Number]]
    decimals: int = 2
    caption: str = ""

    @property
    def axis(self) -> Axis:
        """The axis from 0, or a lower value, to the largest end of a bar or interval."""
        ends = (end for _, number in self.rows for end in (number.value, number.low, number.high))
        return axis_of([0.0, *(end for end in ends if end is not None)])


@dataclass(frozen=True)
class Heat:
    """A heat map of rows × columns, darker for higher numbers."""

    title: str
    corner: str
    columns: Sequence[str]
    rows: Sequence[tuple[str, Sequence[float | None]]]
    decimals: int = 2
    caption: str = ""

    def shade(self, value: float | None) -> float | None:
        """Return the position of a value between the lowest and the highest, from 0 to 1."""
        if value is None:
            return None
        values = [value for _, row in self.rows for value in row if value is not None]
        low, high = min(values), max(values)
        return (value - low) / (high - low) if high > low else 0.5


@dataclass(frozen=True)
class Curves:
    """Lines over named positions, e.g. layers; they skip positions with None."""

    title: str
    x_name: str
    y_name: str
    positions: Sequence[str]
    series: Sequence[tuple[str, Sequence[float | None]]]
    decimals: int = 2

    @property
    def axis(self) -> Axis:
        """The axis of the values."""
        return axis_of([value for _, values in self.series for value in values if value is not None])


Block = Table | Bars | Heat | Curves


@dataclass(frozen=True)
class Section:
    """A heading with its blocks and notes; the verdict is a sentence at the top of the report."""

    title: str
    blocks: Sequence[Block]
    caption: str = ""
    notes: Sequence[str] = ()
    verdict: str = ""

    def __post_init__(self) -> None:  # folders have only their last two parts, since pages are shared
        texts = {name: short_paths(getattr(self, name)) for name in ("title", "caption", "verdict")}
        vars(self).update(texts, notes=list(map(short_paths, self.notes)))


@dataclass(frozen=True)
class Report:
    """The content of a report; without times and folders, so that the same input gives the same file."""

    title: str
    sections: Sequence[Section]
    caption: str = ""
    verdict: Sequence[str] = ()  # sentences at the top


# -- numbers and axes -------------------------------------------------------------------------------------------------


class Axis(NamedTuple):
    """A range with round ticks."""

    low: float
    high: float
    ticks: tuple[float, ...]
    decimals: int

    def share(self, value: float) -> float:
        """Return the position of a value on the axis, in percent."""
        return 100.0 * (value - self.low) / (self.high - self.low)


def axis_of(values: Sequence[float]) -> Axis:
    """Return the shortest range between round numbers that contains all values."""
    low, high = (min(values), max(values)) if values else (0.0, 1.0)
    if high - low <= 1e-9 * max(abs(low), abs(high)):  # a single value: a range around it
        width = max(abs(high), 1.0) * 0.1
        low, high = low - width, high + width
    power = 10.0 ** math.floor(math.log10((high - low) / MAX_STEPS))
    for step in (power * factor for factor in (1, 2, 5, 10, 20)):
        first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
        if last - first <= MAX_STEPS:
            break
    decimals = max(0, -math.floor(math.log10(step) + 1e-9))
    ticks = tuple(round(number * step, 12) for number in range(first, last + 1))
    return Axis(ticks[0], ticks[-1], ticks, decimals)


def finite(value: float | None) -> float | None:
    """Return a finite number, otherwise None."""
    return value if value is not None and math.isfinite(value) else None


def shown(value: float | None, decimals: int | None) -> str:
    """Format a number for all writers, with a minus sign instead of a hyphen."""
    value = finite(value)
    if value is None:
        return MISSING
    text = f"{value:.{2 if decimals is None else decimals}f}"
    if not text.strip("-0."):
        text = text.lstrip("-")  # not "-0.00"
    return text.replace("-", "−")


def interval_text(number: Number, decimals: int | None) -> str:
    """Format an interval, e.g. "71.20 to 74.03"; empty without an interval."""
    return " to ".join(shown(end, decimals) for end in number.interval or ())


def with_interval(number: Number, decimals: int | None) -> str:
    """Format a number with its interval, e.g. "1.20 (−0.40 to 2.80)"."""
    interval = interval_text(number, decimals)
    return shown(number.value, decimals) + (f" ({interval})" if interval else "")


def decimals_for(values: Iterable[float | None]) -> int:
    """Return the number of decimals: two for scores ×100, four for scores around 1."""
    sizes = [abs(value) for value in map(finite, values) if value is not None]
    return 2 if max(sizes, default=100.0) >= 1.5 else 4


def record_table(
    title: str, records: Iterable[Record], caption: str = "", *, decimals: int | None = None, folded: bool = False
) -> Table:
    """Create a table of texts and numbers by column name; equal records count once.

    Args:
        decimals: of all numbers; None chooses them per column.
    """
    distinct = [dict(cells) for cells in dict.fromkeys(tuple(record.items()) for record in records)]
    columns: list[Column] = []
    cells_by_column: list[list[str | Number]] = []
    for name in dict.fromkeys(name for record in distinct for name in record):
        values = [record.get(name) for record in distinct]
        cells = [value if isinstance(value, (str, Number)) else Number(value) for value in values]
        numbers = [cell.value for cell in cells if isinstance(cell, Number)]
        own = 0 if name in WHOLE_NUMBERS else decimals_for(numbers) if decimals is None else decimals
        columns.append(Column(name, own if numbers else None))
        cells_by_column.append(cells)
    return Table(title, columns, list(zip(*cells_by_column, strict=True)), caption, folded)


# -- names of rows ----------------------------------------------------------------------------------------------------


class Names(NamedTuple):
    """Short names of models, and rows by model and recipe, the same in every section of a report."""

    models: Mapping[str, str]
    rows: Mapping[Key, Row]


def key_of(provenance: Mapping[str, Any]) -> Key:
    """Return model and recipe of a result, with placeholders for missing names."""
    return str(provenance.get("model") or NO_MODEL), str(provenance.get("recipe") or AS_IT_IS)


def names_of(keys: Iterable[Key], models: Iterable[str] = ()) -> Names:
    """Name rows: by the model, by the recipe if all rows have one model, or by both.

    Args:
        keys: the keys of all results; a key may occur several times.
        models: other models of the report.
    """
    distinct_keys = list(dict.fromkeys(keys))
    with_rows = dict.fromkeys(model for model, _ in distinct_keys)
    short = short_names([*with_rows, *models])
    labels = row_labels(distinct_keys, short)
    return Names(short, {key: Row(labels[key], list(short).index(key[0])) for key in distinct_keys})


def shortened(name: str, max_length: int) -> str:
    """Shorten a long name to an ellipsis and its end."""
    return name if len(name) <= max_length else "…" + name[-max_length + 1 :]


def short_paths(text: str) -> str:
    """Shorten absolute paths in a text to their last two parts."""
    return PATH.sub(lambda match: short_name(match.group()), text)


# -- colours ----------------------------------------------------------------------------------------------------------

COLOURS = (TEMPLATES / "colours.css").read_text(encoding="utf-8")
_LIGHT = COLOURS.partition("}")[0]
SERIES = re.findall(r"--s\d+: (#\w+);", _LIGHT)  # one per model; the third is also the colour of baselines
LEVELS = re.findall(r"--h\d+: (#\w+); --t\d+: (#\w+);", _LIGHT)  # (cell, text) colours of heat maps, low to high
