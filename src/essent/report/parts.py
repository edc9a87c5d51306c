"""What a report is made of: sections of tables and figures as plain data, and the names of their rows."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

NOTHING = "–"  # in a cell: not measured, or undefined
MANY = 30  # values of a heat map
NO_MODEL, AS_IT_IS = "a model", "as it is"
PATH = re.compile(
    r"(?<![\w./\\:<])(?:~?/|[A-Za-z]:[/\\])(?:[^\s/\\'\",;<>|]+[/\\])+[^\s/\\'\",;<>|]+"
)  # of two parts and more
Key = tuple[str, str]  # model and recipe as the provenance has them


@dataclass(frozen=True)
class Number:
    """A value with its interval; None where there is none, NaN where it is undefined."""

    value: float | None = None
    low: float | None = None
    high: float | None = None

    @property
    def known(self) -> float | None:
        """The value if it is finite."""
        return finite(self.value)

    @property
    def interval(self) -> tuple[float, float] | None:
        """Both ends if they are finite."""
        low, high = finite(self.low), finite(self.high)
        return None if low is None or high is None else (low, high)


@dataclass(frozen=True)
class Column:
    """A heading; `decimals` None is a column of text. `better` is "higher" or "lower" where one is better."""

    name: str
    decimals: int | None = 2
    better: str = ""


Line = tuple[str | Number, ...]


@dataclass(frozen=True)
class Table:
    """Rows of texts and numbers; the first column names the row. A folded one is shown when asked for."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[Line, ...]
    about: str = ""
    folded: bool = False

    def best(self, index: int) -> str | None:
        """The best number of a column as it is shown; None where nothing is better, or with fewer than two numbers."""
        column = self.columns[index]
        cells = [cell.known for row in self.rows if isinstance(cell := row[index], Number)]
        known = [value for value in cells if value is not None]
        if not column.better or len(known) < 2:
            return None
        return shown(max(known) if column.better == "higher" else min(known), column.decimals)


@dataclass(frozen=True)
class Bar:
    """One line of a bar chart; `series` tells bars of one model from those of another."""

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
    reach: tuple[float, ...] = ()  # values that the axis holds too: charts side by side share one
    values_on: str = "page with numbers"  # or "page", where a table beside it has them, or "picture", without tables

    @property
    def axis(self) -> Axis:
        """From 0, or from below it, to the largest end of a bar or interval."""
        return axis_of([0.0, *self.reach, *ends_of(row.number for row in self.rows)])


