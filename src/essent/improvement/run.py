"""`improve`: make the best encoder from a pretrained model and texts within a time budget.

search recipes ─ trials ─ train, search again ─ encoder ─ static ─ graph ─ report

Each step is a function that measures encoders and returns plain values. The journal stores both, so that a killed run
resumes after its last finished step.
"""

from __future__ import annotations

import copy
import io
import logging
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from sentence_transformers import SentenceTransformer

from essent._core import machine
from essent._core.atomic import write_bytes, write_json
from essent._core.registry import did_you_mean
from essent._core.types import ModelLike
from essent.encoder.encoder import Encoder
from essent.encoder.pipeline.digests import digest_of_backbone
from essent.errors import InputError, UnknownNameError
from essent.improvement import results
from essent.improvement.metric import Inputs, Metric, read_inputs, subsample
from essent.improvement.plan import (
    MAX_VALIDATIONS,
    SHARES,
    Journal,
    make_plan,
    parse_budget,
    plan_graph,
    plan_search,
    plan_static,
    plan_train,
    plan_trials,
    space_of,
)
from essent.improvement.results import TRAINED, Gain, Improved
from essent.model.capabilities import ModelCapabilities
from essent.model.loading import load, open_model
from essent.recipe.recipe import Recipe
from essent.report.write import check_library
from essent.selection.leaderboard import Leaderboard
from essent.selection.run import search as search_recipes
from essent.training.run import train as train_model
from essent.version import __version__

logger = logging.getLogger(__name__)
GOALS = ("quality", "speed", "size")


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
        keep_all: retain the models and vectors of every step in the folder `.work` of `output`.
        seed: seed of all random choices.
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
    inputs = read_inputs(texts, data, test, folder, seed)
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
    run = Run(journal, opened, inputs, metric, {**identity, "seconds": seconds}, progress, note)
    run.notes += [*inputs.notes, *metric.notes]
    note(f"Measured by {metric.by}. The steps, with a budget of {budget}: {', '.join(plan['steps'])}.")
    try:
        if choose_recipe(run):
            train_if_better(run)
        run.step("encoder", results.encoder)
        for name, plan_step, step in (("static", plan_static, results.static), ("graph", plan_graph, results.graph)):
            if name in plan["steps"]:
                planned = run.decide(name, partial(plan_step, run))
                if planned["why"]:
                    run.notes.append(f"No {name} was made: {planned['why']}.")
                else:
                    run.step(name, partial(step, planned=planned))
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"Stopped. Run the same command to resume from {journal.folder}.") from None
    improved = results.collect_results(run)
    write_json(improved.folder / "improvement.json", improved.to_dict(), indent=1)
    results.write_page(improved, improved.folder / "report.html")
    if not keep_all:
        for path in filter(Path.is_dir, journal.folder.iterdir()):
            shutil.rmtree(path, ignore_errors=True)
    return improved


# -- the state of a run ------------------------------------------------------------------------------------------------


