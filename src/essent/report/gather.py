"""Arrangement of results and leaderboards as a report: its sections, and its verdict about the best row."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING

from essent.errors import DataError, InputError
from essent.report.parts import (
    NO_MODEL,
    Bars,
    Block,
    Column,
    Key,
    Line,
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
    short_name,
    short_paths,
    with_interval,
)
from essent.report.sections import (
    ROW,
    board_section,
    flattened,
    geometry_section,
    heros_section,
    keep_best_bars,
    long_table,
    plain_section,
)
from essent.tasks.result import Result

if TYPE_CHECKING:
    from essent.selection.leaderboard import Leaderboard

AVERAGE = "avg"
NAMES = {"spearman": "Spearman ×100", "pearson": "Pearson ×100"}
MAX_NAMED = 3  # rows named in a sentence
MAX_UNFOLDED = 8  # lines of a table of differences
DIFFERENCES = (
    "First row minus each other row, with 95 % intervals computed from the intervals of both scores as if they were "
    "independent. Paired intervals on the same texts are narrower, so differences that are significant here remain so."
)
KINDS = {"heros": {"similarity", "baseline"}, "geometry": {"alignment", "uniformity"}}  # with their metrics
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
    sections = [  # the last two parts of folders only: a page is shared with others
        replace(
            section,
            title=short_paths(section.title),
            caption=short_paths(section.caption),
            notes=list(map(short_paths, section.notes)),
            verdict=short_paths(section.verdict),
        )
        for section in sections
    ]
    tasks = {result.task for result in results}
    counts = {"model": len(names.models), "row": len(names.rows), "task": len(tasks), "search": len(searches)}
    plurals = {"search": "searches"}
    counted = [f"{n} {name if n == 1 else plurals.get(name, f'{name}s')}" for name, n in counts.items() if n]
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
    """Yield sections: results with the same main score, or of the same task without one, share a section."""
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
            section = _scored_section(*key_names, group, rows)
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
    fitted: dict[Key, dict[str, None]] = {}
    data: dict[Line, None] = {}
    versions: dict[Line, None] = {}
    for result in results:
        provenance = {name: value for name, value in result.provenance.items() if value is not None}
        fitted_on = fitted.setdefault(key_of(provenance), {})
        if provenance.get("fitted_on"):
            fitted_on[str(provenance["fitted_on"])] = None
        source, digest = short_paths(str(provenance.get("source", ""))), str(provenance.get("sha256", ""))[:12]
        data[result.task, Number(result.n), source, digest] = None
        if isinstance(used := provenance.get("versions"), Mapping):
            versions.update({(str(name), str(version)): None for name, version in used.items()})
    rows = [
        (names.rows[model, recipe].label, names.models[model], short_paths(recipe), ", ".join(texts))
        for (model, recipe), texts in fitted.items()
    ]
    tables: list[tuple[str, Sequence[str], Iterable[Line]]] = [
        ("Rows", ("row", "model", "recipe", "fitted on"), rows),
        ("Data", ("task", "n", "source", "SHA-256"), data),
        ("Versions", ("library", "version"), versions),
    ]
    return Section(
        "Provenance",
        [
            Table(title, [Column(name, 0 if name == "n" else None) for name in columns], list(lines), folded=True)
            for title, columns, lines in tables
            if lines
        ],
    )


# -- results with one main score --------------------------------------------------------------------------------------


def _scored_section(metric: str, subset: str, group: Sequence[Result], rows: ResultsByRow) -> Section:
    """Return a table of rows × tasks, a bar chart per task, and folded tables of all other scores."""
    tasks = list(dict.fromkeys(result.task for result in group))
    scores = {row: {task: _main(line.get(task), deviations=True) for task in tasks} for row, line in rows.items()}
    decimals = decimals_for(number.value for line in scores.values() for number in line.values())
    columns = tasks
    if len(tasks) > 1:
        columns = [*tasks, AVERAGE]
        for line in scores.values():
            values = [number.value for number in line.values() if number.value is not None]
            line[AVERAGE] = Number(sum(values) / len(values)) if len(values) == len(tasks) else Number()
    name = NAMES.get(metric, metric.capitalize()) + ("" if subset == "all" else f", {subset}")
    heads = [Column(ROW, None), *(Column(column, decimals, "higher") for column in columns)]
    lines: list[Line] = [(row.label, *line.values()) for row, line in scores.items()]
    shared = ends_of(number for line in scores.values() for number in line.values())
    charts = []
    for column in columns:
        bars = [(row, line[column]) for row, line in scores.items() if line[column].value is not None]
        if bars:  # for several tasks, the page draws the mean
            show = "page" if column == columns[-1] else "picture"
            charts.append(keep_best_bars(Bars(column, bars, decimals, "", shared, show)))
    verdict, differences = _verdict(name, tasks, rows, decimals)
    keys = [set(result.metrics[metric]) for result in group]
    kinds_of_lines = {
        "confidence intervals": any({"low", "high"} <= names for names in keys),
        "± one standard deviation": any("std" in names and "low" not in names for names in keys),
    }
    present = " or ".join(kind for kind, is_present in kinds_of_lines.items() if is_present)
    caption = f"Lines on the bars: {present}." if present else ""
    blocks = [Table("Scores", heads, lines), *differences, *charts, *_secondary_tables(rows)]
    return Section(name, blocks, caption, verdict=verdict)


def _main(result: Result | None, *, deviations: bool) -> Number:
    """Return the main score with its confidence interval, or with `deviations` ± one standard deviation."""
    if result is None or result.main is None:
        return Number()
    score, scores = result.main_score, result.metrics[result.main[0]]
    low, high = scores.get("low"), scores.get("high")
    if deviations and "std" in scores and None in (low, high):
        low, high = score - scores["std"], score + scores["std"]
    return Number(score, low, high)


def _secondary_tables(rows: ResultsByRow) -> list[Block]:
    """Return tables of the other metrics and of every subset."""
    other_scores, subsets = [], []
    for row, tasks in rows.items():
        for result in tasks.values():
            main_metric, main_subset = result.main or ("", "")
            metrics = {metric: dict(scores) for metric, scores in result.metrics.items()}
            for name in (main_subset, "low", "high", "std"):  # in the main table
                metrics.get(main_metric, {}).pop(name, None)
            other_scores.append(((row.label, result.task), result.n, flattened(metrics)))
            for subset, scores in result.subsets.items():
                remaining = {name: score for name, score in scores.items() if name != "n"}
                subsets.append(((row.label, result.task, subset), scores.get("n"), remaining))
    tables: list[Block] = []
    if any(scores for *_, scores in other_scores):
        tables.append(long_table("Other scores", [ROW, "task"], other_scores))
    if subsets:
        tables.append(long_table("Subsets", [ROW, "task", "subset"], subsets))
    return tables


# -- the verdict ------------------------------------------------------------------------------------------------------


def difference(first: Number, second: Number) -> Number:
    """Subtract two scores; the interval is Zou and Donner's (2008) for two independent measurements."""
    if first.value is None or second.value is None:
        return Number()
    lead = first.value - second.value
    if first.interval is None or second.interval is None:
        return Number(lead)
    (low, high), (second_low, second_high) = first.interval, second.interval
    below = math.hypot(first.value - low, second_high - second.value)
    return Number(lead, lead - below, lead + math.hypot(high - first.value, second.value - second_low))


