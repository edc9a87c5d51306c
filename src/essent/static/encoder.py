"""Read and run a saved static encoder without torch.

texts ─ ids by word ─ one sparse product of counts and rows ─ vectors
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors import SafetensorError, safe_open
from tokenizers import Tokenizer

from essent._core.arguments import check_path
from essent._core.atomic import recover
from essent._core.folders.check import check_model
from essent._core.folders.contents import is_exported_folder, read_settings, saved_settings
from essent._core.folders.files import read_json
from essent._core.lazy import check_torch
from essent._core.machine import AUTO
from essent.engine.numpy_encoder import Keep, NumpyEncoder, unit_length
from essent.errors import DamagedError, InputError, ModelError
from essent.recipe.reading import Reading
from essent.recipe.tokens import Frame, read_ids, unknown_token
from essent.recipe.words import SEPARATORS, Ragged, WordIds, cut, tokenizes_words_separately, whole_ids
from essent.tasks.calibration import read_calibration

if TYPE_CHECKING:
    from essent.recipe.recipe import Recipe

MAX_TEXTS, MAX_CHARACTERS = 4096, 1_000_000  # per portion of texts; this bounds the memory
FEW_TEXTS, FEW_TOKENS = 8, 4096  # maximum texts and tokens whose sums are computed without scipy
STORED_TYPES = (np.dtype(np.float32), np.dtype(np.float16), np.dtype(np.int8))  # others become float32
NAMES = ("embedding.weight", "embeddings")  # names of the array of rows: sentence-transformers', model2vec's


@dataclass(frozen=True)
class StoredTable:
    """Contents of the folder of a static encoder.

    The vector of the token t is rows[mapping[t]]·weights[t]; without mapping and weights it is rows[t].

    Attributes:
        rows: (R,D), finite; float32, float16 or int8.
        tokenizer: the tokenizer, without truncation and padding.
        tokens: the tokenizer's number of ids V; the ids are 0 … V-1.
        mapping, weights: (V,) int32 and float32, or None.
        unit: whether means are scaled to length 1.
        dropped: the id of the unknown token, if it is removed from every text as in model2vec; otherwise None.
        limit, cuts_left: maximum number of tokens per text, and whether longer texts are truncated on the left.
        empty: the vector (D,) of a text without tokens; None means zeros.
    """

    rows: np.ndarray
    tokenizer: Tokenizer
    tokens: int
    mapping: np.ndarray | None = None
    weights: np.ndarray | None = None
    unit: bool = False
    dropped: int | None = None
    limit: int | None = None
    cuts_left: bool = False
    empty: np.ndarray | None = None


class StaticEncoder(NumpyEncoder):
    """Encoder for static models that needs only NumPy and SciPy: no torch, fast start, little memory.

    Its vectors equal those of `Encoder(folder)`. It loads the tables that `essent distill` and `Encoder.save` write,
    sentence-transformers' `StaticEmbedding` with or without Normalize, and model2vec's folders. Several threads may
    encode at the same time.

    Args:
        table: the table and its tokenizer; `load` reads them from a folder.
        settings: prompts, default_prompt_name, similarity_fn_name and truncate_dim, as in SentenceTransformer.

    Example:
        >>> from essent import StaticEncoder, distill
        >>> path = distill("my-mlm", ["A short text.", "Another short text."], dimensions=8).encoder.save("my-static")
        >>> encoder = StaticEncoder.load("my-static")
        >>> encoder
        StaticEncoder(... rows of float32, dimensions=8, normalized)
        >>> encoder.encode(["A short text."]).shape
        (1, 8)
    """

    def __init__(self, table: StoredTable, **settings: Any) -> None:
        super().__init__(**settings)
        self.table = table
        self._tokenize = partial(read_ids, table.tokenizer)
        self._by_word = WordIds(self._tokenize, *_rare(table)) if tokenizes_words_separately(table.tokenizer) else None

    @classmethod
    def load(cls, folder: str | Path) -> StaticEncoder:
        """Load a static encoder from a folder.

        Raises:
            ModelError: no such folder, another kind of model, or files that are missing, damaged or inconsistent.
        """
        folder = Path(check_path(folder, "folder"))
        table, config = read_table(folder), read_settings(folder)
        settings = saved_settings(config)
        if (folder / "modules.json").is_file():
            settings["prompts"] = {name: text or "" for name, text in (config.get("prompts") or {}).items()}
        else:  # model2vec has no prompts
            settings |= {"prompts": None, "default_prompt_name": None}
        encoder = cls(table, **settings)
        encoder.calibration = read_calibration(folder)
        return encoder

    @property
    def width(self) -> int:
        """The number of dimensions of the table."""
        return int(self.table.rows.shape[1])

    @property
    def reading(self) -> Reading:
        """The conversion of texts to ids, as servers use it."""
        table = self.table
        dropped = () if table.dropped is None else (table.dropped,)
        return Reading(table.tokenizer.to_str(), Frame((), ()), table.limit, table.cuts_left, dropped)

    def __repr__(self) -> str:
        rows, scaled = self.table.rows, ", normalized" if self.table.unit else ""
        return f"StaticEncoder({len(rows)} rows of {rows.dtype}, dimensions={self.dimensions}{scaled})"

    def _compute(self, texts: list[str], batch_size: int, show_progress_bar: bool, keep: Keep) -> None:
        """Compute the texts in portions; there is no padding, and a vector does not depend on the other texts."""
        portions: Iterable[tuple[int, int]] = _portions(texts)
        if show_progress_bar:
            from tqdm.auto import tqdm

            portions = tqdm(list(portions), desc="Batches")
        for start, stop in portions:
            keep(slice(start, stop), self.means(self.ids(texts[start:stop])))

    def ids(self, texts: list[str]) -> Ragged:
        """Return the concatenated ids of one or more texts, without prompts, and the number of ids per text."""
        table = self.table
        ids, lengths = whole_ids(self._tokenize, texts) if self._by_word is None else self._by_word(texts)
        if table.dropped is not None and (absent := ids == table.dropped).any():
            owner = np.repeat(np.arange(len(lengths)), lengths)
            ids, lengths = ids[~absent], lengths - np.bincount(owner[absent], minlength=len(lengths))
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
        return unit_length(vectors) if table.unit else vectors


def open_encoder(
    model: str | Path,
    precision: str = AUTO,
    recipe: Recipe | str | None = None,
    *,
    options: Mapping[str, Any] | None = None,
    learns: bool = False,
    threads: int | None = None,
    before_torch: Callable[[], object] = lambda: None,
) -> Any:
    """Open a folder or a name on the hub: a StaticEncoder or a saved graph, which need no torch, or a model in torch.

    With a precision, a recipe, options or texts to learn from, a folder that is no graph is a model in torch: an
    Encoder, or a SentenceTransformer if no recipe describes its modules.

    Args:
        options: device, revision and trust_remote_code of a model in torch.
        learns: whether the recipe is fitted on given texts.
        threads: number of threads of a graph.
        before_torch: called before a model in torch is loaded.

    Raises:
        DamagedError, ModelError: it cannot be loaded. InputError: options of a saved graph.
        EngineError: a graph of another precision, or a machine that lacks it.
        MissingDependencyError: torch is not installed; explains why StaticEncoder cannot load the model.
    """
    from essent.engine.files import computing_in, load

    name, needed_by = str(model), f"The model {str(model)!r}"
    if recipe is None and is_exported_folder(name):
        if options:
            raise InputError(f"{name!r} is a saved graph, which takes no {' or '.join(options)}.")
        return computing_in(load(name, threads=threads), precision)
    if precision == AUTO and not (recipe or learns or options):
        try:
            return StaticEncoder.load(name)
        except DamagedError:
            raise
        except ModelError as refused:
            needed_by = f"{refused} Every other model"
    check_torch(needed_by)
    before_torch()
    from essent.encoder.encoder import Encoder, open_as_it_is

    encoder: Any = Encoder(name, recipe, **(options or {})) if recipe else open_as_it_is(name, dict(options or {}))
    return computing_in(encoder, precision, shared=False)


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


# -- the folder --------------------------------------------------------------------------------------------------------


def read_table(folder: Path) -> StoredTable:
    """Read the folder of a StaticEmbedding, with or without Normalize, or of model2vec.

    Raises:
        ModelError: no such folder, another kind of model, or files that are missing, damaged or inconsistent.
    """
    recover(folder)
    if not folder.is_dir():
        raise ModelError(
            f"No such folder: {str(folder)!r}. StaticEncoder loads local folders; use essent.Encoder for hub names."
        )
    check_model(str(folder), {})
    modules, table_folder = read_json(folder / "modules.json", list), folder
    if modules is None:
        config = read_json(folder / "config.json") or {}
        if config.get("model_type") != "model2vec" and "StaticModel" not in (config.get("architectures") or ()):
            raise _unsupported(
                folder, "not a static encoder: it has no modules.json, and its config.json is not model2vec's"
            )
        normalized = bool(config.get("normalize"))
    else:
        _require_static(folder, modules)
        table_folder, normalized = folder / str(modules[0].get("path", "")), len(modules) > 1
    try:
        tokenizer = Tokenizer.from_file(str(table_folder / "tokenizer.json"))
    except Exception as error:  # tokenizers raises the bare class
        raise ModelError(f"Cannot read the tokenizer {table_folder / 'tokenizer.json'}: {error}") from error
    unknown = unknown_token(tokenizer) if modules is None else None  # model2vec removes it, StaticEmbedding counts it
    truncation = tokenizer.truncation or {}
    tokenizer.no_padding()
    tokenizer.no_truncation()
    tokens = 1 + max(tokenizer.get_vocab(with_added_tokens=True).values(), default=-1)
    rows, mapping, weights = _read_arrays(folder, table_folder / "model.safetensors", tokens)
    return StoredTable(
        rows,
        tokenizer,
        tokens,
        mapping,
        weights,
        unit=normalized,
        dropped=None if unknown is None else tokenizer.token_to_id(unknown),
        limit=int(truncation["max_length"]) if truncation else None,
        cuts_left=str(truncation.get("direction")).lower() == "left",
        empty=None if modules is None else _read_empty_text_vector(folder, rows.shape[1]),
    )


def _unsupported(folder: Path, problem: str) -> ModelError:
    return ModelError(
        f"{str(folder)!r} is {problem}. StaticEncoder loads the output of essent distill, sentence-transformers' "
        "StaticEmbedding with or without Normalize, and model2vec's folders. Load other models with "
        f"essent.Encoder({str(folder)!r})."
    )


def _require_static(folder: Path, modules: list[dict[str, Any]]) -> None:
    """Raise ModelError unless the modules are StaticEmbedding and possibly Normalize, of sentence embeddings."""
    kinds = [str(module.get("type", "")).rpartition(".")[2] for module in modules]
    if kinds[:1] != ["StaticEmbedding"] or set(kinds[1:]) - {"Normalize"}:
        raise _unsupported(folder, f"a model of {' and '.join(kinds) or 'no modules'}")
    for module in modules[1:]:
        names = read_json(folder / str(module.get("path", "")) / "config.json") or {}
        if set(names.values()) - {"sentence_embedding", None}:
            raise _unsupported(folder, f"a model whose Normalize works on {names}")


def _read_arrays(folder: Path, path: Path, tokens: int) -> tuple[np.ndarray, np.ndarray | None, np.ndarray | None]:
    """Return rows, mapping and weights, after checking that every id has a row and that all values are finite."""
    if not path.is_file():
        raise _unsupported(folder, f"without {path.name} in {str(path.parent)!r}")
    tensors = _read_tensors(path, (*NAMES, "mapping", "weights"))
    name = next((name for name in NAMES if name in tensors), None)
    if name is None:
        raise ModelError(f"{path} contains no table of token vectors, named {' or '.join(NAMES)}.")
    rows, mapping, weights = tensors[name], tensors.get("mapping"), tensors.get("weights")
    if rows.ndim != 2 or 0 in rows.shape:
        raise ModelError(f"{path}: the table of token vectors must have the shape (V,D), got {rows.shape}.")
    if rows.dtype not in STORED_TYPES:
        rows = rows.astype(np.float32)
    if name == NAMES[0]:  # a StaticEmbedding ignores both
        mapping = weights = None
    weights = None if weights is None else weights.astype(np.float32)
    by_token = {"rows": rows if mapping is None else None, "entries of mapping": mapping, "weights": weights}
    for kind, array in by_token.items():
        if array is not None and len(array) < tokens:
            raise ModelError(
                f"{str(folder)!r}: the tokenizer has ids up to {tokens - 1}, but the table only {len(array)} {kind}. "
                "They do not belong together."
            )
        if array is not None and kind != "rows" and array.ndim != 1:
            raise ModelError(f"{str(folder)!r}: {kind} must have the shape (V,), got {array.shape}.")
    if mapping is not None and not 0 <= mapping.min() <= mapping.max() < len(rows):
        raise ModelError(
            f"{str(folder)!r}: mapping contains rows {mapping.min()} to {mapping.max()}: must be 0 to {len(rows) - 1}."
        )
    for kind, array in (("vectors", rows), ("weights", weights)):
        if array is not None and array.dtype != np.int8 and not np.isfinite([array.min(), array.max()]).all():
            bad = int(np.flatnonzero(~np.isfinite(array.reshape(len(array), -1)).all(axis=1))[0])
            raise ModelError(f"{str(folder)!r}: token {kind} contain NaN or infinite values, first in row {bad}.")
    return rows, None if mapping is None else mapping.astype(np.int32), weights


def _read_empty_text_vector(folder: Path, dimensions: int) -> np.ndarray | None:
    """Return the vector of a text without tokens, if essent saved the folder."""
    path = folder / "essent" / "state.safetensors"
    vector = _read_tensors(path, ("empty",)).get("empty") if path.is_file() else None
    if vector is not None and (vector.shape != (dimensions,) or not np.issubdtype(vector.dtype, np.floating)):
        raise ModelError(
            f"{str(folder)!r}: the vector of a text without tokens must be ({dimensions},) floats like the others, got "
            f"{vector.shape} {vector.dtype}."
        )
    if vector is not None and not np.isfinite(vector).all():
        raise ModelError(f"{str(folder)!r}: the vector of a text without tokens contains NaN or infinite values.")
    return vector


def _read_tensors(path: Path, names: tuple[str, ...]) -> dict[str, np.ndarray]:
    """Return those of the named arrays that a file contains."""
    try:
        with safe_open(path, framework="numpy") as file:
            return {name: file.get_tensor(name) for name in set(file.keys()).intersection(names)}
    except (SafetensorError, OSError, TypeError, ValueError) as error:  # TypeError: a type that NumPy lacks (bfloat16)
        raise ModelError(f"Cannot read {path} without torch: {error}. Try essent.Encoder.") from error
