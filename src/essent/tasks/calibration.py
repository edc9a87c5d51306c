"""Calibrated similarity: cosines as the share of less similar random pairs, or as the probability of a match.

Both increase strictly with the cosine, so rankings do not change. A saved model stores its calibration in
essent/calibration.json.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from essent._core.arguments import TextsLike
from essent._core.atomic import write_text
from essent._core.folders.files import STATE_FOLDER, read_json
from essent._core.lazy import needs_torch
from essent._core.texts import check_texts, require_finite
from essent.errors import DamagedError, InputError, NotFittedError
from essent.version import __version__

if TYPE_CHECKING:
    from essent.tasks.pairs import DuplicateTask, PairTask

__all__ = ["Calibration", "Curve", "calibrate", "expected_calibration_error"]

FILE = f"{STATE_FOLDER}/calibration.json"
FORMAT = 1
MOST_KNOTS = 10_000  # per curve in a file
EDGE = 1 + 1e-5  # cosines of float32 vectors leave [-1, 1] by rounding, though not as far
LINEAR = 1e-6  # weight of the cosine in every value: cosines 1e-9 apart stay distinct where a curve is flat
KNOTS = 201
MOST_TEXTS = 1000  # 499,500 pairs; five draws of as many texts differ by 0.006 to 0.05 (docs/similarity.md)
FEWEST_TEXTS = 20  # 190 pairs
FEWEST_JUDGED = 10  # minimum of matches, and of other pairs: with fewer, single pairs decide the curve
SPREAD = 1e-6  # smaller differences of cosines are rounding
FARTHEST = 30.0  # logit beyond which a curve is a straight line to its end: 1e-13 is left


@dataclass(frozen=True)
class Curve:
    """A strictly increasing function of the cosine: linear between knots, plus a millionth of the cosine.

    Cosines closer than 1e-9, which float32 vectors cannot distinguish, may become equal; their order never changes.

    Raises:
        InputError: knots of another form.

    Attributes:
        cosines: of the knots (K,), increasing, from -EDGE to EDGE.
        values: at the knots (K,), in [0, 1], never decreasing.

    Example:
        >>> from essent.tasks.calibration import EDGE, Curve
        >>> curve = Curve(cosines=(-EDGE, 0.5, EDGE), values=(0.0, 0.9, 1.0))
        >>> curve([0.0, 0.5, 0.9]).round(2)
        array([0.6 , 0.9 , 0.98])
    """

    cosines: tuple[float, ...]
    values: tuple[float, ...]

    def __post_init__(self) -> None:
        x, y = np.asarray(self.cosines, np.float64), np.asarray(self.values, np.float64)
        is_valid = x.ndim == 1 and 2 <= len(x) <= MOST_KNOTS and x.shape == y.shape
        is_valid = is_valid and bool((np.diff(x) > 0).all() and (np.diff(y) >= 0).all())
        if not is_valid or (x[0], x[-1]) != (-EDGE, EDGE) or y[0] < 0 or y[-1] > 1:
            raise InputError(
                f"A curve needs cosines that increase from {-EDGE} to {EDGE}, and as many values that never decrease, "
                f"in [0, 1]: 2 to {MOST_KNOTS:,} numbers each."
            )

    def __call__(self, cosines: Any) -> np.ndarray:
        """Return the values in (0, 1), float64 of the same shape."""
        clipped = np.clip(np.asarray(cosines, dtype=np.float64), -EDGE, EDGE)
        # by rounding a value may exceed that of the next knot, and the curve would not be monotonic
        highest = np.take(self.values, np.searchsorted(self.cosines, clipped), mode="clip")
        line = np.minimum(np.interp(clipped, self.cosines, self.values), highest)
        return np.asarray((1 - LINEAR) * line + LINEAR * (clipped / EDGE + 1) / 2)


@dataclass(frozen=True)
class Calibration:
    """A map from cosines of one encoder to shares or probabilities, for texts like those of the calibration.

    Attributes:
        share: curve from a cosine to the share of random pairs of these texts that are less similar.
        probability: curve from a cosine to the probability that a pair is a match, at the labelled pairs' proportion
            of matches; None without labelled pairs.
        texts, random_pairs: number of texts drawn, and of pairs of them.
        judged, judged_pairs, matches: name of the labelled pairs, their number, and the number of matches.
        match_score: lowest score of a match among scored pairs; None for duplicates.
        prompt: text put before every text.
        seed: of the draw.

    Example:
        >>> from essent import Encoder
        >>> from essent.tasks import read_texts
        >>> encoder = Encoder("sentence-transformers/all-MiniLM-L6-v2").calibrate(read_texts("texts.txt"))
        >>> calibration = encoder.calibration
        >>> print(calibration)
        share of 3,160 random pairs of 80 texts that are less similar
        >>> calibration([0.1, 0.5]).round(1)  # of a cosine of 0.1, and of 0.5
        array([0.8, 1. ])
    """

    share: Curve
    probability: Curve | None
    texts: int
    random_pairs: int
    judged: str = ""
    judged_pairs: int = 0
    matches: int = 0
    match_score: float | None = None
    prompt: str = ""
    seed: int = 0

    def __call__(self, cosines: Any) -> np.ndarray:
        """Return probabilities of a match, or without labelled pairs shares of random pairs: float64, same shape."""
        return (self.probability or self.share)(cosines)

    @property
    def meaning(self) -> str:
        """The kind of the numbers: "probability" or "share"."""
        return "share" if self.probability is None else "probability"

    def __str__(self) -> str:
        where = f"{self.random_pairs:,} random pairs of {self.texts:,} texts"
        if self.probability is None:
            return f"share of {where} that are less similar"
        return (
            f"probability of a match, from {self.judged_pairs:,} labelled pairs of {self.judged} ({self.matches:,} "
            f"matches); also the share of {where} that are less similar"
        )


# -- from texts and labelled pairs ------------------------------------------------------------------------------------


def calibrate(
    encode: Callable[[list[str]], Any],
    texts: TextsLike,
    pairs: Any = None,
    *,
    match_score: float | None = None,
    prompt: str = "",
    seed: int = 0,
) -> Calibration:
    """Calibrate the cosines of an encoder on texts, and optionally on labelled pairs.

    Args:
        encode: returns the vectors (N,K) of texts.
        texts: up to 1,000 distinct texts are drawn; all pairs of these are the random pairs.
        pairs: labelled pairs: duplicates or scored pairs, as a task, a file, a task's name, or rows in memory.
        match_score: lowest score of a match among scored pairs.
        prompt: text that `encode` puts before every text; only recorded.
        seed: of the draw.

    Raises:
        InputError: too few distinct texts, vectors that are not finite or all equal, or labels of another kind, of one
            class only, or that contradict the cosines.
        DataError: labels that cannot be read.

    Example:
        >>> from essent import Encoder
        >>> from essent.tasks import read_texts
        >>> from essent.tasks.calibration import calibrate
        >>> encoder = Encoder("sentence-transformers/all-MiniLM-L6-v2")
        >>> calibration = calibrate(encoder.encode, read_texts("texts.txt"), "pairs.jsonl", match_score=4)
        >>> calibration.meaning, calibration.judged_pairs, calibration.matches
        ('probability', 120, 29)
    """
    from essent.tasks.base import unit_rows  # imported here: a static encoder reads calibrations without tasks

    distinct = list(dict.fromkeys(check_texts(texts)))
    if len(distinct) < FEWEST_TEXTS:
        raise InputError(
            f"Cannot calibrate on {len(distinct)} distinct texts. Give at least {FEWEST_TEXTS}, preferably "
            f"{MOST_TEXTS:,}."
        )
    sample = [distinct[row] for row in np.random.default_rng(seed).permutation(len(distinct))[:MOST_TEXTS]]
    if pairs is None and match_score is not None:
        raise InputError("match_score= requires scored pairs. Give them as pairs=.")
    task, matches = (None, np.zeros(0, bool)) if pairs is None else _labels(pairs, match_score)
    both = sample + ([] if task is None else task.texts())
    vectors = require_finite(np.asarray(encode(both), dtype=np.float64), both)
    units = unit_rows(vectors[: len(sample)])
    random = (units @ units.T)[np.triu_indices(len(sample), 1)]
    calibration = Calibration(share_curve(random), None, len(sample), len(random), prompt=prompt, seed=seed)
    if task is None:
        return calibration
    return replace(
        calibration,
        probability=probability_curve(task.evidence(vectors, range(len(sample), len(both))), matches),
        judged=task.name,
        judged_pairs=len(matches),
        matches=int(matches.sum()),
        match_score=match_score,
    )


def _labels(pairs: Any, match_score: float | None) -> tuple[DuplicateTask | PairTask, np.ndarray]:
    """Return the labelled pairs, and which of them are matches (P,)."""
    from essent.tasks.locate import load_labelled
    from essent.tasks.pairs import DuplicateTask, PairTask

    task = load_labelled(pairs)
    if not isinstance(task, (DuplicateTask, PairTask)):
        raise InputError(f"Cannot calibrate on {task.name} ({task.kind}). Give duplicates or scored pairs.")
    scores = np.array([pair[2] for pair in task.pairs])
    if isinstance(task, PairTask) != (match_score is not None):
        raise InputError(
            f"{task.name} has {task.kind} with scores from {scores.min():g} to {scores.max():g}. Set match_score "
            "(--match-score) to the lowest score of a match for scored pairs, and only for them."
        )
    return task, scores >= (1 if match_score is None else match_score)


def expected_calibration_error(probabilities: np.ndarray, matches: np.ndarray, bins: int = 15) -> float:
    """Compute the expected calibration error, in [0, 1]: the mean gap between probability and outcome over bins.

    A perfect calibration does not reach 0: with 15 bins of 1,700 pairs, chance alone gives about 0.03. Source: Naeini
    et al. 2015, with bins of equally many pairs (Nixon et al. 2019), so that no bin is empty.

    Example:
        >>> import numpy as np
        >>> from essent.tasks.calibration import expected_calibration_error
        >>> error = expected_calibration_error(np.array([0.1, 0.2, 0.8, 0.9]), np.array([0, 0, 1, 1]), bins=2)
        >>> round(error, 2)
        0.15
    """
    order = np.argsort(probabilities, kind="stable")
    gaps = np.asarray(probabilities, np.float64)[order] - np.asarray(matches, np.float64)[order]
    return float(sum(abs(part.sum()) for part in np.array_split(gaps, bins)) / len(gaps))


def share_curve(cosines: np.ndarray) -> Curve:
    """Fit the curve from a cosine to the share of random pairs (P,) with a lower cosine; equal cosines count half.

    The curve is the empirical distribution at 201 levels, denser near 0 and 1, with linear interpolation. Beyond the
    cosines of the random pairs, it is interpolated linearly to 0 at a cosine of -1 and to 1 at a cosine of 1.

    Raises:
        InputError: cosines that are all equal.
    """
    cosines = np.asarray(cosines, np.float64)
    if float(np.ptp(cosines)) <= SPREAD:
        raise InputError(
            f"All {len(cosines):,} random pairs of the texts have the cosine {float(cosines.mean()):.6f}, so "
            "similarities cannot be distinguished. Run `essent check` to diagnose the model."
        )
    largest_logit = np.log(len(cosines))
    levels = 1 / (1 + np.exp(-np.linspace(-largest_logit, largest_logit, KNOTS)))
    return _through(np.quantile(cosines, levels), levels)


@needs_torch("Calibrating on labelled pairs")
def probability_curve(cosines: np.ndarray, matches: np.ndarray) -> Curve:
    """Fit the probability that a pair is a match by logistic regression on cosines (P,) and labels (P,) bool.

    Platt's targets keep the slope finite if one cosine separates all pairs (Platt 1999, "Probabilistic outputs for
    support vector machines", section 2.2).

    Raises:
        InputError: too few pairs of either kind, or matches that are not the more similar pairs.
    """
    from sklearn.linear_model import LogisticRegression

    cosines, matches = np.asarray(cosines, np.float64), np.asarray(matches, bool)
    count, mismatches = int(matches.sum()), int((~matches).sum())
    if min(count, mismatches) < FEWEST_JUDGED:
        raise InputError(
            f"{count} of the {len(matches)} labelled pairs are matches; at least {FEWEST_JUDGED} matches and "
            f"{FEWEST_JUDGED} other pairs are needed."
        )
    middle, scale = float(cosines.mean()), float(cosines.std())
    if scale <= SPREAD:
        raise InputError(f"All labelled pairs have the cosine {middle:.6f}, so matches cannot be distinguished.")
    # Platt's targets, each as two weighted pairs
    sure = np.where(matches, (count + 1) / (count + 2), 1 / (mismatches + 2))
    inputs = np.tile((cosines - middle) / scale, 2)[:, None]  # (2P,1)
    model = LogisticRegression(C=np.inf)
    model.fit(inputs, np.repeat([1, 0], len(cosines)), sample_weight=np.concatenate([sure, 1 - sure]))
    slope = float(model.coef_[0, 0]) / scale
    if slope <= 0:
        raise InputError(
            f"Matches are less similar than other pairs: their mean cosine is {cosines[matches].mean():.3f}, "
            f"that of the other pairs {cosines[~matches].mean():.3f}. Check that the labels are not inverted."
        )
    at_zero = float(model.intercept_[0]) - slope * middle
    ends = np.clip([at_zero - slope * EDGE, at_zero + slope * EDGE], -FARTHEST, FARTHEST)
    logits = np.linspace(ends[0], ends[1], KNOTS)
    return _through((logits - at_zero) / slope, 1 / (1 + np.exp(-logits)))


def _through(cosines: np.ndarray, values: np.ndarray) -> Curve:
    """Return a curve through increasing points (K,), continued to 0 and 1; points of equal cosine are averaged."""
    knots, numbers = np.unique(np.clip(cosines, -1, 1), return_inverse=True)
    middles = np.bincount(numbers, values) / np.bincount(numbers)
    return Curve((-EDGE, *knots.tolist(), EDGE), (0.0, *np.maximum.accumulate(middles).tolist(), 1.0))


# -- in a model's folder ----------------------------------------------------------------------------------------------


def require_cosine(similarity: str) -> None:
    """Check that a model compares by cosine.

    Raises:
        InputError: another similarity function.
    """
    if similarity != "cosine":
        raise InputError(
            f"Calibration requires cosine similarity, but this model compares by {similarity}. Set "
            "similarity_fn_name = 'cosine' first."
        )


def calibrated_similarities(calibration: Calibration | None, similarities: np.ndarray, similarity: str) -> np.ndarray:
    """Apply a calibration to similarities of the function `similarity`; float64 of the same shape.

    Raises:
        NotFittedError: no calibration.
        InputError: the similarities are not cosines.
    """
    require_cosine(similarity)
    if calibration is None:
        raise NotFittedError(
            "This model is not calibrated. Call Encoder.calibrate(texts), or save it with essent save --calibrate FILE."
        )
    return calibration(similarities)


def write_calibration(calibration: Calibration, root: Path) -> None:
    """Write a calibration into a model's folder; its digest is written with those of the other files."""
    content = {"format": FORMAT, "essent": __version__, "similarity": "cosine", **asdict(calibration)}
    write_text(root / FILE, json.dumps(content, ensure_ascii=False, indent=1))


def read_calibration(root: Path) -> Calibration | None:
    """Read the calibration in a model's folder; None if it has none.

    Raises:
        DamagedError: another format, a file of a newer essent, or an invalid entry (the message contains its name).
    """
    path = root / FILE
    content = read_json(path)
    if content is None:
        return None
    if content.get("format") != FORMAT or content.get("similarity") != "cosine":
        raise DamagedError(
            f"{path} has format {content.get('format')!r} for {content.get('similarity')!r:.40}; essent {__version__} "
            f"reads format {FORMAT} for cosines. Upgrade essent, or calibrate the model again."
        )
    try:
        values = {name: content[name] for name in Calibration.__dataclass_fields__}
        for name in ("share", "probability"):
            if name == "share" or values[name] is not None:
                values[name] = Curve(*(tuple(values[name][part]) for part in ("cosines", "values")))
        return Calibration(**values)
    except (KeyError, TypeError, ValueError) as error:
        raise DamagedError(f"{path} is damaged: {type(error).__name__}: {error}") from None
