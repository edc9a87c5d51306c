"""The texts and labels of an improvement, and the metric that every encoder is measured by.

    encoder ─ vectors ─ evidence ─ scores ×100 with intervals, differences

The evidence of every measured encoder is retained, so that any two can be compared later.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from essent._core import clock
from essent._core.texts import check_texts, mend_surrogates
from essent.errors import EssentError, InputError
from essent.selection.label_free import TEACHER, Teacher
from essent.selection.verdict import held_out
from essent.static.table import rank_agreement
from essent.tasks.base import LabeledTask, unit_rows
from essent.tasks.comparison import Scored, draws_of, mean_of_data_sets
from essent.tasks.examples import Pair
from essent.tasks.locate import load_labelled
from essent.tasks.pairs import PairTask
from essent.tasks.resampling import interval

MIN_TEXTS = 50
HELD_OUT, MAX_HELD_OUT = 0.1, 1000  # the share of the texts that nothing is learned from, and their maximum
REFERENCE = "reference"  # prefix of the recipes' evidence that the criterion compares with
MIN_HELD_OUT = 50  # texts whose cosines are compared
MIN_PAIRED = 100  # texts that the criterion makes its pairs of, from `texts` too where fewer are held out
DRAWS = 300  # of bootstrap intervals of the criterion
RANDOM_PAIRS = 20_000  # of held-out texts, whose cosines two encoders should rank alike
Evidence = dict[str, np.ndarray]


class Inputs(NamedTuple):
    """Texts and labels, checked: distinct texts to learn from, held-out ones, tasks to choose on, and tests."""

    texts: tuple[str, ...]
    held_out: tuple[str, ...]
    tasks: tuple[LabeledTask, ...]
    tests: tuple[LabeledTask, ...]

    def identity(self) -> dict[str, Any]:
        """Digests of everything, by which a later run recognizes the same inputs."""
        texts = json.dumps([self.texts, self.held_out], ensure_ascii=False).encode("utf-8", "surrogatepass")
        return {
            "texts": f"{len(self.texts) + len(self.held_out)} texts, SHA-256 {hashlib.sha256(texts).hexdigest()}",
            "data": [f"{task.name} {task.digest()}" for task in self.tasks],
            "test": [f"{task.name} {task.digest()}" for task in self.tests],
        }


def read_inputs(texts: Any, data: Any, test: Any, folder: str | Path | None, seed: int) -> tuple[Inputs, list[str]]:
    """Check texts and labels before a model is loaded; also returns notes about what was left out.

    Texts of the tests are removed from the texts, and labels that the data have too from the tests.

    Raises:
        InputError: too few distinct texts, two data sets of one name, or a test that the data contain whole.
        DataError, UnknownNameError: labels that cannot be read.
    """
    tasks = [load_labelled(source, folder).for_choice() for source in _as_list(data)]
    names = [task.name for task in tasks]
    if duplicate := next((name for name in names if names.count(name) > 1), None):
        raise InputError(f"Two of the data sets are called {duplicate!r}; rename a file, or leave one out.")
    distinct = dict.fromkeys(mend_surrogates(text) for text in check_texts(texts) if text.strip())
    checked = held_out(_as_list(test), folder, [], [item for task in tasks for item in task.read_items()])
    tests = [check.task for check in checked]
    notes = [
        f"{check.left_out} {check.task.unit} of the test {check.task.name} are in the data too: left out."
        for check in checked
        if check.left_out
    ]
    test_texts = frozenset().union(*map(_evaluated_texts, tests))
    remaining = [text for text in distinct if _normalized(text) not in test_texts]
    if len(remaining) < MIN_TEXTS:
        raise InputError(
            f"There are {len(remaining)} different texts outside of the tests; an encoder is improved on {MIN_TEXTS} "
            "or more, better on thousands like those that it will encode."
        )
    if removed := len(distinct) - len(remaining):
        notes.append(f"{removed} of the {len(distinct)} texts are in the tests too: nothing is learned from them.")
    count = min(MAX_HELD_OUT, round(HELD_OUT * len(remaining)))
    apart = set(np.random.default_rng(seed).permutation(len(remaining))[:count].tolist())
    learned = tuple(text for number, text in enumerate(remaining) if number not in apart)
    return Inputs(learned, tuple(remaining[number] for number in sorted(apart)), tuple(tasks), tuple(tests)), notes


def _as_list(sources: Any) -> Sequence[Any]:
    """One data set, or a list of them: names, files and tasks; rows in memory are one."""
    if sources is None:
        return []
    several = isinstance(sources, (list, tuple)) and all(
        isinstance(source, (str, Path)) or hasattr(source, "score_vectors") for source in sources
    )
    return list(sources) if several else [sources]


def _evaluated_texts(task: LabeledTask) -> set[str]:
    """The texts of a test except those that its probe learns from: the training file beside a test file."""
    scored, read = (
        {_normalized(text) for item in items for text in item} for items in (task.items(), task.read_items())
    )
    return {_normalized(text) for text in task.texts()} - (read - scored)


def _normalized(text: str) -> str:
    """As the tests of a search compare texts: white space and case do not count."""
    return " ".join(text.split()).casefold()


class Scores:
    """Scores ×100 by name; bootstrap draws are computed where an interval is asked for.

    Args:
        draw: gives an encoder's scores on bootstrap draws of the labels, the same draws for all encoders.
    """

    def __init__(self, values: Mapping[str, float], draw: Callable[[str], np.ndarray]) -> None:
        self.values, self._draw = values, cache(draw)

    def with_interval(self, name: str) -> tuple[float, float, float]:
        """An encoder's score with its 95 % interval."""
        return (self.values[name], *interval(self._draw(name)))

    def difference(self, first: str, second: str) -> tuple[float, float, float]:
        """The first encoder's score less the second's, with its 95 % interval, paired."""
        if first == second:
            return 0.0, 0.0, 0.0
        low, high = interval(self._draw(first) - self._draw(second))
        return self.values[first] - self.values[second], low, high


