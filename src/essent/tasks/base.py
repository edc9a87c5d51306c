"""What every kind of task shares: texts to encode, each distinct one once, and vectors to score."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeAlias

import numpy as np

from essent._core.texts import distinct_texts, require_finite
from essent.errors import InputError
from essent.tasks.result import Result

ROWS = 4096  # converted at a time


class HasEncode(Protocol):
    """Anything with `encode`: an essent Encoder, a SentenceTransformer."""

    def encode(self, texts: list[str], /) -> Any:
        """Turn N texts into an (N,D) array or tensor."""


Encode = HasEncode | Callable[[list[str]], Any]


def prompt_note(prompts: Mapping[str, str]) -> tuple[str, ...]:
    """Which prompts stand before which texts, as a sentence; none where there is no prompt."""
    shown = [f"{prompt!r} before the {kind}" for kind, prompt in prompts.items() if prompt]
    return (f"The model's prompts are applied: {' and '.join(shown)}.",) if shown else ()


class Task(ABC):
    """A data set with a kind of score: pairs, labels, clusters, minimal pairs, geometry.

    Attributes:
        name: e.g. "sts12" or "stsb.dev".
        has_main: whether its results have one main score.
    """

    name: str
    has_main: ClassVar[bool] = True

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
        # `.encode` first: a SentenceTransformer is callable too, as a torch module
        function: Any = getattr(encode, "encode", encode)
        return self._measure(as_matrix(function(distinct), distinct), rows.tolist())

    def score_vectors(self, vectors: Any) -> Result:
        """Score ready vectors, one for each of `texts()` in that order.

        Raises:
            InputError: vectors of another shape, or one that is not finite (the message names its text).
        """
        texts = self.texts()
        return self._measure(as_matrix(vectors, texts), range(len(texts)))


def as_matrix(vectors: Any, texts: Sequence[str]) -> np.ndarray:
    """Bring whatever `encode` gave to float64 (N,D), one row a text, all finite."""
    if hasattr(vectors, "detach"):  # a torch tensor, perhaps bfloat16 and on a GPU: NumPy takes neither
        vectors = vectors.detach().cpu().double().numpy()
    elif isinstance(vectors, (list, tuple)) and vectors and hasattr(vectors[0], "detach"):
        vectors = [vector.detach().cpu().double().numpy() for vector in vectors]
    try:
        matrix = np.asarray(vectors, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"`encode` must give an (N,D) array of numbers, not {type(vectors).__name__}: {error}."
        ) from None
    if matrix.ndim != 2 or len(matrix) != len(texts) or matrix.shape[1] == 0:
        raise InputError(f"`encode` must give one vector a text: expected ({len(texts)}, D), got {matrix.shape}.")
    checked: np.ndarray = require_finite(matrix, texts)
    return checked


def unit_rows(matrix: np.ndarray) -> np.ndarray:
    """Scale the rows of (N,D) to length one; a zero row stays zero, so that its cosine with anything is 0."""
    largest, length = _lengths(matrix)
    units: np.ndarray = matrix / largest / length
    return units


def _lengths(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The largest number of each row, and the length of the row divided by it: (N,1) each, 1 where it is 0."""
    largest = np.abs(matrix).max(axis=1, keepdims=True)  # first: squares of 1e200 would overflow
    largest = np.where(largest > 0, largest, 1.0)
    length = np.linalg.norm(matrix / largest, axis=1, keepdims=True)
    return largest, np.where(length > 0, length, 1.0)


class UnitRows:
    """Rows of (N,D) scaled to length one, float64, made when they are asked for: all of them are large.

    Args:
        vectors: floats of any width; they are not copied.
    """

    def __init__(self, vectors: np.ndarray) -> None:
        self.vectors, self.width = vectors, vectors.shape[1]
        parts = [_lengths(self._rows(slice(at, at + ROWS))) for at in range(0, len(vectors), ROWS)]
        self._largest, self._length = (np.concatenate(found) for found in zip(*parts, strict=True))  # (N,1)

    def _rows(self, where: slice | np.ndarray) -> np.ndarray:
        return np.asarray(self.vectors[where], np.float64)

    def __getitem__(self, rows: np.ndarray) -> np.ndarray:
        """Some rows, (n,D)."""
        found: np.ndarray = self._rows(rows) / self._largest[rows] / self._length[rows]
        return found


# A task; the name or file of one; or scored pairs in memory: a data frame, a data set, rows.
TaskLike: TypeAlias = str | Path | Task | Iterable[Any]
