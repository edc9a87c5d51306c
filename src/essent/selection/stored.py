"""Recipes whose vectors are kept: shaped without a further pass over the texts, and judged where that takes vectors."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import torch
from threadpoolctl import threadpool_limits
from tqdm.auto import tqdm

from essent.selection.pairs import TextPairs
from essent.selection.program import Place
from essent.selection.question import Question
from essent.selection.store import Store
from essent.selection.sweep import Sweep, pair_cosines
from essent.shaping import AffineShaper, Chain, Moments
from essent.tasks import cores

PAIRS = 16_384  # compared at a time
FLOAT = 4  # bytes


def judge_stored(sweep: Sweep, question: Question, data: TextPairs, store: Store, *, progress: bool) -> None:
    """Fit and apply every chain of a program, and judge vectors; what is in the store already is not done again."""
    program = sweep.program
    weightings: dict[tuple[int, int, int], dict[Place, list[int]]] = {}
    for number, (recipe, place) in enumerate(zip(program.recipes, program.places, strict=True)):
        if recipe.shaping or question.takes_vectors:
            places = weightings.setdefault((place.frame, place.block, place.row), {})
            places.setdefault(place, []).append(number)
    total = sum(len(members) for places in weightings.values() for members in places.values())
    desc = "Judging" if question.takes_vectors else "Shaping"
    count = judged_at_once(sweep, question)
    with tqdm(total=total, desc=desc, disable=not progress) as bar, _side_by_side(count) as each:
        for key, places in weightings.items():
            unit = f"shaping {key[0]} {key[1]} {key[2]}"
            if not store.done(unit):
                for place, members in places.items():
                    shaped = _shaped(sweep.pooled(place), members, sweep, data)
                    for _ in each(partial(_judge, sweep=sweep, question=question, data=data, store=store), shaped):
                        bar.update()
                store.finish(unit)
            else:
                bar.update(sum(map(len, places.values())))
            sweep.release(next(iter(places)))  # also where a run was killed before it did so


def judged_at_once(sweep: Sweep, question: Question) -> int:
    """How many recipes are judged side by side: one on each core, as far as memory goes; 0 where none is."""
    if question.task is None or not question.takes_vectors:
        return 0
    dimensions = sweep.backbone.dimensions
    vectors = FLOAT * len(sweep.data.texts) * dimensions
    return max(1, min(cores(), sweep.memory // (vectors + question.task.working_bytes(dimensions))))


@contextlib.contextmanager
def _side_by_side(count: int) -> Iterator[Callable[..., Iterator[Any]]]:
    """A `map` that judges so many recipes at a time, each on its share of the cores.

    Small products gain little from several threads, and threads of several libraries fight over the cores.
    """
    if not count:
        yield map
        return
    threads, share = torch.get_num_threads(), max(1, cores() // count)

    def mapped(judge: Callable[[Any], Any], items: Iterable[Any]) -> Iterator[Any]:
        waiting: deque[Future[Any]] = deque()
        for item in items:  # a few at a time: each holds the vectors of a recipe
            waiting.append(pool.submit(judge, item))
            if len(waiting) > count:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()

    with ThreadPoolExecutor(count, initializer=torch.set_num_threads, initargs=(share,)) as pool:
        try:
            with threadpool_limits(share):
                yield mapped
        finally:
            torch.set_num_threads(threads)


def _shaped(
    vectors: np.ndarray, members: Iterable[int], sweep: Sweep, data: TextPairs
) -> Iterator[tuple[int, np.ndarray]]:
    """Every chain on the same pooled vectors (N,D); their moments are taken once."""
    fitted = vectors[data.fit]
    moments: Moments | None = None
    for number in members:
        shaping = sweep.program.recipes[number].shaping
        if not shaping:
            yield number, vectors
            continue
        chain = Chain.parse(shaping)
        if moments is None and isinstance(chain.steps[0], AffineShaper):
            moments = Moments.of(fitted)
        if chain.needs_fit:
            chain.fit(fitted, moments=moments)
        yield number, chain.transform(vectors)


def _judge(shaped: tuple[int, np.ndarray], *, sweep: Sweep, question: Question, data: TextPairs, store: Store) -> None:
    """Put what is kept of a recipe's vectors (N,K) into its row."""
    number, vectors = shaped
    if sweep.program.recipes[number].shaping:  # others were compared during the pass
        store.rows[number, : len(data.pairs)] = cosines_of(vectors, data.pairs)
    if question.task is not None and question.takes_vectors:
        evidence = question.task.evidence(vectors, data.fit.tolist())
        store.rows[number, question.place] = evidence


def cosines_of(vectors: np.ndarray, pairs: np.ndarray) -> np.ndarray:
    """Cosines (P,) of pairs (P,2) of rows of (N,K)."""
    rows = torch.from_numpy(vectors)[None, :, None]  # (1,N,1,K)
    parts = [
        pair_cosines(rows, torch.from_numpy(pairs[start : start + PAIRS]))[0, 0].numpy()
        for start in range(0, len(pairs), PAIRS)
    ]
    return np.concatenate(parts) if parts else np.empty(0)
