"""Calibrating something with `encode` on texts and judged pairs, and how far probabilities are from what happens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from essent._core.lazy import needs_torch
from essent._core.texts import check_texts, require_finite
from essent._core.types import TextsLike
from essent.errors import InputError
from essent.tasks.base import unit_rows
from essent.tasks.calibration.curve import EDGE, Curve
from essent.tasks.calibration.stored import Calibration
from essent.tasks.duplicates import DuplicateTask
from essent.tasks.locate import load_judged
from essent.tasks.pairs import PairTask

KNOTS = 201
FEWEST_JUDGED = 10  # pairs of either kind: a curve through fewer says what single pairs are
SPREAD = 1e-6  # of cosines: where they differ by less, only rounding differs
FARTHEST = 30.0  # the logit from which on a curve is drawn straight to its end: 1e-13 is left


def share_curve(cosines: np.ndarray) -> Curve:
    """The share of random pairs that are less similar, from their cosines (P,); equal ones count half.

    The empirical distribution at 201 levels, which lie closer the nearer they are to 0 and 1, and straight lines
    between them. Below the least and above the most similar random pair they lead to 0 at a cosine of -1 and 1 at 1.

    Raises:
        InputError: cosines that are all the same.
    """
    cosines = np.asarray(cosines, np.float64)
    if float(np.ptp(cosines)) <= SPREAD:
        raise InputError(
            f"All {len(cosines):,} random pairs of the texts have the cosine {float(cosines.mean()):.6f}: no "
            "similarity can be told from another. `essent check` says what is wrong with such a model."
        )
    farthest = np.log(len(cosines))
    levels = _sigmoid(np.linspace(-farthest, farthest, KNOTS))
    return _through(np.quantile(cosines, levels), levels)


@needs_torch("Calibrating on judged pairs")
def probability_curve(cosines: np.ndarray, matches: np.ndarray) -> Curve:
    """The probability that a pair is a match, from cosines (P,) and judgements (P,) bool: a logistic regression.

    Its targets are Platt's, which keep the slope finite where one cosine separates all pairs (Platt 1999,
    "Probabilistic outputs for support vector machines", section 2.2).

    Raises:
        InputError: too few pairs of either kind, or matches that are not the more similar pairs.
    """
    from sklearn.linear_model import LogisticRegression

    cosines, matches = np.asarray(cosines, np.float64), np.asarray(matches, bool)
    found, others = int(matches.sum()), int((~matches).sum())
    if min(found, others) < FEWEST_JUDGED:
        raise InputError(
            f"{found} of the {len(matches)} judged pairs are matches; at least {FEWEST_JUDGED} matches and "
            f"{FEWEST_JUDGED} other pairs are needed."
        )
    middle, scale = float(cosines.mean()), float(cosines.std())
    if scale <= SPREAD:
        raise InputError(f"All judged pairs have the cosine {middle:.6f}: it cannot tell which are matches.")
    sure = np.where(matches, (found + 1) / (found + 2), 1 / (others + 2))  # Platt's targets, each as two weighted pairs
    inputs = np.tile((cosines - middle) / scale, 2)[:, None]  # (2P,1)
    model = LogisticRegression(C=np.inf)
    model.fit(inputs, np.repeat([1, 0], len(cosines)), sample_weight=np.concatenate([sure, 1 - sure]))
    slope = float(model.coef_[0, 0]) / scale
    if slope <= 0:
        raise InputError(
            f"Matches are not the more similar pairs here: their cosine is {cosines[matches].mean():.3f} on average, "
            f"that of the other pairs {cosines[~matches].mean():.3f}. Are the judgements the right way round?"
        )
    at_zero = float(model.intercept_[0]) - slope * middle
    ends = np.clip([at_zero - slope * EDGE, at_zero + slope * EDGE], -FARTHEST, FARTHEST)
    logits = np.linspace(ends[0], ends[1], KNOTS)
    return _through((logits - at_zero) / slope, _sigmoid(logits))


def _sigmoid(values: np.ndarray) -> np.ndarray:
    found: np.ndarray = 1 / (1 + np.exp(-values))
    return found


def _through(cosines: np.ndarray, values: np.ndarray) -> Curve:
    """A curve through increasing points (K,), and from there to 0 and 1; points of one cosine become their middle."""
    knots, places = np.unique(np.clip(cosines, -1, 1), return_inverse=True)
    middles = np.bincount(places, values) / np.bincount(places)
    return Curve((-EDGE, *knots.tolist(), EDGE), (0.0, *np.maximum.accumulate(middles).tolist(), 1.0))


MOST_TEXTS = 1000  # make 499,500 pairs; five draws of as many texts lie 0.006 to 0.05 apart (docs/similarity.md)
FEWEST_TEXTS = 20  # make 190 pairs
BINS = 15


def calibrate(
    encode: Callable[[list[str]], Any],
    texts: TextsLike,
    pairs: Any = None,
    *,
    match_score: float | None = None,
    prompt: str = "",
    seed: int = 0,
) -> Calibration:
    """What the cosines of an encoder mean on texts like these.

    Args:
        encode: gives the vectors (N,K) of texts.
        texts: of which up to 1,000 different ones are drawn; all pairs of these are the random pairs.
        pairs: judged pairs: duplicates or scored pairs, as a task, a file, a task's name, or rows in memory.
        match_score: the score from which on a scored pair counts as a match.
        prompt: what `encode` puts before every text, for the record.
        seed: of the draw.

    Raises:
        InputError: too few different texts, vectors that are not finite or all the same, judgements of another kind, of
            one class, or that contradict the cosine.
        DataError: judgements that cannot be read.
    """
    distinct = list(dict.fromkeys(check_texts(texts)))
    if len(distinct) < FEWEST_TEXTS:
        raise InputError(
            f"{len(distinct)} different texts are too few to calibrate on; give at least {FEWEST_TEXTS}, better "
            f"{MOST_TEXTS:,}."
        )
    drawn = [distinct[place] for place in np.random.default_rng(seed).permutation(len(distinct))[:MOST_TEXTS]]
    task, matches = (None, np.zeros(0, bool)) if pairs is None else _judged(pairs, match_score)
    if task is None and match_score is not None:
        raise InputError("match_score belongs to scored pairs: give them as pairs=.")
    both = drawn + ([] if task is None else task.texts())
    vectors = require_finite(np.asarray(encode(both), dtype=np.float64), both)
    units = unit_rows(vectors[: len(drawn)])
    random = (units @ units.T)[np.triu_indices(len(drawn), 1)]
    share = share_curve(random)
    if task is None:
        return Calibration(share, None, len(drawn), len(random), prompt=prompt, seed=seed)
    places = range(len(drawn), len(both))
    return Calibration(
        share,
        probability_curve(task.evidence(vectors, places), matches),
        len(drawn),
        len(random),
        judged=task.name,
        judged_pairs=len(matches),
        matches=int(matches.sum()),
        match_score=match_score,
        prompt=prompt,
        seed=seed,
    )


def _judged(pairs: Any, match_score: float | None) -> tuple[DuplicateTask | PairTask, np.ndarray]:
    """The judged pairs, and which of them are matches (P,)."""
    task = load_judged(pairs)
    if isinstance(task, DuplicateTask):
        if match_score is not None:
            raise InputError(f"{task.name} says of each pair whether it is one of duplicates: leave match_score out.")
        return task, np.array([bool(pair[2]) for pair in task.pairs])
    if not isinstance(task, PairTask):
        raise InputError(f"{task.name} holds {task.kind}; a calibration takes duplicates or scored pairs.")
    scores = np.array([pair.score for pair in task.pairs])
    if match_score is None:
        raise InputError(
            f"{task.name} has scores from {scores.min():g} to {scores.max():g}: say with match_score (--match-score) "
            "from which score on a pair counts as a match."
        )
    return task, scores >= match_score


def expected_calibration_error(probabilities: np.ndarray, matches: np.ndarray, bins: int = BINS) -> float:
    """Mean distance, weighted by pairs, between what is said and what happens in bins of equally many pairs: [0, 1].

    Not 0 for a perfect calibration: in 15 bins of 1,700 pairs chance alone makes about 0.03. Source: Naeini et al.
    2015, with bins of equal size (Nixon et al. 2019), which leave none empty.
    """
    said, happened = np.asarray(probabilities, np.float64), np.asarray(matches, np.float64)
    parts = [part for part in np.array_split(np.argsort(said, kind="stable"), bins) if len(part)]
    return float(sum(len(part) * abs(said[part].mean() - happened[part].mean()) for part in parts) / len(said))