@dataclass(frozen=True)
class Heat:
    """Rows × columns of numbers, the darker the higher; `groups` are (title, columns spanned)."""

    title: str
    corner: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[float | None, ...]], ...]
    groups: tuple[tuple[str, int], ...] = ()
    decimals: int = 2
    about: str = ""

    @property
    def bounds(self) -> tuple[float, float]:
        """Where the colours begin and end; of many values a tenth lies below, so that one outlier takes no colours."""
        values = sorted(value for _, row in self.rows for value in map(finite, row) if value is not None)
        return (values[len(values) // 10 if len(values) >= MANY else 0], values[-1]) if values else (0.0, 1.0)

    def shade(self, value: float | None) -> float | None:
        """Where a value lies between the bounds, from 0 to 1."""
        value, (low, high) = finite(value), self.bounds
        if value is None:
            return None
        return max(0.0, (value - low) / (high - low)) if high > low else 0.5


@dataclass(frozen=True)
class Curves:
    """Lines over named positions, e.g. layers; None is a gap. The positions before `begin` stand apart."""

    title: str
    x_name: str
    y_name: str
    positions: tuple[str, ...]
    series: tuple[tuple[str, tuple[float | None, ...]], ...]
    begin: int = 0
    decimals: int = 2

    @property
    def axis(self) -> Axis:
        """Around the values."""
        values = [value for _, line in self.series for value in map(finite, line) if value is not None]
        return axis_of(values)


@dataclass(frozen=True)
class Point:
    """A labelled point; `series` as in `Bar`. `interval` is that of y; the mark has so many times the usual area."""

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
        """Of x and y, around the points."""
        heights = [end for point in self.points for end in (point.y, *(point.interval or ()))]
        return axis_of([point.x for point in self.points]), axis_of(heights)


Block = Table | Bars | Heat | Curves | Points


@dataclass(frozen=True)
class Section:
    """A heading and what stands below it."""

    title: str
    blocks: tuple[Block, ...]
    about: str = ""
    notes: tuple[str, ...] = ()
    verdict: tuple[str, ...] = ()  # what the report says of it at its top


@dataclass(frozen=True)
class Report:
    """Everything that a writer needs; it has no time and no folder, so the same input gives the same file."""

    title: str
    sections: tuple[Section, ...]
    about: str = ""
    verdict: tuple[str, ...] = ()  # sentences that stand first


@dataclass(frozen=True)
class Axis:
    """A range with round ticks."""

    low: float
    high: float
    ticks: tuple[float, ...] = ()
    decimals: int = 0

    def share(self, value: float) -> float:
        """Where a value lies on the axis, in percent."""
        return 100.0 * (value - self.low) / (self.high - self.low)


def axis_of(values: Sequence[float], most: int = 6) -> Axis:
    """The shortest range between round numbers that holds all values, with at most `most` steps."""
    low, high = (min(values), max(values)) if values else (0.0, 1.0)
    if high - low <= 1e-9 * max(abs(low), abs(high)):  # one value: something to stand in
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
    """Every value and end of an interval."""
    return [end for number in numbers for end in (number.known, *(number.interval or ())) if end is not None]


def finite(value: float | None) -> float | None:
    """A number, or None for what cannot be drawn."""
    return value if value is not None and math.isfinite(value) else None


def shown(value: float | None, decimals: int | None) -> str:
    """A number as every writer shows it, with a minus sign and not a hyphen."""
    value = finite(value)
    if value is None:
        return NOTHING
    text = f"{value:.{2 if decimals is None else decimals}f}"
    if not text.strip("-0."):
        text = text.lstrip("-")  # no minus zero
    return text.replace("-", "−")


def interval_text(number: Number, decimals: int | None) -> str:
    """E.g. "71.20 to 74.03"; nothing without an interval."""
    ends = number.interval
    return "" if ends is None else f"{shown(ends[0], decimals)} to {shown(ends[1], decimals)}"


def with_interval(number: Number, decimals: int) -> str:
    """E.g. "1.20 (−0.40 to 2.80)"."""
    interval = interval_text(number, decimals)
    return shown(number.value, decimals) + (f" ({interval})" if interval else "")


def decimals_for(values: Iterable[float | None]) -> int:
    """Two for scores ×100, four for those around 1."""
    known = [abs(value) for value in map(finite, values) if value is not None]
    return 2 if max(known, default=100.0) >= 1.5 else 4


def distinct(sentences: Iterable[str]) -> tuple[str, ...]:
    """Each sentence once, in order."""
    return tuple(dict.fromkeys(sentences))


# -- names of rows ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Names:
    """Labels of rows and short names of models, the same in every section of a report."""

    models: Mapping[str, str]
    rows: Mapping[Key, str]

    def series(self, key: Key) -> int:
        """Number of the row's model, from 0."""
        return list(self.models).index(key[0])


def key_of(provenance: Mapping[str, Any]) -> Key:
    """Model and recipe of a result, or words that say that it names none."""
    return str(provenance.get("model") or NO_MODEL), str(provenance.get("recipe") or AS_IT_IS)


def names_of(keys: Iterable[Key], models: Iterable[str] = ()) -> Names:
    """Short names of rows: the model, the recipe where one model has several, or both.

    Args:
        keys: of the results, in any number of repetitions.
        models: others that the report names.
    """
    rows = list(dict.fromkeys(keys))
    with_rows = dict.fromkeys(model for model, _ in rows)
    short = {model: short_name(model) for model in [*with_rows, *models]}
    if len(set(short.values())) < len(short):  # two alike
        short = {model: model for model in short}
    if len(rows) == len(with_rows):
        labels = [short[model] for model, _ in rows]
    elif len(with_rows) == 1:
        labels = [recipe for _, recipe in rows]
    else:
        labels = [f"{short[model]} · {recipe}" for model, recipe in rows]
    return Names(short, dict(zip(rows, labels, strict=True)))


def short_name(model: str) -> str:
    """A folder by its last two names, whether it is there or not; a hub name as it is."""
    is_folder = re.match(r"[/.~\\]|[A-Za-z]:[/\\]", model) is not None
    parts = [part for part in re.split(r"[/\\]", model) if part not in ("", ".", "..", "~")]
    return "/".join(parts[-2:]) if is_folder and parts else model


def shortened(name: str, most: int) -> str:
    """A long name's end, after an ellipsis."""
    return name if len(name) <= most else "…" + name[-most + 1 :]


def short_paths(text: str) -> str:
    """A text in which absolute paths are named by their last two parts."""
    return PATH.sub(lambda match: short_name(match.group()), text)
