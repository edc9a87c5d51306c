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
from essent.engine.conversion import compile as compile_graph
from essent.engine.files import load as load_graph
from essent.errors import EngineError, InputError
from essent.improvement.budget import LAST
from essent.improvement.metric import AGREEMENT
from essent.improvement.summary import overview_of
from essent.recipe.shaping.affine import AffineShaper
from essent.static.distillation import collect, make_encoder
from essent.static.table import Choice, Material
from essent.tasks.pairs import DuplicateTask
from essent.tasks.result import library_versions, plain

if TYPE_CHECKING:
    from essent.improvement.run import Run

ENCODER, STATIC, GRAPH = LAST  # these steps write folders with their names
TRAINED = "trained for "  # beginning of the name of an encoder on a trained model: "trained for 120 steps: RECIPE"
SMALLER = (2, 4)  # divisors of the dimensions, for smaller tables
TABLES = (Choice(), Choice(weights="sif:0.01", ridge=0.03), Choice(weights="sif:0.01", shaping="abtt:2"))
SMALL_TABLE = 0.98  # minimum share of a table's score for a smaller one to be chosen for the goal size
GOOD_TABLE = 0.85  # minimum share of the encoder's score for a static table to be the answer for speed or size
TIMED_TEXTS, TIMED_ROUNDS = 64, 3  # texts and rounds in which a result's speed is measured


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
        score, low, high: score ×100 by the metric, with the 95 % interval; NaN for agreement with the encoder.
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
        overview: at most eight lines: what was optimized, what it gained, what that is worth, what was not tried.
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
    overview: tuple[str, ...]
    by: str
    by_labels: bool
    before: tuple[float, float, float]
    gains: tuple[Gain, ...]
    results: tuple[Output, ...]
    notes: tuple[str, ...]
    metadata: Mapping[str, Any]

    def __repr__(self) -> str:
        scores = f"{self.before[0]:.2f} -> {self.results[0].score:.2f} by {self.by}, " if self.gains else ""
        return f"Improved({scores}answer {self.answer!r}, {self.folder})"

    def encoder(self, **options: Any) -> Encoder:
        """Load the saved encoder; `options` are SentenceTransformer's keyword arguments."""
        return Encoder(str(self.folder / ENCODER), **options)

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


def recipe_of(name: str) -> str:
    """Return the recipe of an encoder, whose name is preceded by that of a trained model if it runs on one."""
    return name.partition(": ")[2] if name.startswith(TRAINED) else name


# -- the steps that write --------------------------------------------------------------------------------------------


def encoder(run: Run, folder: Path, planned: Mapping[str, Any]) -> dict[str, Any]:
    """Fit, calibrate and save the best encoder."""
    run.measure(run.plan["own"])  # unless a search has measured it
    texts = list(run.inputs.texts[: planned["texts"]])
    fitted = run.encoder(run.choice, texts)
    path = _save(run, fitted, ENCODER, texts)
    saved = Encoder(str(path), device=str(fitted.device))
    run.metric.measure(ENCODER, saved)
    return _figures(run, saved, path, [ENCODER])


