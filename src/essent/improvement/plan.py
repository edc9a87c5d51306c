"""The plan of an improvement, and how much each step does in its part of the time budget.

The plan contains the steps and the speed of the model. Each step is planned when it begins, from what is then left of
the budget. The last steps (encoder, static table, graph) have a limited cost, which is set aside. The others share the
rest. Speeds are measured again as the steps run (`Run.speed`). Plans read no clock but the seconds of finished steps in
the journal, so that a resumed run repeats them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import cache
from importlib.util import find_spec
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
from sentence_transformers import SentenceTransformer

from essent._core import machine
from essent._core.display import duration
from essent.encoder.encoder import Encoder
from essent.errors import InputError
from essent.improvement.metric import LAYERS, Inputs, Metric, texts_of
from essent.model.capabilities import ModelCapabilities, capabilities_of
from essent.selection.label_free import TEACHER
from essent.selection.space import Grid, Space, find_space
from essent.selection.topics import CRITERIA, MAX_TEXTS, SIMILARITY, Topics
from essent.tasks.base import LabeledTask
from essent.training.run import has_dropout

if TYPE_CHECKING:
    from essent.improvement.run import Run

UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}
MIN_BUDGET = 1.0  # seconds
SHARES = {"search": 0.2, "train": 0.62, "encoder": 0.08, "static": 0.08, "graph": 0.02}  # of the budget
LAST = ("encoder", "static", "graph")  # steps whose cost is set aside, at most their shares of the budget
MARGIN = 0.03  # share of the budget for steps that take longer than planned
FIT_SHARE, MAX_FITTED, MIN_FITTED = 0.06, 20_000, 200  # texts on which recipes are fitted, and their share
MEASURE_SHARE, MIN_MEASURED = 0.015, 300  # maximum share of the budget for measuring an encoder; minimum texts
SAMPLE, MAX_SAMPLE, SAMPLE_SECONDS = 48, 512, 2.0  # usual and maximum number of timed texts, and maximum seconds
STEPS = tuple(f"{step} | normalize" for step in ("centre", "zscore", "whiten", "whiten:64"))
SPACES = {
    "small": Space(
        (
            Grid(layers=LAYERS, weights=("uniform", "idf"), shaping=("", *STEPS)),
            Grid(layers=("0+L",), weights=("ditto:*",), shaping=("", "whiten | normalize")),
        ),
        name="small",
    ),
    "static": Space(
        (Grid(layers=("static",), weights=("uniform", "idf", "sif"), shaping=("", STEPS[0], "abtt | normalize")),),
        name="static",
    ),
}
PASSES = {"auto": 12.0, "small": 4.0, "static": 1.0}  # the cost of a search, in passes over its texts
PROMPT_PASSES = 3.0  # of the reference recipes of `teacher` on a causal language model, in addition
PAIRED = 1.6  # texts encoded per text, with the pairs that a criterion without labels makes
MAX_SEARCH_TEXTS, MIN_SEARCH_TEXTS = 4000, 200  # texts of a search; the maximum applies without labels
MEASURED = 4  # encoders that the first search measures, the reference recipes together as one; later ones 1
LARGER = 1.5  # a search is repeated if it can be so many times as large
SEARCH_SHARE = 0.25  # maximum share of the step `train` for the search on the trained model
BATCH = 64
PASSES_PER_STEP, TRAINED_TOKENS = 5.0, 32  # cost of a training step in passes over two views; tokens per text
TIMED_STEPS, MIN_TIMED, TIMED_SHARE = 8, 2, 0.1  # steps by which training is timed
MIN_STEPS, MAX_STEPS, EPOCHS = 24, 120, 3  # steps and epochs of a training; with labels, LONGEST times as many
LONGEST = 4
MIN_FURTHER = 8  # minimum steps by which a training is continued
ROUND = 0.85  # a training is planned again after this share of its time
VALIDATIONS = 8  # of the usual number of steps
MAX_DISTILLED = 20_000
ALONE_SHARE = 0.1  # maximum share of the budget for vectors of tokens that the texts lack
# cost: passes over the texts, and additional seconds
ENCODER_PASSES, ENCODER_SECONDS, STATIC_PASSES, STATIC_SECONDS, GRAPH_SECONDS = 2, 5.0, 4, 5.0, 10.0
ENGINES = {"openvino": ("openvino",), "onnx": ("onnx", "onnxscript", "onnxruntime")}


def parse_budget(budget: str) -> float:
    """Return the seconds of a budget such as 90s, 30m or 1.5h.

    Raises:
        InputError: not a number with a unit, or less than one second.
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([smh])\s*", str(budget))
    seconds = float(match[1]) * UNITS[match[2]] if match else 0.0
    if seconds < MIN_BUDGET:
        raise InputError(
            f"budget={budget!r}: must be a number of seconds, minutes or hours of at least 1s, such as 90s, 30m or "
            "1.5h."
        )
    return seconds


