"""The results of an improvement: the saved encoder, static table and graph, the gain of each step, the report."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from essent._core import machine
from essent._core.display import duration
from essent.encoder.encoder import Encoder
from essent.engine.compiled import compile as compile_graph
from essent.engine.files import load as load_graph
from essent.errors import EngineError, InputError
from essent.recipe.shaping.affine import AffineShaper
from essent.report.parts import Column, Line, Number, Report, Section, Table, short_name, short_paths
from essent.report.write import write_arranged
from essent.static.distillation import collect, make_encoder
from essent.static.gather import Settings as PassSettings
from essent.static.table import Choice, Material
from essent.tasks.pairs import DuplicateTask
from essent.tasks.result import library_versions, plain

if TYPE_CHECKING:
    from essent.improvement.run import Run

ENCODER, STATIC, GRAPH = "encoder", "static", "graph"  # steps and the folders that they write
TRAINED = "trained: "  # prefix of a recipe on the trained model
SMALLER = (2, 4)  # divisors of the dimensions, for smaller tables
TABLES = (Choice(), Choice(weights="sif:0.01", ridge=0.03), Choice(weights="sif:0.01", shaping="abtt:2"))
SMALL_TABLE = 0.98  # minimum share of a table's score for a smaller one to be chosen for the goal size
GOOD_TABLE = 0.85  # minimum share of the encoder's score for a static table to be the answer for speed or size
TIMED_TEXTS, TIMED_ROUNDS = 64, 3  # texts and rounds in which a result's speed is measured
MEGABYTE = 1e6
SETTINGS = ("model", "texts", "data", "test", "budget", "goal", "seed", "recipe", "seconds")


@dataclass(frozen=True)
class Gain:
    """The gain of a step.

    Attributes:
        step: name of the step.
        by: what the step changed.
        difference, low, high: points gained over the best encoder before the step, with the 95 % interval.
        kept: whether the step's encoder is used from here on.
        seconds: duration.

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
        test: score on the tests with its interval; None without tests.
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
        notes: sentences that readers need to understand the scores.
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
        return Encoder(str(self.folder / ENCODER), **options)

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


# -- the steps that write --------------------------------------------------------------------------------------------


def encoder(run: Run, folder: Path) -> dict[str, Any]:
    """Fit, calibrate and save the best encoder."""
    fitted = run.encoder(run.choice)
    path = _save(run, fitted, ENCODER)
    saved = Encoder(str(path), device=str(fitted.device))
    run.metric.evidence[ENCODER] = run.metric.measure(saved)
    return _figures(run, saved, path, [ENCODER])


