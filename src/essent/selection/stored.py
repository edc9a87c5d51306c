"""Recipes whose vectors are kept: shaped without a further pass over the texts, and judged where that takes vectors."""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits
from tqdm.auto import tqdm

from essent._core.cores import cores
from essent.errors import NoSpreadError
from essent.recipe.shaping.base import AffineShaper, Moments
from essent.recipe.shaping.chain import Chain
from essent.selection.pairs import TextPairs
from essent.selection.program import Place
from essent.selection.question import Question
from essent.selection.store import Store
from essent.selection.sweep import Sweep, pair_cosines

FLOAT = 4  # bytes
Weighting = tuple[int, int, int]  # pass, block and row in it


def judge_stored(sweep: Sweep, question: Question, data: TextPairs, store: Store, *, progress: bool) -> None:
    """Fit and apply every chain of a program, and judge vectors; what is in the store already is not done again."""
    weightings: dict[Weighting, dict[Place, list[int]]] = {}
    for number, (recipe, place) in enumerate(zip(sweep.program.recipes, sweep.program.places, strict=True)):
        if recipe.shaping or question.takes_vectors:
            places = weightings.setdefault((place.frame, place.block, place.row), {})
            places.setdefault(place, []).append(number)
    total = sum(len(members) for places in weightings.values() for members in places.values())
    desc = "Judging" if question.takes_vectors else "Shaping"
    judge = partial(_judge_place, sweep=sweep, question=question, data=data, store=store)
    with tqdm(total=total, desc=desc, disable=not progress) as bar:
        todo = []
        for key, places in weightings.items():
            if store.done(_unit(key)):
                bar.update(sum(map(len, places.values())))
                sweep.release(next(iter(places)))  # where a run was killed before it did so
            else:
                todo += list(places.items())
        left = {key: len(places) for key, places in weightings.items()}
        for place, count in _side_by_side(judge, todo, judged_at_once(sweep, question)):
            bar.update(count)
            key = (place.frame, place.block, place.row)
            left[key] -= 1
            if not left[key]:
                store.finish(_unit(key))
                sweep.release(place)


def _unit(key: Weighting) -> str:
    """What the store calls the recipes of a weighting."""
    return f"shaping {key[0]} {key[1]} {key[2]}"


def judged_at_once(sweep: Sweep, question: Question) -> int:
    """How many recipes are shaped and judged side by side: one on each core, as far as memory goes."""
    dimensions = sweep.backbone.dimensions
    used = 4 * FLOAT * len(sweep.data.texts) * dimensions  # pooled vectors, those to fit on, shaped ones, unit ones
    if question.task is not None and question.takes_vectors:
        used += question.task.working_bytes(dimensions)
    return max(1, min(cores(), sweep.memory // max(used, 1)))


def _side_by_side(
    judge: Callable[[Place, list[int]], int], todo: Iterable[tuple[Place, list[int]]], count: int
) -> Iterator[tuple[Place, int]]:
    """Judge the recipes of so many places at a time, each on its share of the cores; results in their order.

    Small products gain little from several threads, and threads of several libraries fight over the cores.
    """
    threads, share = torch.get_num_threads(), max(1, cores() // count)
    waiting: deque[tuple[Place, Future[int]]] = deque()
    with ThreadPoolExecutor(count, initializer=torch.set_num_threads, initargs=(share,)) as pool:
        try:
            # what a thread says of the filters of warnings holds for all: those of one must not end with another's
            with threadpool_limits(share), warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                for place, members in todo:
                    waiting.append((place, pool.submit(judge, place, members)))
                    if len(waiting) > count:
                        first, future = waiting.popleft()
                        yield first, future.result()
                while waiting:
                    first, future = waiting.popleft()
                    yield first, future.result()
        finally:
            for _, future in waiting:
                future.cancel()
            torch.set_num_threads(threads)


def _judge_place(
    place: Place, members: list[int], *, sweep: Sweep, question: Question, data: TextPairs, store: Store
) -> int:
    """Put what is kept of every chain's vectors into its row; their number. The vectors' moments are taken once."""
    vectors = sweep.pooled(place)  # (N,D)
    fitted = vectors[data.fit]
    moments: Moments | None = None
    for number in members:
        shaping = sweep.program.recipes[number].shaping
        shaped = vectors
        if shaping:
            chain = Chain.parse(shaping)
            if moments is None and isinstance(chain.steps[0], AffineShaper):
                moments = Moments.of(fitted)
            try:
                if chain.needs_fit:
                    chain.fit(fitted, moments=moments)
                shaped = chain.transform(vectors)  # (N,K)
            except NoSpreadError:  # as of [CLS] in layer 0: its score is undefined, and the others have theirs
                shaped = np.zeros((len(vectors), chain.dim_out(vectors.shape[1])), vectors.dtype)
            store.rows[number, : len(data.pairs)] = cosines_of(shaped, data.pairs)  # others': during the pass
        if question.task is not None and question.takes_vectors:
            store.rows[number, question.place] = question.task.evidence(shaped, data.fit.tolist())
    return len(members)


def cosines_of(vectors: np.ndarray, pairs: np.ndarray) -> np.ndarray:
    """Cosines (P,) of pairs (P,2) of rows of (N,K)."""
    found: np.ndarray = pair_cosines(torch.from_numpy(vectors)[:, None, None], torch.from_numpy(pairs))[0, 0].numpy()
    return found
