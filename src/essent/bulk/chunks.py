"""Long texts in pieces: sentences, or so many tokens each, with their places; as rows or as one vector a text."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from essent._core.lazy import optional_import
from essent.bulk.cells import CODES, Cells
from essent.bulk.places import EXTRA
from essent.bulk.settings import NOT_FINITE, OK, PLACES, TRUNCATED, ZERO, BulkSettings
from essent.errors import InputError

if TYPE_CHECKING:
    from essent.bulk.models import Model
    from essent.bulk.pieces import Piece

END = re.compile(r"(?<=[.!?。！？…])[\"'”’)\]]*\s+|(?<=[。！？])|\n+")  # behind a sentence or line


@dataclass
class Pieces:
    """Pieces of the texts of a window.

    Attributes:
        texts: of the pieces.
        owner: the row (M,) of each.
        starts, ends: places in the row's text, in characters (M,).
        long: pieces that have more tokens than the model reads (M,).
        as_rows: whether each becomes a row.
        rows: of the window.
        unit: whether a mean is scaled to length 1.
    """

    texts: list[str]
    owner: np.ndarray
    starts: np.ndarray
    ends: np.ndarray
    long: np.ndarray
    as_rows: bool
    rows: int
    unit: bool

    def take(self, piece: Piece, vectors: np.ndarray, finite: np.ndarray, known: np.ndarray) -> np.ndarray:
        """The vectors of the rows, and the rows themselves where every piece becomes one."""
        codes = np.where(self.long, CODES[TRUNCATED], CODES[OK]).astype(np.uint8)
        codes[~known], codes[~finite] = CODES[ZERO], CODES[NOT_FINITE]
        good = finite & known
        if self.as_rows:
            self._as_rows(piece, codes)
            kept: np.ndarray = vectors[good]
            return kept
        return self._means(piece, vectors, codes, good)

    def _as_rows(self, piece: Piece, codes: np.ndarray) -> None:
        """A row for each piece; one without pieces stays."""
        alone = np.setdiff1d(np.arange(self.rows), self.owner)
        rows = np.concatenate([self.owner, alone])
        order = np.argsort(rows, kind="stable")
        piece.cells.codes = np.concatenate([codes, piece.cells.codes[alone]])[order]
        piece.table = piece.table.take(rows[order])
        nothing = np.full(len(alone), -1)
        self.starts, self.ends = (np.concatenate([some, nothing])[order] for some in (self.starts, self.ends))
        self.owner = rows[order]

    def _means(self, piece: Piece, vectors: np.ndarray, codes: np.ndarray, good: np.ndarray) -> np.ndarray:
        """One vector a row: the mean of its pieces' vectors by their length in characters."""
        weights = np.where(good, np.maximum(self.ends - self.starts, 1), 0).astype(np.float64)
        sums = np.zeros((self.rows, vectors.shape[1]))
        np.add.at(sums, self.owner[good], vectors[good] * weights[good, None])
        total = np.bincount(self.owner, weights, self.rows)
        has = np.zeros(self.rows, bool)
        has[self.owner] = True
        worst = np.zeros(self.rows, np.uint8)
        np.maximum.at(worst, self.owner, codes)
        kept = piece.cells.codes
        long = np.zeros(self.rows, bool)
        long[self.owner[self.long]] = True
        kept[has] = np.where(total[has] > 0, np.where(long[has], CODES[TRUNCATED], CODES[OK]), worst[has])
        chosen = has & (total > 0)
        found: np.ndarray = (sums[chosen] / total[chosen, None]).astype(np.float32)
        lengths = np.linalg.norm(found, axis=1)
        return found if not self.unit else found / np.maximum(lengths, 1e-12)[:, None]

    def columns(self) -> dict[str, Any]:
        """Number and place of each piece; lists of the places where a row has all of its pieces."""
        arrow = optional_import("pyarrow", EXTRA)
        if self.as_rows:
            first = np.searchsorted(self.owner, self.owner)
            absent = self.starts < 0
            values = (np.arange(len(self.owner)) - first, self.starts, self.ends)
            return {
                name: arrow.array(some.astype(np.int32), mask=absent) for name, some in zip(PLACES, values, strict=True)
            }
        counts = np.bincount(self.owner, minlength=self.rows)
        offsets = arrow.array(np.concatenate([[0], np.cumsum(counts)]).astype(np.int32))
        places = [arrow.array(some.astype(np.int32)) for some in (self.starts, self.ends)]
        struct = arrow.StructArray.from_arrays(places, fields=_struct_fields())
        return {f"{PLACES[0]}s": arrow.ListArray.from_arrays(offsets, struct)}


