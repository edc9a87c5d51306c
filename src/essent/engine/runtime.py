"""Engines that run a converted file without torch: several batches in parallel, or one batch on all cores."""

from __future__ import annotations

import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from functools import cached_property, partial
from pathlib import Path
from queue import SimpleQueue
from threading import Lock
from types import ModuleType
from typing import Any

import numpy as np

from essent._core.lazy import optional_import
from essent._core.machine import cores
from essent.errors import EngineError

FILES = {"openvino": "model.xml", "onnx": "model.onnx"}
ALL_FILES = ("model.xml", "model.bin", "model.onnx", "model.onnx.data")  # the last for onnx above 2 GB
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json")
Batch = tuple[np.ndarray, np.ndarray, np.ndarray]  # row indices (B,), ids (B,T), attention mask (B,T)
Run = Callable[[np.ndarray, np.ndarray], np.ndarray]  # ids and attention mask (B,T) to vectors (B,K)
# Number of batch shapes that OpenVINO caches, by default 5,000: with all-MiniLM-L6-v2, 2,000 random shapes used half a
# gigabyte. A server's lanes, which run for months, cache 16: a server is then as fast as with 64 (1.01 times the time,
# 0.87 to 1.07), while encoding a list takes 1.06 times the time (1.00 to 1.11).
SHAPES = "CPU_RUNTIME_CACHE_CAPACITY"
SHAPES_KEPT, SHAPES_OF_LANES = 64, 16
_tables_lock = Lock()


def openvino() -> ModuleType:
    """Import OpenVINO without its telemetry, which sends a message at import unless its package is missing.

    Its tables of number types are initialized here, by one thread. Two threads that initialize them at the first use of
    a tensor can deadlock: one holds the table's guard and waits for the interpreter's lock, the other the reverse (seen
    in 2026.4, in 3 of 100 starts with two streams).
    """
    if "openvino" not in sys.modules and "openvino_telemetry" not in sys.modules:
        sys.modules["openvino_telemetry"] = None  # type: ignore[assignment]  # its import then fails
    with _tables_lock:
        library = optional_import("openvino", "openvino")
        _ = library.Tensor(np.zeros(1, np.int64)).data
    return library


def onnxruntime() -> ModuleType:
    """Import onnxruntime without its telemetry."""
    os.environ.setdefault("ORT_TELEMETRY_DISABLED", "1")
    return optional_import("onnxruntime", "onnx")


class Runtime(ABC):
    """A converted file, ready to run; sessions for single and for many batches are created at first use.

    Args:
        folder: the folder with the file.
        precision: the precision of the computation.
        threads: total number of threads; by default the machine's cores.

    Attributes:
        streams: number of batches in parallel, each with `threads / streams` threads. One stream per thread up to 4
            threads, then one per two threads: one stream waits for memory while another computes.

    Raises:
        EngineError: a precision that the engine or the machine lacks, or an invalid number of threads.
    """

    engine: str
    precisions: tuple[str, ...]

    def __init__(self, folder: Path, precision: str, threads: int | None = None) -> None:
        self.threads = cores() if threads is None else threads
        if not isinstance(self.threads, int) or self.threads < 1:
            raise EngineError(f"threads={threads!r}: must be a whole number of at least 1.")
        self.streams = self.threads if self.threads <= 4 else self.threads // 2
        self.path = Path(folder).absolute() / FILES[self.engine]  # read at first use, possibly in another folder
        self.precision = precision
        self._quick_lock, self._bulk_lock = Lock(), Lock()  # a query does not wait for a corpus

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise EngineError(
            "An engine can be neither copied nor sent to another process. Save the compiled encoder, and load the "
            "folder there with essent.load."
        )

    @abstractmethod
    def _runs(self, streams: int, count: int, shapes: int = SHAPES_KEPT) -> list[Run]:
        """Return `count` functions for different threads, on an engine that runs `streams` batches in parallel."""

    @cached_property
    def _quick(self) -> Run:
        return self._runs(1, 1)[0]

    @cached_property
    def _bulk(self) -> SimpleQueue[Run]:
        """Idle functions for many batches, two per stream, so that a stream never waits for its next batch."""
        idle: SimpleQueue[Run] = SimpleQueue()
        for run in self._runs(self.streams, 2 * self.streams):
            idle.put(run)
        return idle

    def one(self, ids: np.ndarray, attention_mask: np.ndarray) -> np.ndarray:
        """Compute the vectors (B,K) of one batch, with all threads."""
        with self._quick_lock:
            return self._quick(ids, attention_mask)

    def many(self, batches: Iterable[Batch], keep: Callable[[np.ndarray, np.ndarray], None]) -> None:
        """Run batches as they arrive, `streams` in parallel; call `keep` with rows (B,) and vectors (B,K) of each."""
        with self._bulk_lock:
            idle = self._bulk

        def run_batch(rows: np.ndarray, ids: np.ndarray, attention_mask: np.ndarray) -> None:
            run = idle.get()
            try:
                keep(rows, run(ids, attention_mask))
            finally:
                idle.put(run)

        with ThreadPoolExecutor(2 * self.streams) as pool:
            running: set[Future[None]] = set()
            for batch in batches:
                running.add(pool.submit(run_batch, *batch))
                if len(running) > 2 * self.streams:
                    done, running = wait(running, return_when=FIRST_COMPLETED)
                    for future in done:
                        future.result()
            for future in running:
                future.result()

    def lanes(self) -> list[Run]:
        """Return one function per stream; each can run a batch while the others and `one` run theirs."""
        return self._runs(self.streams, self.streams, SHAPES_OF_LANES)


