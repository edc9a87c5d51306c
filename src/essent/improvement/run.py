"""`improve`: from a pretrained model and texts to the best encoder within a time budget.

start ─ search recipes ─ trials ─ train ─ search again ─ encoder ─ static ─ graph ─ report
"""

from __future__ import annotations

import copy
import io
import logging
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from sentence_transformers import SentenceTransformer

from essent._core.atomic import write_bytes, write_json
from essent._core.registry import did_you_mean
from essent._core.types import ModelLike
from essent.encoder.encoder import Encoder
from essent.encoder.pipeline.digests import digest_of_backbone
from essent.errors import InputError, UnknownNameError
from essent.improvement import steps
from essent.improvement.metric import Evidence, Inputs, Metric, Scores, read_inputs
from essent.improvement.outcome import Gain, Improved, Output, answer_of, write_page
from essent.improvement.plan import Journal, make_plan
from essent.model.capabilities import ModelCapabilities
from essent.model.loading import load, open_model
from essent.report.write import check_library
from essent.version import __version__

logger = logging.getLogger(__name__)
GOALS = ("quality", "speed", "size")
UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}
MIN_BUDGET = 1.0  # seconds


@dataclass
class Run:
    """The state that the steps share.

    Attributes:
        model: the user's model, which does not change.
        settings: the arguments of `improve` by name.
        evidence: by name of a measured encoder: its recipe, preceded by `TRAINED` on the trained model.
        choice: name of the best encoder so far.
        gains: per step, the names of the new and the old encoder, and the fields of `Gain` except the points.
        notes: sentences that readers of the scores need.
    """

    journal: Journal
    model: SentenceTransformer
    inputs: Inputs
    metric: Metric
    settings: Mapping[str, Any]
    progress: bool
    note: Callable[[str], None]
    notes: list[str] = field(default_factory=list)
    evidence: dict[str, Evidence] = field(default_factory=dict)
    choice: str = ""
    gains: list[tuple[str, str, dict[str, Any]]] = field(default_factory=list)

    @property
    def plan(self) -> dict[str, Any]:
        """The plan, see `make_plan`."""
        return dict(self.journal.entries["plan"])

    @property
    def results(self) -> dict[str, dict[str, Any]]:
        """The values of the finished steps."""
        return {name: self.journal.entries[name] for name, _, _ in self.plan["steps"] if name in self.journal.entries}

    def step(self, name: str, compute: Callable[[Run, Path], steps.StepResult]) -> dict[str, Any]:
        """Return the values of a step, computed unless the journal contains them, and add its evidence."""
        folder = self.journal.folder / name
        file = folder.with_suffix(".npz")

        def computed() -> dict[str, Any]:
            folder.mkdir(parents=True, exist_ok=True)
            values, evidence = compute(self, folder)
            arrays = {f"{name}/{key}": array for name, parts in evidence.items() for key, array in parts.items()}
            content = io.BytesIO()
            np.savez(content, **arrays)  # type: ignore[arg-type]
            write_bytes(file, content.getvalue())
            return values

        values = self.journal.once(name, computed)
        with np.load(file, allow_pickle=False) as arrays:
            for key in arrays.files:
                encoder, _, part = key.rpartition("/")
                self.evidence.setdefault(encoder, {})[part] = arrays[key]
        return values

    def shell(self, trained: Path | None = None) -> SentenceTransformer:
        """Return a copy of the model, with the weights of a trained model if its folder is passed."""
        shell = copy.deepcopy(self.model)
        if trained is not None:
            saved = Encoder(str(trained), device="cpu").module.backbone.model
            first: Any = shell[0]
            first.model.load_state_dict(saved.state_dict(), strict=False)  # heads that no recipe reads were dropped
        return shell

    @property
    def trained(self) -> Path:
        """The folder of the trained model."""
        return self.journal.folder / "train" / "model"

    def encoder(self, name: str) -> Encoder:
        """Return the encoder of a name, fitted on the texts of the plan."""
        recipe = name.removeprefix(steps.TRAINED)
        return Encoder(self.shell(None if recipe == name else self.trained), recipe).fit(self.fit_texts)

    def measure(self, names: Iterable[str]) -> dict[str, Evidence]:
        """Return the evidence of the named encoders that have none yet."""
        new = [name for name in dict.fromkeys(names) if name not in self.evidence]
        return {name: self.metric.measure(self.encoder(name)) for name in new}

    @property
    def fit_texts(self) -> list[str]:
        """The texts on which recipes are fitted and similarities calibrated."""
        return list(self.inputs.texts[: self.plan["fitted"]])

    def scores(self, more: Mapping[str, Evidence] | None = None) -> Scores:
        """Return the scores of all measured encoders."""
        return self.metric.scores({**self.evidence, **(more or {})})

    def prefer(self, name: str, *, significantly: bool) -> None:
        """Choose an encoder if it scores higher; with `significantly`, only if its interval is above 0."""
        difference, low, _ = self.scores().difference(name, self.choice)
        if low > 0 or (not significantly and difference > 0):
            self.choice = name

    def gained(self, step: str, by: str, new: str, old: str, kept: bool, seconds: float, note: str = "") -> None:
        """Record and report the gain of a step; arguments: the fields of `Gain` and the encoders that it compares."""
        self.gains.append((new, old, {"step": step, "by": by, "kept": kept, "seconds": seconds, "note": note}))
        self.note(self.gain(self.gains[-1]).summary())

    def gain(self, recorded: tuple[str, str, dict[str, Any]]) -> Gain:
        """Return a recorded gain by all evidence so far; without labels, every tried model changes the scores."""
        new, old, values = recorded
        difference, low, high = self.scores().difference(new, old)
        return Gain(difference=difference, low=low, high=high, **values)

    @property
    def capabilities(self) -> ModelCapabilities:
        """What the model offers to recipes."""
        return ModelCapabilities(**self.plan["capabilities"])

    @property
    def remaining(self) -> float:
        """The remaining seconds of the budget."""
        return float(self.settings["seconds"] - self.journal.spent)

    @property
    def pace(self) -> float:
        """Seconds that the finished steps took, per planned second."""
        planned = {name: seconds for name, _, seconds in self.plan["steps"] if name in self.results}
        return float(sum(self.results[name]["seconds"] for name in planned) / sum(planned.values()))


