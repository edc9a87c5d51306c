"""Results and leaderboards to a report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from essent.errors import DataError, InputError
from essent.report.labels import NO_MODEL, Key, Names, key_of, names_of, short_name, short_paths
from essent.report.lead import in_words, lead_of, lead_table
from essent.report.measured import geometry_section, heros_section, plain_section
from essent.report.parts import Block, Column, Line, Number, Report, Section, Table, decimals_for, ends_of
from essent.report.rows import ROW, Row, bar_chart, by_row, flattened, label_of, long_table, notes_of
from essent.tasks.result import Result

if TYPE_CHECKING:
    from essent.selection.leaderboard import Leaderboard


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


def gather(
    results: Sequence[Result], searches: Sequence[Leaderboard] = (), title: str = "Sentence embeddings"
) -> Report:
    """Arrange results and leaderboards as a report.

    Raises:
        InputError: nothing to report.
        DataError: a score that is no number.
    """
    if not results and not searches:
        raise InputError("A report needs at least one result or leaderboard.")
    for result in results:
        _check_numbers(result)
    results = told_apart(results)
    names = names_of(
        (key_of(result.provenance) for result in results),
        (str(board.provenance.get("model") or NO_MODEL) for board in searches),
    )
    groups: dict[tuple[str, ...], list[Result]] = {}
    for result in results:
        groups.setdefault(_kind(result), []).append(result)
    sections = [SECTIONS[kind[0]](kind, group, names) for kind, group in groups.items()]
    if searches:
        from essent.report.boards import board_section

        sections += [board_section(board, names) for board in searches]
    if results:
        sections.append(_sources(results, names))
    sections = [_without_folders(section) for section in sections]
    verdict = tuple(sentence for section in sections for sentence in section.verdict)
    return Report(title, tuple(sections), _counted(results, searches, names), verdict)


def told_apart(results: Sequence[Result]) -> list[Result]:
    """Tasks of one name that stand for different data get names of their own: two files may be called alike."""
    sources: dict[str, dict[str, str]] = {}
    for result in results:
        if (digest := result.provenance.get("sha256")) is not None:
            place = short_name(_word(result.provenance.get("source")))
            sources.setdefault(result.task, {}).setdefault(str(digest), place)
    renamed = []
    for result in results:
        found = sources.get(result.task, {})
        digest = str(result.provenance.get("sha256"))
        if len(found) > 1 and digest in found:
            own = len(set(found.values())) == len(found) and all(found.values())
            name = f"{result.task} ({found[digest] if own else digest[:8]})"
            note = f"One of {len(found)} data sets of the name {result.task!r}."
            result = replace(result, task=name, notes=(*result.notes, note))
        renamed.append(result)
    return renamed


def _without_folders(section: Section) -> Section:
    """Its texts with folders and files by their last two names: a page is sent to others."""
    return replace(
        section,
        title=short_paths(section.title),
        about=short_paths(section.about),
        notes=tuple(map(short_paths, section.notes)),
        verdict=tuple(map(short_paths, section.verdict)),
    )


def _counted(results: Sequence[Result], searches: Sequence[Leaderboard], names: Names) -> str:
    tasks = len({result.task for result in results})
    counts = ((len(names.models), "model"), (len(names.rows), "row"), (tasks, "task"), (len(searches), "search"))
    plural = {"search": "searches"}
    words = [f"{n} {word if n == 1 else plural.get(word, word + 's')}" for n, word in counts if n]
    return ", ".join(words) + "."


def _check_numbers(result: Result) -> None:
    for scores in (*result.metrics.values(), *result.subsets.values()):
        for name, value in scores.items():
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                raise DataError(f"{result.task}: the score {name!r} is {value!r}, which is no number.")


def _kind(result: Result) -> tuple[str, ...]:
    """Results of one kind share a section: those with one main score, those of one task without."""
    if result.main is not None:
        return ("main", *result.main)
    if {"similarity", "baseline"} <= set(result.metrics):
        return ("heros", result.task)
    if {"alignment", "uniformity"} <= set(result.metrics):
        return ("geometry", result.task)
    return ("other", result.task)


SECTIONS = {"main": scored_section, "heros": heros_section, "geometry": geometry_section, "other": plain_section}


# -- where it comes from ----------------------------------------------------------------------------------------------


def _sources(results: Sequence[Result], names: Names) -> Section:
    """Rows with their models and recipes, data with their digests, versions."""
    fitted: dict[Key, dict[str, None]] = {}
    for result in results:
        found = fitted.setdefault(key_of(result.provenance), {})
        if (word := _word(result.provenance.get("fitted_on"))) != "":
            found[word] = None
    named = Table(
        "Rows",
        tuple(Column(name, None) for name in ("row", "model", "recipe", "fitted on")),
        tuple(
            (names.rows[key], names.models[key[0]], short_paths(key[1]), ", ".join(words))
            for key, words in fitted.items()
        ),
        folded=True,
    )
    data: dict[Line, None] = {}
    versions: dict[Line, None] = {}
    for result in results:
        about = result.provenance
        digest = str(about.get("sha256") or "")[:12]
        data[result.task, Number(result.n), short_paths(_word(about.get("source"))), digest] = None
        if isinstance(used := about.get("versions"), Mapping):
            versions.update({(str(name), str(value)): None for name, value in used.items()})
    columns = (Column("task", None), Column("n", 0), Column("source", None), Column("SHA-256", None))
    tables = [named, Table("Data", columns, tuple(data), folded=True)]
    if versions:
        tables.append(
            Table("Versions", (Column("library", None), Column("version", None)), tuple(versions), folded=True)
        )
    return Section("Where it comes from", tuple(tables))


def _word(value: Any) -> str:
    return "" if value is None else str(value)
