"""Texts and judgements for improvements of tiny models: words in random order, pairs that share some of them."""

import hashlib
import random
from itertools import product
from pathlib import Path
from typing import Any

from essent.improvement import plan
from essent.selection.space import Space
from essent.tasks.pairs import DuplicateTask

WORDS = (
    "a man is playing large flute two dogs run through the green field chasing red ball stock market fell sharply on "
    "monday after announcement she drinks cold coffee every morning kitten climbed old oak tree and stayed there"
).split()
SMALL = {"RUNGS": (4, 8, 12), "MIN_STEPS": 8, "EPOCHS": 1, "BATCH": 16, "ENGINES": {}, "LONGEST": 1, "TIMED_STEPS": 2}
SPACES = {"auto": Space(plan.SPACES["tiny"].grids, ("static | normalize",), "auto")}


def make_texts(count: int, seed: int = 0) -> list[str]:
    """Different texts of 6 to 12 words."""
    chance = random.Random(seed)  # noqa: S311
    return [f"{' '.join(chance.choices(WORDS, k=chance.randint(6, 12)))} {number}." for number in range(count)]


def make_topic_texts(count: int) -> list[str]:
    """Texts with two words of one of 15 topics."""
    words = [f"t{number % 15}w{number // 15 % 3} t{number % 15}w3" for number in range(count)]
    return [f"{own} {text}" for own, text in zip(words, make_texts(count), strict=True)]


def duplicates(count: int, seed: int = 1) -> DuplicateTask:
    """Texts with their words in another order, some with half of them exchanged."""
    chance = random.Random(seed)  # noqa: S311
    pairs = []
    for number, text in enumerate(make_texts(count, seed + 1)):
        alike, words = number % 2 == 0, text.split()
        similar = words if alike else [word if chance.random() < 0.5 else chance.choice(WORDS) for word in words]
        pairs.append((text, " ".join(chance.sample(similar, len(similar))), alike))
    return DuplicateTask("alike", tuple(pairs))


def make_small(patch: Any = setattr, trials: int = 2) -> None:
    """Few trials of few steps, and a small space: the maximum of a plan."""
    from essent.improvement import budget, steps  # they import these under their own names

    original, modules = plan.space_of, (plan, budget, steps)
    values = {**SMALL, "TRIALS": (trials,), "space_of": lambda name: SPACES.get(name) or original(name)}
    for module, (name, value) in product(modules, values.items()):
        if hasattr(module, name):
            patch(module, name, value)


def digests(folder: Path, *parts: str) -> dict[str, str]:
    """SHA-256 of every file below some parts of a folder."""
    files = [path for part in parts for path in sorted((folder / part).rglob("*")) if path.is_file()]
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
