"""Arrangement of results and leaderboards as a report: its sections, and its verdict about the highest row."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from essent.errors import DataError, InputError
from essent.report.parts import (
    NO_MODEL,
    Bars,
    Block,
    Names,
    Number,
    Report,
    Row,
    Section,
    Table,
    decimals_for,
    ends_of,
    key_of,
    names_of,
    short_paths,
    with_interval,
)
from essent.report.sections import (
    ROW,
    Record,
    board_section,
    flattened,
    geometry_section,
    heros_section,
    keep_best_bars,
    plain_section,
    record_table,
)
from essent.tasks.result import AVERAGE, Result, spelled

if TYPE_CHECKING:
    from essent.selection.leaderboard import Leaderboard

SECTIONS = {  # of tasks without a main score, by metrics of their kind
    heros_section: {"similarity", "baseline"},
    geometry_section: {"alignment", "uniformity"},
    plain_section: set[str](),
}
ResultsByRow = Mapping[Row, Mapping[str, Result]]  # by row and task


def gather(
    results: Sequence[Result],
    searches: Sequence[Leaderboard] = (),
    title: str = "Sentence embeddings",
    comparisons: Sequence[str] = (),
) -> Report:
    """Arrange results and leaderboards as a report.

    Args:
        comparisons: sentences about paired differences, for the top.

    Raises:
        InputError: nothing to report.
        DataError: a score that is not a number.
    """
    if not results and not searches:
        raise InputError("A report needs at least one result or leaderboard.")
    for result in results:
        for scores in (*result.metrics.values(), *result.subsets.values()):
            for name, score in scores.items():
                if isinstance(score, bool) or not isinstance(score, (int, float)):
                    raise DataError(f"{result.task}: the score {name!r} is {score!r}, not a number.")
    names = names_of(
        (key_of(result.provenance) for result in results),
        (str(board.provenance.get("model") or NO_MODEL) for board in searches),
    )
    sections = [
        *_result_sections(results, names),
        *(board_section(board, names) for board in searches),
    ]
    if results:
        sections.append(_provenance_section(results, names))
    counts = {"model": len(names.models), "row": len(names.rows), "task": len({result.task for result in results})}
    counted = [f"{count} {noun}{'s' * (count > 1)}" for noun, count in counts.items() if count]
    counted += [f"{len(searches)} search{'es' * (len(searches) > 1)}"] if searches else []
    return Report(
        title, sections, f"{', '.join(counted)}.", [*comparisons, *(s.verdict for s in sections if s.verdict)]
    )


def _result_sections(results: Iterable[Result], names: Names) -> Iterator[Section]:
    """Yield one section per main score, and one per task without a main score."""
    groups: dict[tuple[Any, str], list[Result]] = {}
    for result in results:
        section_of = next(section for section, metrics in SECTIONS.items() if metrics <= set(result.metrics))
        groups.setdefault(result.main or (section_of, result.task), []).append(result)
    for (metric_or_section, name), group in groups.items():
        rows = _by_row(group, names)
        notes = [f"{result.task}: {note}" for result in group for note in result.notes]
        if len(rows) > len({key_of(result.provenance) for result in group}):
            notes.append("A row with (2) is another result of the same model, recipe and task.")
        if unlike := _different_data(group):
            notes.append(f"Results on different data of the same name cannot be compared: {', '.join(unlike)}.")
        if group[0].main is not None:
            section = _scored_section(metric_or_section, name, rows)
        else:
            section = metric_or_section(name, {row: results_by_task[name] for row, results_by_task in rows.items()})
        yield replace(section, notes=list(dict.fromkeys(notes)), verdict="" if unlike else section.verdict)


def _different_data(group: Iterable[Result]) -> list[str]:
    """Return the tasks with results on different data, such as files of the same name in two folders."""
    digests: dict[str, set[str]] = {}  # by task
    for result in group:
        if digest := result.provenance.get("sha256"):
            digests.setdefault(result.task, set()).add(str(digest))
    return [task for task, distinct in digests.items() if len(distinct) > 1]


def _by_row(group: Iterable[Result], names: Names) -> dict[Row, dict[str, Result]]:
    """Group results by row and task; repeated results count once, differing results of the same name get a new row."""
    rows: dict[Row, dict[str, Result]] = {}
    for result in group:
        label, series = names.rows[key_of(result.provenance)]
        for number in count(1):
            row = Row(f"{label} ({number})" if number > 1 else label, series)
            present = rows.setdefault(row, {}).setdefault(result.task, result)
            if present.to_dict() == result.to_dict():
                break
    return rows


def _provenance_section(results: Sequence[Result], names: Names) -> Section:
    """Return the section of models and recipes, data with their digests, and versions."""
    rows: list[Record] = []
    for (model, recipe), row in names.rows.items():
        provenances = [result.provenance for result in results if key_of(result.provenance) == (model, recipe)]
        fitted_on = ", ".join(dict.fromkeys(str(p["fitted_on"]) for p in provenances if p.get("fitted_on")))
        cells = {"model": names.models[model], "recipe": short_paths(recipe), "fitted on": fitted_on}
        rows.append({"row": row.label, **cells})
    data: list[Record] = []
    versions: list[Record] = []
    for result in results:
        source, digest = (str(result.provenance.get(name) or "") for name in ("source", "sha256"))
        data.append({"task": result.task, "n": result.n, "source": short_paths(source), "SHA-256": digest[:12]})
        if isinstance(used := result.provenance.get("versions"), Mapping):
            versions += [{"library": str(name), "version": str(version)} for name, version in used.items()]
    tables = {"Rows": rows, "Data": data, "Versions": versions}
    blocks = [record_table(title, records, folded=True) for title, records in tables.items() if records]
    return Section("Provenance", blocks)


# -- results with one main score --------------------------------------------------------------------------------------


def _scored_section(metric: str, subset: str, rows: ResultsByRow) -> Section:
    """Return a table of rows × tasks, a bar chart per task, and folded tables of all other scores."""
    columns = list(dict.fromkeys(task for line in rows.values() for task in line))
    names = (subset, "low", "high")
    lines = [[line[task].metrics[metric] if task in line else {} for task in columns] for line in rows.values()]
    scores = np.array([[[cell.get(name, math.nan) for name in names] for cell in line] for line in lines])  # (R,T,3)
    if len(columns) > 1:
        means = scores[..., :1].mean(axis=1, keepdims=True)  # (R,1,1), NaN if a score is missing
        columns, scores = [*columns, AVERAGE], np.concatenate([scores, means * [1, math.nan, math.nan]], axis=1)
    decimals = decimals_for(scores[..., 0].ravel().tolist())
    numbers = [[Number(*values) for values in line] for line in scores.tolist()]
    records: list[Record] = [
        {ROW: row.label, **dict(zip(columns, line, strict=True))} for row, line in zip(rows, numbers, strict=True)
    ]
    table = record_table("Scores", records, decimals=decimals, better=dict.fromkeys(columns, "higher"))
    charts = []
    for column, line in zip(columns, zip(*numbers, strict=True), strict=True):
        bars = [(row, number) for row, number in zip(rows, line, strict=True) if number.value is not None]
        if bars:  # for several tasks, the page draws the mean
            show: Literal["page", "picture"] = "page" if column == columns[-1] else "picture"
            shared = ends_of(number for line in numbers for number in line)
            charts.append(keep_best_bars(Bars(column, bars, decimals, "", shared, show)))
    measure = f"{spelled(metric)} ×100" + ("" if subset == "all" else f", {subset}")
    verdict = _verdict(measure, columns, [row.label for row in rows], scores, decimals)
    caption = "Lines on the bars: 95 % intervals." if np.isfinite(scores).all(axis=-1).any() else ""
    in_main_table = {metric, *(f"{metric}, {name}" for name in names)}
    blocks: list[Block] = [table, *charts, *_secondary_tables(rows, in_main_table)]
    return Section(measure, blocks, caption, verdict=verdict)


def _secondary_tables(rows: ResultsByRow, excluded: set[str]) -> list[Table]:
    """Return tables of the other metrics and of every subset."""
    other_scores: list[Record] = []
    subsets: list[Record] = []
    for row, results_by_task in rows.items():
        for task, result in results_by_task.items():
            others = {name: score for name, score in flattened(result.metrics).items() if name not in excluded}
            if others:
                other_scores.append({ROW: row.label, "task": task, "n": result.n, **others})
            for subset, scores in result.subsets.items():
                subsets.append({ROW: row.label, "task": task, "subset": subset, "n": None, **scores})
    tables = {"Other scores": other_scores, "Subsets": subsets}
    return [record_table(title, records, folded=True) for title, records in tables.items() if records]


def _verdict(measure: str, columns: Sequence[str], labels: Sequence[str], scores: np.ndarray, decimals: int) -> str:
    """Return a sentence about the row with the highest score in the last column of scores (R,C,3)."""
    values = np.nan_to_num(scores[:, -1, 0], nan=-np.inf)
    if not (count := np.isfinite(values).sum()):
        return ""
    best = int(values.argmax())
    data = f"on average over {len(columns) - 1} tasks" if len(columns) > 1 else f"on {columns[0]}"
    sentence = f"{measure}: {labels[best]} has {with_interval(Number(*scores[best, -1]), decimals)} {data}"
    sentence += f", the highest of {count} rows" if count > 1 else ""
    if partial := len(labels) - count:
        sentence += f" ({partial} more without a score on every task)"
    return f"{sentence}."
