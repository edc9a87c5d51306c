"""How probable it is that a synonym or an antonym is good in its place, by a logistic regression.

The coefficients are data/coefficients.json; `essent lab minimal-pairs fit` makes such a file from judgements, whose
digest it has.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from essent._core.atomic import write_json
from essent.errors import DataError
from essent.lab.minimal_pairs.edits import DATA

UNSEEN, LEAST = -12.0, -14.0  # log-probability of a word that the model has no token for, and of the improbable
SYNONYM_WEIGHT = 3.0  # of the synonym's log-probability against the antonym's: it is the harder of the two
RELATIONS = ("synonym", "antonym")
FOLDS = 10


class Evidence(NamedTuple):
    """What is known of a replacement in its place.

    Attributes:
        similarity: of its state and the replaced word's, less what any two words have in common.
        prior: log share of the sense, less the penalties of WordNet's relation to it.
        probability: its log-probability in the place; -inf without a token.
        prefix: whether it is the word with or without a prefix: unhappy.
    """

    similarity: float
    prior: float
    probability: float
    prefix: bool = False

    def terms(self) -> dict[str, float]:
        """The terms of the regression by name."""
        likely = max(self.probability, LEAST) if math.isfinite(self.probability) else UNSEEN
        return {**self._asdict(), "probability": likely, "prefix": float(self.prefix)}


@dataclass(frozen=True)
class Confidence:
    """Coefficients for synonyms and antonyms by name of the term, and what they were fitted on."""

    coefficients: Mapping[str, Mapping[str, float]]
    fitted_on: Mapping[str, Any]

    @staticmethod
    @cache
    def load(path: Path = DATA / "coefficients.json") -> Confidence:
        """From a file of `essent lab minimal-pairs fit`.

        Raises:
            DataError: not such a file.
        """
        try:
            found = json.loads(path.read_text("utf-8"))
            return Confidence({relation: found[relation] for relation in RELATIONS}, found["fitted_on"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DataError(f"{path} has no coefficients of `essent lab minimal-pairs fit`: {error!r}.") from error

    def save(self, path: str | Path) -> None:
        """Write a file that `load` reads."""
        write_json(path, {"fitted_on": dict(self.fitted_on), **self.coefficients})

    def chance(self, relation: str, evidence: Evidence) -> float:
        """The probability that the replacement is a good synonym or antonym."""
        weights, terms = self.coefficients[relation], {"constant": 1.0, **evidence.terms()}
        return 1 / (1 + math.exp(-sum(weight * terms[name] for name, weight in weights.items())))


def both(synonym: float, antonym: float) -> float:
    """One number for the probabilities of a synonym and an antonym, by which originals are ordered."""
    return SYNONYM_WEIGHT * math.log(synonym) + math.log(antonym)


def fit(judged: Sequence[tuple[str, Evidence, bool]], about: Mapping[str, Any]) -> Confidence:
    """Logistic regressions of judgements, ridge 1, with the mean area under the curve of 10 folds that are held out.

    Args:
        judged: "synonym" or "antonym", what was known of it, and whether it is good.
        about: what else to say of them: the model.

    Raises:
        DataError: fewer than `FOLDS` good or bad judgements of a relation.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import StratifiedKFold, cross_val_score

    coefficients, areas, counts = {}, {}, {}
    for relation in RELATIONS:
        rows = [(evidence, good) for of, evidence, good in judged if of == relation]
        good, x = [good for _, good in rows], np.array([list(one.terms().values()) for one, _ in rows])  # (N,F)
        if min(sum(good), len(good) - sum(good)) < FOLDS:
            raise DataError(
                f"{len(rows)} judged {relation}s, {sum(good)} of them good, are too few to fit: {FOLDS} good and as "
                "many bad ones are needed."
            )
        folds, model = StratifiedKFold(FOLDS, shuffle=True, random_state=0), LogisticRegression()
        areas[relation] = round(float(cross_val_score(model, x, good, cv=folds, scoring="roc_auc").mean()), 3)
        counts[relation], weights = len(rows), model.fit(x, good)
        values = [*weights.intercept_.tolist(), *weights.coef_[0].tolist()]
        coefficients[relation] = dict(zip(("constant", *Evidence._fields), (round(v, 4) for v in values), strict=True))
    return Confidence(coefficients, {**about, "judgements": counts, "held-out area": areas})