def static(run: Run, folder: Path, planned: Mapping[str, Any]) -> dict[str, Any]:
    """Distil static tables from the encoder; save the best or, for the goal size, its smallest good form."""
    metric, texts = run.metric, list(run.inputs.texts[: planned["texts"]])
    source = Encoder(str(run.output / ENCODER))
    averages, _ = collect(
        run.shell(run.model_of(run.choice)),
        texts,
        layers=["L"],
        teacher="mean",
        score=False,
        unseen=planned["unseen"],
    )
    make_table = partial(make_encoder, score=False)
    tables = {
        f"static, {teacher}{choice}": make_table(material, choice)
        for teacher, material in (("", averages), ("taught by the encoder, ", _imitating(averages, source, texts)))
        for choice in TABLES
    }
    for name, table in tables.items():
        metric.measure(name, table.encoder, tests=False)
    best = max(tables, key=lambda name: (round(metric.score(name), 1), metric.agreement(ENCODER, name)))
    make = partial(make_table, tables[best].material, tables[best].choice, dtype="int8")
    width = int(tables[best].encoder.get_embedding_dimension() or 0)
    forms = {best: tables[best].encoder, f"{best}, int8": make().encoder}
    for size in (width // divisor for divisor in SMALLER if width // divisor >= 8):
        forms[f"{best}, {size} dimensions, int8"] = make(dimensions=size).encoder
    for name, form in forms.items():
        metric.measure(name, form)
    chosen = smallest_good({name: metric.score(name) for name in forms}) if run.settings["goal"] == "size" else best
    path = _save(run, forms[chosen], STATIC, run.fit_texts)
    saved = Encoder(str(path), device="cpu")
    metric.measure(STATIC, saved)
    measured = [STATIC, *(name for name in forms if name != chosen)]
    return {"name": chosen, **_figures(run, saved, path, measured)}


def smallest_good(scores: Mapping[str, float]) -> str:
    """Return the last form whose score is close to that of the first; the first if none is, as for scores below 0."""
    best = next(iter(scores))
    return next((name for name in reversed([*scores]) if scores[name] >= SMALL_TABLE * scores[best]), best)


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
    path = run.output / GRAPH
    try:
        compile_graph(Encoder(str(run.output / ENCODER), device="cpu"), run.plan["engine"]).save(str(path))
    except EngineError as error:
        return {"why": str(error).rstrip(".")}
    compiled = load_graph(str(path))
    run.metric.measure(GRAPH, compiled)
    return _figures(run, compiled, path, [GRAPH])


def _save(run: Run, encoder: Encoder, name: str, texts: list[str]) -> Path:
    """Calibrate an encoder on texts, and on labelled duplicates if there are any; save it.

    Its model card contains its origin, but no times, so that the same run writes the same card.
    """
    duplicates = [task for task in run.inputs.tasks if isinstance(task, DuplicateTask)]
    for pairs in (*duplicates[:1], None):
        try:
            encoder.calibrate(texts, pairs, seed=run.settings["seed"])
            break
        except InputError as error:  # too few labelled matches, or a similarity other than the cosine
            run.note(f"Similarities: {error}")
    lines = [f"`essent improve` on {len(run.inputs.texts):,} texts, measured by {run.metric.by}."]
    for recipe in dict.fromkeys([run.plan["own"], run.choice]) if not run.metric.by_agreement else ():
        lines.append("`{}`: {:.2f} [{:.2f}, {:.2f}]".format(recipe, *run.metric.with_interval(recipe)))
    if run.metric.tests:
        figures = "{:.2f} [{:.2f}, {:.2f}]".format(*run.metric.with_interval(run.choice, test=True))
        lines.append(f"On the test ({run.metric.test_name}): {figures}")
    if encoder.calibration is not None:
        lines.append(f"Calibrated similarity: {encoder.calibration}.")
    encoder.chosen = tuple(lines)
    path = run.output / name
    encoder.save(str(path), model_name=f"essent/{name}-{encoder.recipe.digest()[:8]}")
    return path


def _figures(run: Run, encoder: Any, folder: Path, measured: list[str]) -> dict[str, Any]:
    """Return names of encoders to report, texts per second (median of rounds on held-out texts), bytes on disk."""
    texts = list(run.inputs.held_out[:TIMED_TEXTS])
    encoder.encode(texts[:16], show_progress_bar=False)
    seconds = []
    for _ in range(TIMED_ROUNDS):
        began = machine.elapsed()
        encoder.encode(texts, show_progress_bar=False)
        seconds.append(machine.elapsed() - began)
    return {
        "measured": measured,
        "texts_per_second": len(texts) / statistics.median(seconds),
        "bytes": sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()),
    }


# -- all results ------------------------------------------------------------------------------------------------------


def collect_results(run: Run) -> Improved:
    """Return the results of a finished run."""
    metric, own, spent = run.metric, run.plan["own"], run.spent
    steps = {name: values for name, values in run.entries.items() if name not in ("identity", "plan")}
    outputs: dict[str, Output] = {}
    for step in LAST:
        values = steps.get(step, {})
        for name in values.get("measured", ()):
            figures = (values["texts_per_second"], values["bytes"]) if name == step else ()
            test = metric.with_interval(name, test=True) if metric.tests else None
            outputs[name] = Output(name, *metric.with_interval(name), test, metric.agreement(ENCODER, name), *figures)
    earlier = [str(folder) for name in LAST if name not in outputs and (folder := run.output / name).exists()]
    if earlier:
        run.notes.append(f"Left from an earlier run: {', '.join(earlier)}.")
    if spent > run.settings["seconds"]:
        run.notes.append(f"The improvement took {duration(spent)}, more than the budget.")
    metadata = {
        **run.entries["identity"],
        "recipe": recipe_of(run.choice),
        "plan": run.plan,
        "steps": steps,
        "before_on_test": metric.with_interval(own, test=True) if metric.tests else None,
        "seconds": round(spent, 1),
    }
    answer, why = answer_of(run.settings["goal"], outputs, metric.by)
    return Improved(
        run.output,
        answer,
        why,
        overview_of(run, ENCODER, f"{why} It is in {run.output / answer}."),
        metric.by,
        metric.by_labels,
        metric.with_interval(own),
        tuple(run.gain(*recorded) for recorded in run.gains),
        tuple(outputs.values()),
        tuple(dict.fromkeys(filter(None, run.notes))),
        metadata,
    )


def answer_of(goal: str, outputs: Mapping[str, Output], by: str) -> tuple[str, str]:
    """Return the best result for a goal, and the reason with its measure; speeds do not influence the answer."""
    encoder, static = outputs[ENCODER], outputs.get(STATIC)
    if goal == "quality":
        graph_note = " The graph gives the same vectors, faster." if GRAPH in outputs else ""
        measure = "" if by == AGREEMENT else f" by {by}"
        return ENCODER, f"For quality{measure}, the answer is the encoder.{graph_note}"
    share = 0.0 if static is None or encoder.score <= 0 else static.score / encoder.score
    if share >= GOOD_TABLE:
        return STATIC, f"For {goal}, the answer is the static table: it retains {100 * share:.0f} % of {by}."
    lost = f"the static table retains only {100 * share:.0f} % of {by}" if static else "there is no static table"
    if goal == "speed" and GRAPH in outputs:
        return GRAPH, f"For speed, the answer is the graph: {lost}."
    return ENCODER, f"For {goal}, the answer is the encoder: {lost}."
