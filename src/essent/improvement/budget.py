"""How much each step of an improvement does in its part of the time budget.

A step is planned when it begins, from what is then left of the budget. The last steps (encoder, static table, graph)
have a limited cost, which is set aside. The other steps share the rest: if one takes less or more, the later ones have
more or less. Speeds are measured again as the steps run (`Run.speed`). Plans read no clock but the seconds of finished
steps in the journal, so that a resumed run repeats them.
"""

from __future__ import annotations

from functools import cache
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from essent._core.display import duration
from essent.improvement.metric import texts_of
from essent.improvement.plan import BATCH, MAX_FITTED, SHARES, space_of
from essent.model.capabilities import ModelCapabilities
from essent.selection.space import Space
from essent.selection.topics import MAX_TEXTS

if TYPE_CHECKING:
    from essent.improvement.run import Run

LAST = ("encoder", "static", "graph")  # steps whose cost is set aside, at most their shares of the budget
MARGIN = 0.03  # share of the budget for steps that take longer than planned
SEARCH_SHARE = 0.25  # maximum share of the step `train` for the search on the trained model
MEASURED = 4  # encoders that the first search measures, the reference recipes together as one
LARGER = 1.5  # a search is repeated if it can be so many times as large
# the cost of a search, in passes over its texts
PASSES = {"auto": 12.0, "small": 4.0, "heads": 1.8, "tiny": 1.5, "static": 1.0}
PROMPT_PASSES = 3.0  # of the reference recipes of `teacher` on a causal language model, in addition
MAX_SEARCH_TEXTS, MIN_SEARCH_TEXTS = 4000, 200  # texts of a search; the maximum applies without labels
PAIRED = 1.6  # texts encoded per text, with the pairs that a criterion without labels makes
TRIALS = (8, 4, 2)
RUNGS = (16, 32, 64)  # steps after which the better half of the trials continues
TIMED_STEPS, MIN_TIMED, TIMED_SHARE = 8, 2, 0.1  # steps by which training is timed; maximum share of what is left
MIN_STEPS, MAX_STEPS, EPOCHS = 24, 120, 3  # steps and epochs of a training, unless a longer one gains
MIN_FURTHER = 8  # minimum steps by which a training is continued
ROUND = 0.85  # a training is planned again after this share of its time
LONGEST = 4  # a training that gains is continued to at most so many times its usual length
ALONE_SHARE = 0.1  # maximum share of the budget for vectors of tokens that the texts lack
MAX_VALIDATIONS, VALIDATION_SHARE = 8, 0.3  # maximum validations of a training, and their share of its time
MAX_DISTILLED = 20_000
# cost: passes over the texts, and additional seconds
ENCODER_PASSES, ENCODER_SECONDS, STATIC_PASSES, STATIC_SECONDS, GRAPH_SECONDS = 2, 5.0, 4, 5.0, 10.0


def share_of(run: Run, step: str, *, trained: bool = True) -> float:
    """Return the seconds that a step may use: its share of what is left and is not set aside for the last steps.

    Args:
        trained: whether the model may still be trained.
    """
    untrained = ("trials", "train") if "training" in run.skipped or not trained else ()
    steps, budget = [name for name in run.plan["steps"] if name not in untrained], run.settings["seconds"]
    following = steps[steps.index(step) + 1 :]
    set_aside = sum(min(seconds_of_last(run, name), budget * SHARES[name]) for name in following if name in LAST)
    sharing = SHARES[step] + sum(SHARES[name] for name in following if name not in LAST)
    return float(max(run.remaining - set_aside - MARGIN * budget, 0.0) * SHARES[step] / sharing)


def share_of_search(run: Run) -> float:
    """Return the seconds of the first search: its share without measuring encoders, which is at most half of it."""
    share = share_of(run, "search")
    return max(share / 2, share - MEASURED * run.speed["measured"])


