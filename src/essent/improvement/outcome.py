"""The results of an improvement: scores with intervals, the gain of each step, the answer, and the report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from essent.encoder.encoder import Encoder
from essent.report.parts import Column, Number, Report, Section, Table, short_name, short_paths
from essent.report.write import write_arranged
from essent.tasks.result import library_versions, plain

GOOD_TABLE = 0.85  # minimum share of the encoder's score for a static table to be the answer for speed or size
MEGABYTE = 1e6
SETTINGS = ("model", "texts", "data", "test", "budget", "goal", "seed", "recipe", "seconds")


@dataclass(frozen=True)
class Gain:
    """The gain of a step.

    Attributes:
        step: its name.
        by: what the step changed.
        difference, low, high: points gained over the best encoder before the step, with the 95 % interval.
        kept: whether the step's encoder is used from here on.
        seconds: duration.
        note: further information.

    Example:
        >>> from essent.improvement import Gain
        >>> gain = Gain("search", "recipe first-last | whiten", 19.8, 18.2, 21.0, kept=True, seconds=4.2)
        >>> gain.summary()
        '+19.8 [+18.2, +21.0] by recipe first-last | whiten'
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
        """Return the points and their cause: "+19.8 [+18.2, +21.0] by recipe first-last | whiten"."""
        figures = f"{self.difference:+.1f} [{self.low:+.1f}, {self.high:+.1f}]"
        points = figures if self.low > 0 or self.high < 0 else f"no significant difference ({figures})"
        return f"{points} by {self.by}{'' if self.kept else ', discarded'}"


@dataclass(frozen=True)
class Output:
    """A saved encoder, or an encoder that was only measured.

    Attributes:
        name: encoder, static or graph; for one that was only measured, its description.
        score, low, high: score ×100 by the metric, with the 95 % interval.
        test: the same on the tests; None without tests.
        agreement: Spearman ×100 with the encoder's similarities on held-out texts.
        texts_per_second, bytes: speed and size on disk; None if it was only measured.

    Example:
        >>> from pathlib import Path
        >>> from essent import improve
        >>> texts = Path("texts.txt").read_text(encoding="utf-8").splitlines()
        >>> improved = improve("my-mlm", texts, "pairs.jsonl", output="improved", budget="1s")
        >>> output = improved.results[0]
        >>> output.name, output.low < output.score < output.high
        ('encoder', True)
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
    """The results of an improvement.

    Attributes:
        folder: the output folder.
        answer: which of encoder, static and graph is best for the goal.
        why: the reason, in one sentence.
        by: name of the metric.
        by_labels: whether the metric reads labels.
        before: score of the user's model as it is, with its interval.
        gains: one per step that could change the encoder.
        results: the saved encoder, static table and graph, and the encoders that were only measured.
        notes: sentences that readers of the scores need.
        metadata: model, data, settings, plan, steps.

    Example:
        >>> from pathlib import Path
        >>> from essent import improve
        >>> texts = Path("texts.txt").read_text(encoding="utf-8").splitlines()
        >>> improved = improve("my-mlm", texts, "pairs.jsonl", output="improved", budget="1s")
        >>> improved.answer, improved.by, improved.gains[0].step
        ('encoder', 'spearman of pairs', 'search')
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
        """Load the saved encoder; `options` are SentenceTransformer's keyword arguments."""
        return Encoder(str(self.folder / "encoder"), **options)

    def summary(self) -> Iterator[str]:
        """Yield the gains, step by step, and the answer."""
        first = self.results[0]
        before = "{:.1f} [{:.1f}, {:.1f}]".format(*self.before)
        yield f"{first.score:.1f} [{first.low:.1f}, {first.high:.1f}] instead of {before} by {self.by}."
        if not self.by_labels:
            yield "These points measure agreement with the teacher recipes, not correlation with labels."
        yield from (f"{gain.summary()}." for gain in self.gains)
        if not any(gain.kept for gain in self.gains):
            yield "No step was significantly better than the model as it is; only its speed and size can be improved."
        yield f"{self.why} It is in {self.folder / self.answer}."

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        values = asdict(self)
        metadata = {**values.pop("metadata"), "versions": library_versions()}
        del values["folder"]
        return dict(plain({"format": "essent-improvement/1", **values, "about": metadata}))


def answer_of(goal: str, results: Mapping[str, Output]) -> tuple[str, str]:
    """Return which result serves a goal, and why; speeds do not influence the answer."""
    encoder, static = results["encoder"], results.get("static")
    if goal == "quality":
        also = " The graph gives the same vectors, faster." if "graph" in results else ""
        return "encoder", f"For quality the answer is the encoder.{also}"
    share = 0.0 if static is None or encoder.score <= 0 else static.score / encoder.score
    if share >= GOOD_TABLE:
        return "static", f"For {goal} the answer is the static table: it retains {100 * share:.0f} % of the score."
    lost = f"the static table retains only {100 * share:.0f} % of the score" if static else "there is no static table"
    if goal == "speed" and "graph" in results:
        return "graph", f"For speed the answer is the graph: {lost}."
    return "encoder", f"For {goal} the answer is the encoder: {lost}."


# -- the report --------------------------------------------------------------------------------------------------------


def write_page(improved: Improved, path: Path) -> None:
    """Write the report: quality, speed and size, the gain of each step, and the sources; see `write_report`."""
    metadata = improved.metadata
    title = f"{short_name(str(metadata['model']))}, improved"
    caption = f"{metadata['texts'].partition(',')[0]}, budget {metadata['budget']}, measured by {improved.by}."
    sections = (_results(improved), _gains(improved), *_choices(improved), _sources(metadata))
    write_arranged(Report(title, sections, caption, tuple(map(short_paths, improved.summary()))), path)


def _results(improved: Improved) -> Section:
    on_test = improved.metadata["before_on_test"]
    tested = on_test is not None
    before = [Number(*improved.before), *([Number(*on_test)] if tested else [])]
    rows: list[tuple[str | Number, ...]] = [("as it is", *before, Number(), Number(), Number())]
    for output in improved.results:
        scores = [Number(output.score, output.low, output.high), *([Number(*(output.test or ()))] if tested else [])]
        size = None if output.bytes is None else output.bytes / MEGABYTE
        rows.append((output.name, *scores, *map(Number, (output.agreement, output.texts_per_second, size))))
    columns = (
        Column("result", None),
        Column(improved.by, 2, "higher"),
        *([Column("on the test", 2, "higher")] if tested else []),
        Column("agrees with the encoder", 1),
        Column("texts per second", 0, "higher"),
        Column("MB", 1, "lower"),
    )
    caption = (
        "Scores ×100 with their 95 % interval. Agreement: Spearman ×100 between the similarities of random pairs of "
        "held-out texts. Speeds were measured on this machine, on texts of mixed length."
    )
    return Section("Quality, speed and size", (Table("Results", columns, tuple(rows), caption),), notes=improved.notes)


def _gains(improved: Improved) -> Section:
    columns = ("step", None), ("what it did", None), ("points", 2), ("retained", None), ("seconds", 0)
    rows = []
    for gain in improved.gains:
        points, kept = Number(gain.difference, gain.low, gain.high), "yes" if gain.kept else "no"
        rows.append((gain.step, gain.by, points, kept, Number(gain.seconds)))
    caption = "Points gained over the best encoder before the step, paired, with their 95 % interval."
    table = Table("Steps", tuple(Column(name, decimals) for name, decimals in columns), tuple(rows), caption)
    return Section("Gain of each step", (table,))


def _choices(improved: Improved) -> Iterator[Section]:
    """Yield the first recipes of each search, and its verdict."""
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
