"""The plan of an improvement: what is tried within a budget, with seconds per step; and the journal that stores it.

The plan is made once, from a short timing of the model, and written down: the steps depend on it and not on the clock.
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from sentence_transformers import SentenceTransformer

from essent._core import machine
from essent._core.atomic import remove_leftovers, write_json
from essent.encoder.encoder import Encoder
from essent.errors import DataError
from essent.improvement.metric import Inputs, Metric
from essent.model.capabilities import ModelCapabilities, capabilities_of
from essent.selection.space import Grid, Space, find_space
from essent.tasks.result import plain
from essent.training.run import has_dropout

WORK, FORMAT = ".work", 3
SAMPLE, MAX_SAMPLE, SAMPLE_SECONDS = 48, 512, 2.0  # number of timed texts, and maximum seconds of the timing
SHARES = {"search": 0.2, "trials": 0.15, "train": 0.35, "search-again": 0.12, "fit": 0.06, "static": 0.08}  # of budget
SHARES_UNTRAINED = {"search": 0.55, "fit": 0.15, "static": 0.15}
LAYERS = ("L", "0+L", "1+2+L", "L-1+L")
STEPS = tuple(f"{step} | normalize" for step in ("centre", "zscore", "whiten", "whiten:64"))
SPACES = {
    "small": Space(
        (
            Grid(layers=LAYERS, weights=("uniform", "idf"), shaping=("", *STEPS)),
            Grid(layers=("0+L",), weights=("ditto:*",), shaping=("", "whiten | normalize")),
        ),
        name="small",
    ),
    "tiny": Space((Grid(layers=("L", "0+L"), shaping=("", *STEPS[::2])),), name="tiny"),
    "static": Space(
        (Grid(layers=("static",), weights=("uniform", "idf", "sif"), shaping=("", STEPS[0], "abtt | normalize")),),
        name="static",
    ),
}
PASSES = {"auto": 12.0, "small": 4.0, "tiny": 1.5, "static": 1.0}  # the cost of a search, in passes over its texts
MAX_SEARCH_TEXTS, MIN_SEARCH_TEXTS = 4000, 200  # of a search; the maximum applies without labels
PAIRED = 1.6  # texts encoded per text, with the pairs that a criterion without labels makes
PASSES_PER_STEP = 5.0  # the cost of a training step, in passes over its batch, two views of each text
TRAINED_TOKENS = 32  # per text
TRIALS = (8, 4, 2)
RUNGS = (16, 32, 64)  # steps after which the better half of the trials continues
MIN_STEPS, MAX_STEPS, EPOCHS = 24, 120, 3  # of the training itself
BATCH = 64
ENGINES = {"openvino": ("openvino",), "onnx": ("onnx", "onnxscript", "onnxruntime")}
# maximum shares of the budget for measuring an encoder on the labels and on the tests; minimum texts of each
MEASURE_SHARE, TEST_SHARE, MIN_MEASURED = 0.012, 0.03, 300
MEASUREMENTS, TEST_MEASUREMENTS = 6, 5  # in addition to trials and training
ALONE_SHARE = 0.1  # maximum share of the budget for vectors of tokens that the texts lack
TIMED_TEXTS, TIMED_ROUNDS = 64, 3  # for the speed of a result
MAX_VALIDATIONS, VALIDATION_SHARE = 8, 0.3  # of the training, and their maximum share of its time
MAX_FITTED, MAX_DISTILLED = 20_000, 20_000


def space_of(name: str) -> Space:
    """Return a space of the plan, or a named space."""
    return SPACES.get(name) or find_space(name)


def make_plan(shell: SentenceTransformer, inputs: Inputs, budget: float, seed: int) -> dict[str, Any]:
    """Plan the steps within a budget, as plain values; `steps` lists name, description and seconds of each step.

    Args:
        budget: seconds.
    """
    encoder = Encoder(shell)
    capabilities = capabilities_of(encoder.module.backbone)
    static = capabilities.only_static
    seconds, tokens = _time_texts(encoder, [*inputs.texts, *inputs.held_out])
    sizes = [int(max(MIN_MEASURED, share * budget / max(seconds, 1e-9))) for share in (MEASURE_SHARE, TEST_SHARE)]
    dimensions = int(shell.get_embedding_dimension() or 0)
    # seconds and tokens per text of the user
    speed = {"seconds": seconds, "tokens": tokens, **Metric(inputs, seed, *sizes).speed(dimensions, seconds)}
    budget = max(0.0, budget - MEASUREMENTS * speed["measured"] - TEST_MEASUREMENTS * speed["tested"])
    settings = [] if static else candidates(capabilities, has_dropout(encoder), seed)
    training = plan_training(
        speed, settings, len(inputs.texts), SHARES["trials"] * budget, SHARES["train"] * budget, bool(inputs.tasks)
    )
    if static:
        training["why"] = "the model is static"
    shares = {name: share * budget for name, share in (SHARES_UNTRAINED if training["why"] else SHARES).items()}
    spaces = ("static",) if static else ("auto", "small", "tiny")

    def affordable_texts(share: str, most: int, passes: int) -> int:
        count = max(MIN_SEARCH_TEXTS, shares[share] / max(passes * seconds, 1e-9))
        return int(min(most, len(inputs.texts), count))

    vocabulary = 0 if static else len(shell.tokenizer)  # the words of a static model may have no such tokenizer
    alone = vocabulary * seconds * min(1.0, 3 / max(tokens, 1.0))  # [CLS] token [SEP]
    plan = {
        "own": str(encoder.recipe),
        "baseline": "static" if static else "mean",  # every gain is relative to it
        "speed": speed,
        "measured": sizes,
        "capabilities": asdict(capabilities),
        "search": plan_search(speed, inputs, capabilities, shares["search"], spaces),
        "training": training,
        "again": None if training["why"] else plan_search(speed, inputs, capabilities, shares["search-again"], spaces),
        "fitted": affordable_texts("fit", MAX_FITTED, 2),
        "distilled": 0 if static else affordable_texts("static", MAX_DISTILLED, 4),
        "alone": alone if alone <= ALONE_SHARE * budget else 0.0,
        "engine": None if static else _engine(shell),
    }
    return {**plan, "steps": _steps(plan)}


def _time_texts(encoder: Encoder, texts: Sequence[str]) -> tuple[float, float]:
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


def plan_search(
    speed: Mapping[str, float], inputs: Inputs, capabilities: ModelCapabilities, seconds: float, spaces: Sequence[str]
) -> dict[str, Any]:
    """Plan the largest space that can be searched in `seconds`; the smallest, if needed, on fewer texts or labels."""
    labelled = len({text for task in inputs.tasks for text in task.texts()})
    total = labelled or min(MAX_SEARCH_TEXTS, len(inputs.texts))
    for space in spaces:
        cost = PASSES[space] * speed["seconds"] * (1.0 if labelled else PAIRED)  # per text
        cost += len(space_of(space).expand(capabilities)[0]) * speed["judged"]
        affordable = int(seconds / max(cost, 1e-9))
        least = min(total, MIN_SEARCH_TEXTS if space == spaces[-1] else 5 * MIN_SEARCH_TEXTS)
        if affordable >= least:
            break
    count = min(total, max(affordable, least))
    units = sum(task.units for task in inputs.tasks)
    sampled = max(50, units * count // total) if labelled and count < total else None
    return {"space": space, "texts": count, "units": sampled, "seconds": cost * count}


# -- training ---------------------------------------------------------------------------------------------------------


def candidates(capabilities: ModelCapabilities, dropout: bool, seed: int) -> list[dict[str, Any]]:
    """Return training settings to try, the most promising first; arguments of `essent.training.run.train`."""
    base = {"objective": "simcse", "recipe": "mean", "learning_rate": 1e-4, "batch_size": BATCH, "seed": seed}
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
        {**whitened, "batch_size": 2 * BATCH},
    ]


def plan_training(
    speed: Mapping[str, float],
    settings: Sequence[dict[str, Any]],
    texts: int,
    trial_seconds: float,
    seconds: float,
    labelled: bool,
) -> dict[str, Any]:
    """Plan trials with successive halving and training steps that fit `seconds`; `why` is the reason for no training.

    `steps` fit the seconds, `most` is the maximum if time is left.
    """
    untrained = {"trials": [], "rungs": [], **dict.fromkeys(("steps", "most", "validations", "seconds"), 0)}
    if missing := next((name for name in ("accelerate", "datasets") if find_spec(name) is None), None):
        return {**untrained, "why": f'{missing!r} is not installed: pip install "essent[train]"'}
    if not settings:
        return {**untrained, "why": "it has neither dropout nor a mask token, so both views of a text would be equal"}
    batch = min(BATCH, texts // 2)
    smaller = [{**setting, "batch_size": min(setting["batch_size"], texts // 2)} for setting in settings]
    trials = [setting for number, setting in enumerate(smaller) if setting not in smaller[:number]]
    step_seconds = PASSES_PER_STEP * 2 * batch * speed["seconds"] * min(1.0, TRAINED_TOKENS / max(speed["tokens"], 1.0))
    validations = 0
    if labelled:  # checkpoints are compared
        validations = int(min(MAX_VALIDATIONS, max(2.0, VALIDATION_SHARE * seconds / max(speed["measured"], 1e-9))))
    seconds -= (validations + 2) * speed["measured"] + speed["tested"]
    most = max(MIN_STEPS, min(MAX_STEPS, EPOCHS * texts // batch))
    steps = min(int(seconds / step_seconds), most)
    if steps < MIN_STEPS:  # without trials
        steps, trial_seconds = min(int((seconds + trial_seconds) / step_seconds), MIN_STEPS), 0.0
    if steps < MIN_STEPS:
        why = f"{MIN_STEPS} steps of training would take {MIN_STEPS * step_seconds:.0f} s, too long for the budget"
        return {**untrained, "why": why}
    count, rungs, cost = next(
        (count, rungs, cost)
        for count, scale in (*product(TRIALS, (2, 1)), (1, 0))
        if count <= 2 * len(trials)
        for rungs in [[scale * rung for rung in RUNGS[: count.bit_length() - 1]]]
        if (cost := _trial_cost(min(count, len(trials)), rungs, step_seconds, speed["measured"])) <= trial_seconds
    )
    planned = {"trials": trials[:count], "rungs": rungs, "steps": steps, "most": most, "validations": validations}
    return {**planned, "seconds": steps * step_seconds, "trial_seconds": cost, "why": ""}


def _trial_cost(count: int, rungs: Sequence[int], step_seconds: float, measured: float) -> float:
    """Return the seconds of trials with successive halving."""
    counts = [max(1, count >> halvings) for halvings in range(len(rungs))]
    lengths = np.diff([0, *rungs])
    return float(np.dot(counts, lengths) * step_seconds + sum(counts) * measured)


def _engine(shell: SentenceTransformer) -> str | None:
    """Return the engine of the graph, OpenVINO before ONNX; None if neither is installed or the device is not a CPU."""
    if shell.device.type != "cpu":
        return None
    return next((name for name, libraries in ENGINES.items() if all(map(find_spec, libraries))), None)


def _steps(plan: Mapping[str, Any]) -> list[tuple[str, str, float]]:
    """Return the steps: name, description and seconds."""
    speed, training = plan["speed"], plan["training"]
    once = speed["measured"] + speed["tested"]

    def search(name: str, planned: Mapping[str, Any]) -> tuple[str, str, float]:
        sampled = f"{planned['units']} labels" if planned["units"] else f"{planned['texts']} texts"
        return name, f"search the space {planned['space']!r} on {sampled}", planned["seconds"] + once

    steps = [("start", f"measure the model as it is: {plan['own']}", 2 * once), search("search", plan["search"])]
    if rungs := training["rungs"]:
        words = f"try {len(training['trials'])} training settings, the better half of them for up to {rungs[-1]} steps"
        steps.append(("trials", words, training["trial_seconds"]))
    if not training["why"]:
        words = f"train {training['steps']} to {training['most']} contrastive steps with the best settings"
        steps += [("train", words, training["seconds"] + training["validations"] * speed["measured"] + once)]
        steps += [search("search-again", plan["again"])]
    fitted = speed["seconds"] * (2 * plan["fitted"] + (TIMED_ROUNDS + 1) * TIMED_TEXTS) + once
    steps.append(("encoder", f"fit on {plan['fitted']} texts, calibrate, save", fitted))
    if plan["distilled"]:
        words = f"distil static tables of several sizes from {plan['distilled']} texts"
        steps.append(("static", words, 4 * speed["seconds"] * plan["distilled"] + plan["alone"] + 5.0))
    if plan["engine"]:
        steps.append(("graph", f"compile a graph for {plan['engine']}", 10.0 + once + speed["seconds"] * TIMED_TEXTS))
    return steps


# -- the journal -----------------------------------------------------------------------------------------------------


class Journal:
    """DIR/.work/journal.json: plan, decisions and the values of finished steps, each with its seconds.

    Args:
        output: DIR.
        identity: model, data and settings as plain values; a run with the same values resumes here.

    Raises:
        DataError: DIR contains other files, or an improvement with another model, data or settings; names them.
    """

    def __init__(self, output: Path, identity: Mapping[str, Any], force: bool) -> None:
        self.output, self.folder, self.path = output, output / WORK, output / WORK / "journal.json"
        self.entries: dict[str, Any] = {"identity": json.loads(json.dumps({"format": FORMAT, **identity}))}
        if output.exists() and not output.is_dir():
            raise DataError(f"{output} is a file, but improve writes a folder. Choose another name.")
        if force and self.path.is_file():
            shutil.rmtree(self.folder)
        elif self.path.is_file():
            self._resume()
        elif not force and output.is_dir() and any(entry.name != WORK for entry in output.iterdir()):
            raise DataError(f"The folder {output} contains other files. Choose another folder.")
        self._earlier = sum(entry["seconds"] for name, entry in self.entries.items() if name != "identity")
        self._began = machine.elapsed()

    def _resume(self) -> None:
        for path in (self.path, *self.folder.glob("*.npz")):
            remove_leftovers(path)
        entries = json.loads(self.path.read_text("utf-8"))
        before, current = entries["identity"], self.entries["identity"]
        if changed := [name for name in current if before.get(name) != current[name]]:
            differences = "; ".join(f"{name} was {before.get(name)!r} and is {current[name]!r}" for name in changed)
            raise DataError(
                f"Cannot resume in {self.output}: {differences}. Use the earlier settings to resume, another folder, "
                "or --force (force=True) to start over."
            )
        self.entries = entries

    @property
    def spent(self) -> float:
        """Seconds of the budget spent in this process and in finished steps of earlier ones."""
        return float(self._earlier + machine.elapsed() - self._began)

    def once(self, name: str, compute: Callable[[], Mapping[str, Any]]) -> dict[str, Any]:
        """Return the entry of a name, computed and written if missing: a resumed run repeats no decision."""
        if name not in self.entries:
            began = machine.elapsed()
            values = compute()
            self.entries[name] = plain({"seconds": round(machine.elapsed() - began, 2), **values})
            write_json(self.path, self.entries, indent=1)
        return dict(self.entries[name])

    def clean(self) -> None:
        """Remove models and vectors of the steps; values and evidence remain."""
        for path in self.folder.iterdir():
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
