"""The steps of an improvement: start, search, trials, train, encoder, static, graph.

Each step has the run and a folder as arguments, and returns plain values and the evidence of the measured encoders.
"""

from __future__ import annotations

import shutil
import statistics
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from itertools import pairwise, takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from essent._core import machine
from essent._core.atomic import require_replaceable
from essent._core.texts import distinct_texts
from essent.encoder.encoder import Encoder
from essent.engine.compiled import compile as compile_graph
from essent.engine.files import load as load_graph
from essent.errors import EngineError, InputError
from essent.improvement.metric import REFERENCE, Evidence, agreement, subsample
from essent.improvement.plan import LAYERS, MAX_VALIDATIONS, MIN_STEPS, TIMED_ROUNDS, TIMED_TEXTS, space_of
from essent.recipe.recipe import Recipe
from essent.recipe.shaping.affine import AffineShaper
from essent.selection.evaluation import Bench
from essent.selection.run import search as search_recipes
from essent.selection.space import Grid, Space
from essent.static.distillation import collect, make_encoder
from essent.static.gather import Settings as PassSettings
from essent.static.table import Choice as TableChoice
from essent.static.table import Material
from essent.tasks.pairs import DuplicateTask
from essent.training.run import train as train_model

if TYPE_CHECKING:
    from essent.improvement.run import Run

StepResult = tuple[dict[str, Any], dict[str, Evidence]]
ENCODER, STATIC, GRAPH = "encoder", "static", "graph"
TRAINED = "trained: "  # prefix of a recipe on the trained model
# Share of the remaining budget that training may use, its minimum assumed pace, and its minimum share.
SAFE, MIN_PACE, MIN_TRAINING = 0.95, 0.8, 0.5
REPORTED = 12  # first recipes of a search
SMALLER = (2, 4)  # divisors of the dimensions, for smaller tables
TABLES = (TableChoice(), TableChoice(weights="sif:0.01", ridge=0.03), TableChoice(weights="sif:0.01", shaping="abtt:2"))
SMALL_TABLE = 0.98  # minimum share of a table's score for a smaller one to be chosen for the goal size
# Reference recipes of the criterion without labels, on every tried model.
SHAPING = ("", "centre | normalize", "whiten | normalize")
REFERENCES = Grid(layers=LAYERS, weights=("uniform", "idf"), shaping=SHAPING)
STATIC_REFERENCES = Grid(layers=("static",), weights=("uniform", "idf", "sif"), shaping=SHAPING)


# -- the model as it is, and searches ---------------------------------------------------------------------------------


def start(run: Run, folder: Path) -> StepResult:
    """Measure the model's own pooling and the mean."""
    recipes = dict.fromkeys([run.plan["own"], str(Recipe.parse(run.plan["baseline"]))])
    return {}, {**run.measure(recipes), **references(run, None, "given")}


def references(run: Run, trained: Path | None, label: str) -> dict[str, Evidence]:
    """Return the evidence of the criterion's reference recipes on a model; empty with labels.

    The references of all tried models are used together: those of the model before training alone would score every
    trained model lower, as it agrees less with them.
    """
    if run.metric.by_labels:
        return {}
    pairs = run.metric.measured["pairs"]
    grid = STATIC_REFERENCES if run.capabilities.only_static else REFERENCES
    recipes, _ = Space((grid,), name=REFERENCE).expand(run.capabilities)
    texts, rows = distinct_texts(pairs.texts())
    bench = Bench(run.shell(trained), recipes, batch_size=32, progress=False, options={})
    return {
        f"{REFERENCE} {label} {recipe}": {"pairs": pairs.evidence(np.asarray(vectors, np.float64), rows.tolist())}
        for recipe, vectors in bench.vectors(texts, run.fit_texts, run.fit_texts)
    }


