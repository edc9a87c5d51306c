"""Parts of a report: sections of tables and figures as plain data, and the names of their rows."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

NOTHING = "–"  # a cell that is not measured, or undefined
MANY = 30  # values of a heat map
NO_MODEL, AS_IT_IS = "a model", "as it is"
PATH = re.compile(
    r"(?<![\w./\\:<])(?:~?/|[A-Za-z]:[/\\])(?:[^\s/\\'\",;<>|]+[/\\])+[^\s/\\'\",;<>|]+"
)  # of at least two parts
Key = tuple[str, str]  # model and recipe, as in the provenance


@dataclass(frozen=True)
class Number:
    """A value with its interval; None if missing, NaN if undefined."""

    value: float | None = None
    low: float | None = None
    high: float | None = None

    @property
    def known(self) -> float | None:
        """The value if it is finite, otherwise None."""
        return finite(self.value)

    @property
    def interval(self) -> tuple[float, float] | None:
        """Both ends if they are finite, otherwise None."""
        low, high = finite(self.low), finite(self.high)
        return None if low is None or high is None else (low, high)


@dataclass(frozen=True)
class Column:
    """A column of a table; `decimals` None for text. `better` is "higher", "lower", or empty if neither is better."""

    name: str
    decimals: int | None = 2
    better: str = ""


Line = tuple[str | Number, ...]


@dataclass(frozen=True)
class Table:
    """Rows of texts and numbers; the first column names the row. A folded table is collapsed at first."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[Line, ...]
    about: str = ""
    folded: bool = False

    def best(self, index: int) -> str | None:
        """Return the best number of a column as displayed; None if neither side is better, or for a single number."""
        column = self.columns[index]
        cells = [cell.known for row in self.rows if isinstance(cell := row[index], Number)]
        known = [value for value in cells if value is not None]
        if not column.better or len(known) < 2:
            return None
        return shown(max(known) if column.better == "higher" else min(known), column.decimals)


@dataclass(frozen=True)
class Bar:
    """One bar of a chart; `series` is the index of its model, which determines the colour."""

    label: str
    number: Number
    series: int = 0


@dataclass(frozen=True)
class Bars:
    """Horizontal bars from 0, with intervals."""

    title: str
    rows: tuple[Bar, ...]
    decimals: int = 2
    about: str = ""
    reach: tuple[float, ...] = ()  # more values within the axis, which adjacent charts share
    values_on: str = "page with numbers"  # or "page", if a table next to it has the numbers, or "picture"

    @property
    def axis(self) -> Axis:
        """The axis from 0, or a lower value, to the largest end of a bar or interval."""
        return axis_of([0.0, *self.reach, *ends_of(row.number for row in self.rows)])


