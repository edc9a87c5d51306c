"""The plan of an improvement: its steps, the speed of the model, the training settings to try."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

import numpy as np
from sentence_transformers import SentenceTransformer

from essent._core import machine
from essent.encoder.encoder import Encoder
from essent.errors import InputError
from essent.improvement.metric import LAYERS, Inputs, Metric, texts_of
from essent.model.capabilities import ModelCapabilities, capabilities_of
from essent.selection.label_free import TEACHER
from essent.selection.space import Grid, Space, find_space
from essent.selection.topics import CRITERIA, MAX_TEXTS, SIMILARITY, Topics
from essent.tasks.base import LabeledTask
from essent.training.run import has_dropout

UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}
MIN_BUDGET = 1.0  # seconds
SHARES = {"search": 0.2, "trials": 0.15, "train": 0.47, "encoder": 0.08, "static": 0.08, "graph": 0.02}  # of the budget
FIT_SHARE = 0.06  # share of the budget for texts on which recipes are fitted
MAX_FITTED, MIN_FITTED = 20_000, 200
SAMPLE, MAX_SAMPLE, SAMPLE_SECONDS = 48, 512, 2.0  # usual and maximum number of timed texts, and maximum seconds
STEPS = tuple(f"{step} | normalize" for step in ("centre", "zscore", "whiten", "whiten:64"))
TINY = Grid(layers=("L", "0+L"), shaping=("", *STEPS[::2]))
SPACES = {
    "small": Space(
        (
            Grid(layers=LAYERS, weights=("uniform", "idf"), shaping=("", *STEPS)),
            Grid(layers=("0+L",), weights=("ditto:*",), shaping=("", "whiten | normalize")),
        ),
        name="small",
    ),
    "heads": Space((TINY, Grid(layers=("0+L",), weights=("ditto:*",))), name="heads"),
    "tiny": Space((TINY,), name="tiny"),
    "static": Space(
        (Grid(layers=("static",), weights=("uniform", "idf", "sif"), shaping=("", STEPS[0], "abtt | normalize")),),
        name="static",
    ),
}
PASSES_PER_STEP = 5.0  # the cost of a training step, in passes over its batch, two views of each text
TRAINED_TOKENS = 32  # per text
BATCH = 64
ENGINES = {"openvino": ("openvino",), "onnx": ("onnx", "onnxscript", "onnxruntime")}
# maximum shares of the budget for measuring an encoder on the labels and on the tests; minimum texts of each
MEASURE_SHARE, TEST_SHARE, MIN_MEASURED = 0.012, 0.03, 300


def space_of(name: str) -> Space:
    """Return a space of the plan, or a named space."""
    return SPACES.get(name) or find_space(name)


def criterion_of(settings: Mapping[str, Any]) -> str:
    """Return the criterion that decides without labels; "" if nothing is decided."""
    return "" if settings["retained"] else CRITERIA.get(settings["use"], TEACHER)


def make_plan(shell: SentenceTransformer, inputs: Inputs, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Plan the steps of an improvement, as plain values.

    Args:
        settings: see `Run`.

    Returns:
        Names of the `steps`; `why` there is no training; training settings as `candidates`; the model's `capabilities`
        and its `own` recipe; the `speed`: `seconds` and `tokens` per text, seconds of `scoring` a recipe per text, of a
        training `step`, of an encoder that is `measured` and, on the tests, `tested`, of the `references` of the
        criterion; the `pace`, which is the ratio of the duration of a search to the expected one.
    """
    budget, use, seed = settings["seconds"], settings["use"], settings["seed"]
    encoder, size = Encoder(shell), int(shell.get_embedding_dimension() or 1)
    capabilities, recipe = capabilities_of(encoder.module.backbone), str(encoder.recipe)
    seconds, tokens = time_texts(encoder, [*inputs.texts, *inputs.held_out])
    sizes = [int(max(MIN_MEASURED, share * budget / max(seconds, 1e-9))) for share in (MEASURE_SHARE, TEST_SHARE)]
    metric = Metric(inputs, seed, *sizes, criterion=criterion_of(settings))
    scoring = time_tasks(metric.tasks, size)
    if metric.by_agreement and not settings["retained"]:
        scoring = time_topics(inputs.texts[:MAX_TEXTS], size, seed)
    speed = {"seconds": seconds, "tokens": tokens, "scoring": scoring, "references": 0.0, "pace": 1.0}
    labelled = texts_of(task for task in metric.tasks if task.compared() is None)
    speed["measured"] = seconds * len(texts_of(metric.measured.values()).union(metric.held_out)) + scoring * len(
        labelled
    )
    speed["tested"] = (seconds + scoring) * len(texts_of(metric.tests))
    batch = min(BATCH, len(inputs.texts) // 2)
    speed["step"] = PASSES_PER_STEP * 2 * batch * seconds * min(1.0, TRAINED_TOKENS / max(tokens, 1.0))
    to_try = candidates(capabilities, has_dropout(encoder), len(inputs.texts), seed)
    engine = next((name for name, libraries in ENGINES.items() if all(map(find_spec, libraries))), None)
    why = ""
    if settings["retained"]:
        why = "nothing is chosen"
    elif not inputs.tasks and use != SIMILARITY:
        why = "no criterion without labels shows whether training helps this use"
    elif capabilities.only_static:
        why = "the model is static"
    elif missing := next((name for name in ("accelerate", "datasets") if find_spec(name) is None), None):
        why = f'{missing!r} is not installed: pip install "essent[train]"'
    elif not to_try:
        why = "it has neither dropout nor a mask token, so both views of a text would be equal"
    absent = {
        "search": settings["retained"],
        "trials": why,
        "train": why,
        "static": capabilities.only_static,
        "graph": capabilities.only_static,
    }
    absent["graph"] = absent["graph"] or engine is None or shell.device.type != "cpu"
    fitted = max(MIN_FITTED, FIT_SHARE * budget / max(2 * seconds, 1e-9))
    return {
        "steps": [name for name in SHARES if not absent.get(name)],
        "why": why,
        "own": recipe,
        "baseline": "static" if capabilities.only_static else "mean",  # every gain is relative to it
        "capabilities": asdict(capabilities),
        "speed": speed,
        "measured": sizes,
        "fitted": int(min(MAX_FITTED, len(inputs.texts), fitted)),
        "candidates": to_try,
        "engine": engine,
    }


def time_texts(encoder: Encoder, texts: Sequence[str], rounds: int = 3) -> tuple[float, float]:
    """Return seconds and tokens per text, measured on a sample of all lengths."""
    ordered, seconds, count = sorted(texts, key=len), math.inf, SAMPLE
    for _ in range(rounds):  # the first round includes one-time setup
        sample = [ordered[index] for index in np.unique(np.linspace(0, len(ordered) - 1, count).round().astype(int))]
        began = machine.elapsed()
        encoder.encode(sample, show_progress_bar=False)
        seconds = min(seconds, (machine.elapsed() - began) / len(sample))
        # a small sample of all lengths is mostly padding: use more texts if the model is fast
        count = max(SAMPLE, min(MAX_SAMPLE, int(SAMPLE_SECONDS / seconds)))
    return seconds, sum(map(len, encoder.module.ids(sample))) / len(sample)


def time_tasks(tasks: Sequence[LabeledTask], dimensions: int) -> float:
    """Return the seconds per text of scoring a recipe on tasks that read vectors instead of similarities (k-means)."""
    reading = [task for task in tasks if task.compared() is None]
    rng = np.random.default_rng(0)
    encoder = SimpleNamespace(encode=lambda texts, **_: rng.normal(size=(len(texts), dimensions)))
    return (
        _fastest(lambda: [task.run(encoder) for task in reading]) / max(len(texts_of(reading)), 1) if reading else 0.0
    )


def time_topics(texts: Sequence[str], dimensions: int, seed: int) -> float:
    """Return the seconds per text that the criterion `topics` needs for a recipe."""
    topics, rng = Topics.of(texts, seed), np.random.default_rng(seed)
    vectors, first, second = (
        rng.normal(size=(count, dimensions)) for count in (len(topics.rows), *2 * [len(topics.halves)])
    )
    return _fastest(lambda: topics.measure(vectors, first, second)) / len(topics.rows)


def _fastest(compute: Callable[[], object]) -> float:
    """Return the seconds of the faster of two calls; the first includes one-time setup."""
    times = [machine.elapsed()]
    for _ in range(2):
        compute()
        times.append(machine.elapsed())
    return min(times[1] - times[0], times[2] - times[1])


def candidates(capabilities: ModelCapabilities, dropout: bool, texts: int, seed: int) -> list[dict[str, Any]]:
    """Return training settings to try (arguments of `essent.training.run.train`), the most promising first."""
    batch, larger = min(BATCH, texts // 2), min(2 * BATCH, texts // 2)
    base = {"objective": "simcse", "recipe": "mean", "learning_rate": 1e-4, "batch_size": batch, "seed": seed}
    base |= {"temperature": 0.05, "projection_head": "none", "max_seq_length": TRAINED_TOKENS}
    whitened = {**base, "projection_head": "whiten", "temperature": 0.1}
    prompted = {**base, "objective": "different-templates", "recipe": "prompt", "projection_head": "dense-tanh"}
    if not dropout:
        rates = (1e-4, 3e-4, 3e-5) if capabilities.mask else ()
        return [{**prompted, "learning_rate": rate} for rate in rates]
    return [
        whitened,
        {**whitened, "learning_rate": 3e-4},
        base,
        {**base, "recipe": "cls", "projection_head": "dense-tanh"},
        *([prompted] if capabilities.mask else []),
        {**whitened, "temperature": 0.05},
        {**base, "learning_rate": 3e-4},
        *([{**whitened, "batch_size": larger}] if larger > batch else []),
    ]


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
