"""Run a saved static encoder without torch: texts ─ ids by word ─ one sparse product of counts and rows ─ vectors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from essent._core.arguments import check_path, check_prompt, check_size
from essent._core.folders.contents import read_settings
from essent._core.lazy import check_torch
from essent._core.texts import check_texts, require_finite
from essent._core.types import NamesItsModel, TextsLike
from essent.errors import DamagedError, InputError, MissingDependencyError, ModelError
from essent.recipe.tokens.by_word import SEPARATORS, Ragged, WordIds, cut, tokenizes_words_separately, whole_ids
from essent.recipe.tokens.ids import read_ids
from essent.static.stored import StoredTable, read_table
from essent.tasks.calibration import Calibration, calibrated_similarities, read_calibration

MIN_LENGTH = np.float32(1e-12)  # lower limit of the length that a vector is divided by, as in torch
MAX_TEXTS, MAX_CHARACTERS = 4096, 1_000_000  # per portion of texts; this bounds the memory
FEW_TEXTS, FEW_TOKENS = 8, 4096  # maximum texts and tokens whose sums are computed without scipy


class StaticEncoder(metaclass=NamesItsModel):
    """Encoder for static models that needs only NumPy and SciPy: no torch, fast start, little memory.

    Its vectors equal those of `Encoder(folder)`. It loads the tables that `essent distill` and `Encoder.save` write,
    sentence-transformers' `StaticEmbedding` with or without Normalize, and model2vec's folders. Several threads may
    encode at the same time.

    Args:
        table: the table and its tokenizer; `load` reads them from a folder.
        similarity_fn_name: the similarity that `similarity` computes: cosine (default), dot, euclidean or manhattan.
        truncate_dim: number of dimensions that `encode` returns by default; None returns all.

    Example:
        >>> from essent import StaticEncoder, distill
        >>> path = distill("my-mlm", ["A short text.", "Another short text."], dimensions=8).encoder.save("my-static")
        >>> encoder = StaticEncoder.load("my-static")
        >>> encoder
        StaticEncoder(... rows of float32, dimensions=8, normalized)
        >>> encoder.encode(["A short text."]).shape
        (1, 8)
    """

    def __init__(
        self, table: StoredTable, *, similarity_fn_name: str | None = None, truncate_dim: int | None = None
    ) -> None:
        self.table = table
        self.similarity_fn_name = similarity_fn_name or "cosine"
        self.truncate_dim = truncate_dim
        self.calibration: Calibration | None = None
        self.prompts = {"query": "", "document": "", **table.prompts}  # sentence-transformers always has these two
        self.default_prompt_name = table.prompt_name
        self._tokenize = partial(read_ids, table.tokenizer)
        self._by_word = WordIds(self._tokenize, *_rare(table)) if tokenizes_words_separately(table.tokenizer) else None

    @classmethod
    def load(cls, folder: str | Path) -> StaticEncoder:
        """Load a static encoder from a folder.

        Raises:
            ModelError: no such folder, another kind of model, or files that are missing, damaged or inconsistent.
        """
        folder = Path(check_path(folder, "folder"))
        table, settings = read_table(folder), read_settings(folder)
        encoder = cls(
            table, similarity_fn_name=settings.get("similarity_fn_name"), truncate_dim=settings.get("truncate_dim")
        )
        encoder.calibration = read_calibration(folder)
        return encoder

    @property
    def dimensions(self) -> int:
        """The number of dimensions D of the vectors."""
        width = int(self.table.rows.shape[1])
        return min(width, self.truncate_dim or width)

    def get_embedding_dimension(self) -> int:
        """Return the number of dimensions, by sentence-transformers' name."""
        return self.dimensions

    get_sentence_embedding_dimension = get_embedding_dimension  # up to sentence-transformers 5

    def __repr__(self) -> str:
        rows, scaled = self.table.rows, ", normalized" if self.table.unit else ""
        return f"StaticEncoder({len(rows)} rows of {rows.dtype}, dimensions={self.dimensions}{scaled})"

    def encode(
        self,
        inputs: str | TextsLike,
        *,
        prompt_name: str | None = None,
        prompt: str | None = None,
        batch_size: int = 32,
        show_progress_bar: bool | None = None,
        convert_to_numpy: bool = True,
        convert_to_tensor: bool = False,
        normalize_embeddings: bool = False,
        truncate_dim: int | None = None,
    ) -> np.ndarray:
        """Return the vectors of texts, in their order: (N,D) float32, (D,) for one str, (0,) for an empty list.

        The vector of a text does not depend on the other texts. A text without tokens has a vector of zeros, or the
        vector that the saved recipe gives it. The arguments are SentenceTransformer's.

        Args:
            inputs: a text, or a list or column of texts.
            prompt_name, prompt: prompt to put before every text, by its name in the folder or as text; by default the
                folder's default prompt, as in SentenceTransformer.
            batch_size: has no effect: there is no padding.
            show_progress_bar: show a progress bar.
            convert_to_numpy, convert_to_tensor: must be True and False; tensors need torch.
            normalize_embeddings: scale vectors to length 1, after they are truncated.
            truncate_dim: return only the first dimensions; by default as many as the folder defines.

        Raises:
            InputError: an input that is not a text, an unknown prompt, or another argument that is not allowed.
        """
        if convert_to_tensor or not convert_to_numpy:
            raise InputError("StaticEncoder returns NumPy arrays only. Use torch.from_numpy(vectors) for a tensor.")
        limit = self.truncate_dim if truncate_dim is None else truncate_dim
        check_size(batch_size, "batch_size")
        if limit is not None:
            check_size(limit, "truncate_dim")
        check_prompt(prompt, prompt_name, self.prompts)
        texts = [inputs] if isinstance(inputs, str) else check_texts(inputs)
        before = self.prompts.get(prompt_name or self.default_prompt_name or "", "") if prompt is None else prompt
        prompted = [before + text for text in texts] if before else texts
        vectors = np.empty((len(texts), self.table.rows[:, :limit].shape[1]), np.float32)
        portions: Iterable[tuple[int, int]] = _portions(prompted)
        if show_progress_bar:
            from tqdm.auto import tqdm

            portions = tqdm(list(portions), desc="Batches")
        for start, stop in portions:
            means = self.means(self.ids(prompted[start:stop]))[:, :limit]
            vectors[start:stop] = _unit(means) if normalize_embeddings else means
        require_finite(vectors, prompted)
        if isinstance(inputs, str):
            vector: np.ndarray = vectors[0]
            return vector
        return vectors if len(vectors) else np.empty(0, np.float32)

    def encode_query(self, inputs: str | TextsLike, **arguments: Any) -> np.ndarray:
        """Encode with the prompt "query", unless there is another prompt argument."""
        return self._encode_with(("query",), inputs, arguments)

    def encode_document(self, inputs: str | TextsLike, **arguments: Any) -> np.ndarray:
        """Encode with the prompt "document", unless there is another prompt argument."""
        return self._encode_with(("document", "passage", "corpus"), inputs, arguments)

    def _encode_with(self, names: tuple[str, ...], inputs: str | TextsLike, arguments: dict[str, Any]) -> np.ndarray:
        """Encode with the first of the named prompts that exists, unless there is another prompt argument."""
        if arguments.get("prompt") is None and arguments.get("prompt_name") is None:
            arguments["prompt_name"] = next((name for name in names if name in self.prompts), None)
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
            first, second = _unit(first), _unit(second)
        if name in ("cosine", "dot"):
            scores = np.einsum("nd,nd->n", first, second) if row_by_row else first @ second.T
        elif row_by_row:
            difference = first - second
            is_euclidean = name == "euclidean"
            scores = -(
                np.sqrt(np.einsum("nd,nd->n", difference, difference)) if is_euclidean else abs(difference).sum(1)
            )
        else:
            from scipy.spatial.distance import cdist  # imported here since most users need cosines only

            scores = -cdist(first, second, "euclidean" if name == "euclidean" else "cityblock")
        scores = np.asarray(scores, np.float32)
        return calibrated_similarities(self.calibration, scores, name) if calibrated else scores

    def ids(self, texts: list[str]) -> Ragged:
        """Return the concatenated ids of one or more texts, without prompts, and the number of ids per text."""
        table = self.table
        ids, lengths = whole_ids(self._tokenize, texts) if self._by_word is None else self._by_word(texts)
        if table.dropped is not None:
            present = ids != table.dropped
            if not present.all():
                before = np.concatenate([[0], np.cumsum(present)])  # remaining ids before each position
                ends = np.cumsum(lengths)
                ids, lengths = ids[present], before[ends] - before[ends - lengths]
        return (ids, lengths) if table.limit is None else cut(ids, lengths, table.limit, table.cuts_left)

    def means(self, ragged: Ragged) -> np.ndarray:
        """Return the mean of each text's rows, scaled to length 1 if the table is normalized: (n,D) float32."""
        ids, lengths = ragged
        table = self.table
        weights = np.ones(len(ids), np.float32) if table.weights is None else table.weights[ids]
        row_numbers = ids if table.mapping is None else table.mapping[ids]
        rows = table.rows
        if rows.dtype != np.float32:  # only rows that occur are converted to float32, the type of sums
            occurs = np.zeros(len(rows), bool)
            occurs[row_numbers] = True
            rows, row_numbers = rows[occurs].astype(np.float32), (np.cumsum(occurs, dtype=np.int32) - 1)[row_numbers]
        starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
        vectors = _sums(weights, row_numbers, starts, rows)
        vectors /= np.maximum(lengths, 1).astype(np.float32)[:, None]
        if table.empty is not None:
            vectors[lengths == 0] = table.empty
        return _unit(vectors) if table.unit else vectors