def make_plan(shell: SentenceTransformer, inputs: Inputs, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Plan the steps of an improvement, as plain values.

    Args:
        settings: see `Run`.

    Returns:
        Names of the `steps`; `why` there is no training, or its settings as `training`; the model's `capabilities` and
        its `own` recipe; the `speed`: `seconds` and `tokens` per text, seconds of `scoring` a recipe per text, of a
        training `step`, of an encoder that is `measured`; the `pace`, which is the ratio of the duration of a search to
        the expected one.
    """
    budget, use, seed = settings["seconds"], settings["use"], settings["seed"]
    encoder, size = Encoder(shell), int(shell.get_embedding_dimension() or 1)
    capabilities, recipe = capabilities_of(encoder.module.backbone), str(encoder.recipe)
    seconds, tokens = time_texts(encoder, [*inputs.texts, *inputs.held_out])
    max_texts = int(max(MIN_MEASURED, MEASURE_SHARE * budget / max(seconds, 1e-9)))
    metric = Metric(inputs, seed, max_texts, criterion=CRITERIA.get(use, TEACHER))
    clustered = [task for task in metric.tasks if task.compared() is None]  # these read vectors, not similarities
    topics = Topics.of(inputs.texts[:MAX_TEXTS], seed) if metric.by_agreement else None
    scoring = time_scoring(clustered, topics, size)
    measured = len(texts_of([*metric.measured.values(), *metric.tests]).union(metric.held_out))
    batch = min(BATCH, len(inputs.texts) // 2)
    speed = {
        "seconds": seconds,
        "tokens": tokens,
        "scoring": scoring,
        "measured": seconds * measured + scoring * len(texts_of(clustered)),
        "step": PASSES_PER_STEP * 2 * batch * seconds * min(1.0, TRAINED_TOKENS / max(tokens, 1.0)),
        "pace": 1.0,
    }
    training = training_of(capabilities, has_dropout(encoder), batch, seed)
    engine = next((name for name, libraries in ENGINES.items() if all(map(find_spec, libraries))), None)
    why = ""
    if not inputs.tasks and use != SIMILARITY:
        why = "no criterion without labels shows whether training helps this use"
    elif capabilities.only_static:
        why = "the model is static"
    elif missing := next((name for name in ("accelerate", "datasets") if find_spec(name) is None), None):
        why = f'{missing!r} is not installed: pip install "essent[train]"'
    elif not training:
        why = "it has neither dropout nor a mask token, so both views of a text would be equal"
    no_graph = capabilities.only_static or engine is None or shell.device.type != "cpu"
    absent = {"train": why, "static": capabilities.only_static, "graph": no_graph}
    fitted = max(MIN_FITTED, FIT_SHARE * budget / max(2 * seconds, 1e-9))
    return {
        "steps": [name for name in SHARES if not absent.get(name)],
        "why": why,
        "own": recipe,
        "baseline": "static" if capabilities.only_static else "mean",  # every gain is relative to it
        "capabilities": asdict(capabilities),
        "speed": speed,
        "max_texts": max_texts,
        "fitted": int(min(MAX_FITTED, len(inputs.texts), fitted)),
        "training": training,
        "engine": engine,
    }


def training_of(capabilities: ModelCapabilities, dropout: bool, batch: int, seed: int) -> dict[str, Any]:
    """Return the settings of training (arguments of `essent.training.run.train`); {} if both views would be equal."""
    settings = {"learning_rate": 1e-4, "batch_size": batch, "max_seq_length": TRAINED_TOKENS, "seed": seed}
    if dropout:
        return {**settings, "objective": "simcse", "recipe": "mean", "projection_head": "whiten", "temperature": 0.1}
    if capabilities.mask:
        return {**settings, "objective": "different-templates", "recipe": "prompt", "projection_head": "dense-tanh"}
    return {}


def space_of(name: str) -> Space:
    """Return a space of the plan, or a named space."""
    return SPACES.get(name) or find_space(name)


# -- speeds -----------------------------------------------------------------------------------------------------------


def time_texts(encoder: Encoder, texts: Sequence[str]) -> tuple[float, float]:
    """Return seconds and tokens per text, measured on a sample of all lengths."""
    ordered, seconds, count = sorted(texts, key=len), math.inf, SAMPLE
    for _ in range(3):  # the first round includes one-time setup
        sample = [ordered[index] for index in np.unique(np.linspace(0, len(ordered) - 1, count).round().astype(int))]
        began = machine.elapsed()
        encoder.encode(sample, show_progress_bar=False)
        seconds = min(seconds, (machine.elapsed() - began) / len(sample))
        # a small sample of all lengths is mostly padding: use more texts if the model is fast
        count = max(SAMPLE, min(MAX_SAMPLE, int(SAMPLE_SECONDS / seconds)))
    return seconds, sum(map(len, encoder.module.ids(sample))) / len(sample)


def time_scoring(tasks: Sequence[LabeledTask], topics: Topics | None, dimensions: int) -> float:
    """Return the seconds per text of scoring a recipe: by k-means and the like, or by the criterion `topics`."""
    if not (tasks or topics):
        return 0.0
    rng, times = np.random.default_rng(0), [machine.elapsed()]
    encoder = SimpleNamespace(encode=lambda texts, **_: rng.normal(size=(len(texts), dimensions)))
    for _ in range(2):  # the first includes one-time setup
        if topics:
            topics.measure(*map(encoder.encode, (topics.rows, topics.halves, topics.halves)))
        else:
            for task in tasks:
                task.run(encoder)
        times.append(machine.elapsed())
    return float(np.diff(times).min()) / (len(topics.rows) if topics else len(texts_of(tasks)))


# -- a step in what is left of the budget -----------------------------------------------------------------------------


def share_of(run: Run, step: str) -> float:
    """Return the seconds that a step may use: its share of what is left and is not set aside for the last steps."""
    steps = [name for name in run.plan["steps"] if name != "train" or "training" not in run.skipped]
    budget = run.settings["seconds"]
    following = steps[steps.index(step) + 1 :]
    set_aside = sum(min(seconds_of_last(run, name), budget * SHARES[name]) for name in following if name in LAST)
    sharing = SHARES[step] + sum(SHARES[name] for name in following if name not in LAST)
    return float(max(run.remaining - set_aside - MARGIN * budget, 0.0) * SHARES[step] / sharing)


def seconds_of_last(run: Run, step: str) -> float:
    """Estimate the cost of a step in `LAST`."""
    speed, fitted, distilled = run.speed, int(run.plan["fitted"]), min(MAX_DISTILLED, len(run.inputs.texts))
    costs = {
        "encoder": ENCODER_PASSES * fitted * speed["seconds"] + ENCODER_SECONDS,
        "static": STATIC_PASSES * distilled * speed["seconds"] + STATIC_SECONDS,
        "graph": GRAPH_SECONDS,
    }
    return costs[step] + speed["measured"]


def plan_search(run: Run, share: float) -> dict[str, Any]:
    """Plan the largest space that can be searched in a share of the time, or the smallest on fewer texts or labels.

    Returns:
        `space`, number of `texts` and `units`; `expected`, the seconds that it will take; `missing`, the largest search
        if this is a smaller one.
    """
    inputs, total = run.inputs, _texts_of_search(run)
    seconds = max(share / 2, share - (1 if run.searched else MEASURED) * run.speed["measured"])
    spaces = ("static",) if run.capabilities.only_static else ("auto", "small")
    for space in spaces:
        affordable = int(seconds / max(seconds_of_search(run, space), 1e-9))
        least = min(total, MIN_SEARCH_TEXTS * (1 if space == spaces[-1] else 5))
        if affordable >= least:
            break
    count = min(total, max(affordable, least))
    units = sum(task.units for task in inputs.tasks)
    sampled = max(50, units * count // total) if inputs.tasks and count < total else None
    return {
        "space": space,
        "texts": count,
        "units": sampled,
        "text": f"search the space {space!r} on {count} texts",
        "expected": seconds_of_search(run, space) * count,
        "missing": None if (space, count) == (spaces[0], total) else f"a search of {spaces[0]!r} on {total} texts",
    }


def _texts_of_search(run: Run) -> int:
    return len(texts_of(run.inputs.tasks)) or min(MAX_SEARCH_TEXTS, len(run.inputs.texts))


def seconds_of_search(run: Run, space: str) -> float:
    """Estimate the cost of a search per text."""
    speed, capabilities, labelled = run.speed, run.capabilities, bool(run.inputs.tasks)
    passes = PASSES[space]
    if capabilities.causal and not labelled and space != "auto":  # which has these prompts anyway
        passes += PROMPT_PASSES
    scoring = 0.0
    if speed["scoring"]:
        measured = 1.0 if labelled else min(1.0, MAX_TEXTS / _texts_of_search(run))  # share of the texts
        scoring = _number_of_recipes(space_of(space), capabilities) * speed["scoring"] * measured
    return speed["pace"] * (passes * speed["seconds"] * (1.0 if labelled else PAIRED) + scoring)


@cache  # takes seconds for a large space, and is read for every plan
def _number_of_recipes(space: Space, capabilities: ModelCapabilities) -> int:
    return len(space.expand(capabilities)[0])


def plan_timing(run: Run) -> dict[str, Any]:
    """Plan the steps by which training is timed; `why` is the reason if there is no time even for a few.

    The estimate from encoding is rough, so it only decides about this test, not about the training.
    """
    step_seconds, left = run.speed["step"], share_of(run, "train")
    steps = TIMED_STEPS if TIMED_STEPS * step_seconds <= TIMED_SHARE * left else MIN_TIMED
    why = too_long(f"{steps} steps of training", steps * step_seconds, left)
    return {"steps": steps, "text": f"time {steps} steps", "why": why, "missing": "training"}


def plan_train(run: Run, step_seconds: float, done: int) -> dict[str, Any]:
    """Plan how far to train in the next round; `why` is the reason if there is no time for more steps.

    Args:
        step_seconds: seconds per step, as measured before.
        done: steps of earlier rounds.

    Returns:
        `steps`, with those of earlier rounds, of which `new` ones; `every`, steps between validations.
    """
    speed, seconds, texts = run.speed, share_of(run, "train"), len(run.inputs.texts)
    usual = max(MIN_STEPS, min(MAX_STEPS, EPOCHS * texts // min(BATCH, texts // 2)))
    most, every = usual * (LONGEST if run.inputs.tasks else 1), max(4, usual // VALIDATIONS)
    search = seconds_of_search(run, "auto") * _texts_of_search(run)
    seconds -= min(search, SEARCH_SHARE * seconds) + 3 * speed["measured"]
    cost = step_seconds + (speed["measured"] / every if run.inputs.tasks else 0.0)  # labels compare checkpoints
    affordable = max(0, int(seconds / max(cost, 1e-9)))
    minimum = min(MIN_FURTHER if done else MIN_STEPS, most - done)
    further = min(most - done, max(minimum, affordable if affordable <= MIN_STEPS else int(ROUND * affordable)))
    why = too_long(f"{minimum} steps", minimum * cost, seconds)
    return {
        "steps": done + further,
        "new": further,
        "every": every,
        "text": f"{further} contrastive steps",
        "why": why,
        "missing": f"{most} steps of training" if why and further else None,
    }


def plan_static(run: Run) -> dict[str, Any]:
    """Plan the number of texts for static tables; `why` is the reason if even the minimum does not fit the budget."""
    speed, most, words = run.speed, min(MAX_DISTILLED, len(run.inputs.texts)), len(run.model.tokenizer)
    per_text = STATIC_PASSES * speed["seconds"]
    affordable = int((share_of(run, "static") - STATIC_SECONDS) / max(per_text, 1e-9))
    count = min(most, max(MIN_SEARCH_TEXTS, affordable))
    alone = words * speed["seconds"] * min(1.0, 3 / max(speed["tokens"], 1.0))  # [CLS] token [SEP]
    why = too_long("it", count * per_text + STATIC_SECONDS, run.remaining)
    smaller = f"a static table from {most} texts instead of {count}" if count < most else None
    return {
        "texts": count,
        "unseen": "alone" if alone <= ALONE_SHARE * run.settings["seconds"] else "static",
        "text": f"distil static tables from {count} texts",
        "why": why,
        "missing": "a static table" if why else smaller,
    }


def plan_graph(run: Run) -> dict[str, Any]:
    """Plan the graph; `why` is the reason if it does not fit the remaining budget."""
    engine, why = run.plan["engine"], too_long("it", GRAPH_SECONDS, run.remaining)
    return {"text": f"compile a graph for {engine}", "why": why, "missing": "a graph" if why else None}


def too_long(task: str, seconds: float, left: float) -> str:
    """Return why a task does not fit the seconds that are left; "" if it does."""
    if seconds <= left:
        return ""
    return f"{task} would take about {duration(seconds)}, but only {max(left, 0.0):.0f} s of the budget were left"
