"""What every step is measured by: judgements, or without labels a criterion; the same for every model and recipe.

    encoder ─ vectors ─ evidence ─ scores ×100 with intervals, differences

Evidence is kept for every encoder that was measured, so that any two can be compared later.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from essent._core import clock
from essent.errors import EssentError
from essent.improvement.given import Given
from essent.selection.label_free import TEACHER, Teacher
from essent.tasks.base import unit_rows
from essent.tasks.comparison import Comparison, Scored, draws_of, mean_of_data_sets
from essent.tasks.data import Pair
from essent.tasks.judged import JudgedTask
from essent.tasks.pairs import PairTask
from essent.tasks.resampling import interval

CRITERION = TEACHER  # without labels
REFERENCE = "reference"  # what the names of the recipes begin with that a criterion compares with
FEWEST_HELD_OUT = 50
FEWEST_PAIRED = 100  # texts that the criterion makes its pairs of; where fewer are held out, others are among them
DRAWS = 300  # of bootstrap intervals of the criterion
RANDOM = 20_000  # pairs of held-out texts whose cosines two encoders should rank alike
Evidence = dict[str, np.ndarray]


class Scores:
    """Scores ×100 of encoders; what intervals are drawn from is computed when it is asked for.

    Args:
        by: what they were measured by.
        by_labels: whether judgements were read.
        values: the score of each encoder.
        draw: gives the scores of an encoder on bootstrap draws of the units of judgement, the same draws for each.
    """

    def __init__(
        self, by: str, by_labels: bool, values: Mapping[str, float], draw: Callable[[str], np.ndarray]
    ) -> None:
        self.by, self.by_labels, self.values = by, by_labels, values
        self._draw, self._draws = draw, dict[str, np.ndarray]()

    def draws(self, name: str) -> np.ndarray:
        """An encoder's score on every draw."""
        if name not in self._draws:
            self._draws[name] = self._draw(name)
        return self._draws[name]

    def of(self, name: str) -> tuple[float, float, float]:
        """An encoder's score with its 95 % interval."""
        return (self.values[name], *interval(self.draws(name)))

    def compare(self, first: str, second: str) -> Comparison:
        """The first encoder against the second."""
        if first == second:
            return Comparison(first, second, 0.0, 0.0, 0.0, math.nan, self.by)
        low, high = interval(self.draws(first) - self.draws(second))
        return Comparison(first, second, self.values[first] - self.values[second], low, high, math.nan, self.by)


