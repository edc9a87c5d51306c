"""The report of an improvement as a page: quality, speed and size, what each step bought, and what it rests on."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from essent.improvement.outcome import Improved, Result
from essent.report.labels import short_name, short_paths
from essent.report.parts import Column, Number, Point, Points, Report, Section, Table
from essent.report.write import write_arranged
from essent.tasks.result import library_versions

REPORT = "report.html"
MEGABYTE = 1e6
AREAS = (0.6, 3.0)  # of the marks, from the smallest result to the largest


def write_page(made: Improved, path: Path) -> None:
    """Write the page; see `essent.report.write_report`."""
    title = f"{short_name(str(made.about['model']))}, improved"
    about = f"{made.about['texts'].partition(',')[0]}, budget {made.about['budget']}, measured by {made.by}."
    sections = [_results(made), _gains(made), *_searches(made), _sources(made)]
    write_arranged(Report(title, tuple(sections), about, tuple(map(short_paths, made.in_words()))), path)


def _results(made: Improved) -> Section:
    columns = [Column("result", None), Column(made.by, 2, "higher")]
    columns += [Column("on the test", 2, "higher")] if made.results[0].test else []
    columns += [
        Column("agrees with the encoder", 1),
        Column("texts a second", 0, "higher"),
        Column("MB", 1, "lower"),
    ]
    given = [Number(*made.before)]
    if made.results[0].test:
        before = made.about["before_on_test"]
        given.append(Number(*before))
    rows: list[tuple[str | Number, ...]] = [("as given", *given, Number(), Number(), Number())]
    for result in made.results:
        line: list[str | Number] = [result.name, Number(result.score, result.low, result.high)]
        line += [Number(*(result.test or ()))] if made.results[0].test else []
        size = None if result.bytes is None else result.bytes / MEGABYTE
        line += [Number(result.agreement), Number(result.texts_per_second), Number(size)]
        rows.append(tuple(line))
    about = (
        "Scores ×100 with their 95 % interval. Agreement: how alike the similarities of random pairs of held-out texts "
        "are ranked (Spearman ×100). Speeds were measured on this machine, texts as they came."
    )
    table = Table("Results", tuple(columns), tuple(rows), about)
    return Section("Quality, speed and size", (_picture(made), table), notes=made.notes)


def _picture(made: Improved) -> Points:
    """Quality over speed; the mark's area grows with the size."""
    drawn = [result for result in made.results if result.texts_per_second and math.isfinite(result.score)]
    largest = max((result.bytes or 1 for result in drawn), default=1)
    points = [
        Point(
            _label(result),
            math.log10(result.texts_per_second or 1),
            result.score,
            n,
            (result.low, result.high),
            AREAS[0] + (AREAS[1] - AREAS[0]) * ((result.bytes or 0) / largest) ** 0.5,
        )
        for n, result in enumerate(drawn)
    ]
    about = "Higher is better, further right is faster, a smaller mark takes less room. The lines are 95 % intervals."
    return Points("Quality by speed", "texts a second, powers of ten", made.by, tuple(points), 2, about)


def _label(result: Result) -> str:
    return f"{result.name}: {result.texts_per_second:,.0f} texts a second, {(result.bytes or 0) / MEGABYTE:,.1f} MB"


def _gains(made: Improved) -> Section:
    columns = (
        Column("step", None),
        Column("what it did", None),
        Column("points", 2),
        Column("kept", None),
        Column("seconds", 0),
    )
    rows = tuple(
        (
            gain.step,
            gain.by,
            Number(gain.difference, gain.low, gain.high),
            "yes" if gain.kept else "no",
            Number(gain.seconds),
        )
        for gain in made.gains
    )
    about = "Points over the best before the step, paired, with their 95 % interval."
    return Section("What was bought", (Table("Steps", columns, rows, about),))


def _searches(made: Improved) -> list[Section]:
    """The first rows of each search, the trials, and how they were judged."""
    found = []
    for name, step in made.about["steps"].items():
        if name in ("search", "search-again"):
            columns = (Column("recipe", None), Column(step["criterion"], 2 if made.by_labels else 4, "higher"))
            rows = tuple((recipe, Number(score)) for recipe, score in step["rows"])
            title = f"The first of {step['recipes']} recipes{' on the trained model' if name != 'search' else ''}"
            found.append(
                Section(title, (Table("Recipes", columns, rows, folded=True),), notes=(step["verdict"], *step["notes"]))
            )
        elif name == "trials":
            heads = (Column("trial", None), Column("after steps", 0), Column(made.by, 2, "higher"))
            lines = tuple((str(n), Number(steps), Number(*scores)) for n, steps, *scores in step["rows"])
            settings = made.about["plan"]["training"]["trials"]
            notes = tuple(f"Trial {n}: {_words(one)}" for n, one in enumerate(settings, start=1))
            found.append(Section("Trials of training", (Table("Trials", heads, lines),), notes=notes))
    return found


def _words(settings: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in settings.items())


def _sources(made: Improved) -> Section:
    names: Sequence[str] = ("model", "texts", "data", "test", "budget", "goal", "seed", "match_score", "batch_size")
    about = made.about
    rows = [
        (name, short_paths(", ".join(value) if isinstance(value := about.get(name), list) else str(value)))
        for name in names
    ]
    rows += [("recipe", about["recipe"]), ("seconds", f"{about['seconds']:.0f}")]
    columns = (Column("setting", None), Column("value", None))
    versions = tuple((name, str(value)) for name, value in library_versions().items())
    return Section(
        "Where it comes from",
        (
            Table("Settings", columns, tuple(rows), folded=True),
            Table("Versions", (Column("library", None), Column("version", None)), versions, folded=True),
        ),
    )
