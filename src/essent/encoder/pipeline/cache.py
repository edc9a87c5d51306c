"""Caches of pooled vectors and hidden states, which avoid repeated passes over the same texts.

Pooled vectors are rows by (recipe and token counts, text), in files of a temporary folder, or of a permanent one that
several processes can share: one file per recipe, to which records are appended. Texts are identified by their SHA-256
and never written. A row whose checksum differs is computed again.

Hidden states stay in memory, for other recipes and for new token counts: a grid search runs one recipe after the other,
on each fold of the same texts. The second pass of a text stores the states of all its layers and the diagonals of all
heads, while there is memory.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
import weakref
import zlib
from collections.abc import Callable, Sequence
from itertools import compress
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import torch
from filelock import FileLock
from torch.nn.utils.rnn import pad_sequence

from essent._core.atomic import sync
from essent.encoder.pipeline.digests import digest_of_backbone
from essent.encoder.pipeline.module import RecipeModule
from essent.errors import DataError
from essent.model.backbone import Backbone
from essent.model.capabilities import is_hybrid
from essent.recipe.tokens.ids import Frame, batches, pad
from essent.recipe.types import Hidden, RequiredOutputs, States, Tokens

MOST_SEEN = 2**20  # maximum number of texts whose first pass is recorded
FLOAT = np.dtype("<f4")


class PooledCache:
    """A cache of rows (K,) float32 by key and text.

    Args:
        folder: the folder that stores rows for later runs; None uses a temporary one, removed with the cache.

    Raises:
        DataError: the folder is a file.
    """

    def __init__(self, folder: str | Path | None = None) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="essent-cache-") if folder is None else folder)
        self.is_permanent = folder is not None
        if folder is None:
            weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)
        if self.folder.exists() and not self.folder.is_dir():
            raise DataError(f"The cache {self.folder} is a file. Choose a folder.")
        self.folder.mkdir(parents=True, exist_ok=True)
        self._lock = FileLock(self.folder / "lock")
        self._listed: dict[str, dict[bytes, int]] = {}  # key -> text -> record

    def __reduce__(self) -> tuple[type[PooledCache], tuple[Path | None]]:
        """Copies share a permanent folder; the copy of a temporary cache starts empty."""
        return PooledCache, (self.folder if self.is_permanent else None,)

    @property
    def size(self) -> int:
        """The size of the rows in bytes."""
        return sum(file.stat().st_size for file in self.folder.glob("*.rows"))

    def vectors(
        self,
        keys: Sequence[str],
        widths: Sequence[int],
        texts: Sequence[str],
        compute: Callable[[list[str]], list[np.ndarray]],
    ) -> list[np.ndarray]:
        """Return the rows (N,K) of the texts for each key; missing rows are computed for all keys in one call.

        Args:
            keys: one per recipe, see `essent.encoder.pipeline.digests.key_of`.
            widths: K of each key.
            compute: function from distinct texts to their rows for every key, in the order of the keys.
        """
        names = {text: hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest() for text in dict.fromkeys(texts)}
        stored = [self._read(key, width, list(names.values())) for key, width in zip(keys, widths, strict=True)]
        lacking = ~np.logical_and.reduce([is_stored for _, is_stored in stored])  # (N,), for any key
        if lacking.any():
            computed = compute([text for text, lacks in zip(names, lacking, strict=True) if lacks])
            for key, width, (rows, is_stored), new_rows in zip(keys, widths, stored, computed, strict=True):
                rows[~is_stored] = new_rows[~is_stored[lacking]]
                new = [name for name, has in zip(names.values(), is_stored, strict=True) if not has]
                self._append(key, width, new, rows[~is_stored])
        row_by_text = {text: row for row, text in enumerate(names)}
        chosen = [row_by_text[text] for text in texts]
        return [rows if len(names) == len(texts) else rows[chosen] for rows, _ in stored]

    def _records(self, key: str, width: int) -> np.ndarray:
        """Return the complete records of a key (M,), not loaded; a killed run may have written a part of one more."""
        path, kind = self.folder / f"{key}.rows", record_of(width)
        count = path.stat().st_size // kind.itemsize if path.is_file() else 0
        return np.asarray(np.memmap(path, kind, "r", shape=(count,))) if count else np.empty(0, kind)

    def _read(self, key: str, width: int, names: Sequence[bytes]) -> tuple[np.ndarray, np.ndarray]:
        """Read the stored rows (N,K) of texts, and which of them are present and undamaged: (N,) bool."""
        if key not in self._listed:
            self._listed[key] = _listed(self._records(key, width))
        listed, records = self._listed[key], self._records(key, width)
        indices = np.array([listed.get(name, len(records)) for name in names], np.int64)
        is_stored = indices < len(records)  # the file may have been removed or truncated since it was listed
        chosen = records[indices[is_stored]]
        rows = np.zeros((len(names), width), FLOAT)
        rows[is_stored] = chosen["row"]
        checks = map(_check, compress(names, is_stored), chosen["row"])
        is_stored[is_stored] = chosen["check"] == np.fromiter(checks, np.uint32, len(chosen))
        return rows, is_stored

    def _append(self, key: str, width: int, names: Sequence[bytes], vectors: np.ndarray) -> None:
        """Append missing or damaged rows, unless another process has written them meanwhile."""
        if not names:
            return
        path, before = self.folder / f"{key}.rows", self._listed[key]
        with self._lock:
            records = self._records(key, width)
            listed = self._listed[key] = _listed(records)
            new = [at for at, name in enumerate(names) if listed.get(name) == before.get(name)]
            added = np.empty(len(new), records.dtype)
            added["text"] = np.frombuffer(b"".join(names[at] for at in new), "V32")
            added["row"] = vectors[new]
            added["check"] = [_check(names[at], vectors[at]) for at in new]
            with path.open("ab") as file:
                file.truncate(records.nbytes)
                file.write(added.tobytes())
            if self.is_permanent:
                sync(path)
        listed.update({names[at]: len(records) + row for row, at in enumerate(new)})


def record_of(width: int) -> np.dtype[Any]:
    """Return the type of a record: SHA-256 of a text, CRC-32 of it and its row, the row (K,)."""
    return np.dtype([("text", "V32"), ("check", "<u4"), ("row", FLOAT, (width,))])


def _listed(records: np.ndarray) -> dict[bytes, int]:
    """Return text -> its last record: an earlier one was damaged."""
    return {name: record for record, name in enumerate(records["text"].tolist())}


def _check(name: bytes, row: np.ndarray) -> int:
    """Return the checksum of a text's row, which detects rows of other texts and changes on the disk."""
    return zlib.crc32(row, zlib.crc32(name))  # type: ignore[arg-type]  # an array is a buffer


