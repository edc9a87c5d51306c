"""Curves fitted to cosines: of random pairs, and of pairs that somebody has judged."""

from __future__ import annotations

import numpy as np

from essent._core.lazy import needs_torch
from essent.errors import InputError
from essent.tasks.calibration.curve import EDGE, Curve

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