def improve(
    model: ModelLike,
    texts: Any,
    data: Any = (),
    *,
    output: str | Path,
    test: Any = (),
    folder: str | Path | None = None,
    budget: str = "30m",
    goal: str = "quality",
    keep_all: bool = False,
    seed: int = 0,
    options: Mapping[str, Any] | None = None,
    progress: bool = False,
    force: bool = False,
    note: Callable[[str], None] = logger.info,
) -> Improved:
    """Make the best encoder from a model within a time budget: recipes, contrastive training, a static table, a graph.

    Each step is measured before the next one starts, and discarded if it does not gain. The same call resumes a run.

    Args:
        model: a hub name, a folder, or a loaded SentenceTransformer.
        texts: at least 50 texts like those to be encoded.
        data: labels of any kind to choose on: a task, its name or file, rows in memory, or a list of tasks and files.
            By default, everything is chosen without labels, for sentence similarity.
        output: the folder to write: encoder, static, graph, report.html, improvement.json.
        test: tasks on which every result is measured, but nothing is chosen.
        folder: local data for task names, as in `essent.tasks.load_task`.
        budget: maximum time for all steps together, such as 90s, 30m or 1.5h.
        goal: quality (the answer is the encoder), speed or size (the static table, or the graph, if good enough).
        keep_all: retain the models and vectors of every step in DIR/.work.
        seed: of everything random.
        options: keyword arguments of SentenceTransformer (device, revision …).
        progress: show progress bars of searches and training.
        force: start over if `output` contains an improvement.
        note: called with one line per event; by default the lines are logged.

    Raises:
        InputError, UnknownNameError, DataError: too few texts, an unknown goal, an invalid budget, a folder with other
            contents, labels that cannot be read; before the model is loaded.
        RecipeError: a folder that an Encoder saved, or a model that ends in modules that no recipe describes.
        MissingDependencyError: the extra `report` is not installed.

    Example:
        >>> from pathlib import Path
        >>> from essent import improve
        >>> texts = Path("texts.txt").read_text(encoding="utf-8").splitlines()
        >>> improved = improve("my-mlm", texts, "pairs.jsonl", output="improved", budget="1s")
        >>> improved.encoder().encode(["A text."]).shape
        (1, 32)
    """
    if goal not in GOALS:
        raise UnknownNameError(f"Unknown goal {goal!r}. {did_you_mean(str(goal), list(GOALS))}")
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise InputError(f"seed={seed!r}: must be a whole number of at least 0.")
    seconds, options = parse_budget(budget), dict(options or {})
    check_library(".html")
    inputs, notes = read_inputs(texts, data, test, folder, seed)
    identity = {
        "essent": __version__,
        "model": str(model) if isinstance(model, (str, Path)) else digest_of_backbone(load(model, [], {}).backbone),
        **inputs.identity(),
        "budget": budget,
        "goal": goal,
        "seed": seed,
        "options": {name: str(value) for name, value in options.items() if name != "token"},
    }
    journal = Journal(Path(output), identity, force)
    opened = open_model(model, options)
    plan = journal.once("plan", lambda: make_plan(copy.deepcopy(opened), inputs, seconds, seed))
    metric = Metric(inputs, seed, *plan["measured"])
    for task, smaller in zip((*inputs.tasks, *inputs.tests), (*metric.tasks, *metric.tests), strict=True):
        if smaller.units < task.units:
            notes.append(f"Measured on {smaller.units} of the {task.units} {task.unit} of {task.name}, to save time.")
    total = _rounded(sum(planned for _, _, planned in plan["steps"]))
    note(f"Measured by {metric.by}. The plan takes about {total} of a budget of {budget}:")
    for name, words, planned in plan["steps"]:
        note(f"  {name}: {words}, about {_rounded(planned)}")
    if why := plan["training"]["why"]:
        note(f"  No training: {why}.")
    run = Run(journal, opened, inputs, metric, {**identity, "seconds": seconds}, progress, note, notes)
    try:
        if choose(run):
            train(run)
        write(run)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"Stopped. Run the same command to resume from {journal.folder}.") from None
    improved = _outcome(run)
    write_json(improved.folder / "improvement.json", improved.to_dict(), indent=1)
    write_page(improved, improved.folder / "report.html")
    if not keep_all:
        journal.clean()
    return improved


