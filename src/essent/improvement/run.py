"""`improve`: make the best encoder from a pretrained model and texts within a time budget.

search recipes ─ trials ─ train, search again ─ encoder ─ static ─ graph ─ report

Each step is a function that measures encoders and returns plain values. The journal stores both, so that a killed run
resumes after its last finished step. Without labels, the criterion for the use of the vectors decides.
"""

from __future__ import annotations

import copy
import io
import json
import logging
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from sentence_transformers import SentenceTransformer

from essent._core import machine
from essent._core.arguments import ModelLike, check_size
from essent._core.atomic import remove_leftovers, write_bytes, write_json
from essent._core.registry import did_you_mean
from essent.encoder.cache import digest_of_backbone
from essent.encoder.encoder import Encoder
from essent.errors import DataError, UnknownNameError
from essent.improvement import results
from essent.improvement.budget import plan_encoder, plan_graph, plan_static, share_of
from essent.improvement.metric import Inputs, Metric, read_inputs
from essent.improvement.plan import make_plan, parse_budget
from essent.improvement.results import Gain, Improved, recipe_of
from essent.improvement.steps import choose_recipe, search_larger, train_if_better
from essent.improvement.summary import purpose, write_page
from essent.model.capabilities import ModelCapabilities
from essent.model.loading import load, open_model
from essent.report.write import check_library
from essent.selection.topics import CRITERIA, TOPICS, Topics, check_use, misfit, uses_of
from essent.tasks.result import plain
from essent.version import __version__

logger = logging.getLogger(__name__)
GOALS = ("quality", "speed", "size")
WORK, FORMAT = ".work", 5


def improve(
    model: ModelLike,
    texts: Any,
    data: Any = (),
    *,
    output: str | Path,
    test: Any = (),
    folder: str | Path | None = None,
    columns: Mapping[str, str] | None = None,
    budget: str = "30m",
    goal: str = "quality",
    use: str | None = None,
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
            By default, everything is chosen without labels.
        output: the folder to write: encoder, static, graph, report.html, improvement.json.
        test: tasks on which every result is measured, but nothing is chosen.
        folder: local data for task names, as in `essent.tasks.load_task`.
        columns: names of the columns of labelled files and rows by role, such as {"text": "body", "label":
            "category"}; see `essent.tasks.load_task`.
        budget: maximum time for all steps together, such as 90s, 30m or 1.5h.
        goal: quality (the answer is the encoder), speed or size (the static table, or the graph, if good enough).
        use: what the vectors are for: similarity, clusters, classes or retrieval. Without labels, the criterion of this
            use decides. By default similarity, or the use of the labels.
        keep_all: retain the models and vectors of every step in the folder `.work` of `output`.
        seed: seed of all random choices.
        options: keyword arguments of SentenceTransformer (device, revision …).
        progress: show progress bars of searches and training.
        force: start over if `output` contains an improvement.
        note: called with one line per event; by default the lines are logged.

    Raises:
        InputError, UnknownNameError, DataError: too few texts, an unknown goal or use, an invalid budget, a folder with
            other contents, labels that cannot be read; before the model is loaded.
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
    criterion = CRITERIA[check_use(use)]
    seed = check_size(seed, "seed", least=0)
    seconds, options = parse_budget(budget), dict(options or {})
    check_library(".html")
    inputs = read_inputs(texts, data, test, folder, seed, columns)
    if criterion == TOPICS and not inputs.tasks:
        Topics.of(inputs.texts, seed)  # refuses texts that it cannot measure, before the model is loaded
    identity = {
        "essent": __version__,
        "model": str(model) if isinstance(model, (str, Path)) else digest_of_backbone(load(model, [], {}).backbone),
        **inputs.identity(),
        "budget": budget,
        "goal": goal,
        "use": use or uses_of(inputs.tasks) or check_use(None),
        "named_use": use is not None,
        "seed": seed,
        "options": {name: str(value) for name, value in options.items() if name != "token"},
    }
    journal = Journal(Path(output), identity, force)
    note(purpose(inputs.tasks, use))
    opened = open_model(model, options)
    plan = journal.once("plan", lambda: make_plan(copy.deepcopy(opened), inputs, seconds, seed, check_use(use)))
    metric = Metric(inputs, seed, *plan["measured"], criterion=criterion, own=plan["own"])
    run = Run(journal, opened, inputs, metric, {**identity, "seconds": seconds}, criterion, progress, note)
    run.notes += [*misfit(inputs.tasks, use), *inputs.notes, *metric.notes]
    note(f"Measured by {metric.by}. The steps, with a budget of {budget}: {', '.join(plan['steps'])}.")
    try:
        improve_model(run)
        run.step("encoder", results.encoder, planned=run.decide("encoder", plan_encoder))
        for name, plan_step, step in (("static", plan_static, results.static), ("graph", plan_graph, results.graph)):
            if name in run.steps:
                planned = run.decide(name, plan_step)
                run.missing[name] = (planned["missing"], planned["missing_seconds"])
                if planned["why"]:
                    run.notes.append(f"No {name} was made: {planned['why']}.")
                else:
                    run.step(name, step, planned=planned)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"Stopped. Run the same command to resume from {journal.folder}.") from None
    improved = results.collect_results(run)
    write_json(improved.folder / "improvement.json", improved.to_dict(), indent=1)
    write_page(improved, improved.folder / "report.html")
    if not keep_all:
        for path in filter(Path.is_dir, journal.folder.iterdir()):
            shutil.rmtree(path, ignore_errors=True)
    return improved