def static_of(model: str | Path) -> StaticEncoder | None:
    """Return the StaticEncoder of a static folder, which needs no torch; None for any other model.

    Raises:
        DamagedError: the folder is damaged.
        MissingDependencyError: another model, and torch is not installed; explains why StaticEncoder cannot load it.
    """
    try:
        return StaticEncoder.load(model)
    except DamagedError:
        raise
    except ModelError as refused:
        try:
            check_torch("Every other model")
        except MissingDependencyError as missing:
            raise MissingDependencyError(f"{refused} {missing}") from refused
        return None


def _sums(weights: np.ndarray, row_numbers: np.ndarray, starts: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Return the weighted sum of each text's rows: (n,D) float32; `starts` has the index of each text's first token.

    A few short texts are summed without scipy, whose import takes longer than the rest of the program's start.
    """
    count = len(starts) - 1
    if count > FEW_TEXTS or len(row_numbers) > FEW_TOKENS:
        from scipy import sparse

        return np.asarray(sparse.csr_matrix((weights, row_numbers, starts), shape=(count, len(rows))) @ rows)
    sums = np.zeros((count, rows.shape[1]), np.float32)
    for text, (start, stop) in enumerate(pairwise(starts.tolist())):  # token after token, as in the sparse product
        np.sum(rows[row_numbers[start:stop]] * weights[start:stop, None], axis=0, out=sums[text])
    return sums


def _unit(vectors: np.ndarray) -> np.ndarray:
    """Scale rows (N,D) to length 1; zeros stay zeros."""
    lengths: np.ndarray = np.sqrt(np.einsum("nd,nd->n", vectors, vectors))[:, None]
    scaled: np.ndarray = vectors / np.maximum(lengths, MIN_LENGTH)
    return scaled


def _vector_rows(vectors: Any) -> np.ndarray:
    rows = np.asarray(vectors)
    if rows.ndim not in (1, 2) or rows.dtype.kind not in "fiub":
        raise InputError(f"Expected vectors (N,D) or (D,), got an array of shape {rows.shape} and type {rows.dtype}.")
    return np.atleast_2d(rows).astype(np.float32, copy=False)


def _portions(texts: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Yield (start, stop) of portions with at most MAX_TEXTS and MAX_CHARACTERS; a longer text is a portion alone."""
    ends = np.cumsum(np.fromiter(map(len, texts), np.int64, len(texts)))  # characters up to the end of each text
    start = 0
    while start < len(texts):
        before = ends[start - 1] if start else 0
        fitting = int(np.searchsorted(ends, before + MAX_CHARACTERS, "right"))
        stop = min(max(fitting, start + 1), start + MAX_TEXTS, len(texts))
        yield start, stop
        start = stop


def _rare(table: StoredTable) -> tuple[list[str], int | None]:
    """Return the separators and the unknown token's id for `WordIds`."""
    backend = table.tokenizer
    tokens = [backend.id_to_token(index) for index in range(max(table.tokens - 16, 0), table.tokens)]
    words = [token.removeprefix("##").removeprefix("▁") for token in tokens if token]
    unknown = getattr(backend.model, "unk_token", None)
    return [*SEPARATORS, *filter(None, words)], None if unknown is None else backend.token_to_id(unknown)
