"""The steps of an improvement: searches for recipes, training, and the encoder, static table and graph that are saved.

search ─ timing ─ rounds of training ─ search on the trained model ─ encoder ─ static ─ graph

A step is computed by a function of the run, a folder and its plan, which measures encoders and returns plain values.
A round of training ends before its time is over, and the next one is planned by the measured seconds per step. Every
round is an entry of the journal, so that a resumed run trains for the same steps.
"""

from __future__ import annotations

import shutil
import statistics
from collections.abc import Mapping
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from essent._core import machine
from essent.encoder.encoder import Encoder
from essent.engine.conversion import compile as compile_graph
from essent.engine.files import load as load_graph
from essent.errors import EngineError, InputError
from essent.improvement.metric import bounded, subsample
from essent.improvement.plan import (
    LARGER,
    plan_search,
    plan_timing,
    plan_train,
    seconds_of_search,
    share_of,
    space_of,
)
from essent.recipe.recipe import Recipe
from essent.recipe.shaping.affine import AffineShaper
from essent.selection.leaderboard import Leaderboard
from essent.selection.run import search as search_recipes
from essent.selection.space import Space
from essent.selection.topics import MIN_LEAD, TOPICS
from essent.static.distillation import collect, make_encoder
from essent.static.table import Choice, Material
from essent.tasks.pairs import DuplicateTask
from essent.training.run import train as train_model

if TYPE_CHECKING:
    from essent.improvement.run import Run

MODEL = "model"  # folder of the trained model
TABLES = (Choice(), Choice(weights="sif:0.01", ridge=0.03), Choice(weights="sif:0.01", shaping="abtt:2"))
TIMED_TEXTS, TIMED_ROUNDS = 64, 3  # texts and rounds in which a result's speed is measured

# -- recipes ----------------------------------------------------------------------------------------------------------


def choose_recipe(run: Run) -> None:
    """Search, and again while the time allows a larger search; choose the best recipe if it gains."""
    while True:
        planned, last = plan_search(run, share_of(run, "search")), run.searched
        if last and not last["missing"]:  # all recipes were searched on all data
            return
        if last and planned["expected"] < LARGER * last["texts"] * seconds_of_search(run, last["space"]):
            return
        run.missing["search"] = planned["missing"]
        number = 1 + sum(step.startswith("search") for step in run.reached)
        name = f"search {number}" if number > 1 else "search"
        search = run.step(name, search_step, planned)
        run.speed["pace"] = search["pace"]
        run.searched = {**planned, **search, "gains": search["gains"] or last.get("gains", False)}
        best, before = search["name"], run.choice
        if run.metric.by_agreement:  # the criterion compared the recipes of this search, the largest so far
            run.choice = run.metric.own = best if search["gains"] else run.plan["own"]
            continue
        difference, low, _ = run.metric.difference(best, before)
        # the search may retain a baseline by default, so its gain must be significant
        if difference > 0 and (low > 0 or search["gains"]):
            run.choice = best
        run.gained(best, before, step=name, by=f"recipe {best}", kept=run.choice != before)


def search_step(run: Run, folder: Path, planned: Mapping[str, Any]) -> dict[str, Any]:
    """Search recipes, and measure the best one, the model's own pooling and the mean.

    Returns:
        The best recipe by `name`, its `lead` on held-out texts, whether it `gains` over the baselines, the verdict and
        notes of the search, and its `pace`.
    """
    own = run.plan["own"]
    run.measure(own, str(Recipe.parse(run.plan["baseline"])))
    if not run.searched:
        run.measure_references(run.shell(), "original")
    began = machine.elapsed()
    board = search(run, planned, None, folder)
    pace = run.speed["pace"] * (machine.elapsed() - began) / max(planned["expected"], 1e-9)
    best = str(board.best)
    run.measure(best)
    gains = best not in board.baselines  # False too if the leader is itself a baseline
    if run.metric.by_agreement:
        gains = best != own and board.find(best).scores[TOPICS] - board.find(own).scores[TOPICS] >= MIN_LEAD
    lead = held_out_lead(run, best) if gains and run.metric.by_agreement else None
    notes = {"verdict": board.verdict, "notes": list(board.notes)}
    return {"name": best, "lead": lead, "gains": gains, "pace": pace, **notes}


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


