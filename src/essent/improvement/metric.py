"""The texts and labels of an improvement, and the metric that measures every encoder.

encoder ─ vectors ─ evidence ─ scores ×100 with intervals, differences

The evidence of an encoder is the data that its scores are computed from: figures per label, and cosines of held-out
texts. It is retained for every measured encoder, so that any two can be compared later.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sentence_transformers import SentenceTransformer

from essent._core.texts import check_texts, distinct_texts, mend_surrogates
from essent.errors import EssentError, InputError
from essent.model.capabilities import ModelCapabilities
from essent.model.template import with_room
from essent.selection.evaluation import Bench
from essent.selection.label_free import TEACHER, Teacher
from essent.selection.search_data import held_out
from essent.selection.space import Grid, Space
from essent.static.table import rank_agreement
from essent.tasks.base import LabeledTask, unit_rows
from essent.tasks.comparison import Scored, draws_of, interval
from essent.tasks.examples import NO_TABLE, Pair
from essent.tasks.locate import load_labelled
from essent.tasks.pairs import PairTask

MIN_TEXTS = 50
AGREEMENT = "agreement with the chosen encoder"  # the metric without labels and a criterion
HELD_OUT, MAX_HELD_OUT = 0.1, 1000  # share and maximum number of texts that nothing is learned from
REFERENCE = "reference"  # prefix of the names of the criterion's reference recipes
MIN_HELD_OUT = 50  # texts whose cosines are compared
MIN_PAIRED = 100  # minimum texts for the criterion's pairs; some of `texts` if fewer are held out
DRAWS = 300  # bootstrap draws for intervals of the criterion
RANDOM_PAIRS = 20_000  # pairs of held-out texts for the rank agreement of two encoders
LAYERS = ("L", "0+L", "1+2+L", "L-1+L")
SHAPING = ("", "centre | normalize", "whiten | normalize")
REFERENCES = Grid(layers=LAYERS, weights=("uniform", "idf"), shaping=SHAPING)
PROMPTED_REFERENCES = Grid(("about",), weights=("last",), shaping=SHAPING)  # of causal language models, in addition
STATIC_REFERENCES = Grid(layers=("static",), weights=("uniform", "idf", "sif"), shaping=SHAPING)


class Inputs(NamedTuple):
    """Checked inputs: distinct texts to learn from, held-out texts, tasks to choose on, tests, notes on exclusions."""

    texts: tuple[str, ...]
    held_out: tuple[str, ...]
    tasks: tuple[LabeledTask, ...]
    tests: tuple[LabeledTask, ...]
    notes: tuple[str, ...] = ()

    def identity(self) -> dict[str, Any]:
        """Return digests of everything, by which a later run recognizes the same inputs."""
        texts = json.dumps([self.texts, self.held_out], ensure_ascii=False).encode("utf-8", "surrogatepass")
        return {
            "texts": f"{len(self.texts) + len(self.held_out)} texts, SHA-256 {hashlib.sha256(texts).hexdigest()}",
            "data": [f"{task.name} {task.digest()}" for task in self.tasks],
            "test": [f"{task.name} {task.digest()}" for task in self.tests],
        }


def read_inputs(
    texts: Any,
    data: Any,
    test: Any,
    folder: str | Path | None,
    seed: int,
    columns: Mapping[str, str] | None = None,
) -> Inputs:
    """Check texts and labels before a model is loaded.

    Texts of the tests are removed from the texts, and labels that are also in the data from the tests.

    Raises:
        InputError: too few distinct texts, two data sets with one name, or a test whose labels are all in the data.
        DataError, UnknownNameError: labels that cannot be read.
    """
    tasks = [load_labelled(source, folder, columns=columns).for_choice() for source in _as_list(data)]
    names = [task.name for task in tasks]
    if duplicate := next((name for name in names if names.count(name) > 1), None):
        raise InputError(f"Two data sets have the name {duplicate!r}. Rename a file, or remove one.")
    distinct = dict.fromkeys(mend_surrogates(text) for text in check_texts(texts) if text.strip())
    if columns and not tasks and not _as_list(test):
        raise InputError(NO_TABLE)
    labelled = [item for task in tasks for item in task.read_items()]
    checked = held_out(_as_list(test), folder, labelled, columns)
    notes = [
        f"{left_out} {task.unit} of the test {task.name} are also in the data and are excluded."
        for task, left_out in checked
        if left_out
    ]
    test_texts = frozenset().union(*(_evaluated_texts(task) for task, _ in checked))
    remaining = [text for text in distinct if _normalized(text) not in test_texts]
    if len(remaining) < MIN_TEXTS:
        raise InputError(
            f"Too few texts: {len(remaining)} different ones outside of the tests, at least {MIN_TEXTS} are needed. "
            "Give more, if possible thousands like those to be encoded."
        )
    if removed := len(distinct) - len(remaining):
        notes.append(f"{removed} of the {len(distinct)} texts are also in the tests and are excluded.")
    is_held_out = np.zeros(len(remaining), dtype=bool)
    count = min(MAX_HELD_OUT, round(HELD_OUT * len(remaining)))
    is_held_out[np.random.default_rng(seed).permutation(len(remaining))[:count]] = True
    learned, unlearned = (
        tuple(text for text, held in zip(remaining, is_held_out, strict=True) if held == kind) for kind in (False, True)
    )
    return Inputs(learned, unlearned, tuple(tasks), tuple(task for task, _ in checked), tuple(notes))


def _as_list(sources: Any) -> Sequence[Any]:
    """Return a list of data sets: of one data set, of rows in memory, or the given list of names, files and tasks."""
    if sources is None:
        return []
    is_list = isinstance(sources, (list, tuple)) and all(
        isinstance(source, (str, Path)) or hasattr(source, "score_vectors") for source in sources
    )
    return list(sources) if is_list else [sources]


def _evaluated_texts(task: LabeledTask) -> set[str]:
    """Return the texts of a test without those that only its probe learns from (a training file beside it)."""
    scored, read = (
        {_normalized(text) for item in items for text in item} for items in (task.items(), task.read_items())
    )
    return {_normalized(text) for text in task.texts()} - (read - scored)


def _normalized(text: str) -> str:
    """Normalize a text as `held_out` does: white space and case do not count."""
    return " ".join(text.split()).casefold()


class Metric:
    """Measures any object with `encode`, and compares encoders by labels, or without labels by a criterion.

    Args:
        max_texts, max_test_texts: approximate maximum of the texts that are encoded to measure an encoder, and for the
            tests; labels are sampled to stay below this maximum.
        criterion: the criterion without labels, "" for none. `topics` compares the recipes of a search only; without
            `teacher`, the metric is the agreement with the chosen encoder.
        own: name of the model as it is, the first chosen encoder.

    Attributes:
        notes: sentences about sampled labels.
        measured: the tasks that every encoder is measured on, by the name of their evidence.
        paired_texts: description of the texts of the criterion's pairs.
        by: name of the metric.
        by_agreement: whether scores are agreement with the chosen encoder.
        evidence: figures by "ENCODER/TASK"; names that begin with "reference" are reference recipes of the criterion.
    """

    def __init__(
        self,
        inputs: Inputs,
        seed: int,
        max_texts: int,
        max_test_texts: int,
        *,
        criterion: str = TEACHER,
        own: str = "",
    ) -> None:
        self.seed, self.by_labels, self.own = seed, bool(inputs.tasks), own
        self.tasks = _limited(inputs.tasks, max_texts, seed)
        self.tests = _limited(inputs.tests, max_test_texts, seed)
        self.notes = [
            f"Measured on {smaller.units} of the {task.units} {task.unit} of {task.name}, to save time."
            for task, smaller in zip((*inputs.tasks, *inputs.tests), (*self.tasks, *self.tests), strict=True)
            if smaller.units < task.units
        ]
        self.measured: dict[str, LabeledTask] = {f"data{number}": task for number, task in enumerate(self.tasks)}
        self.by, self.test_name = _name_of(self.tasks), _name_of(self.tests)
        self.by_agreement = not self.by_labels and criterion != TEACHER
        if self.by_agreement:
            self.by = AGREEMENT
        elif not self.by_labels:
            self.by = f"{criterion} (without labels)"
            count = max(min(len(inputs.held_out), max_texts // 3), MIN_PAIRED)
            learned = count - len(inputs.held_out)
            self.paired_texts = (
                f"{count} texts, {learned} of them not held out" if learned > 0 else f"{count} held-out texts"
            )
            self.teacher = Teacher.of([*inputs.held_out, *inputs.texts][:count], (), seed)
            self.measured["pairs"] = PairTask("pairs", tuple(Pair(a, b, 0.0, None) for a, b in self.teacher.pairs))
        self.held_out = list(inputs.held_out[: max(MIN_HELD_OUT, max_texts // 3)])
        pairs = np.random.default_rng(seed).integers(0, len(self.held_out), (2, RANDOM_PAIRS))
        self._random_pairs = pairs[:, pairs[0] != pairs[1]]  # (2,P)
        self.evidence: dict[str, np.ndarray] = {}

    # -- measuring --------------------------------------------------------------------------------------------------

    def measure(self, name: str, encoder: Any, *, tests: bool = True) -> None:
        """Add the evidence of an encoder on labels, held-out texts and tests."""
        tested = {f"test{number}": task for number, task in enumerate(self.tests) if tests}
        for key, task in {**self.measured, **tested}.items():
            self.evidence[f"{name}/{key}"] = np.asarray(task.run(encoder).evidence)
        units = unit_rows(np.asarray(encoder.encode(self.held_out), np.float64))
        first, second = self._random_pairs
        self.evidence[f"{name}/cosines"] = np.einsum("pd,pd->p", units[first], units[second]).astype(np.float32)

    def measure_references(
        self, shell: SentenceTransformer, label: str, fit_texts: list[str], capabilities: ModelCapabilities
    ) -> None:
        """Measure the criterion's reference recipes on a model; do nothing if another metric decides.

        The reference recipes of all tried models are used together. With those of the untrained model alone, every
        trained model would have a lower score, because it agrees less with them.
        """
        pairs = self.measured.get("pairs")
        if pairs is None:
            return
        grids = [STATIC_REFERENCES if capabilities.only_static else REFERENCES]
        if capabilities.causal:
            grids.append(PROMPTED_REFERENCES)
        recipes, _ = Space(tuple(grids), name=REFERENCE).expand(capabilities)
        recipes = with_room(recipes, shell.tokenizer, shell.max_seq_length)
        texts, rows = distinct_texts(pairs.texts())
        bench = Bench(shell, recipes, batch_size=32, progress=False, options={})
        for recipe, vectors in bench.vectors(texts, fit_texts, fit_texts):
            cosines = pairs.evidence(np.asarray(vectors, np.float64), rows.tolist())
            self.evidence[f"{REFERENCE} {label} {recipe}/pairs"] = cosines

    # -- comparing --------------------------------------------------------------------------------------------------

    def score(self, name: str, *, test: bool = False) -> float:
        """Return an encoder's score ×100 by the labels or the criterion, or on the tests, which no choice reads."""
        if test or self.by_labels:
            data_sets = self._scored(name, test)
            return float(np.mean([data_set.scores()[0] for data_set in data_sets]))
        if self.by_agreement:
            return self.agreement(self.own, name)
        return float(100 * self._fitted_teacher().scores(self.evidence[f"{name}/pairs"][None])[0])

    def with_interval(self, name: str, *, test: bool = False) -> tuple[float, float, float]:
        """Return an encoder's score with its 95 % interval, which is NaN for agreement."""
        return (self.score(name, test=test), *interval(self._draws(name, test)))

    def difference(self, first: str, second: str) -> tuple[float, float, float]:
        """Return the first encoder's score minus the second's, with its paired 95 % interval."""
        return self.score(first) - self.score(second), *interval(self._draws(first) - self._draws(second))

    def agreement(self, first: str, second: str) -> float:
        """Return Spearman ×100 between two encoders' cosines of random pairs of held-out texts."""
        cosines, others = (self.evidence[f"{name}/cosines"].astype(np.float64) for name in (first, second))
        return rank_agreement(cosines, others)

    def _draws(self, name: str, test: bool = False) -> np.ndarray:
        """Return an encoder's scores on bootstrap draws of the labels; the draws are the same for all encoders."""
        if test or self.by_labels:
            return np.asarray(draws_of(self._scored(name, test), [name], self.seed)[0])
        if self.by_agreement:
            return np.full(1, np.nan)
        evidence = self.evidence[f"{name}/pairs"]
        return np.asarray(100 * self._fitted_teacher().bootstrap(evidence[None], self.seed, DRAWS)[0])

    def _scored(self, name: str, test: bool) -> list[Scored]:
        kind, tasks = ("test", self.tests) if test else ("data", self.tasks)
        return [
            Scored(task, task.score_names[0], [name], self.evidence[f"{name}/{kind}{number}"][None])
            for number, task in enumerate(tasks)
        ]

    def _fitted_teacher(self) -> Teacher:
        references = [cosines for name, cosines in self.evidence.items() if name.startswith(REFERENCE)]
        return self.teacher.with_reference(np.stack(references))  # (R,P)

    def validation(self) -> LabeledTask | None:
        """Return the labels that select the checkpoint of a training; None without labels.

        The criterion shows whether a training gained, but since its reference recipes are untrained, it would select an
        early checkpoint.
        """
        pairs = [task for task in self.tasks if isinstance(task, PairTask)]
        if len(pairs) == len(self.tasks) > 1:
            return PairTask.joined(pairs)
        return self.tasks[0] if self.tasks else None


