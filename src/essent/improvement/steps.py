"""The steps that choose: the model as it is, searches of recipes, trials of training and the training itself.

Each gets its folder, and gives plain values and evidence; what the next step may rely on is only what these say.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from essent._core import clock
from essent._core.texts import distinct_texts
from essent.improvement.context import Choice, Context
from essent.improvement.plan import FEWEST_STEPS, VALIDATIONS, space_of
from essent.improvement.yardstick import REFERENCE, Evidence, fewer_units
from essent.recipe.recipe import Recipe
from essent.selection.evaluation import Bench
from essent.selection.run import search as search_recipes
from essent.selection.space import Grid, Space
from essent.tasks.comparison import Comparison
from essent.training.run import train

Found = tuple[dict[str, Any], dict[str, Evidence]]
BASELINES = ("mean", "first-last")
# The part of what is left that is given away, what plans are counted at least, and the training's least part.
SAFE, LEAST_PACE, LEAST_TRAINING = 0.95, 0.8, 0.5
SHOWN = 12  # rows of a search that are kept for the report
# Recipes that the criterion without labels compares with, on every model that is tried.
REFERENCES = Space(
    (
        Grid(
            layers=("L", "0+L", "1+2+L", "L-1+L"),
            weights=("uniform", "idf"),
            shaping=("", "centre | normalize", "whiten | normalize"),
        ),
    ),
    name=REFERENCE,
)
STATIC_REFERENCES = Space(
    (
        Grid(
            layers=("static",),
            weights=("uniform", "idf", "sif"),
            shaping=("", "centre | normalize", "whiten | normalize"),
        ),
    ),
    name=REFERENCE,
)


# -- the model as it is -----------------------------------------------------------------------------------------------


def start(context: Context, folder: Path) -> Found:
    """Measure the model's own pooling and the mean."""
    own = context.plan["own"]
    recipes = dict.fromkeys([own, str(Recipe.parse(context.plain))])
    evidence = {recipe: context.yardstick.measure(context.encoder(recipe)) for recipe in recipes}
    return {"recipe": own}, {**evidence, **references(context, None)}


def references(context: Context, trained: Path | None, which: str = "given") -> dict[str, Evidence]:
    """The evidence of the recipes that the criterion compares with, on a model; none with labels.

    The teachers of all models that were tried are taken together: those of the model before training would call every
    trained model worse, as it agrees less with them.
    """
    pairs = context.yardstick.pairs
    if pairs is None:
        return {}
    space = STATIC_REFERENCES if context.capabilities.only_static else REFERENCES
    recipes, _ = space.expand(context.capabilities)
    texts, rows = distinct_texts(pairs.texts())
    fitted = list(context.given.texts[: context.plan["fitted"]])
    bench = Bench(context.shell(trained), recipes, batch_size=context.settings.batch_size, progress=False, options={})
    return {
        f"{REFERENCE} {which} {recipe}": {"pairs": pairs.evidence(np.asarray(vectors, np.float64), rows.tolist())}
        for recipe, vectors in bench.vectors(texts, fitted, fitted)
    }


# -- searches ---------------------------------------------------------------------------------------------------------


def search(context: Context, folder: Path, trained: Path | None = None) -> Found:
    """Search recipes on a model; its best one is measured, fitted as it will be saved."""
    plan = (
        context.plan["search"] if trained is None else context.journal.decision(folder.name, partial(_again, context))
    )
    baselines = (context.plain,) if context.capabilities.only_static else BASELINES
    tasks = context.given.tasks
    total = sum(task.units for task in tasks)
    some = [fewer_units(task, plan["units"], total, context.settings.seed) for task in tasks]
    data: Any = some[0] if len(some) == 1 else some or list(context.given.texts[: plan["texts"]])
    board = search_recipes(
        context.shell(trained),
        data,
        space_of(plan["space"]),
        baselines=tuple(dict.fromkeys([*baselines, context.plan["own"]])),
        seed=context.settings.seed,
        batch_size=context.settings.batch_size,
        work=folder / "search",
        progress=context.progress,
        precision=context.settings.precision,
    )
    # on a trained model, of which no recipe is established, also the leader that is not shown to be better than `mean`
    chosen = dict.fromkeys([str(board.best), *([str(board.leader)] if trained else [])])
    measured = {_named(recipe, trained): recipe for recipe in chosen}
    result = {
        "recipe": str(board.best),
        "name": next(iter(measured)),
        "measured": measured,
        "gains": str(board.best) not in board.baselines,  # one that leads, and one that nothing is better than
        "verdict": board.verdict,
        "notes": list(board.notes),
        "criterion": board.criterion,
        "recipes": len(board.trials),
        "rows": [[str(trial.recipe), trial.scores[board.criterion]] for trial in board.trials[:SHOWN]],
        "space": plan["space"],
    }
    return result, _measure(context, measured, trained)


def _named(recipe: str, trained: Path | None) -> str:
    """The name of a recipe's evidence."""
    return f"trained: {recipe}" if trained else recipe


def _measure(context: Context, recipes: Mapping[str, str], trained: Path | None) -> dict[str, Evidence]:
    """Evidence of recipes by their names, of those that have none yet."""
    return {
        name: context.yardstick.measure(context.encoder(recipe, trained))
        for name, recipe in recipes.items()
        if name not in context.found
    }


def _again(context: Context) -> dict[str, Any]:
    """The second search as it was planned, or the smallest one where the budget is nearly spent."""
    plan = dict(context.plan["again"])
    if plan["seconds"] > context.remaining * 0.6 and plan["space"] not in ("tiny", "static"):
        plan |= {"space": "tiny", "cut": "the budget was nearly spent"}
    return plan