def train(run: Run) -> str:
    """Train in rounds while there is time, and choose a recipe of the trained model if it is better than before.

    Returns:
        Why the model was not trained; "" if it was.
    """
    planned, training = plan_timing(run), {"steps": 0}
    if not planned["why"]:
        step_seconds = run.step("train, timed", timing_step, planned)["step_seconds"]
        planned = plan_train(run, step_seconds, 0)
        while planned["new"] and not planned["why"]:
            training = run.step(f"train, from step {training['steps']}", train_round, planned)
            planned = plan_train(run, training["step_seconds"], training["steps"])
    run.missing["train"] = planned["missing"]
    if not training["steps"]:
        return str(planned["why"])
    choose_trained(run, training)
    return ""


def timing_step(run: Run, folder: Path, planned: Mapping[str, Any]) -> dict[str, Any]:
    """Time a few steps of training."""
    shutil.rmtree(folder)  # left by a killed run, whose steps would not be timed
    began: list[float] = []  # without loading the model, which would count much for so few steps
    start_or_resume(run, output=folder, max_steps=planned["steps"], note=lambda _: began.append(machine.elapsed()))
    return {"step_seconds": (machine.elapsed() - began[0]) / planned["steps"]}


def start_or_resume(run: Run, **arguments: Any) -> Encoder:
    """Train a copy of the model on the texts, or resume its training."""
    settings = run.plan["training"]
    return train_model(run.shell(), list(run.inputs.texts), "simcse-unsup", resume=True, **settings, **arguments)


def train_round(run: Run, folder: Path, planned: Mapping[str, Any]) -> dict[str, Any]:
    """Train to the next number of steps; labels select the checkpoint."""
    began, labels = machine.elapsed(), run.metric.validation()
    steps: dict[str, int] = {"max_steps": planned["steps"], "validate_every": planned["every"]}
    encoder = start_or_resume(run, output=run.folder / MODEL, validate=labels, progress=run.progress, **steps)
    return {
        "steps": planned["steps"],
        "step_seconds": (machine.elapsed() - began) / planned["new"],
        "recipe": str(encoder.recipe),
    }


def choose_trained(run: Run, training: Mapping[str, Any]) -> None:
    """Search recipes on the trained model, and choose the best one if it is better than the best before training.

    The recipe of the training and the best one before are measured too: a gain with the same recipe is the best
    evidence for the training.
    """
    prefix, untrained = f"trained for {training['steps']} steps", run.choice
    run.models[prefix] = run.folder / MODEL

    def search_trained(run: Run, folder: Path, planned: Mapping[str, Any]) -> dict[str, Any]:
        run.measure_references(run.shell(run.models[prefix]), prefix)
        board = search(run, planned, run.models[prefix], folder)
        # the leader too, if the search does not establish it as better than the others
        recipes = dict.fromkeys((training["recipe"], untrained, str(board.best), str(board.leader)))
        names = [f"{prefix}: {recipe}" for recipe in recipes]
        run.measure(*names)
        return {"measured": names, "steps": training["steps"]}

    trained = run.step("train, searched", search_trained, plan_search(run, share_of(run, "train")))
    best = max(trained["measured"], key=run.metric.score)
    if run.metric.difference(best, untrained)[0] > 0:
        run.choice = best
    by = f"{training['steps']} steps of training and the recipe {run.parts_of(best)[1]}"
    run.gained(best, untrained, step="train", by=by, kept=run.choice != untrained)


# -- what is saved ----------------------------------------------------------------------------------------------------


def encoder(run: Run, folder: Path, planned: Mapping[str, Any]) -> dict[str, Any]:
    """Fit, calibrate and save the best encoder."""
    fitted = run.encoder(run.choice)
    path = _save(run, fitted, "encoder")
    return _measure(run, "encoder", Encoder(str(path), device=str(fitted.device)))