def parse_budget(budget: str) -> float:
    """Return the seconds of a budget such as 90s, 30m or 1.5h.

    Raises:
        InputError: not a number with a unit, or less than one second.
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([smh])\s*", str(budget))
    seconds = float(match[1]) * UNITS[match[2]] if match else 0.0
    if seconds < MIN_BUDGET:
        raise InputError(
            f"budget={budget!r}: must be a number of seconds, minutes or hours of at least 1s, such as 90s, 30m or "
            "1.5h."
        )
    return seconds


def _rounded(seconds: float) -> str:
    return f"{max(seconds, 1):.0f} s" if seconds < 120 else f"{seconds / 60:.0f} minutes"


# -- the steps in order -----------------------------------------------------------------------------------------


def choose(run: Run) -> bool:
    """Choose the recipe; return whether the model should be trained."""
    own, why = run.plan["own"], run.plan["training"]["why"]
    run.step("start", steps.start)
    run.choice = own
    search = run.step("search", steps.search)
    best = search["name"]
    # a baseline that the search retained by default must be significantly better
    run.prefer(best, significantly=not search["gains"])
    words = f"recipe {best}" if best != own else f"recipes: {own} remains the best"
    run.gained("search", words, best, own, run.choice == best != own, search["seconds"])
    run.notes += [search["verdict"], *search["notes"]]
    if not why and not search["gains"]:
        why = (
            "no recipe gains over its own pooling, as on models that were trained for similarity, or when the labels "
            "are classes"
        )
    if why:
        run.notes.append(f"The model was not trained: {why}.")
    return not why


def train(run: Run) -> None:
    """Train if the trials gain, then choose a recipe again."""
    own, training, untrained = run.plan["own"], run.plan["training"], run.choice
    settings, step_seconds = training["trials"][0], 0.0
    if training["rungs"]:
        trials = run.step("trials", steps.trials)
        settings, step_seconds = trials["settings"], trials["each"]
        before = own if own in run.evidence else run.plan["baseline"]
        if run.scores().difference(trials["name"], before)[0] <= 0:
            run.gained("trials", "trials of training", trials["name"], before, False, trials["seconds"])
            run.notes.append("The model was not trained further: no trial gained.")
            return
    trained = run.step("train", partial(steps.train, settings=settings, step_seconds=step_seconds))
    if not trained["steps"]:
        run.notes.append(f"The model was not trained: {trained['cut']}.")
        return
    again, scores = run.step("search-again", partial(steps.search, prefix=steps.TRAINED)), run.scores().values
    best = max((*trained["measured"], *again["measured"]), key=lambda name: scores[name])
    run.prefer(best, significantly=False)
    words = f"{_rounded(trained['seconds'])} of training and the recipe {best.removeprefix(steps.TRAINED)}"
    seconds = trained["seconds"] + again["seconds"]
    run.gained("train", words, best, untrained, run.choice != untrained, seconds, trained["cut"])


def write(run: Run) -> None:
    """Write the encoder; also a static table and a graph if they are in the plan and fit the budget."""
    run.step("encoder", steps.encoder)
    planned = {name: seconds for name, _, seconds in run.plan["steps"]}
    for name, step in (("static", steps.static), ("graph", steps.graph)):
        if name in planned:
            why = run.journal.once(f"time for {name}", partial(_too_long, run, planned[name]))["why"]
            if why:
                run.notes.append(f"No {name} was made: {why}.")
            else:
                run.step(name, step)


def _too_long(run: Run, planned: float) -> dict[str, str]:
    """Return why a step does not fit the remaining budget at the pace of the previous steps; "" if it does."""
    seconds, remaining = planned * max(1.0, run.pace), max(run.remaining, 0.0)
    why = f"it would take about {_rounded(seconds)}, but only {remaining:.0f} s of the budget were left"
    return {"why": why if seconds > remaining else ""}


def _outcome(run: Run) -> Improved:
    scores, tests, own = run.scores(), run.metric.test_scores(run.evidence), run.plan["own"]
    outputs: dict[str, Output] = {}
    for step in (steps.ENCODER, steps.STATIC, steps.GRAPH):
        values = run.results.get(step, {"agreement": {}})
        if "why" in values:
            run.notes.append(values["why"])
            continue
        for name, agreement in values["agreement"].items():
            figures = (values["texts_per_second"], values["bytes"]) if name == step else ()
            test = tests.with_interval(name) if tests is not None and name in tests.values else None
            outputs[name] = Output(name, *scores.with_interval(name), test, agreement, *figures)
    answer, why = answer_of(run.settings["goal"], outputs)
    spent = run.journal.spent
    if spent > run.settings["seconds"]:
        run.notes.append(f"The improvement took {_rounded(spent)}, more than the budget.")
    metadata = {
        **run.journal.entries["identity"],
        "recipe": run.choice.removeprefix(steps.TRAINED),
        "plan": run.plan,
        "steps": run.results,
        "before_on_test": None if tests is None else tests.with_interval(own),
        "seconds": round(spent, 1),
    }
    return Improved(
        run.journal.output,
        answer,
        why,
        run.metric.by,
        run.metric.by_labels,
        scores.with_interval(own),
        tuple(map(run.gain, run.gains)),
        tuple(outputs.values()),
        tuple(dict.fromkeys(filter(None, run.notes))),
        metadata,
    )