def search(run: Run, folder: Path, prefix: str = "") -> StepResult:
    """Search recipes on the model, or with prefix `TRAINED` on the trained model; the best is fitted and measured."""
    plan = run.plan["again" if prefix else "search"]
    seed, own = run.settings["seed"], run.plan["own"]
    baselines = [run.plan["baseline"], *([] if run.capabilities.only_static else ["first-last"]), own]
    tasks = subsample(run.inputs.tasks, plan["units"], seed)
    data: Any = tasks[0] if len(tasks) == 1 else tasks or list(run.inputs.texts[: plan["texts"]])
    board = search_recipes(
        run.shell(run.trained if prefix else None),
        data,
        space_of(plan["space"]),
        baselines=tuple(dict.fromkeys(baselines)),
        seed=seed,
        work=folder / "search",
        progress=run.progress,
    )
    # on a trained model, where no recipe is established, also the leader if it is not significantly better than `mean`
    measured = [f"{prefix}{board.best}", *([f"{prefix}{board.leader}"] if prefix else [])]
    values = {
        "name": measured[0],
        "measured": measured,
        "gains": str(board.best) not in board.baselines,  # False too if the leader is itself a baseline
        "verdict": board.verdict,
        "notes": list(board.notes),
        "criterion": board.criterion,
        "recipes": len(board.trials),
        "rows": [[str(trial.recipe), trial.scores[board.criterion]] for trial in board.trials[:REPORTED]],
    }
    return values, run.measure(measured)


# -- training ---------------------------------------------------------------------------------------------------------


