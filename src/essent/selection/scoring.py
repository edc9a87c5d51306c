"""Shaping and evidence of the recipes of a sweep, from the vectors that its passes have stored."""

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
from essent.recipe.shaping.affine import AffineShaper, Moments
from essent.recipe.shaping.chain import Chain
from essent.selection.program import Origin
from essent.selection.search_data import SearchData
from essent.selection.sweep import ALL_FLOATS, Sweep, pair_cosines


def score_stored(sweep: Sweep, data: SearchData, *, progress: bool) -> None:
    """Fit and apply every chain, and put cosines and evidence into the rows; what the store has is not done again."""
    weightings: dict[tuple[int, int, int], dict[Origin, list[int]]] = {}
    for number, (recipe, origin) in enumerate(zip(sweep.program.recipes, sweep.program.origins, strict=True)):
        if recipe.shaping or data.takes_vectors:
            weightings.setdefault(origin[:3], {}).setdefault(origin, []).append(number)
    total = sum(len(members) for members_by_origin in weightings.values() for members in members_by_origin.values())
    with tqdm(total=total, desc="Judging" if data.takes_vectors else "Shaping", disable=not progress) as bar:
        todo = []
        for key, members_by_origin in weightings.items():
            if sweep.store.done(_unit(key)):
                bar.update(sum(map(len, members_by_origin.values())))
                sweep.release(next(iter(members_by_origin)))  # where a run was killed before it did so
            else:
                todo += list(members_by_origin.items())
        remaining = {key: len(members_by_origin) for key, members_by_origin in weightings.items()}
        for origin, count in _side_by_side(partial(_score_origin, sweep, data), todo, scored_at_once(sweep, data)):
            bar.update(count)
            remaining[origin[:3]] -= 1
            if not remaining[origin[:3]]:
                sweep.store.finish(_unit(origin[:3]))
                sweep.release(origin)


def _unit(key: tuple[int, int, int]) -> str:
    """What the store calls the recipes of a weighting: pass, block and row in it."""
    return f"shaping {key[0]} {key[1]} {key[2]}"


def scored_at_once(sweep: Sweep, data: SearchData) -> int:
    """How many recipes are shaped and scored side by side: one on each core, as far as memory goes."""
    dimensions = sweep.backbone.dimensions
    used = (
        4 * ALL_FLOATS * len(sweep.data.texts) * dimensions
    )  # pooled vectors, those to fit on, shaped ones, unit ones
    if data.task is not None and data.takes_vectors:
        used += data.task.working_bytes(dimensions)
    return max(1, min(cores(), sweep.memory // max(used, 1)))


def _side_by_side(
    score: Callable[[Origin, list[int]], int], todo: Iterable[tuple[Origin, list[int]]], count: int
) -> Iterator[tuple[Origin, int]]:
    """Score the recipes of so many origins at a time, each on its share of the cores; results in their order.

    Small products gain little from several threads, and threads of several libraries fight over the cores.
    """
    threads, share = torch.get_num_threads(), max(1, cores() // count)
    waiting: deque[tuple[Origin, Future[int]]] = deque()
    with ThreadPoolExecutor(count, initializer=torch.set_num_threads, initargs=(share,)) as pool:
        try:
            # what a thread says of the filters of warnings holds for all: those of one must not end with another's
            with threadpool_limits(share), warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                for origin, members in todo:
                    waiting.append((origin, pool.submit(score, origin, members)))
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


def _score_origin(sweep: Sweep, data: SearchData, origin: Origin, members: list[int]) -> int:
    """Fill the rows of the recipes with these pooled vectors; their number. The vectors' moments are taken once."""
    vectors = sweep.pooled(origin)  # (N,D)
    fitted, pairs, rows = vectors[sweep.data.fit], sweep.data.pairs, sweep.store.rows
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
            cosines = pair_cosines(torch.from_numpy(shaped)[:, None, None], torch.from_numpy(pairs))[0, 0]
            rows[number, : len(pairs)] = cosines.numpy()  # others': during the pass
        if data.task is not None and data.takes_vectors:
            rows[number, data.evidence] = data.task.evidence(shaped, sweep.data.fit.tolist())
    return len(members)