def improve_model(run: Run) -> None:
    """Choose the recipe, and train the model if a recipe gains; the steps that write follow."""
    run.choice, why = run.plan["own"], run.plan["why"]
    if not choose_recipe(run) and not why:
        why = (
            "no recipe gains over its own pooling, as on models that were trained for similarity, or when the labels "
            "are classes"
        )
    if why := why or train_if_better(run):
        run.untrained = why
        run.notes.append(f"The model was not trained: {why}.")
        search_larger(run, "search with the rest", share_of(run, "search"))
    run.notes += [run.searched["verdict"], *run.searched["notes"]]


# -- the state of a run ------------------------------------------------------------------------------------------------


@dataclass
class Run:
    """The state that the steps share.

    Attributes:
        model: the user's model, which does not change.
        settings: the arguments of `improve` by name.
        criterion: the criterion without labels for the use of the vectors.
        choice: name of the best encoder so far: its recipe, preceded by a name in `models` and ": " if it runs on a
            trained model.
        searched: plan and values of the last search on the given model, with the speeds that it measured.
        models: folders of trained models by name.
        untrained: why the model was not trained.
        missing: per step, what more time would add, and its seconds.
        complete: sentences about steps for which more time adds nothing.
        gains: per step, the names of the new and the old encoder, and the fields of `Gain` except the points.
        notes: sentences that readers need to understand the scores.
    """

    journal: Journal
    model: SentenceTransformer
    inputs: Inputs
    metric: Metric
    settings: Mapping[str, Any]
    criterion: str
    progress: bool
    note: Callable[[str], None]
    choice: str = ""
    searched: dict[str, Any] = field(default_factory=dict)
    models: dict[str, Path] = field(default_factory=dict)
    untrained: str = ""
    missing: dict[str, tuple[str, float]] = field(default_factory=dict)
    complete: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    gains: list[tuple[str, str, dict[str, Any]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.plan = dict(self.journal.entries["plan"])
        self.capabilities = ModelCapabilities(**self.plan["capabilities"])

    def decide(self, step: str, plan: Callable[..., dict[str, Any]], *arguments: Any) -> dict[str, Any]:
        """Return how much a step does; a resumed run repeats the decision."""
        planned = self.journal.once(f"plan of {step}", lambda: plan(self, *arguments))
        self.note(f"{step}: {planned.get('why') or planned['text']}")
        return planned

    def step(self, name: str, compute: Callable[..., dict[str, Any]], **arguments: Any) -> dict[str, Any]:
        """Return the values of a step, computed unless the journal contains them, and add its evidence."""
        folder, evidence = self.journal.folder / name, self.metric.evidence
        file = folder.with_suffix(".npz")

        def computed() -> dict[str, Any]:
            folder.mkdir(parents=True, exist_ok=True)
            before = set(evidence)
            values = compute(self, folder, **arguments)
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
    def steps(self) -> list[str]:
        """The steps of the plan, without training if the model is not trained."""
        untrained = ("trials", "train") if self.untrained else ()
        return [step for step in self.plan["steps"] if step not in untrained]

    @property
    def speed(self) -> dict[str, float]:
        """The speeds of the plan, or as they were measured in the last search."""
        planned = self.plan["speed"]
        speed = {name: self.ratio * value for name, value in planned.items()}
        measured = self.searched.get("measured", planned["measured"])
        references = self.searched.get("references", 0.0)
        return {**speed, "tokens": planned["tokens"], "measured": measured, "references": references}

    @property
    def ratio(self) -> float:
        """The ratio of the last measured seconds per text to those of the plan."""
        return float(self.searched.get("ratio", 1.0))

    @property
    def pace(self) -> float:
        """The ratio of the duration of the last search to the expected one."""
        return float(self.searched.get("pace", 1.0))

    @property
    def fit_texts(self) -> list[str]:
        """The texts on which measured recipes are fitted."""
        return list(self.inputs.texts[: self.plan["fitted"]])

    def shell(self, trained: Path | None = None) -> SentenceTransformer:
        """Return a copy of the model, with the weights of a trained model if its folder is passed."""
        shell = copy.deepcopy(self.model)
        if trained is not None:
            saved = Encoder(str(trained), device="cpu").module.backbone.model
            first: Any = shell[0]
            first.model.load_state_dict(saved.state_dict(), strict=False)  # heads that no recipe reads were dropped
        return shell

    def model_of(self, name: str) -> Path | None:
        """Return the folder of the trained model of an encoder; None for the given model."""
        return self.models.get(name.partition(": ")[0])

    def encoder(self, name: str, texts: list[str] | None = None) -> Encoder:
        """Return the encoder of a name, fitted on some texts; by default on those of all measured encoders."""
        shell = self.shell(self.model_of(name))
        return Encoder(shell, recipe_of(name)).fit(self.fit_texts if texts is None else texts)

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
        if not self.metric.by_labels and not self.metric.by_agreement:
            self.metric.measure_references(shell, label, self.fit_texts, self.capabilities)


class Journal:
    """DIR/.work/journal.json: plan, decisions and the values of finished steps, each with its seconds.

    Args:
        output: DIR.
        identity: model, data and settings as plain values; a run with the same values resumes here.

    Raises:
        DataError: DIR contains other files, or an improvement with another model, data or settings; names them.
    """

    def __init__(self, output: Path, identity: Mapping[str, Any], force: bool) -> None:
        self.output, self.folder, self.path = output, output / WORK, output / WORK / "journal.json"
        self.entries: dict[str, Any] = {"identity": json.loads(json.dumps({"format": FORMAT, **identity}))}
        if output.exists() and not output.is_dir():
            raise DataError(f"{output} is a file, but improve writes a folder. Choose another name.")
        if force and self.path.is_file():
            shutil.rmtree(self.folder)
        elif self.path.is_file():
            self._resume()
        elif not force and output.is_dir() and any(entry.name != WORK for entry in output.iterdir()):
            raise DataError(f"The folder {output} contains other files. Choose another folder.")
        self._earlier = sum(entry["seconds"] for name, entry in self.entries.items() if name != "identity")
        self._began = machine.elapsed()

    def _resume(self) -> None:
        for path in (self.path, *self.folder.glob("*.npz")):
            remove_leftovers(path)
        entries = json.loads(self.path.read_text("utf-8"))
        before, current = entries["identity"], self.entries["identity"]
        if changed := [name for name in current if before.get(name) != current[name]]:
            differences = "; ".join(f"{name} was {before.get(name)!r} and is {current[name]!r}" for name in changed)
            raise DataError(
                f"Cannot resume in {self.output}: {differences}. Use the earlier settings to resume, another folder, "
                "or --force (force=True) to start over."
            )
        self.entries = entries

    @property
    def spent(self) -> float:
        """Seconds of the budget spent in this process and in finished steps of earlier ones."""
        return float(self._earlier + machine.elapsed() - self._began)

    def once(self, name: str, compute: Callable[[], Mapping[str, Any]]) -> dict[str, Any]:
        """Return the entry of a name, computed and written only if missing: a resumed run keeps all decisions."""
        if name not in self.entries:
            began = machine.elapsed()
            values = compute()
            self.entries[name] = plain({**values, "seconds": round(machine.elapsed() - began, 2)})
            write_json(self.path, self.entries, indent=1)
        return dict(self.entries[name])
