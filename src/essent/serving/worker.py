"""The engine's process: batches of ids in, vectors out, and a sign of life several times a second.

One thread reads frames, one a lane runs batches, one sends the signs of life. When the HTTP process is gone, this one
ends; when memory runs out it ends too, so that the next one begins with all of it.
"""

from __future__ import annotations

import logging
import os
import queue
import socket
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from essent.recipe.tokens.ids import pad_arrays
from essent.serving.machine import give_back_memory, ignore_stop_signals
from essent.serving.wire import digest, frame, receive_frame, sequences_of

logger = logging.getLogger(__name__)
BEAT = 0.4  # seconds between signs of life
TIDYING = 50  # signs of life from one return of freed memory to the next
ROUNDED = 4  # tokens, that the widths of a graph's batches are multiples of
OUT_OF_MEMORY = 42  # exit code
QUICK, BULK = "quick", "bulk"
# What oneDNN, by which OpenVINO computes, keeps besides, 1,024 primitives by default: a server filled them for hours.
PRIMITIVES = "ONEDNN_PRIMITIVE_CACHE_CAPACITY"
PRIMITIVES_KEPT = 128
BEHIND = 19  # how much nicer the threads of a corpus are; they run between the batches of queries all the same
T = TypeVar("T")
Runner = Callable[[list[np.ndarray]], np.ndarray]  # ids of texts (T,) each to vectors (B,K)


@dataclass(frozen=True)
class Source:
    """What the process loads: a model's engine, its place, the id of its padding, and the most tokens of a text."""

    engine: str
    place: str
    precision: str
    pad_id: int
    dimensions: int
    most: int | None = None


def main(connection: socket.socket, sources: list[Source], threads: int) -> None:
    """Load every model, say so, and run batches until the other side is gone."""
    ignore_stop_signals()
    logging.basicConfig(level=logging.WARNING, format="engine: %(levelname)s: %(message)s")
    Worker(connection).run(sources, threads)


class Worker:
    """Lanes that run batches, and the connection that they share."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._sending = threading.Lock()
        self._queues: dict[str, queue.SimpleQueue[tuple[dict[str, Any], bytes]]] = {
            QUICK: queue.SimpleQueue(),
            BULK: queue.SimpleQueue(),
        }

    def run(self, sources: list[Source], threads: int) -> None:
        """Load, then read frames; returns when the other side is gone."""
        threading.Thread(target=self._beat, daemon=True).start()
        try:
            loaded = [load(source, threads) for source in sources]
        except Exception as error:
            self._send({"kind": "failed", "message": f"{type(error).__name__}: {error}"})
            return
        quick, bulk = ([lanes[kind] for lanes in loaded] for kind in (QUICK, BULK))
        count = {QUICK: min(map(len, quick)), BULK: min(map(len, bulk))}
        for kind, runners in ((QUICK, quick), (BULK, bulk)):
            for place in range(count[kind]):
                each = [of_model[place] for of_model in runners]
                threading.Thread(target=self._lane, args=(self._queues[kind], each), daemon=True).start()
        self._send({"kind": "ready", "lanes": count})
        while True:
            try:
                about, body = receive_frame(self._connection)
            except (EOFError, OSError):
                os._exit(0)  # whatever the lanes are doing: nobody waits for it
            self._queues[about["lane"]].put((about, body))

    def _beat(self) -> None:
        waiting, beats = threading.Event(), 0
        while not waiting.wait(BEAT):
            self._send({"kind": "beat"})
            beats += 1
            if beats % TIDYING == 0:
                give_back_memory()

    def _lane(self, batches: queue.SimpleQueue[tuple[dict[str, Any], bytes]], runners: list[Runner]) -> None:
        while True:
            about, body = batches.get()
            answer: dict[str, Any] = {"kind": "result", "batch": about["batch"]}
            try:
                sequences = sequences_of(body, about["count"])
                vectors = np.ascontiguousarray(runners[about["model"]](sequences), np.float32)
            except MemoryError:
                os._exit(OUT_OF_MEMORY)
            except Exception as error:  # the engines' libraries raise whatever they like; this batch alone failed
                if "bad_alloc" in str(error) or "memory" in str(error).lower():
                    os._exit(OUT_OF_MEMORY)
                self._send({"kind": "error", "batch": about["batch"], "message": type(error).__name__})
                continue
            answer["shape"] = list(vectors.shape)
            answer["digest"] = digest(about["batch"], about["model"], body)
            self._send(answer, vectors.tobytes())

    def _send(self, about: dict[str, Any], body: bytes = b"") -> None:
        try:
            with self._sending:
                self._connection.sendall(frame(about, body))
        except OSError:
            os._exit(0)


# -- models -----------------------------------------------------------------------------------------------------------


def load(source: Source, threads: int) -> dict[str, list[Runner]]:
    """The lanes of a model: functions that may run at the same time."""
    return (_torch if source.engine == "torch" else _graph)(source, threads)


def _graph(source: Source, threads: int) -> dict[str, list[Runner]]:
    """A query has all threads on it, beside the streams of a corpus."""
    from essent.engine.runtime import runtime_of

    os.environ.setdefault(PRIMITIVES, str(PRIMITIVES_KEPT))  # read when the first graph is compiled
    runtime = runtime_of(source.engine, source.precision)(Path(source.place), source.precision, threads)

    def run(infer: Any, sequences: list[np.ndarray]) -> np.ndarray:
        ids, attention_mask = pad_arrays(sequences, source.pad_id, least=width_of(sequences, source.most))
        vectors: np.ndarray = infer(ids, attention_mask.astype(np.int64))
        return vectors[:, : source.dimensions]  # a model may say that fewer are to be kept

    return {QUICK: [partial(run, runtime.one)], BULK: [partial(run, lane) for lane in in_background(runtime.lanes)]}


def width_of(sequences: list[np.ndarray], most: int | None) -> int:
    """The width of a batch: a multiple of 4, so that batches have fewer shapes; each new one costs the engine time."""
    longest = max(map(len, sequences))
    rounded = -(-longest // ROUNDED) * ROUNDED
    return longest if most is not None and rounded > most else rounded


def in_background(make: Callable[[], T]) -> T:
    """What `make` gives, with the threads that it starts behind all others of the same cores (Linux).

    A thread hands its priority on to those it starts. A corpus then gives way to queries and to HTTP.
    """

    def behind() -> T:
        if sys.platform == "linux":
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), os.getpriority(os.PRIO_PROCESS, 0) + BEHIND)
        return make()

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(behind).result()


def _torch(source: Source, threads: int) -> dict[str, list[Runner]]:
    """One lane: torch's threads serve one batch at a time."""
    import torch

    from essent.encoder.encoder import Encoder

    torch.set_num_threads(threads)
    encoder = Encoder(source.place)
    encoder.eval()
    device = encoder.device

    @torch.inference_mode()
    def run(sequences: list[np.ndarray]) -> np.ndarray:
        ids, attention_mask = pad_arrays(sequences, source.pad_id)
        features = {"input_ids": torch.from_numpy(ids), "attention_mask": torch.from_numpy(attention_mask).long()}
        found = encoder({name: value.to(device) for name, value in features.items()})["sentence_embedding"]
        vectors: np.ndarray = found[:, : source.dimensions].float().cpu().numpy()
        return vectors

    return {QUICK: [], BULK: [run]}
