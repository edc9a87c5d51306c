"""What every kind of task shares: texts to encode, each distinct one once, and vectors to score.

    vectors (N,D) ─ evidence (E,) ─ score, of every example or of some of them

Evidence is whatever a score needs and vectors are too large for: the cosines of pairs, the class that a probe gives a
text, the gain of each query. A search keeps it for every recipe; intervals, tests and cross-validation read nothing
else.
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import numpy as np

from essent._core.texts import distinct_texts, require_finite
from essent.errors import InputError
from essent.tasks.resampling import weighted_mean
from essent.tasks.result import Result, library_versions

if TYPE_CHECKING:
    from typing_extensions import Self


Encode = Any  # something with `encode`, or such a function: texts (N) -> vectors (N,D)
Scorer = Callable[[np.ndarray], np.ndarray]  # counts of examples (B,U) -> scores (R,B)
Statistic = Callable[[np.ndarray, np.ndarray], np.ndarray]  # values (U,) and counts (B,U) -> scores (B,)


def prompt_note(prompts: Mapping[str, str]) -> tuple[str, ...]:
    """Which prompts stand before which texts, as a sentence; none where there is no prompt."""
    sentences = [f"{prompt!r} before the {kind}" for kind, prompt in prompts.items() if prompt]
    return (f"The model's prompts are applied: {' and '.join(sentences)}.",) if sentences else ()


@dataclass(frozen=True)
class Task(ABC):
    """A data set with a kind of score: pairs, labels, clusters, minimal pairs, geometry.

    Attributes:
        name: e.g. "sts12" or "stsb.dev".
        source: plain values for the result's provenance: where the data came from.
        notes: sentences that every result carries.
    """

    name: str
    source: Mapping[str, Any] = field(default_factory=dict, kw_only=True)
    notes: tuple[str, ...] = field(default=(), kw_only=True)

    @abstractmethod
    def texts(self) -> list[str]:
        """What `score_vectors` wants vectors of; duplicates kept, what a recipe learns is learned on these."""

    def texts_for(self, prompts: Mapping[str, str], default: str = "") -> list[str]:
        """The texts as a model with prompts wants them: its default prompt stands before each."""
        return [default + text for text in self.texts()]

    def prompts_for(self, prompts: Mapping[str, str], default: str = "") -> dict[str, str]:
        """Which prompt `texts_for` puts before which of the texts."""
        return {"texts": default}

    @abstractmethod
    def _content(self) -> Any:
        """Texts and labels as JSON takes them, for the digest."""

    def digest(self) -> str:
        """SHA-256 of texts and labels: the same for the same rows from whatever file or hub."""
        return hashlib.sha256(json.dumps(self._content(), ensure_ascii=False).encode()).hexdigest()

    def _provenance(self, **protocol: Any) -> dict[str, Any]:
        return {**self.source, **protocol, "sha256": self.digest(), "versions": library_versions()}

    @abstractmethod
    def _measure(self, vectors: np.ndarray, rows: Sequence[int]) -> Result:
        """The scores, from vectors (M,D) float64 of which each of `texts()` has the one that `rows` tells."""

    def run(self, encode: Encode) -> Result:
        """Encode each distinct text once and score.

        Args:
            encode: something with `encode`, or a plain function; gets the list of distinct texts (M), gives (M,D).

        Raises:
            InputError: vectors of another shape, or one that is not finite (the message names its text).
        """
        distinct, rows = distinct_texts(self.texts())
        function: Any = getattr(encode, "encode", encode)  # `.encode` first: a SentenceTransformer is callable too
        return self._measure(as_matrix(function(distinct), distinct), rows.tolist())

    def score_vectors(self, vectors: Any) -> Result:
        """Score ready vectors, one for each of `texts()` in that order.

        Raises:
            InputError: vectors of another shape, or one that is not finite (the message names its text).
        """
        texts = self.texts()
        return self._measure(as_matrix(vectors, texts), range(len(texts)))


@dataclass(frozen=True)
class LabeledTask(Task):
    """A data set of U labelled examples: scored pairs, duplicates, triplets, labelled texts, clusters, queries.

    Class attributes: `kind` (as in "duplicates:FILE"), `unit` (what an example is, in the plural), `examples_in` (the
    field that holds them), `score_names` (what it can be scored by; the first is the main score; ×100, larger is
    better).
    """

    kind: ClassVar[str]
    unit: ClassVar[str]
    examples_in: ClassVar[str]

    def __len__(self) -> int:
        return len(getattr(self, self.examples_in))

    @property
    @abstractmethod
    def score_names(self) -> tuple[str, ...]:
        """What a search can rank by; the first is the main score."""

    @property
    def units(self) -> int:
        """U, how many examples are scored."""
        return len(self)

    @property
    def evidence_size(self) -> int:
        """E."""
        return self.units

    def compared(self) -> np.ndarray | None:
        """Positions in `texts()` (E,2) of the pairs whose cosines are the evidence; None where it takes vectors."""
        return None

    @abstractmethod
    def items(self) -> list[tuple[str, ...]]:
        """The texts of each example that is scored: what two data sets have in common is told by them."""

    def read_items(self) -> list[tuple[str, ...]]:
        """The texts of all examples whose label is read, also where it is only learned from."""
        return self.items()

    def strata(self) -> np.ndarray | None:
        """A number for each example (U,), of which every fold should have its share; None: none."""
        return None

    def without(self, excluded: np.ndarray) -> Self:
        """The task without some of its examples (U,) bool."""
        changes: dict[str, Any] = {self.examples_in: tuple(compress(getattr(self, self.examples_in), ~excluded))}
        return replace(self, **changes)

    def scored_by(self, score: str) -> Self:
        """The task with a score that it can give on demand; "accuracy@8" of labelled texts."""
        return self

    def for_choice(self) -> Self:
        """What of the task recipes may be chosen on: all but a test part."""
        return self

    @abstractmethod
    def evidence(self, vectors: np.ndarray, rows: Sequence[int]) -> np.ndarray:
        """What is kept of one recipe, (E,) float64; vectors (M,D) as in `_measure`, or float32, to be left alone."""

    def working_bytes(self, dimensions: int) -> int:
        """About what `evidence` of vectors with so many dimensions takes in memory, beside them."""
        return 32 * len(self.texts()) * dimensions  # eight float32 copies

    @abstractmethod
    def values(self, evidence: np.ndarray, score: str) -> np.ndarray:
        """What a score is computed of, for each example: (R,U) from evidence (R,E)."""

    def statistic(self, score: str) -> Statistic | None:
        """The score (B,) of values (U,) in draws (B,U); None: their mean ×100."""
        return None

    def scorer(self, evidence: np.ndarray, score: str) -> Scorer:
        """A function from counts of the examples (B,U) to scores (R,B) of recipes whose evidence is (R,E)."""
        values, statistic = self.values(evidence, score), self.statistic(score)
        if statistic is None:
            return lambda counts: 100 * weighted_mean(values, counts)
        return lambda counts: np.stack([statistic(row, counts) for row in values])

    def scores(self, evidence: np.ndarray, score: str = "") -> np.ndarray:
        """Scores ×100 (R,) from the evidence (R,E) of some recipes; NaN where it is undefined."""
        return self.scorer(evidence, score or self.score_names[0])(np.ones((1, self.units)))[:, 0]

    def paired(self, evidence: np.ndarray, score: str) -> tuple[np.ndarray, Scorer] | None:
        """Values (R,U) that two recipes may exchange example by example, and the score (B,) of such values (B,U).

        None: this score has no test by exchange.
        """
        values, statistic, once = self.values(evidence, score), self.statistic(score), np.ones((1, self.units))
        if statistic is None:
            return values, lambda rows: 100 * rows.mean(axis=1)
        return values, lambda rows: np.concatenate([statistic(row, once) for row in rows])

    def _scored(
        self,
        metrics: dict[str, dict[str, float]],
        evidence: np.ndarray,
        notes: Iterable[str] = (),
        subsets: dict[str, dict[str, float]] | None = None,
        **protocol: Any,
    ) -> Result:
        """The result, its main score the first of `score_names`."""
        main, provenance = self.score_names[0], self._provenance(**protocol)
        key = "all" if "all" in metrics[main] else "mean"
        notes = (*self.notes, *notes)
        return Result(self.name, metrics, subsets or {}, self.units, provenance, notes, (main, key), evidence)


def as_matrix(vectors: Any, texts: Sequence[str]) -> np.ndarray:
    """Bring whatever `encode` gave to float64 (N,D), one row a text, all finite."""
    vectors = [_numbers(row) for row in vectors] if isinstance(vectors, (list, tuple)) else _numbers(vectors)
    try:
        matrix = np.asarray(vectors, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"`encode` must give an (N,D) array of numbers, not {type(vectors).__name__}: {error}."
        ) from None
    if matrix.ndim != 2 or len(matrix) != len(texts) or matrix.shape[1] == 0:
        raise InputError(f"`encode` must give one vector a text: expected ({len(texts)}, D), got {matrix.shape}.")
    return np.asarray(require_finite(matrix, texts))


def _numbers(vectors: Any) -> Any:
    """The array of a torch tensor, perhaps bfloat16 and on a GPU: NumPy takes neither."""
    return vectors.detach().cpu().double().numpy() if hasattr(vectors, "detach") else vectors


def unit_rows(matrix: np.ndarray) -> np.ndarray:
    """Scale the rows of (N,D) to length one; a zero row stays zero, so that its cosine with anything is 0."""
    largest, length = lengths_of(matrix)
    return np.asarray(matrix / largest / length)


def lengths_of(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The largest number of each row, and the length of the row divided by it: (N,1) each, 1 where it is 0."""
    largest = np.abs(matrix).max(axis=1, keepdims=True)  # first: squares of 1e200 would overflow
    largest = np.where(largest > 0, largest, 1.0)
    length = np.linalg.norm(matrix / largest, axis=1, keepdims=True)
    return largest, np.where(length > 0, length, 1.0)


# A task; the name or file of one; or scored pairs in memory: a data frame, a data set, rows.
TaskLike: TypeAlias = str | Path | Task | Iterable[Any]
