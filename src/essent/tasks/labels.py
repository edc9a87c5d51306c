"""Classification: a logistic regression on frozen vectors, scored on held-out texts.

Source: SentEval's protocol (Conneau & Kiela 2018) as in Stankevičius (2024, 3.5.3): the parts of the data set, or
ten-fold cross-validation without parts; pairs as [|u − v|, u · v]; scores between classes as soft targets.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import compress
from typing import Any

import numpy as np

from essent._core.lazy import needs_torch
from essent.errors import DataError, InputError
from essent.tasks.base import LabeledTask, Scorer
from essent.tasks.comparison import wilson
from essent.tasks.examples import Example, check_classes, check_examples
from essent.tasks.pairs import correlations, weighted_correlation
from essent.tasks.result import Result

SEED = 1111  # SentEval's
STRENGTHS = (1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1, 1.0, 3.0, 10.0, 30.0, 100.0)  # C, for features of variance about 1
CHOICE_FOLDS = 5
MOST_TARGETS = 3e8  # examples × classes: 2.4 GB of targets, and logits several times


@dataclass(frozen=True)
class LabelTask(LabeledTask):
    """A classification task: N labelled texts or pairs, all with a part (train, dev, test) or all without.

    Attributes:
        scale: lowest and highest class of soft targets (1, 5): a score of 3.6 is class 3 with weight 0.4 and class 4
            with 0.6; lower scores count as the lowest class. None: the targets are classes.
        folds: number of folds of the cross-validation that scores a task without parts, or chooses the strength in a
            task without a dev part.
        nested: whether cross-validation chooses the strength within each fold's training part, as SentEval does; False
            chooses it on the folds themselves: many times cheaper, slightly optimistic, equally for every recipe.
        strengths: values of C of scikit-learn's LogisticRegression, ascending; see `essent.tasks.probes.scaled`.
        chosen_on: whether the task is already restricted by `for_choice`.

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
    chosen_on: bool = False

    def __post_init__(self) -> None:
        check_examples(self.name, self.examples)
        if not isinstance(self.folds, int) or self.folds < 2:
            raise InputError(f"{self.name}: folds={self.folds!r}: cross-validation needs at least 2 folds.")
        learned = int(self._is_learned.sum())
        if not learned:
            raise DataError(f"The task {self.name!r} has only the parts {', '.join(set(self._parts))}. Add train.")
        if learned < self.folds and "dev" not in self._parts:
            raise DataError(
                f"The task {self.name!r} has {learned} examples to learn from for {self.folds} folds. Give more "
                "examples, or fewer folds (LabelTask(…, folds=) in Python)."
            )
        if self.scale is None:
            check_classes(self.name, [str(example.target) for example in compress(self.examples, self._is_learned)])
            if len(self) * len(self.classes) > MOST_TARGETS:
                raise DataError(
                    f"The task {self.name!r} has {len(self.classes):,} classes and {len(self):,} examples, too many "
                    "for a classifier in memory. Use such labels as pairs, or as queries with their positives."
                )
        elif not self.scale[0] < self.scale[1]:
            raise InputError(f"{self.name}: scale={self.scale!r}: must be the lowest and the highest class.")
        else:
            for number, example in enumerate(self.examples, start=1):
                if not isinstance(example.target, (int, float)) or not math.isfinite(example.target):
                    raise DataError(f"{self.name}: the score of example {number} is {example.target!r}, not a number.")

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

    @property
    def _class_values(self) -> np.ndarray:
        """The classes of a scale (K,), as numbers."""
        low, high = self.scale or (0, 0)
        return np.arange(low, high + 1)

    @cached_property
    def classes(self) -> list[str]:
        """The classes that can be predicted: those of the training part, sorted, or those of the scale."""
        if self.scale is not None:
            return [str(value) for value in self._class_values]
        return sorted({str(example.target) for example in compress(self.examples, self._is_learned)})

    @cached_property
    def _all_classes(self) -> list[str]:
        """The classes that can be predicted, then those without training examples."""
        return [*self.classes, *sorted({str(example.target) for example in self.examples} - set(self.classes))]

    @cached_property
    def _labels(self) -> np.ndarray:
        """The examples' classes (N,) as indices of `_all_classes`, or their scores."""
        if self.scale is not None:
            return np.array([example.target for example in self.examples], dtype=np.float64)
        index = {name: number for number, name in enumerate(self._all_classes)}
        return np.array([index[str(example.target)] for example in self.examples], dtype=np.int64)

    @property
    def _gold(self) -> np.ndarray:
        """The labels of the scored examples (U,)."""
        return np.asarray(self._labels[self.is_scored])

    @cached_property
    def targets(self) -> np.ndarray:
        """Target probabilities of the classes (N,K) float32, K = 1 for two classes."""
        if self.scale is not None:  # 3.6 is class 3 by 0.4 and class 4 by 0.6
            scores = np.clip(self._labels, *self.scale)  # (N,)
            shares = np.maximum(1 - np.abs(scores - self._class_values[:, None]), 0.0)  # (K,N) in memory
        else:
            count = len(self.classes)
            shares = self._labels == np.arange(count)[count == 2 :, None]
        return np.asarray(shares.astype(np.float32).T)

    @property
    def score_names(self) -> tuple[str, ...]:
        """Accuracy and macro-F1; Pearson's correlation for soft targets."""
        return ("accuracy", "f1_macro") if self.scale is None else ("pearson",)

    @property
    def units(self) -> int:
        """U, the number of scored examples."""
        return int(self.is_scored.sum())

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
            f"scores are by {chosen.protocol}. `essent evaluate` scores by {self.protocol}; "
            "for the same recipe the two may differ, on small data by several points."
        )
        if "train" in self._parts:
            has_dev = "dev" in self._parts
            new_parts: dict[str | None, str | None] = {"train": "train", "dev": "test"} if has_dev else {"train": None}
            examples = tuple(e._replace(part=new_parts[e.part]) for e in self.examples if e.part in new_parts)
            chosen = replace(self if has_dev else chosen, examples=examples)
            scored_on = "dev part" if has_dev else f"train part, by {chosen.protocol}"
            note = f"recipes are chosen and scored on the {scored_on}; `essent evaluate` scores the test part."
        return replace(chosen, chosen_on=True, notes=(*self.notes, f"{self.name}: {note}"))

    @property
    def protocol(self) -> str:
        """A description of how recipes are scored."""
        if "" in self._parts:
            chosen_on = "inside each fold" if self.nested else "on the same folds"
            return f"logistic regression by {self.folds}-fold cross-validation, its strength chosen {chosen_on}"
        chosen_on = f"by {self.folds}-fold cross-validation on the train part"
        chosen_on = "on the dev part" if "dev" in self._parts else chosen_on
        return f"logistic regression on the train part, scored on the test part, its strength chosen {chosen_on}"

    def evidence(self, vectors: np.ndarray, rows: Sequence[int]) -> np.ndarray:
        """Return the class index predicted for each scored example (the expected score of soft targets)."""
        return self._predict(vectors[list(rows)])[0]

    @needs_torch("A probe of labelled texts")
    def _predict(self, vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray, list[float]]:
        """Return the evidence (E,), probabilities (U,K) of the classes, and the chosen strengths."""
        from essent.tasks.probes import cross_validated, held_out

        if len(self.examples[0].texts) == 2:
            first, second = np.split(np.asarray(vectors, np.float64), 2)
            vectors = np.hstack([np.abs(first - second), first * second])  # (N,2D)
        folds = np.zeros(len(self), dtype=int)
        # classes without training examples do not choose the strength
        has_class = (self._labels < len(self.classes)) | (self.scale is not None)
        train, dev = self._is_learned, (self._parts == "dev") & has_class
        if not dev.any():
            learned = list(compress(self.examples, train))
            classes = None if self.scale is not None else [example.target for example in learned]
            texts = None if self.nested else [example.texts for example in learned]  # SentEval splits equal texts
            folds[train] = spread_folds(len(learned), self.folds, SEED, classes, texts)
        if "" in self._parts:
            fit = cross_validated(vectors, self.targets, folds, self.strengths, nested=self.nested)
        else:
            fit = held_out(vectors, self.targets, train, dev, folds, self.strengths)
        probabilities, strengths = fit
        predicted = probabilities.argmax(axis=1) if self.scale is None else probabilities @ self._class_values  # (N,)
        return predicted[self.is_scored], probabilities[self.is_scored], strengths

    def scorer(self, evidence: np.ndarray, score: str) -> Scorer:
        """Return macro-F1, Pearson's correlation or an accuracy ×100 in draws of the scored examples."""
        gold = self._gold
        if score == "f1_macro":
            classes, predicted = len(self._all_classes), evidence.astype(np.int64)
            return lambda counts: np.stack([f1_macro(gold, row, counts, classes) for row in predicted])
        if score == "pearson":
            return lambda counts: (
                100 * np.stack([weighted_correlation(row[None], gold[None], counts) for row in evidence])
            )
        return super().scorer(evidence, score)

    def values(self, evidence: np.ndarray, score: str) -> np.ndarray:
        """Return whether each prediction is correct."""
        return np.asarray(evidence == self._gold, np.float64)

    def _measure(self, vectors: np.ndarray, rows: Sequence[int]) -> Result:
        if not self.units:
            raise DataError(f"The task {self.name!r} has no test part to score. Add one; search does not need it.")
        evidence, probabilities, strengths = self._predict(vectors[list(rows)])
        gold, notes = self._gold, list[str]()
        if self.scale is None:
            metrics = {"accuracy": share(evidence == gold)}
            metrics["f1_macro"] = {"all": float(self.scores(evidence[None], "f1_macro")[0])}
            if unseen := [self._all_classes[label] for label in np.unique(gold) if label >= len(self.classes)]:
                notes = [f"Classes without training examples, always wrong: {', '.join(unseen)}."]
        else:
            lowest, highest = self.scale
            metrics, notes = correlations(evidence, gold, "all pairs")
            nearest = np.clip(np.floor(gold + 0.5), lowest, highest)
            metrics["accuracy"] = share(self._class_values[probabilities.argmax(axis=1)] == nearest)
            if below := int((gold < lowest).sum()):
                notes.append(f"{below} gold scores are below {lowest} and count as the class {lowest}.")
        return self._scored(
            metrics, evidence, notes, protocol=self.protocol, strengths=strengths, classes=self.classes, seed=SEED
        )


