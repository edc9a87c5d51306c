"""The plan of an improvement: the steps, their shares of a time budget, and how much each does within its share.

Everything is written to a journal, so that a resumed run repeats every decision. A step may use its share of what is
left of the budget when it begins: if it takes less or more, all later steps have more or less.
"""

from __future__ import annotations

import json
import math
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from sentence_transformers import SentenceTransformer

from essent._core import machine
from essent._core.atomic import remove_leftovers, write_json
from essent._core.display import duration
from essent.encoder.encoder import Encoder
from essent.errors import DataError, InputError
from essent.improvement.metric import LAYERS, Inputs, Metric, texts_of
from essent.model.capabilities import ModelCapabilities, capabilities_of
from essent.selection.space import Grid, Space, find_space
from essent.tasks.result import plain
from essent.training.run import has_dropout

if TYPE_CHECKING:
    from essent.improvement.run import Run

WORK, FORMAT = ".work", 4
UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}
MIN_BUDGET = 1.0  # seconds
SHARES = {"search": 0.2, "trials": 0.15, "train": 0.47, "encoder": 0.08, "static": 0.08, "graph": 0.02}  # of the budget
SEARCH_SHARE = 0.25  # share of the step `train` that the search on the trained model may use
FIT_SHARE = 0.06  # share of the budget for texts on which recipes are fitted
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
    "tiny": Space((Grid(layers=("L", "0+L"), shaping=("", *STEPS[::2])),), name="tiny"),
    "static": Space(
        (Grid(layers=("static",), weights=("uniform", "idf", "sif"), shaping=("", STEPS[0], "abtt | normalize")),),
        name="static",
    ),
}
PASSES = {"auto": 12.0, "small": 4.0, "tiny": 1.5, "static": 1.0}  # the cost of a search, in passes over its texts
PROMPT_PASSES = 3.0  # of the reference recipes of `teacher` on a causal language model, in addition
MAX_SEARCH_TEXTS, MIN_SEARCH_TEXTS = 4000, 200  # texts of a search; the maximum applies without labels
PAIRED = 1.6  # texts encoded per text, with the pairs that a criterion without labels makes
PASSES_PER_STEP = 5.0  # the cost of a training step, in passes over its batch, two views of each text
TRAINED_TOKENS = 32  # per text
TRIALS = (8, 4, 2)
RUNGS = (16, 32, 64)  # steps after which the better half of the trials continues
MIN_STEPS, MAX_STEPS, EPOCHS = 24, 120, 3  # steps and epochs of the step `train`
BATCH = 64
ENGINES = {"openvino": ("openvino",), "onnx": ("onnx", "onnxscript", "onnxruntime")}
# maximum shares of the budget for measuring an encoder on the labels and on the tests; minimum texts of each
MEASURE_SHARE, TEST_SHARE, MIN_MEASURED = 0.012, 0.03, 300
ALONE_SHARE = 0.1  # maximum share of the budget for vectors of tokens that the texts lack
MAX_VALIDATIONS, VALIDATION_SHARE = 8, 0.3  # maximum validations of a training, and their share of its time
MAX_FITTED, MAX_DISTILLED = 20_000, 20_000
STATIC_PASSES, STATIC_SECONDS, GRAPH_SECONDS = 4, 5.0, 10.0  # cost: passes over the texts, additional seconds; seconds


def space_of(name: str) -> Space:
    """Return a space of the plan, or a named space."""
    return SPACES.get(name) or find_space(name)