def _struct_fields() -> list[Any]:
    arrow = optional_import("pyarrow", EXTRA)
    return [arrow.field("start", arrow.int32()), arrow.field("end", arrow.int32())]


def chunk_fields(settings: BulkSettings) -> list[Any]:
    """Arrow's fields of the places of pieces."""
    arrow = optional_import("pyarrow", EXTRA)
    if settings.chunk is None:
        return []
    if settings.chunk_rows == "rows":
        return [arrow.field(name, arrow.int32()) for name in PLACES]
    return [arrow.field(f"{PLACES[0]}s", arrow.list_(arrow.struct(_struct_fields())))]


def cut_cells(cells: Cells, settings: BulkSettings, model: Model) -> Pieces:
    """The texts of a window in pieces.

    Raises:
        InputError: pieces by tokens of a model whose tokenizer gives no places, or longer than it reads.
    """
    spec = settings.chunk or ""
    rows = np.flatnonzero(cells.there)
    if spec == "sentences":
        spans = [_sentences(text) for text in cells.chosen]
    else:
        spans = _by_tokens(cells.chosen, int(spec.partition(":")[2]), model)
    texts = [text[start:end] for text, some in zip(cells.chosen, spans, strict=True) for start, end in some]
    owner = np.repeat(rows, [len(some) for some in spans]).astype(np.int64)
    places = np.array([place for some in spans for place in some], np.int64).reshape(-1, 2)
    long = model.too_long(texts)
    as_rows = settings.chunk_rows == "rows"
    return Pieces(texts, owner, places[:, 0], places[:, 1], long, as_rows, len(cells.codes), settings.normalize)


def _sentences(text: str) -> list[tuple[int, int]]:
    """Start and end of each sentence, without the spaces around it."""
    cuts = [found.end() for found in END.finditer(text)]
    return [_stripped(text, start, end) for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)
            if text[start:end].strip()]  # fmt: skip


def _stripped(text: str, start: int, end: int) -> tuple[int, int]:
    part = text[start:end]
    return start + len(part) - len(part.lstrip()), end - len(part) + len(part.rstrip())


def _by_tokens(texts: list[str], size: int, model: Model) -> list[list[tuple[int, int]]]:
    """Start and end of pieces of at most so many tokens, cut between words where there is one."""
    check_chunk(size, model)
    found = []
    for start in range(0, len(texts), 1024):
        for text, encoding in zip(
            texts[start : start + 1024], _encodings(model, texts[start : start + 1024]), strict=True
        ):
            found.append(_spans(text, encoding, size))
    return found


def check_chunk(size: int, model: Model) -> None:
    """Refuse pieces that the model cannot be given.

    Raises:
        InputError: no tokenizer that gives places, or pieces longer than the model reads.
    """
    if model.backend is None:
        raise InputError("chunk='tokens:N' needs a fast tokenizer, and this model has none: use chunk='sentences'.")
    if model.room is not None and size > model.room:
        raise InputError(f"chunk='tokens:{size}': the model reads {model.room} tokens of a text at most.")


def _encodings(model: Model, texts: list[str]) -> list[Any]:
    return list(model.backend.encode_batch(texts, add_special_tokens=False))


def _spans(text: str, encoding: Any, size: int) -> list[tuple[int, int]]:
    offsets, words = encoding.offsets, encoding.word_ids
    found, start = [], 0
    while start < len(offsets):
        stop = min(start + size, len(offsets))
        if stop < len(offsets):  # not within a word, unless it alone is longer
            whole = stop
            while whole > start and words[whole] is not None and words[whole] == words[whole - 1]:
                whole -= 1
            stop = whole if whole > start else stop
        begin = offsets[start][0]
        end = offsets[stop - 1][1]
        if text[begin:end].strip():
            found.append(_stripped(text, begin, end))
        start = stop
    return found or [_stripped(text, 0, len(text))]
