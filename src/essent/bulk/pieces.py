"""Windows on their way: rows with texts, their vectors, the columns of a part."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from essent._core.lazy import optional_import
from essent.bulk.cells import CODES, Cells, counted, read_cells
from essent.bulk.chunks import Pieces, cut_cells
from essent.bulk.job import Job
from essent.bulk.models import Model
from essent.bulk.parts import Part, PartWriter
from essent.bulk.places import EXTRA, TABLES
from essent.bulk.settings import NOT_FINITE, STATUS, STATUSES, TRUNCATED, ZERO, BulkSettings
from essent.bulk.tables import TableFile, open_table
from essent.bulk.units import Input, Unit, Window
from essent.bulk.vectors import loss, vector_arrays
from essent.errors import DataError


@dataclass
class Piece:
    """A window on its way: rows, what is encoded of them, and in the end their vectors."""

    unit: Unit
    table: Any
    cells: Cells
    pieces: Pieces | None = None
    vectors: np.ndarray | None = None
    last: bool = False


class Reader:
    """Reads units, and keeps the file of the last one open."""

    def __init__(self, job: Job, model: Model) -> None:
        self.job, self.model = job, model
        self._table: tuple[int, TableFile] | None = None

    def pieces(self, unit: Unit) -> Iterator[Piece]:
        """The windows of a unit with their texts; at least one, which may have no rows."""
        one, settings = self.job.inputs[unit.source], self.job.settings
        held: Piece | None = None
        for window in one.windows(unit, settings, self._open(one)):
            if held is not None:
                yield held
            held = self._piece(unit, window)
        if held is None:
            held = self._piece(unit, Window(_no_rows(one, settings)))
        held.last = True
        yield held

    def _open(self, one: Input) -> TableFile | None:
        if one.source.kind not in TABLES:
            return None
        if self._table is None or self._table[0] != one.number:
            self._table = (one.number, open_table(one.source))
        return self._table[1]

    def _piece(self, unit: Unit, window: Window) -> Piece:
        settings = self.job.settings
        cells = read_cells(window.table.column(settings.column), window.unread, window.not_text)
        if settings.strict and not cells.there.all():
            raise self._without_text(unit, window, cells)
        piece = Piece(unit, window.table, cells)
        if settings.chunk is not None:
            piece.pieces = cut_cells(cells, settings, self.model)
        else:
            places = np.flatnonzero(cells.there)
            cells.codes[places[self.model.too_long(cells.chosen)]] = CODES[TRUNCATED]
        return piece

    def _without_text(self, unit: Unit, window: Window, cells: Cells) -> DataError:
        row = int(np.flatnonzero(~cells.there)[0])
        status = list(STATUSES)[cells.codes[row]]
        address = self.job.inputs[unit.source].source.address
        return DataError(
            f"{address}: a row of {unit.name} has no text to encode: {status} ({STATUSES[status]}); --strict."
        )


def _no_rows(one: Input, settings: BulkSettings) -> Any:
    arrow = optional_import("pyarrow", EXTRA)
    return arrow.schema(one.fields).empty_table()


def encode(piece: Piece, model: Model) -> None:
    """Give a piece its vectors. A vector that is zero or not finite is none, and its row says why."""
    texts = piece.cells.chosen if piece.pieces is None else piece.pieces.texts
    vectors = model.encode(texts)
    finite: np.ndarray = np.isfinite(vectors).all(axis=1)
    known: np.ndarray = np.asarray(vectors.any(axis=1))
    if piece.pieces is not None:
        piece.vectors = piece.pieces.take(piece, vectors, finite, known)
        return
    if not (finite & known).all():
        places = np.flatnonzero(piece.cells.there)
        piece.cells.codes[places[~known]] = CODES[ZERO]
        piece.cells.codes[places[~finite]] = CODES[NOT_FINITE]
        vectors = vectors[finite & known]
    piece.vectors = vectors


class PartMaker:
    """Puts the columns of a part together, and counts."""

    def __init__(self, job: Job, unit: Unit, one: Input) -> None:
        self.job, self.unit, self.one = job, unit, one
        self.rows, self.statuses, self.first = 0, Counter[str](), dict[str, int]()
        self.loss: dict[str, float] | None = None

    def add(self, writer: PartWriter, piece: Piece) -> None:
        """Write a piece."""
        if piece.vectors is None:
            raise ValueError("A piece is written before it is encoded.")
        codes, there = piece.cells.codes, piece.cells.there
        settings = self.job.settings
        if settings.strict and not there.all():
            status = list(STATUSES)[codes[np.flatnonzero(~there)[0]]]
            raise DataError(f"{self.one.source.address}: a row of {self.unit.name} has no vector: {status} (--strict).")
        if self.loss is None:
            self.loss = loss(piece.vectors, settings.dtype)
        for status in counted(codes):
            self.first.setdefault(status, self.rows + int(np.argmax(codes == CODES[status])))
        self.statuses += counted(codes)
        self.rows += len(codes)
        writer.write(self._table(piece, codes, there))

    def _table(self, piece: Piece, codes: np.ndarray, there: np.ndarray) -> Any:
        arrow = optional_import("pyarrow", EXTRA)
        settings, schema = self.job.settings, self.job.schema
        names = set(piece.table.column_names)
        added = {STATUS: arrow.DictionaryArray.from_arrays(codes, list(STATUSES)).cast(arrow.string())}
        if piece.pieces is not None:
            added |= piece.pieces.columns()
        vectors = vector_arrays(piece.vectors, there, settings)  # type: ignore[arg-type]
        added |= dict(zip([item.name for item in schema][-len(vectors) :], vectors, strict=True))
        columns = [
            added[item.name]
            if item.name in added
            else piece.table.column(item.name)
            if item.name in names
            else arrow.nulls(len(codes), item.type)
            for item in schema
        ]
        return arrow.Table.from_arrays(columns, schema=schema)

    def part(self) -> Part:
        """What was written."""
        source = self.one.source
        about = {
            "run": self.job.run,
            "source": {"address": source.address, "print": source.print},
            "versions": self.job.versions,
        }
        first = {status: row for status, row in self.first.items() if status != "ok"}
        return Part(
            self.unit.name, self.unit.start, self.unit.stop, self.rows, dict(self.statuses), about, self.loss, first
        )
