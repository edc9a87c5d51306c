"""The steps that choose: the model as it is, searches of recipes, trials of training and the training itself.

Each gets its folder, and gives plain values and evidence; what the next step may rely on is only what these say.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from essent.evaluation import Bench
from essent.improvement.context import Choice, Context
from essent.improvement.plan import FEWEST_STEPS, halved, space_of
from essent.improvement.yardstick import REFERENCE, Evidence, fewer_units
from essent.recipe import Recipe
from essent.selection import Grid, Space
from essent.selection import Settings as SearchSettings
from essent.selection import search as search_recipes
from essent.tasks import Comparison
from essent.texts import distinct_texts
from essent.train import train

Found = tuple[dict[str, Any], dict[str, Evidence]]
BASELINES = ("mean", "first-last")
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
    how = SearchSettings(
        baselines=tuple(dict.fromkeys([*baselines, context.plan["own"]])),
        seed=context.settings.seed,
        batch_size=context.settings.batch_size,
        work=folder / "search",
        progress=context.progress,
    )
    tasks = context.given.tasks
    total = sum(task.units for task in tasks)
    some = [fewer_units(task, plan["units"], total, context.settings.seed) for task in tasks]
    data: Any = some[0] if len(some) == 1 else some or list(context.given.texts[: plan["texts"]])
    board = search_recipes(context.shell(trained), data, space_of(plan["space"]), settings=how)
    best = str(board.best)
    name = f"trained: {best}" if trained else best
    result = {
        "recipe": best,
        "name": name,
        "gains": board.kept is None,
        "verdict": board.verdict,
        "notes": list(board.notes),
        "criterion": board.criterion,
        "recipes": len(board.trials),
        "rows": [[str(trial.recipe), trial.scores[board.criterion]] for trial in board.trials[:SHOWN]],
        "space": plan["space"],
    }
    if name in context.found:
        return result, {}
    return result, {name: context.yardstick.measure(context.encoder(best, trained))}


def _again(context: Context) -> dict[str, Any]:
    """The second search as it was planned, or the smallest one where the budget is nearly spent."""
    plan = dict(context.plan["again"])
    if plan["seconds"] > context.remaining * 0.6 and plan["space"] not in ("tiny", "static"):
        plan |= {"space": "tiny", "cut": "the budget was nearly spent"}
    return plan


# -- training ---------------------------------------------------------------------------------------------------------


def trials(context: Context, folder: Path) -> Found:
    """Successive halving: all settings for some steps, the better half of them for more, until one is left."""
    training = context.journal.decision(folder.name, partial(_affordable, context))
    alive = list(range(len(training["trials"])))
    evidence: dict[str, Evidence] = {}
    rows: list[list[Any]] = []
    for rung in training["rungs"]:
        for number in alive:
            settings = training["trials"][number]
            name = f"trial {number + 1} after {rung} steps"
            encoder = train(
                context.shell(),
                list(context.given.texts),
                "simcse-unsup",
                output=folder / f"trial-{number}",
                resume=True,
                max_steps=rung,
                validate_every=training["rungs"][0],
                **settings,
            )
            evidence[name] = context.yardstick.measure(encoder, tests=False)
        scores = context.scores(evidence)
        names = {n: f"trial {n + 1} after {rung} steps" for n in alive}
        order = sorted(alive, key=lambda n: -scores.values[names[n]])
        rows += [[n + 1, rung, *scores.of(names[n])] for n in order]
        if alive == list(range(len(training["trials"]))):
            evidence |= references(context, folder / f"trial-{order[0]}", "trial")
        alive = order[: max(1, len(order) // 2)]
    steps, _ = halved(len(training["trials"]), training["rungs"])
    return {"best": alive[0], "settings": training["trials"][alive[0]], "rows": rows, "steps": steps}, evidence


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
    """The training with the best settings; the checkpoint that is best on the yardstick is kept.

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
        validate=context.yardstick.validation(context.found),
        resume=True,
        max_steps=decision["steps"],
        validate_every=max(4, -(-decision["steps"] // context.plan["training"]["validations"])),
        progress=context.progress,
        **settings,
    )
    recipe = str(encoder.recipe)
    name = f"trained: {recipe}"
    evidence = {name: context.yardstick.measure(encoder), **references(context, folder / "model", "trained")}
    return {**decision, "recipe": recipe, "name": name, "settings": dict(settings)}, evidence


def _steps(context: Context, each: float) -> dict[str, Any]:
    """How many steps fit, by what they took in the trials."""
    planned, share = int(context.plan["training"]["steps"]), 0.65 * context.remaining
    each = each or context.plan["training"]["seconds"] / planned
    steps = min(planned, int(share / max(each, 1e-9)))
    if steps < FEWEST_STEPS:
        return {"steps": 0, "cut": f"only {context.remaining:.0f} s of the budget were left"}
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
