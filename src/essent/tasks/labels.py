"""Classification: a logistic regression on frozen vectors, scored on texts that it has not seen.

Source: SentEval's protocol (Conneau & Kiela 2018) as Stankevičius (2024, 3.5.3) uses it: ten-fold cross-validation
where a data set has no split, otherwise its own parts; pairs as [|u − v|, u · v]; scores between classes as soft
targets.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from essent.errors import DataError, InputError
from essent.tasks.base import LabeledTask, Scorer
from essent.tasks.comparison import with_interval
from essent.tasks.examples import Example, check_examples
from essent.tasks.pairs import correlations, with_normal_interval
from essent.tasks.probes import STRENGTHS, cross_validated, few_label_sets, few_labels, held_out, spread_folds
from essent.tasks.resampling import correlation, f1_macro, share, weighted_correlation, weighted_mean
from essent.tasks.result import Result

SEED = 1111  # SentEval's
CHOICE_FOLDS = 5
MOST_TARGETS = 3e8  # examples × classes: 2.4 GB of targets, and logits several times


@dataclass(frozen=True)
class LabelTask(LabeledTask):
    """N labelled texts or pairs, all with a part (train, dev, test) or none.

    Attributes:
        scale: lowest and highest class of soft targets (1, 5): a score of 3.6 is class 3 by 0.4 and class 4 by 0.6;
            below the lowest it is the lowest. None: the targets are classes.
        folds: of the cross-validation, where there are no parts, and where there is no dev part to choose the strength.
        nested: whether cross-validation chooses the strength inside each fold's training part, as SentEval does; False
            chooses it on the folds themselves: many times cheaper, a little optimistic, the same for every recipe.
        strengths: C of scikit-learn's LogisticRegression that are tried, see `essent.tasks.probes.scaled`.
        chosen_on: whether this is what a choice may read of a task, see `for_choice`.
        shots: also train on so many examples of each class (8, 16, 64), ten draws each: "accuracy@8" and so on.
        source: plain values for the result's provenance.
        notes: sentences that every result carries.
    """

    kind: ClassVar[str] = "classification"
    unit: ClassVar[str] = "texts"
    examples_in: ClassVar[str] = "examples"
    name: str
    examples: tuple[Example, ...]
    scale: tuple[int, int] | None = None
    folds: int = 10
    seed: int = SEED
    strengths: tuple[float, ...] = STRENGTHS
    nested: bool = True
    shots: tuple[int, ...] = ()
    chosen_on: bool = False
    source: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_examples(self.name, self.examples)
        self._check_settings()
        if self.scale is not None:
            self._check_scores(*self.scale)
        counts = Counter(example.part for example in self.examples)
        if None not in counts and not counts["train"]:
            raise DataError(f"The task {self.name!r} has the parts {', '.join(map(str, counts))}; train is needed.")
        taught = [e.target for e in self.examples if e.part in {None, "train"}]
        if self.scale is None and len(set(taught)) < 2:
            raise DataError(f"The task {self.name!r} has {len(set(taught))} class to learn, at least 2 are needed.")
        if self.scale is None and len(set(taught)) > max(len(taught) // 2, 2):
            raise DataError(
                f"The task {self.name!r} has {len(set(taught))} classes in {len(taught)} examples; is its label an id?"
            )
        if self.scale is None and len(self) * len(set(taught)) > MOST_TARGETS:
            raise DataError(
                f"The task {self.name!r} has {len(set(taught)):,} classes and {len(self):,} examples, too many for one "
                "classifier in memory. Search such labels as pairs, or as queries with their positives."
            )
        if len(taught) < self.folds and not counts["dev"]:
            raise DataError(f"The task {self.name!r} has {len(taught)} examples for {self.folds} folds; give folds=….")

    def _check_settings(self) -> None:
        if not isinstance(self.folds, int) or self.folds < 2:
            raise InputError(f"{self.name}: cross-validation needs at least 2 folds, not {self.folds!r}.")
        if not self.strengths or min(self.strengths) <= 0 or list(self.strengths) != sorted(self.strengths):
            raise InputError(f"{self.name}: strengths are positive numbers in ascending order, not {self.strengths!r}.")
        if self.shots and (self.scale is not None or any(type(shot) is not int or shot < 1 for shot in self.shots)):
            raise InputError(f"{self.name}: shots are whole numbers of labels a class, not {self.shots!r}.")

    def _check_scores(self, low: int, high: int) -> None:
        if not low < high:
            raise InputError(f"{self.name}: a scale goes from the lowest class to the highest, not {self.scale!r}.")
        for number, example in enumerate(self.examples, start=1):
            if not isinstance(example.target, (int, float)) or not math.isfinite(example.target):
                raise DataError(f"{self.name}: the score of example {number} is {example.target!r}, not a number.")

    def texts(self) -> list[str]:
        """All texts, of pairs all first ones, then all second ones; every part, duplicates kept."""
        return [example.texts[side] for side in range(len(self.examples[0].texts)) for example in self.examples]

    def _content(self) -> Any:
        return [self.examples, self.scale]

    @cached_property
    def classes(self) -> list[str]:
        """The classes that can be predicted: those of the training part, sorted; of soft targets the scale's."""
        if self.scale is not None:
            return [str(value) for value in range(self.scale[0], self.scale[1] + 1)]
        return sorted({str(e.target) for e in self.examples if e.part in {None, "train"}}, key=natural_order)

    @cached_property
    def targets(self) -> np.ndarray:
        """Probabilities of the classes (N,K) float32, K = 1 for two classes: one array for all recipes."""
        if self.scale is not None:  # 3.6 is class 3 by 0.4 and class 4 by 0.6
            low, high = self.scale
            scores = np.clip([float(e.target) for e in self.examples], low, high)  # (N,)
            shares = np.maximum(1 - np.abs(scores - low - np.arange(high - low + 1)[:, None]), 0.0)  # (K,N) in memory
        else:
            number = {name: position for position, name in enumerate(self.classes)}
            classes = np.arange(len(number))[len(number) == 2 :, None]
            shares = np.array([number.get(str(e.target), -1) for e in self.examples]) == classes
        return np.asarray(shares.astype(np.float32).T)

    @property
    def score_names(self) -> tuple[str, ...]:
        """Accuracy and macro-F1, and accuracy with a few labels; Pearson's correlation for soft targets."""
        if self.scale is not None:
            return ("pearson",)
        return ("accuracy", "f1_macro", *(f"accuracy@{shot}" for shot in self.shots))

    def scored_by(self, score: str) -> LabelTask:
        """With accuracy for a few labels, "accuracy@8", where that is asked for."""
        name, _, shot = score.partition("@")
        if name != "accuracy" or not shot.isdecimal() or self.scale is not None or int(shot) in self.shots:
            return self
        note = f"{self.name}: " * self.chosen_on + (  # results name their task themselves
            f"accuracy@{shot} is the mean over ten training sets of {shot} labels per class; `essent evaluate` shows "
            f"it with --shots {shot}, beside the accuracy that is learned from all labels."
        )
        return replace(self, shots=(*self.shots, int(shot)), notes=(*self.notes, note))

    @cached_property
    def is_scored(self) -> np.ndarray:
        """Which examples (N,) are scored: the test part, or all where there are no parts."""
        return np.array([example.part in {None, "test"} for example in self.examples])

    @property
    def units(self) -> int:
        """How many examples are scored."""
        return int(self.is_scored.sum())

    @property
    def evidence_size(self) -> int:
        """What is predicted for each scored example, and what share of draws of a few labels is right."""
        return self.units * (1 + len(self.shots))

    def working_bytes(self, dimensions: int) -> int:
        """Float32 rows in two bases, and what the regressions keep of every example."""
        return 24 * len(self.texts()) * dimensions + 24 * self.targets.size * self.folds

    def items(self) -> list[tuple[str, ...]]:
        """The texts of the scored examples."""
        return [self.examples[row].texts for row in np.flatnonzero(self.is_scored)]

    def read_items(self) -> list[tuple[str, ...]]:
        """The texts of every example whose label is read, those that are only learned on too."""
        return [example.texts for example in self.examples]

    def strata(self) -> np.ndarray | None:
        """The class of each scored example."""
        return None if self.scale is not None else self._gold

    def without(self, excluded: np.ndarray) -> LabelTask:
        """The task without some of its scored examples."""
        dropped = set(np.flatnonzero(self.is_scored)[excluded].tolist())
        return replace(self, examples=tuple(e for row, e in enumerate(self.examples) if row not in dropped))

    def for_choice(self) -> LabelTask:
        """Without the test part: the dev part is scored, or without one the training part by cross-validation.

        Cross-validation then has five folds and is not nested, as a search runs it for every recipe.
        """
        parts = {example.part for example in self.examples}
        cheap = replace(self, folds=min(self.folds, CHOICE_FOLDS), nested=False)
        if self.chosen_on:
            return self
        if parts != {None}:
            name = {"train": "train" if "dev" in parts else None, "dev": "test"}
            examples = tuple(e._replace(part=name[e.part]) for e in self.examples if e.part and e.part != "test")
            cheap = replace(self if "dev" in parts else cheap, examples=examples)
        if "dev" in parts:
            note = "recipes are chosen and scored on the dev part; `essent evaluate` scores the test part."
        elif None not in parts:
            note = (
                f"recipes are chosen and scored on the train part, by {cheap.protocol}; "
                "`essent evaluate` scores the test part."
            )
        else:
            note = (
                f"scores with all labels are here by {cheap.protocol}. `essent evaluate` scores by {self.protocol}; "
                "for the same recipe the two may differ, on small data by several points."
            )
        return replace(cheap, chosen_on=True, notes=(*self.notes, f"{self.name}: {note}"))

    def evidence(self, vectors: np.ndarray, rows: Sequence[int]) -> np.ndarray:
        """The number of the class that is predicted for each scored example (the expected score of soft targets)."""
        features = self._features(vectors[list(rows)])  # (N,F)
        return self._evidence(features, self._probabilities(features)[0])

    def _evidence(self, features: np.ndarray, probabilities: np.ndarray) -> np.ndarray:
        predicted = self._predicted(probabilities)[self.is_scored].astype(np.float64)
        return np.concatenate([predicted, *(self._few(features, shot) for shot in self.shots)])

    def scorer(self, evidence: np.ndarray, score: str) -> Scorer:
        """Accuracy, macro-F1 or Pearson's correlation ×100 in draws of the scored examples."""
        values, _ = self.paired(evidence, score)
        if score == "f1_macro":
            gold, classes = self._gold, len(self._known)
            return lambda counts: np.stack([f1_macro(gold, row, counts, classes) for row in values])
        if score == "pearson":
            gold = self._gold
            return lambda counts: (
                100 * np.stack([weighted_correlation(row[None], gold[None], counts) for row in values])
            )
        return lambda counts: 100 * weighted_mean(values, counts)

    def paired(self, evidence: np.ndarray, score: str) -> tuple[np.ndarray, Callable[[np.ndarray], np.ndarray]]:
        """What is right, predicted or expected, example by example."""
        gold, count = self._gold, self.units
        if score == "f1_macro":
            once, classes = np.ones((1, count)), len(self._known)
            predicted = evidence[:, :count].astype(np.int64)
            return predicted, lambda rows: np.array([f1_macro(gold, row, once, classes)[0] for row in rows])
        if score == "pearson":
            return evidence[:, :count], lambda rows: 100 * correlation(rows, gold)
        if score == "accuracy":
            right = (evidence[:, :count] == gold).astype(np.float64)
        else:
            column = 1 + self.shots.index(int(score.partition("@")[2]))
            right = evidence[:, column * count : (column + 1) * count]
        return right, lambda rows: 100 * rows.mean(axis=1)

    @cached_property
    def _known(self) -> list[str]:
        """All classes: those that can be predicted first, as `classes` has them."""
        unpredicted = {str(self.examples[row].target) for row in np.flatnonzero(self.is_scored)} - set(self.classes)
        return [*self.classes, *sorted(unpredicted)]

    @cached_property
    def _gold(self) -> np.ndarray:
        """The scored examples' classes (U,) as places in `_known`, or their scores."""
        targets = [self.examples[row].target for row in np.flatnonzero(self.is_scored)]
        if self.scale is not None:
            return np.array(targets, dtype=np.float64)
        number = {name: position for position, name in enumerate(self._known)}
        return np.array([number[str(target)] for target in targets])

    def _measure(self, vectors: np.ndarray, rows: Sequence[int]) -> Result:
        if not self.units:
            raise DataError(f"The task {self.name!r} has no test part to score; search chooses on what it has.")
        features = self._features(vectors[list(rows)])  # (N,F)
        probabilities, strengths = self._probabilities(features)
        provenance = self._provenance(protocol=self.protocol, strengths=strengths, classes=self.classes, seed=self.seed)
        metrics, notes = self._scores(probabilities[self.is_scored], np.flatnonzero(self.is_scored))
        evidence = self._evidence(features, probabilities)
        metrics |= {name: with_interval(self, evidence, name) for name in self.score_names if "@" in name}
        main = ("pearson", "all") if self.scale is not None else ("accuracy", "all")
        return Result(self.name, metrics, {}, self.units, provenance, (*self.notes, *notes), main, evidence)

    @property
    def protocol(self) -> str:
        """How recipes are scored, in words."""
        parts = {example.part for example in self.examples}
        if None in parts:
            where = "inside each fold" if self.nested else "on the same folds"
            return f"logistic regression by {self.folds}-fold cross-validation, its strength chosen {where}"
        where = "on the dev part" if "dev" in parts else f"by {self.folds}-fold cross-validation on the train part"
        return f"logistic regression on the train part, scored on the test part, its strength chosen {where}"

    def _probabilities(self, features: np.ndarray) -> tuple[np.ndarray, list[float]]:
        """Probabilities (N,K) of the classes, and the strengths chosen for them."""
        parts = np.array([example.part or "" for example in self.examples])
        if (parts == "").all():
            folds = self._folds(np.arange(len(self)))
            return cross_validated(features, self.targets, folds, self.strengths, nested=self.nested)
        train, dev = parts == "train", (parts == "dev") & self._learned()
        folds = np.zeros(len(self), dtype=int)
        if not dev.any():
            folds[train] = self._folds(np.flatnonzero(train))
        probabilities, strength = held_out(features, self.targets, train, dev, folds, self.strengths)
        return probabilities, [strength]

    def _predicted(self, probabilities: np.ndarray) -> np.ndarray:
        """The place of the likeliest class, or the expected score (N,)."""
        if self.scale is None:
            return np.asarray(probabilities.argmax(axis=1))
        return np.asarray(probabilities @ np.arange(self.scale[0], self.scale[1] + 1))

    def _few(self, features: np.ndarray, shot: int) -> np.ndarray:
        """Share of training sets of a few labels a class with which each scored example (U,) is right.

        Each of ten sets has `shot` examples of every class, drawn by the seed: all of a smaller class, and at most half
        of one that is scored too, as no set scores the examples it was trained on.
        """
        learned = np.array([example.part in {None, "train"} for example in self.examples]) & self._learned()
        number = {name: position for position, name in enumerate(self._known)}
        numbers = np.array([number.get(str(example.target), -1) for example in self.examples])
        used = few_label_sets(numbers, learned, self.is_scored, shot, self.seed)  # (N,DRAWS)
        right = few_labels(features, self.targets, used) == numbers[:, None]  # (N,DRAWS)
        right, counted = right[self.is_scored], ~used[self.is_scored]
        times = counted.sum(axis=1)  # (U,)
        shares = (right & counted).sum(axis=1) / np.maximum(times, 1)
        mean = float(shares[times > 0].mean()) if (times > 0).any() else math.nan  # for one that no draw judges
        return np.asarray(np.where(times > 0, shares, mean))

    def _learned(self) -> np.ndarray:
        """Which examples (N,) are of a class that can be predicted."""
        known = set(self.classes)
        return np.array([self.scale is not None or str(example.target) in known for example in self.examples])

    def _features(self, vectors: np.ndarray) -> np.ndarray:
        if len(self.examples[0].texts) == 1:
            return vectors
        first, second = np.split(np.asarray(vectors, np.float64), 2)
        return np.hstack([np.abs(first - second), first * second])

    def _folds(self, members: np.ndarray) -> np.ndarray:
        """Number of each member's fold: every class spread evenly, shuffled by the seed."""
        kinds = None if self.scale is not None else [self.examples[row].target for row in members]
        texts = None if self.nested else [self.examples[row].texts for row in members]  # SentEval's splits equal ones
        return spread_folds(len(members), self.folds, self.seed, kinds, texts)

    def _scores(self, probabilities: np.ndarray, rows: np.ndarray) -> tuple[dict[str, dict[str, float]], list[str]]:
        """Scores of the probabilities (M,K) of the scored examples."""
        targets = [self.examples[row].target for row in rows]
        if self.scale is not None:
            gold = np.array(targets, dtype=np.float64)
            values = np.arange(self.scale[0], self.scale[1] + 1)
            scores, notes = correlations(probabilities @ values, gold, "all pairs")
            if below := int((gold < self.scale[0]).sum()):
                notes.append(f"{below} gold scores are below {self.scale[0]} and count as the class {self.scale[0]}.")
            nearest = np.clip(np.floor(gold + 0.5), *self.scale)
            nearest_is_likeliest = share(values[probabilities.argmax(axis=1)] == nearest)
            correlated = {name: with_normal_interval(name, score, len(gold)) for name, score in scores.items()}
            return correlated | {"accuracy": nearest_is_likeliest}, notes
        from sklearn.metrics import f1_score

        chosen = [self.classes[number] for number in probabilities.argmax(axis=1)]
        right = np.array([name == str(target) for name, target in zip(chosen, targets, strict=True)])
        macro = f1_score([str(target) for target in targets], chosen, average="macro", zero_division=0)
        unknown = sorted({str(target) for target in targets} - set(self.classes))
        notes = [f"Not in the training part, so always wrong: {', '.join(unknown)}."] if unknown else []
        return {"accuracy": share(right), "f1_macro": {"all": 100 * float(macro)}}, notes


def natural_order(name: str) -> tuple[int, float, str]:
    """Numbers by value, before words."""
    number = name.removeprefix("-")
    return (0, float(name), name) if number.isascii() and number.isdecimal() else (1, 0.0, name)
