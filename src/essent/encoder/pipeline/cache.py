"""What is kept between tasks, so that no text goes through a model again: pooled vectors, and hidden states.

Pooled vectors are rows by (recipe and what it has counted, text), in files of a folder: a temporary one, or one that is
kept and that several processes may use at once. Texts are known by their SHA-256; nothing of them is written. A row
that is not what was written, as its check says, is computed again.

Hidden states stay in memory, for other recipes and for weights that are counted anew: a grid search asks for one recipe
after the other, and for each fold of the same texts. A text that goes through the model for the second time leaves the
states of all its layers and the diagonals of all heads here, as long as there is room.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
import weakref
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import NamedTuple

import numpy as np
import torch
from filelock import FileLock
from torch.nn.utils.rnn import pad_sequence

from essent._core.atomic import sync
from essent.encoder.pipeline.digests import digest_of_backbone
from essent.encoder.pipeline.module import RecipeModule
from essent.errors import DataError
from essent.model.backbone import Backbone, RequiredOutputs
from essent.recipe.tokens.ids import Frame, batches, pad
from essent.recipe.types import States, Tokens

MOST_SEEN = 2**20  # texts that are remembered to have gone through a model
FLOAT = np.dtype("<f4")
ENTRY = np.dtype([("text", "V32"), ("check", "<u4")])  # SHA-256 of a text, CRC-32 of it and its row
Listed = dict[bytes, tuple[int, int]]  # text -> its row and check


class PooledCache:
    """Rows (K,) float32 by key and text.

    Args:
        folder: where rows are kept for later runs; None keeps them until the cache is garbage.

    Raises:
        DataError: the folder is a file.
    """

    def __init__(self, folder: str | Path | None = None) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="essent-cache-") if folder is None else folder)
        self.kept = folder is not None
        if folder is None:
            weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)
        if self.folder.exists() and not self.folder.is_dir():
            raise DataError(f"The cache {self.folder} is a file; give a folder.")
        self.folder.mkdir(parents=True, exist_ok=True)
        self._lock = FileLock(self.folder / "lock")
        self._listed: dict[str, Listed] = {}

    def __reduce__(self) -> tuple[type[PooledCache], tuple[Path | None]]:
        """Copies share a folder that is kept; one that is not begins anew."""
        return PooledCache, (self.folder if self.kept else None,)

    @property
    def size(self) -> int:
        """Bytes of the rows."""
        return sum(file.stat().st_size for file in self.folder.glob("*.f32"))

    def vectors(
        self,
        keys: Sequence[str],
        widths: Sequence[int],
        texts: Sequence[str],
        compute: Callable[[list[str]], list[np.ndarray]],
    ) -> list[np.ndarray]:
        """Rows of the texts, (N,K) for each key; what some key lacks is computed, for all keys in one call.

        Args:
            keys: one for each recipe, see `essent.encoder.pipeline.key_of`.
            widths: K of each.
            compute: distinct texts to their rows for every key, in the order of the keys.
        """
        names = {text: hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest() for text in dict.fromkeys(texts)}
        stored = [self._read(key, width, list(names.values())) for key, width in zip(keys, widths, strict=True)]
        lacking = ~np.logical_and.reduce([is_stored for _, is_stored in stored])  # (N,), by some key
        if lacking.any():
            computed = compute([text for text, lacks in zip(names, lacking, strict=True) if lacks])
            for key, width, (rows, is_stored), new_rows in zip(keys, widths, stored, computed, strict=True):
                rows[~is_stored] = new_rows[~is_stored[lacking]]
                new = [name for name, has in zip(names.values(), is_stored, strict=True) if not has]
                self._append(key, width, new, rows[~is_stored])
        row_by_text = {text: row for row, text in enumerate(names)}
        chosen = [row_by_text[text] for text in texts]
        return [rows if len(names) == len(texts) else rows[chosen] for rows, _ in stored]

    def _path(self, key: str, suffix: str) -> Path:
        return self.folder / f"{key}.{suffix}"

    def _read(self, key: str, width: int, names: Sequence[bytes]) -> tuple[np.ndarray, np.ndarray]:
        """Stored rows (N,K) of texts, and which are there and whole: (N,) bool."""
        if key not in self._listed:
            with self._lock:
                self._listed[key] = self._list(key, width)
        listed = self._listed[key]
        rows, is_stored = np.zeros((len(names), width), FLOAT), np.array([name in listed for name in names], bool)
        row_indices = [listed[name][0] for name in names if name in listed]
        if row_indices:
            try:
                stored = np.memmap(self._path(key, "f32"), FLOAT, "r", shape=(max(row_indices) + 1, width))
            except (OSError, ValueError):  # removed, or shortened, since it was listed
                return rows, np.zeros(len(names), bool)
            rows[is_stored] = stored[row_indices]
            is_stored &= [
                has and listed[name][1] == _check(name, row)
                for name, row, has in zip(names, rows, is_stored, strict=True)
            ]
        return rows, is_stored

    def _list(self, key: str, width: int) -> Listed:
        """Text -> row and check in the files; what a killed run left of rows and names without each other is cut off.

        A text that is there twice has its last row: the first was damaged.
        """
        names, vectors = self._path(key, "names"), self._path(key, "f32")
        listed = np.fromfile(names, ENTRY) if names.is_file() else np.empty(0, ENTRY)  # half an entry is not read
        size = vectors.stat().st_size if vectors.is_file() else 0
        complete = min(len(listed), size // (width * FLOAT.itemsize))
        for path, length in ((names, ENTRY.itemsize), (vectors, width * FLOAT.itemsize)):
            with path.open("ab") as file:
                file.truncate(complete * length)
        entries = listed[:complete].tolist()
        return {name: (row, check) for row, (name, check) in enumerate(entries)}

    def _append(self, key: str, width: int, names: Sequence[bytes], vectors: np.ndarray) -> None:
        """Write rows that were not there, or damaged, unless another process has written them in the meantime.

        Rows are on the disk before they get names, so that a name never stands for a row that was lost.
        """
        if not names:
            return
        before = self._listed[key]
        with self._lock:
            listed = self._listed[key] = self._list(key, width)
            new = [at for at, name in enumerate(names) if name not in listed or listed[name] == before.get(name)]
            first = self._path(key, "f32").stat().st_size // (width * FLOAT.itemsize)
            checks = [_check(names[at], vectors[at]) for at in new]
            entries = np.array([(names[at], check) for at, check in zip(new, checks, strict=True)], ENTRY)
            for suffix, added in (("f32", vectors[new]), ("names", entries)):
                with self._path(key, suffix).open("ab") as file:
                    file.write(added.tobytes())
                if self.kept:
                    sync(self._path(key, suffix))
        listed.update({names[at]: (first + row, checks[row]) for row, at in enumerate(new)})


def _check(name: bytes, row: np.ndarray) -> int:
    """What tells a row of a text from another text's, and from one that has changed on the disk."""
    return zlib.crc32(row, zlib.crc32(name))  # type: ignore[arg-type]  # an array is a buffer


