"""Arrangement of results and leaderboards as a report: its sections, and its verdict about the best row."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from essent.errors import DataError, InputError
from essent.report.parts import (
    NO_MODEL,
    Block,
    Column,
    Key,
    Line,
    Names,
    Number,
    Report,
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
    Row,
    bar_chart,
    board_section,
    by_row,
    flattened,
    geometry_section,
    heros_section,
    long_table,
    notes_of,
    plain_section,
)
from essent.tasks.result import Result

if TYPE_CHECKING:
    from essent.selection.leaderboard import Leaderboard

AVERAGE = "avg"
NAMES = {"spearman": "Spearman ×100", "pearson": "Pearson ×100"}
MAX_NAMED = 3  # rows named in a sentence
HOW = (
    "First row minus each other row, with 95 % intervals computed from the intervals of both scores as if they were "
    "independent. Paired intervals on the same texts are narrower, so differences that are significant here remain so."
)


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
    results = _disambiguated(results)
    names = names_of(
        (key_of(result.provenance) for result in results),
        (str(board.provenance.get("model") or NO_MODEL) for board in searches),
    )
    groups: dict[tuple[str, ...], list[Result]] = {}
    for result in results:
        groups.setdefault(_kind(result), []).append(result)
    sections = [SECTIONS[kind[0]](kind, group, names) for kind, group in groups.items()]
    sections += [board_section(board, names) for board in searches]
    sections += [_sources(results, names)] if results else []
    sections = [  # the last two parts of folders only: a page is shared with others
        replace(
            section,
            title=short_paths(section.title),
            about=short_paths(section.about),
            notes=tuple(map(short_paths, section.notes)),
            verdict=tuple(map(short_paths, section.verdict)),
        )
        for section in sections
    ]
    tasks = {result.task for result in results}
    counts: dict[str, Collection[Any]] = {"model": names.models, "row": names.rows, "task": tasks, "search": searches}
    counted = [_counted(len(things), word) for word, things in counts.items() if things]
    verdict = tuple(sentence for section in sections for sentence in section.verdict)
    return Report(title, tuple(sections), f"{', '.join(counted)}.", verdict)


def _counted(count: int, word: str) -> str:
    ending = "" if count == 1 else "es" if word.endswith("ch") else "s"
    return f"{count} {word}{ending}"


def _disambiguated(results: Sequence[Result]) -> list[Result]:
    """Rename tasks of the same name on different data, such as files of the same name in two folders."""
    sources: dict[str, dict[str, str]] = {}
    for result in results:
        if (digest := result.provenance.get("sha256")) is not None:
            source = short_name(_text(result.provenance.get("source")))
            sources.setdefault(result.task, {}).setdefault(str(digest), source)
    renamed = []
    for result in results:
        files, digest = sources.get(result.task, {}), str(result.provenance.get("sha256"))
        if len(files) > 1 and digest in files:
            distinct = len(set(files.values())) == len(files) and all(files.values())
            name = f"{result.task} ({files[digest] if distinct else digest[:8]})"
            note = f"One of {len(files)} data sets with the name {result.task!r}."
            result = replace(result, task=name, notes=(*result.notes, note))
        renamed.append(result)
    return renamed


def _kind(result: Result) -> tuple[str, ...]:
    """Return the section of a result: results with the same main score, or of the same task without one, share it."""
    if result.main is not None:
        return ("main", *result.main)
    if {"similarity", "baseline"} <= set(result.metrics):
        return ("heros", result.task)
    return ("geometry" if {"alignment", "uniformity"} <= set(result.metrics) else "other", result.task)


def _sources(results: Sequence[Result], names: Names) -> Section:
    """Return the section of models and recipes, data with their digests, and versions."""
    fitted: dict[Key, dict[str, None]] = {}
    data: dict[Line, None] = {}
    versions: dict[Line, None] = {}
    for result in results:
        provenance = result.provenance
        words = fitted.setdefault(key_of(provenance), {})
        if word := _text(provenance.get("fitted_on")):
            words[word] = None
        digest = str(provenance.get("sha256") or "")[:12]
        data[result.task, Number(result.n), short_paths(_text(provenance.get("source"))), digest] = None
        if isinstance(used := provenance.get("versions"), Mapping):
            versions.update({(str(name), str(version)): None for name, version in used.items()})
    rows = [(names.rows[k], names.models[k[0]], short_paths(k[1]), ", ".join(words)) for k, words in fitted.items()]
    contents: dict[str, tuple[list[Column], Collection[Line]]] = {
        "Rows": ([Column(name, None) for name in ("row", "model", "recipe", "fitted on")], rows),
        "Data": ([Column("task", None), Column("n", 0), Column("source", None), Column("SHA-256", None)], data),
        "Versions": ([Column("library", None), Column("version", None)], versions),
    }
    tables = [
        Table(title, tuple(columns), tuple(lines), folded=True) for title, (columns, lines) in contents.items() if lines
    ]
    return Section("Provenance", tuple(tables))


def _text(value: Any) -> str:
    return "" if value is None else str(value)


# -- results with one main score --------------------------------------------------------------------------------------


def scored_section(kind: tuple[str, ...], group: Sequence[Result], names: Names) -> Section:
    """Return a table of rows × tasks, a bar chart per task, and folded tables of all other scores."""
    _, metric, subset = kind
    rows = by_row(group, names)
    tasks = list(dict.fromkeys(result.task for result in group))
    columns = [*tasks, AVERAGE] if len(tasks) > 1 else tasks
    scores = {row: {task: _main(results.get(task), deviations=True) for task in tasks} for row, results in rows.items()}
    decimals = decimals_for(number.value for line in scores.values() for number in line.values())
    if len(tasks) > 1:
        for line in scores.values():
            values = [number.value for number in line.values() if number.value is not None]
            line[AVERAGE] = Number(sum(values) / len(values)) if len(values) == len(tasks) else Number()
    name = NAMES.get(metric, metric.capitalize()) + ("" if subset == "all" else f", {subset}")
    heads = (Column(ROW, None), *(Column(column, decimals, "higher") for column in columns))
    lines: list[Line] = [(row.label, *line.values()) for row, line in scores.items()]
    reach = ends_of(number for line in scores.values() for number in line.values())
    charts = []
    for column in columns:
        bars = {row: line[column] for row, line in scores.items() if line[column].known is not None}
        if bars:
            on = "page" if column == columns[-1] else "picture"  # for several tasks, the page draws the mean
            charts.append(bar_chart(column, bars, decimals, reach, values_on=on))
    verdict, lead = _lead(name, tasks, rows, decimals)
    beside = [set(result.metrics[metric]) for result in group]
    line_kinds = {
        "confidence intervals": any({"low", "high"} <= scores for scores in beside),
        "± one standard deviation": any("std" in scores and "low" not in scores for scores in beside),
    }
    shown_kinds = " or ".join(kind for kind, there in line_kinds.items() if there)
    caption = f"Lines on the bars: {shown_kinds}." if shown_kinds else ""
    blocks = (Table("Scores", heads, tuple(lines)), *lead, *charts, *_secondary_tables(rows))
    return Section(name, blocks, caption, notes_of(group, rows), verdict)


def _main(result: Result | None, *, deviations: bool) -> Number:
    """Return the main score with its confidence interval, or with `deviations` ± one standard deviation."""
    if result is None or result.main is None:
        return Number()
    score, beside = result.main_score, result.metrics[result.main[0]]
    low, high = beside.get("low"), beside.get("high")
    if deviations and "std" in beside and None in (low, high):
        low, high = score - beside["std"], score + beside["std"]
    return Number(score, low, high)


def _secondary_tables(rows: Mapping[Row, Mapping[str, Result]]) -> list[Block]:
    """Return tables of the other metrics and of every subset."""
    other_scores, subsets = [], []
    for row, tasks in rows.items():
        for result in tasks.values():
            metric, subset = result.main or ("", "")
            in_table = {(metric, name) for name in (subset, "low", "high", "std")}
            metrics = {
                name: {part: score for part, score in scores.items() if (name, part) not in in_table}
                for name, scores in result.metrics.items()
            }
            other_scores.append(((row.label, result.task), result.n, flattened(metrics)))
            for subset, scores in result.subsets.items():
                scores = dict(scores)
                subsets.append(((row.label, result.task, subset), scores.pop("n", None), scores))
    tables = [long_table("Other scores", [ROW, "task"], other_scores)] if any(line[2] for line in other_scores) else []
    return [*tables, *([long_table("Subsets", [ROW, "task", "subset"], subsets)] if subsets else [])]


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
    mean, count = sum(values) / len(numbers), len(numbers)
    intervals = [number.interval for number in numbers if number.interval is not None]
    if len(intervals) < count:
        return Number(mean)
    below = math.hypot(*(value - low for value, (low, _) in zip(values, intervals, strict=True))) / count
    above = math.hypot(*(high - value for value, (_, high) in zip(values, intervals, strict=True))) / count
    return Number(mean, mean - below, mean + above)


def _lead(
    name: str, tasks: Sequence[str], rows: Mapping[Row, Mapping[str, Result]], decimals: int
) -> tuple[tuple[str, ...], list[Table]]:
    """Return the verdict about the best of the rows with every task, and the table of differences to the others."""
    scores = {row: [_main(results.get(task), deviations=False) for task in tasks] for row, results in rows.items()}
    complete = {row: line for row, line in scores.items() if all(number.known is not None for number in line)}
    if not complete:
        return (), []
    means = {row: _mean(line).value or 0.0 for row, line in complete.items()}
    first, *behind = sorted(complete, key=lambda row: -means[row])
    score = complete[first][0] if len(tasks) == 1 else Number(means[first])
    on = f"on {tasks[0]}" if len(tasks) == 1 else f"on average over {len(tasks)} tasks"
    sentence = f"{name}: {first.label} has {with_interval(score, decimals)} {on}"
    sentence += f", the highest of {len(complete)} rows" if behind else ""
    if partial := len(scores) - len(complete):
        sentence += f" ({partial} more {'lacks' if partial == 1 else 'lack'} a score on some task)"
    if not behind:
        return (f"{sentence}.",), []
    gaps = {row: list(map(difference, complete[first], complete[row])) for row in behind}
    leads = {row: _mean(line) for row, line in gaps.items()}
    columns = [ROW, *tasks, *(["all tasks"] if len(tasks) > 1 else [])]
    heads = [Column(column, decimals if index else None) for index, column in enumerate(columns)]
    cells: dict[Row, Line] = {row: (row.label, *gaps[row], leads[row]) for row in behind}
    lines = [cells[row][: len(columns)] for row in behind]
    caption = HOW if any(number.interval for line in gaps.values() for number in line) else ""
    table = Table(f"Lead of {first.label}", tuple(heads), tuple(lines), caption, folded=len(lines) > 8)
    ahead = f"{behind[0].label} is {with_interval(leads[behind[0]], decimals)} behind"
    close = [row.label for row, number in leads.items() if number.low is not None and number.low <= 0]
    beaten = len(behind) - len(close)
    if any(number.interval is None for number in leads.values()):
        ending = f"{ahead}. Significance is unknown, because not all scores have intervals."
    elif not close:
        others = {1: "the other", 2: "both others"}.get(beaten, f"all {beaten} others")
        ending = f"It is significantly better than {others}: {ahead}."
    else:
        more = f" and {len(close) - MAX_NAMED} more" if len(close) > MAX_NAMED else ""
        ending = f"The difference to {', '.join(close[:MAX_NAMED])}{more} is not significant: {ahead}."
        if beaten:
            remaining = "row" if beaten == 1 else f"{beaten} rows"
            ending += f" It is significantly better than the remaining {remaining}."
    return (f"{sentence}. {ending}",), [table]


SECTIONS = {"main": scored_section, "heros": heros_section, "geometry": geometry_section, "other": plain_section}
