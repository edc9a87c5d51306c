"""The steps of an improvement that choose: searches for recipes, and training.

search ─ timing ─ trials ─ rounds up to the usual number of steps ─ longer while that gains ─ search on the new model

A round of training ends before its time is over, and the next one is planned by the measured seconds per step. Every
round is an entry of the journal, so that a resumed run trains for the same steps.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from essent._core import machine
from essent.encoder.encoder import Encoder
from essent.errors import InputError
from essent.improvement.budget import (
    LONGEST,
    plan_larger_search,
    plan_search,
    plan_timing,
    plan_train,
    plan_trials,
    share_of,
    share_of_search,
    usual_steps,
)
from essent.improvement.metric import subsample
from essent.improvement.plan import space_of, time_texts
from essent.improvement.results import TRAINED, recipe_of
from essent.recipe.recipe import Recipe
from essent.selection.leaderboard import Leaderboard
from essent.selection.run import search as search_recipes
from essent.selection.space import Space
from essent.selection.topics import MIN_LEAD, TOPICS
from essent.training.run import train as train_model

if TYPE_CHECKING:
    from essent.improvement.run import Run

# -- recipes ----------------------------------------------------------------------------------------------------------


def choose_recipe(run: Run) -> bool:
    """Choose the recipe; return whether a recipe gains, so that the model should be trained.

    A search that was planned too small is repeated on more recipes or texts, within its share; if no recipe gains, with
    all the time that is left, since the model is then not trained.
    """
    planned = run.decide("search", plan_search, share_of_search(run))
    choose_by_search(run, "search", planned)
    trains = run.searched["gains"] and "train" in run.steps
    left = planned["share"] - run.searched["seconds"] if trains else share_of(run, "search", trained=False)
    return search_larger(run, "search again", left)


def search_larger(run: Run, name: str, seconds: float) -> bool:
    """Search again if the search in `seconds` is larger than the last one; return whether a recipe gains."""
    planned = run.decide(name, plan_larger_search, seconds)
    if not planned["why"]:
        choose_by_search(run, name, planned)
    return bool(run.searched["gains"])


def choose_by_search(run: Run, name: str, planned: Mapping[str, Any]) -> None:
    """Search, and choose the best recipe if it gains."""
    search = run.step(name, search_step, planned=planned)
    run.searched = {**planned, **search, "gains": search["gains"] or run.searched.get("gains", False)}
    run.missing["search"] = (planned["missing"], planned["missing_seconds"])
    best, before = search["name"], run.choice
    if run.metric.by_agreement:  # the criterion compared the recipes of this search, the largest so far
        run.choice = run.metric.own = best if search["gains"] else run.plan["own"]
        return
    difference, low, _ = run.metric.difference(best, before)
    # the search may retain a baseline by default, so its gain must be significant
    if difference > 0 and (low > 0 or search["gains"]):
        run.choice = best
    by = f"recipe {best}" if best != before else f"recipes: {best} remains the best"
    run.gained(best, before, step=name, by=by, kept=run.choice != before, seconds=search["seconds"])


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
    seconds, _ = time_texts(Encoder(run.shell()), run.inputs.texts, rounds=2)
    ratio = seconds / max(float(run.plan["speed"]["seconds"]), 1e-9)
    began = machine.elapsed()
    run.measure_references(run.shell(), "given")
    references = machine.elapsed() - began
    began = machine.elapsed()
    board = search(run, planned, None, folder)
    searched = machine.elapsed() - began
    expected = planned["expected"] * ratio / run.ratio  # was expected at the earlier speed
    best, own = str(board.best), run.plan["own"]
    run.measure(best)
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
    own, settings = run.plan["own"], {name: run.settings[name] for name in ("use", "seed")}
    try:
        board = search_recipes(
            run.shell(), list(run.inputs.held_out), Space(named=(best,)), baselines=(own,), **settings
        )
    except InputError:  # too few texts, or texts that share no words
        return None
    return board.find(best).scores[TOPICS] - board.find(own).scores[TOPICS]


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


# -- training ---------------------------------------------------------------------------------------------------------


def train_if_better(run: Run) -> str:
    """Train if the trials gain, and choose a recipe of the trained model if it is better.

    Returns:
        Why the model was not trained; "" if it was.
    """
    own = run.plan["own"]
    planned = run.decide("timing", plan_timing)
    if planned["why"]:
        run.missing["train"] = ("training", planned["missing_seconds"])
        return str(planned["why"])
    timed = run.step("timing", timing_step, steps=planned["steps"])
    settings, step_seconds = run.plan["candidates"][0], timed["step_seconds"]
    planned = run.decide("trials", plan_trials, step_seconds)
    run.missing["trials"] = (planned["missing"], planned["missing_seconds"])
    if planned["rungs"]:
        trials = run.step("trials", trials_step, planned=planned)
        settings, step_seconds, best = trials["settings"], trials["step_seconds"], trials["name"]
        if run.metric.difference(best, own)[0] <= 0:
            run.gained(best, own, step="trials", by="trials of training", kept=False, seconds=trials["seconds"])
            return "no trial gained"
    return train(run, settings, step_seconds)


def timing_step(run: Run, folder: Path, steps: int) -> dict[str, Any]:
    """Time a few steps of training with the first settings."""
    shutil.rmtree(folder)  # left by a killed run, whose steps would not be timed
    began: list[float] = []  # without loading the model, which would count much for so few steps
    settings, start = run.plan["candidates"][0], lambda _: began.append(machine.elapsed())
    start_or_resume(run, settings, output=folder, max_steps=steps, note=start)
    return {"step_seconds": (machine.elapsed() - began[0]) / steps}


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
            encoder = start_or_resume(run, settings[trial], output=output, max_steps=rung, validate_every=rungs[0])
            step_seconds[trial] = (machine.elapsed() - began) / (rung - before)
            run.metric.evidence[name] = run.metric.measure(encoder, tests=False)
        scores = {trial: run.metric.score(name) for trial, name in names.items()}
        running.sort(key=lambda trial: -scores[trial])
        best = running[0]
        if before == 0:
            run.measure_references(run.shell(folder / f"trial-{best}"), "trial")
        running = running[: max(1, len(running) // 2)]
    return {"name": names[best], "settings": settings[best], "step_seconds": step_seconds[best]}


def start_or_resume(run: Run, settings: Mapping[str, Any], **arguments: Any) -> Encoder:
    """Train a copy of the model on the texts, or resume its training."""
    return train_model(run.shell(), list(run.inputs.texts), "simcse-unsup", resume=True, **settings, **arguments)


def train(run: Run, settings: Mapping[str, Any], step_seconds: float) -> str:
    """Train with the best settings while that gains and there is time, and choose a recipe of the trained model.

    The usual number of steps is trained without a comparison. From then on, the number is doubled in a copy, which
    replaces the model if it is better; without labels, if it is significantly better.

    Returns:
        Why the model was not trained; "" if it was.
    """
    untrained, usual, model = run.choice, usual_steps(run), run.journal.folder / "model"
    start = {"steps": 0, "every": 0, "step_seconds": step_seconds}
    training, why = train_rounds(run, settings, start, usual, model)
    if not training["steps"]:
        run.missing["train"] = (f"{usual} steps of training", usual * step_seconds)
        return why
    names = measure_trained(run, training, model, untrained)
    longer = usual if why else 2 * training["steps"]
    while not why and longer <= LONGEST * usual:
        folder = run.journal.folder / f"model-{longer}"
        further, why = train_rounds(run, settings, training, longer, folder, source=model)
        if further["steps"] == training["steps"]:
            break
        further_names = measure_trained(run, further, folder, untrained)
        leader, before = (max(measured, key=run.metric.score) for measured in (further_names, names))
        difference, low, high = run.metric.difference(leader, before)
        if difference <= 0 or not (run.metric.by_labels or low > 0):
            figures = f"{difference:+.1f} [{low:+.1f}, {high:+.1f}]"
            run.complete.append(
                f"{further['steps']} steps of training are no better than {training['steps']}, {figures}"
            )
            why = ""
            break
        training, names, model = further, further_names, folder
        longer *= 1 if why else 2
    if longer > LONGEST * usual:
        run.complete.append(f"{training['steps']} steps are the longest training")
    if why:
        seconds = (longer - training["steps"]) * training["step_seconds"]
        run.missing["train"] = (f"{longer} instead of {training['steps']} steps of training", seconds)
    choose_trained(run, training, names, model, untrained)
    return ""


def train_rounds(
    run: Run,
    settings: Mapping[str, Any],
    before: Mapping[str, Any],
    most: int,
    output: Path,
    source: Path | None = None,
) -> tuple[Mapping[str, Any], str]:
    """Train in rounds to `most` steps; return the values of the last round, and why there was none to the end.

    Args:
        before: the values of the round before.
        output: the folder of the model.
        source: a folder of which `output` becomes a copy, to extend its training.
    """
    training = before
    while training["steps"] < most:
        name = f"train, from step {training['steps']}"
        planned = run.decide(name, plan_train, training["step_seconds"], training["steps"], most, training["every"])
        if planned["why"]:
            return training, str(planned["why"])
        training = run.step(name, round_step, planned=planned, settings=settings, output=output, source=source)
    return training, ""


def round_step(
    run: Run, folder: Path, planned: Mapping[str, Any], settings: Mapping[str, Any], output: Path, source: Path | None
) -> dict[str, Any]:
    """Train to the next number of steps; labels select the checkpoint."""
    if source is not None and not output.exists():
        copy = output.with_name(f"{output.name}-copy")  # a killed run may have left a part of it
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(source, copy)
        copy.rename(output)
    began = machine.elapsed()
    encoder = start_or_resume(
        run,
        settings,
        output=output,
        validate=run.metric.validation(),
        max_steps=planned["steps"],
        validate_every=planned["every"],
        progress=run.progress,
    )
    step_seconds = (machine.elapsed() - began) / planned["new"]
    return {**planned, "step_seconds": step_seconds, "recipe": str(encoder.recipe)}


def measure_trained(run: Run, training: Mapping[str, Any], model: Path, untrained: str) -> list[str]:
    """Measure a trained model with the recipe of its training and with the best recipe before training.

    A gain with the same recipe is the best evidence for the training.
    """
    prefix = f"{TRAINED}{training['steps']} steps"
    run.models[prefix] = model
    names = [f"{prefix}: {recipe}" for recipe in dict.fromkeys((training["recipe"], untrained))]

    def measure(run: Run, folder: Path) -> dict[str, Any]:
        run.measure(*names)
        run.measure_references(run.shell(model), prefix)
        return {"measured": names}

    run.step(f"train, measured after {training['steps']} steps", measure)
    return names


def choose_trained(run: Run, training: Mapping[str, Any], names: list[str], model: Path, untrained: str) -> None:
    """Search recipes on the trained model, and choose the best one if it is better than the best before training."""
    prefix = f"{TRAINED}{training['steps']} steps"
    seconds = share_of(run, "train") - 2 * run.speed["measured"]
    planned = run.decide("search on the trained model", plan_search, seconds)
    if planned["missing"]:
        run.missing["second search"] = (f"on the trained model {planned['missing']}", planned["missing_seconds"])

    def search_trained(run: Run, folder: Path) -> dict[str, Any]:
        board = search(run, planned, model, folder)
        # the leader too, if the search does not establish it as better than the others
        measured = [*names, *(f"{prefix}: {recipe}" for recipe in (board.best, board.leader))]
        run.measure(*measured)
        return {"measured": measured, "steps": training["steps"]}

    trained = run.step("train", search_trained)
    best = max(trained["measured"], key=run.metric.score)
    if run.metric.difference(best, untrained)[0] > 0:
        run.choice = best
    seconds = sum(entry["seconds"] for name, entry in run.journal.entries.items() if name.startswith("train"))
    by = f"{training['steps']} steps of training and the recipe {recipe_of(best)}"
    run.gained(best, untrained, step="train", by=by, kept=run.choice != untrained, seconds=seconds)