# -- hidden states ----------------------------------------------------------------------------------------------------


class TextStates(NamedTuple):
    """What the model computed for one text: layers (L+1,T,D), and diagonals (H,T) of all heads."""

    layers: torch.Tensor
    diagonals: torch.Tensor

    @property
    def bytes(self) -> int:
        """What it takes in memory."""
        return self.layers.nbytes + self.diagonals.nbytes


@dataclass
class Entry:
    """The texts of one model, frame and length limit: which went through the model, and what was kept of them."""

    seen: set[int] = field(default_factory=set)  # hashes
    kept: dict[str, TextStates] = field(default_factory=dict)


class StatesStore:
    """States by model, frame, length limit and text, up to a number of bytes; one model's give way to another's.

    Args:
        most: bytes of states.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._one_writer = Lock()
        self.clear()

    def clear(self) -> None:
        """Forget all states."""
        self.size, self._model = 0, ""
        self._entries: dict[tuple[Frame, int | None], Entry] = {}

    def entry(self, model: str, frame: Frame, max_seq_length: int | None) -> Entry:
        """What is known of the texts; of another model than the last one nothing is."""
        with self._one_writer:
            if model != self._model:
                self.clear()
                self._model = model
            return self._entries.setdefault((frame, max_seq_length), Entry())

    def keep(self, entry: Entry, text: str, states: TextStates) -> None:
        """Keep a text's states, unless they do not fit, or their entry was given up in the meantime."""
        with self._one_writer:
            is_known = any(entry is known for known in self._entries.values())
            if is_known and text not in entry.kept and self.size + states.bytes <= self.most:
                entry.kept[text] = states
                self.size += states.bytes