def _mean(numbers: Sequence[Number]) -> Number:
    """Return the mean of independent numbers, with an interval if all have one."""
    values = [number.value for number in numbers if number.value is not None]
    mean, total = sum(values) / len(numbers), len(numbers)
    intervals = [number.interval for number in numbers if number.interval is not None]
    if len(intervals) < total:
        return Number(mean)
    below = math.hypot(*(value - low for value, (low, _) in zip(values, intervals, strict=True))) / total
    above = math.hypot(*(high - value for value, (_, high) in zip(values, intervals, strict=True))) / total
    return Number(mean, mean - below, mean + above)


def _verdict(name: str, tasks: Sequence[str], rows: ResultsByRow, decimals: int) -> tuple[str, list[Table]]:
    """Return the verdict about the best of the rows with every task, and the table of differences to the others."""
    scores = {row: [_main(results.get(task), deviations=False) for task in tasks] for row, results in rows.items()}
    complete = {row: line for row, line in scores.items() if all(number.value is not None for number in line)}
    if not complete:
        return "", []
    means = {row: _mean(line).value or 0.0 for row, line in complete.items()}
    first, *others = sorted(complete, key=lambda row: -means[row])
    score, data = Number(means[first]), f"on average over {len(tasks)} tasks"
    if len(tasks) == 1:
        score, data = complete[first][0], f"on {tasks[0]}"
    sentence = f"{name}: {first.label} has {with_interval(score, decimals)} {data}"
    sentence += f", the highest of {len(complete)} rows" if others else ""
    if partial := len(scores) - len(complete):
        sentence += f" ({partial} more {'lacks' if partial == 1 else 'lack'} a score on some task)"
    if not others:
        return f"{sentence}.", []
    by_task = {row: list(map(difference, complete[first], complete[row])) for row in others}
    leads = {row: _mean(numbers) for row, numbers in by_task.items()}
    columns = [Column(ROW, None), *(Column(task, decimals) for task in tasks)]
    lines: list[Line] = [(row.label, *numbers) for row, numbers in by_task.items()]
    if len(tasks) > 1:
        columns.append(Column("all tasks", decimals))
        lines = [(*line, leads[row]) for row, line in zip(others, lines, strict=True)]
    caption = DIFFERENCES if any(number.interval for numbers in by_task.values() for number in numbers) else ""
    table = Table(f"Lead of {first.label}", columns, lines, caption, folded=len(lines) > MAX_UNFOLDED)
    behind = f"{others[0].label} is {with_interval(leads[others[0]], decimals)} behind"
    close = [row.label for row, number in leads.items() if number.low is not None and number.low <= 0]
    beaten = len(others) - len(close)
    if any(number.interval is None for number in leads.values()):
        ending = f"{behind}. Significance is unknown, because not all scores have intervals."
    elif not close:
        beaten_rows = {1: "the other", 2: "both others"}.get(beaten, f"all {beaten} others")
        ending = f"It is significantly better than {beaten_rows}: {behind}."
    else:
        more = f" and {len(close) - MAX_NAMED} more" if len(close) > MAX_NAMED else ""
        ending = f"The difference to {', '.join(close[:MAX_NAMED])}{more} is not significant: {behind}."
        if beaten:
            remaining = "row" if beaten == 1 else f"{beaten} rows"
            ending += f" It is significantly better than the remaining {remaining}."
    return f"{sentence}. {ending}", [table]