class Yardstick:
    """Measures whatever has `encode`, and compares what was measured.

    Args:
        given: its judgements decide; without any a criterion without labels on its held-out texts does.
        most, most_tested: about how many texts are encoded to measure an encoder, and for the tests; of more judgements
            some are drawn.
    """

    def __init__(self, given: Given, seed: int, most: int, most_tested: int) -> None:
        self.seed, self.by_labels = seed, bool(given.tasks)
        self.tasks, self.tests = some_of(given.tasks, most, seed), some_of(given.tests, most_tested, seed)
        self.held_out = list(given.held_out[: max(FEWEST_HELD_OUT, most // 3)])
        paired = max(min(len(given.held_out), most // 3), FEWEST_PAIRED)
        texts = [*given.held_out, *given.texts][:paired]
        self.teacher = None if self.by_labels else Teacher.of(texts, (), seed)
        generator = np.random.default_rng(seed)
        self._apart = generator.integers(0, len(self.held_out), (2, RANDOM))
        self._apart = self._apart[:, self._apart[0] != self._apart[1]]

    @property
    def name(self) -> str:
        """What is measured, for people."""
        if not self.by_labels:
            return f"{CRITERION} (without labels)"
        return " and ".join(f"{task.score_names[0]} of {task.name}" for task in self.tasks)

    # -- measuring --------------------------------------------------------------------------------------------------

    def measure(self, encoder: Any, *, tests: bool = True) -> Evidence:
        """The evidence of an encoder on judgements and held-out texts, and on the tests."""
        found = {f"data{n}": self._evidence(task, encoder) for n, task in enumerate(self.tasks)}
        if tests:
            found |= {f"test{n}": self._evidence(task, encoder) for n, task in enumerate(self.tests)}
        if self.pairs is not None:
            found["pairs"] = self._evidence(self.pairs, encoder)
        units = unit_rows(np.asarray(encoder.encode(self.held_out), np.float64))
        found["cosines"] = np.einsum("pd,pd->p", units[self._apart[0]], units[self._apart[1]]).astype(np.float32)
        return found

    @staticmethod
    def _evidence(task: JudgedTask, encoder: Any) -> np.ndarray:
        evidence = task.run(encoder).evidence
        assert evidence is not None  # noqa: S101  every JudgedTask gives it
        return evidence

    @property
    def pairs(self) -> PairTask | None:
        """The pairs of texts that the criterion looks at, without scores; None with labels."""
        if self.teacher is None:
            return None
        return PairTask("pairs", tuple(Pair(a, b, 0.0, None) for a, b in self.teacher.pairs))

    def texts(self) -> tuple[int, int]:
        """How many texts are encoded for the judgements or the criterion, and how many more for the tests."""
        own = [task.texts() for task in self.tasks] or [self.pairs.texts() if self.pairs else []]
        return len({*self.held_out, *(text for some in own for text in some)}), len(
            {text for task in self.tests for text in task.texts()}
        )

    def judging_seconds(self, dimensions: int) -> tuple[float, float]:
        """How long measuring random vectors takes by the clock, and the processor seconds for each judged text.

        The second is of judgements that look at vectors and not at similarities alone; k-means uses several processors.
        """
        vectors, began = _Random(dimensions), clock.elapsed()
        self.measure(vectors, tests=False)
        seconds, used = clock.elapsed() - began, clock.processor()  # imports and threads have been paid for
        tasks = [task for task in self.tasks if task.compared() is None]
        for task in tasks:
            self._evidence(task, vectors)
        texts = {text for task in tasks for text in task.texts()}
        return seconds, (clock.processor() - used) / max(len(texts), 1)

    # -- comparing --------------------------------------------------------------------------------------------------

    def scores(self, found: Mapping[str, Evidence]) -> Scores:
        """Scores of encoders on the judgements, or by the criterion.

        Args:
            found: evidence by name; names that begin with "reference" only say what the criterion compares with.
        """
        names = [name for name in found if not name.startswith(REFERENCE)]
        if (judged := self._judged("data", self.tasks, names, found)) is not None:
            return judged
        assert self.teacher is not None  # noqa: S101
        teacher = self.teacher.with_reference(self._references(found))
        rows = np.stack([found[name]["pairs"] for name in names])
        values = dict(zip(names, (100 * teacher.scores(rows)).tolist(), strict=True))

        def draw(name: str) -> np.ndarray:
            return np.asarray(100 * teacher.bootstrap(found[name]["pairs"][None], self.seed, DRAWS)[0])

        return Scores(CRITERION, False, values, draw)

    def test_scores(self, found: Mapping[str, Evidence]) -> Scores | None:
        """Scores on the tests, which decide nothing, of the encoders that were measured there; None without tests."""
        return self._judged("test", self.tests, [name for name in found if "test0" in found[name]], found)

    def _judged(
        self, kind: str, tasks: Sequence[JudgedTask], names: list[str], found: Mapping[str, Evidence]
    ) -> Scores | None:
        if not tasks:
            return None
        scored = [
            Scored(task, task.score_names[0], names, np.stack([found[name][f"{kind}{n}"] for name in names]))
            for n, task in enumerate(tasks)
        ]
        values = mean_of_data_sets(scored, [one.scores() for one in scored]).tolist()
        by = " and ".join(f"{task.score_names[0]} of {task.name}" for task in tasks)
        return Scores(
            by, True, dict(zip(names, values, strict=True)), lambda name: draws_of(scored, [name], self.seed)[0]
        )

    @staticmethod
    def _references(found: Mapping[str, Evidence]) -> np.ndarray:
        """Cosines (R,P) of the recipes that the criterion compares with."""
        return np.stack([one["pairs"] for name, one in found.items() if name.startswith(REFERENCE)])

    def validation(self) -> JudgedTask | None:
        """What the checkpoints of a training are compared on; None without labels.

        The criterion without labels tells whether a training gained. Its gold is what untrained recipes say, so that it
        would take an early checkpoint.
        """
        if not self.by_labels:
            return None
        pairs = [task for task in self.tasks if isinstance(task, PairTask)]
        return PairTask.joined(pairs) if len(pairs) == len(self.tasks) > 1 else self.tasks[0]


class _Random:
    """Random vectors in the place of an encoder's."""

    def __init__(self, dimensions: int) -> None:
        self.dimensions = dimensions

    def encode(self, texts: list[str], **_: Any) -> np.ndarray:
        """Vectors (N,D)."""
        return np.random.default_rng(0).normal(size=(len(texts), self.dimensions))


def some_of(tasks: Sequence[JudgedTask], most: int, seed: int) -> tuple[JudgedTask, ...]:
    """Tasks of about so many texts together at most."""
    size, units = len({text for task in tasks for text in task.texts()}), sum(task.units for task in tasks)
    kept = None if size <= most else units * most // size
    return tuple(fewer_units(task, kept, units, seed) for task in tasks)


def fewer_units(task: JudgedTask, units: int | None, total: int, seed: int) -> JudgedTask:
    """Some of a task's units at random, its part of so many of the total; all where so few would not make a task."""
    if units is None or units >= total:
        return task
    keep = max(20, task.units * units // total)
    gone = np.ones(task.units, dtype=bool)
    gone[np.random.default_rng(seed).permutation(task.units)[:keep]] = False
    try:
        return task.without(gone) if gone.any() else task
    except EssentError:  # too few of a class, say
        return task


def agreement(first: Evidence, second: Evidence) -> float:
    """Spearman ×100 between the cosines of random pairs of held-out texts by two encoders."""
    from scipy.stats import spearmanr

    sides = [np.round(one["cosines"].astype(np.float64), 6) for one in (first, second)]
    if min(np.ptp(side) for side in sides) == 0:
        return 100.0 if np.array_equal(sides[0], sides[1]) else math.nan
    return 100.0 * float(spearmanr(*sides).statistic)
