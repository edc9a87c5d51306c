"""Batches between file and part: rows, statuses, texts to encode (whole or as chunks), vectors."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain, pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from essent.bulk.models import (
    CHUNK_COLUMNS,
    LATE,
    NOT_FINITE,
    OK,
    TRUNCATED,
    ZERO,
    BulkSettings,
    Model,
)
from essent.bulk.sources import TABLES, TableFile
from essent.bulk.units import Job, Unit, read_unit
from essent.errors import InputError

SENTENCE_END = re.compile(r"(?<=[.!?。！？…])[\"'”’)\]]*\s+|(?<=[。！？])|\n+")
TOKENIZED = 1024  # texts that are tokenized at a time


@dataclass
class Batch:
    """Up to some thousands of rows of a unit.

    Attributes:
        table: the columns of the input, N rows.
        codes: the status of each row (N,), an index of `STATUSES`; OK for a row with a text that is not yet encoded.
        texts: M texts to encode: the texts of rows, or their chunks.
        rows: the row (M,) of each of these texts.
        truncated: mask (M,) of the texts with more tokens than the model reads.
        chunks: number of each chunk in its text, and its start and end there (M,3), in characters; None without chunks.
        vectors: (V,K), of the rows that have a vector; set by `encode`.
        last: whether the batch ends its unit.
    """

    unit: Unit
    table: Any
    codes: np.ndarray
    texts: list[str]
    rows: np.ndarray
    truncated: np.ndarray
    chunks: np.ndarray | None = None
    vectors: np.ndarray = field(init=False, repr=False)
    last: bool = False


def read_batches(units: Iterable[Unit], job: Job, model: Model) -> Iterator[Batch]:
    """Yield the batches of units: at least one per unit, even if it is empty. A file stays open between its units.

    Raises:
        DataError: a source cannot be read.
    """
    settings = job.settings
    table: TableFile | None = None
    for unit in units:
        source = job.sources[unit.source]
        if source.kind in TABLES and (table is None or table.source is not source):
            table = TableFile(source)
        batch: Batch | None = None
        tables = read_unit(unit, source, settings, table)
        empty: tuple[Any, list[str], np.ndarray] = (pa.schema(source.fields).empty_table(), [], np.zeros(0, np.uint8))
        for columns, texts, codes in chain([next(tables, empty)], tables):
            if batch is not None:
                yield batch
            rows, chunks = np.flatnonzero(codes == OK), None
            if settings.chunk is not None:
                texts, rows, chunks = _cut(texts, rows, settings, model)
                # repeat each row per chunk; a row without chunks stays
                repeated = np.repeat(range(len(codes)), np.maximum(np.bincount(rows, minlength=len(codes)), 1))
                columns, codes = columns.take(repeated), codes[repeated]
                rows = np.flatnonzero(codes == OK)
            truncated = np.zeros(len(texts), bool) if settings.chunks_late else model.too_long(texts)
            batch = Batch(unit, columns, codes, texts, rows, truncated, chunks)
        assert batch is not None  # noqa: S101  (`empty` is a batch)
        batch.last = True
        yield batch


def encode(batch: Batch, model: Model, settings: BulkSettings) -> None:
    """Encode a batch. Zero and non-finite vectors are dropped; the status of their rows gives the reason."""
    if settings.chunks_late and batch.chunks is not None:
        first = np.flatnonzero(batch.chunks[:, 0] == 0).tolist()  # chunk of each text
        texts = [batch.texts[start:stop] for start, stop in pairwise([*first, len(batch.texts)])]
        vectors = model.encode(texts, late=True)  # (M,K)
    else:
        vectors = model.encode(batch.texts)
    codes = np.where(batch.truncated, TRUNCATED, OK).astype(np.uint8)  # (M,)
    codes[~vectors.any(axis=1)] = ZERO
    codes[~np.isfinite(vectors).all(axis=1)] = NOT_FINITE
    valid = codes <= TRUNCATED
    batch.vectors = vectors if valid.all() else vectors[valid]
    batch.codes[batch.rows] = codes


# -- chunks -----------------------------------------------------------------------------------------------------------


def chunk_columns(batch: Batch) -> dict[str, Any]:
    """Return columns of the index and span of each chunk; {} without chunks."""
    if batch.chunks is None:
        return {}
    columns = np.full((len(CHUNK_COLUMNS), len(batch.codes)), -1, np.int32)
    columns[:, batch.rows] = batch.chunks.T
    return {name: pa.array(column, mask=column < 0) for name, column in zip(CHUNK_COLUMNS, columns, strict=True)}


def _cut(
    texts: list[str], rows: np.ndarray, settings: BulkSettings, model: Model
) -> tuple[list[str], np.ndarray, np.ndarray]:
    """Split texts into chunks without spaces at both ends: return their texts, rows (M,), and numbers and spans (M,3).

    For late chunking, the chunks' texts include the spaces: together they are the whole text.

    Raises:
        InputError: chunks by tokens, but the model has no token offsets, or reads fewer tokens.
    """
    chunk = str(settings.chunk).removeprefix(LATE)
    if chunk == "sentences":
        ends = [[match.end() for match in SENTENCE_END.finditer(text)] for text in texts]
        spans = [list(pairwise([0, *text_ends, len(text)])) for text, text_ends in zip(texts, ends, strict=True)]
    else:
        size = int(chunk.partition(":")[2])
        if model.reading is None:
            raise InputError("chunk='tokens:N' needs a fast tokenizer, which this model lacks. Use chunk='sentences'.")
        room = model.reading.room
        if room is not None and size > room:
            raise InputError(f"chunk='tokens:{size}': the model reads at most {room} tokens per text.")
        spans = []
        for first in range(0, len(texts), TOKENIZED):
            encodings = model.reading.backend.encode_batch(texts[first : first + TOKENIZED], add_special_tokens=False)
            spans += [_token_spans(encoding, size) for encoding in encodings]
    chunk_texts: list[str] = []
    chunks: list[tuple[int, int, int]] = []
    counts = []
    for text, text_spans in zip(texts, spans, strict=True):
        stripped = [_stripped(text, start, end) for start, end in text_spans if text[start:end].strip()]
        stripped = stripped or [_stripped(text, 0, len(text))]
        starts = [0, *(start for start, _ in stripped[1:])]
        cuts = list(pairwise([*starts, len(text)])) if settings.chunks_late else stripped
        chunk_texts += [text[start:stop] for start, stop in cuts]
        chunks += [(number, *span) for number, span in enumerate(stripped)]
        counts.append(len(stripped))
    return chunk_texts, np.repeat(rows, counts), np.array(chunks, np.int64).reshape(-1, 3)


def _stripped(text: str, start: int, end: int) -> tuple[int, int]:
    """Strip spaces from both ends of a span."""
    part = text[start:end]
    return start + len(part) - len(part.lstrip()), end - len(part) + len(part.rstrip())


def _token_spans(encoding: Any, size: int) -> list[tuple[int, int]]:
    """Return spans of at most `size` tokens, split between words unless a single word is longer."""
    offsets, words = encoding.offsets, encoding.word_ids
    spans, start = [], 0
    while start < len(offsets):
        stop = most = min(start + size, len(offsets))
        while start < stop < len(offsets) and words[stop] is not None and words[stop] == words[stop - 1]:
            stop -= 1
        stop = stop if stop > start else most
        spans.append((offsets[start][0], offsets[stop - 1][1]))
        start = stop
    return spans