class KeptStates:
    """A store for one backbone.

    Args:
        whole: the model's backbone, not cut.
    """

    def __init__(self, whole: Backbone, store: StatesStore) -> None:
        self.whole, self.store = whole, store
        heads = range(1, whole.attention_heads + 1)
        self.heads = [(layer, head) for layer in range(1, whole.last + 1) for head in heads]  # as diagonals are kept

    def __reduce__(self) -> tuple[type, tuple[()]]:
        """A copy or another process has None in its place."""
        return type(None), ()

    def pool(
        self,
        module: RecipeModule,
        texts: list[str],
        batch_size: int,
        compute: Callable[[list[str]], torch.Tensor],
    ) -> torch.Tensor:
        """Pooled vectors (N,K) of distinct texts before shaping, on the CPU.

        Args:
            module: the recipe on `whole`, or on a cut of it.
            compute: gives those of texts whose states are not to be kept.
        """
        parameters = {name: value.data_ptr() for name, value in self.whole.state_dict().items()}
        if any(parameters.get(name) != value.data_ptr() for name, value in module.backbone.state_dict().items()):
            return compute(texts)  # another model's
        entry = self.store.entry(digest_of_backbone(self.whole), module.plan.frame, module.backbone.max_seq_length)
        ids = dict(zip(texts, module.ids(texts), strict=True))
        again = [text for text in texts if hash(text) in entry.seen and text not in entry.kept]
        self._run(module, entry, {text: ids[text] for text in again}, batch_size)
        if len(entry.seen) < MOST_SEEN:
            entry.seen.update(map(hash, texts))
        vectors = torch.empty(len(texts), module.plan.width(module.backbone))
        row_by_text = {text: row for row, text in enumerate(texts)}
        cached = [text for text in texts if text in entry.kept]
        if lacking := [text for text in texts if text not in entry.kept]:
            vectors[[row_by_text[text] for text in lacking]] = compute(lacking).float().cpu()
        for chosen in batches([len(ids[text]) for text in cached], batch_size):
            batch = [cached[i] for i in chosen]
            pooled = self._pooled(module, [ids[text] for text in batch], [entry.kept[text] for text in batch])
            vectors[[row_by_text[text] for text in batch]] = pooled.float().cpu()
        return vectors

    def _run(self, module: RecipeModule, entry: Entry, ids: dict[str, list[int]], batch_size: int) -> None:
        """Keep all layers and diagonals of texts that have been through the model before, as far as there is room."""
        texts, layers = list(ids), range(self.whole.last + 1)
        everything = RequiredOutputs(frozenset(layers), attention_heads=frozenset(self.heads))
        bytes_per_token = len(layers) * self.whole.dimensions * self.whole.static_table.element_size()  # at least
        self.whole.eval()
        for chosen in batches([len(ids[text]) for text in texts], batch_size):
            batch = [texts[i] for i in chosen]
            tokens = self._batch(module, [ids[text] for text in batch])
            lengths = tokens.attention_mask.sum(dim=1).tolist()
            if self.store.size + sum(lengths) * bytes_per_token > self.store.most:
                return  # the layers above those that are read would be computed for nothing
            states = self.whole.states(tokens, everything)
            hidden = torch.stack([states.hidden[layer] for layer in layers], dim=1)  # (B,L+1,T,D)
            diagonals = torch.stack([states.diagonals[head] for head in self.heads], dim=1)  # (B,H,T)
            for row, (text, length) in enumerate(zip(batch, lengths, strict=True)):
                own = (values[row, :, :length].cpu().clone() for values in (hidden, diagonals))
                self.store.keep(entry, text, TextStates(*own))

    def _pooled(self, module: RecipeModule, ids: list[list[int]], cached: list[TextStates]) -> torch.Tensor:
        """Vectors (B,K) of a batch from what was kept of its texts."""
        tokens, plan = self._batch(module, ids), module.plan

        def padded(rows: list[torch.Tensor]) -> torch.Tensor:
            return pad_sequence(rows, batch_first=True).to(tokens.ids.device)

        layers = plan.required.layers
        hidden: dict[int | str, torch.Tensor] = {n: padded([text.layers[n] for text in cached]) for n in layers}
        if plan.required.static:
            hidden["static"] = torch.nn.functional.embedding(tokens.ids, module.backbone.static_table)
        diagonals = {
            head: padded([text.diagonals[self.heads.index(head)] for text in cached])  # (B,T)
            for head in plan.required.attention_heads
        }
        return plan.pool(tokens, States(hidden, diagonals), module.backbone, module.stats)[0]

    def _batch(self, module: RecipeModule, ids: list[list[int]]) -> Tokens:
        tokens = pad(ids, module.plan.frame, self.whole.pad_id)
        return tokens.to(self.whole.static_table.device)
