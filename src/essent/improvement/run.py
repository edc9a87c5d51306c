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
from pathlib import Path
from typing import Any

import numpy as np
from sentence_transformers import SentenceTransformer

from essent._core import machine
from essent._core.arguments import ModelLike, check_size
from essent._core.atomic import remove_leftovers, write_bytes, write_json
from essent._core.registry import did_you_mean
from essent.encoder.encoder import Encoder
from essent.encoder.module import digest_of_backbone
from essent.errors import DataError, UnknownNameError
from essent.improvement import results
from essent.improvement.budget import plan_encoder, plan_graph, plan_static, share_of
from essent.improvement.metric import Inputs, Metric, read_inputs
from essent.improvement.plan import criterion_of, make_plan, parse_budget
from essent.improvement.results import Gain, Improved, recipe_of
from essent.improvement.steps import choose_by_search, choose_recipe, train_if_better
from essent.improvement.summary import purpose, write_page
from essent.model.capabilities import ModelCapabilities
from essent.model.loading import is_trained_for_sentences, load, open_model
from essent.report.write import check_library
from essent.selection.topics import CRITERIA, TOPICS, Topics, check_use, misfit, uses_of
from essent.selection.verdict import reason_to_retain
from essent.tasks.result import plain
from essent.version import __version__

logger = logging.getLogger(__name__)
GOALS = ("quality", "speed", "size")
JOURNAL, FORMAT = Path(".work", "journal.json"), 6


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
    use_or_default = check_use(use)
    seed = check_size(seed, "seed", least=0)
    seconds, options = parse_budget(budget), dict(options or {})
    check_library(".html")
    inputs = read_inputs(texts, data, test, folder, seed, columns)
    retained = "" if inputs.tasks else reason_to_retain(use_or_default, is_trained_for_sentences(model, options))
    if not inputs.tasks and not retained and CRITERIA[use_or_default] == TOPICS:
        Topics.of(inputs.texts, seed)  # refuses texts that it cannot measure, before the model is loaded
    identity = {
        "essent": __version__,
        "model": str(model) if isinstance(model, (str, Path)) else digest_of_backbone(load(model, [], {}).backbone),
        **inputs.identity(),
        "budget": budget,
        "goal": goal,
        "use": use or uses_of(inputs.tasks) or use_or_default,
        "named_use": use is not None,
        "seed": seed,
        "options": {name: str(value) for name, value in options.items() if name != "token"},
    }
    output = Path(output)
    entries, began = open_journal(output, identity, force), machine.elapsed()
    note(purpose(inputs.tasks, use, retained))
    settings = {**identity, "seconds": seconds, "retained": retained}
    opened = open_model(model, options)
    if force and (output / JOURNAL).is_file():  # of an earlier run, which a model that cannot be loaded does not end
        shutil.rmtree((output / JOURNAL).parent)
    run = Run(output, entries, opened, inputs, settings, began, progress, note)
    run.notes += [*misfit(inputs.tasks, use), *inputs.notes, *run.metric.notes]
    note(f"Measured by {run.metric.by}. The steps, with a budget of {budget}: {', '.join(run.plan['steps'])}.")
    try:
        improve_model(run)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"Stopped. Run the same command to resume from {run.folder}.") from None
    improved = results.collect_results(run)
    write_json(improved.folder / "improvement.json", improved.to_dict(), indent=1)
    write_page(improved, improved.folder / "report.html")
    if not keep_all:
        for path in filter(Path.is_dir, run.folder.iterdir()):
            shutil.rmtree(path, ignore_errors=True)
    return improved


def improve_model(run: Run) -> None:
    """Choose the recipe, train the model if a recipe gains, and write what comes of it."""
    if not run.settings["retained"]:
        if why := choose_recipe(run) or train_if_better(run):
            run.skipped["training"] = why
            run.notes.append(f"The model was not trained: {why}.")
            choose_by_search(run, "search with the rest", share_of(run, "search"))
        run.notes += [run.searched["verdict"], *run.searched["notes"]]
    run.step("encoder", results.encoder, plan_encoder(run))
    for name, plan_step, step in (("static", plan_static, results.static), ("graph", plan_graph, results.graph)):
        if name in run.plan["steps"]:
            planned = plan_step(run)
            if reason := planned["why"] or run.step(name, step, planned).get("why"):
                run.skipped[name] = reason
                run.notes.append(f"No {name} was made: {reason}.")


# -- the state of a run ------------------------------------------------------------------------------------------------


def open_journal(output: Path, identity: Mapping[str, Any], force: bool) -> dict[str, Any]:
    """Return the entries of DIR/.work/journal.json: the values of finished steps, each with its seconds.

    Args:
        output: DIR.
        identity: model, data and settings as plain values; a run with the same values resumes here.

    Raises:
        DataError: DIR contains other files, or an improvement with another model, data or settings; names them.
    """
    current, path = json.loads(json.dumps({"format": FORMAT, **identity})), output / JOURNAL
    if output.exists() and not output.is_dir():
        raise DataError(f"{output} is a file, but improve writes a folder. Choose another name.")
    if force or not path.is_file():
        if not force and output.is_dir() and any(entry.name != path.parent.name for entry in output.iterdir()):
            raise DataError(f"The folder {output} contains other files. Choose another folder.")
        return {"identity": current}
    for written in (path, *path.parent.glob("*.npz")):
        remove_leftovers(written)
    entries: dict[str, Any] = json.loads(path.read_text("utf-8"))
    before = entries["identity"]
    if changed := [name for name in current if before.get(name) != current[name]]:
        differences = "; ".join(f"{name} was {before.get(name)!r} and is {current[name]!r}" for name in changed)
        raise DataError(
            f"Cannot resume in {output}: {differences}. Use the earlier settings to resume, another folder, "
            "or --force (force=True) to start over."
        )
    return entries


