"""A unit to a part: read, encode, write. A part depends on its unit and the job alone, not on what was done before."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, Full, Queue
from threading import Condition, Event, Thread
from typing import Any

import numpy as np

from essent.bulk.cells import CODES, NOT_FINITE, STATUSES, TRUNCATED, ZERO, Cells, counted, read_cells
from essent.bulk.chunks import Pieces, cut_cells
from essent.bulk.models import Model, ModelSpec, open_encoder, ready
from essent.bulk.parts import Part, PartWriter, writing
from essent.bulk.places import EXTRA, TABLES
from essent.bulk.settings import STATUS, BulkSettings
from essent.bulk.tables import TableFile, open_table
from essent.bulk.units import Input, Unit, Window
from essent.bulk.vectors import loss, vector_arrays
from essent.types import DataError, optional_import

AHEAD = 3  # windows that are read before they are encoded, and encoded before they are written


@dataclass(frozen=True)
class Job:
    """Everything that a unit needs, and nothing that is open: it can be sent to another process or machine.

    Attributes:
        spec: the model.
        settings: what is computed.
        inputs: the sources.
        folder: where the parts are written.
        schema: Arrow's, of the parts.
        run: what all parts share, for their footers.
        versions: of libraries, for the footers.
        ahead: windows in memory before and behind the model.
    """

    spec: ModelSpec
    settings: BulkSettings
    inputs: Sequence[Input]
    folder: Path
    schema: Any
    run: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    ahead: int = AHEAD

    def open_model(self) -> Model:
        """Load the model, as every process does once."""
        return ready(open_encoder(self.spec, self.settings), self.settings)


@dataclass
class Piece:
    """A window on its way: rows, what is encoded of them, and in the end their vectors."""

    unit: Unit
    table: Any
    cells: Cells
    pieces: Pieces | None = None
    vectors: np.ndarray | None = None
    last: bool = False


def do_unit(unit: Unit, job: Job, model: Model) -> Part:
    """Compute one part and write it.

    Raises:
        DataError: the source cannot be read or has changed, or the part cannot be written.
    """
    return next(iter(do_units([unit], job, model)))


def do_units(units: Iterable[Unit | None], job: Job, model: Model, stop: Event | None = None) -> Iterator[Part]:
    """Compute the parts of units, in their order; what is read and written overlaps with the model's work.

    Of a run that is killed, at most one whole part was computed and not yet written: the model does not end a part
    before the last one is on the disk.

    Args:
        units: a None among them says that there is none at the moment, and more may come.
        stop: when it is set, the part that was begun is the last one.

    Raises:
        DataError: see `do_unit`.
    """
    with closing(_Line(units, job, model, stop or Event()).parts()) as parts:
        yield from parts


class _Line:
    """Reader, model and writer, each in a thread of its own; the model's is the caller's."""

    def __init__(self, units: Iterable[Unit | None], job: Job, model: Model, stop: Event) -> None:
        self.units, self.job, self.model, self.stop = units, job, model, stop
        self.read: Queue[Piece | Exception | None] = Queue(job.ahead)
        self.made: Queue[Piece | None] = Queue(job.ahead)
        self.written: Queue[Part] = Queue()
        self.over = Event()  # the line is torn down, whatever it holds
        self.changed, self.commits, self.ended = Condition(), 0, False
        self.error: BaseException | None = None  # of the writer

    def parts(self) -> Generator[Part, None, None]:
        """Run until there are no more units."""
        threads = [Thread(target=target, daemon=True) for target in (self._reader, self._writer)]
        for thread in threads:
            thread.start()
        try:
            failure = yield from self._encode_all()
            self._give(None)
            while self._wait(lambda: self.ended or not self.written.empty()) and not self.written.empty():
                yield self.written.get()
            if failure is not None:
                raise failure
        finally:
            self.over.set()
            for thread in threads:
                thread.join()

    def _encode_all(self) -> Generator[Part, None, Exception | None]:
        """Encode what is read; the error that ended the reading comes after all that was read before it."""
        units, begins = 0, True
        while (piece := (yield from self._next_read())) is not None:
            if isinstance(piece, Exception):
                return piece
            if begins and self.stop.is_set():
                return None
            begins = piece.last
            if piece.last:
                before, units = units, units + 1
                self._wait(lambda commits=before: self.commits >= commits)  # type: ignore[misc]
            encode(piece, self.model)
            self._give(piece)
        return None

    def _wait(self, ready: Callable[[], bool]) -> bool:
        """Wait for the writer.

        Raises:
            BaseException: what the writer raised.
        """
        with self.changed:
            while not ready() and self.error is None:
                self.changed.wait(0.5)
        if self.error is not None:
            raise self.error
        return True

    def _next_read(self) -> Generator[Part, None, Piece | Exception | None]:
        """The next window; until it comes, the parts that are written."""
        while self.error is None:
            while not self.written.empty():
                yield self.written.get()
            try:
                return self.read.get(timeout=0.2)
            except Empty:
                continue
        raise self.error

    def _give(self, piece: Piece | None) -> None:
        while self.error is None:
            try:
                return self.made.put(piece, timeout=0.2)
            except Full:
                continue
        raise self.error

    # -- threads ----------------------------------------------------------------------------------------------------

    def _reader(self) -> None:
        try:
            reader = Reader(self.job, self.model)
            for unit in self.units:
                if unit is None:
                    if self.over.is_set():
                        return
                    continue
                for piece in reader.pieces(unit):
                    if not self._put(piece):
                        return
        except Exception as error:
            self._put(error)
        else:
            self._put(None)

    def _put(self, item: Piece | Exception | None) -> bool:
        while not self.over.is_set():
            try:
                self.read.put(item, timeout=0.2)
            except Full:
                continue
            return True
        return False

    def _writer(self) -> None:
        try:
            while (piece := self._next_made()) is not None:
                part = self._write(piece)
                with self.changed:
                    self.written.put(part)
                    self.commits += 1
                    self.changed.notify_all()
        except _StoppedError:
            pass
        except BaseException as error:
            self.error = error
        with self.changed:
            self.ended = True
            self.changed.notify_all()

    def _next_made(self) -> Piece | None:
        while not self.over.is_set():
            try:
                return self.made.get(timeout=0.2)
            except Empty:
                continue
        raise _StoppedError

    def _write(self, piece: Piece | None) -> Part:
        """Write the part that begins with this piece."""
        job = self.job
        if piece is None:
            raise _StoppedError
        one = job.inputs[piece.unit.source]
        made = PartMaker(job, piece.unit, one)
        with writing(job.folder, piece.unit.name, job.schema) as writer:
            made.add(writer, piece)
            while not piece.last:
                piece = self._next_made()
                if piece is None:
                    raise _StoppedError
                made.add(writer, piece)
            one.source.check_unchanged()
            part = made.part()
            writer.finish(part)
        return part


class _StoppedError(Exception):
    """The line was stopped in the middle of a part, which is not kept."""


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
