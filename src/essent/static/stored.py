"""Read the folder of a static encoder without torch: rows, token weights, tokenizer, normalization."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from tokenizers import Tokenizer

from essent._core.atomic import recover
from essent._core.folders.check import check_folder
from essent._core.folders.contents import read_settings
from essent._core.folders.files import check_digests, has_digests, read_json
from essent.errors import ModelError
from essent.recipe.tokens.ids import unknown_token

STORED_TYPES = (np.dtype(np.float32), np.dtype(np.float16), np.dtype(np.int8))  # others become float32
NAMES = ("embedding.weight", "embeddings")  # of the rows, in sentence-transformers and in model2vec


@dataclass(frozen=True)
class StoredTable:
    """Contents of the folder of a static encoder.

    The vector of the token t is rows[mapping[t]]·weights[t]; without mapping and weights it is rows[t].

    Attributes:
        rows: (R,D), finite; float32, float16 or int8.
        tokenizer: the tokenizer, without truncation and padding.
        tokens: its number of ids V, which are 0 … V-1.
        mapping, weights: (V,) int32 and float32, or None.
        unit: whether means are scaled to length 1.
        dropped: the id that is removed from every text: model2vec does not count unknown tokens.
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


def read_table(folder: str | Path) -> StoredTable:
    """Read the folder of a StaticEmbedding, with or without Normalize, or of model2vec.

    Raises:
        ModelError: no such folder, another kind of model, or files that are missing, damaged or inconsistent.
    """
    root = Path(folder)
    recover(root)
    if not root.is_dir():
        raise ModelError(
            f"No such folder: {str(root)!r}. StaticEncoder loads local folders; use essent.Encoder for hub names."
        )
    check_folder(root)
    if has_digests(root):
        check_digests(root, whole=False)
    listed = read_json(root / "modules.json", list)
    settings: dict[str, Any] = {}
    if listed is None:
        config = read_json(root / "config.json") or {}
        if config.get("model_type") != "model2vec" and "StaticModel" not in (config.get("architectures") or ()):
            raise _unsupported(
                root, "not a static encoder: it has no modules.json, and its config.json is not model2vec's"
            )
        tokenizer_folder, settings["unit"] = root, bool(config.get("normalize"))
    else:
        tokenizer_folder, settings["unit"] = _modules(root, listed)
        stored = read_settings(root)
        settings["prompts"] = {name: text or "" for name, text in (stored.get("prompts") or {}).items()}
        settings["prompt_name"] = stored.get("default_prompt_name")
    tokenizer = _tokenizer(tokenizer_folder)
    if listed is None and (token := unknown_token(tokenizer)) is not None:
        settings["dropped"] = tokenizer.token_to_id(token)
    if tokenizer.truncation is not None:
        settings["limit"] = int(tokenizer.truncation["max_length"])
        settings["cuts_left"] = str(tokenizer.truncation["direction"]).lower() == "left"
    tokenizer.no_padding()
    tokenizer.no_truncation()
    rows, mapping, weights = _arrays(root, tokenizer_folder / "model.safetensors")
    tokens = 1 + max(tokenizer.get_vocab(with_added_tokens=True).values(), default=-1)
    _check(root, tokens, rows, mapping, weights)
    empty = None if listed is None else _empty_text_vector(root, rows.shape[1])
    return StoredTable(rows, tokenizer, tokens, mapping, weights, empty=empty, **settings)


def _unsupported(root: Path, problem: str) -> ModelError:
    return ModelError(
        f"{str(root)!r} is {problem}. StaticEncoder loads the output of essent distill, sentence-transformers' "
        "StaticEmbedding with or without Normalize, and model2vec's folders. Load other models with "
        f"essent.Encoder({str(root)!r})."
    )


def _modules(root: Path, listed: Any) -> tuple[Path, bool]:
    """Return the folder of the table, and whether Normalize follows."""
    if not all(isinstance(module, dict) for module in listed):
        raise ModelError(f"{root / 'modules.json'}: expected a list of objects, not {listed!r:.60}.")
    kinds = [str(module.get("type", "")).rpartition(".")[2] for module in listed]
    if kinds[:1] != ["StaticEmbedding"] or set(kinds[1:]) - {"Normalize"}:
        raise _unsupported(root, f"a model of {' and '.join(kinds) or 'no modules'}")
    for module in listed[1:]:
        names = read_json(root / str(module.get("path", "")) / "config.json") or {}
        if {value for value in names.values() if value is not None} - {"sentence_embedding"}:
            raise _unsupported(root, f"a model whose Normalize works on {names}")
    return root / str(listed[0].get("path", "")), len(kinds) > 1


