"""The report of an improvement: first what its results are worth, then each step and result."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from essent.encoder.encoder import Encoder
from essent.improvement.metric import bounded
from essent.improvement.plan import LAST
from essent.report.parts import Number, Record, Report, Section, record_table, short_paths
from essent.report.write import write_arranged
from essent.selection.topics import CRITERIA, MIN_LEAD, SIMILARITY, TOPICS, USES, described, uses_of
from essent.selection.verdict import TEACHER_CASES, TOPICS_CASES
from essent.tasks.base import LabeledTask
from essent.tasks.result import library_versions, plain, short_name

if TYPE_CHECKING:
    from essent.improvement.run import Run

FULL = 0.75  # share of the budget below which it is said why more was not used
MEGABYTE = 1e6
SETTINGS = ("model", "texts", "data", "test", "budget", "use", "seed", "recipe", "seconds")  # on the page
RESULTS = (
    "Scores ×100 with their 95 % interval. Agreement: Spearman ×100 between the similarities of random pairs of "
    "held-out texts. Speeds were measured on this machine, on texts of mixed length."
)
STEPS = "Points gained over the best encoder before the step, paired, with their 95 % interval."


@dataclass(frozen=True)
class Gain:
    """The gain of a step.

    Attributes:
        step: name of the step.
        by: what the step changed.
        difference, low, high: points gained over the best encoder before the step, with the 95 % interval.
        kept: whether the step's encoder is used from here on.

    Example:
        >>> from essent.improvement import Gain
        >>> gain = Gain("search", "recipe first-last | whiten", 19.8, 18.2, 21.0, kept=True)
        >>> gain.summary()
        '+19.8 [+18.2, +21.0] by recipe first-last | whiten'
    """

    step: str
    by: str
    difference: float
    low: float
    high: float
    kept: bool

    def summary(self) -> str:
        """Return the points and their cause: "+19.8 [+18.2, +21.0] by recipe first-last | whiten"."""
        points = bounded(self.difference, self.low, self.high, "+")
        return f"{points} by {self.by}{'' if self.kept else ', discarded'}"


@dataclass(frozen=True)
class Output:
    """A saved encoder.

    Attributes:
        name: encoder, static or graph.
        score, low, high: score ×100 by the metric, with the 95 % interval; NaN for agreement with the encoder.
        test: score on the tests with its interval; None without tests.
        agreement: Spearman ×100 with the encoder's similarities on held-out texts.
        texts_per_second, bytes: speed and size on disk.

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
    test: tuple[float, float, float] | None
    agreement: float
    texts_per_second: float
    bytes: int


@dataclass(frozen=True)
class Improved:
    """The results of an improvement.

    Attributes:
        folder: the output folder.
        overview: at most eight lines: what was optimized, what it gained, what that is worth, what was not tried.
        by: name of the metric.
        before: score of the user's model as it is, with its interval.
        gains: one per step that could change the encoder.
        results: the saved encoder, static table and graph.
        notes: sentences that readers need to understand the scores.
        metadata: model, data, settings, plan, steps.

    Example:
        >>> from pathlib import Path
        >>> from essent import improve
        >>> texts = Path("texts.txt").read_text(encoding="utf-8").splitlines()
        >>> improved = improve("my-mlm", texts, "pairs.jsonl", output="improved", budget="1s")
        >>> improved.by, improved.gains[0].step
        ('spearman of pairs', 'search')
    """

    folder: Path
    overview: tuple[str, ...]
    by: str
    before: tuple[float, float, float]
    gains: tuple[Gain, ...]
    results: tuple[Output, ...]
    notes: tuple[str, ...] = field(repr=False)
    metadata: Mapping[str, Any] = field(repr=False)

    def encoder(self, **options: Any) -> Encoder:
        """Load the saved encoder; `options` are SentenceTransformer's keyword arguments."""
        return Encoder(str(self.folder / "encoder"), **options)

    def summary(self) -> Iterator[str]:
        """Yield the overview, then the gain of each step."""
        yield from self.overview
        yield from (f"{gain.summary()}." for gain in self.gains)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        values = asdict(self)
        metadata = {**values.pop("metadata"), "versions": library_versions()}
        del values["folder"]
        return dict(plain({"format": "essent-improvement/1", **values, "about": metadata}))


