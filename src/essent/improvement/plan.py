"""What will be tried within a budget, and about how long each step takes: from a short timing of the model.

The plan is made once, before anything is computed, and written down: what is tried depends on it and not on the clock.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec
from typing import Any

import numpy as np
from sentence_transformers import SentenceTransformer

from essent._core import clock
from essent._core.cores import cores
from essent.encoder.encoder import Encoder
from essent.improvement.given import Given
from essent.improvement.yardstick import Yardstick
from essent.model.capabilities import ModelCapabilities, capabilities_of
from essent.selection.space import Grid, Space, find_space

SAMPLE, MOST_SAMPLED, SAMPLING = 48, 512, 2.0  # texts whose time plans rest on, and seconds that this may take
SHARES = {"search": 0.2, "trials": 0.15, "train": 0.35, "search-again": 0.12, "fit": 0.06, "static": 0.08}
ALONE = {"search": 0.55, "fit": 0.15, "static": 0.15}  # where nothing is trained
UNIT = " | normalize"
SMALL = Space(
    (
        Grid(
            layers=("L", "0+L", "1+2+L", "L-1+L"),
            weights=("uniform", "idf"),
            shaping=("", *(step + UNIT for step in ("centre", "zscore", "whiten", "whiten:64"))),
        ),
        Grid(layers=("0+L",), weights=("ditto:*",), shaping=("", "whiten | normalize")),
    ),
    name="small",
)
TINY = Space((Grid(layers=("L", "0+L"), shaping=("", "centre | normalize", "whiten | normalize")),), name="tiny")
STATIC = Space(
    (
        Grid(
            layers=("static",),
            weights=("uniform", "idf", "sif"),
            shaping=("", "centre | normalize", "abtt | normalize"),
        ),
    ),
    name="static",
)
PASSES = {"full": 12.0, "small": 4.0, "tiny": 1.5, "static": 1.0}  # what a search costs, in passes over its texts
MOST_TEXTS = 4000  # of a search without labels
PAIRED = 1.6  # texts that are encoded for one of the texts, with the pairs that a criterion without labels makes
FEWEST_SEARCHED = 200
STEP = 5.0  # what a step of training costs, in passes over its batch, two views of each text
TRAINED_TOKENS = 32  # of a text
COUNTS = (8, 4, 2)  # of trials
RUNGS = (16, 32, 64)  # steps after which the better half of the trials goes on
FEWEST_STEPS, MOST_STEPS, EPOCHS = 24, 120, 3  # of the training itself
BATCH = 64
ENGINES = {"openvino": ("openvino",), "onnx": ("onnx", "onnxscript", "onnxruntime")}
TESTING = 0.03  # and what the tests may cost each time
MEASURING, LEAST_MEASURED = 0.012, 300  # what measuring an encoder may cost of the budget; texts that it takes at least
TOKENS_ALONE = 0.1  # of the budget, that the vectors of tokens which the texts lack may cost
TIMED, ROUNDS = 64, 3  # texts, and how often they are encoded for a speed
VALIDATIONS, VALIDATING = 8, 0.3  # of the training at most, and the share of its time that they may take
# how often encoders are measured on the yardstick and on the tests, besides trials and training
MEASURED, TESTED = 6, 5
MOST_FITTED, MOST_DISTILLED = 20_000, 20_000


@dataclass(frozen=True)
class Speed:
    """How fast a model is here.

    Attributes:
        seconds, tokens: of one of the texts given.
        judged: processor seconds that judging the vector of a text takes.
        measured: seconds that measuring an encoder takes, on the judgements or by the criterion.
        tested: seconds that the tests take besides.
    """

    seconds: float
    tokens: float
    judged: float = 0.0
    measured: float = 0.0
    tested: float = 0.0


@dataclass(frozen=True)
class Searching:
    """A search: the name of its space, its texts without labels, and the most units of judgement."""

    space: str
    texts: int
    units: int | None
    seconds: float


@dataclass(frozen=True)
class Training:
    """Trials under successive halving, and the training itself; `why` says why there is none.

    Attributes:
        steps, most: of the training itself: what its share of the budget buys, and the most that it takes where time is
            left.
    """

    trials: tuple[dict[str, Any], ...] = ()
    rungs: tuple[int, ...] = ()
    steps: int = 0
    most: int = 0
    validations: int = 0
    seconds: float = 0.0
    trial_seconds: float = 0.0
    why: str = ""


def measure_speed(shell: SentenceTransformer, texts: Sequence[str]) -> tuple[Speed, ModelCapabilities, str]:
    """Time a model on some of the texts, and say what it offers, and its own recipe."""
    encoder = Encoder(shell)
    ordered = sorted(texts, key=len)
    some, seconds = _spread(ordered, SAMPLE), math.inf
    for _ in range(3):  # the first also pays for what is set up once
        began = clock.elapsed()
        encoder.encode(some, show_progress_bar=False)
        seconds = min(seconds, (clock.elapsed() - began) / len(some))
        # few texts of all lengths are mostly padding: more of them where the model is fast
        some = _spread(ordered, max(SAMPLE, min(MOST_SAMPLED, int(SAMPLING / seconds))))
    tokens = sum(map(len, encoder.module.ids(some))) / len(some)
    capabilities = capabilities_of(encoder.module.backbone)
    return Speed(seconds, tokens), capabilities, str(encoder.recipe)


def _spread(ordered: Sequence[str], count: int) -> list[str]:
    """So many of the texts, evenly from the first to the last."""
    return [ordered[place] for place in np.unique(np.linspace(0, len(ordered) - 1, count).round().astype(int))]


def space_of(name: str) -> Space:
    """A space of the plan by its name."""
    own = {space.name: space for space in (SMALL, TINY, STATIC)}
    return own[name] if name in own else find_space(name)


def plan_search(
    speed: Speed, given: Given, capabilities: ModelCapabilities, seconds: float, spaces: Sequence[str]
) -> Searching:
    """The largest space whose search takes so many seconds at most; of the smallest fewer texts or judgements."""
    judged = len({text for task in given.tasks for text in task.texts()})
    units = sum(task.units for task in given.tasks)
    whole = judged or min(MOST_TEXTS, len(given.texts))
    takes_vectors = any(task.compared() is None for task in given.tasks)
    found = Searching("", 0, None, 0.0)
    for space in spaces:
        each = PASSES[space] * speed.seconds * (1.0 if judged else PAIRED)
        if takes_vectors:  # which are judged recipe by recipe
            each += len(space_of(space).expand(capabilities)[0]) * speed.judged / cores()
        fits = int(seconds / max(each, 1e-9))
        least = min(whole, FEWEST_SEARCHED if space == spaces[-1] else 5 * FEWEST_SEARCHED)
        count = min(whole, max(fits, least))
        kept = max(50, units * count // whole) if judged and count < whole else None
        found = Searching(space, count, kept, each * count)
        if fits >= least:
            break
    return found


# -- training ---------------------------------------------------------------------------------------------------------


def candidates(capabilities: ModelCapabilities, dropout: bool, seed: int) -> list[dict[str, Any]]:
    """Settings of training to try, the likeliest first; fields of `essent.training.Settings`."""
    base = {"objective": "simcse", "recipe": "mean", "learning_rate": 1e-4, "batch_size": BATCH, "seed": seed}
    base |= {"temperature": 0.05, "projection_head": "none", "max_seq_length": TRAINED_TOKENS}
    whitened = {**base, "projection_head": "whiten", "temperature": 0.1}
    prompted = {**base, "objective": "different-templates", "recipe": "prompt", "projection_head": "dense-tanh"}
    changes: list[dict[str, Any]] = []
    if dropout:
        changes += [whitened, {**whitened, "learning_rate": 3e-4}, base]
        changes += [{**base, "recipe": "cls", "projection_head": "dense-tanh"}]
    if capabilities.mask:
        changes += [prompted]
    if dropout:
        changes += [{**whitened, "temperature": 0.05}, {**base, "learning_rate": 3e-4}]
        changes += [{**whitened, "batch_size": 2 * BATCH}]
    elif capabilities.mask:
        changes += [{**prompted, "learning_rate": 3e-4}, {**prompted, "learning_rate": 3e-5}]
    return changes


def step_seconds(speed: Speed, batch: int) -> float:
    """About how long a step of training takes."""
    return STEP * 2 * batch * speed.seconds * min(1.0, TRAINED_TOKENS / max(speed.tokens, 1.0))


def plan_training(
    speed: Speed, tried: Sequence[dict[str, Any]], texts: int, trial_seconds: float, seconds: float, judged: bool
) -> Training:
    """Trials and steps that fit; an empty training with the reason where nothing does.

    Args:
        judged: whether checkpoints are compared on judgements.
    """
    if missing := next((name for name in ("accelerate", "datasets") if find_spec(name) is None), None):
        return Training(why=f'{missing!r} is not installed: pip install "essent[train]"')
    if not tried:
        return Training(why="it has neither dropout nor a mask token, so that both views of a text would be equal")
    batch = min(BATCH, texts // 2)
    tried = [{**one, "batch_size": min(one["batch_size"], texts // 2)} for one in tried]
    tried = [one for n, one in enumerate(tried) if one not in tried[:n]]
    each = step_seconds(speed, batch)
    validations = int(min(VALIDATIONS, max(2.0, VALIDATING * seconds / max(speed.measured, 1e-9)))) if judged else 0
    seconds -= (validations + 2) * speed.measured + speed.tested
    most = max(FEWEST_STEPS, min(MOST_STEPS, EPOCHS * texts // batch))
    steps = min(int(seconds / each), most)
    if steps < FEWEST_STEPS:  # without trials
        steps, trial_seconds = min(int((seconds + trial_seconds) / each), FEWEST_STEPS), 0.0
    if steps < FEWEST_STEPS:
        return Training(why=f"{FEWEST_STEPS} steps of training would take {FEWEST_STEPS * each:.0f} s, too much here")
    for count in COUNTS:
        for scale in (2, 1):
            rungs = tuple(scale * rung for rung in RUNGS[: count.bit_length() - 1])
            steps_of, measured = halved(min(count, len(tried)), rungs)
            cost = steps_of * each + measured * speed.measured
            if cost <= trial_seconds and count <= 2 * len(tried):
                return Training(tuple(tried[:count]), rungs, steps, most, validations, steps * each, cost)
    return Training(tuple(tried[:1]), (), steps, most, validations, steps * each, 0.0)


def halved(count: int, rungs: Sequence[int]) -> tuple[int, int]:
    """Steps of training that trials under successive halving take, and how often an encoder is measured."""
    steps, measured, before = 0, 0, 0
    for rung in rungs:
        steps, measured = steps + count * (rung - before), measured + count
        before, count = rung, max(1, count // 2)
    return steps, measured


# -- all of it --------------------------------------------------------------------------------------------------------


def make_plan(shell: SentenceTransformer, given: Given, budget: float, seed: int) -> dict[str, Any]:
    """What will be tried, as plain values."""
    speed, capabilities, own = measure_speed(shell, [*given.texts, *given.held_out])
    most = int(max(LEAST_MEASURED, MEASURING * budget / max(speed.seconds, 1e-9)))
    most_tested = int(max(LEAST_MEASURED, TESTING * budget / max(speed.seconds, 1e-9)))
    yardstick = Yardstick(given, seed, most, most_tested)
    dimensions, (texts, tested) = int(shell.get_embedding_dimension() or 0), yardstick.texts()
    judging, judged = yardstick.judging_seconds(dimensions)
    tests = speed.seconds + (judged / cores() if any(task.compared() is None for task in given.tests) else 0.0)
    speed = replace(speed, judged=judged, measured=judging + speed.seconds * texts, tested=tests * tested)
    budget = max(0.0, budget - MEASURED * speed.measured - TESTED * speed.tested)
    dropout = has_dropout(shell)
    shares = {name: share * budget for name, share in SHARES.items()}
    if capabilities.only_static:
        training = Training(why="it is a static model")
    else:
        tried = candidates(capabilities, dropout, seed)
        training = plan_training(speed, tried, len(given.texts), shares["trials"], shares["train"], bool(given.tasks))
    if training.why:
        shares = {name: share * budget for name, share in ALONE.items()}
    spaces = ("static",) if capabilities.only_static else ("full", "small", "tiny")
    found = plan_search(speed, given, capabilities, shares["search"], spaces)
    again = None if training.why else plan_search(speed, given, capabilities, shares["search-again"], spaces)
    fitted, distilled = (
        int(min(most, len(given.texts), max(FEWEST_SEARCHED, shares[name] / max(passes * speed.seconds, 1e-9))))
        for name, most, passes in (("fit", MOST_FITTED, 2), ("static", MOST_DISTILLED, 4))
    )
    alone = len(shell.tokenizer) * speed.seconds * min(1.0, 3 / max(speed.tokens, 1.0))  # [CLS] token [SEP]
    return {
        "own": own,
        "judged": bool(given.tasks),
        "speed": asdict(speed),
        "measured": (most, most_tested),
        "dimensions": dimensions,
        "capabilities": asdict(capabilities),
        "search": asdict(found),
        "training": asdict(training),
        "again": None if again is None else asdict(again),
        "fitted": fitted,
        "distilled": 0 if capabilities.only_static else distilled,
        "alone": alone if alone <= TOKENS_ALONE * budget else 0.0,
        "engine": None if capabilities.only_static else engine(shell),
    }


def has_dropout(shell: SentenceTransformer) -> bool:
    """Whether the model's configuration has a dropout above 0."""
    config = getattr(getattr(shell[0], "model", None), "config", None)
    values: Mapping[str, Any] = {} if config is None else config.to_dict()
    return any(
        "drop" in key and not key.startswith(("classifier", "summary")) and isinstance(value, float) and value > 0
        for key, value in values.items()
    )