def _tokenizer(folder: Path) -> Tokenizer:
    try:
        return Tokenizer.from_file(str(folder / "tokenizer.json"))
    except Exception as error:  # tokenizers raises the bare class
        raise ModelError(f"Cannot read the tokenizer {folder / 'tokenizer.json'}: {error}") from error


def _empty_text_vector(root: Path, dimensions: int) -> np.ndarray | None:
    """Return the vector of a text without tokens, if essent saved the folder."""
    path = root / "essent" / "state.safetensors"
    vector = _tensors(path, ("empty",)).get("empty") if path.is_file() else None
    if vector is not None and (vector.shape != (dimensions,) or not np.issubdtype(vector.dtype, np.floating)):
        raise ModelError(
            f"{str(root)!r}: the vector of a text without tokens must be ({dimensions},) floats like the others, got "
            f"{vector.shape} {vector.dtype}."
        )
    if vector is not None and not np.isfinite(vector).all():
        raise ModelError(f"{str(root)!r}: the vector of a text without tokens contains NaN or infinite values.")
    return vector


def _arrays(root: Path, path: Path) -> tuple[np.ndarray, np.ndarray | None, np.ndarray | None]:
    """Return rows, mapping and weights."""
    if not path.is_file():
        raise _unsupported(root, f"without {path.name} in {str(path.parent)!r}")
    tensors = _tensors(path, (*NAMES, "mapping", "weights"))
    rows = next((tensors[name] for name in NAMES if name in tensors), None)
    if rows is None:
        raise ModelError(f"{path} contains no table of token vectors, named {' or '.join(NAMES)}.")
    if rows.ndim != 2 or 0 in rows.shape:
        raise ModelError(f"{path}: the table of token vectors must have the shape (V,D), got {rows.shape}.")
    mapping, weights = (tensors.get(name) if NAMES[0] not in tensors else None for name in ("mapping", "weights"))
    return (
        rows if rows.dtype in STORED_TYPES else rows.astype(np.float32),
        None if mapping is None else mapping.astype(np.int32),
        None if weights is None else weights.astype(np.float32),
    )


def _tensors(path: Path, names: tuple[str, ...]) -> dict[str, np.ndarray]:
    """Return those of the named arrays that a file contains."""
    try:
        with safe_open(path, framework="numpy") as file:
            return {name: file.get_tensor(name) for name in set(file.keys()).intersection(names)}
    except (SafetensorError, OSError, TypeError, ValueError) as error:  # TypeError: a type that NumPy lacks (bfloat16)
        raise ModelError(f"Cannot read {path} without torch: {error}. Try essent.Encoder.") from error


def _check(root: Path, tokens: int, rows: np.ndarray, mapping: np.ndarray | None, weights: np.ndarray | None) -> None:
    """Check that every id has a row, and that all values are finite."""
    by_token = {"rows": rows if mapping is None else None, "entries of mapping": mapping, "weights": weights}
    for name, numbers in by_token.items():
        if numbers is not None and len(numbers) < tokens:
            raise ModelError(
                f"{str(root)!r}: the tokenizer has ids up to {tokens - 1}, but the table only {len(numbers)} {name}. "
                "They do not belong together."
            )
        if numbers is not None and name != "rows" and numbers.ndim != 1:
            raise ModelError(f"{str(root)!r}: {name} must have the shape (V,), got {numbers.shape}.")
    if mapping is not None and not 0 <= mapping.min() <= mapping.max() < len(rows):
        raise ModelError(
            f"{str(root)!r}: mapping contains rows {mapping.min()} to {mapping.max()}: must be 0 to {len(rows) - 1}."
        )
    for name, numbers in (("vectors", rows), ("weights", weights)):
        if numbers is not None and numbers.dtype != np.int8 and not np.isfinite([numbers.min(), numbers.max()]).all():
            bad = int(np.flatnonzero(~np.isfinite(numbers.reshape(len(numbers), -1)).all(axis=1))[0])
            raise ModelError(f"{str(root)!r}: token {name} contain NaN or infinite values, first in row {bad}.")