def trials(run: Run, folder: Path) -> StepResult:
    """Run successive halving: all settings for some steps, the better half for more steps, until one is left."""
    shutil.rmtree(folder)  # left by a killed run: a trial cannot resume at an earlier step
    decision = run.journal.once("trials that fit", partial(affordable_trials, run))
    settings, rungs = decision["settings"], decision["rungs"]
    alive, names, step_seconds = list(range(len(settings))), {}, {}
    evidence: dict[str, Evidence] = {}
    rows: list[list[Any]] = []
    for before, rung in pairwise([0, *rungs]):
        for trial in alive:
            began = machine.elapsed()
            output = folder / f"trial-{trial}"
            encoder = _train(run, settings[trial], output=output, max_steps=rung, validate_every=rungs[0])
            step_seconds[trial] = (machine.elapsed() - began) / (rung - before)
            names[trial] = f"trial {trial + 1} after {rung} steps"
            evidence[names[trial]] = run.metric.measure(encoder, tests=False)
        scores = run.scores(evidence).values
        alive.sort(key=lambda trial: -scores[names[trial]])
        rows += [[trial + 1, rung, scores[names[trial]]] for trial in alive]
        if before == 0:
            evidence |= references(run, folder / f"trial-{alive[0]}", "trial")
        best, alive = alive[0], alive[: max(1, len(alive) // 2)]
    return {"name": names[best], "settings": settings[best], "rows": rows, "each": step_seconds[best]}, evidence


def affordable_trials(run: Run) -> dict[str, Any]:
    """Return the planned settings and steps of the trials, halved until they fit the remaining budget."""
    plan = run.plan["training"]
    settings, rungs, seconds = plan["trials"], plan["rungs"], plan["trial_seconds"]
    while seconds > 0.5 * run.remaining and len(settings) > 2:
        settings, rungs, seconds = settings[: len(settings) // 2], rungs[: max(1, len(rungs) - 1)], seconds / 2.5
    return {"settings": settings, "rungs": rungs}


def _train(run: Run, settings: Mapping[str, Any], **arguments: Any) -> Encoder:
    return train_model(run.shell(), list(run.inputs.texts), "simcse-unsup", resume=True, **settings, **arguments)


def train(run: Run, folder: Path, settings: Mapping[str, Any], step_seconds: float) -> StepResult:
    """Train with the best settings; labels select the checkpoint, without labels it is the last.

    The trained model is measured with the recipe of its training and with the best recipe before training: a gain with
    the same recipe is the best evidence for the training.

    Args:
        step_seconds: seconds per step in the trials; 0 without trials.
    """
    decision = run.journal.once("steps of train", partial(affordable_steps, run, step_seconds))
    steps = decision["steps"]
    if steps == 0:
        return {"steps": 0, "cut": decision["cut"]}, {}
    encoder = _train(
        run,
        settings,
        output=run.trained,
        validate=run.metric.validation(),
        max_steps=steps,
        validate_every=max(4, -(-steps // (run.plan["training"]["validations"] or MAX_VALIDATIONS))),
        progress=run.progress,
    )
    measured = [f"{TRAINED}{recipe}" for recipe in (encoder.recipe, run.choice)]
    evidence = {**run.measure(measured), **references(run, run.trained, "trained")}
    return {"steps": steps, "cut": decision["cut"], "measured": measured}, evidence


def affordable_steps(run: Run, step_seconds: float) -> dict[str, Any]:
    """Return how many training steps fit the remaining budget, by their seconds in the trials.

    Time for the later steps is reserved as planned. `cut` is the reason if there are fewer steps than planned.
    """
    training, speed, planned = run.plan["training"], run.plan["speed"], run.plan["steps"]
    names = [name for name, _, _ in planned]
    measured = (training["validations"] + 2) * speed["measured"] + 2 * speed["tested"]
    pace = max(run.pace, MIN_PACE)
    later = pace * (sum(seconds for _, _, seconds in planned[names.index("train") + 1 :]) + measured)
    step_seconds = step_seconds or pace * training["seconds"] / training["steps"]
    free = max(SAFE * run.remaining - later, MIN_TRAINING * run.remaining)  # later steps can be shortened too
    steps = min(training["most"], int(free / max(step_seconds, 1e-9)))
    if steps < MIN_STEPS:
        return {"steps": 0, "cut": f"only {max(run.remaining, 0.0):.0f} s of the budget were left"}
    cut = f"{training['steps']} steps were planned, but only {steps} fitted the budget"
    return {"steps": steps, "cut": cut if steps < training["steps"] else ""}


# -- the output -------------------------------------------------------------------------------------------------------


def encoder(run: Run, folder: Path) -> StepResult:
    """Fit, calibrate and save the best encoder."""
    fitted = run.encoder(run.choice)
    path = run.journal.output / ENCODER
    _save(run, fitted, path)
    saved = Encoder(str(path), device=str(fitted.device))
    evidence = {ENCODER: run.metric.measure(saved)}
    return _figures(evidence, evidence[ENCODER], saved, path, run), evidence


def _save(run: Run, encoder: Encoder, path: Path) -> None:
    """Calibrate and save an encoder, with its origin in the model card.

    The card contains no times, so that the same run writes the same card.
    """
    require_replaceable(path)
    lines = [f"`essent improve` on {len(run.inputs.texts):,} texts, measured by {run.metric.by}."]
    scores, tests = run.scores(), run.metric.test_scores(run.evidence)
    for recipe in dict.fromkeys([run.plan["own"], run.choice]):
        lines.append("`{}`: {:.2f} [{:.2f}, {:.2f}]".format(recipe, *scores.with_interval(recipe)))
    if tests is not None:
        figures = "{:.2f} [{:.2f}, {:.2f}]".format(*tests.with_interval(run.choice))
        lines.append(f"On the test ({run.metric.test_name}): {figures}")
    if calibrated := _calibrate(run, encoder):
        lines.append(f"Calibrated similarity: {calibrated}.")
    name = encoder.model_card_data.model_name = f"essent/{path.name}-{encoder.recipe.digest()[:8]}"

    def finish(folder: Path, reason: str) -> None:
        encoder.write_card(folder, reason, name=name)
        card = folder / "README.md"
        if card.is_file():
            section = "## How it was made\n\n" + "".join(f"- {line}\n" for line in lines)
            card.write_text(f"{card.read_text('utf-8').rstrip()}\n\n{section}", encoding="utf-8")

    encoder.write_folder(path, "stock", finish)


def _calibrate(run: Run, encoder: Encoder) -> str:
    """Calibrate on the texts, and on labelled duplicates if there are any; return a description, or ""."""
    duplicates = [task for task in run.inputs.tasks if isinstance(task, DuplicateTask)]
    for pairs in (*duplicates[:1], None):
        try:
            encoder.calibrate(run.fit_texts, pairs, seed=run.settings["seed"])
            return str(encoder.calibration)
        except InputError as error:  # too few labelled matches, or a similarity other than the cosine
            run.note(f"Similarities: {error}")
    return ""


def static(run: Run, folder: Path) -> StepResult:
    """Distil static tables from the encoder; save the best, or for the goal size its smallest good form."""
    source = Encoder(str(run.journal.output / ENCODER))
    texts = list(run.inputs.texts[: run.plan["distilled"]])
    passes = PassSettings(unseen="alone" if run.plan["alone"] else "static")
    averages, _ = collect(
        run.shell(run.trained if run.choice.startswith(TRAINED) else None),
        texts,
        layers=["L"],
        teacher="mean",
        settings=passes,
    )
    tables = {
        f"static, {teacher}{choice}": make_encoder(material, choice)
        for teacher, material in (("", averages), ("taught by the encoder, ", _taught(averages, source, texts)))
        for choice in TABLES
    }
    evidence = {name: run.metric.measure(table.encoder, tests=False) for name, table in tables.items()}
    scores = run.scores(evidence).values
    alike = {name: agreement(run.evidence[ENCODER], evidence[name]) for name in tables}
    best = max(tables, key=lambda name: (round(scores[name], 1), alike[name]))
    make = partial(make_encoder, tables[best].material, tables[best].choice, dtype="int8")
    width = int(tables[best].encoder.get_embedding_dimension() or 0)
    forms = {best: tables[best].encoder, f"{best}, int8": make().encoder}
    for size in (width // divisor for divisor in SMALLER if width // divisor >= 8):
        forms[f"{best}, {size} dimensions, int8"] = make(dimensions=size).encoder
    evidence = {name: run.metric.measure(form) for name, form in forms.items()}
    scores, name = run.scores(evidence).values, best
    if run.settings["goal"] == "size":
        name = [form for form in forms if scores[form] >= SMALL_TABLE * scores[best]][-1]
    path = run.journal.output / STATIC
    _save(run, forms[name], path)
    evidence = {STATIC: evidence.pop(name), **evidence}
    figures = _figures(evidence, run.evidence[ENCODER], Encoder(str(path), device="cpu"), path, run)
    return {"name": name, **figures}, evidence


def _taught(averages: Material, source: Encoder, texts: list[str]) -> Material:
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
    return replace(averages, contexts=replace(averages.contexts, tables=tables), vectors=vectors, fits={})


def graph(run: Run, folder: Path) -> StepResult:
    """Compile the encoder to one graph."""
    path = run.journal.output / GRAPH
    try:
        compile_graph(Encoder(str(run.journal.output / ENCODER), device="cpu"), run.plan["engine"]).save(str(path))
    except EngineError as error:
        return {"why": f"No graph was made: {error}"}, {}
    compiled = load_graph(str(path))
    evidence = {GRAPH: run.metric.measure(compiled)}
    return _figures(evidence, run.evidence[ENCODER], compiled, path, run), evidence


def _figures(
    evidence: Mapping[str, Evidence], reference: Evidence, encoder: Any, folder: Path, run: Run
) -> dict[str, Any]:
    """Return agreement with the reference, texts per second (median of rounds on held-out texts), bytes on disk."""
    texts = list(run.inputs.held_out[:TIMED_TEXTS])
    encoder.encode(texts[:16], show_progress_bar=False)
    seconds = []
    for _ in range(TIMED_ROUNDS):
        began = machine.elapsed()
        encoder.encode(texts, show_progress_bar=False)
        seconds.append(machine.elapsed() - began)
    return {
        "agreement": {name: agreement(reference, arrays) for name, arrays in evidence.items()},
        "texts_per_second": len(texts) / statistics.median(seconds),
        "bytes": sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()),
    }
