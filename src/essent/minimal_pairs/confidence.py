"""How sure it is that a synonym or an antonym is good in its place: log-odds by a logistic regression.

The coefficients are data/coefficients.json; `essent heros fit` makes such a file from judgements, whose digest it has.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from essent.atomic import write_json
from essent.minimal_pairs.edits import DATA
from essent.types import DataError

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
        return {"constant": 1.0, **self._asdict(), "probability": likely, "prefix": float(self.prefix)}


class Judged(NamedTuple):
    """A judgement with the evidence: the relation, whether the pair is good."""

    relation: str
    good: bool
    evidence: Evidence


@dataclass(frozen=True)
class Confidence:
    """Coefficients for synonyms and antonyms by name of the term, and what they were fitted on."""

    coefficients: Mapping[str, Mapping[str, float]]
    fitted_on: Mapping[str, Any]

    @staticmethod
    @cache
    def load(path: Path = DATA / "coefficients.json") -> Confidence:
        """From a file of `essent heros fit`.

        Raises:
            DataError: not such a file.
        """
        try:
            found = json.loads(path.read_text("utf-8"))
            return Confidence({relation: found[relation] for relation in RELATIONS}, found["fitted_on"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DataError(f"{path} has no coefficients of `essent heros fit`: {error!r}.") from error

    def save(self, path: str | Path) -> None:
        """Write a file that `load` reads."""
        write_json(path, {"fitted_on": dict(self.fitted_on), **self.coefficients})

    def log_odds(self, relation: str, evidence: Evidence) -> float:
        """That the replacement is a good synonym or antonym."""
        weights = self.coefficients[relation]
        return sum(weights.get(name, 0.0) * value for name, value in evidence.terms().items())


def both(synonym: float, antonym: float) -> float:
    """One number for the log-odds of a synonym and an antonym: how probable it is that both are good."""
    return -SYNONYM_WEIGHT * math.log1p(math.exp(-synonym)) - math.log1p(math.exp(-antonym))


def fit(judged: Sequence[Judged], about: Mapping[str, Any], source: bytes) -> Confidence:
    """Logistic regressions of judgements, ridge 10 on standardised terms, with their area under the curve in 10 folds.

    Args:
        about: what else to say of them: the model.
        source: the judgements as bytes, for their digest.

    Raises:
        DataError: fewer than `FOLDS` good or bad judgements of a relation.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import roc_auc_score
    from sklearn.model_selection import StratifiedKFold, cross_val_predict
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    coefficients, areas, counts = {}, {}, {}
    for relation in RELATIONS:
        rows = [one for one in judged if one.relation == relation]
        good = np.array([one.good for one in rows], bool)
        if min(good.sum(), (~good).sum()) < FOLDS:
            raise DataError(
                f"{len(rows)} judged {relation}s, {good.sum()} of them good, are too few to fit: {FOLDS} good and as "
                "many bad ones are needed."
            )
        terms = [one.evidence.terms() for one in rows]
        x = np.array([list(one.values())[1:] for one in terms])  # (N,F) without the constant
        model = make_pipeline(StandardScaler(), LogisticRegression(C=0.1))
        folds = StratifiedKFold(FOLDS, shuffle=True, random_state=0)
        held_out = cross_val_predict(model, x, good, cv=folds, method="predict_proba")[:, 1]
        scaler, regression = (step for _, step in model.fit(x, good).steps)
        slopes = regression.coef_[0] / scaler.scale_
        values = [float(regression.intercept_[0] - slopes @ scaler.mean_), *slopes.tolist()]
        coefficients[relation] = dict(zip(terms[0], (round(value, 4) for value in values), strict=True))
        areas[relation], counts[relation] = round(float(roc_auc_score(good, held_out)), 3), len(rows)
    digest = hashlib.sha256(source).hexdigest()
    return Confidence(coefficients, {**about, "judgements": counts, "sha256": digest, "held-out area": areas})
