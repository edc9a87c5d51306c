"""Labelled data for tests of the search. The pairs: repeated texts, an empty one, texts that several pairs join.

No two texts have the same words in another order: pairs of such would tie exactly, and rounding would rank them.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from sentence_transformers import SentenceTransformer

from essent import Encoder
from essent.tasks.clusters import ClusterTask
from essent.tasks.examples import Example, Pair
from essent.tasks.labels import LabelTask
from essent.tasks.pairs import DuplicateTask, PairTask, TripletTask
from essent.tasks.retrieval import RetrievalTask
from families import CORPUS

Shells = Callable[[str], SentenceTransformer]  # families to models
WORDS = sorted({word.strip(".,") for text in CORPUS for word in text.split()})
TOPICS = "cats dogs rain hills music bread winter trains".split()
_draw = np.random.default_rng(7)
PAIRS = tuple(
    Pair(
        " ".join(_draw.choice(WORDS, 3 + n % 6, replace=False)),
        " ".join(_draw.choice(WORDS, 2 + n % 5, replace=False)),
        n % 7 + n / 50,
    )
    for n in range(60)
)
TASK = PairTask("tiny", (*PAIRS, PAIRS[3], Pair("", WORDS[0], 0.0), Pair(PAIRS[0].sentence1, PAIRS[9].sentence2, 1.5)))


def planted(shell: Any, recipe: str, noise: float = 0.05, pairs: tuple[Pair, ...] = TASK.pairs) -> PairTask:
    """Pairs whose gold scores are the cosines of a recipe, less a little noise: this recipe is the best there is."""
    texts = [pair.sentence1 for pair in pairs] + [pair.sentence2 for pair in pairs]
    vectors = Encoder(shell, recipe).fit(texts).encode(texts, normalize_embeddings=True)
    cosines = np.einsum("pd,pd->p", vectors[: len(pairs)], vectors[len(pairs) :])
    gold = cosines + noise * cosines.std() * np.random.default_rng(3).normal(size=len(pairs))
    return PairTask("planted", tuple(pair._replace(score=float(g)) for pair, g in zip(pairs, gold, strict=True)))


def text(number: int, kind: str = "about") -> str:
    """One of a row of like sentences, in so many kinds."""
    return f"A line {kind} {TOPICS[number % 8]} and {TOPICS[number * 5 % 7]} with {number} words."


def labels() -> LabelTask:
    """Sentences of three classes, three in four of them to learn from."""
    parts = ("train",) * 3 + ("test",)
    return LabelTask("l", tuple(Example((text(n),), TOPICS[n % 3], parts[n % 4]) for n in range(120)))


def duplicates() -> DuplicateTask:
    return DuplicateTask("d", tuple((text(n), text(n + n % 3, "of"), n % 3 == 0) for n in range(40)))


def triplets() -> TripletTask:
    return TripletTask("t", tuple((text(n), text(n, "of"), text(n + 3)) for n in range(40)))


def clusters() -> ClusterTask:
    return ClusterTask("c", tuple(Example((text(n),), TOPICS[n % 4]) for n in range(60)), seeds=(0, 1), starts=2)


def retrieval() -> RetrievalTask:
    queries, corpus = {f"q{n}": text(n) for n in range(30)}, {f"d{n}": text(n, "of") for n in range(50)}
    return RetrievalTask("r", queries, corpus, {f"q{n}": {f"d{n}": 1} for n in range(30)}, query_prompt="query: ")