class Run:
    """The state that the steps share; everything in it follows from the journal, so that a resumed run decides alike.

    Args:
        output: the user's folder.
        entries: the journal, see `open_journal`.
        model: the user's model, which does not change.
        settings: the arguments of `improve` by name, the `seconds` of the budget, and why the model's own pooling is
            `retained` whatever a search would find ("" if a search decides).
        began: when this process began, by `machine.elapsed`.

    Attributes:
        speed: the speeds of the plan (`make_plan`), or as the last search measured them.
        choice: name of the best encoder so far: its recipe, preceded by a name in `models` and ": " if it runs on a
            trained model.
        searched: plan and values of the last search on the given model.
        models: folders of trained models by name.
        skipped: why steps were skipped.
        missing: per step, what more time would add, and its seconds.
        complete: sentences about steps for which more time adds nothing.
        gains: per step, the names of the new and the old encoder, and the fields of `Gain` except the points.
        notes: sentences that readers need to understand the scores.
    """

    def __init__(
        self,
        output: Path,
        entries: dict[str, Any],
        model: SentenceTransformer,
        inputs: Inputs,
        settings: Mapping[str, Any],
        began: float,
        progress: bool,
        note: Callable[[str], None],
    ) -> None:
        self.output, self.folder, self.entries = output, (output / JOURNAL).parent, entries
        self.model, self.inputs, self.settings, self.progress, self.note = model, inputs, settings, progress, note
        self.lap = began
        self.reached: dict[str, float] = {}  # seconds of the steps that this process has computed or read so far
        self.plan = self.once("plan", lambda: make_plan(self.shell(), inputs, settings))
        sizes, criterion = self.plan["measured"], criterion_of(settings)
        self.metric = Metric(inputs, settings["seed"], *sizes, criterion=criterion, own=self.plan["own"])
        self.capabilities = ModelCapabilities(**self.plan["capabilities"])
        self.speed: dict[str, float] = dict(self.plan["speed"])
        self.choice = self.plan["own"]
        self.searched: dict[str, Any] = {}
        self.models: dict[str, Path] = {}
        self.skipped: dict[str, str] = {}
        self.missing: dict[str, tuple[str, float]] = {}
        self.complete: list[str] = []
        self.notes: list[str] = []
        self.gains: list[tuple[str, str, dict[str, Any]]] = []

    def once(self, name: str, compute: Callable[[], Mapping[str, Any]]) -> dict[str, Any]:
        """Return the entry of a name, computed and written only if missing, with the seconds since the last one."""
        if name not in self.entries:
            values, before = compute(), self.lap
            self.lap = machine.elapsed()
            self.entries[name] = plain({**values, "seconds": round(self.lap - before, 2)})
            write_json(self.output / JOURNAL, self.entries, indent=1)
        self.reached[name] = self.entries[name]["seconds"]
        return dict(self.entries[name])

    def step(self, name: str, compute: Callable[..., dict[str, Any]], planned: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values of a step, computed unless the journal contains them, and add its evidence."""
        folder, evidence = self.folder / name, self.metric.evidence
        file = folder.with_suffix(".npz")

        def computed() -> dict[str, Any]:
            folder.mkdir(parents=True, exist_ok=True)
            before, content = set(evidence), io.BytesIO()
            values = compute(self, folder, planned)
            new: Any = {key: array for key, array in evidence.items() if key not in before}
            np.savez(content, **new)
            write_bytes(file, content.getvalue())
            return values

        self.note(f"{name}: {planned['text']}")
        values = self.once(name, computed)
        with np.load(file, allow_pickle=False) as arrays:
            evidence.update(arrays)
        return values

    @property
    def spent(self) -> float:
        """Seconds of the budget that the steps up to here took; a resumed run has not reached all of the journal."""
        return float(sum(self.reached.values()))

    @property
    def remaining(self) -> float:
        """The remaining seconds of the budget."""
        return float(self.settings["seconds"] - self.spent)

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

    def measure(self, *names: str) -> int:
        """Measure the named encoders that have no evidence yet; return their number."""
        new = [name for name in dict.fromkeys(names) if f"{name}/cosines" not in self.metric.evidence]
        for name in new:
            self.metric.measure(name, self.encoder(name))
        return len(new)

    def measure_references(self, shell: SentenceTransformer, label: str) -> None:
        """Measure the reference recipes of the criterion on a model."""
        self.metric.measure_references(shell, label, self.fit_texts, self.capabilities)

    def gained(self, new: str, old: str, **fields: Any) -> None:
        """Record and report the gain of a step: the two encoders that it compares, and the fields of `Gain`."""
        self.gains.append((new, old, fields))
        self.note(self.gain(new, old, fields).summary())

    def gain(self, new: str, old: str, fields: Mapping[str, Any]) -> Gain:
        """Compute a recorded gain from all evidence so far; without labels, each further model changes the scores."""
        difference, low, high = self.metric.difference(new, old)
        return Gain(difference=difference, low=low, high=high, **fields)
