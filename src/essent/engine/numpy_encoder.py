"""The base of encoders without torch: arguments of `encode`, prompts, similarities, as in sentence-transformers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, cast

import numpy as np

from essent._core.arguments import TextsLike, check_encode, check_prompt
from essent._core.display import NamesItsModel
from essent._core.lazy import needs_torch
from essent._core.texts import check_texts, distinct_texts, repeat_in_place, require_finite
from essent.errors import InputError
from essent.tasks.calibration import Calibration, calibrated_similarities

MIN_LENGTH = np.float32(1e-12)  # lower limit of the length that a vector is divided by, as in torch
Keep = Callable[[Any, np.ndarray], object]  # row indices or a slice, and their vectors


class NumpyEncoder(ABC, metaclass=NamesItsModel):
    """An encoder with SentenceTransformer's methods and arguments that returns arrays and needs no torch.

    BERTopic and KeyBERT refuse it, since it is no SentenceTransformer; `NamesItsModel` prevents that they load another
    model instead.

    Args:
        prompts: texts by name; "query" and "document" always exist, as in sentence-transformers.
        default_prompt_name: the prompt that `encode` uses by default.
        similarity_fn_name: the similarity that `similarity` computes: cosine (default), dot, euclidean or manhattan.
        truncate_dim: number of dimensions that `encode` returns by default; None returns all.

    Attributes:
        calibration: the map from cosines to calibrated similarities; None without one.
    """

    def __init__(
        self,
        *,
        prompts: Mapping[str, str] | None = None,
        default_prompt_name: str | None = None,
        similarity_fn_name: str | None = None,
        truncate_dim: int | None = None,
    ) -> None:
        self.prompts = {"query": "", "document": "", **(prompts or {})}
        self.default_prompt_name = default_prompt_name
        self.similarity_fn_name = similarity_fn_name or "cosine"
        self.truncate_dim = truncate_dim
        self.calibration: Calibration | None = None

    @property
    @abstractmethod
    def width(self) -> int:
        """The number of dimensions of the vectors before they are truncated."""

    @abstractmethod
    def _compute(self, texts: list[str], batch_size: int, show_progress_bar: bool, keep: Keep) -> None:
        """Compute the vectors (n,width) of distinct texts in any order, and call `keep` with their rows and values."""

    @property
    def dimensions(self) -> int:
        """The number of dimensions D of the vectors."""
        return min(self.width, self.truncate_dim or self.width)

    @property
    def settings(self) -> dict[str, Any]:
        """Prompts, similarity and dimensions, as arguments of SentenceTransformer's __init__."""
        names = ("prompts", "default_prompt_name", "similarity_fn_name", "truncate_dim")
        return {name: getattr(self, name) for name in names}

    def get_embedding_dimension(self) -> int:
        """Return the number of dimensions, by sentence-transformers' name."""
        return self.dimensions

    get_sentence_embedding_dimension = get_embedding_dimension  # up to sentence-transformers 5

    def encode(
        self,
        inputs: str | TextsLike,
        prompt_name: str | None = None,
        prompt: str | None = None,
        batch_size: int = 32,
        show_progress_bar: bool | None = None,
        output_value: str = "sentence_embedding",
        precision: str | None = "float32",
        convert_to_numpy: bool = True,
        convert_to_tensor: bool = False,
        device: str | None = None,
        normalize_embeddings: bool = False,
        *,
        truncate_dim: int | None = None,
    ) -> Any:
        """Return the vectors of texts, in their order: (N,D) float32, (D,) for one str, (0,) for an empty list.

        Each distinct text is computed once. The arguments are SentenceTransformer's.

        Args:
            inputs: a text, or a list or column of texts.
            prompt_name, prompt: prompt to put before every text, by its name in the folder or as text; by default the
                folder's default prompt, as in SentenceTransformer.
            batch_size: number of texts of about 64 tokens per batch; no effect on a static encoder.
            show_progress_bar: show a progress bar.
            output_value: must be "sentence_embedding".
            precision: number format of the result; int8, uint8, binary and ubinary need sentence-transformers.
            convert_to_numpy, convert_to_tensor: return an array, a tensor, or a list of tensors if both are false;
                tensors need torch.
            device: None or "cpu".
            normalize_embeddings: scale vectors to length 1, after they are truncated.
            truncate_dim: return only the first dimensions; by default as many as the folder defines.

        Raises:
            InputError: an input that is not a text, an unknown prompt, or another argument that is not allowed.
            NotFiniteError: a vector has NaN or infinite numbers.
        """
        limit = self.truncate_dim if truncate_dim is None else truncate_dim
        if device not in (None, "cpu"):
            raise InputError(f"device={device!r}: a {type(self).__name__} runs on the CPU. Omit device=.")
        if output_value != "sentence_embedding":
            raise InputError(
                f"output_value={output_value!r:.60}: a {type(self).__name__} computes only sentence vectors. Use an "
                "Encoder for token vectors."
            )
        check_encode(self.prompts, {"batch_size": batch_size, "precision": precision, "truncate_dim": limit})
        before = self.prompt_text(prompt, prompt_name)
        texts = [inputs] if isinstance(inputs, str) else check_texts(inputs)
        prompted = [before + text for text in texts] if before else texts
        distinct, inverse = distinct_texts(prompted)
        vectors = np.empty((len(texts), min(self.width, limit or self.width)), np.float32)

        def keep(rows: Any, computed: np.ndarray) -> None:
            computed = computed[:, :limit]
            vectors[rows] = unit_length(computed) if normalize_embeddings else computed

        if distinct:
            self._compute(distinct, batch_size, bool(show_progress_bar), keep)
        if len(distinct) < len(texts):
            repeat_in_place(vectors, inverse)
        require_finite(vectors, prompted)
        result: Any = vectors if len(vectors) else np.empty(0, np.float32)
        if precision not in ("float32", None) and len(vectors):
            with needs_torch(f"precision={precision!r}"):
                from sentence_transformers.util.quantization import quantize_embeddings

            result = quantize_embeddings(vectors, precision=cast("Any", precision))
        if convert_to_tensor or not convert_to_numpy:
            with needs_torch("A tensor"):
                import torch

            tensor = torch.from_numpy(result)
            result = tensor if convert_to_tensor else list(tensor)
        return result[0] if isinstance(inputs, str) else result

    def prompt_text(self, prompt: str | None = None, prompt_name: str | None = None) -> str:
        """Return the text that `encode` puts before every text: `prompt`, the named prompt, or the default."""
        check_prompt(prompt, prompt_name, self.prompts)
        named = self.prompts.get(prompt_name or self.default_prompt_name or "") or ""
        return named if prompt is None else prompt

    def encode_query(self, inputs: str | TextsLike, **arguments: Any) -> Any:
        """Encode with the prompt "query", unless there is another prompt argument."""
        return self._encode_with("query", inputs, arguments)

    def encode_document(self, inputs: str | TextsLike, **arguments: Any) -> Any:
        """Encode with the prompt "document", unless there is another prompt argument."""
        return self._encode_with("document", inputs, arguments)

    def _encode_with(self, name: str, inputs: str | TextsLike, arguments: dict[str, Any]) -> Any:
        if arguments.get("prompt") is None and arguments.get("prompt_name") is None:
            arguments["prompt_name"] = name if name in self.prompts else None
        return self.encode(inputs, **arguments)

    def similarity(self, embeddings1: Any, embeddings2: Any, *, calibrated: bool = False) -> np.ndarray:
        """Compute the similarity of every vector (N,D) with every other (M,D), by `similarity_fn_name`: (N,M) float32.

        Args:
            embeddings1, embeddings2: the vectors.
            calibrated: return calibrated similarities (float64), see `Encoder.calibrate`.

        Raises:
            InputError: no vectors, or vectors of different dimensions.
            NotFittedError: `calibrated`, but the folder has no calibration.
        """
        return self._compare(embeddings1, embeddings2, calibrated, row_by_row=False)

    def similarity_pairwise(self, embeddings1: Any, embeddings2: Any, *, calibrated: bool = False) -> np.ndarray:
        """Compute the similarity of each vector (N,D) with the same row of the other array: (N,) float32.

        Arguments as in `similarity`.

        Raises:
            InputError: no vectors, or arrays of different shapes.
            NotFittedError: `calibrated`, but the folder has no calibration.
        """
        return self._compare(embeddings1, embeddings2, calibrated, row_by_row=True)

    def _compare(self, embeddings1: Any, embeddings2: Any, calibrated: bool, row_by_row: bool) -> np.ndarray:
        first, second, name = _vector_rows(embeddings1), _vector_rows(embeddings2), self.similarity_fn_name
        if first.shape[1] != second.shape[1] or (row_by_row and len(first) != len(second)):
            raise InputError(f"Cannot compare vectors of the shapes {first.shape} and {second.shape}.")
        if name == "cosine":
            first, second = unit_length(first), unit_length(second)
        if name in ("cosine", "dot"):
            scores = np.einsum("nd,nd->n", first, second) if row_by_row else first @ second.T
        elif row_by_row:
            scores = -np.linalg.norm(first - second, 2 if name == "euclidean" else 1, axis=1)
        else:
            from scipy.spatial.distance import cdist  # imported here since most users need cosines only

            scores = -cdist(first, second, "euclidean" if name == "euclidean" else "cityblock")
        scores = np.asarray(scores, np.float32)
        return calibrated_similarities(self.calibration, scores, name) if calibrated else scores


def unit_length(vectors: np.ndarray) -> np.ndarray:
    """Scale rows (N,D) to length 1; zeros stay zeros."""
    lengths: np.ndarray = np.sqrt(np.einsum("nd,nd->n", vectors, vectors))[:, None]
    scaled: np.ndarray = vectors / np.maximum(lengths, MIN_LENGTH)
    return scaled


def _vector_rows(vectors: Any) -> np.ndarray:
    rows = np.asarray(vectors)
    if rows.ndim not in (1, 2) or rows.dtype.kind not in "fiub":
        raise InputError(f"Expected vectors (N,D) or (D,), got an array of shape {rows.shape} and type {rows.dtype}.")
    return np.atleast_2d(rows).astype(np.float32, copy=False)
