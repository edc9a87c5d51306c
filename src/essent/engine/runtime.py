"""Engines that run a converted file: many batches at once on every core, or one with all of them."""

from __future__ import annotations

import contextlib
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from functools import cached_property, partial
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from essent._core.cores import cores
from essent.engine.libraries import FILES, onnxruntime, openvino
from essent.errors import EngineError

Batch = tuple[np.ndarray, np.ndarray, np.ndarray]  # rows of the result (B,), ids (B,T), attention mask (B,T)
Keep = Callable[[np.ndarray, np.ndarray], None]  # takes rows (B,) and vectors (B,K)
Run = Callable[[np.ndarray, np.ndarray], np.ndarray]  # ids and attention mask (B,T) to vectors (B,K)
# For how many shapes of batches OpenVINO keeps what it made, by default 5,000: with all-MiniLM-L6-v2 that took half a
# gigabyte after 2,000 shapes at random. A server's lanes, which run for months, keep 16: with 16 a server is as fast as
# with 64 (1.01 times the time, 0.87 to 1.07), while encoding a list takes 1.06 times the time (1.00 to 1.11).
SHAPES = "CPU_RUNTIME_CACHE_CAPACITY"
SHAPES_KEPT, SHAPES_OF_LANES = 64, 16


class Runtime(ABC):
    """A converted file, ready to run.

    Args:
        folder: holds the file.
        precision: what to compute in.
        threads: in all; the cores of the machine by default.
        streams: batches at the same time; each has `threads / streams` threads. By default one a thread up to 4
            threads, one for two threads from there: one stream waits for memory while another computes.

    Raises:
        EngineError: a precision that engine or machine do not have, or numbers that do not fit.
    """

    engine: str
    precisions: tuple[str, ...]

    def __init__(self, folder: Path, precision: str, threads: int | None = None, streams: int | None = None) -> None:
        for name, value in (("threads", threads), ("streams", streams)):
            if value is not None and (not isinstance(value, int) or value < 1):
                raise EngineError(f"{name} must be a whole number ≥ 1, not {value!r}.")
        self.threads = threads or cores()
        self.streams = streams or (self.threads if self.threads <= 4 else self.threads // 2)
        if self.streams > self.threads:
            raise EngineError(f"{self.streams} streams need at least as many threads, got threads={self.threads}.")
        self.path = Path(folder).absolute() / FILES[self.engine]  # read again at first use, wherever that is
        self.precision = precision
        self._quick_lock, self._bulk_lock = Lock(), Lock()  # a query does not wait for a corpus

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise EngineError(
            "An engine can be neither copied nor sent to another process: save the compiled encoder, and read the "
            "folder there with essent.load."
        )

    @abstractmethod
    def one(self, ids: np.ndarray, attention_mask: np.ndarray) -> np.ndarray:
        """Vectors (B,K) of one batch, with all threads."""

    @abstractmethod
    def many(self, batches: Iterable[Batch], keep: Keep) -> None:
        """Run batches as they come, `streams` at a time, and hand each one's vectors over."""

    @abstractmethod
    def lanes(self) -> list[Run]:
        """As many functions as streams, each of which may run a batch while the others and `one` run theirs."""


class OpenVINORuntime(Runtime):
    """OpenVINO on the CPU. What it compiles is made at first use: one for single batches, one for many."""

    engine = "openvino"
    precisions = ("float32", "bfloat16", "int8")

    def __init__(self, folder: Path, precision: str, threads: int | None = None, streams: int | None = None) -> None:
        super().__init__(folder, precision, threads, streams)
        self._core = openvino().Core()
        check_precision(precision, self._core.get_property("CPU", "OPTIMIZATION_CAPABILITIES"))
        try:
            self._model = self._core.read_model(self.path)
        except RuntimeError as error:
            raise EngineError(f"OpenVINO cannot read {self.path}: {str(error).strip().splitlines()[-1]}") from error

    def _compile(self, streams: int, shapes: int = SHAPES_KEPT) -> Any:
        kind = "bf16" if self.precision == "bfloat16" else "f32"  # int8 files say themselves what is int8 in them
        settings = {"INFERENCE_PRECISION_HINT": kind, "INFERENCE_NUM_THREADS": self.threads, "NUM_STREAMS": streams}
        with contextlib.suppress(RuntimeError):  # OpenVINO does not document this setting, and may drop it
            return self._core.compile_model(self._model, "CPU", {**settings, SHAPES: shapes})
        return self._core.compile_model(self._model, "CPU", settings)

    @cached_property
    def _quick(self) -> Any:
        return self._compile(1).create_infer_request()

    @cached_property
    def _queue(self) -> Any:
        return openvino().AsyncInferQueue(self._compile(self.streams), 2 * self.streams)

    def one(self, ids: np.ndarray, attention_mask: np.ndarray) -> np.ndarray:
        """The vectors (B,K) of one batch."""
        with self._quick_lock:
            return np.array(self._quick.infer([ids, attention_mask])[0])  # a copy: the request's memory is used again

    def many(self, batches: Iterable[Batch], keep: Keep) -> None:
        """Run several batches at a time and hand each one's vectors to `keep`."""
        failed: list[BaseException] = []

        def done(request: Any, rows: np.ndarray) -> None:
            try:
                keep(rows, request.get_output_tensor(0).data)
            except BaseException as error:  # within OpenVINO's thread it would end the process
                failed.append(error)

        with self._bulk_lock:
            queue = self._queue
            queue.set_callback(done)
            try:
                for rows, ids, attention_mask in batches:
                    if failed:
                        break
                    queue.start_async([ids, attention_mask], userdata=rows)
                queue.wait_all()
            except BaseException:
                del self._queue  # a request that failed would raise its error again at the next use
                for request in queue:
                    with contextlib.suppress(RuntimeError):
                        request.wait()
                raise
            finally:
                queue.set_callback(_nothing)  # `keep` holds all the vectors, which are the caller's alone
        if failed:
            raise failed[0]

    def lanes(self) -> list[Run]:
        """Requests of one compiled model, a stream each."""
        compiled = self._compile(self.streams, SHAPES_OF_LANES)

        def lane(request: Any) -> Run:
            return lambda ids, attention_mask: np.array(request.infer([ids, attention_mask])[0])

        return [lane(compiled.create_infer_request()) for _ in range(self.streams)]


def _nothing(request: Any, rows: Any) -> None:
    """What a queue calls between two uses."""


def hidden_instructions() -> str:
    """A sentence for errors of OpenVINO while a variable hides the CPU's instructions from oneDNN, which it calls."""
    name = "ONEDNN_MAX_CPU_ISA"
    if name not in os.environ:
        return ""
    return (
        f" The environment variable {name}={os.environ[name]} hides instructions of this CPU from oneDNN, while "
        "OpenVINO still plans with them: unset it."
    )


def check_precision(precision: str, capabilities: Iterable[str]) -> None:
    """Refuse bfloat16 where the CPU has no such arithmetic: OpenVINO would compute in float32 without a word."""
    if precision == "bfloat16" and "BF16" not in capabilities:
        raise EngineError(
            "This CPU has no bfloat16 arithmetic (AVX-512 BF16 or AMX), so precision='bfloat16' would be float32 under "
            "another name. Use precision='float32', or 'int8' with calibration texts."
        )


class OnnxRuntime(Runtime):
    """onnxruntime on the CPU: one session, run by as many threads as there are streams."""

    engine = "onnx"
    precisions = ("float32",)

    def _session(self, threads: int) -> Any:
        ort = onnxruntime()
        options = ort.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        options.log_severity_level = 3
        try:
            return ort.InferenceSession(str(self.path), options, providers=["CPUExecutionProvider"])
        except Exception as error:  # onnxruntime's own errors have no common base but Exception
            raise EngineError(f"onnxruntime cannot read {self.path}: {str(error).strip().splitlines()[-1]}") from error

    @cached_property
    def _quick(self) -> Any:
        return self._session(self.threads)

    @cached_property
    def _shared(self) -> Any:
        return self._session(max(self.threads // self.streams, 1))

    def one(self, ids: np.ndarray, attention_mask: np.ndarray) -> np.ndarray:
        """The vectors (B,K) of one batch."""
        with self._quick_lock:  # one session, made once; sessions themselves may be shared
            session = self._quick
        return _vectors(session, ids, attention_mask)

    def many(self, batches: Iterable[Batch], keep: Keep) -> None:
        """Run several batches at a time and hand each one's vectors to `keep`."""
        with self._bulk_lock:
            session = self._shared

        def run(rows: np.ndarray, ids: np.ndarray, attention_mask: np.ndarray) -> None:
            keep(rows, _vectors(session, ids, attention_mask))

        with ThreadPoolExecutor(self.streams) as pool:
            running: set[Any] = set()
            for batch in batches:
                running.add(pool.submit(run, *batch))
                if len(running) >= 2 * self.streams:
                    done, running = wait(running, return_when=FIRST_COMPLETED)
                    for future in done:
                        future.result()
            for future in running:
                future.result()

    def lanes(self) -> list[Run]:
        """One session, run by as many threads as there are streams."""
        with self._bulk_lock:
            session = self._shared
        return [partial(_vectors, session)] * self.streams


RUNTIMES: dict[str, type[Runtime]] = {kind.engine: kind for kind in (OpenVINORuntime, OnnxRuntime)}


def runtime_of(engine: str, precision: str) -> type[Runtime]:
    """The class that runs an engine's files in a precision.

    Raises:
        EngineError: names what there is.
    """
    if engine not in RUNTIMES:
        raise EngineError(f"Unknown engine {engine!r}; known: {', '.join(RUNTIMES)}.")
    kind = RUNTIMES[engine]
    if precision not in kind.precisions:
        raise EngineError(f"{engine} runs in {', '.join(kind.precisions)}, not in {precision!r}.")
    return kind


def _vectors(session: Any, ids: np.ndarray, attention_mask: np.ndarray) -> np.ndarray:
    names = [graph_input.name for graph_input in session.get_inputs()]  # version 0.1 called them otherwise
    return np.asarray(session.run(None, dict(zip(names, (ids, attention_mask), strict=True)))[0])
