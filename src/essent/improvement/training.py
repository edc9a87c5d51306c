"""The training of an improvement: timing, trials, rounds of training, and the recipe of the trained model.

timing ─ trials ─ rounds up to the usual number of steps ─ longer while that gains ─ search on the trained model

A round ends before its time is over, and the next one is planned by the measured seconds per step. Every round is an
entry of the journal, so that a resumed run trains for the same steps.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from essent._core import machine
from essent.encoder.encoder import Encoder
from essent.improvement.budget import (
    LONGEST,
    plan_search,
    plan_timing,
    plan_train,
    plan_trials,
    share_of,
    usual_steps,
)
from essent.improvement.recipes import search
from essent.improvement.results import TRAINED, recipe_of
from essent.training.run import train as train_model

if TYPE_CHECKING:
    from essent.improvement.run import Run


def train_if_better(run: Run) -> str:
    """Train if the trials gain, and choose a recipe of the trained model if it is better.

    Returns:
        Why the model was not trained; "" if it was.
    """
    own = run.plan["own"]
    planned = run.decide("timing", lambda: plan_timing(run))
    if planned["why"]:
        run.missing["train"] = ("training", planned["missing_seconds"])
        return str(planned["why"])
    timed = run.step("timing", partial(timing_step, steps=planned["steps"]))
    settings, step_seconds = run.plan["candidates"][0], timed["step_seconds"]
    planned = run.decide("trials", lambda: plan_trials(run, step_seconds))
    run.missing["trials"] = (planned["missing"], planned["missing_seconds"])
    if planned["rungs"]:
        trials = run.step("trials", partial(trials_step, planned=planned))
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


# -- rounds -----------------------------------------------------------------------------------------------------------


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
        arguments = (training["step_seconds"], training["steps"], most, training["every"])
        planned = run.decide(name, partial(plan_train, run, *arguments))
        if planned["why"]:
            return training, str(planned["why"])
        step = partial(round_step, planned=planned, settings=settings, output=output, source=source)
        training = run.step(name, step)
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
    measuring = 2 * run.speed["measured"]
    planned = run.decide("search on the trained model", lambda: plan_search(run, share_of(run, "train") - measuring))
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