def make_plan(shell: SentenceTransformer, inputs: Inputs, budget: float, seed: int) -> dict[str, Any]:
    """Plan the steps within a budget, as plain values.

    Args:
        budget: seconds.

    Returns:
        Names of the `steps`; `why` there is no training; `speed` in seconds per text, per measured encoder, and per
        training step; training settings as `candidates`; the model's `capabilities` and its `own`
        recipe.
    """
    encoder = Encoder(shell)
    capabilities, recipe = capabilities_of(encoder.module.backbone), str(encoder.recipe)
    seconds, tokens = _time_texts(encoder, [*inputs.texts, *inputs.held_out])
    sizes = [int(max(MIN_MEASURED, share * budget / max(seconds, 1e-9))) for share in (MEASURE_SHARE, TEST_SHARE)]
    speed = Metric(inputs, seed, *sizes).speed(int(shell.get_embedding_dimension() or 0), seconds)
    batch = min(BATCH, len(inputs.texts) // 2)
    speed["step"] = PASSES_PER_STEP * 2 * batch * seconds * min(1.0, TRAINED_TOKENS / max(tokens, 1.0))
    settings = (
        [] if capabilities.only_static else candidates(capabilities, has_dropout(encoder), len(inputs.texts), seed)
    )
    engine = next((name for name, libraries in ENGINES.items() if all(map(find_spec, libraries))), None)
    minimum, training_share = MIN_STEPS * speed["step"], SHARES["trials"] + SHARES["train"]
    why = ""
    if capabilities.only_static:
        why = "the model is static"
    elif missing := next((name for name in ("accelerate", "datasets") if find_spec(name) is None), None):
        why = f'{missing!r} is not installed: pip install "essent[train]"'
    elif not settings:
        why = "it has neither dropout nor a mask token, so both views of a text would be equal"
    elif minimum + 2 * speed["measured"] + speed["tested"] > training_share * budget:
        why = f"{MIN_STEPS} steps of training would take {minimum:.0f} s, too long for the budget"
    absent = {"trials": why, "train": why, "static": capabilities.only_static, "graph": capabilities.only_static}
    absent["graph"] = absent["graph"] or engine is None or shell.device.type != "cpu"
    fitted = max(MIN_SEARCH_TEXTS, FIT_SHARE * budget / max(2 * seconds, 1e-9))
    return {
        "steps": [name for name in SHARES if not absent.get(name)],
        "why": why,
        "own": recipe,
        "baseline": "static" if capabilities.only_static else "mean",  # every gain is relative to it
        "capabilities": asdict(capabilities),
        "speed": {"seconds": seconds, "tokens": tokens, **speed},
        "measured": sizes,
        "fitted": int(min(MAX_FITTED, len(inputs.texts), fitted)),
        "candidates": settings,
        "engine": engine,
    }


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


def plan_search(run: Run, seconds: float) -> dict[str, Any]:
    """Plan the largest space that can be searched in `seconds`, or the smallest space on fewer texts or labels."""
    speed, inputs, capabilities = run.plan["speed"], run.inputs, run.capabilities
    labelled = len(texts_of(inputs.tasks))
    total = labelled or min(MAX_SEARCH_TEXTS, len(inputs.texts))
    spaces = ("static",) if capabilities.only_static else ("auto", "small", "tiny")
    for space in spaces:
        passes = PASSES[space]
        if capabilities.causal and not labelled and space != "auto":  # which has these prompts anyway
            passes += PROMPT_PASSES
        cost = passes * speed["seconds"] * (1.0 if labelled else PAIRED)  # per text
        cost += len(space_of(space).expand(capabilities)[0]) * speed["scoring"]
        affordable = int(seconds / max(cost, 1e-9))
        least = min(total, MIN_SEARCH_TEXTS if space == spaces[-1] else 5 * MIN_SEARCH_TEXTS)
        if affordable >= least:
            break
    count = min(total, max(affordable, least))
    units = sum(task.units for task in inputs.tasks)
    sampled = max(50, units * count // total) if labelled and count < total else None
    text = f"search the space {space!r} on {f'{sampled} labels' if sampled else f'{count} texts'}"
    return {"space": space, "texts": count, "units": sampled, "text": text, "why": ""}


def plan_trials(run: Run, seconds: float) -> dict[str, Any]:
    """Plan trials with successive halving in `seconds`; if the training needs the time, one setting without trials."""
    speed, settings = run.plan["speed"], run.plan["candidates"]
    if seconds * SHARES["train"] / SHARES["trials"] < MIN_STEPS * speed["step"]:
        seconds = 0.0  # training needs the time
    for count, scale in (*product(TRIALS, (2, 1)), (1, 0)):
        rungs = [scale * rung for rung in RUNGS[: count.bit_length() - 1]]
        running = [max(1, min(count, len(settings)) >> halvings) for halvings in range(len(rungs))]
        cost = np.dot(running, np.diff([0, *rungs])) * speed["step"] + sum(running) * speed["measured"]
        if count <= 2 * len(settings) and cost <= seconds:
            break
    text = f"{len(settings[:count])} training settings, the better half of them for up to {max(rungs, default=0)} steps"
    text = text if rungs else "no time for trials"
    return {"settings": settings[:count], "rungs": rungs, "text": text, "why": ""}


def plan_train(run: Run, step_seconds: float, seconds: float) -> dict[str, Any]:
    """Plan training steps and the search on the trained model; `why` is the reason if too few steps fit `seconds`.

    Args:
        step_seconds: seconds per step, measured in the trials if there were any.
    """
    speed, inputs, validations = run.plan["speed"], run.inputs, 0
    search = plan_search(run, SEARCH_SHARE * seconds)
    seconds *= 1 - SEARCH_SHARE
    if inputs.tasks:  # checkpoints are compared
        validations = int(min(MAX_VALIDATIONS, max(2.0, VALIDATION_SHARE * seconds / max(speed["measured"], 1e-9))))
    measuring = (validations + 2) * speed["measured"] + speed["tested"]
    most = max(MIN_STEPS, min(MAX_STEPS, EPOCHS * len(inputs.texts) // min(BATCH, len(inputs.texts) // 2)))
    steps = min(int((seconds - measuring) / max(step_seconds, 1e-9)), most)
    why = f"{MIN_STEPS} steps would not fit the {max(run.remaining, 0.0):.0f} s of the budget that were left"
    text = f"{steps} contrastive steps, then {search['text']}"
    planned = {"steps": steps, "validations": validations, "search": search, "text": text}
    return {**planned, "why": why if steps < MIN_STEPS else ""}


def plan_static(run: Run, seconds: float) -> dict[str, Any]:
    """Plan the number of texts for static tables; `why` is the reason if even the minimum does not fit the budget."""
    speed, most, words = run.plan["speed"], min(MAX_DISTILLED, len(run.inputs.texts)), len(run.model.tokenizer)
    per_text = STATIC_PASSES * speed["seconds"]
    count = int(min(most, max(MIN_SEARCH_TEXTS, (seconds - STATIC_SECONDS) / max(per_text, 1e-9))))
    alone = words * speed["seconds"] * min(1.0, 3 / max(speed["tokens"], 1.0))  # [CLS] token [SEP]
    unseen = "alone" if alone <= ALONE_SHARE * run.settings["seconds"] else "static"
    why = reason_to_skip(run, count * per_text + STATIC_SECONDS)
    return {"texts": count, "unseen": unseen, "text": f"distil static tables from {count} texts", "why": why}


def plan_graph(run: Run, seconds: float) -> dict[str, Any]:
    """Plan the graph; `why` is the reason if it does not fit the remaining budget."""
    return {"text": f"compile a graph for {run.plan['engine']}", "why": reason_to_skip(run, GRAPH_SECONDS)}


def reason_to_skip(run: Run, seconds: float) -> str:
    """Return why a step does not fit the remaining budget; "" if it does."""
    reason = (
        f"it would take about {duration(seconds)}, but only {max(run.remaining, 0.0):.0f} s of the budget were left"
    )
    return reason if seconds > run.remaining else ""


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
        """Return the entry of a name, computed and written only if missing: a resumed run keeps all decisions."""
        if name not in self.entries:
            began = machine.elapsed()
            values = compute()
            self.entries[name] = plain({"seconds": round(machine.elapsed() - began, 2), **values})
            write_json(self.path, self.entries, indent=1)
        return dict(self.entries[name])
