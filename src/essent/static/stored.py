"""Read the folder of a static encoder without torch: rows, token weights, tokenizer, normalization."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from tokenizers import Tokenizer

from essent._core.atomic import recover
from essent._core.folders.check import check_model
from essent._core.folders.contents import read_settings
from essent._core.folders.files import read_json
from essent.errors import ModelError
from essent.recipe.tokens.ids import unknown_token

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
        prompts, prompt_name: the prompts, and the name of the default prompt.
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
    prompts: dict[str, str] = field(default_factory=dict)
    prompt_name: str | None = None


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
    modules, table_folder, settings = read_json(folder / "modules.json", list), folder, read_settings(folder)
    if modules is None:
        config = read_json(folder / "config.json") or {}
        if config.get("model_type") != "model2vec" and "StaticModel" not in (config.get("architectures") or ()):
            raise _unsupported(
                folder, "not a static encoder: it has no modules.json, and its config.json is not model2vec's"
            )
        normalized, settings = bool(config.get("normalize")), {}
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
    rows, mapping, weights = _read_arrays(folder, table_folder / "model.safetensors")
    tokens = 1 + max(tokenizer.get_vocab(with_added_tokens=True).values(), default=-1)
    _check_arrays(folder, tokens, rows, mapping, weights)
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
        prompts={name: text or "" for name, text in (settings.get("prompts") or {}).items()},
        prompt_name=settings.get("default_prompt_name"),
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


def _read_arrays(folder: Path, path: Path) -> tuple[np.ndarray, np.ndarray | None, np.ndarray | None]:
    """Return rows, mapping and weights."""
    if not path.is_file():
        raise _unsupported(folder, f"without {path.name} in {str(path.parent)!r}")
    tensors = _read_tensors(path, (*NAMES, "mapping", "weights"))
    name = next((name for name in NAMES if name in tensors), None)
    if name is None:
        raise ModelError(f"{path} contains no table of token vectors, named {' or '.join(NAMES)}.")
    rows, mapping, weights = tensors[name], tensors.get("mapping"), tensors.get("weights")
    if rows.ndim != 2 or 0 in rows.shape:
        raise ModelError(f"{path}: the table of token vectors must have the shape (V,D), got {rows.shape}.")
    if name == NAMES[0]:  # a StaticEmbedding ignores both
        mapping = weights = None
    return (
        rows if rows.dtype in STORED_TYPES else rows.astype(np.float32),
        None if mapping is None else mapping.astype(np.int32),
        None if weights is None else weights.astype(np.float32),
    )


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


def _check_arrays(
    folder: Path, tokens: int, rows: np.ndarray, mapping: np.ndarray | None, weights: np.ndarray | None
) -> None:
    """Check that every id has a row, and that all values are finite."""
    by_token = {"rows": rows if mapping is None else None, "entries of mapping": mapping, "weights": weights}
    for name, array in by_token.items():
        if array is not None and len(array) < tokens:
            raise ModelError(
                f"{str(folder)!r}: the tokenizer has ids up to {tokens - 1}, but the table only {len(array)} {name}. "
                "They do not belong together."
            )
        if array is not None and name != "rows" and array.ndim != 1:
            raise ModelError(f"{str(folder)!r}: {name} must have the shape (V,), got {array.shape}.")
    if mapping is not None and not 0 <= mapping.min() <= mapping.max() < len(rows):
        raise ModelError(
            f"{str(folder)!r}: mapping contains rows {mapping.min()} to {mapping.max()}: must be 0 to {len(rows) - 1}."
        )
    for name, array in (("vectors", rows), ("weights", weights)):
        if array is not None and array.dtype != np.int8 and not np.isfinite([array.min(), array.max()]).all():
            bad = int(np.flatnonzero(~np.isfinite(array.reshape(len(array), -1)).all(axis=1))[0])
            raise ModelError(f"{str(folder)!r}: token {name} contain NaN or infinite values, first in row {bad}.")
