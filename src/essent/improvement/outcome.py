"""What comes out of an improvement: scores with intervals, the gain of each step, the answer, and their page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from essent.encoder.encoder import Encoder
from essent.report.parts import Column, Number, Report, Section, Table, short_name, short_paths
from essent.report.write import write_arranged
from essent.tasks.result import library_versions, plain

GOOD_TABLE = 0.85  # of the encoder's score, that a static table must keep to be the answer for speed or size
MEGABYTE = 1e6
SETTINGS = ("model", "texts", "data", "test", "budget", "goal", "seed", "recipe", "seconds")


@dataclass(frozen=True)
class Gain:
    """The gain of a step.

    Attributes:
        step: its name.
        by: what it did.
        difference, low, high: points over the best encoder before the step, with the 95 % interval.
        kept: whether its encoder is used from here on.
        seconds: its duration.
        note: what else a reader needs.
    """

    step: str
    by: str
    difference: float
    low: float
    high: float
    kept: bool
    seconds: float
    note: str = ""

    def summary(self) -> str:
        """The points and what brought them: "+19.8 [18.2, 21.0] by whitening"."""
        figures = f"{self.difference:+.1f} [{self.low:+.1f}, {self.high:+.1f}]"
        points = figures if self.low > 0 or self.high < 0 else f"no difference shown ({figures})"
        return f"{points} by {self.by}{'' if self.kept else ', not kept'}"


@dataclass(frozen=True)
class Output:
    """A saved encoder, or one that was only measured.

    Attributes:
        name: encoder, static or graph; of one that was only measured what it is.
        score, low, high: by the metric, ×100, with the 95 % interval.
        test: the same on the tests; None without tests.
        agreement: Spearman ×100 with the encoder's similarities on held-out texts.
        texts_per_second, bytes: None for what was only measured.
    """

    name: str
    score: float
    low: float
    high: float
    test: tuple[float, float, float] | None = None
    agreement: float | None = None
    texts_per_second: float | None = None
    bytes: int | None = None


@dataclass(frozen=True)
class Improved:
    """The outcome of an improvement.

    Attributes:
        folder: its folder.
        answer: which of encoder, static and graph serves the goal.
        why: a sentence about that.
        by: the metric; `by_labels` is whether labels were read.
        gains: of the steps that could change the encoder.
        results: the saved encoder, static table and graph, and what was measured beside them.
        before: the score of the user's model as it is, with its interval.
        notes: sentences that a reader needs.
        metadata: model, data, settings, plan, steps.
    """

    folder: Path
    answer: str
    why: str
    by: str
    by_labels: bool
    before: tuple[float, float, float]
    gains: tuple[Gain, ...]
    results: tuple[Output, ...]
    notes: tuple[str, ...]
    metadata: Mapping[str, Any]

    def __repr__(self) -> str:
        score = self.results[0].score
        return f"Improved({self.before[0]:.2f} -> {score:.2f} by {self.by}, answer {self.answer!r}, {self.folder})"

    def encoder(self, **options: Any) -> Encoder:
        """The saved encoder."""
        return Encoder(str(self.folder / "encoder"), **options)

    def summary(self) -> Iterator[str]:
        """What was gained, step by step, and the answer."""
        first = self.results[0]
        before = "{:.1f} [{:.1f}, {:.1f}]".format(*self.before)
        yield f"{first.score:.1f} [{first.low:.1f}, {first.high:.1f}] instead of {before} by {self.by}."
        if not self.by_labels:
            yield "These points are agreement with the recipes that teach, not a correlation with judgements."
        yield from (f"{gain.summary()}." for gain in self.gains)
        if not any(gain.kept for gain in self.gains):
            yield "Nothing was shown to be better than the model as given: only its speed and size are worth changing."
        yield f"{self.why} It is in {self.folder / self.answer}."

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        values = asdict(self)
        metadata = {**values.pop("metadata"), "versions": library_versions()}
        del values["folder"]
        return dict(plain({"format": "essent-improvement/1", **values, "about": metadata}))


def answer_of(goal: str, results: Mapping[str, Output]) -> tuple[str, str]:
    """Which result serves a goal, and why; times decide nothing."""
    encoder, static = results["encoder"], results.get("static")
    if goal == "quality":
        also = " The graph gives the same vectors, faster." if "graph" in results else ""
        return "encoder", f"For quality the answer is the encoder.{also}"
    share = 0.0 if static is None or encoder.score <= 0 else static.score / encoder.score
    if share >= GOOD_TABLE:
        return "static", f"For {goal} the answer is the static table: it keeps {100 * share:.0f} % of the score."
    lost = f"the static table keeps {100 * share:.0f} % of the score only" if static else "there is no static table"
    if goal == "speed" and "graph" in results:
        return "graph", f"For speed the answer is the graph: {lost}."
    return "encoder", f"For {goal} the answer is the encoder: {lost}."


# -- the page ---------------------------------------------------------------------------------------------------------


def write_page(improved: Improved, path: Path) -> None:
    """Write quality, speed and size, what each step gained, and what it rests on; see `essent.report.write_report`."""
    metadata = improved.metadata
    title = f"{short_name(str(metadata['model']))}, improved"
    caption = f"{metadata['texts'].partition(',')[0]}, budget {metadata['budget']}, measured by {improved.by}."
    sections = (_results(improved), _gains(improved), *_choices(improved), _sources(metadata))
    write_arranged(Report(title, sections, caption, tuple(map(short_paths, improved.summary()))), path)


def _results(improved: Improved) -> Section:
    on_test = improved.metadata["before_on_test"]
    tested = on_test is not None
    before = [Number(*improved.before), *([Number(*on_test)] if tested else [])]
    rows: list[tuple[str | Number, ...]] = [("as given", *before, Number(), Number(), Number())]
    for output in improved.results:
        scores = [Number(output.score, output.low, output.high), *([Number(*(output.test or ()))] if tested else [])]
        size = None if output.bytes is None else output.bytes / MEGABYTE
        rows.append((output.name, *scores, *map(Number, (output.agreement, output.texts_per_second, size))))
    columns = (
        Column("result", None),
        Column(improved.by, 2, "higher"),
        *([Column("on the test", 2, "higher")] if tested else []),
        Column("agrees with the encoder", 1),
        Column("texts a second", 0, "higher"),
        Column("MB", 1, "lower"),
    )
    caption = (
        "Scores ×100 with their 95 % interval. Agreement: how alike the similarities of random pairs of held-out texts "
        "are ranked (Spearman ×100). Speeds were measured on this machine, texts as they came."
    )
    return Section("Quality, speed and size", (Table("Results", columns, tuple(rows), caption),), notes=improved.notes)


def _gains(improved: Improved) -> Section:
    columns = ("step", None), ("what it did", None), ("points", 2), ("kept", None), ("seconds", 0)
    rows = []
    for gain in improved.gains:
        points, kept = Number(gain.difference, gain.low, gain.high), "yes" if gain.kept else "no"
        rows.append((gain.step, gain.by, points, kept, Number(gain.seconds)))
    caption = "Points over the best before the step, paired, with their 95 % interval."
    table = Table("Steps", tuple(Column(name, decimals) for name, decimals in columns), tuple(rows), caption)
    return Section("What was bought", (table,))


def _choices(improved: Improved) -> Iterator[Section]:
    """The first recipes of each search, and how they were judged."""
    for name, step in improved.metadata["steps"].items():
        if name.startswith("search"):
            columns = (Column("recipe", None), Column(step["criterion"], 2 if improved.by_labels else 4, "higher"))
            rows = tuple((recipe, Number(score)) for recipe, score in step["rows"])
            title = f"The first of {step['recipes']} recipes{' on the trained model' if name != 'search' else ''}"
            table = Table("Recipes", columns, rows, folded=True)
            yield Section(title, (table,), notes=(step["verdict"], *step["notes"]))


def _sources(metadata: Mapping[str, Any]) -> Section:
    settings = [
        (name, short_paths(", ".join(setting) if isinstance(setting := metadata[name], list) else str(setting)))
        for name in SETTINGS
    ]
    versions = tuple(library_versions().items())
    tables = (
        Table("Settings", (Column("setting", None), Column("value", None)), tuple(settings), folded=True),
        Table("Versions", (Column("library", None), Column("version", None)), versions, folded=True),
    )
    return Section("Where it comes from", tables)
