"""A cache of pooled vectors, which avoids repeated passes over the same texts, and the digests that are its keys.

Rows by (recipe and token counts, text) are in an SQLite file of a temporary folder, or of a permanent one that several
processes can share. A record contains the rows of many texts, which are identified by their SHA-256 and never written.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
import weakref
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn

from essent._core.compat import weights_of
from essent._core.machine import BFLOAT16
from essent.errors import DataError
from essent.recipe.tokens import portions, tokenizer_digest
from essent.recipe.types import CorpusStats

if TYPE_CHECKING:
    from sqlite3 import Connection

    from essent.model.backbone import Backbone

NOT_COMPUTED = ("_name_or_path", "transformers_version")  # entries of a configuration without effect on vectors
WORDS = 1024  # 8-byte words per sum of a digest
FLOAT = np.dtype("<f4")
BLOCK, BLOCK_BYTES = 1024, 2**28  # most rows and bytes of rows per record: a record per text takes twice the time
TIMEOUT = 600.0  # seconds to wait for another process that writes
TABLE = """
    CREATE TABLE IF NOT EXISTS blocks (key TEXT, texts BLOB, rows BLOB, checksum INTEGER);
    CREATE INDEX IF NOT EXISTS blocks_by_key ON blocks (key);
"""


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
        self.file = self.folder / "vectors.sqlite"

    def __reduce__(self) -> tuple[type[PooledCache], tuple[Path | None]]:
        """Copies share a permanent folder; the copy of a temporary cache starts empty."""
        return PooledCache, (self.folder if self.is_permanent else None,)

    @property
    def size(self) -> int:
        """The size of the file in bytes."""
        return self.file.stat().st_size if self.file.is_file() else 0

    def vectors(
        self,
        keys: Sequence[str],
        widths: Sequence[int],
        texts: Sequence[str],
        compute: Callable[[list[str]], list[np.ndarray]],
    ) -> list[np.ndarray]:
        """Return the rows (N,K) of the texts for each key; missing rows are computed for all keys in one call.

        Args:
            keys: one per recipe, see `key_of`.
            widths: K of each key.
            compute: function from distinct texts to their rows for every key, in the order of the keys.

        Raises:
            DataError: the file is damaged, or cannot be read or written.
        """
        names = {text: hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest() for text in dict.fromkeys(texts)}
        with self._open() as connection:
            stored = [_read(connection, key, width, names.values()) for key, width in zip(keys, widths, strict=True)]
        lacking = ~np.logical_and.reduce([is_stored for _, is_stored in stored])  # (N,), for any key
        if lacking.any():
            computed = compute([text for text, lacks in zip(names, lacking, strict=True) if lacks])
            with self._open() as connection:
                for key, (rows, is_stored), new_rows in zip(keys, stored, computed, strict=True):
                    rows[~is_stored] = new_rows[~is_stored[lacking]]
                    new = [name for name, has in zip(names.values(), is_stored, strict=True) if not has]
                    _write(connection, key, new, rows[~is_stored])
        row_by_text = {text: row for row, text in enumerate(names)}
        chosen = [row_by_text[text] for text in texts]
        return [rows if len(names) == len(texts) else rows[chosen] for rows, _ in stored]

    @contextmanager
    def _open(self) -> Iterator[Connection]:
        """Open the file for one transaction."""
        import sqlite3  # late: some builds of Python lack it

        try:
            with closing(sqlite3.connect(self.file, timeout=TIMEOUT)) as connection, connection:
                if not self.is_permanent:
                    connection.execute("PRAGMA synchronous = OFF")
                connection.executescript(TABLE)
                yield connection
        except sqlite3.OperationalError as error:
            raise DataError(f"The cache {self.file} cannot be read or written: {error}.") from error
        except sqlite3.DatabaseError as error:
            raise DataError(f"The cache {self.file} is damaged ({error}). Remove the folder {self.folder}.") from error


def _read(connection: Connection, key: str, width: int, names: Iterable[bytes]) -> tuple[np.ndarray, np.ndarray]:
    """Read the stored rows (N,K) of texts, and which of them are present: (N,) bool."""
    row_by_name = {name: row for row, name in enumerate(names)}
    rows, is_stored = np.zeros((len(row_by_name), width), FLOAT), np.zeros(len(row_by_name), bool)
    for block, texts in connection.execute("SELECT rowid, texts FROM blocks WHERE key = ?", (key,)):
        indices = np.array([row_by_name.get(name, -1) for name in np.frombuffer(texts, "V32").tolist()])
        wanted = indices >= 0
        if wanted.any():
            query = "SELECT rows, checksum FROM blocks WHERE rowid = ?"
            content, checksum = connection.execute(query, (block,)).fetchone()
            if zlib.crc32(content, zlib.crc32(texts)) != checksum:
                continue  # damaged: computed again
            rows[indices[wanted]] = np.frombuffer(content, FLOAT).reshape(-1, width)[wanted]
            is_stored[indices[wanted]] = True
    return rows, is_stored


def _write(connection: Connection, key: str, names: Sequence[bytes], rows: np.ndarray) -> None:
    """Write the rows (N,K) of texts."""
    size = max(1, min(BLOCK, BLOCK_BYTES // max(rows[:1].nbytes, 1)))
    for start, part in portions(names, size):
        texts, content = b"".join(part), rows[start : start + size].tobytes()
        values = key, texts, content, zlib.crc32(content, zlib.crc32(texts))
        connection.execute("INSERT INTO blocks VALUES (?, ?, ?, ?)", values)


# -- keys --------------------------------------------------------------------------------------------------------------


def key_of(model: str, recipe: str, stats: CorpusStats | None) -> str:
    """Return the cache key of a recipe's rows, from the digests of model and recipe and the token counts."""
    total = hashlib.sha256(f"{model}\n{recipe}\n".encode())
    if stats is not None:
        total.update(str(stats.texts).encode() + stats.document_frequency.tobytes() + stats.count.tobytes())
    return total.hexdigest()[:32]


def digest_of_backbone(backbone: Backbone, *settings: object) -> str:
    """Return the digest of a backbone's parameters, configuration, tokenizer, maximum length and other settings."""
    config = {key: value for key, value in backbone.model.config.to_dict().items() if key not in NOT_COMPUTED}
    computed = json.dumps(config, sort_keys=True, default=str)
    passes = [BFLOAT16] if backbone.precision == BFLOAT16 else []
    return digest_of(
        backbone, computed, tokenizer_digest(backbone.tokenizer), backbone.max_seq_length, *passes, *settings
    )


def digest_of(model: nn.Module, *settings: object) -> str:
    """Return a digest of a model's parameters and settings, which distinguishes weights under the same name.

    Every weight is read each time, because torch's version counters miss changes through `.data`. Of each weight, the
    digest contains the sums of its 8-byte words modulo 2^64, across blocks and within blocks, which take a tenth of the
    time of SHA-256. A changed byte changes both sums, and so do swapped weights.
    """
    total = hashlib.sha256(repr(settings).encode())
    for name, value in sorted(weights_of(model).items()):
        total.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
        content = value.detach().cpu().contiguous().flatten().view(dtype=torch.uint8).numpy()
        whole = len(content) // (8 * WORDS) * (8 * WORDS)
        blocks = content[:whole].view(np.uint64).reshape(-1, WORDS)
        for part in (blocks.sum(axis=0), blocks.sum(axis=1), content[whole:]):
            total.update(part.data)
    return total.hexdigest()
