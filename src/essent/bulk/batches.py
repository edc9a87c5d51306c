"""Batches between file and part: rows, texts, statuses, chunks, vectors."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from essent.bulk.lines import decoded
from essent.bulk.models import Model
from essent.bulk.settings import (
    CHUNK_COLUMNS,
    CHUNKS,
    EMPTY,
    NOT_FINITE,
    NOT_TEXT,
    NULL,
    OK,
    STATUSES,
    TRUNCATED,
    UNREADABLE,
    ZERO,
    BulkSettings,
)
from essent.bulk.sources import Source
from essent.bulk.tables import TableFile
from essent.bulk.units import Job, Unit
from essent.errors import DataError, InputError

SENTENCE_END = re.compile(r"(?<=[.!?。！？…])[\"'”’)\]]*\s+|(?<=[。！？])|\n+")
SPAN = pa.struct([pa.field("start", pa.int32()), pa.field("end", pa.int32())])


@dataclass
class Batch:
    """Up to some thousands of rows of a unit.

    Attributes:
        table: the columns of the input.
        texts: of the rows.
        codes: the status of each row (N,), as its number in `STATUSES`.
        chunks: of the texts, where they are cut.
        vectors: (M,K) of the rows that have one.
        last: whether it ends its unit.
    """

    unit: Unit
    table: Any
    texts: list[str | None]
    codes: np.ndarray
    chunks: Chunks | None = None
    vectors: np.ndarray = field(default_factory=lambda: np.empty((0, 0), np.float32))
    last: bool = False

    @property
    def encodable(self) -> np.ndarray:
        """Mask (N,) bool of the rows with a text, and after encoding with a vector."""
        return np.asarray(self.codes <= TRUNCATED)

    def require_all(self, source: Source, name: str) -> None:
        """Raise DataError for the first row without a text or vector.

        Raises:
            DataError: says why.
        """
        if not self.encodable.all():
            status = list(STATUSES)[self.codes[np.argmin(self.encodable)]]
            raise DataError(
                f"{source.address}: a row of {self.unit.name} has no {name}: {status} ({STATUSES[status]}); --strict."
            )

    def texts_to_encode(self) -> list[str]:
        """Texts of the rows with a text, in order."""
        return [text for text, has in zip(self.texts, self.encodable.tolist(), strict=True) if has and text is not None]


@dataclass
class Chunks:
    """Chunks of the texts of a batch.

    Attributes:
        texts: of the chunks.
        rows: the row (M,) of each.
        spans: start and end in the row's text, in characters (M,2).
        truncated: which have more tokens than the model reads (M,).
    """

    texts: list[str]
    rows: np.ndarray
    spans: np.ndarray
    truncated: np.ndarray


def read_batches(unit: Unit, job: Job, model: Model, table: TableFile | None) -> Iterator[Batch]:
    """Yield the batches of a unit with their texts; at least one, which may be empty.

    Args:
        table: the open file of a Parquet or Arrow unit.

    Raises:
        DataError: the source cannot be read; with `strict` a row without a text.
    """
    source_input, settings = job.inputs[unit.source], job.settings
    previous: Batch | None = None
    for rows, unread, not_text in source_input.read(unit, settings, table):
        if previous is not None:
            yield previous
        previous = Batch(unit, rows, *read_texts(rows.column(settings.column), unread, not_text))
        if settings.strict:
            previous.require_all(source_input.source, "text to encode")
        if settings.chunk is not None:
            previous.chunks = _cut(previous, settings, model)
        else:
            rows_with_text = np.flatnonzero(previous.encodable)
            previous.codes[rows_with_text[model.too_long(previous.texts_to_encode())]] = TRUNCATED
    if previous is None:
        previous = Batch(unit, pa.schema(source_input.fields).empty_table(), [], np.zeros(0, np.uint8))
        previous.chunks = None if settings.chunk is None else _cut(previous, settings, model)
    previous.last = True
    yield previous


def read_texts(
    column: Any, unread: np.ndarray | None = None, not_text: np.ndarray | None = None
) -> tuple[list[str | None], np.ndarray]:
    """Return the texts of a column of strings and the status of each row (N,) uint8.

    Args:
        column: Arrow's, of any type of strings, or all null.
        unread, not_text: rows (N,) that a reader could not read, or where it read another kind of value.
    """
    codes = np.zeros(len(column), np.uint8)
    try:
        texts: list[str | None] = column.to_pylist()
    except UnicodeDecodeError:  # a writer that did not look at its bytes
        binary = column.cast(pa.large_string()).cast(pa.large_binary()).to_pylist()
        texts = [None if cell is None else decoded(cell) for cell in binary]
        unread = np.array([cell is not None and text is None for cell, text in zip(binary, texts, strict=True)])
    codes[[text is None for text in texts]] = NULL
    codes[[text is not None and not text.strip() for text in texts]] = EMPTY
    for rows, status in ((not_text, NOT_TEXT), (unread, UNREADABLE)):
        if rows is not None:
            codes[rows] = status
    return texts, codes


def encode(batch: Batch, model: Model, settings: BulkSettings) -> None:
    """Encode a batch. Zero and non-finite vectors are dropped, with a status for their rows."""
    chunks = batch.chunks
    vectors = model.encode(batch.texts_to_encode() if chunks is None else chunks.texts)
    rows = np.flatnonzero(batch.encodable) if chunks is None else np.arange(len(vectors))
    codes = batch.codes if chunks is None else np.where(chunks.truncated, TRUNCATED, OK).astype(np.uint8)
    finite = np.asarray(np.isfinite(vectors).all(axis=1))
    nonzero = np.asarray(vectors.any(axis=1))
    codes[rows[~nonzero]], codes[rows[~finite]] = ZERO, NOT_FINITE
    valid = finite & nonzero
    if chunks is None:
        batch.vectors = vectors if valid.all() else vectors[valid]
    elif settings.chunk_rows == "rows":
        batch.vectors = vectors[valid]
        _chunks_as_rows(batch, chunks, codes)
    else:
        batch.vectors = _means(batch, chunks, vectors, codes, settings.normalize)


# -- chunks -----------------------------------------------------------------------------------------------------------


def chunk_fields(settings: BulkSettings) -> list[Any]:
    """Return the Arrow fields of the chunks' positions."""
    if settings.chunk is None:
        return []
    if settings.chunk_rows == "rows":
        return [pa.field(name, pa.int32()) for name in CHUNK_COLUMNS]
    return [pa.field(CHUNKS, pa.list_(SPAN))]