def engine(shell: SentenceTransformer) -> str | None:
    """The engine of the graph: OpenVINO, ONNX where that is installed, None where neither is or no CPU is used."""
    if shell.device.type != "cpu":
        return None
    return next((name for name, libraries in ENGINES.items() if all(map(find_spec, libraries))), None)


def announced(plan: Mapping[str, Any]) -> list[tuple[str, str, float]]:
    """The steps: name, what will be tried, and about how many seconds it takes."""
    speed = Speed(**plan["speed"])
    once = speed.measured + speed.tested
    search, training, again = plan["search"], plan["training"], plan["again"]
    listed = [
        ("start", f"the model as it is: {plan['own']}", 2 * once),
        ("search", _searching(search, plan["judged"]), search["seconds"] + once),
    ]
    if not training["why"]:
        if training["rungs"]:
            *earlier, last = training["rungs"]
            words = f"{len(training['trials'])} settings of training for up to {last} steps"
            words += f", the better half goes on after {', '.join(map(str, earlier))}" if earlier else ""
            listed.append(("trials", words, training["trial_seconds"]))
        words = f"{training['steps']} steps of contrastive training with the best settings"
        words += f", up to {training['most']} where time is left" if training["most"] > training["steps"] else ""
        listed += [("train", words, training["seconds"] + training["validations"] * speed.measured + once)]
        listed += [("search-again", _searching(again, plan["judged"]), again["seconds"] + once)]
    fitted = speed.seconds * (2 * plan["fitted"] + (ROUNDS + 1) * TIMED) + once
    listed.append(("encoder", f"fit on {plan['fitted']} texts, calibrate, save", fitted))
    if plan["distilled"]:
        words = f"a static table from {plan['distilled']} texts, smaller ones"
        listed.append(("static", words, 4 * speed.seconds * plan["distilled"] + plan["alone"] + 5.0))
    if plan["engine"]:
        listed.append(("graph", f"a graph for {plan['engine']}", 10.0 + once + speed.seconds * TIMED))
    return listed


def _searching(search: Mapping[str, Any], judged: bool) -> str:
    on = f"{search['units']} units of judgement" if search["units"] else f"{search['texts']} texts"
    on = "all judgements" if judged and not search["units"] else on
    return f"recipes of the space {search['space']} on {on}"