def static(run: Run, folder: Path, planned: Mapping[str, Any]) -> dict[str, Any]:
    """Distil static tables from the encoder; save the best or, for the goal size, its smallest good form."""
    metric, texts = run.metric, list(run.inputs.texts[: planned["texts"]])
    source = Encoder(str(run.journal.output / ENCODER))
    averages, _ = collect(
        run.shell(run.trained if run.choice.startswith(TRAINED) else None),
        texts,
        layers=["L"],
        teacher="mean",
        settings=PassSettings(unseen=planned["unseen"]),
    )
    make_table = partial(make_encoder, score=False)  # the metric measures them
    tables = {
        f"static, {teacher}{choice}": make_table(material, choice)
        for teacher, material in (("", averages), ("taught by the encoder, ", _imitating(averages, source, texts)))
        for choice in TABLES
    }
    for name, table in tables.items():
        metric.evidence[name] = metric.measure(table.encoder, tests=False)
    best = max(tables, key=lambda name: (round(metric.score(name), 1), metric.agreement(ENCODER, name)))
    make = partial(make_table, tables[best].material, tables[best].choice, dtype="int8")
    width = int(tables[best].encoder.get_embedding_dimension() or 0)
    forms = {best: tables[best].encoder, f"{best}, int8": make().encoder}
    for size in (width // divisor for divisor in SMALLER if width // divisor >= 8):
        forms[f"{best}, {size} dimensions, int8"] = make(dimensions=size).encoder
    for name, form in forms.items():
        metric.evidence[name] = metric.measure(form)
    chosen = best
    if run.settings["goal"] == "size":
        chosen = [name for name in forms if metric.score(name) >= SMALL_TABLE * metric.score(best)][-1]
    metric.evidence[STATIC] = metric.evidence[chosen]
    path = _save(run, forms[chosen], STATIC)
    measured = [STATIC, *(name for name in forms if name != chosen)]
    return {"name": chosen, **_figures(run, Encoder(str(path), device="cpu"), path, measured)}


def _imitating(averages: Material, source: Encoder, texts: list[str]) -> Material:
    """Return the material of tables that imitate an encoder: its vectors, and the averages with its shaping."""
    chain, tables = source.module.chain, dict(averages.contexts.tables)
    steps = list(takewhile(lambda step: isinstance(step, AffineShaper), chain.steps))
    if steps and len(steps) + 1 >= len(chain.steps):  # all steps except the last, which normalizes
        affine = type(chain)(steps).as_affine()
        assert affine is not None  # noqa: S101
        tables = {
            layer: ((table - affine.mean) @ affine.matrix + affine.offset).astype(np.float32)
            for layer, table in tables.items()
        }
    vectors = np.asarray(source.encode(texts, show_progress_bar=False), np.float32)  # (N,D)
    if any(table.shape[1] != vectors.shape[1] for table in tables.values()):
        return averages
    return replace(
        averages, contexts=replace(averages.contexts, tables=tables), vectors=vectors, fits={}, held_out=None
    )


def graph(run: Run, folder: Path, planned: Mapping[str, Any]) -> dict[str, Any]:
    """Compile the encoder to one graph."""
    path = run.journal.output / GRAPH
    try:
        compile_graph(Encoder(str(run.journal.output / ENCODER), device="cpu"), run.plan["engine"]).save(str(path))
    except EngineError as error:
        return {"why": f"No graph was made: {error}"}
    compiled = load_graph(str(path))
    run.metric.evidence[GRAPH] = run.metric.measure(compiled)
    return _figures(run, compiled, path, [GRAPH])


def _save(run: Run, encoder: Encoder, name: str) -> Path:
    """Calibrate an encoder on the texts, and on labelled duplicates if there are any; save it.

    Its model card contains its origin, but no times, so that the same run writes the same card.
    """
    duplicates = [task for task in run.inputs.tasks if isinstance(task, DuplicateTask)]
    for pairs in (*duplicates[:1], None):
        try:
            encoder.calibrate(run.fit_texts, pairs, seed=run.settings["seed"])
            break
        except InputError as error:  # too few labelled matches, or a similarity other than the cosine
            run.note(f"Similarities: {error}")
    lines = [f"`essent improve` on {len(run.inputs.texts):,} texts, measured by {run.metric.by}."]
    for recipe in dict.fromkeys([run.plan["own"], run.choice]):
        lines.append("`{}`: {:.2f} [{:.2f}, {:.2f}]".format(recipe, *run.metric.with_interval(recipe)))
    if run.metric.tests:
        figures = "{:.2f} [{:.2f}, {:.2f}]".format(*run.metric.with_interval(run.choice, test=True))
        lines.append(f"On the test ({run.metric.test_name}): {figures}")
    if encoder.calibration is not None:
        lines.append(f"Calibrated similarity: {encoder.calibration}.")
    encoder.chosen = tuple(lines)
    path = run.journal.output / name
    encoder.save(str(path), model_name=f"essent/{name}-{encoder.recipe.digest()[:8]}")
    return path


def _figures(run: Run, encoder: Any, folder: Path, measured: list[str]) -> dict[str, Any]:
    """Return agreement with the encoder, texts per second (median of rounds on held-out texts), bytes on disk."""
    texts = list(run.inputs.held_out[:TIMED_TEXTS])
    encoder.encode(texts[:16], show_progress_bar=False)
    seconds = []
    for _ in range(TIMED_ROUNDS):
        began = machine.elapsed()
        encoder.encode(texts, show_progress_bar=False)
        seconds.append(machine.elapsed() - began)
    return {
        "agreement": {name: run.metric.agreement(ENCODER, name) for name in measured},
        "texts_per_second": len(texts) / statistics.median(seconds),
        "bytes": sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()),
    }