def chunk_columns(batch: Batch, chunks: Chunks, settings: BulkSettings) -> dict[str, Any]:
    """Return index and span of each chunk; lists of spans if a row has all of its chunks."""
    starts, ends = chunks.spans.T
    if settings.chunk_rows == "rows":
        numbers = np.arange(len(chunks.rows)) - np.searchsorted(chunks.rows, chunks.rows)
        return {
            name: pa.array(column.astype(np.int32), mask=starts < 0)
            for name, column in zip(CHUNK_COLUMNS, (numbers, starts, ends), strict=True)
        }
    counts = np.bincount(chunks.rows, minlength=len(batch.codes))
    offsets = pa.array(np.concatenate([[0], np.cumsum(counts)]).astype(np.int32))
    spans = pa.StructArray.from_arrays([pa.array(edge.astype(np.int32)) for edge in (starts, ends)], fields=list(SPAN))
    return {CHUNKS: pa.ListArray.from_arrays(offsets, spans)}


def _chunks_as_rows(batch: Batch, chunks: Chunks, codes: np.ndarray) -> None:
    """Repeat each row per chunk; a row without chunks stays."""
    alone = np.setdiff1d(np.arange(len(batch.codes)), chunks.rows)
    rows = np.concatenate([chunks.rows, alone])
    order = np.argsort(rows, kind="stable")
    batch.codes = np.concatenate([codes, batch.codes[alone]])[order]
    batch.table = batch.table.take(rows[order])
    chunks.spans = np.concatenate([chunks.spans, np.full((len(alone), 2), -1)])[order]
    chunks.rows = rows[order]