@dataclass
class Run:
    """The state that the steps share.

    Attributes:
        model: the user's model, which does not change.
        settings: the arguments of `improve` by name.
        choice: name of the best encoder so far: its recipe, preceded by `TRAINED` if it runs on the trained model.
        gains: per step, the names of the new and the old encoder, and the fields of `Gain` except the points.
        notes: sentences that readers need to understand the scores.
    """

    journal: Journal
    model: SentenceTransformer
    inputs: Inputs
    metric: Metric
    settings: Mapping[str, Any]
    progress: bool
    note: Callable[[str], None]
    choice: str = ""
    notes: list[str] = field(default_factory=list)
    gains: list[tuple[str, str, dict[str, Any]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.plan = dict(self.journal.entries["plan"])
        self.capabilities = ModelCapabilities(**self.plan["capabilities"])

    def decide(self, step: str, compute: Callable[[float], dict[str, Any]]) -> dict[str, Any]:
        """Return how much a step does in its share of the remaining budget; a resumed run repeats the decision."""
        order, seconds = self.plan["steps"], max(self.remaining, 0.0)
        seconds *= SHARES[step] / sum(SHARES[name] for name in order[order.index(step) :])
        planned = self.journal.once(f"plan of {step}", lambda: compute(seconds))
        self.note(f"{step}: {planned['why'] or planned['text']}")
        return planned

    def step(self, name: str, compute: Callable[[Run, Path], dict[str, Any]]) -> dict[str, Any]:
        """Return the values of a step, computed unless the journal contains them, and add its evidence."""
        folder, evidence = self.journal.folder / name, self.metric.evidence
        file = folder.with_suffix(".npz")

        def computed() -> dict[str, Any]:
            folder.mkdir(parents=True, exist_ok=True)
            before = set(evidence)
            values = compute(self, folder)
            new = {encoder: arrays for encoder, arrays in evidence.items() if encoder not in before}
            content = io.BytesIO()
            flat: Any = {f"{encoder}/{key}": array for encoder, arrays in new.items() for key, array in arrays.items()}
            np.savez(content, **flat)
            write_bytes(file, content.getvalue())
            return values

        values = self.journal.once(name, computed)
        with np.load(file, allow_pickle=False) as arrays:
            for key in arrays.files:
                encoder, _, part = key.rpartition("/")
                evidence.setdefault(encoder, {})[part] = arrays[key]
        return values

    @property
    def remaining(self) -> float:
        """The remaining seconds of the budget."""
        return float(self.settings["seconds"] - self.journal.spent)

    @property
    def trained(self) -> Path:
        """The folder of the trained model."""
        return self.journal.folder / "train" / "model"

    @property
    def fit_texts(self) -> list[str]:
        """The texts on which recipes are fitted and similarities calibrated."""
        return list(self.inputs.texts[: self.plan["fitted"]])

    def shell(self, trained: Path | None = None) -> SentenceTransformer:
        """Return a copy of the model, with the weights of a trained model if its folder is passed."""
        shell = copy.deepcopy(self.model)
        if trained is not None:
            saved = Encoder(str(trained), device="cpu").module.backbone.model
            first: Any = shell[0]
            first.model.load_state_dict(saved.state_dict(), strict=False)  # heads that no recipe reads were dropped
        return shell

    def encoder(self, name: str) -> Encoder:
        """Return the encoder of a name, fitted on the texts of the plan."""
        recipe = name.removeprefix(TRAINED)
        return Encoder(self.shell(None if recipe == name else self.trained), recipe).fit(self.fit_texts)

    def measure(self, *names: str) -> None:
        """Measure the named encoders that have no evidence yet."""
        for name in names:
            if name not in self.metric.evidence:
                self.metric.evidence[name] = self.metric.measure(self.encoder(name))

    def gained(self, new: str, old: str, **fields: Any) -> None:
        """Record and report the gain of a step: the two encoders that it compares, and the fields of `Gain`."""
        self.gains.append((new, old, fields))
        self.note(self.gain(new, old, fields).summary())

    def gain(self, new: str, old: str, fields: Mapping[str, Any]) -> Gain:
        """Compute a recorded gain from all evidence so far; without labels, each further model changes the scores."""
        difference, low, high = self.metric.difference(new, old)
        return Gain(difference=difference, low=low, high=high, **fields)

    def measure_references(self, shell: SentenceTransformer, label: str) -> None:
        """Measure the reference recipes of the label-free criterion on a model; do nothing if there are labels."""
        if not self.metric.by_labels:
            self.metric.measure_references(shell, label, self.fit_texts, self.capabilities)


# -- recipes ----------------------------------------------------------------------------------------------------------


def choose_recipe(run: Run) -> bool:
    """Choose the recipe; return whether the model should be trained."""
    own, reason = run.plan["own"], run.plan["why"]
    search = run.step("search", search_step)
    best, run.choice = search["name"], own
    difference, low, _ = run.metric.difference(best, own)
    # the search may retain a baseline by default, so its gain must be significant
    if difference > 0 and (low > 0 or search["gains"]):
        run.choice = best
    by = f"recipe {best}" if best != own else f"recipes: {own} remains the best"
    run.gained(best, own, step="search", by=by, kept=run.choice != own, seconds=search["seconds"])
    run.notes += [search["verdict"], *search["notes"]]
    if not reason and not search["gains"]:
        reason = (
            "no recipe gains over its own pooling, as on models that were trained for similarity, or when the labels "
            "are classes"
        )
    if reason:
        run.notes.append(f"The model was not trained: {reason}.")
    return not reason


def search_step(run: Run, folder: Path) -> dict[str, Any]:
    """Measure the model's own pooling and the mean; search recipes, and measure the best one."""
    run.measure(run.plan["own"], str(Recipe.parse(run.plan["baseline"])))
    run.measure_references(run.shell(), "given")
    planned = run.decide("search", partial(plan_search, run))
    board = search(run, planned, None, folder)
    run.measure(str(board.best))
    gains = str(board.best) not in board.baselines  # False too if the leader is itself a baseline
    return {"name": str(board.best), "gains": gains, "verdict": board.verdict, "notes": list(board.notes)}


def search(run: Run, planned: Mapping[str, Any], trained: Path | None, folder: Path) -> Leaderboard:
    """Search recipes on the model, or on the trained model if its folder is passed."""
    baselines = [run.plan["baseline"], *([] if run.plan["baseline"] == "static" else ["first-last"]), run.plan["own"]]
    tasks = subsample(run.inputs.tasks, planned["units"], run.settings["seed"])
    data: Any = tasks[0] if len(tasks) == 1 else tasks or list(run.inputs.texts[: planned["texts"]])
    return search_recipes(
        run.shell(trained),
        data,
        space_of(planned["space"]),
        baselines=tuple(dict.fromkeys(baselines)),
        seed=run.settings["seed"],
        work=folder / "search",
        progress=run.progress,
    )


# -- training ---------------------------------------------------------------------------------------------------------


def train_if_better(run: Run) -> None:
    """Train if the trials gain, and choose a recipe of the trained model if it is better."""
    own, untrained = run.plan["own"], run.choice
    planned = run.decide("trials", partial(plan_trials, run))
    settings, step_seconds = planned["settings"][0], run.plan["speed"]["step"]
    if planned["rungs"]:
        trials = run.step("trials", partial(trials_step, planned=planned))
        settings, step_seconds, best = trials["settings"], trials["step_seconds"], trials["name"]
        if run.metric.difference(best, own)[0] <= 0:
            run.gained(best, own, step="trials", by="trials of training", kept=False, seconds=trials["seconds"])
            run.notes.append("The model was not trained further: no trial gained.")
            return
    planned = run.decide("train", partial(plan_train, run, step_seconds))
    if planned["why"]:
        run.notes.append(f"The model was not trained: {planned['why']}.")
        return
    trained = run.step("train", partial(train_step, planned=planned, settings=settings))
    best = max(trained["measured"], key=run.metric.score)
    if run.metric.difference(best, untrained)[0] > 0:
        run.choice = best
    by = f"{planned['steps']} steps of training and the recipe {best.removeprefix(TRAINED)}"
    run.gained(best, untrained, step="train", by=by, kept=run.choice != untrained, seconds=trained["seconds"])


def trials_step(run: Run, folder: Path, planned: Mapping[str, Any]) -> dict[str, Any]:
    """Run successive halving: all settings for some steps, the better half for more steps, until one is left."""
    shutil.rmtree(folder)  # left by a killed run: a trial cannot resume at an earlier step
    settings, rungs = planned["settings"], planned["rungs"]
    running, step_seconds = list(range(len(settings))), {}
    for before, rung in pairwise([0, *rungs]):
        names = {trial: f"trial {trial + 1} after {rung} steps" for trial in running}
        for trial, name in names.items():
            began = machine.elapsed()
            output = folder / f"trial-{trial}"
            encoder = train(run, settings[trial], output=output, max_steps=rung, validate_every=rungs[0])
            step_seconds[trial] = (machine.elapsed() - began) / (rung - before)
            run.metric.evidence[name] = run.metric.measure(encoder, tests=False)
        scores = {trial: run.metric.score(name) for trial, name in names.items()}
        running.sort(key=lambda trial: -scores[trial])
        best = running[0]
        if before == 0:
            run.measure_references(run.shell(folder / f"trial-{best}"), "trial")
        running = running[: max(1, len(running) // 2)]
    return {"name": names[best], "settings": settings[best], "step_seconds": step_seconds[best]}


def train(run: Run, settings: Mapping[str, Any], **arguments: Any) -> Encoder:
    """Train a copy of the model on the texts, or resume its training."""
    return train_model(run.shell(), list(run.inputs.texts), "simcse-unsup", resume=True, **settings, **arguments)


def train_step(run: Run, folder: Path, planned: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Train with the best settings, and search recipes on the trained model.

    Labels select the checkpoint; without labels it is the last. The trained model is measured with the recipe of its
    training and with the best recipe before training (a gain with the same recipe is the best evidence for the
    training), with the best recipe of the search and, if the search does not establish it as better than
    the others, also with the leading one.
    """
    steps, validations = planned["steps"], planned["validations"] or MAX_VALIDATIONS
    encoder = train(
        run,
        settings,
        output=run.trained,
        validate=run.metric.validation(),
        max_steps=steps,
        validate_every=max(4, -(-steps // validations)),
        progress=run.progress,
    )
    names = [f"{TRAINED}{recipe}" for recipe in (encoder.recipe, run.choice)]
    run.measure(*names)
    run.measure_references(run.shell(run.trained), "trained")
    board = search(run, planned["search"], run.trained, folder)
    names += [f"{TRAINED}{recipe}" for recipe in (board.best, board.leader)]
    run.measure(*names)
    return {"measured": names}