def purpose(tasks: Sequence[LabeledTask], use: str | None) -> str:
    """Return what an improvement will optimize, in one line."""
    if tasks:
        return f"Optimizes {uses_of(tasks)}, by the labels of {' and '.join(task.name for task in tasks)}."
    criterion = CRITERIA[use or SIMILARITY]
    optimizes = f"Optimizes {described(use or SIMILARITY)}, by the criterion {criterion}, without labels."
    others = " or ".join(name for name in USES if name != SIMILARITY)
    return optimizes if use else f"{optimizes} It may not help {others}: for these, use --for or --data."


def collect_results(run: Run) -> Improved:
    """Return the results of a finished run."""
    metric, own = run.metric, run.plan["own"]
    steps = {name: values for name, values in run.entries.items() if name not in ("identity", "plan")}
    outputs = []
    for name in LAST:
        if "bytes" in (values := steps.get(name, {})):
            test = metric.with_interval(name, test=True) if metric.tests else None
            figures = metric.agreement("encoder", name), values["texts_per_second"], values["bytes"]
            outputs.append(Output(name, *metric.with_interval(name), test, *figures))
        elif (folder := run.output / name).exists():
            run.notes.append(f"Left from an earlier run: {folder}.")
    metadata = {
        **run.entries["identity"],
        "recipe": run.parts_of(run.choice)[1],
        "plan": run.plan,
        "steps": steps,
        "before_on_test": metric.with_interval(own, test=True) if metric.tests else None,
        "seconds": round(run.spent, 1),
    }
    return Improved(
        run.output,
        tuple(overview_of(run)),
        metric.by,
        metric.with_interval(own),
        tuple(run.gain(*recorded) for recorded in run.gains),
        tuple(outputs),
        tuple(dict.fromkeys(filter(None, run.notes))),
        metadata,
    )


# -- what the results are worth ---------------------------------------------------------------------------------------


def overview_of(run: Run) -> Iterator[str]:
    """Yield what was optimized, what it gained, what that is worth, what was not tried; at most eight lines."""
    worth = _worth_by_topics if run.metric.by_agreement else _worth_by_labels if run.inputs.tasks else _worth_by_teacher
    yield from worth(run)
    if run.skipped:
        yield f"Not tried: {'; '.join(f'{step} ({why})' for step, why in run.skipped.items())}."
    spent, budget, missing = run.spent, run.settings["seconds"], [*filter(None, run.missing.values())]
    used = f"Used: {spent:.1f} of {budget:.0f} s{', more than the budget' if spent > budget else ''}."
    if not missing:
        yield f"{used} Nothing is left to do."
    else:
        rest = " What is left is too short for more." if spent < FULL * budget else ""
        yield f"{used}{rest} A larger budget would add: {'; '.join(missing)}."


def _gain(run: Run) -> str:
    own, metric = run.plan["own"], run.metric
    before, after = metric.score(own), metric.score("encoder")
    figures = bounded(*metric.difference("encoder", own), "+")
    if run.choice == own:
        return f"none ({figures}): no step was significantly better than the model as it is."
    return f"{figures} points, {after:.1f} instead of {before:.1f}."


def _worth_by_topics(run: Run) -> Iterator[str]:
    use, own, lead = run.settings["use"], run.plan["own"], run.searched["lead"]
    yield f"Optimized: {use}, without labels, by the criterion {TOPICS} (the mean of the ranks by six measures)."
    if run.choice == own:
        yield f"Gain: none. No recipe of the space that was searched led the model's own pooling {own} by {MIN_LEAD}."
        return
    measured = "not measured, they are too few" if lead is None else f"a lead of {lead:+.2f} over {own}"
    yield f"Gain by this criterion, on {len(run.inputs.held_out)} held-out texts: {measured}."
    yield f"Worth by labels: {TOPICS_CASES[use]}. Groups that are not topics, such as sentiment, can be worse."


