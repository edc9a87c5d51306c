"""The page of an improvement: quality, speed and size of the results, the gain of each step, settings and versions."""

from __future__ import annotations

from pathlib import Path

from essent.improvement.results import Improved, Output
from essent.report.parts import Column, Line, Number, Report, Section, Table, short_paths
from essent.report.write import write_arranged
from essent.tasks.result import library_versions, short_name

MEGABYTE = 1e6
SETTINGS = ("model", "texts", "data", "test", "budget", "goal", "use", "seed", "recipe", "seconds")


def write_page(improved: Improved, path: Path) -> None:
    """Write the report: quality, speed and size, the gain and duration of each step, and the settings."""
    metadata, before_on_test = improved.metadata, improved.metadata["before_on_test"]
    columns = (
        Column("result", None),
        Column(improved.by, 2, "higher"),
        *([Column("on the test", 2, "higher")] if before_on_test else []),
        Column("agrees with the encoder", 1),
        Column("texts per second", 0, "higher"),
        Column("MB", 1, "lower"),
    )
    rows: list[Line] = []
    for output in (Output("as it is", *improved.before, before_on_test), *improved.results):
        scores = [Number(output.score, output.low, output.high), *([Number(*output.test)] if output.test else [])]
        megabytes = None if output.bytes is None else output.bytes / MEGABYTE
        rows.append((output.name, *scores, *map(Number, (output.agreement, output.texts_per_second, megabytes))))
    caption = (
        "Scores ×100 with their 95 % interval. Agreement: Spearman ×100 between the similarities of random pairs of "
        "held-out texts. Speeds were measured on this machine, on texts of mixed length."
    )
    results = Table("Results", columns, tuple(rows), caption)
    columns = (
        *(Column(name, None) for name in ("step", "what it did", "retained")),
        Column("points"),
        Column("seconds", 0),
    )
    rows = []
    for gain in improved.gains:
        points, retained = Number(gain.difference, gain.low, gain.high), "yes" if gain.kept else "no"
        rows.append((gain.step, gain.by, retained, points, Number(gain.seconds)))
    caption = "Points gained over the best encoder before the step, paired, with their 95 % interval."
    gains = [Table("Steps", columns, tuple(rows), caption)] if rows else []
    durations = [(name, Number(values["seconds"])) for name, values in metadata["steps"].items()]
    columns = (Column("step", None), Column("seconds", 0))
    gains.append(Table("Time", columns, durations, f"Of a budget of {metadata['budget']}.", folded=True))
    values = {name: ", ".join(text) if isinstance(text := metadata[name], list) else str(text) for name in SETTINGS}
    settings = tuple((name, short_paths(text)) for name, text in {**values, **library_versions()}.items())
    sections = (
        Section("Quality, speed and size", (results,), notes=improved.notes),
        Section("Gain of each step", gains),
        Section("Settings and versions", (Table("Settings", (Column("name", None), Column("value", None)), settings),)),
    )
    title = f"{short_name(str(metadata['model']))}, improved"
    about = f"{metadata['texts'].partition(',')[0]}, budget {metadata['budget']}, measured by {improved.by}."
    write_arranged(Report(title, sections, about, tuple(map(short_paths, improved.overview))), path)
