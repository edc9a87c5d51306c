"""The searches of an improvement: for the recipe of the given model, and for recipes of a trained one."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from essent._core import machine
from essent.encoder.encoder import Encoder
from essent.errors import InputError
from essent.improvement.budget import plan_larger_search, plan_search, share_of, share_of_search
from essent.improvement.metric import subsample
from essent.improvement.plan import space_of, time_texts
from essent.recipe.recipe import Recipe
from essent.selection.leaderboard import Leaderboard
from essent.selection.run import search as search_recipes
from essent.selection.space import Space
from essent.selection.topics import MIN_LEAD, TOPICS

if TYPE_CHECKING:
    from essent.improvement.run import Run


def choose_recipe(run: Run) -> bool:
    """Choose the recipe; return whether a recipe gains, so that the model should be trained.

    A search that was planned too small is repeated on more recipes or texts, within its share; if no recipe gains, with
    all the time that is left, since the model is then not trained.
    """
    planned = run.decide("search", lambda: plan_search(run, share_of_search(run)))
    search = choose_by_search(run, "search", planned)
    if search["gains"] and "train" in run.steps:
        return search_larger(run, "search again", planned["share"] - search["seconds"])
    return search_larger(run, "search again", share_of(run, "search", trained=False))


def search_larger(run: Run, name: str, seconds: float) -> bool:
    """Search again if the search in `seconds` is larger than the last one; return whether a recipe gains."""
    planned = run.decide(name, lambda: plan_larger_search(run, seconds))
    if not planned["why"]:
        choose_by_search(run, name, planned)
    return bool(run.searched["gains"])


def choose_by_search(run: Run, name: str, planned: Mapping[str, Any]) -> dict[str, Any]:
    """Search, and choose the best recipe if it gains."""
    search = run.step(name, partial(search_step, planned=planned))
    run.searched = {**planned, **search, "gains": search["gains"] or run.searched.get("gains", False)}
    run.missing["search"] = (planned["missing"], planned["missing_seconds"])
    best, before = search["name"], run.choice
    if run.metric.by_agreement:  # the criterion compared the recipes of this search, the largest so far
        run.choice = run.metric.own = best if search["gains"] else run.plan["own"]
        return search
    difference, low, _ = run.metric.difference(best, before)
    # the search may retain a baseline by default, so its gain must be significant
    if difference > 0 and (low > 0 or search["gains"]):
        run.choice = best
    by = f"recipe {best}" if best != before else f"recipes: {best} remains the best"
    run.gained(best, before, step=name, by=by, kept=run.choice != before, seconds=search["seconds"])
    return search


def search_step(run: Run, folder: Path, planned: Mapping[str, Any]) -> dict[str, Any]:
    """Search recipes, and measure the best one, the model's own pooling and the mean.

    Returns:
        The best recipe by `name`, its `lead` on held-out texts, whether it `gains` over the baselines, the verdict and
        notes of the search. How long everything took: `measured`, seconds per measured encoder; `references`, seconds
        of the reference recipes; `ratio` of the seconds per text to those of the plan; `pace`, the ratio of the
        search's duration to the expected one.
    """
    names = [run.plan["own"], str(Recipe.parse(run.plan["baseline"]))]
    new, began = len({*names} - {*run.metric.evidence}), machine.elapsed()
    run.measure(*names)
    measured = (machine.elapsed() - began) / new if new else run.speed["measured"]
    ratio = time_again(run)
    began = machine.elapsed()
    run.measure_references(run.shell(), "given")
    references = machine.elapsed() - began
    expected, searched = planned["expected"], machine.elapsed()
    board = search(run, planned, None, folder)
    searched = machine.elapsed() - searched
    run.measure(str(board.best))
    expected *= ratio / run.ratio  # was expected at the earlier speed
    best, own = str(board.best), run.plan["own"]
    gains = best not in board.baselines  # False too if the leader is itself a baseline
    if run.metric.by_agreement:
        gains = best != own and board.find(best).scores[TOPICS] - board.find(own).scores[TOPICS] >= MIN_LEAD
    return {
        "name": best,
        "lead": held_out_lead(run, best) if gains and run.metric.by_agreement else None,
        "gains": gains,
        "verdict": board.verdict,
        "notes": list(board.notes),
        "measured": measured,
        "references": references,
        "ratio": ratio,
        "pace": searched / expected if expected else 1.0,
    }


def held_out_lead(run: Run, best: str) -> float | None:
    """Return a recipe's lead over the model's own pooling on held-out texts; None if these cannot be measured."""
    texts, own, settings = list(run.inputs.held_out), run.plan["own"], run.settings
    space, baselines = Space(named=(best,)), (own,)
    try:
        board = search_recipes(
            run.shell(), texts, space, use=settings["use"], baselines=baselines, seed=settings["seed"]
        )
    except InputError:  # too few texts, or texts that share no words
        return None
    return board.find(best).scores[TOPICS] - board.find(own).scores[TOPICS]


def time_again(run: Run) -> float:
    """Return the ratio of the seconds per text to those of the plan."""
    seconds, _ = time_texts(Encoder(run.shell()), run.inputs.texts, rounds=2)
    return seconds / max(float(run.plan["speed"]["seconds"]), 1e-9)


def search(run: Run, planned: Mapping[str, Any], trained: Path | None, folder: Path) -> Leaderboard:
    """Search recipes on the model, or on the trained model if its folder is passed."""
    baselines = [run.plan["baseline"], *([] if run.plan["baseline"] == "static" else ["first-last"]), run.plan["own"]]
    tasks = subsample(run.inputs.tasks, planned["units"], run.settings["seed"])
    data: Any = tasks[0] if len(tasks) == 1 else tasks or list(run.inputs.texts[: planned["texts"]])
    return search_recipes(
        run.shell(trained),
        data,
        space_of(planned["space"]),
        use=None if tasks else run.settings["use"],
        baselines=tuple(dict.fromkeys(baselines)),
        seed=run.settings["seed"],
        work=folder / "search",
        progress=run.progress,
    )
