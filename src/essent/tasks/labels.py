"""Classification: a logistic regression on frozen vectors, judged on texts that it has not seen.

Source: SentEval's protocol (Conneau & Kiela 2018) as Stankevičius (2024, 3.5.3) uses it: ten-fold cross-validation
where a data set has no split, otherwise its own parts; pairs as [|u − v|, u · v]; scores between classes as soft
targets.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from essent.tasks.base import Task
from essent.tasks.examples import Example, check_examples
from essent.tasks.pairs import correlations
from essent.tasks.probes import STRENGTHS, cross_validated, held_out
from essent.tasks.result import Result, library_versions
from essent.types import DataError, InputError

SEED = 1111  # SentEval's


@dataclass(frozen=True)
class LabelTask(Task):
    """N labelled texts or pairs, all with a part (train, dev, test) or none.

    Attributes:
        scale: lowest and highest class of soft targets (1, 5): a score of 3.6 is class 3 by 0.4 and class 4 by 0.6;
            below the lowest it is the lowest. None: the targets are classes.
        folds: of the cross-validation, where there are no parts, and where there is no dev part to choose the strength.
        strengths: C of scikit-learn's LogisticRegression that are tried, see `essent.tasks.probes.scaled`.
        source: plain values for the result's provenance.
        notes: sentences that every result carries.
    """

    name: str
    examples: tuple[Example, ...]
    scale: tuple[int, int] | None = None
    folds: int = 10
    seed: int = SEED
    strengths: tuple[float, ...] = STRENGTHS
    source: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_examples(self.name, self.examples)
        if not isinstance(self.folds, int) or self.folds < 2:
            raise InputError(f"{self.name}: cross-validation needs at least 2 folds, not {self.folds!r}.")
        strengths = self.strengths
        if not strengths or min(strengths) <= 0 or list(strengths) != sorted(strengths):
            raise InputError(f"{self.name}: strengths are positive numbers in ascending order, not {strengths!r}.")
        if self.scale is not None:
            self._check_scores(*self.scale)
        counts = Counter(example.part for example in self.examples)
        if None not in counts and not (counts["train"] and counts["test"]):
            raise DataError(
                f"The task {self.name!r} has the parts {', '.join(map(str, counts))}; train and test are needed."
            )
        taught = [e.target for e in self.examples if e.part in {None, "train"}]
        if self.scale is None and len(set(taught)) < 2:
            raise DataError(f"The task {self.name!r} has {len(set(taught))} class to learn, at least 2 are needed.")
        if self.scale is None and len(set(taught)) > max(len(taught) // 2, 2):
            raise DataError(
                f"The task {self.name!r} has {len(set(taught))} classes in {len(taught)} examples; is its label an id?"
            )
        if len(taught) < self.folds and not counts["dev"]:
            raise DataError(f"The task {self.name!r} has {len(taught)} examples for {self.folds} folds; give folds=….")

    def _check_scores(self, low: int, high: int) -> None:
        if not low < high:
            raise InputError(f"{self.name}: a scale goes from the lowest class to the highest, not {self.scale!r}.")
        for number, example in enumerate(self.examples, start=1):
            if not isinstance(example.target, (int, float)) or not math.isfinite(example.target):
                raise DataError(f"{self.name}: the score of example {number} is {example.target!r}, not a number.")

    def __len__(self) -> int:
        return len(self.examples)

    def texts(self) -> list[str]:
        """All texts, of pairs all first ones, then all second ones; every part, duplicates kept."""
        return [example.texts[side] for side in range(len(self.examples[0].texts)) for example in self.examples]

    def digest(self) -> str:
        """SHA-256 of the examples."""
        content = json.dumps([self.examples, self.scale], ensure_ascii=False)
        return hashlib.sha256(content.encode()).hexdigest()

    @cached_property
    def classes(self) -> list[str]:
        """The classes that can be predicted: those of the training part, sorted; of soft targets the scale's."""
        if self.scale is not None:
            return [str(value) for value in range(self.scale[0], self.scale[1] + 1)]
        return sorted({str(e.target) for e in self.examples if e.part in {None, "train"}}, key=_natural)

    def targets(self) -> np.ndarray:
        """Probabilities of the classes (N,K), K = 1 for two classes; a class that is not learned has zeros."""
        found: np.ndarray
        if self.scale is not None:
            low, high = self.scale
            places = np.clip([float(e.target) for e in self.examples], low, high) - low  # (N,)
            found = np.maximum(1 - np.abs(places[:, None] - np.arange(high - low + 1)), 0.0)
            return found
        number = {name: place for place, name in enumerate(self.classes)}
        known = np.array([number.get(str(e.target), -1) for e in self.examples])
        hot = (known[:, None] == np.arange(len(number))).astype(np.float64)
        found = hot[:, 1:] if len(number) == 2 else hot
        return found

    def _measure(self, vectors: np.ndarray, rows: Sequence[int]) -> Result:
        features = self._features(vectors[list(rows)])  # (N,F)
        parts = np.array([example.part or "" for example in self.examples])
        if (parts == "").all():
            folds = self._folds(np.arange(len(self)))
            probabilities, strengths = cross_validated(features, self.targets(), folds, self.strengths)
            judged, protocol = np.ones(len(self), dtype=bool), f"{folds.max() + 1}-fold cross-validation"
        else:
            train, dev = parts == "train", (parts == "dev") & self._learned()
            folds = np.zeros(len(self), dtype=int)
            if not dev.any():
                folds[train] = self._folds(np.flatnonzero(train))
            probabilities, strength = held_out(features, self.targets(), train, dev, folds, self.strengths)
            judged, strengths = parts == "test", [strength]
            protocol = "train, dev and test" if dev.any() else f"train and test, {self.folds} folds to choose C"
        provenance = {
            **self.source,
            "protocol": f"logistic regression, {protocol}",
            "strengths": strengths,
            "classes": self.classes,
            "seed": self.seed,
            "sha256": self.digest(),
            "versions": library_versions(),
        }
        metrics, notes = self._scores(probabilities[judged], np.flatnonzero(judged))
        main = ("pearson", "all") if self.scale is not None else ("accuracy", "all")
        return Result(self.name, metrics, {}, int(judged.sum()), provenance, (*self.notes, *notes), main)

    def _learned(self) -> np.ndarray:
        """Which examples (N,) are of a class that can be predicted."""
        known = set(self.classes)
        return np.array([self.scale is not None or str(example.target) in known for example in self.examples])

    def _features(self, vectors: np.ndarray) -> np.ndarray:
        if len(self.examples[0].texts) == 1:
            return vectors
        first, second = np.split(vectors, 2)
        return np.hstack([np.abs(first - second), first * second])

    def _folds(self, members: np.ndarray) -> np.ndarray:
        """Number of each member's fold: every class spread evenly, shuffled by the seed."""
        shuffled = np.random.default_rng(self.seed).permutation(members)
        kinds = [self.examples[row].target for row in shuffled]
        order = np.argsort(np.unique(kinds, return_inverse=True)[1], kind="stable") if self.scale is None else None
        dealt = shuffled if order is None else shuffled[order]
        fold = {int(row): place % self.folds for place, row in enumerate(dealt)}
        return np.array([fold[int(row)] for row in members])

    def _scores(self, probabilities: np.ndarray, judged: np.ndarray) -> tuple[dict[str, dict[str, float]], list[str]]:
        """Scores of the probabilities (M,K) of the judged examples."""
        targets = [self.examples[row].target for row in judged]
        if self.scale is not None:
            gold = np.array(targets, dtype=np.float64)
            values = np.arange(self.scale[0], self.scale[1] + 1)
            scores, notes = correlations(probabilities @ values, gold, "all pairs")
            if below := int((gold < self.scale[0]).sum()):
                notes.append(f"{below} gold scores are below {self.scale[0]} and count as the class {self.scale[0]}.")
            nearest = np.clip(np.floor(gold + 0.5), *self.scale)
            right = values[probabilities.argmax(axis=1)] == nearest
            return {name: {"all": score} for name, score in scores.items()} | {"accuracy": share(right)}, notes
        from sklearn.metrics import f1_score

        chosen = [self.classes[place] for place in probabilities.argmax(axis=1)]
        right = np.array([found == str(target) for found, target in zip(chosen, targets, strict=True)])
        macro = f1_score([str(target) for target in targets], chosen, average="macro", zero_division=0)
        unknown = sorted({str(target) for target in targets} - set(self.classes))
        notes = [f"Not in the training part, so always wrong: {', '.join(unknown)}."] if unknown else []
        return {"accuracy": share(right), "f1_macro": {"all": 100 * float(macro)}}, notes


def share(right: Sequence[bool] | np.ndarray) -> dict[str, float]:
    """Per cent that is right, with Wilson's 95 % interval."""
    from scipy.stats import binomtest

    if not len(right):
        return dict.fromkeys(("all", "low", "high"), math.nan)
    interval = binomtest(int(np.sum(right)), len(right)).proportion_ci(method="wilson")
    return {"all": 100 * float(np.mean(right)), "low": 100 * float(interval.low), "high": 100 * float(interval.high)}


def _natural(name: str) -> tuple[int, float, str]:
    """Numbers by value, before words."""
    return (0, float(name), name) if name.lstrip("-").isdecimal() else (1, 0.0, name)
