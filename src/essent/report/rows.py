"""Rows of a report: results by model, recipe and task, and the tables and charts that several sections share."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from essent.report.labels import Key, Names, key_of
from essent.report.parts import Bar, Bars, Column, Line, Number, Table, decimals_for, distinct
from essent.tasks.result import Result

MOST_BARS = 16  # lines of one bar chart
ROW = "model and recipe"
Row = tuple[Key, int]  # model, recipe, and a number for results of the same name that differ


def by_row(group: Iterable[Result]) -> dict[Row, dict[str, Result]]:
    """Results by row and task. The same result twice counts once; another one of that name gets a row of its own."""
    rows: dict[Row, dict[str, Result]] = {}
    for result in group:
        key = key_of(result.provenance)
        number = 0
        while (there := rows.setdefault((key, number), {}).get(result.task)) is not None:
            if there.to_dict() == result.to_dict():
                break
            number += 1
        else:
            rows[key, number][result.task] = result
    return rows


def label_of(row: Row, names: Names) -> str:
    """The name of a row in tables and figures."""
    key, number = row
    return names.rows[key] + (f" ({number + 1})" if number else "")


def notes_of(group: Sequence[Result]) -> tuple[str, ...]:
    """What the results say, each sentence once, and whether a row stands there twice."""
    sentences = [f"{result.task}: {note}" for result in group for note in result.notes]
    if any(number for _, number in by_row(group)):
        sentences.append("A row with (2) is another result of the same model, recipe and task.")
    return distinct(sentences)


def bar_chart(
    title: str,
    lines: Mapping[Row, Number],
    names: Names,
    decimals: int,
    reach: Sequence[float] = (),
    better: str = "higher",
    shown_on: str = "page with numbers",
) -> Bars:
    """In the order of the table; of many the best, best first, and those without a value after them.

    Args:
        better: "higher" or "lower".
    """
    sign = 1.0 if better == "lower" else -1.0
    rows, about = list(lines), ["Lower is better."] if better == "lower" else []
    if len(rows) > MOST_BARS:
        values = {row: math.inf if (known := lines[row].known) is None else sign * known for row in rows}
        rows = sorted(rows, key=lambda row: values[row])[:MOST_BARS]
        about.append(f"The best {MOST_BARS} of {len(lines)}.")
    bars = tuple(Bar(label_of(row, names), lines[row], names.series(row[0])) for row in rows)
    return Bars(title, bars, decimals, " ".join(about), tuple(reach), shown_on)


def long_table(
    title: str,
    lines: Sequence[tuple[str, tuple[str, ...], float | None, Mapping[str, float]]],
    texts: tuple[str, ...],
) -> Table:
    """A folded table, one line a result: label, its texts, its number of rows, and the scores that any line has."""
    measures = list(dict.fromkeys(name for *_, scores in lines for name in scores))
    places = {name: decimals_for(scores.get(name) for *_, scores in lines) for name in measures}
    columns = (
        Column(ROW, None),
        *(Column(text, None) for text in texts),
        Column("n", 0),
        *(Column(name, places[name]) for name in measures),
    )
    rows: tuple[Line, ...] = tuple(
        (label, *named, Number(n), *(Number(scores.get(name)) for name in measures))
        for label, named, n, scores in lines
    )
    return Table(title, columns, rows, folded=True)


def flattened(metrics: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Metrics by subset as one flat dictionary."""
    return {
        metric if which == "all" else f"{metric}, {which}": value
        for metric, scores in metrics.items()
        for which, value in scores.items()
    }
