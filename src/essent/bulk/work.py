"""A unit to a part: read, encode, write. A part depends on its unit and the job alone, not on what was done before."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from queue import Empty, Full, Queue
from threading import Condition, Event, Thread

from essent.bulk.job import Job
from essent.bulk.models import Model
from essent.bulk.parts import Part, writing
from essent.bulk.pieces import PartMaker, Piece, Reader, encode
from essent.bulk.units import Unit


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