def _name_of(tasks: Sequence[LabeledTask]) -> str:
    return " and ".join(f"{task.score_names[0]} of {task.name}" for task in tasks)


def texts_of(tasks: Iterable[LabeledTask]) -> set[str]:
    """Return the distinct texts of tasks."""
    return {text for task in tasks for text in task.texts()}


def _limited(tasks: Sequence[LabeledTask], max_texts: int, seed: int) -> list[LabeledTask]:
    """Return tasks with at most about `max_texts` texts together."""
    size, units = len(texts_of(tasks)), sum(task.units for task in tasks)
    return subsample(tasks, None if size <= max_texts else units * max_texts // size, seed)


def subsample(tasks: Sequence[LabeledTask], units: int | None, seed: int) -> list[LabeledTask]:
    """Return tasks with `units` labels together, drawn at random; a task that would be too small stays whole."""
    total = sum(task.units for task in tasks)
    if units is None or units >= total:
        return list(tasks)
    smaller = []
    for task in tasks:
        dropped = np.ones(task.units, dtype=bool)
        dropped[np.random.default_rng(seed).permutation(task.units)[: max(20, task.units * units // total)]] = False
        try:
            smaller.append(task.without(dropped) if dropped.any() else task)
        except EssentError:  # for example because a class has too few texts
            smaller.append(task)
    return smaller