# -- all results ------------------------------------------------------------------------------------------------------


def collect_results(run: Run) -> Improved:
    """Return the results of a finished run."""
    metric, own, spent = run.metric, run.plan["own"], run.journal.spent
    steps = {name: run.journal.entries[name] for name in run.plan["steps"] if name in run.journal.entries}
    outputs: dict[str, Output] = {}
    for step in (ENCODER, STATIC, GRAPH):
        values = steps.get(step, {"agreement": {}})
        if "why" in values:
            run.notes.append(values["why"])
            continue
        for name, agreement in values["agreement"].items():
            figures = (values["texts_per_second"], values["bytes"]) if name == step else ()
            test = metric.with_interval(name, test=True) if metric.tests else None
            outputs[name] = Output(name, *metric.with_interval(name), test, agreement, *figures)
    if spent > run.settings["seconds"]:
        run.notes.append(f"The improvement took {duration(spent)}, more than the budget.")
    metadata = {
        **run.journal.entries["identity"],
        "recipe": run.choice.removeprefix(TRAINED),
        "plan": run.plan,
        "steps": steps,
        "before_on_test": metric.with_interval(own, test=True) if metric.tests else None,
        "seconds": round(spent, 1),
    }
    return Improved(
        run.journal.output,
        *answer_of(run.settings["goal"], outputs),
        metric.by,
        metric.by_labels,
        metric.with_interval(own),
        tuple(run.gain(*recorded) for recorded in run.gains),
        tuple(outputs.values()),
        tuple(dict.fromkeys(filter(None, run.notes))),
        metadata,
    )


def answer_of(goal: str, outputs: Mapping[str, Output]) -> tuple[str, str]:
    """Return the best result for a goal, and the reason; speeds do not influence the answer."""
    encoder, static = outputs[ENCODER], outputs.get(STATIC)
    if goal == "quality":
        graph_note = " The graph gives the same vectors, faster." if GRAPH in outputs else ""
        return ENCODER, f"For quality the answer is the encoder.{graph_note}"
    share = 0.0 if static is None or encoder.score <= 0 else static.score / encoder.score
    if share >= GOOD_TABLE:
        return STATIC, f"For {goal} the answer is the static table: it retains {100 * share:.0f} % of the score."
    lost = f"the static table retains only {100 * share:.0f} % of the score" if static else "there is no static table"
    if goal == "speed" and GRAPH in outputs:
        return GRAPH, f"For speed the answer is the graph: {lost}."
    return ENCODER, f"For {goal} the answer is the encoder: {lost}."


def write_page(improved: Improved, path: Path) -> None:
    """Write the report: quality, speed and size, the gain of each step, and the settings; see `write_report`."""
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
    gains = Table("Steps", columns, tuple(rows), caption)
    values = {name: ", ".join(text) if isinstance(text := metadata[name], list) else str(text) for name in SETTINGS}
    settings = tuple((name, short_paths(text)) for name, text in {**values, **library_versions()}.items())
    sections = (
        Section("Quality, speed and size", (results,), notes=improved.notes),
        Section("Gain of each step", (gains,)),
        Section("Settings and versions", (Table("Settings", (Column("name", None), Column("value", None)), settings),)),
    )
    title = f"{short_name(str(metadata['model']))}, improved"
    about = f"{metadata['texts'].partition(',')[0]}, budget {metadata['budget']}, measured by {improved.by}."
    write_arranged(Report(title, sections, about, tuple(map(short_paths, improved.summary()))), path)
