"""What a calibration knows, and its file: essent/calibration.json in the folder of a model."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from essent._core.atomic import write_text
from essent._core.folders.names import STATE_FOLDER
from essent._core.folders.reading import read_json
from essent.errors import DamagedError, InputError, NotFittedError
from essent.tasks.calibration.curve import EDGE, Curve
from essent.version import __version__

FILE = f"{STATE_FOLDER}/calibration.json"
FORMAT = 1
MOST_KNOTS = 10_000
COUNTS = ("texts", "random_pairs", "judged_pairs", "matches", "seed")


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


def calibrated_similarities(calibration: Calibration | None, found: np.ndarray, similarity: str) -> np.ndarray:
    """What a calibration makes of similarities that were `found` by the function `similarity`: float64, the same shape.

    Raises:
        NotFittedError: there is no calibration.
        InputError: the similarities are not cosines.
    """
    require_cosine(similarity)
    if calibration is None:
        raise NotFittedError(
            "This model is not calibrated: call Encoder.calibrate(texts), or save it with essent save --calibrate FILE."
        )
    return calibration(found)


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
    counts = {name: content.get(name) for name in COUNTS}
    for name, count in counts.items():
        _require(path, name, type(count) is int and count >= 0, "a whole number", count)
    words = {name: content.get(name) for name in ("judged", "prompt")}
    for name, word in words.items():
        _require(path, name, isinstance(word, str), "a string", word)
    score = content.get("match_score")
    _require(path, "match_score", score is None or _is_number(score), "a number or null", score)
    probability = content.get("probability")
    return Calibration(
        share=_curve(path, "share", content.get("share")),
        probability=None if probability is None else _curve(path, "probability", probability),
        match_score=score,
        **counts,
        **words,
    )


def _curve(path: Path, name: str, content: Any) -> Curve:
    """A curve as its file has it, which must rise."""
    _require(path, name, isinstance(content, dict), "an object with cosines and values", content)
    knots = [content.get("cosines"), content.get("values")]
    for part, found in zip(("cosines", "values"), knots, strict=True):
        fine = isinstance(found, list) and 2 <= len(found) <= MOST_KNOTS and all(map(_is_number, found))
        _require(path, f"{name}.{part}", fine, f"2 to {MOST_KNOTS:,} finite numbers", found)
    x, y = (np.asarray(found, np.float64) for found in knots)
    rises = len(x) == len(y) and bool((np.diff(x) > 0).all()) and bool((np.diff(y) >= 0).all())
    _require(path, name, rises, "cosines that increase, and as many values that never decrease", content)
    inside = x[0] == -EDGE and x[-1] == EDGE and y[0] >= 0 and y[-1] <= 1
    _require(path, name, inside, f"a curve over all cosines, from {-EDGE} to {EDGE}, in [0, 1]", content)
    return Curve(tuple(x.tolist()), tuple(y.tolist()))


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _require(path: Path, name: str, fine: bool, expected: str, found: Any) -> None:
    if not fine:
        raise DamagedError(f"{path} is damaged: {name!r} must be {expected}, and is {found!r:.60}.")