class Metric:
    """Measures whatever has `encode`, and compares what was measured: by labels, or without any by a criterion.

    Args:
        max_texts, max_test_texts: about how many texts are encoded to measure an encoder, and for the tests; of more
            labels some are drawn.
    """

    def __init__(self, inputs: Inputs, seed: int, max_texts: int, max_test_texts: int) -> None:
        self.seed, self.by_labels = seed, bool(inputs.tasks)
        self.tasks = _limited(inputs.tasks, max_texts, seed)
        self.tests = _limited(inputs.tests, max_test_texts, seed)
        self.measured: dict[str, LabeledTask] = {f"data{number}": task for number, task in enumerate(self.tasks)}
        if not self.by_labels:
            count = max(min(len(inputs.held_out), max_texts // 3), MIN_PAIRED)
            self.teacher = Teacher.of([*inputs.held_out, *inputs.texts][:count], (), seed)
            self.measured["pairs"] = PairTask("pairs", tuple(Pair(a, b, 0.0, None) for a, b in self.teacher.pairs))
        self.by = _name_of(self.tasks) if self.by_labels else f"{TEACHER} (without labels)"
        self.test_name = _name_of(self.tests)
        self.held_out = list(inputs.held_out[: max(MIN_HELD_OUT, max_texts // 3)])
        pairs = np.random.default_rng(seed).integers(0, len(self.held_out), (2, RANDOM_PAIRS))
        self._random_pairs = pairs[:, pairs[0] != pairs[1]]  # (2,P)

    # -- measuring --------------------------------------------------------------------------------------------------

    def measure(self, encoder: Any, *, tests: bool = True) -> Evidence:
        """The evidence of an encoder on labels and held-out texts, and on the tests."""
        tasks = {**self.measured, **{f"test{number}": task for number, task in enumerate(self.tests) if tests}}
        evidence = {key: np.asarray(task.run(encoder).evidence) for key, task in tasks.items()}
        units = unit_rows(np.asarray(encoder.encode(self.held_out), np.float64))
        first, second = self._random_pairs
        evidence["cosines"] = np.einsum("pd,pd->p", units[first], units[second]).astype(np.float32)
        return evidence

    def speed(self, dimensions: int, seconds: float) -> dict[str, float]:
        """What measuring costs where encoding a text takes so many seconds.

        Returns:
            Seconds: `measured` per encoder, `tested` besides on the tests, `judged` per labelled text of tasks that
            read vectors rather than similarities, such as k-means.
        """
        encoder = SimpleNamespace(
            encode=lambda texts, **_: np.random.default_rng(0).normal(size=(len(texts), dimensions))
        )
        began = clock.elapsed()
        self.measure(encoder, tests=False)
        measured = clock.elapsed()  # imports and threads have been paid for
        reading_vectors = [task for task in self.tasks if task.compared() is None]
        for task in reading_vectors:
            task.run(encoder)
        judged = (clock.elapsed() - measured) / max(len(_texts_of(reading_vectors)), 1)
        texts = _texts_of(self.measured.values()).union(self.held_out)
        return {
            "judged": judged,
            "measured": measured - began + seconds * len(texts),
            "tested": (seconds + judged) * len(_texts_of(self.tests)),
        }

    # -- comparing --------------------------------------------------------------------------------------------------

    def scores(self, evidence: Mapping[str, Evidence]) -> Scores:
        """Scores of encoders on the labels, or by the criterion.

        Args:
            evidence: by name; names that begin with "reference" only say what the criterion compares with.
        """
        names = [name for name in evidence if not name.startswith(REFERENCE)]
        if self.by_labels:
            return self._label_scores("data", self.tasks, names, evidence)
        references = np.stack([evidence[name]["pairs"] for name in evidence if name.startswith(REFERENCE)])  # (R,P)
        teacher = self.teacher.with_reference(references)
        cosines = np.stack([evidence[name]["pairs"] for name in names])  # (R,P)
        values = dict(zip(names, (100 * teacher.scores(cosines)).tolist(), strict=True))

        def draw(name: str) -> np.ndarray:
            return np.asarray(100 * teacher.bootstrap(evidence[name]["pairs"][None], self.seed, DRAWS)[0])

        return Scores(values, draw)

    def test_scores(self, evidence: Mapping[str, Evidence]) -> Scores | None:
        """Scores on the tests, which decide nothing, of the encoders that were measured there; None without tests."""
        names = [name for name in evidence if "test0" in evidence[name]]
        return self._label_scores("test", self.tests, names, evidence) if self.tests else None

    def _label_scores(
        self, kind: str, tasks: Sequence[LabeledTask], names: list[str], evidence: Mapping[str, Evidence]
    ) -> Scores:
        scored = [
            Scored(task, task.score_names[0], names, np.stack([evidence[name][f"{kind}{number}"] for name in names]))
            for number, task in enumerate(tasks)
        ]
        values = mean_of_data_sets(scored, [scores.scores() for scores in scored]).tolist()
        return Scores(dict(zip(names, values, strict=True)), lambda name: draws_of(scored, [name], self.seed)[0])

    def validation(self) -> LabeledTask | None:
        """The labels that the checkpoints of a training are compared on; None without labels.

        The criterion tells whether a training gained, but its reference is untrained recipes, so that it would select
        an early checkpoint.
        """
        if not self.by_labels:
            return None
        pairs = [task for task in self.tasks if isinstance(task, PairTask)]
        return PairTask.joined(pairs) if len(pairs) == len(self.tasks) > 1 else self.tasks[0]


def _name_of(tasks: Sequence[LabeledTask]) -> str:
    return " and ".join(f"{task.score_names[0]} of {task.name}" for task in tasks)


def _texts_of(tasks: Iterable[LabeledTask]) -> set[str]:
    return {text for task in tasks for text in task.texts()}


def _limited(tasks: Sequence[LabeledTask], max_texts: int, seed: int) -> list[LabeledTask]:
    """Tasks of about so many texts together at most."""
    size, units = len(_texts_of(tasks)), sum(task.units for task in tasks)
    return subsample(tasks, None if size <= max_texts else units * max_texts // size, seed)


def subsample(tasks: Sequence[LabeledTask], units: int | None, seed: int) -> list[LabeledTask]:
    """Tasks of so many labels together, drawn at random; a task that would be too small stays whole."""
    total = sum(task.units for task in tasks)
    if units is None or units >= total:
        return list(tasks)
    smaller = []
    for task in tasks:
        dropped = np.ones(task.units, dtype=bool)
        dropped[np.random.default_rng(seed).permutation(task.units)[: max(20, task.units * units // total)]] = False
        try:
            smaller.append(task.without(dropped) if dropped.any() else task)
        except EssentError:  # too few of a class, say
            smaller.append(task)
    return smaller


def agreement(first: Evidence, second: Evidence) -> float:
    """Spearman ×100 between the cosines of random pairs of held-out texts by two encoders."""
    return rank_agreement(first["cosines"].astype(np.float64), second["cosines"].astype(np.float64))