def _means(batch: Batch, chunks: Chunks, vectors: np.ndarray, codes: np.ndarray, normalize: bool) -> np.ndarray:
    """Average the vectors of each row's chunks, weighted by their length in characters."""
    count = len(batch.codes)
    valid = codes <= TRUNCATED
    lengths = np.maximum(chunks.spans[:, 1] - chunks.spans[:, 0], 1)
    weights = np.where(valid, lengths, 0).astype(np.float64)  # (M,)
    sums = np.zeros((count, vectors.shape[1]))
    np.add.at(sums, chunks.rows[valid], vectors[valid] * weights[valid, None])
    totals = np.bincount(chunks.rows, weights, count)
    worst, truncated = np.zeros(count, np.uint8), np.zeros(count, bool)
    np.maximum.at(worst, chunks.rows, codes)
    truncated[chunks.rows[chunks.truncated]] = True
    cut = np.unique(chunks.rows)
    with_mean = np.where(truncated, TRUNCATED, OK)
    batch.codes[cut] = np.where(totals > 0, with_mean, worst)[cut]
    means: np.ndarray = (sums[totals > 0] / totals[totals > 0, None]).astype(np.float32)
    return means if not normalize else means / np.maximum(np.linalg.norm(means, axis=1), 1e-12)[:, None]


def _cut(batch: Batch, settings: BulkSettings, model: Model) -> Chunks:
    """Split the texts of a batch into chunks.

    Raises:
        InputError: chunks by tokens with a model whose tokenizer gives no offsets, or longer than it reads.
    """
    texts = batch.texts_to_encode()
    if settings.chunk == "sentences":
        cuts = [[match.end() for match in SENTENCE_END.finditer(text)] for text in texts]
        spans = [list(pairwise([0, *ends, len(text)])) for text, ends in zip(texts, cuts, strict=True)]
    else:
        spans = _token_chunks(texts, int(str(settings.chunk).partition(":")[2]), model)
    cut, edges, counts = [], [], []
    for text, text_spans in zip(texts, spans, strict=True):
        stripped = [_stripped(text, *span) for span in text_spans if text[slice(*span)].strip()]
        edges += stripped or [_stripped(text, 0, len(text))]
        counts.append(max(len(stripped), 1))
        cut += [text[start:end] for start, end in edges[-counts[-1] :]]
    rows = np.repeat(np.flatnonzero(batch.encodable), counts).astype(np.int64)
    return Chunks(cut, rows, np.array(edges, np.int64).reshape(-1, 2), model.too_long(cut))


def _stripped(text: str, start: int, end: int) -> tuple[int, int]:
    """Strip spaces from both ends of a span."""
    part = text[start:end]
    return start + len(part) - len(part.lstrip()), end - len(part) + len(part.rstrip())


def _token_chunks(texts: list[str], size: int, model: Model) -> list[list[tuple[int, int]]]:
    """Return start and end of chunks of at most `size` tokens."""
    if model.backend is None:
        raise InputError("chunk='tokens:N' needs a fast tokenizer, which this model lacks. Use chunk='sentences'.")
    if model.room is not None and size > model.room:
        raise InputError(f"chunk='tokens:{size}': the model reads at most {model.room} tokens per text.")
    spans = []
    for first in range(0, len(texts), 1024):
        portion = texts[first : first + 1024]
        encodings = model.backend.encode_batch(portion, add_special_tokens=False)
        spans += [_token_spans(encoding, size) for encoding in encodings]
    return spans


def _token_spans(encoding: Any, size: int) -> list[tuple[int, int]]:
    """Return spans of at most `size` tokens, split between words unless a single word is longer."""
    offsets, words = encoding.offsets, encoding.word_ids
    spans, start = [], 0
    while start < len(offsets):
        stop = min(start + size, len(offsets))
        if stop < len(offsets):
            whole = stop
            while whole > start and words[whole] is not None and words[whole] == words[whole - 1]:
                whole -= 1
            stop = whole if whole > start else stop
        spans.append((offsets[start][0], offsets[stop - 1][1]))
        start = stop
    return spans
