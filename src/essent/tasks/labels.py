"""Classification: a logistic regression on frozen vectors, scored on held-out texts.

Source: SentEval's protocol (Conneau & Kiela 2018) as in Stankevičius (2024, 3.5.3): the parts of the data set, or
ten-fold cross-validation without parts; pairs as [|u − v|, u · v]; scores between classes as soft targets.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import compress
from typing import Any

import numpy as np

from essent.errors import DataError, InputError
from essent.tasks.base import LabeledTask, Statistic
from essent.tasks.comparison import with_interval
from essent.tasks.examples import Example, check_classes, check_examples
from essent.tasks.pairs import correlations, weighted_correlation
from essent.tasks.probes import STRENGTHS, cross_validated, few_label_sets, few_labels, held_out, spread_folds
from essent.tasks.result import Result

Scores = tuple[dict[str, dict[str, float]], list[str]]  # metrics and notes
SEED = 1111  # SentEval's
CHOICE_FOLDS = 5
MOST_TARGETS = 3e8  # examples × classes: 2.4 GB of targets, and logits several times


@dataclass(frozen=True)
class LabelTask(LabeledTask):
    """A classification task: N labelled texts or pairs, all with a part (train, dev, test) or all without.

    Attributes:
        scale: lowest and highest class of soft targets (1, 5): a score of 3.6 is class 3 with weight 0.4 and class 4
            with 0.6; lower scores count as the lowest class. None: the targets are classes.
        folds: of the cross-validation, used without parts, and without a dev part to choose the strength.
        nested: whether cross-validation chooses the strength within each fold's training part, as SentEval does; False
            chooses it on the folds themselves: many times cheaper, slightly optimistic, equally for every recipe.
        strengths: values of C of scikit-learn's LogisticRegression, ascending; see `essent.tasks.probes.scaled`.
        chosen_on: whether the task is already restricted by `for_choice`.
        shots: also train on this many examples per class (8, 16, 64), ten draws each: "accuracy@8" and so on.

    Example:
        >>> from essent import Encoder
        >>> from essent.tasks import Example, LabelTask
        >>> texts = {"Cats purr.": "pets", "A kitten sleeps.": "pets", "Stocks fell.": "banks", "A bank fell.": "banks"}
        >>> examples = tuple(Example((text,), label) for text, label in texts.items())
        >>> LabelTask("mine", examples, folds=2).run(Encoder("sentence-transformers/all-MiniLM-L6-v2")).n
        4
    """

    kind = "classification"
    unit = "texts"
    examples_in = "examples"
    examples: tuple[Example, ...]
    scale: tuple[int, int] | None = None
    folds: int = 10
    strengths: tuple[float, ...] = STRENGTHS
    nested: bool = True
    shots: tuple[int, ...] = ()
    chosen_on: bool = False

    def __post_init__(self) -> None:
        check_examples(self.name, self.examples)
        if not isinstance(self.folds, int) or self.folds < 2:
            raise InputError(f"{self.name}: folds={self.folds!r}: cross-validation needs at least 2 folds.")
        if self.shots and (self.scale is not None or any(type(shot) is not int or shot < 1 for shot in self.shots)):
            raise InputError(f"{self.name}: shots={self.shots!r}: must be whole numbers of labels per class.")
        taught = [str(example.target) for example in compress(self.examples, self._is_learned)]
        if not taught:
            raise DataError(f"The task {self.name!r} has only the parts {', '.join(set(self._parts))}. Add train.")
        if len(taught) < self.folds and "dev" not in self._parts:
            raise DataError(
                f"The task {self.name!r} has {len(taught)} examples for {self.folds} folds. Set folds= to fewer."
            )
        if self.scale is not None:
            self._check_scores(*self.scale)
            return
        check_classes(self.name, taught)
        if len(self) * len(set(taught)) > MOST_TARGETS:
            raise DataError(
                f"The task {self.name!r} has {len(set(taught)):,} classes and {len(self):,} examples, too many for a "
                "classifier in memory. Use such labels as pairs, or as queries with their positives."
            )

    def _check_scores(self, low: int, high: int) -> None:
        if not low < high:
            raise InputError(f"{self.name}: scale={self.scale!r}: must be the lowest and the highest class.")
        for number, example in enumerate(self.examples, start=1):
            if not isinstance(example.target, (int, float)) or not math.isfinite(example.target):
                raise DataError(f"{self.name}: the score of example {number} is {example.target!r}, not a number.")

    def texts(self) -> list[str]:
        """Return the texts of all parts, with duplicates; of pairs all first texts, then all second texts."""
        return [text for side in zip(*self.read_items(), strict=True) for text in side]

    def _content(self) -> Any:
        return [self.examples, self.scale]

    @cached_property
    def _parts(self) -> np.ndarray:
        """The part of each example (N,), "" without parts."""
        return np.array([example.part or "" for example in self.examples])

    @cached_property
    def _is_learned(self) -> np.ndarray:
        """Which examples (N,) are trained on."""
        return np.isin(self._parts, ("", "train"))

    @cached_property
    def is_scored(self) -> np.ndarray:
        """Which examples (N,) are scored: the test part, or all without parts."""
        return np.isin(self._parts, ("", "test"))

    @cached_property
    def classes(self) -> list[str]:
        """The classes that can be predicted: those of the training part, sorted, or those of the scale."""
        if self.scale is not None:
            return [str(value) for value in self._scale]
        return sorted({str(example.target) for example in compress(self.examples, self._is_learned)})

    @property
    def _scale(self) -> np.ndarray:
        low, high = self.scale or (0, 0)
        return np.arange(low, high + 1)

    @cached_property
    def _known(self) -> list[str]:
        """All classes: `classes`, then those that occur outside the training part only."""
        return [*self.classes, *sorted({str(example.target) for example in self.examples} - set(self.classes))]

    @cached_property
    def _labels(self) -> np.ndarray:
        """The examples' classes (N,) as indices of `_known`, or their scores."""
        if self.scale is not None:
            return np.array([example.target for example in self.examples], dtype=np.float64)
        number = {name: position for position, name in enumerate(self._known)}
        return np.array([number[str(example.target)] for example in self.examples], dtype=np.int64)

    @property
    def _gold(self) -> np.ndarray:
        """The labels of the scored examples (U,)."""
        gold: np.ndarray = self._labels[self.is_scored]
        return gold

    @cached_property
    def targets(self) -> np.ndarray:
        """Target probabilities of the classes (N,K) float32, K = 1 for two classes."""
        if self.scale is not None:  # 3.6 is class 3 by 0.4 and class 4 by 0.6
            scores = np.clip(self._labels, *self.scale)  # (N,)
            shares = np.maximum(1 - np.abs(scores - self._scale[:, None]), 0.0)  # (K,N) in memory
        else:
            count = len(self.classes)
            shares = self._labels == np.arange(count)[count == 2 :, None]
        return np.asarray(shares.astype(np.float32).T)

    @property
    def score_names(self) -> tuple[str, ...]:
        """Accuracy, macro-F1 and accuracy with few labels; Pearson's correlation for soft targets."""
        if self.scale is not None:
            return ("pearson",)
        return ("accuracy", "f1_macro", *(f"accuracy@{shot}" for shot in self.shots))

    def scored_by(self, score: str) -> LabelTask:
        """Return the task with few-label accuracy added if `score` is e.g. "accuracy@8"."""
        name, _, shot = score.partition("@")
        if name != "accuracy" or not shot.isdecimal() or self.scale is not None or int(shot) in self.shots:
            return self
        note = f"{self.name}: " * self.chosen_on + (  # results name their task themselves
            f"accuracy@{shot} is the mean over ten training sets of {shot} labels per class; `essent evaluate --shots "
            f"{shot}` reports it next to the accuracy with all labels."
        )
        return replace(self, shots=(*self.shots, int(shot)), notes=(*self.notes, note))

    @property
    def units(self) -> int:
        """U, the number of scored examples."""
        return int(self.is_scored.sum())

    @property
    def evidence_size(self) -> int:
        """The prediction for each scored example, and the share of correct few-label predictions per `shots`."""
        return self.units * (1 + len(self.shots))

    def working_bytes(self, dimensions: int) -> int:
        """Estimate the bytes of float32 rows in two bases, and of the regressions' values per example."""
        return 24 * len(self.texts()) * dimensions + 24 * self.targets.size * self.folds

    def items(self) -> list[tuple[str, ...]]:
        """Return the texts of the scored examples."""
        return [example.texts for example in compress(self.examples, self.is_scored)]

    def read_items(self) -> list[tuple[str, ...]]:
        """Return the texts of all examples whose labels are read, training examples included."""
        return [example.texts for example in self.examples]

    def strata(self) -> np.ndarray | None:
        """Return the class of each scored example; None for soft targets."""
        return None if self.scale is not None else self._gold

    def without(self, excluded: np.ndarray) -> LabelTask:
        """Return the task without the `excluded` scored examples (U,) bool."""
        retained = np.ones(len(self), bool)
        retained[self.is_scored] = ~excluded
        return replace(self, examples=tuple(compress(self.examples, retained)))

    def for_choice(self) -> LabelTask:
        """Return the task without its test part: scored on the dev part, or by cross-validation on the training part.

        Cross-validation has five folds here and is not nested, because a search runs it for every recipe.
        """
        if self.chosen_on:
            return self
        chosen = replace(self, folds=min(self.folds, CHOICE_FOLDS), nested=False)
        note = (
            f"scores with all labels are by {chosen.protocol}. `essent evaluate` scores by {self.protocol}; "
            "for the same recipe the two may differ, on small data by several points."
        )
        if "train" in self._parts:
            names: dict[str | None, str | None] = {"train": "train", "dev": "test"}
            if "dev" not in self._parts:
                names = {"train": None}
            examples = tuple(e._replace(part=names[e.part]) for e in self.examples if e.part in names)
            chosen = replace(self if "dev" in self._parts else chosen, examples=examples)
            where = "dev part" if "dev" in self._parts else f"train part, by {chosen.protocol}"
            note = f"recipes are chosen and scored on the {where}; `essent evaluate` scores the test part."
        return replace(chosen, chosen_on=True, notes=(*self.notes, f"{self.name}: {note}"))

    def evidence(self, vectors: np.ndarray, rows: Sequence[int]) -> np.ndarray:
        """Return the class index predicted for each scored example (the expected score of soft targets)."""
        features = self._features(vectors[list(rows)])  # (N,F)
        return self._evidence(features, self._probabilities(features)[0])

    def _evidence(self, features: np.ndarray, probabilities: np.ndarray) -> np.ndarray:
        predicted = probabilities.argmax(axis=1) if self.scale is None else probabilities @ self._scale  # (N,)
        return np.concatenate([predicted[self.is_scored], *(self._few(features, shot) for shot in self.shots)])

    def statistic(self, score: str) -> Statistic | None:
        """Return macro-F1 or Pearson's correlation ×100 in draws of the scored examples; None for accuracies."""
        gold = self._gold
        if score == "f1_macro":
            return lambda predicted, counts: f1_macro(gold, predicted, counts, len(self._known))
        if score == "pearson":
            return lambda expected, counts: 100 * weighted_correlation(expected[None], gold[None], counts)
        return None

    def values(self, evidence: np.ndarray, score: str) -> np.ndarray:
        """Return for each example (R,U) whether (or how often) it is correct, its predicted class or expected score."""
        number = 1 + self.shots.index(int(score.partition("@")[2])) if "@" in score else 0
        values = evidence[:, number * self.units : (number + 1) * self.units]
        if score == "accuracy":
            values = (values == self._gold).astype(np.float64)
        return values.astype(np.int64) if score == "f1_macro" else values

    def _measure(self, vectors: np.ndarray, rows: Sequence[int]) -> Result:
        if not self.units:
            raise DataError(f"The task {self.name!r} has no test part to score. Add one; search does not need it.")
        features = self._features(vectors[list(rows)])  # (N,F)
        probabilities, strengths = self._probabilities(features)
        evidence = self._evidence(features, probabilities)
        score = self._soft_scores if self.scale is not None else self._class_scores
        metrics, notes = score(probabilities[self.is_scored], evidence)
        protocol: dict[str, Any] = {
            "protocol": self.protocol,
            "strengths": strengths,
            "classes": self.classes,
            "seed": SEED,
        }
        return self._scored(metrics, evidence, notes, **protocol)

    def _class_scores(self, probabilities: np.ndarray, evidence: np.ndarray) -> Scores:
        metrics = {"accuracy": share(evidence[: self.units] == self._gold)}
        metrics["f1_macro"] = {"all": float(self.scores(evidence[None], "f1_macro")[0])}
        metrics |= {name: with_interval(self, evidence, name) for name in self.score_names if "@" in name}
        unknown = [self._known[number] for number in np.unique(self._gold) if number >= len(self.classes)]
        return metrics, [f"Classes without training examples, always wrong: {', '.join(unknown)}."] if unknown else []

    def _soft_scores(self, probabilities: np.ndarray, evidence: np.ndarray) -> Scores:
        gold, lowest = self._gold, self._scale[0]
        metrics, notes = correlations(evidence, gold, "all pairs")
        nearest = np.clip(np.floor(gold + 0.5), lowest, self._scale[-1])
        metrics["accuracy"] = share(self._scale[probabilities.argmax(axis=1)] == nearest)
        if below := int((gold < lowest).sum()):
            notes.append(f"{below} gold scores are below {lowest} and count as the class {lowest}.")
        return metrics, notes

    @property
    def protocol(self) -> str:
        """A description of how recipes are scored."""
        if "" in self._parts:
            where = "inside each fold" if self.nested else "on the same folds"
            return f"logistic regression by {self.folds}-fold cross-validation, its strength chosen {where}"
        where = (
            "on the dev part" if "dev" in self._parts else f"by {self.folds}-fold cross-validation on the train part"
        )
        return f"logistic regression on the train part, scored on the test part, its strength chosen {where}"

    def _probabilities(self, features: np.ndarray) -> tuple[np.ndarray, list[float]]:
        """Return probabilities (N,K) of the classes, and the chosen strengths."""
        folds = np.zeros(len(self), dtype=int)
        known = (self._labels < len(self.classes)) | (self.scale is not None)  # others do not choose the strength
        train, dev = self._is_learned, (self._parts == "dev") & known
        if not dev.any():
            folds[train] = self._folds(np.flatnonzero(train))
        if "" in self._parts:
            return cross_validated(features, self.targets, folds, self.strengths, nested=self.nested)
        probabilities, strength = held_out(features, self.targets, train, dev, folds, self.strengths)
        return probabilities, [strength]

    def _few(self, features: np.ndarray, shot: int) -> np.ndarray:
        """Return the share of few-label training sets with which each scored example (U,) is predicted correctly.

        Each of ten sets contains `shot` examples per class, drawn by the seed: all of a smaller class, and at most half
        of a class that is scored too, because no set scores its own training examples.
        """
        used = few_label_sets(self._labels, self._is_learned, self.is_scored, shot, SEED)  # (N,DRAWS)
        right = few_labels(features, self.targets, used) == self._labels[:, None]  # (N,DRAWS)
        right, counted = right[self.is_scored], ~used[self.is_scored]
        times = counted.sum(axis=1)  # (U,)
        shares = (right & counted).sum(axis=1) / np.maximum(times, 1)
        mean = float(shares[times > 0].mean()) if (times > 0).any() else math.nan  # for examples in every draw
        return np.asarray(np.where(times > 0, shares, mean))

    def _features(self, vectors: np.ndarray) -> np.ndarray:
        if len(self.examples[0].texts) == 1:
            return vectors
        first, second = np.split(np.asarray(vectors, np.float64), 2)
        return np.hstack([np.abs(first - second), first * second])

    def _folds(self, members: np.ndarray) -> np.ndarray:
        """Return the fold of each member: classes are spread evenly and shuffled by the seed."""
        kinds = None if self.scale is not None else [self.examples[row].target for row in members]
        texts = None if self.nested else [self.examples[row].texts for row in members]  # SentEval splits equal texts
        return spread_folds(len(members), self.folds, SEED, kinds, texts)


def f1_macro(gold: np.ndarray, predicted: np.ndarray, counts: np.ndarray, classes: int) -> np.ndarray:
    """Compute macro-F1 ×100 (B,) of predictions (U,) in draws (B,U): the mean over classes that occur in a draw."""
    is_gold, is_predicted = (labels[:, None] == np.arange(classes) for labels in (gold, predicted))  # (U,C)
    sizes = counts @ is_gold + counts @ is_predicted  # (B,C) classes, and predictions of them
    hits = 2 * counts @ (is_gold & is_predicted)
    scores = np.divide(hits, sizes, out=np.zeros_like(hits), where=sizes > 0).sum(axis=1)
    return np.asarray(100 * scores / np.maximum((sizes > 0).sum(axis=1), 1))


def share(right: np.ndarray) -> dict[str, float]:
    """Return the percentage of correct predictions, with Wilson's 95 % interval."""
    from scipy.stats import binomtest

    if not len(right):
        return dict.fromkeys(("all", "low", "high"), math.nan)
    interval = binomtest(int(np.sum(right)), len(right)).proportion_ci(method="wilson")
    return {"all": 100 * float(np.mean(right)), "low": 100 * float(interval.low), "high": 100 * float(interval.high)}
