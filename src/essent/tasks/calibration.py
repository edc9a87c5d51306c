"""Calibrated similarity: what a cosine means, as a share of random pairs or as the probability of a match.

No rank changes: both rise strictly with the cosine. A model's folder keeps its calibration in essent/calibration.json.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from essent._core.atomic import write_text
from essent._core.folders.names import STATE_FOLDER
from essent._core.folders.reading import read_json
from essent._core.lazy import needs_torch
from essent._core.texts import check_texts, require_finite
from essent._core.types import TextsLike
from essent.errors import DamagedError, InputError, NotFittedError
from essent.version import __version__

if TYPE_CHECKING:
    from essent.tasks.pairs import DuplicateTask, PairTask

__all__ = ["Calibration", "Curve", "calibrate", "expected_calibration_error"]

FILE = f"{STATE_FOLDER}/calibration.json"
FORMAT = 1
MOST_KNOTS = 10_000  # of a curve in a file
COUNTS, WORDS = ("texts", "random_pairs", "judged_pairs", "matches", "seed"), ("judged", "prompt")
EDGE = 1 + 1e-5  # cosines of float32 vectors leave [-1, 1] by rounding, though not as far
LINEAR = 1e-6  # the cosine's own part in every value: cosines 1e-9 apart stay apart where a curve is flat
KNOTS = 201
MOST_TEXTS = 1000  # make 499,500 pairs; five draws of as many texts lie 0.006 to 0.05 apart (docs/similarity.md)
FEWEST_TEXTS = 20  # make 190 pairs
FEWEST_JUDGED = 10  # pairs of either kind: a curve through fewer says what single pairs are
SPREAD = 1e-6  # of cosines: where they differ by less, only rounding differs
FARTHEST = 30.0  # the logit from which on a curve is drawn straight to its end: 1e-13 is left
BINS = 15


@dataclass(frozen=True)
class Curve:
    """A strictly increasing function of the cosine: straight lines between knots, and a millionth of the cosine itself.

    Cosines closer than 1e-9, which vectors in float32 cannot tell apart, may become equal; no two change places.

    Attributes:
        cosines: of the knots (K,), increasing, from -EDGE to EDGE.
        values: at the knots (K,), in [0, 1], never decreasing.
    """

    cosines: tuple[float, ...]
    values: tuple[float, ...]

    def __call__(self, cosines: Any) -> np.ndarray:
        """The values (float64, of the same shape), in (0, 1)."""
        at = np.clip(np.asarray(cosines, dtype=np.float64), -EDGE, EDGE)
        x, y = np.asarray(self.cosines), np.asarray(self.values)
        knot = np.clip(np.searchsorted(x, at, side="right") - 1, 0, len(x) - 2)
        slope = (y[knot + 1] - y[knot]) / (x[knot + 1] - x[knot])
        # the product may pass the next knot's value by rounding, and would then stand above what follows it
        line = np.minimum(y[knot] + slope * (at - x[knot]), y[knot + 1])
        return np.asarray((1 - LINEAR) * line + LINEAR * (at / EDGE + 1) / 2)


@dataclass(frozen=True)
class Calibration:
    """What cosines of one encoder mean on texts like those that it was calibrated on.

    Attributes:
        share: from a cosine to the share of random pairs of these texts that are less similar.
        probability: from a cosine to the probability that a pair is a match, on pairs of which as many are matches as
            among the judged ones; None without judged pairs.
        texts, random_pairs: how many texts were drawn, and how many pairs they make.
        judged, judged_pairs, matches: name of the judgements, how many pairs, how many of them matches.
        match_score: the score from which on a scored pair counts as a match; None for duplicates.
        prompt: what stood before every text.
        seed: of the draw.
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
        """Probabilities of a match where pairs were judged, otherwise shares of random pairs: float64, same shape."""
        return (self.probability or self.share)(cosines)

    @property
    def meaning(self) -> str:
        """What the numbers are: "probability" or "share"."""
        return "share" if self.probability is None else "probability"

    def __str__(self) -> str:
        where = f"{self.random_pairs:,} random pairs of {self.texts:,} texts"
        if self.probability is None:
            return f"share of {where} that are less similar"
        return (
            f"probability of a match, from {self.judged_pairs:,} judged pairs of {self.judged} ({self.matches:,} "
            f"matches); beside it the share of {where} that are less similar"
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
    from essent.tasks.base import unit_rows  # late: who loads a static encoder reads a calibration, and has no tasks

    distinct = list(dict.fromkeys(check_texts(texts)))
    if len(distinct) < FEWEST_TEXTS:
        raise InputError(
            f"{len(distinct)} different texts are too few to calibrate on; give at least {FEWEST_TEXTS}, better "
            f"{MOST_TEXTS:,}."
        )
    sample = [distinct[row] for row in np.random.default_rng(seed).permutation(len(distinct))[:MOST_TEXTS]]
    if pairs is None and match_score is not None:
        raise InputError("match_score belongs to scored pairs: give them as pairs=.")
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
    """The judged pairs, and which of them are matches (P,)."""
    from essent.tasks.locate import load_labelled
    from essent.tasks.pairs import DuplicateTask, PairTask

    task = load_labelled(pairs)
    if not isinstance(task, (DuplicateTask, PairTask)):
        raise InputError(f"{task.name} holds {task.kind}; a calibration takes duplicates or scored pairs.")
    scores = np.array([pair[2] for pair in task.pairs])
    if isinstance(task, DuplicateTask) and match_score is not None:
        raise InputError(f"{task.name} says of each pair whether it is one of duplicates: leave match_score out.")
    if isinstance(task, PairTask) and match_score is None:
        raise InputError(
            f"{task.name} has scores from {scores.min():g} to {scores.max():g}: say with match_score (--match-score) "
            "from which score on a pair counts as a match."
        )
    return task, scores >= (1 if match_score is None else match_score)


def expected_calibration_error(probabilities: np.ndarray, matches: np.ndarray, bins: int = BINS) -> float:
    """Mean distance, weighted by pairs, between what is said and what happens in bins of equally many pairs: [0, 1].

    Not 0 for a perfect calibration: in 15 bins of 1,700 pairs chance alone makes about 0.03. Source: Naeini et al.
    2015, with bins of equal size (Nixon et al. 2019), which leave none empty.
    """
    order = np.argsort(probabilities, kind="stable")
    gaps = np.asarray(probabilities, np.float64)[order] - np.asarray(matches, np.float64)[order]
    return float(sum(abs(part.sum()) for part in np.array_split(gaps, bins)) / len(gaps))


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
    levels = 1 / (1 + np.exp(-np.linspace(-farthest, farthest, KNOTS)))
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
    count, mismatches = int(matches.sum()), int((~matches).sum())
    if min(count, mismatches) < FEWEST_JUDGED:
        raise InputError(
            f"{count} of the {len(matches)} judged pairs are matches; at least {FEWEST_JUDGED} matches and "
            f"{FEWEST_JUDGED} other pairs are needed."
        )
    middle, scale = float(cosines.mean()), float(cosines.std())
    if scale <= SPREAD:
        raise InputError(f"All judged pairs have the cosine {middle:.6f}: it cannot tell which are matches.")
    # Platt's targets, each as two weighted pairs
    sure = np.where(matches, (count + 1) / (count + 2), 1 / (mismatches + 2))
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
    return _through((logits - at_zero) / slope, 1 / (1 + np.exp(-logits)))


def _through(cosines: np.ndarray, values: np.ndarray) -> Curve:
    """A curve through increasing points (K,), and from there to 0 and 1; points of one cosine become their middle."""
    knots, numbers = np.unique(np.clip(cosines, -1, 1), return_inverse=True)
    middles = np.bincount(numbers, values) / np.bincount(numbers)
    return Curve((-EDGE, *knots.tolist(), EDGE), (0.0, *np.maximum.accumulate(middles).tolist(), 1.0))


# -- in a model's folder ----------------------------------------------------------------------------------------------


def require_cosine(similarity: str) -> None:
    """Refuse a similarity whose numbers are not cosines.

    Raises:
        InputError: names it.
    """
    if similarity != "cosine":
        raise InputError(
            f"A calibration is a map of cosines, and this model compares by {similarity}: set similarity_fn_name = "
            "'cosine' first."
        )


def calibrated_similarities(calibration: Calibration | None, similarities: np.ndarray, similarity: str) -> np.ndarray:
    """What a calibration makes of similarities by the function `similarity`: float64, the same shape.

    Raises:
        NotFittedError: there is no calibration.
        InputError: the similarities are not cosines.
    """
    require_cosine(similarity)
    if calibration is None:
        raise NotFittedError(
            "This model is not calibrated: call Encoder.calibrate(texts), or save it with essent save --calibrate FILE."
        )
    return calibration(similarities)


def write_calibration(calibration: Calibration, root: Path) -> None:
    """Write the file into a model's folder; its digest is written with those of the other files."""
    content = {"format": FORMAT, "essent": __version__, "similarity": "cosine", **asdict(calibration)}
    write_text(root / FILE, json.dumps(content, ensure_ascii=False, indent=1))


def read_calibration(root: Path) -> Calibration | None:
    """The calibration in a model's folder; None where there is none.

    Raises:
        DamagedError: not such a file, or one of a newer essent; names the entry.
    """
    path = root / FILE
    content = read_json(path)
    if content is None:
        return None
    if content.get("format") != FORMAT or content.get("similarity") != "cosine":
        raise DamagedError(
            f"{path} has format {content.get('format')!r} for {content.get('similarity')!r:.40}; this essent "
            f"{__version__} reads format {FORMAT} for cosines. Upgrade essent, or calibrate the model again."
        )
    score, probability = content.get("match_score"), content.get("probability")
    for name in COUNTS:
        count = content.get(name)
        _require(path, name, type(count) is int and count >= 0, "a whole number", count)
    for name in WORDS:
        _require(path, name, isinstance(content.get(name), str), "a string", content.get(name))
    _require(path, "match_score", score is None or _are_numbers([score]), "a number or null", score)
    return Calibration(
        share=_curve(path, "share", content.get("share")),
        probability=None if probability is None else _curve(path, "probability", probability),
        match_score=score,
        **{name: content[name] for name in (*COUNTS, *WORDS)},
    )


def _curve(path: Path, name: str, content: Any) -> Curve:
    """A curve as its file has it, which must rise over all cosines."""
    knots_by_part = content if isinstance(content, dict) else {}
    x: Any = knots_by_part.get("cosines")
    y: Any = knots_by_part.get("values")
    fine = all(isinstance(knots, list) and 2 <= len(knots) <= MOST_KNOTS and _are_numbers(knots) for knots in (x, y))
    rises = fine and len(x) == len(y) and bool((np.diff(x) > 0).all() and (np.diff(y) >= 0).all())
    fine = rises and x[0] == -EDGE and x[-1] == EDGE and y[0] >= 0 and y[-1] <= 1
    expected = f"an object with cosines that increase from {-EDGE} to {EDGE}, and as many values that never decrease, "
    _require(path, name, fine, f"{expected}in [0, 1], 2 to {MOST_KNOTS:,} finite numbers each", content)
    return Curve(tuple(map(float, x)), tuple(map(float, y)))


def _are_numbers(values: list[Any]) -> bool:
    return all(type(value) in (int, float) and math.isfinite(value) for value in values)


def _require(path: Path, name: str, fine: bool, expected: str, entry: Any) -> None:
    if not fine:
        raise DamagedError(f"{path} is damaged: {name!r} must be {expected}, and is {entry!r:.60}.")