@dataclass(frozen=True)
class Heat:
    """A heat map of rows × columns, darker for higher numbers; `groups` are (title, columns spanned)."""

    title: str
    corner: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[float | None, ...]], ...]
    groups: tuple[tuple[str, int], ...] = ()
    decimals: int = 2
    about: str = ""

    @property
    def bounds(self) -> tuple[float, float]:
        """Values of the first and last colour; with many values, a tenth is below, so that outliers do not dominate."""
        values = sorted(value for _, row in self.rows for value in map(finite, row) if value is not None)
        return (values[len(values) // 10 if len(values) >= MANY else 0], values[-1]) if values else (0.0, 1.0)

    def shade(self, value: float | None) -> float | None:
        """Return the position of a value between the bounds, from 0 to 1."""
        value, (low, high) = finite(value), self.bounds
        if value is None:
            return None
        return max(0.0, (value - low) / (high - low)) if high > low else 0.5


@dataclass(frozen=True)
class Curves:
    """Lines over named positions, e.g. layers; None is a gap. Positions before `begin` are not connected."""

    title: str
    x_name: str
    y_name: str
    positions: tuple[str, ...]
    series: tuple[tuple[str, tuple[float | None, ...]], ...]
    begin: int = 0
    decimals: int = 2

    @property
    def axis(self) -> Axis:
        """The axis of the values."""
        values = [value for _, line in self.series for value in map(finite, line) if value is not None]
        return axis_of(values)


@dataclass(frozen=True)
class Point:
    """A labelled point; `series` as in `Bar`. `interval` is of y; `area` is relative to the usual area of the mark."""

    label: str
    x: float
    y: float
    series: int = 0
    interval: tuple[float, float] | None = None
    area: float = 1.0


@dataclass(frozen=True)
class Points:
    """A plot of points over two measures."""

    title: str
    x_name: str
    y_name: str
    points: tuple[Point, ...]
    decimals: int = 2
    about: str = ""

    @property
    def axes(self) -> tuple[Axis, Axis]:
        """The axes of x and y."""
        heights = [end for point in self.points for end in (point.y, *(point.interval or ()))]
        return axis_of([point.x for point in self.points]), axis_of(heights)


Block = Table | Bars | Heat | Curves | Points


@dataclass(frozen=True)
class Section:
    """A heading with its blocks and notes."""

    title: str
    blocks: tuple[Block, ...]
    about: str = ""
    notes: tuple[str, ...] = ()
    verdict: tuple[str, ...] = ()  # its sentences at the top of the report


@dataclass(frozen=True)
class Report:
    """The content of a report; without times and folders, so that the same input gives the same file."""

    title: str
    sections: tuple[Section, ...]
    about: str = ""
    verdict: tuple[str, ...] = ()  # sentences at the top


@dataclass(frozen=True)
class Axis:
    """A range with round ticks."""

    low: float
    high: float
    ticks: tuple[float, ...] = ()
    decimals: int = 0

    def share(self, value: float) -> float:
        """Return the position of a value on the axis, in percent."""
        return 100.0 * (value - self.low) / (self.high - self.low)


def axis_of(values: Sequence[float], most: int = 6) -> Axis:
    """Return the shortest range between round numbers that contains all values, with at most `most` steps."""
    low, high = (min(values), max(values)) if values else (0.0, 1.0)
    if high - low <= 1e-9 * max(abs(low), abs(high)):  # a single value: a range around it
        width = max(abs(high), 1.0) * 0.1
        low, high = low - width, high + width
    power = 10.0 ** math.floor(math.log10((high - low) / most))
    for step in (power * factor for factor in (1, 2, 5, 10, 20)):
        first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
        if last - first <= most:
            break
    decimals = max(0, -math.floor(math.log10(step) + 1e-9))
    ticks = tuple(round(number * step, 12) for number in range(first, last + 1))
    return Axis(ticks[0], ticks[-1], ticks, decimals)


def ends_of(numbers: Iterable[Number]) -> list[float]:
    """List all values and ends of intervals."""
    return [end for number in numbers for end in (number.known, *(number.interval or ())) if end is not None]


def finite(value: float | None) -> float | None:
    """Return a finite number, otherwise None."""
    return value if value is not None and math.isfinite(value) else None


def shown(value: float | None, decimals: int | None) -> str:
    """Format a number for all writers, with a minus sign instead of a hyphen."""
    value = finite(value)
    if value is None:
        return NOTHING
    text = f"{value:.{2 if decimals is None else decimals}f}"
    if not text.strip("-0."):
        text = text.lstrip("-")  # not "-0.00"
    return text.replace("-", "−")


def interval_text(number: Number, decimals: int | None) -> str:
    """Format an interval, e.g. "71.20 to 74.03"; empty without an interval."""
    ends = number.interval
    return "" if ends is None else f"{shown(ends[0], decimals)} to {shown(ends[1], decimals)}"


def with_interval(number: Number, decimals: int) -> str:
    """Format a number with its interval, e.g. "1.20 (−0.40 to 2.80)"."""
    interval = interval_text(number, decimals)
    return shown(number.value, decimals) + (f" ({interval})" if interval else "")


def decimals_for(values: Iterable[float | None]) -> int:
    """Return the number of decimals: two for scores ×100, four for scores around 1."""
    known = [abs(value) for value in map(finite, values) if value is not None]
    return 2 if max(known, default=100.0) >= 1.5 else 4


def distinct(sentences: Iterable[str]) -> tuple[str, ...]:
    """Return each sentence once, in order."""
    return tuple(dict.fromkeys(sentences))


# -- names of rows ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Names:
    """Labels of rows and short names of models, the same in every section of a report."""

    models: Mapping[str, str]
    rows: Mapping[Key, str]

    def series(self, key: Key) -> int:
        """Return the index of the row's model."""
        return list(self.models).index(key[0])


def key_of(provenance: Mapping[str, Any]) -> Key:
    """Return model and recipe of a result, with placeholders for missing names."""
    return str(provenance.get("model") or NO_MODEL), str(provenance.get("recipe") or AS_IT_IS)


def names_of(keys: Iterable[Key], models: Iterable[str] = ()) -> Names:
    """Return short names of rows: the model, the recipe if all rows have one model, or both.

    Args:
        keys: of the results, with repetitions.
        models: other models of the report.
    """
    rows = list(dict.fromkeys(keys))
    with_rows = dict.fromkeys(model for model, _ in rows)
    short = {model: short_name(model) for model in [*with_rows, *models]}
    if len(set(short.values())) < len(short):  # ambiguous
        short = {model: model for model in short}
    if len(rows) == len(with_rows):
        labels = [short[model] for model, _ in rows]
    elif len(with_rows) == 1:
        labels = [recipe for _, recipe in rows]
    else:
        labels = [f"{short[model]} · {recipe}" for model, recipe in rows]
    return Names(short, dict(zip(rows, labels, strict=True)))


def short_name(model: str) -> str:
    """Shorten a folder to its last two parts; hub names are unchanged."""
    is_folder = re.match(r"[/.~\\]|[A-Za-z]:[/\\]", model) is not None
    parts = [part for part in re.split(r"[/\\]", model) if part not in ("", ".", "..", "~")]
    return "/".join(parts[-2:]) if is_folder and parts else model


def shortened(name: str, most: int) -> str:
    """Shorten a long name to an ellipsis and its end."""
    return name if len(name) <= most else "…" + name[-most + 1 :]


def short_paths(text: str) -> str:
    """Shorten absolute paths in a text to their last two parts."""
    return PATH.sub(lambda match: short_name(match.group()), text)