# -- hidden states ----------------------------------------------------------------------------------------------------


TextStates = tuple[torch.Tensor, torch.Tensor]  # of one text: layers (L+1,T,D), and diagonals (H,T) of all heads
TextKey = tuple[Frame, "int | None", str]  # frame, maximum length, text


class StatesStore:
    """A store of states by frame, maximum length and text; opened with another model, it is emptied.

    Args:
        most: maximum size of the states in bytes.

    Attributes:
        seen: hashes of the keys of the texts that had a pass.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._one_writer = Lock()
        self.clear()

    def clear(self) -> None:
        """Remove all states."""
        self.size, self._model = 0, ""
        self.seen: set[int] = set()
        self.states: dict[TextKey, TextStates] = {}

    def open(self, model: str) -> None:
        """Prepare for the texts of a model; another one than the last clears the store."""
        with self._one_writer:
            if model != self._model:
                self.clear()
                self._model = model

    def add(self, model: str, key: TextKey, states: TextStates) -> None:
        """Store a text's states, unless they do not fit, or the store was opened with another model meanwhile."""
        size = sum(part.nbytes for part in states)
        with self._one_writer:
            if model == self._model and key not in self.states and self.size + size <= self.most:
                self.states[key] = states
                self.size += size


class KeptStates:
    """A store for one backbone.

    Args:
        whole: the model's backbone with all layers.
    """

    def __init__(self, whole: Backbone, store: StatesStore) -> None:
        self.whole, self.store = whole, store
        heads = range(1, whole.attention_heads + 1)
        self.heads = [(layer, head) for layer in range(1, whole.last + 1) for head in heads]  # order of the diagonals

    def __reduce__(self) -> tuple[type, tuple[()]]:
        """Pickle as None: copies and other processes have no states."""
        return type(None), ()

    def pool(
        self,
        module: RecipeModule,
        texts: list[str],
        batch_size: int,
        compute: Callable[[list[str]], torch.Tensor],
    ) -> torch.Tensor:
        """Return the pooled vectors (N,K) of distinct texts before shaping, on the CPU.

        Args:
            module: the recipe on `whole`, or on its lower layers.
            compute: computes the vectors of texts without cached states.
        """
        parameters = {name: value.data_ptr() for name, value in self.whole.state_dict().items()}
        if any(parameters.get(name) != value.data_ptr() for name, value in module.backbone.state_dict().items()):
            return compute(texts)  # of another model
        if module.plan.required.attention_states or len(module.plan.frames) > 1 or is_hybrid(self.whole.model.config):
            return compute(texts)  # no room for attention states, one frame per text, no heads to store in a hybrid
        model = digest_of_backbone(self.whole)
        self.store.open(model)
        keys, ids = [(module.plan.frame, module.backbone.max_seq_length, text) for text in texts], module.ids(texts)
        again = [row for row, key in enumerate(keys) if hash(key) in self.store.seen and key not in self.store.states]
        self._run(module, model, {keys[row]: ids[row] for row in again}, batch_size)
        if len(self.store.seen) < MOST_SEEN:
            self.store.seen.update(map(hash, keys))
        cached = {row: states for row, key in enumerate(keys) if (states := self.store.states.get(key)) is not None}
        vectors = torch.empty(len(texts), module.plan.width)
        if lacking := [row for row in range(len(texts)) if row not in cached]:
            vectors[lacking] = compute([texts[row] for row in lacking]).float().cpu()
        stored = list(cached)
        for chosen in batches([len(ids[row]) for row in stored], batch_size):
            rows = [stored[i] for i in chosen]
            pooled = self._pooled(module, [ids[row] for row in rows], [cached[row] for row in rows])
            vectors[rows] = pooled.float().cpu()
        return vectors

    def _run(self, module: RecipeModule, model: str, ids: dict[TextKey, list[int]], batch_size: int) -> None:
        """Run texts that had a pass before, and store all their layers and diagonals, while there is memory."""
        keys, layers = list(ids), range(self.whole.last + 1)
        everything = RequiredOutputs(frozenset(layers), attention_heads=frozenset(self.heads))
        bytes_per_token = len(layers) * self.whole.dimensions * self.whole.static_table.element_size()  # at least
        self.whole.eval()
        for chosen in batches([len(ids[key]) for key in keys], batch_size):
            batch = [keys[i] for i in chosen]
            tokens = self._batch(module, [ids[key] for key in batch])
            lengths = tokens.attention_mask.sum(dim=1).tolist()
            if self.store.size + sum(lengths) * bytes_per_token > self.store.most:
                return  # computing all layers would be wasted
            states = self.whole.states(tokens, everything)
            hidden = torch.stack([states.hidden[layer] for layer in layers], dim=1)  # (B,L+1,T,D)
            diagonals = torch.stack([states.diagonals[head] for head in self.heads], dim=1)  # (B,H,T)
            for row, (key, length) in enumerate(zip(batch, lengths, strict=True)):
                own = hidden[row, :, :length].cpu().clone(), diagonals[row, :, :length].cpu().clone()
                self.store.add(model, key, own)

    def _pooled(self, module: RecipeModule, ids: list[list[int]], cached: list[TextStates]) -> torch.Tensor:
        """Compute the vectors (B,K) of a batch from the cached states of its texts."""
        tokens, plan = self._batch(module, ids), module.plan

        def padded(rows: list[torch.Tensor]) -> torch.Tensor:
            return pad_sequence(rows, batch_first=True).to(tokens.ids.device)

        layers = plan.required.layers
        hidden: Hidden = {n: padded([own[n] for own, _ in cached]) for n in layers}
        if plan.required.static:
            hidden["static"] = torch.nn.functional.embedding(tokens.ids, module.backbone.static_table)
        diagonals = {
            head: padded([own[self.heads.index(head)] for _, own in cached])  # (B,T)
            for head in plan.required.attention_heads
        }
        return plan.pool(tokens, States(hidden, diagonals), module.backbone, module.stats)[0]

    def _batch(self, module: RecipeModule, ids: list[list[int]]) -> Tokens:
        tokens = pad(ids, module.plan.frame, self.whole.pad_id)
        return tokens.to(self.whole.static_table.device)
