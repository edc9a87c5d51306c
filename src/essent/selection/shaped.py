"""Recipes with a shaping chain: fitted on the stored vectors, no further pass over the texts."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch
from tqdm.auto import tqdm

from essent.selection.pairs import TextPairs
from essent.selection.program import Place
from essent.selection.store import Store
from essent.selection.sweep import Sweep, pair_cosines
from essent.shaping import AffineShaper, Chain, Moments

PAIRS = 16_384  # compared at a time


def score_shaped(sweep: Sweep, data: TextPairs, store: Store, *, progress: bool) -> None:
    """Fit and apply every chain of a program; cosines go to the store. What is there already is not done again."""
    program = sweep.program
    weightings: dict[tuple[int, int, int], dict[Place, list[int]]] = {}
    for number, (recipe, place) in enumerate(zip(program.recipes, program.places, strict=True)):
        if recipe.shaping:
            places = weightings.setdefault((place.frame, place.block, place.row), {})
            places.setdefault(place, []).append(number)
    total = sum(bool(recipe.shaping) for recipe in program.recipes)
    with tqdm(total=total, desc="Shaping", disable=not progress) as bar:
        for key, places in weightings.items():
            unit = f"shaping {key[0]} {key[1]} {key[2]}"
            if not store.done(unit):
                for place, members in places.items():
                    _score(sweep.pooled(place), members, sweep, data, store)
                store.finish(unit)
            sweep.release(next(iter(places)))  # also where a run was killed before it did so
            bar.update(sum(map(len, places.values())))


def _score(vectors: np.ndarray, members: Iterable[int], sweep: Sweep, data: TextPairs, store: Store) -> None:
    """Every chain on the same pooled vectors (N,D); their moments are taken once."""
    fitted = vectors[data.fit]
    moments: Moments | None = None
    for number in members:
        chain = Chain.parse(sweep.program.recipes[number].shaping)
        if moments is None and isinstance(chain.steps[0], AffineShaper):
            moments = Moments.of(fitted)
        if chain.needs_fit:
            chain.fit(fitted, moments=moments)
        store.cosines[number] = cosines_of(chain.transform(vectors), data.pairs)


def cosines_of(vectors: np.ndarray, pairs: np.ndarray) -> np.ndarray:
    """Cosines (P,) of pairs (P,2) of rows of (N,K)."""
    rows = torch.from_numpy(vectors)[None, :, None]  # (1,N,1,K)
    parts = [
        pair_cosines(rows, torch.from_numpy(pairs[start : start + PAIRS]))[0, 0].numpy()
        for start in range(0, len(pairs), PAIRS)
    ]
    return np.concatenate(parts) if parts else np.empty(0)
