"""Pooled vectors kept between tasks: each distinct text goes through a model once per recipe, in a run or for good.

A store of rows by (recipe and what it has counted, text), in files of a folder: a temporary one, or one that is kept
and that several processes may use at once. Texts are known by their SHA-256; nothing of them is written.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from filelock import FileLock
from torch import nn

from essent.tokens import tokenizer_digest
from essent.types import CorpusStats, DataError

if TYPE_CHECKING:
    from essent.backbone import Backbone

DIGEST = 32  # bytes of a SHA-256
FLOAT = np.dtype("<f4")
NOT_COMPUTED = ("_name_or_path", "transformers_version")  # entries of a configuration that change nothing


class PooledCache:
    """Rows (K,) float32 by key and text.

    Args:
        folder: where rows are kept for later runs; None keeps them until the cache is garbage.

    Raises:
        DataError: the folder is a file.
    """

    def __init__(self, folder: str | Path | None = None) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="essent-cache-") if folder is None else folder)
        if folder is None:
            weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)
        if self.folder.exists() and not self.folder.is_dir():
            raise DataError(f"The cache {self.folder} is a file; give a folder.")
        self.folder.mkdir(parents=True, exist_ok=True)
        self._lock = FileLock(self.folder / "lock")
        self._rows: dict[str, dict[bytes, int]] = {}

    def vectors(
        self,
        keys: Sequence[str],
        widths: Sequence[int],
        texts: Sequence[str],
        compute: Callable[[list[str]], list[np.ndarray]],
    ) -> list[np.ndarray]:
        """Rows of the texts, (N,K) for each key; what some key lacks is computed, for all keys in one call.

        Args:
            keys: one for each recipe, see `key_of`.
            widths: K of each.
            compute: distinct texts to their rows for every key, in the order of the keys.
        """
        names = {text: hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest() for text in dict.fromkeys(texts)}
        known = [self._index(key, width) for key, width in zip(keys, widths, strict=True)]
        missing = [text for text, name in names.items() if any(name not in rows for rows in known)]
        if missing:
            for key, width, made in zip(keys, widths, compute(missing), strict=True):
                self._append(key, width, [names[text] for text in missing], made)
        found = []
        for key, width in zip(keys, widths, strict=True):
            places = [self._rows[key][names[text]] for text in texts]
            if not places:
                found.append(np.zeros((0, width), FLOAT))
                continue
            stored = np.memmap(self._path(key, "f32"), FLOAT, "r", shape=(max(places) + 1, width))
            found.append(np.array(stored[places]))
        return found

    def _path(self, key: str, suffix: str) -> Path:
        return self.folder / f"{key}.{suffix}"

    def _index(self, key: str, width: int) -> dict[bytes, int]:
        """Which text is in which row, as far as this process knows."""
        if key not in self._rows:
            with self._lock:
                self._rows[key] = self._listed(key, width)
        return self._rows[key]

    def _listed(self, key: str, width: int) -> dict[bytes, int]:
        """Which text is in which row of the files; rows that a killed run left without their name are cut off."""
        names, vectors = self._path(key, "texts"), self._path(key, "f32")
        listed = names.read_bytes() if names.is_file() else b""
        complete = min(
            len(listed) // DIGEST, (vectors.stat().st_size if vectors.is_file() else 0) // (width * FLOAT.itemsize)
        )
        for path, size in ((names, DIGEST), (vectors, width * FLOAT.itemsize)):
            with path.open("ab") as file:
                file.truncate(complete * size)
        return {listed[DIGEST * row : DIGEST * (row + 1)]: row for row in range(complete)}

    def _append(self, key: str, width: int, names: Sequence[bytes], vectors: np.ndarray) -> None:
        """Write the rows that are not there; another process may have written in the meantime."""
        with self._lock:
            rows = self._rows[key] = self._listed(key, width)
            new = [place for place, name in enumerate(names) if name not in rows]
            first = self._path(key, "f32").stat().st_size // (width * FLOAT.itemsize)
            with self._path(key, "f32").open("ab") as file:
                file.write(np.ascontiguousarray(vectors[new], FLOAT).data)
            with self._path(key, "texts").open("ab") as file:
                file.write(b"".join(names[place] for place in new))
        rows.update({names[place]: first + count for count, place in enumerate(new)})


def key_of(model: str, recipe: str, stats: CorpusStats | None) -> str:
    """The key of a recipe's rows: the model's digest, the recipe's, and what it has counted."""
    total = hashlib.sha256(f"{model}\n{recipe}\n".encode())
    if stats is not None:
        total.update(str(stats.texts).encode() + stats.document_frequency.tobytes() + stats.count.tobytes())
    return total.hexdigest()[:32]


def digest_of_backbone(backbone: Backbone, *settings: object) -> str:
    """SHA-256 of what makes a backbone's states: parameters, configuration, tokenizer, length limit; settings."""
    config = {key: value for key, value in backbone.model.config.to_dict().items() if key not in NOT_COMPUTED}
    computed = json.dumps(config, sort_keys=True, default=str)
    return digest_of(backbone, computed, tokenizer_digest(backbone.tokenizer), backbone.max_length, *settings)


def digest_of(model: nn.Module, *settings: object) -> str:
    """SHA-256 of a model's parameters and settings: other weights under the same name are another model."""
    total = hashlib.sha256(repr(settings).encode())
    for name, value in sorted(model.state_dict().items()):
        tensor = value.detach().cpu().contiguous()
        total.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        total.update(tensor.flatten().view(dtype=torch.uint8).numpy().data)
    return total.hexdigest()