# -- training ---------------------------------------------------------------------------------------------------------


def trials(context: Context, folder: Path) -> Found:
    """Successive halving: all settings for some steps, the better half of them for more, until one is left.

    Each trial at each number of steps is a step of the journal: a run that goes on does not train backwards.
    """
    training = context.journal.decision(folder.name, partial(_affordable, context))
    alive = list(range(len(training["trials"])))
    evidence: dict[str, Evidence] = {}
    rows: list[list[Any]] = []
    each = [0.0] * len(alive)
    for before, rung in pairwise([0, *training["rungs"]]):
        for number in alive:
            run = partial(_trial, context, folder / f"trial-{number}", training, number, before, rung)
            done = context.journal.step(f"{folder.name}/{number + 1} after {rung}", run)
            evidence |= done.evidence
            each[number] = done.result["each"]
        scores = context.scores(evidence)
        order = sorted(alive, key=lambda number: -scores.values[_trial_name(number, rung)])
        rows += [[number + 1, rung, *scores.of(_trial_name(number, rung))] for number in order]
        if before == 0:
            best = folder / f"trial-{order[0]}"
            evidence |= context.journal.step(
                f"{folder.name}/references", partial(_trial_references, context, best)
            ).evidence
        alive = order[: max(1, len(order) // 2)]
    return {"best": alive[0], "settings": training["trials"][alive[0]], "rows": rows, "each": each[alive[0]]}, evidence


def _trial(
    context: Context, output: Path, training: Mapping[str, Any], number: int, before: int, rung: int, folder: Path
) -> Found:
    """Train one of the settings from so many steps to so many, and measure it; `each` is the seconds of a step."""
    began = clock.elapsed()
    encoder = train(
        context.shell(),
        list(context.given.texts),
        "simcse-unsup",
        output=output,
        resume=True,
        max_steps=rung,
        validate_every=training["rungs"][0],
        precision=context.settings.training_precision,
        **training["trials"][number],
    )
    each = (clock.elapsed() - began) / (rung - before)
    return {"each": each}, {_trial_name(number, rung): context.yardstick.measure(encoder, tests=False)}


def _trial_references(context: Context, trained: Path, folder: Path) -> Found:
    return {}, references(context, trained, "trial")


def _trial_name(number: int, rung: int) -> str:
    return f"trial {number + 1} after {rung} steps"


def _affordable(context: Context) -> dict[str, Any]:
    """The trials as they were planned, or half of them until they fit what is left."""
    training = dict(context.plan["training"])
    seconds = training["trial_seconds"]
    while seconds > 0.5 * context.remaining and len(training["trials"]) > 2:
        training["trials"] = training["trials"][: len(training["trials"]) // 2]
        training["rungs"] = training["rungs"][: max(1, len(training["rungs"]) - 1)]
        training["cut"] = "the budget was nearly spent"
        seconds /= 2.5
    return training


def training(context: Context, folder: Path, settings: Mapping[str, Any], each: float) -> Found:
    """The training with the best settings; the checkpoint best on the judgements is kept, without any the last.

    The trained model is measured with the recipe of its training, and with the best one before it: that the same recipe
    gains says most about the training.

    Args:
        each: seconds that a step took in the trials; 0 where there were none.
    """
    decision = context.journal.decision(folder.name, partial(_steps, context, each))
    if decision["steps"] == 0:
        return {"steps": 0, "cut": decision["cut"]}, {}
    encoder = train(
        context.shell(),
        list(context.given.texts),
        "simcse-unsup",
        output=folder / "model",
        validate=context.yardstick.validation(),
        resume=True,
        max_steps=decision["steps"],
        validate_every=max(4, -(-decision["steps"] // (context.plan["training"]["validations"] or VALIDATIONS))),
        progress=context.progress,
        precision=context.settings.training_precision,
        **settings,
    )
    model = folder / "model"
    recipes = dict.fromkeys([str(encoder.recipe), context.choice.recipe])
    measured = {_named(recipe, model): recipe for recipe in recipes}
    evidence = {**_measure(context, measured, model), **references(context, model, "trained")}
    return {**decision, "measured": measured, "settings": dict(settings)}, evidence


def _steps(context: Context, each: float) -> dict[str, Any]:
    """How many steps fit what is left, by what they took in the trials; later steps of the plan keep their time."""
    training, speed = context.plan["training"], context.plan["speed"]
    measured = (training["validations"] + 2) * speed["measured"] + 2 * speed["tested"]
    later = max(context.pace, LEAST_PACE) * (context.planned_after("train") + measured)
    each = each or max(context.pace, LEAST_PACE) * training["seconds"] / training["steps"]
    free = max(SAFE * context.remaining - later, LEAST_TRAINING * context.remaining)  # later steps can be cut too
    steps = min(training["most"], int(free / max(each, 1e-9)))
    if steps < FEWEST_STEPS:
        return {"steps": 0, "cut": f"only {max(context.remaining, 0.0):.0f} s of the budget were left"}
    planned = training["steps"]
    cut = {"cut": f"{planned} steps were planned, and {steps} fitted the budget"} if steps < planned else {}
    return {"steps": steps, **cut}


# -- deciding ---------------------------------------------------------------------------------------------------------


def better(context: Context, other: Choice, *, shown: bool) -> Comparison:
    """Take another encoder for the best one where it is better; says what was compared.

    Args:
        shown: only where the interval of the difference lies above 0.
    """
    comparison = context.scores().compare(other.name, context.choice.name)
    if comparison.is_better or (not shown and comparison.difference > 0):
        context.choice = replace(other)
    return comparison
