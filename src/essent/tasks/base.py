"""Base classes of tasks: the texts to encode, each distinct one once, and the scoring of their vectors.

    vectors (N,D) ─ evidence (E,) ─ score of all or some examples

Evidence is the small array from which a score is computed: the cosines of pairs, the class that a probe predicts for a
text, the gain of each query. A search stores it for every recipe, because vectors are too large; intervals, tests and
cross-validation read only the evidence.
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import compress
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import numpy as np

from essent._core.texts import distinct_texts, require_finite
from essent.errors import InputError
from essent.tasks.result import Result, library_versions

if TYPE_CHECKING:
    from typing_extensions import Self


Scorer = Callable[[np.ndarray], np.ndarray]  # counts of examples (B,U) -> scores (R,B)


def prompt_note(prompts: Mapping[str, str]) -> tuple[str, ...]:
    """Return a note that lists the prompts put before texts; no note without prompts."""
    applied = [f"{prompt!r} before the {kind}" for kind, prompt in prompts.items() if prompt]
    return (f"The model's prompts are applied: {' and '.join(applied)}.",) if applied else ()


@dataclass(frozen=True)
class Task(ABC):
    """Base class of tasks: a data set with a way to score vectors of its texts.

    `load_task` returns tasks by name or file.

    Attributes:
        name: e.g. "sts12" or "stsb.dev".
        source: origin of the data, as plain values; part of the result's provenance.
        notes: sentences that are added to every result.

    Example:
        >>> from essent.tasks import Task, load_task
        >>> task = load_task("pairs.jsonl")
        >>> isinstance(task, Task), len(task.texts())
        (True, 240)
    """

    name: str
    source: Mapping[str, Any] = field(default_factory=dict, kw_only=True)
    notes: tuple[str, ...] = field(default=(), kw_only=True)

    @abstractmethod
    def texts(self) -> list[str]:
        """Return the texts in the order of `score_vectors`, with duplicates; recipes are fitted on these texts."""

    def texts_for(self, prompts: Mapping[str, str], default: str = "") -> list[str]:
        """Return the texts for a model with prompts: each with the default prompt before it."""
        return [default + text for text in self.texts()]

    def prompts_for(self, prompts: Mapping[str, str], default: str = "") -> dict[str, str]:
        """Return the prompt that `texts_for` puts before each kind of text."""
        return {"texts": default}

    @abstractmethod
    def _content(self) -> Any:
        """Return texts and labels as JSON values, for the digest."""

    def digest(self) -> str:
        """Return the SHA-256 of texts and labels; the same rows have the same digest in every format."""
        return hashlib.sha256(json.dumps(self._content(), ensure_ascii=False).encode()).hexdigest()

    def _provenance(self, **protocol: Any) -> dict[str, Any]:
        return {**self.source, **protocol, "sha256": self.digest(), "versions": library_versions()}

    @abstractmethod
    def _measure(self, vectors: np.ndarray, rows: Sequence[int]) -> Result:
        """Score vectors (M,D) float64; `rows` contains the row of the vector of each of `texts()`."""

    def run(self, encode: Any, **options: Any) -> Result:
        """Encode each distinct text once and score the vectors.

        Args:
            encode: a model with `encode`, or a function; it receives the list of distinct texts (M) and returns (M,D).
            options: its keyword arguments (batch_size …).

        Raises:
            InputError: vectors of another shape, or a vector that is not finite (the message contains its text).
        """
        function: Any = getattr(encode, "encode", encode)  # `.encode` first: a SentenceTransformer is callable too
        return self._measure(*encode_distinct(partial(function, **options), self.texts()))

    def score_vectors(self, vectors: Any) -> Result:
        """Score precomputed vectors, one per text, in the order of `texts()`.

        Raises:
            InputError: vectors of another shape, or a vector that is not finite (the message contains its text).
        """
        texts = self.texts()
        return self._measure(as_matrix(vectors, texts), range(len(texts)))


@dataclass(frozen=True)
class LabeledTask(Task):
    """Base class of tasks with U labelled examples: pairs, duplicates, triplets, classes, clusters, queries.

    Class attributes: `kind` (as in "duplicates:FILE"), `unit` (the noun for examples, in the plural), `examples_in`
    (the field with the examples), `score_names` (the available scores, ×100, larger is better; the first is the main
    score).

    Example:
        >>> from essent.tasks import load_task
        >>> task = load_task("duplicates.jsonl")
        >>> task.kind, task.units, task.score_names
        ('duplicates', 30, ('average_precision',))
    """

    kind: ClassVar[str]
    unit: ClassVar[str]
    examples_in: ClassVar[str]

    def __len__(self) -> int:
        return len(getattr(self, self.examples_in))

    @property
    @abstractmethod
    def score_names(self) -> tuple[str, ...]:
        """Names of the scores by which a search can rank; the first is the main score."""

    @property
    def units(self) -> int:
        """U, the number of scored examples."""
        return len(self)

    @property
    def evidence_per_unit(self) -> int:
        """Number of values per scored example in the evidence, whose length is evidence_per_unit · U."""
        return 1

    @property
    def evidence_size(self) -> int:
        """E, the length of the evidence of one recipe."""
        return self.units * self.evidence_per_unit

    def compared(self) -> np.ndarray | None:
        """Return positions in `texts()` (E,2) of the pairs whose cosines are the evidence; None if vectors are."""
        return None

    def texts(self) -> list[str]:
        """Return all first texts of `read_items()`, then all second texts (and all third texts), with duplicates.

        Recipes (idf, shaping) are fitted on these texts: on distinct texts, scores differ by up to 1.2 points.
        """
        return [text for side in zip(*self.read_items(), strict=True) for text in side]

    @abstractmethod
    def items(self) -> list[tuple[str, ...]]:
        """Return the texts of each scored example; the overlap of two data sets is computed from them."""

    def read_items(self) -> list[tuple[str, ...]]:
        """Return the texts of all examples whose labels are read, training examples included."""
        return self.items()

    def strata(self) -> np.ndarray | None:
        """Return the stratum of each example (U,) for stratified folds; None without strata."""
        return None

    def without(self, excluded: np.ndarray) -> Self:
        """Return the task without the `excluded` examples (U,) bool."""
        changes: dict[str, Any] = {self.examples_in: tuple(compress(getattr(self, self.examples_in), ~excluded))}
        return replace(self, **changes)

    def for_choice(self) -> Self:
        """Return the task on which recipes may be chosen: without its test part."""
        return self

    @abstractmethod
    def evidence(self, vectors: np.ndarray, rows: Sequence[int]) -> np.ndarray:
        """Compute the evidence (E,) float64 of one recipe.

        Args:
            vectors: (M,D) float64 or float32; must not be modified.
            rows: the row of the vector of each of `texts()`.
        """

    def working_bytes(self, dimensions: int) -> int:
        """Estimate the bytes of memory that `evidence` needs in addition to the vectors."""
        return 32 * len(self.texts()) * dimensions  # eight float32 copies

    def values(self, evidence: np.ndarray, score: str) -> np.ndarray:
        """Return the per-example values (R,U) whose mean is a score, from the evidence (R,E) of R recipes."""
        return evidence

    def scorer(self, evidence: np.ndarray, score: str) -> Scorer:
        """Return a function from counts of the examples (B,U) to scores (R,B), for recipes with evidence (R,E)."""
        values = self.values(evidence, score)
        return lambda counts: 100 * (values @ counts.T / counts.sum(axis=1))

    def scores(self, evidence: np.ndarray, score: str = "") -> np.ndarray:
        """Compute the scores ×100 (R,) of recipes with evidence (R,E); NaN if undefined."""
        return self.scorer(evidence, score or self.score_names[0])(np.ones((1, self.units)))[:, 0]

    def _scored(
        self,
        metrics: dict[str, dict[str, float]],
        evidence: np.ndarray,
        notes: Iterable[str] = (),
        subsets: dict[str, dict[str, float]] | None = None,
        **protocol: Any,
    ) -> Result:
        """Return the result; its main score is the first of `score_names`."""
        main = self.score_names[0], "all" if "all" in metrics[self.score_names[0]] else "mean"
        provenance, notes = self._provenance(**protocol), (*self.notes, *notes)
        return Result(self.name, metrics, subsets or {}, self.units, provenance, notes, main, evidence)


def encode_distinct(encode: Callable[[list[str]], Any], texts: Sequence[str]) -> tuple[np.ndarray, list[int]]:
    """Encode each distinct text once; return the vectors (M,D), and the row of the vector of each text.

    Raises:
        InputError: vectors of another shape, or a vector that is not finite (the message contains its text).
    """
    distinct, rows = distinct_texts(texts)
    return as_matrix(encode(distinct), distinct), rows.tolist()


def as_matrix(vectors: Any, texts: Sequence[str]) -> np.ndarray:
    """Convert the output of `encode` to float64 (N,D), one row per text, all finite."""
    vectors = [_numbers(row) for row in vectors] if isinstance(vectors, (list, tuple)) else _numbers(vectors)
    try:
        matrix = np.asarray(vectors, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"`encode` must return an (N,D) array of numbers, not {type(vectors).__name__}: {error}."
        ) from None
    if matrix.ndim != 2 or len(matrix) != len(texts) or matrix.shape[1] == 0:
        raise InputError(f"`encode` must return one vector per text: expected ({len(texts)}, D), got {matrix.shape}.")
    return np.asarray(require_finite(matrix, texts))


def _numbers(vectors: Any) -> Any:
    """Return a torch tensor as an array; NumPy reads neither bfloat16 nor GPU tensors."""
    return vectors.detach().cpu().double().numpy() if hasattr(vectors, "detach") else vectors


def unit_rows(matrix: np.ndarray) -> np.ndarray:
    """Scale the rows of (N,D) to unit length; a zero row stays zero, so that its cosine with any vector is 0."""
    largest = np.abs(matrix).max(axis=1, keepdims=True)  # divided out first: squares of 1e200 would overflow
    scaled = matrix / np.where(largest > 0, largest, 1.0)
    lengths = np.linalg.norm(scaled, axis=1, keepdims=True)  # at least 1, and 0 of a zero row
    return np.asarray(scaled / np.maximum(lengths, 1.0))


# A task, its name or file, or labelled data in memory: a data frame, a `datasets.Dataset`, rows.
TaskLike: TypeAlias = str | Path | Task | Iterable[Any]
