"""Arrangement of results and leaderboards as a report: its sections, and its verdict about the best row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Literal

import numpy as np

from essent.errors import DataError, InputError
from essent.report.parts import (
    NO_MODEL,
    Bars,
    Block,
    Column,
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
    row_table,
)
from essent.tasks.result import Result, short_name

if TYPE_CHECKING:
    from essent.selection.leaderboard import Leaderboard

AVERAGE = "avg"
NAMES = {"spearman": "Spearman ×100", "pearson": "Pearson ×100"}
MAX_NAMED = 3  # rows named in a sentence
MAX_UNFOLDED = 8  # a longer table of differences is folded
DIFFERENCES = (
    "First row minus each other row, with 95 % intervals computed from the intervals of both scores as if they were "
    "independent. Paired intervals on the same texts are narrower, so differences that are significant here remain so."
)
KINDS = {"heros": {"similarity", "baseline"}, "geometry": {"alignment", "uniformity"}}  # metrics of the kind
SECTIONS = {"heros": heros_section, "geometry": geometry_section, "other": plain_section}
ResultsByRow = Mapping[Row, Mapping[str, Result]]  # by row and task


def gather(
    results: Sequence[Result], searches: Sequence[Leaderboard] = (), title: str = "Sentence embeddings"
) -> Report:
    """Arrange results and leaderboards as a report.

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
    results = _disambiguate(results)
    names = names_of(
        (key_of(result.provenance) for result in results),
        (str(board.provenance.get("model") or NO_MODEL) for board in searches),
    )
    sections = [*_result_sections(results, names), *(board_section(board, names) for board in searches)]
    if results:
        sections.append(_provenance_section(results, names))
    counts = {"model": len(names.models), "row": len(names.rows), "task": len({result.task for result in results})}
    counted = [f"{count} {noun}{'s' * (count > 1)}" for noun, count in counts.items() if count]
    counted += [f"{len(searches)} search{'es' * (len(searches) > 1)}"] if searches else []
    return Report(title, sections, f"{', '.join(counted)}.", [s.verdict for s in sections if s.verdict])


def _disambiguate(results: Sequence[Result]) -> list[Result]:
    """Rename tasks of the same name on different data, such as files of the same name in two folders."""
    sources: dict[str, dict[str, str]] = {}  # by task and digest
    for result in results:
        if digest := result.provenance.get("sha256"):
            source = short_name(str(result.provenance.get("source") or ""))
            sources.setdefault(result.task, {}).setdefault(str(digest), source)
    renamed = []
    for result in results:
        files, digest = sources.get(result.task, {}), str(result.provenance.get("sha256"))
        if len(files) > 1 and digest in files:
            is_distinct = len(set(files.values())) == len(files) and all(files.values())
            name = f"{result.task} ({files[digest] if is_distinct else digest[:8]})"
            note = f"One of {len(files)} data sets with the name {result.task!r}."
            result = replace(result, task=name, notes=(*result.notes, note))
        renamed.append(result)
    return renamed


def _result_sections(results: Iterable[Result], names: Names) -> Iterator[Section]:
    """Yield one section per main score, and one per task without a main score."""
    groups: dict[tuple[str, ...], list[Result]] = {}
    for result in results:
        kind = next((kind for kind, metrics in KINDS.items() if metrics <= set(result.metrics)), "other")
        key = (kind, result.task) if result.main is None else ("main", *result.main)
        groups.setdefault(key, []).append(result)
    for (kind, *key_names), group in groups.items():
        rows = _by_row(group, names)
        notes = [f"{result.task}: {note}" for result in group for note in result.notes]
        if len(rows) > len({key_of(result.provenance) for result in group}):
            notes.append("A row with (2) is another result of the same model, recipe and task.")
        if kind == "main":
            metric, subset = key_names
            section = _scored_section(metric, subset, group, rows)
        else:
            (task,) = key_names
            section = SECTIONS[kind](task, {row: results_by_task[task] for row, results_by_task in rows.items()})
        yield replace(section, notes=list(dict.fromkeys(notes)))


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
    return Section("Provenance", [record_table(title, records) for title, records in tables.items() if records])


# -- results with one main score --------------------------------------------------------------------------------------


def _scored_section(metric: str, subset: str, group: Sequence[Result], rows: ResultsByRow) -> Section:
    """Return a table of rows × tasks, a bar chart per task, and folded tables of all other scores."""
    tasks = list(dict.fromkeys(result.task for result in group))
    scores = {row: {task: _main_score(line.get(task)) for task in tasks} for row, line in rows.items()}
    decimals = decimals_for(number.value for line in scores.values() for number in line.values())
    name = NAMES.get(metric, metric.capitalize()) + ("" if subset == "all" else f", {subset}")
    verdict, differences = _verdict(name, tasks, scores, decimals)
    columns = tasks
    if len(tasks) > 1:
        columns = [*tasks, AVERAGE]
        for line in scores.values():
            values = [number.value for number in line.values()]
            line[AVERAGE] = Number(np.array(values, float).mean())
    heads = [Column(column, decimals, "higher") for column in columns]
    table = row_table("Scores", heads, {row: list(line.values()) for row, line in scores.items()})
    shared = ends_of(number for line in scores.values() for number in line.values())
    charts = []
    for column in columns:
        bars = [(row, line[column]) for row, line in scores.items() if line[column].value is not None]
        if bars:  # for several tasks, the page draws the mean
            show: Literal["page", "picture"] = "page" if column == columns[-1] else "picture"
            charts.append(keep_best_bars(Bars(column, bars, decimals, "", shared, show)))
    has_intervals = any(number.interval for line in scores.values() for number in line.values())
    caption = "Lines on the bars: 95 % intervals." if has_intervals else ""
    blocks: list[Block] = [table, *differences, *charts, *_secondary_tables(rows)]
    return Section(name, blocks, caption, verdict=verdict)