def seconds_of_last(run: Run, step: str) -> float:
    """Estimate the cost of a step in `LAST`."""
    speed, fitted, distilled = run.speed, int(run.plan["fitted"]), min(MAX_DISTILLED, len(run.inputs.texts))
    costs = {
        "encoder": ENCODER_PASSES * fitted * speed["seconds"] + ENCODER_SECONDS,
        "static": STATIC_PASSES * distilled * speed["seconds"] + STATIC_SECONDS,
        "graph": GRAPH_SECONDS,
    }
    return costs[step] + speed["measured"] + speed["tested"]


def plan_search(run: Run, seconds: float) -> dict[str, Any]:
    """Plan the largest space that can be searched in `seconds`, or the smallest space on fewer texts or labels.

    Returns:
        `space`, number of `texts` and `units`; `expected`, the seconds that it will take; `missing`, what the largest
        search would add, and its seconds; None if this is the largest.
    """
    inputs, total = run.inputs, _texts_of_search(run)
    spaces = ("static",) if run.capabilities.only_static else ("auto", "small", "heads", "tiny")
    for space in spaces:
        affordable = int(max(seconds, 0.0) / max(seconds_of_search(run, space), 1e-9))
        least = min(total, MIN_SEARCH_TEXTS * (1 if space == spaces[-1] else 2 if space == "heads" else 5))
        if affordable >= least:
            break
    count = min(total, max(affordable, least))
    units = sum(task.units for task in inputs.tasks)
    sampled = max(50, units * count // total) if inputs.tasks and count < total else None
    size = f"{space!r} on {f'{sampled} labels' if sampled else f'{count} texts'}"
    planned = {"space": space, "texts": count, "units": sampled, "text": f"search the space {size}"}
    planned["expected"] = seconds_of_search(run, space) * count
    largest = f"{spaces[0]!r} on {'all labels' if inputs.tasks else f'{total} texts'}"
    missing = (f"a search of the space {largest} instead of {size}", seconds_of_search(run, spaces[0]) * total)
    return {**planned, "missing": missing if (space, count) != (spaces[0], total) else None}


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
    steps = min(TIMED_STEPS, max(MIN_TIMED, int(TIMED_SHARE * left / max(step_seconds, 1e-9))))
    why = ""
    if steps * step_seconds > left:
        why = f"{steps} steps of training would take about {duration(steps * step_seconds)}, but {_left(left)}"
        run.missing["train"] = ("training", MIN_STEPS * step_seconds)
    return {"steps": steps, "text": f"time {steps} steps of training", "why": why}


def plan_trials(run: Run, step_seconds: float) -> dict[str, Any]:
    """Plan trials with successive halving: the settings, and after how many steps the better half of them continues.

    If there is no time, or the training needs it, there are no trials (no `rungs`).
    """
    settings, seconds = run.plan["candidates"], share_of(run, "trials")
    largest, costs = min(TRIALS[0], len(settings)), dict[tuple[int, int], float]()
    for count, scale in product(TRIALS, (2, 1)):
        running = [max(1, min(count, largest) >> halvings) for halvings in range(count.bit_length() - 1)]
        steps = scale * np.dot(running, np.diff([0, *RUNGS[: len(running)]]))
        if count <= 2 * len(settings):
            costs[count, scale] = float(steps * step_seconds + sum(running) * run.speed["measured"])
    if seconds * SHARES["train"] / SHARES["trials"] < MIN_STEPS * step_seconds:
        seconds = 0.0  # training needs the time
    count, scale = next((size for size, cost in costs.items() if cost <= seconds), (1, 0))
    chosen, rungs = settings[:count], [scale * rung for rung in RUNGS[: count.bit_length() - 1]]
    if len(chosen) < largest:
        text = f"trials of {largest} training settings instead of {len(chosen)}"
        run.missing["trials"] = (text, next(cost for (_, scale), cost in costs.items() if scale == 1))
    text = f"{len(chosen)} training settings, the better half of them for up to {rungs[-1]} steps" if rungs else ""
    return {"settings": chosen, "rungs": rungs, "text": text}


def plan_train(run: Run, step_seconds: float, done: int, most: int, every: int) -> dict[str, Any]:
    """Plan how far to train in the next round; `why` is the reason if there is no time for more steps.

    Args:
        step_seconds: seconds per step, as measured before.
        done: steps of earlier rounds.
        most: steps after which this training ends.
        every: steps between the validations of earlier rounds; 0 in the first round.

    Returns:
        `steps`, with those of earlier rounds, of which `new` ones; `every`, steps between validations.
    """
    speed, seconds = run.speed, share_of(run, "train")
    search = seconds_of_search(run, "auto") * _texts_of_search(run)
    seconds -= min(search, SEARCH_SHARE * seconds) + 2 * speed["measured"] + speed["references"] + speed["tested"]
    validated = speed["measured"] if run.inputs.tasks else 0.0  # labels compare checkpoints
    if not every:
        validations = int(min(MAX_VALIDATIONS, max(2.0, VALIDATION_SHARE * seconds / max(speed["measured"], 1e-9))))
        affordable = (seconds - validations * validated) / max(step_seconds, 1e-9)
        every = max(4, -(-max(1, min(most, int(affordable))) // validations))
    affordable = max(0, int(seconds / max(step_seconds + validated / every, 1e-9)))
    minimum = MIN_FURTHER if done else MIN_STEPS
    part = affordable if affordable <= MIN_STEPS else int(ROUND * affordable)
    further = min(most - done, max(minimum, part))
    text = f"{further} {'more ' if done else ''}contrastive steps"
    why = f"{minimum} {'more ' if done else ''}steps would take {minimum * step_seconds:.0f} s, but {_left(seconds)}"
    return {
        "steps": done + further,
        "new": further,
        "every": every,
        "text": text,
        "why": why if affordable < min(minimum, most - done) else "",
    }


def usual_steps(run: Run) -> int:
    """Return the number of steps after which a training must gain to be continued."""
    texts = len(run.inputs.texts)
    return max(MIN_STEPS, min(MAX_STEPS, EPOCHS * texts // min(BATCH, texts // 2)))


def plan_encoder(run: Run) -> dict[str, Any]:
    """Plan the number of texts on which the saved encoder is fitted: more than the measured ones if there is time."""
    measuring = run.speed["measured"] + run.speed["tested"] + ENCODER_SECONDS
    affordable = (share_of(run, "encoder") - measuring) / max(ENCODER_PASSES * run.speed["seconds"], 1e-9)
    count = max(run.plan["fitted"], min(MAX_FITTED, len(run.inputs.texts), int(affordable)))
    return {"texts": count, "text": f"fit on {count} texts"}


def plan_static(run: Run) -> dict[str, Any]:
    """Plan the number of texts for static tables; `why` is the reason if even the minimum does not fit the budget."""
    speed, most, words = run.speed, min(MAX_DISTILLED, len(run.inputs.texts)), len(run.model.tokenizer)
    per_text = STATIC_PASSES * speed["seconds"]
    affordable = int((share_of(run, "static") - STATIC_SECONDS) / max(per_text, 1e-9))
    count = min(most, max(MIN_SEARCH_TEXTS, affordable))
    alone = words * speed["seconds"] * min(1.0, 3 / max(speed["tokens"], 1.0))  # [CLS] token [SEP]
    unseen = "alone" if alone <= ALONE_SHARE * run.settings["seconds"] else "static"
    why = reason_to_skip(run, "static", "a static table", count * per_text + STATIC_SECONDS)
    if not why and count < most:
        run.missing["static"] = (f"a static table from {most} texts instead of {count}", (most - count) * per_text)
    return {"texts": count, "unseen": unseen, "text": f"distil static tables from {count} texts", "why": why}


def plan_graph(run: Run) -> dict[str, Any]:
    """Plan the graph; `why` is the reason if it does not fit the remaining budget."""
    why = reason_to_skip(run, "graph", "a graph", GRAPH_SECONDS)
    return {"text": f"compile a graph for {run.plan['engine']}", "why": why}


def reason_to_skip(run: Run, step: str, result: str, seconds: float) -> str:
    """Return why a step does not fit the remaining budget, which then lacks its result; "" if it does."""
    if seconds <= run.remaining:
        return ""
    run.missing[step] = (result, seconds)
    return f"it would take about {duration(seconds)}, but {_left(run.remaining)}"


def _left(seconds: float) -> str:
    return f"only {max(seconds, 0.0):.0f} s of the budget were left"
