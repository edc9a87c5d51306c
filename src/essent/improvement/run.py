"""`improve`: from a pretrained model and texts to the best encoder that a budget buys.

read as it is ─ search recipes ─ trials ─ train ─ search again ─ encoder ─ static ─ graph ─ report
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any

from tqdm.auto import tqdm

from essent._core.arithmetic import check_bfloat16
from essent._core.registry import did_you_mean
from essent._core.types import ModelLike
from essent.encoder.pipeline.digests import digest_of_backbone
from essent.errors import UnknownNameError
from essent.improvement import outputs, steps
from essent.improvement.context import Choice, Context
from essent.improvement.given import Given, read_given
from essent.improvement.journal import Journal, Step
from essent.improvement.outcome import ABOUT, Gain, Improved, Result, answer_of
from essent.improvement.page import REPORT, write_page
from essent.improvement.plan import announced, make_plan
from essent.improvement.settings import Settings
from essent.improvement.yardstick import Scores, Yardstick
from essent.model.loading import load, open_model
from essent.report.write import check_library

logger = logging.getLogger(__name__)


def improve(
    model: ModelLike,
    texts: Any,
    data: Any = (),
    *,
    output: str | Path,
    test: Any = (),
    folder: str | Path | None = None,
    settings: Settings | None = None,
    options: Mapping[str, Any] | None = None,
    progress: bool = False,
    force: bool = False,
    note: Callable[[str], None] = logger.info,
    **changes: Any,
) -> Improved:
    """Make the best encoder of a model that a budget buys: recipes, contrastive training, a static table, a graph.

    Every step is measured before the next one is paid for, and what does not gain is not kept. The same call goes on
    where an interrupted one was.

    Args:
        model: a hub name, a folder, or a loaded SentenceTransformer.
        texts: texts like those to be encoded, 50 or more.
        data: judgements of any kind to choose on: a task, its name or file, rows in memory, or a list of tasks and
            files. Without any everything is chosen without labels, for the similarity of sentences.
        output: the folder to write: encoder, static, graph, report.html, improvement.json.
        test: tasks on which every result is measured, and nothing is chosen.
        folder: local data for task names, as in `essent.tasks.load_task`.
        options: keyword arguments of SentenceTransformer (device, revision …).
        progress: show bars.
        force: begin anew where `output` holds an improvement.
        note: is called with a line about what is done; by default it is logged.
        settings, changes: see `Settings`; `improve(…, budget="10m", goal="speed")` sets single fields.

    Raises:
        InputError, UnknownNameError, DataError: before the model is loaded: too few texts, an unknown goal, a budget
            that is not understood, a folder of something else, judgements that cannot be read.
        EngineError: bfloat16 where the machine has no such arithmetic.
        RecipeError: a folder that an Encoder saved, or a model that ends in modules that no recipe describes.
        MissingDependencyError: without the extra `report`.
    """
    known = [part.name for part in fields(Settings)]
    if unknown := next((name for name in changes if name not in known), None):
        raise UnknownNameError(f"Unknown setting {unknown!r}. {did_you_mean(unknown, known)}")
    how = replace(settings or Settings(), **changes)
    check_library(".html")
    given = read_given(texts, data, test, folder, how.seed)
    journal = Journal(Path(output), _identity(model, given, how, options or {}))
    journal.check(force)
    for line in given.notes:
        note(line)
    journal.tidy()
    fewer: list[str] = []
    opened = open_model(model, dict(options or {}))
    check_bfloat16(how.precision, opened.device.type)
    plan = journal.plan(lambda: make_plan(copy.deepcopy(opened), given, how.seconds, how.seed))
    yardstick = Yardstick(given, how.seed, *plan["measured"])
    for whole, some in zip((*given.tasks, *given.tests), (*yardstick.tasks, *yardstick.tests), strict=True):
        if some.units < whole.units:
            fewer.append(f"Measured on {some.units} of the {whole.units} {whole.unit} of {whole.name}, for the budget.")
    context = Context(opened, given, how, yardstick, journal, plan, progress, note)
    _announce(context)
    made = Improvement(context, fewer).run()
    made.to_json(made.folder / ABOUT)
    write_page(made, made.folder / REPORT)
    if not how.keep_all:
        journal.clean()
    return made


def _identity(model: ModelLike, given: Given, how: Settings, options: Mapping[str, Any]) -> dict[str, Any]:
    named = isinstance(model, (str, Path))
    what = str(model) if named else digest_of_backbone(load(model, [], {}).backbone)
    return {
        "model": what,
        **given.identity(),
        "budget": how.budget,
        "goal": how.goal,
        "seed": how.seed,
        "match_score": how.match_score,
        "batch_size": how.batch_size,
        "precision": how.precision,
        "options": {name: str(value) for name, value in options.items() if name != "token"},
    }


def _announce(context: Context) -> None:
    """Say what will be tried, and how long it should take."""
    listed = announced(context.plan)
    total = sum(seconds for _, _, seconds in listed)
    context.note(
        f"Measured by {context.yardstick.name}; about {_shown(total)} of a budget of {context.settings.budget}:"
    )
    for name, words, seconds in listed:
        context.note(f"  {name}: {words}, about {_shown(seconds)}")
    if why := context.plan["training"]["why"]:
        context.note(f"  The model is not trained: {why}.")


def _shown(seconds: float) -> str:
    return f"{max(seconds, 1):.0f} s" if seconds < 120 else f"{seconds / 60:.0f} minutes"


class Improvement:
    """The steps in their order, and what each of them decides."""

    def __init__(self, context: Context, notes: Sequence[str] = ()) -> None:
        self.context = context
        self.gains: list[tuple[str, str, str, str, bool, float, str]] = []
        self.results: dict[str, Step] = {}
        self.notes: list[str] = [*context.given.notes, *notes]

    def run(self) -> Improved:
        """Every step that the plan has, those that are finished from the disk."""
        context = self.context
        names = [name for name, _, _ in announced(context.plan)]
        with tqdm(total=len(names), desc="Steps", unit="step", disable=not context.progress) as bar:
            self.bar = bar
            self._start()
            self._search()
            self._train()
            self._write()
        return self._outcome()

    @contextmanager
    def _stopping(self) -> Iterator[None]:
        """Say how to go on where the user stops a step."""
        try:
            yield
        except KeyboardInterrupt:
            raise KeyboardInterrupt(
                f"Stopped; what is finished is in {self.context.journal.folder}. The same command goes on from there."
            ) from None

    def _step(self, name: str, run: Callable[[Context, Path], Any]) -> Step:
        self.bar.set_description(name)
        with self._stopping():
            found = self.context.journal.step(name, partial(run, self.context))
        self.bar.update()
        self.context.found |= found.evidence
        self.context.seconds[name] = found.result["seconds"]
        self.results[name] = found
        return found

    # -- choosing ---------------------------------------------------------------------------------------------------

    def _start(self) -> None:
        found = self._step("start", steps.start)
        own = found.result["recipe"]
        self.context.choice = Choice(own, own)

    def _search(self) -> None:
        found = self._step("search", steps.search)
        best, before = found.result["name"], self.context.choice.name
        shown = not found.result["gains"]  # a baseline that was kept by default must be shown to be better
        steps.better(self.context, Choice(best, found.result["recipe"]), shown=shown)
        kept = self.context.choice.name == best != before
        words = f"recipe {best}" if best != before else f"recipes: {before} stays the best"
        self._gained("search", words, best, before, kept, found.result["seconds"])
        self.notes += [found.result["verdict"], *found.result["notes"]]

    def _gained(self, step: str, by: str, new: str, old: str, kept: bool, seconds: float, note: str = "") -> None:
        """Note what a step gained: names of evidence, compared again at the end, when everything has been measured."""
        self.gains.append((step, by, new, old, kept, seconds, note))
        self.context.note(self._gain(self.context.scores(), self.gains[-1]).in_words())

    @staticmethod
    def _gain(scores: Scores, found: tuple[str, str, str, str, bool, float, str]) -> Gain:
        step, by, new, old, kept, seconds, note = found
        comparison = scores.compare(new, old)
        return Gain(step, by, comparison.difference, comparison.low, comparison.high, kept, seconds, note)

    def _train(self) -> None:
        """Trials, training and a second search, where training is likely to gain."""
        context, training = self.context, self.context.plan["training"]
        if training["why"]:
            self.notes.append(f"The model was not trained: {training['why']}.")
            return
        if not self.results["search"].result["gains"]:
            self.notes.append(
                "The model was not trained: no recipe gains over its own pooling, as on models that were trained for "
                "similarity, or where classes are what counts."
            )
            return
        settings, each = training["trials"][0], 0.0
        if training["rungs"]:
            found = self._step("trials", steps.trials)
            settings, each = found.result["settings"], found.result["each"]
            if not self._trials_gain(found):
                return
        found = self._step("train", partial(steps.training, settings=settings, each=each))
        if not found.result["steps"]:
            self.notes.append(f"The model was not trained: {found.result['cut']}.")
            return
        folder, raw = found.folder / "model", context.choice
        again = self._step("search-again", partial(steps.search, trained=folder))
        minutes = found.result["seconds"] / 60
        words = (
            f"{minutes:.0f} minutes of training" if minutes >= 1.5 else f"{found.result['seconds']:.0f} s of training"
        )
        measured, scores = {**found.result["measured"], **again.result["measured"]}, context.scores()
        name = max(measured, key=lambda one: scores.values[one])
        best = Choice(name, measured[name], folder)
        steps.better(context, best, shown=False)
        seconds = found.result["seconds"] + again.result["seconds"]
        what, note = f"{words} and the recipe {best.recipe}", found.result.get("cut") or ""
        self._gained("train", what, best.name, raw.name, context.choice != raw, seconds, note)

    def _trials_gain(self, found: Step) -> bool:
        """Whether the best trial does better than the model as it was given; the training itself must be shown to."""
        context = self.context
        best = next(row for row in reversed(found.result["rows"]) if row[0] == found.result["best"] + 1)
        name = f"trial {best[0]} after {best[1]} steps"
        before = context.plan["own"] if context.plan["own"] in context.found else context.plain
        comparison = context.scores().compare(name, before)
        if comparison.difference > 0:
            return True
        self._gained("trials", "trials of training", name, before, False, found.result["seconds"])
        self.notes.append("The model was not trained further: no trial gained.")
        return False

    # -- writing ----------------------------------------------------------------------------------------------------

    def _write(self) -> None:
        context = self.context
        self._step("encoder", outputs.encoder)
        planned = [name for name, _, _ in announced(context.plan)]
        for name, run in (("static", outputs.static), ("graph", outputs.graph)):
            if name not in planned:
                continue
            decision = context.journal.decision(name, partial(self._fits, name))
            if decision["run"]:
                self._step(name, run)
            else:
                self.notes.append(f"No {name} was made: {decision['why']}.")

    def _fits(self, name: str) -> dict[str, Any]:
        """Whether a step fits what is left, at the pace of those before it."""
        planned = {step: seconds for step, _, seconds in announced(self.context.plan)}
        seconds, remaining = planned[name] * max(1.0, self.context.pace), max(self.context.remaining, 0.0)
        if seconds <= remaining:
            return {"run": True}
        return {"run": False, "why": f"it takes about {_shown(seconds)}, and {remaining:.0f} s of the budget were left"}

    # -- the outcome ------------------------------------------------------------------------------------------------

    def _outcome(self) -> Improved:
        context = self.context
        scores, tests = context.scores(), context.yardstick.test_scores(context.found)
        results: dict[str, Result] = {}

        def result(name: str, evidence: str, about: Mapping[str, Any], own: bool) -> None:
            score, low, high = scores.of(evidence)
            results[name] = Result(
                name,
                score,
                low,
                high,
                tests.of(evidence) if tests is not None and evidence in tests.values else None,
                about["agreement"].get(evidence),
                about["texts_per_second"] if own else None,
                about["bytes"] if own else None,
            )

        for name in ("encoder", "static", "graph"):
            if name not in self.results:
                continue
            about = self.results[name].result
            if "why" in about:
                self.notes.append(about["why"])
                continue
            main = about.get("name", name)
            result(name, main, about, own=True)
            for other in self.results[name].evidence:
                if other != main:
                    result(other, other, about, own=False)
        answer, why = answer_of(context.settings.goal, results)
        own = context.plan["own"]
        about = {
            **context.journal.identity,
            "recipe": context.choice.recipe,
            "plan": dict(context.plan),
            "steps": {name: step.result for name, step in self.results.items()},
            "before_on_test": None if tests is None else tests.of(own),
            "seconds": round(context.journal.spent, 1),
        }
        if context.journal.spent > context.settings.seconds:
            self.notes.append(f"It took {_shown(context.journal.spent)}, more than the budget.")
        return Improved(
            context.journal.output,
            answer,
            why,
            scores.by,
            scores.by_labels,
            tuple(self._gain(scores, found) for found in self.gains),
            tuple(results.values()),
            scores.of(own),
            tuple(dict.fromkeys(filter(None, self.notes))),
            about,
        )