class OpenVINORuntime(Runtime):
    """OpenVINO on the CPU: one compiled model per use, with requests that can run in parallel."""

    engine = "openvino"
    precisions = ("float32", "bfloat16", "int8")

    def __init__(self, folder: Path, precision: str, threads: int | None = None) -> None:
        super().__init__(folder, precision, threads)
        self._core = openvino().Core()
        check_precision(precision, self._core.get_property("CPU", "OPTIMIZATION_CAPABILITIES"))
        try:
            self._model = self._core.read_model(self.path)
        except RuntimeError as error:
            raise _unreadable("OpenVINO", self.path, error) from error

    def _runs(self, streams: int, count: int, shapes: int = SHAPES_KEPT) -> list[Run]:
        kind = "bf16" if self.precision == "bfloat16" else "f32"  # int8 files specify their int8 parts
        settings = {"INFERENCE_PRECISION_HINT": kind, "INFERENCE_NUM_THREADS": self.threads, "NUM_STREAMS": streams}
        try:  # an undocumented setting that OpenVINO may remove
            compiled = self._core.compile_model(self._model, "CPU", {**settings, SHAPES: shapes})
        except RuntimeError:
            compiled = self._core.compile_model(self._model, "CPU", settings)
        return [partial(_infer, compiled.create_infer_request()) for _ in range(count)]


def _infer(request: Any, ids: np.ndarray, attention_mask: np.ndarray) -> np.ndarray:
    return np.array(request.infer([ids, attention_mask])[0])  # a copy: the request reuses its memory


def check_precision(precision: str, capabilities: Iterable[str]) -> None:
    """Raise an error for bfloat16 on a CPU without such arithmetic, where OpenVINO would silently use float32."""
    if precision == "bfloat16" and "BF16" not in capabilities:
        raise EngineError(
            "precision='bfloat16': this CPU has no bfloat16 arithmetic (AVX-512 BF16 or AMX). Use precision='float32' "
            "or 'int8'."
        )


class OnnxRuntime(Runtime):
    """onnxruntime on the CPU: one session per use, which threads share."""

    engine = "onnx"
    precisions = ("float32",)

    def _runs(self, streams: int, count: int, shapes: int = SHAPES_KEPT) -> list[Run]:
        ort = onnxruntime()
        options = ort.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = max(self.threads // streams, 1), 1
        options.log_severity_level = 3
        try:
            session = ort.InferenceSession(str(self.path), options, providers=["CPUExecutionProvider"])
        except Exception as error:  # onnxruntime's errors share only Exception
            raise _unreadable("onnxruntime", self.path, error) from error
        names = [graph_input.name for graph_input in session.get_inputs()]  # version 0.1 wrote other names

        def run(ids: np.ndarray, attention_mask: np.ndarray) -> np.ndarray:
            return np.asarray(session.run(None, dict(zip(names, (ids, attention_mask), strict=True)))[0])

        return [run] * count


def _unreadable(library: str, path: Path, error: Exception) -> EngineError:
    return EngineError(f"{library} cannot read {path}: {str(error).strip().splitlines()[-1]}")


RUNTIMES: dict[str, type[Runtime]] = {kind.engine: kind for kind in (OpenVINORuntime, OnnxRuntime)}


def runtime_of(engine: str, precision: str) -> type[Runtime]:
    """Return the class that runs an engine's files in a precision.

    Raises:
        EngineError: an unknown engine, or a precision that it lacks; the message lists the allowed ones.
    """
    if engine not in RUNTIMES:
        raise EngineError(f"engine={engine!r}: must be one of {', '.join(RUNTIMES)}.")
    kind = RUNTIMES[engine]
    if precision not in kind.precisions:
        raise EngineError(f"{engine} runs in {', '.join(kind.precisions)}, not in {precision!r}.")
    return kind