def static(run: Run, folder: Path, planned: Mapping[str, Any]) -> dict[str, Any]:
    """Distil static tables from the encoder, and save the best."""
    metric, texts = run.metric, list(run.inputs.texts[: planned["texts"]])
    source, unseen = Encoder(str(run.output / "encoder")), planned["unseen"]
    backbone = source.module.backbone
    if unseen == "static" and backbone.static_table.shape[1] != backbone.dimensions:
        unseen = "mean"
    model = run.shell(run.parts_of(run.choice)[0])
    averages, _ = collect(model, texts, layers=["L"], teacher="mean", score=False, unseen=unseen)
    tables = {
        f"static, {teacher}{choice}": make_encoder(material, choice, score=False).encoder
        for teacher, material in (("", averages), ("taught by the encoder, ", _imitating(averages, source, texts)))
        for choice in TABLES
    }
    for name, table in tables.items():
        metric.measure(name, table, tests=False)
    best = max(tables, key=lambda name: (round(metric.score(name), 1), metric.agreement("encoder", name)))
    return _measure(run, "static", Encoder(str(_save(run, tables[best], "static")), device="cpu"))


def _imitating(averages: Material, source: Encoder, texts: list[str]) -> Material:
    """Return the material of tables that imitate an encoder: its vectors, and the averages with its shaping."""
    chain, tables = source.module.chain, dict(averages.contexts.tables)
    steps = list(takewhile(lambda step: isinstance(step, AffineShaper), chain.steps))
    if steps and len(steps) + 1 >= len(chain.steps):  # all steps except the last, which normalizes
        affine = type(chain)(steps).as_affine()
        assert affine is not None  # noqa: S101
        tables = {
            layer: ((table - affine.mean) @ affine.matrix + affine.offset).astype(np.float32)
            for layer, table in tables.items()
        }
    vectors = np.asarray(source.encode(texts, show_progress_bar=False), np.float32)  # (N,D)
    if any(table.shape[1] != vectors.shape[1] for table in tables.values()):
        return averages
    return replace(
        averages, contexts=replace(averages.contexts, tables=tables), vectors=vectors, fits={}, held_out=None
    )


def graph(run: Run, folder: Path, planned: Mapping[str, Any]) -> dict[str, Any]:
    """Compile the encoder to one graph."""
    path = str(run.output / "graph")
    try:
        compile_graph(Encoder(str(run.output / "encoder"), device="cpu"), run.plan["engine"]).save(path)
    except EngineError as error:
        return {"why": str(error).rstrip(".")}
    return _measure(run, "graph", load_graph(path))


def _save(run: Run, encoder: Encoder, name: str) -> Path:
    """Calibrate an encoder on the texts, and on labelled duplicates if there are any; save it.

    Its model card contains its origin, but no times, so that the same run writes the same card.
    """
    duplicates = [task for task in run.inputs.tasks if isinstance(task, DuplicateTask)]
    for pairs in (*duplicates[:1], None):
        try:
            encoder.calibrate(run.fit_texts, pairs, seed=run.settings["seed"])
            break
        except InputError as error:  # too few labelled matches, or a similarity other than the cosine
            run.note(f"Similarities: {error}")
    lines = [f"`essent improve` on {len(run.inputs.texts):,} texts, measured by {run.metric.by}."]
    if run.metric.tests:
        score = bounded(*run.metric.with_interval(run.choice, test=True))
        lines.append(f"On the test ({run.metric.test_name}): {score}")
    if encoder.calibration is not None:
        lines.append(f"Calibrated similarity: {encoder.calibration}.")
    encoder.chosen = tuple(lines)
    path = run.output / name
    encoder.save(str(path), model_name=f"essent/{name}-{encoder.recipe.digest()[:8]}")
    return path


def _measure(run: Run, name: str, saved: Any) -> dict[str, Any]:
    """Measure a saved encoder; return texts per second (median of rounds on held-out texts) and bytes on disk."""
    run.metric.measure(name, saved)
    texts, seconds = list(run.inputs.held_out[:TIMED_TEXTS]), []
    for _ in range(TIMED_ROUNDS):
        began = machine.elapsed()
        saved.encode(texts, show_progress_bar=False)
        seconds.append(machine.elapsed() - began)
    size = sum(path.stat().st_size for path in (run.output / name).rglob("*") if path.is_file())
    return {"texts_per_second": len(texts) / statistics.median(seconds), "bytes": size}