def _worth_by_labels(run: Run) -> Iterator[str]:
    metric = run.metric
    yield f"Optimized on your labels: {metric.by}, which measures {uses_of(run.inputs.tasks)}."
    yield f"Gain on these labels: {_gain(run)} All choices were made on them, so this is optimistic."
    if metric.tests:
        after, before = (bounded(*metric.with_interval(name, test=True)) for name in ("encoder", run.plan["own"]))
        yield f"On the test ({metric.test_name}), which no choice has read: {after} instead of {before}."
    else:
        yield "Worth on other data: unknown. Pass other labels with --test, which no choice reads."


def _worth_by_teacher(run: Run) -> Iterator[str]:
    use, metric = run.settings["use"], run.metric
    yield f"Optimized: {described(use)}, without labels, by the criterion {CRITERIA[use]}."
    yield (
        f"Gain by this criterion, on pairs of {metric.paired_texts}: {_gain(run)} The criterion compares encoders; it "
        "does not measure how good they are."
    )
    uses = USES if use == SIMILARITY else (use,)
    gains = [f"{other} {TEACHER_CASES[other]}" for other in uses]
    yield f"Worth by labels over mean, in measured cases of such choices of a recipe: {'; '.join(gains)}."
    if run.parts_of(run.choice)[0]:
        yield "Training on their texts lowered classes by 1.5 and 8.7 points in two measured cases."


# -- the page ---------------------------------------------------------------------------------------------------------


def write_page(improved: Improved, path: Path) -> None:
    """Write the report: quality, speed and size, the gain and duration of each step, and the settings."""
    metadata, by = improved.metadata, improved.by
    before_on_test = {"on the test": Number(*scores)} if (scores := metadata["before_on_test"]) else {}
    rows: list[Record] = [{"result": "as it is", by: Number(*improved.before), **before_on_test}]
    for output in improved.results:
        on_test = {"on the test": Number(*output.test)} if output.test else {}
        row: dict[str, Any] = {"result": output.name, by: Number(output.score, output.low, output.high), **on_test}
        row |= {"agrees with the encoder": output.agreement, "texts per second": output.texts_per_second}
        rows.append({**row, "MB": output.bytes / MEGABYTE})
    results = record_table("Results", rows, RESULTS, decimals=1)
    minutes: dict[str, float] = {}  # of all entries of a step, such as "train, from step 0"
    for name, values in metadata["steps"].items():
        step = name.partition(",")[0]
        minutes[step] = minutes.get(step, 0.0) + values["seconds"] / 60
    gains = {gain.step: gain for gain in improved.gains}
    rows = []
    for step, length in minutes.items():
        row = {"step": step, "what it did": "", "retained": "", "points": None, "minutes": length}
        if gain := gains.get(step):
            row |= {"what it did": gain.by, "retained": "yes" if gain.kept else "no"}
            row["points"] = Number(gain.difference, gain.low, gain.high)
        rows.append(row)
    values = {name: ", ".join(text) if isinstance(text := metadata[name], list) else str(text) for name in SETTINGS}
    settings = [{"name": name, "value": short_paths(text)} for name, text in {**values, **library_versions()}.items()]
    sections = (
        Section("Quality, speed and size", [results], notes=improved.notes),
        Section("Gain of each step", [record_table("Steps", rows, STEPS, decimals=1)]),
        Section("Settings and versions", [record_table("Settings", settings)]),
    )
    title = f"{short_name(str(metadata['model']))}, improved"
    caption = f"{metadata['texts'].partition(',')[0]}, budget {metadata['budget']}, measured by {by}."
    write_arranged(Report(title, sections, caption, tuple(map(short_paths, improved.overview))), path)
