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

import numpy as np

from essent._core import machine
from essent.encoder.encoder import Encoder
from essent.errors import InputError
from essent.improvement.budget import (
    LARGER,
    LONGEST,
    plan_search,
    plan_timing,
    plan_train,
    plan_trials,
    seconds_of_search,
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


def choose_recipe(run: Run) -> str:
    """Choose the recipe; return why the model should not be trained, for example because no recipe gains.

    A search that was planned too small is repeated on more recipes or texts, within its share; if no recipe gains, with
    all the time that is left, since the model is then not trained.
    """
    share = share_of_search(run)
    choose_by_search(run, "search", share)
    trains = run.searched["gains"] and "train" in run.plan["steps"]
    left = share - run.searched["seconds"] if trains else share_of(run, "search", trained=False)
    choose_by_search(run, "search again", left)
    if run.plan["why"] or run.searched["gains"]:
        return str(run.plan["why"])
    return (
        "no recipe gains over its own pooling, as on models that were trained for similarity, or when the labels are "
        "classes"
    )


def choose_by_search(run: Run, name: str, seconds: float) -> None:
    """Search in `seconds` unless an earlier search was hardly smaller, and choose the best recipe if it gains."""
    planned, last = plan_search(run, seconds), run.searched
    is_complete = bool(last) and not last["missing"]  # all recipes were searched on all data
    if is_complete or (last and planned["expected"] < LARGER * last["texts"] * seconds_of_search(run, last["space"])):
        return
    run.missing.pop("search", None)
    if planned["missing"]:
        run.missing["search"] = planned["missing"]
    search = run.step(name, search_step, planned)
    run.speed = dict(search["speed"])
    run.searched = {**planned, **search, "gains": search["gains"] or run.searched.get("gains", False)}
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
        notes of the search, and the `speed` as it was measured here.
    """
    own, times = run.plan["own"], [machine.elapsed()]
    names = [own, str(Recipe.parse(run.plan["baseline"]))]
    new = run.measure(*names)
    times.append(machine.elapsed())
    seconds, _ = time_texts(Encoder(run.shell()), run.inputs.texts, rounds=2)
    ratio = seconds / max(run.speed["seconds"], 1e-9)
    times.append(machine.elapsed())
    run.measure_references(run.shell(), "given")
    times.append(machine.elapsed())
    board = search(run, planned, None, folder)
    times.append(machine.elapsed())
    measuring, _, references, searching = np.diff(times).tolist()
    speed = {name: ratio * value for name, value in run.speed.items()} | {
        "tokens": run.speed["tokens"],
        "measured": measuring / new if new else run.speed["measured"],
        "references": references,
        "pace": run.speed["pace"] * searching / max(planned["expected"] * ratio, 1e-9),
    }
    best = str(board.best)
    run.measure(best)
    gains = best not in board.baselines  # False too if the leader is itself a baseline
    if run.metric.by_agreement:
        gains = best != own and board.find(best).scores[TOPICS] - board.find(own).scores[TOPICS] >= MIN_LEAD
    lead = held_out_lead(run, best) if gains and run.metric.by_agreement else None
    notes = {"verdict": board.verdict, "notes": list(board.notes)}
    return {"name": best, "lead": lead, "gains": gains, "speed": speed, **notes}


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
    own, planned = run.plan["own"], plan_timing(run)
    if planned["why"]:
        return str(planned["why"])
    step_seconds = run.step("timing", timing_step, planned)["step_seconds"]
    settings, planned = run.plan["candidates"][0], plan_trials(run, step_seconds)
    if planned["rungs"]:
        trials = run.step("trials", trials_step, planned)
        settings, step_seconds, best = trials["settings"], trials["step_seconds"], trials["name"]
        if run.metric.difference(best, own)[0] <= 0:
            run.gained(best, own, step="trials", by="trials of training", kept=False, seconds=trials["seconds"])
            return "no trial gained"
    return train(run, settings, step_seconds)


def timing_step(run: Run, folder: Path, planned: Mapping[str, Any]) -> dict[str, Any]:
    """Time a few steps of training with the first settings."""
    shutil.rmtree(folder)  # left by a killed run, whose steps would not be timed
    began: list[float] = []  # without loading the model, which would count much for so few steps
    settings, start = run.plan["candidates"][0], lambda _: began.append(machine.elapsed())
    start_or_resume(run, settings, output=folder, max_steps=planned["steps"], note=start)
    return {"step_seconds": (machine.elapsed() - began[0]) / planned["steps"]}


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
            run.metric.measure(name, encoder, tests=False)
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
    untrained, usual, stage = run.choice, usual_steps(run), 1
    training: Mapping[str, Any] = {"steps": 0, "every": 0, "step_seconds": step_seconds, "model": None}
    names: list[str] = []
    while stage <= LONGEST:
        longer = stage * usual
        further, why = train_rounds(run, settings, training, longer)
        if further["steps"] > training["steps"]:
            further_names = measure_trained(run, further, untrained)
            if names:
                leader, before = (max(measured, key=run.metric.score) for measured in (further_names, names))
                difference = run.metric.difference(leader, before)
                if difference[0] <= 0 or not (run.metric.by_labels or difference[1] > 0):
                    figures = "{:+.1f} [{:+.1f}, {:+.1f}]".format(*difference)
                    text = f"{further['steps']} steps of training are no better than {training['steps']}, {figures}"
                    run.complete.append(text)
                    break
            training, names = further, further_names
        if why:
            text = (
                f"{longer} instead of {training['steps']} steps of training" if names else f"{longer} steps of training"
            )
            run.missing["train"] = (text, (longer - training["steps"]) * training["step_seconds"])
            if not names:
                return why
            break
        stage *= 2
    else:
        run.complete.append(f"{training['steps']} steps are the longest training")
    choose_trained(run, training, names, untrained)
    return ""


def train_rounds(
    run: Run, settings: Mapping[str, Any], before: Mapping[str, Any], most: int
) -> tuple[Mapping[str, Any], str]:
    """Train in rounds to `most` steps; return the values of the last round, and why there was none to the end.

    Args:
        before: the values of the round before; its model is extended in a copy.
    """
    training, folder = before, run.folder / f"model-{most}"

    def train_round(run: Run, _: Path, planned: Mapping[str, Any]) -> dict[str, Any]:
        """Train to the next number of steps; labels select the checkpoint."""
        if before["model"] and not folder.exists():
            copy = folder.with_name(f"{folder.name}-copy")  # a killed run may have left a part of it
            shutil.rmtree(copy, ignore_errors=True)
            shutil.copytree(run.folder / before["model"], copy)
            copy.rename(folder)
        began = machine.elapsed()
        steps: dict[str, int] = {"max_steps": planned["steps"], "validate_every": planned["every"]}
        labels = run.metric.validation()
        encoder = start_or_resume(run, settings, output=folder, validate=labels, progress=run.progress, **steps)
        step_seconds = (machine.elapsed() - began) / planned["new"]
        return {**planned, "model": folder.name, "step_seconds": step_seconds, "recipe": str(encoder.recipe)}

    while training["steps"] < most:
        planned = plan_train(run, training["step_seconds"], training["steps"], most, training["every"])
        if planned["why"]:
            return training, str(planned["why"])
        training = run.step(f"train, from step {training['steps']}", train_round, planned)
    return training, ""


def measure_trained(run: Run, training: Mapping[str, Any], untrained: str) -> list[str]:
    """Measure a trained model with the recipe of its training and with the best recipe before training.

    A gain with the same recipe is the best evidence for the training.
    """
    prefix = f"{TRAINED}{training['steps']} steps"
    run.models[prefix] = run.folder / training["model"]
    names = [f"{prefix}: {recipe}" for recipe in dict.fromkeys((training["recipe"], untrained))]

    def measure(run: Run, folder: Path, planned: Mapping[str, Any]) -> dict[str, Any]:
        run.measure(*names)
        run.measure_references(run.shell(run.models[prefix]), prefix)
        return {"measured": names}

    run.step(f"train, measured after {training['steps']} steps", measure, {"text": "compare the trained model"})
    return names


def choose_trained(run: Run, training: Mapping[str, Any], names: list[str], untrained: str) -> None:
    """Search recipes on the trained model, and choose the best one if it is better than the best before training."""
    prefix = f"{TRAINED}{training['steps']} steps"
    planned = plan_search(run, share_of(run, "train") - 2 * run.speed["measured"])
    if planned["missing"]:
        text, seconds = planned["missing"]
        run.missing["second search"] = (f"on the trained model {text}", seconds)

    def search_trained(run: Run, folder: Path, planned: Mapping[str, Any]) -> dict[str, Any]:
        board = search(run, planned, run.models[prefix], folder)
        # the leader too, if the search does not establish it as better than the others
        measured = [*names, *(f"{prefix}: {recipe}" for recipe in (board.best, board.leader))]
        run.measure(*measured)
        return {"measured": measured, "steps": training["steps"]}

    trained = run.step("train", search_trained, planned)
    best = max(trained["measured"], key=run.metric.score)
    if run.metric.difference(best, untrained)[0] > 0:
        run.choice = best
    seconds = sum(entry["seconds"] for name, entry in run.entries.items() if name.startswith("train"))
    by = f"{training['steps']} steps of training and the recipe {recipe_of(best)}"
    run.gained(best, untrained, step="train", by=by, kept=run.choice != untrained, seconds=seconds)