def _main_score(result: Result | None) -> Number:
    """Return the main score with its confidence interval."""
    if result is None or result.main is None:
        return Number()
    scores = result.metrics[result.main[0]]
    return Number(result.main_score, scores.get("low"), scores.get("high"))


def _secondary_tables(rows: ResultsByRow) -> list[Table]:
    """Return tables of the other metrics and of every subset."""
    other_scores: list[Record] = []
    subsets: list[Record] = []
    for row, results_by_task in rows.items():
        for task, result in results_by_task.items():
            metric, subset = result.main or ("", "")
            in_main_table = {(metric, name) for name in (subset, "low", "high", "std")}
            others = flattened(
                {
                    metric: {name: score for name, score in scores.items() if (metric, name) not in in_main_table}
                    for metric, scores in result.metrics.items()
                }
            )
            if others:
                other_scores.append({ROW: row.label, "task": task, "n": result.n, **others})
            for subset, scores in result.subsets.items():
                subsets.append({ROW: row.label, "task": task, "subset": subset, "n": None, **scores})
    tables = {"Other scores": other_scores, "Subsets": subsets}
    return [record_table(title, records) for title, records in tables.items() if records]


# -- the verdict ------------------------------------------------------------------------------------------------------


def difference(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Subtract scores with intervals (…,3); the interval is Zou and Donner's (2008) for independent measurements."""
    (score, low, high), (second_score, second_low, second_high) = np.moveaxis(first, -1, 0), np.moveaxis(second, -1, 0)
    lead = score - second_score
    below, above = np.hypot(score - low, second_high - second_score), np.hypot(high - score, second_score - second_low)
    return np.stack([lead, lead - below, lead + above], axis=-1)


def _mean(scores: np.ndarray) -> np.ndarray:
    """Average independent scores with intervals (…,T,3) over the tasks: (…,3); NaN if one is missing."""
    mean = scores.mean(axis=-2)
    half_widths = np.linalg.norm(scores[..., 1:] - scores[..., :1], axis=-2) / scores.shape[-2]  # (…,2)
    return np.concatenate([mean[..., :1], mean[..., :1] + half_widths * [-1, 1]], axis=-1)


def _verdict(
    measure: str, tasks: Sequence[str], numbers: Mapping[Row, Mapping[str, Number]], decimals: int
) -> tuple[str, list[Table]]:
    """Return the verdict about the best row, and the table of its differences to the other rows with every task."""
    scores = np.array(
        [[(n.value, n.low, n.high) for n in line.values()] for line in numbers.values()], float
    )  # (R,T,3)
    means = _mean(scores)  # (R,3)
    ranked = [index for index in np.argsort(-means[:, 0], kind="stable") if np.isfinite(means[index, 0])]
    if not ranked:
        return "", []
    labels, (first, *others) = [row.label for row in numbers], ranked
    score, data = Number(means[first, 0]), f"on average over {len(tasks)} tasks"
    if len(tasks) == 1:
        score, data = Number(*scores[first, 0]), f"on {tasks[0]}"
    sentence = f"{measure}: {labels[first]} has {with_interval(score, decimals)} {data}"
    sentence += f", the highest of {len(ranked)} rows" if others else ""
    if partial := len(numbers) - len(ranked):
        sentence += f" ({partial} more without a score on every task)"
    if not others:
        return f"{sentence}.", []
    leads = difference(scores[first], scores[others])  # (R-1,T,3)
    mean_leads = _mean(leads)  # (R-1,3)
    caption = DIFFERENCES if np.isfinite(leads).all(axis=-1).any() else ""
    columns = [Column(task, decimals) for task in tasks]
    if len(tasks) > 1:
        columns.append(Column("all tasks", decimals))
        leads = np.concatenate([leads, mean_leads[:, None]], axis=1)
    lines = [(labels[row], *(Number(*lead) for lead in line)) for row, line in zip(others, leads, strict=True)]
    folded = len(lines) > MAX_UNFOLDED
    table = Table(f"Lead of {labels[first]}", [Column(ROW, None), *columns], lines, caption, folded)
    behind = f"{labels[others[0]]} is {with_interval(Number(*mean_leads[0]), decimals)} behind"
    close = [labels[row] for row, low in zip(others, mean_leads[:, 1], strict=True) if low <= 0]
    if not np.isfinite(mean_leads).all():
        ending = f"{behind}. Significance is unknown, because not all scores have intervals."
    elif not close:
        ending = f"It is significantly better than every other row: {behind}."
    else:
        more = f" and {len(close) - MAX_NAMED} more" if len(close) > MAX_NAMED else ""
        ending = f"The difference to {', '.join(close[:MAX_NAMED])}{more} is not significant: {behind}."
        if len(close) < len(others):
            ending += " It is significantly better than the other rows."
    return f"{sentence}. {ending}", [table]