def spread_folds(
    count: int,
    folds: int,
    seed: int,
    strata: Sequence[Hashable] | None,
    groups: Sequence[Hashable] | None,
) -> np.ndarray:
    """Assign a random fold 0 … F−1 to each of `count` members.

    Args:
        strata: the stratum of each member, if any; strata are spread evenly over the folds.
        groups: the group of each member; a group is in one fold. Without groups, each member is its own.
    """
    shuffled = np.random.default_rng(seed).permutation(count)
    first_members: dict[Hashable, int] = {}
    groups = range(count) if groups is None else groups
    first_of_group = [first_members.setdefault(groups[row], int(row)) for row in shuffled]
    representatives = shuffled[first_of_group == shuffled]  # one member of each group
    if strata is not None:
        codes = np.unique(np.array(list(map(str, strata))), return_inverse=True)[1]
        representatives = representatives[np.argsort(codes[representatives], kind="stable")]
    fold = np.empty(count, dtype=int)
    fold[representatives] = np.arange(len(representatives)) % folds
    fold[shuffled] = fold[first_of_group]
    return fold


def f1_macro(gold: np.ndarray, predicted: np.ndarray, counts: np.ndarray, classes: int) -> np.ndarray:
    """Compute macro-F1 ×100 (B,) of predictions (U,) in draws (B,U): the mean over classes that occur in a draw."""
    first_cells = classes * np.arange(len(counts))[:, None]  # (B,1)

    def sums_by_class(labels: np.ndarray, weights: np.ndarray) -> np.ndarray:
        cells = (first_cells + labels).ravel()  # (B·U,)
        return np.bincount(cells, weights.ravel(), len(counts) * classes).reshape(-1, classes)

    sizes = sums_by_class(gold, counts) + sums_by_class(predicted, counts)  # (B,C) examples and predictions
    hits = 2 * sums_by_class(gold, counts * (gold == predicted))
    scores = np.divide(hits, sizes, out=np.zeros_like(hits), where=sizes > 0).sum(axis=1)
    return np.asarray(100 * scores / np.maximum((sizes > 0).sum(axis=1), 1))


def share(correct: np.ndarray) -> dict[str, float]:
    """Return the percentage of correct predictions, with Wilson's 95 % interval."""
    mean = float(np.mean(correct))
    low, high = wilson(mean, len(correct))
    return {"all": 100 * mean, "low": 100 * low, "high": 100 * high}
