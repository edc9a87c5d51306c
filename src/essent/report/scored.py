"""Sections of results with one main score: a table of rows × tasks and a bar chart a task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from essent.report.labels import Names
from essent.report.lead import in_words, lead_of, lead_table
from essent.report.parts import Block, Column, Number, Section, Table, decimals_for, ends_of
from essent.report.rows import ROW, Row, bar_chart, by_row, flattened, label_of, long_table, notes_of
from essent.tasks.result import Result

AVERAGE = "avg"
NAMES = {"spearman": "Spearman ×100", "pearson": "Pearson ×100"}


def scored_section(kind: tuple[str, ...], group: Sequence[Result], names: Names) -> Section:
    """The table of rows × tasks, a bar chart a task, and every other number folded."""
    metric, which = kind[1], kind[2]
    rows = by_row(group)
    tasks = list(dict.fromkeys(result.task for result in group))
    scores = {row: {task: _main(found.get(task)) for task in tasks} for row, found in rows.items()}
    decimals = decimals_for(number.value for line in scores.values() for number in line.values())
    columns = list(tasks)
    if len(tasks) > 1:
        columns.append(AVERAGE)
        for line in scores.values():
            line[AVERAGE] = _average([line[task] for task in tasks])
    name = NAMES.get(metric, metric.capitalize()) + ("" if which == "all" else f", {which}")
    table = Table(
        "Scores",
        (Column(ROW, None), *(Column(column, decimals, "higher") for column in columns)),
        tuple((label_of(row, names), *(line[column] for column in columns)) for row, line in scores.items()),
    )
    reach = ends_of(number for line in scores.values() for number in line.values())
    charts = []
    for column in columns:
        lines = {row: line[column] for row, line in scores.items() if line[column].known is not None}
        if lines:
            on = "page" if column == columns[-1] else "picture"  # of several tasks the page draws the mean
            charts.append(bar_chart(column, lines, names, decimals, reach, shown_on=on))
    lead = lead_of(name, tasks, rows)
    leads = lead_table(lead, names, decimals) if lead else None
    blocks = (table, *([leads] if leads else []), *charts, *_folded(rows, names))
    verdict = (in_words(lead, names, decimals),) if lead else ()
    return Section(name, blocks, _intervals(group), notes_of(group), verdict)


def _main(result: Result | None) -> Number:
    """The main score and what stands beside it: an interval, or one standard deviation to each side."""
    if result is None or result.main is None:
        return Number()
    metric, _ = result.main
    value, beside = result.main_score, result.metrics[metric]
    if "low" in beside and "high" in beside:
        return Number(value, beside["low"], beside["high"])
    if "std" in beside:
        return Number(value, value - beside["std"], value + beside["std"])
    return Number(value)


def _intervals(group: Sequence[Result]) -> str:
    """What the intervals of these results are."""
    besides = [result.metrics[result.main[0]] for result in group if result.main is not None]
    ends = any("low" in beside and "high" in beside for beside in besides)
    deviations = any("std" in beside and "low" not in beside for beside in besides)
    said = [*(["confidence intervals"] * ends), *(["one standard deviation to each side"] * deviations)]
    return f"Lines on the bars: {' or '.join(said)}." if said else ""


def _average(numbers: Sequence[Number]) -> Number:
    """The plain mean, when every task is there."""
    values = [number.value for number in numbers]
    there = [value for value in values if value is not None]
    return Number(sum(there) / len(there)) if len(there) == len(values) else Number()


def _besides(result: Result) -> dict[str, dict[str, float]]:
    """Scores without the main one, its interval and its deviation, which the table of scores has."""
    metric, which = result.main or ("", "")
    shown = {which, "low", "high", "std"}
    rest = {name: value for name, value in result.metrics.get(metric, {}).items() if name not in shown}
    return {name: rest if name == metric else scores for name, scores in result.metrics.items()}


def _folded(rows: Mapping[Row, Mapping[str, Result]], names: Names) -> list[Block]:
    """Tables of the other metrics and of every subset."""
    found = [(label_of(row, names), result) for row, tasks in rows.items() for result in tasks.values()]
    scored = [(label, result, flattened(_besides(result))) for label, result in found]
    blocks: list[Block] = []
    if any(scores for _, _, scores in scored):
        blocks.append(
            long_table("Other scores", [(label, (r.task,), r.n, scores) for label, r, scores in scored], ("task",))
        )
    subsets = [
        (label, (result.task, subset), result.subsets[subset].get("n"), {k: v for k, v in scores.items() if k != "n"})
        for label, result in found
        for subset, scores in result.subsets.items()
    ]
    if subsets:
        blocks.append(long_table("Subsets", subsets, ("task", "subset")))
    return blocks
