"""Which row is first, by how much, and whether that is shown: what a report says before anything else."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from essent.report.labels import Names
from essent.report.parts import Column, Line, Number, Table, shown, shown_interval
from essent.report.rows import ROW, Row, label_of
from essent.tasks.result import Result

MOST_NAMED = 3  # rows that a sentence names
HOW = (
    "First less the other, with 95 % intervals made of both scores' own, as if each had been measured on other texts: "
    "on the same texts they are narrower, so a difference that is shown here is shown."
)


@dataclass(frozen=True)
class Lead:
    """The first row of a section, and its differences to the others.

    Attributes:
        score: of the first row; over several tasks their mean.
        behind: by row, nearest first: difference by task, the mean over tasks last.
        partial: how many rows lack a task, and are not compared.
    """

    name: str
    tasks: tuple[str, ...]
    first: Row
    score: Number
    behind: Mapping[Row, tuple[Number, ...]]
    partial: int = 0


def lead_of(name: str, tasks: Sequence[str], rows: Mapping[Row, Mapping[str, Result]]) -> Lead | None:
    """The first of the rows that have every task; None where none has."""
    scores = {row: [_scored(found.get(task)) for task in tasks] for row, found in rows.items()}
    whole = {row: line for row, line in scores.items() if all(number.known is not None for number in line)}
    if not whole:
        return None
    order = sorted(whole, key=lambda row: -_mean(whole[row]).value)  # type: ignore[operator]  # all are known
    first = order[0]
    behind = {}
    for row in order[1:]:
        by_task = [difference(one, other) for one, other in zip(whole[first], whole[row], strict=True)]
        behind[row] = (*by_task, _mean(by_task))
    score = whole[first][0] if len(tasks) == 1 else Number(_mean(whole[first]).value)
    return Lead(name, tuple(tasks), first, score, behind, len(scores) - len(whole))


def _scored(result: Result | None) -> Number:
    """The main score with its confidence interval; a deviation over runs is none."""
    if result is None or result.main is None:
        return Number()
    beside = result.metrics[result.main[0]]
    return Number(result.main_score, beside.get("low"), beside.get("high"))


def difference(first: Number, second: Number) -> Number:
    """First less second; the interval is that of Zou and Donner (2008) for two independent measurements."""
    if first.value is None or second.value is None:
        return Number()
    value = first.value - second.value
    if first.interval is None or second.interval is None:
        return Number(value)
    (low, high), (other_low, other_high) = first.interval, second.interval
    return Number(
        value,
        value - math.hypot(first.value - low, other_high - second.value),
        value + math.hypot(high - first.value, second.value - other_low),
    )


def _mean(numbers: Sequence[Number]) -> Number:
    """The mean of independent numbers, with an interval where all have one."""
    values = [number.value for number in numbers if number.value is not None]
    value = sum(values) / len(numbers)
    ends = [number.interval for number in numbers]
    if any(end is None for end in ends):
        return Number(value)
    pairs = [(known, end) for known, end in zip(values, ends, strict=True) if end is not None]
    below = math.hypot(*(known - low for known, (low, _) in pairs)) / len(pairs)
    above = math.hypot(*(high - known for known, (_, high) in pairs)) / len(pairs)
    return Number(value, value - below, value + above)


# -- in words ---------------------------------------------------------------------------------------------------------


def in_words(lead: Lead, names: Names, decimals: int) -> str:
    """Two or three sentences: who is first, and of whom that is shown."""
    score, about = shown(lead.score.value, decimals), shown_interval(lead.score, decimals)
    where = f"on {lead.tasks[0]}" if len(lead.tasks) == 1 else f"on average over {len(lead.tasks)} tasks"
    first = f"{lead.name}: {label_of(lead.first, names)} has {score}{f' ({about})' if about else ''} {where}"
    if lead.behind:
        first += f", the highest of {len(lead.behind) + 1} rows"
    if lead.partial:
        first += f" ({lead.partial} more without a score on every task)"
    first += "."
    if not lead.behind:
        return first
    last = {row: numbers[-1] for row, numbers in lead.behind.items()}
    nearest, gap = next(iter(last.items()))
    ahead = f"{label_of(nearest, names)} is {signed(gap, decimals)} behind"
    if any(number.interval is None for number in last.values()):
        return f"{first} {ahead}. Without intervals nothing shows whether that is more than chance."
    close = [row for row, number in last.items() if number.low is not None and number.low <= 0]
    if not close:
        others = {1: "the other", 2: "both others"}.get(len(last), f"all {len(last)} others")
        return f"{first} It is shown to be better than {others}: {ahead}."
    named = ", ".join(label_of(row, names) for row in close[:MOST_NAMED])
    more = f" and {len(close) - MOST_NAMED} more" if len(close) > MOST_NAMED else ""
    rest = len(last) - len(close)
    others = "the remaining row" if rest == 1 else f"the remaining {rest} rows"
    worse = f" It is shown to be better than {others}." if rest else ""
    return f"{first} No difference to {named}{more} is shown: {ahead}.{worse}"


def signed(number: Number, decimals: int) -> str:
    """E.g. "1.20 (−0.40 to 2.80)"."""
    about = shown_interval(number, decimals)
    return shown(number.value, decimals) + (f" ({about})" if about else "")


def lead_table(lead: Lead, names: Names, decimals: int) -> Table | None:
    """The differences to the first row, by task; None where there is no other row."""
    if not lead.behind:
        return None
    last = ("all tasks",) if len(lead.tasks) > 1 else ()
    columns = (Column(ROW, None), *(Column(name, decimals) for name in (*lead.tasks, *last)))
    rows: tuple[Line, ...] = tuple(
        (label_of(row, names), *numbers[: len(columns) - 1]) for row, numbers in lead.behind.items()
    )
    measured = any(number.interval for numbers in lead.behind.values() for number in numbers)
    return Table(f"Lead of {label_of(lead.first, names)}", columns, rows, HOW if measured else "", folded=len(rows) > 8)
