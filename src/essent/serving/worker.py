"""The engine's process: receives batches of ids, returns vectors, and sends heartbeats.

One thread receives batches, one per lane runs them, one sends the heartbeats. The process ends when the HTTP process
has ended, and when memory runs out, so that the next process can use all of it.

Messages pass through a `multiprocessing.connection`. A batch is a tuple of its number, lane, model and the ids of each
text (T,) int32. Answers are tuples that start with their kind: ("vectors", number, vectors (B,K) float32); ("error",
number, message); ("beat",); ("ready", lanes); ("failed", message).
"""

from __future__ import annotations

import ctypes
import itertools
import logging
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from essent.recipe.tokens import pad_arrays

BEAT = 0.4  # seconds between heartbeats
TRIM_BEATS = 50  # heartbeats between two returns of freed memory
WIDTH_MULTIPLE = 4  # widths of a graph's batches are multiples of it
OUT_OF_MEMORY = 42  # exit code
QUICK, BULK = "quick", "bulk"
# Number of primitives that oneDNN (in OpenVINO) caches. With its default, 1,024, memory grows for hours.
PRIMITIVES = "ONEDNN_PRIMITIVE_CACHE_CAPACITY"
MAX_PRIMITIVES = 128
BULK_NICENESS = 19  # added to the niceness of bulk threads; they still run between the batches of queries
Runner: TypeAlias = Callable[[list[np.ndarray]], np.ndarray]  # from ids of texts (T,) each to vectors (B,K)
Queue: TypeAlias = "queue.SimpleQueue[tuple[int, str, list[np.ndarray]]]"  # of batches: number, model, ids of texts


@dataclass(frozen=True)
class Source:
    """A model that the process loads: its engine, folder, precision, padding id, dimensions, and tokens per text."""

    engine: str
    folder: str
    precision: str
    pad_id: int
    dimensions: int
    max_seq_length: int | None = None


def ignore_stop_signals() -> None:
    """Ignore SIGINT and SIGTERM, which terminals and service managers send to all processes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def main(connection: Connection, sources: dict[str, Source], threads: int) -> None:
    """Load the models, report the lanes, and run batches until the HTTP process has ended."""
    ignore_stop_signals()
    logging.basicConfig(level=logging.WARNING, format="engine: %(levelname)s: %(message)s")
    sending = threading.Lock()

    def send(*message: Any) -> None:
        try:
            with sending:
                connection.send(message)
        except OSError:
            os._exit(0)

    threading.Thread(target=_send_heartbeats, args=(send,), daemon=True).start()
    try:
        models = {name: load(source, threads) for name, source in sources.items()}
    except Exception as error:
        send("failed", f"{type(error).__name__}: {error}")
        return
    lanes = {kind: min(len(runners[kind]) for runners in models.values()) for kind in (QUICK, BULK)}
    queues: dict[str, Queue] = {kind: queue.SimpleQueue() for kind in lanes}
    for kind, count in lanes.items():
        for lane in range(count):
            lane_runners = {name: runners[kind][lane] for name, runners in models.items()}
            threading.Thread(target=_run_batches, args=(queues[kind], lane_runners, send), daemon=True).start()
    send("ready", lanes)
    while True:
        try:
            number, lane, model, sequences = connection.recv()
        except (EOFError, OSError):
            os._exit(0)  # nobody waits for the batches that run
        queues[lane].put((number, model, sequences))


def _send_heartbeats(send: Callable[..., None]) -> None:
    """Send heartbeats, and return freed memory to the system, which glibc does not always do."""
    for beat in itertools.count(1):
        time.sleep(BEAT)
        send("beat")
        if beat % TRIM_BEATS == 0 and sys.platform == "linux":
            with suppress(OSError, AttributeError):  # another C library
                ctypes.CDLL("libc.so.6").malloc_trim(0)


def _run_batches(batches: Queue, runners: dict[str, Runner], send: Callable[..., None]) -> None:
    while True:
        number, model, sequences = batches.get()
        try:
            vectors = np.ascontiguousarray(runners[model](sequences), np.float32)
        except MemoryError:
            os._exit(OUT_OF_MEMORY)
        except Exception as error:  # the engines may raise anything; only this batch failed
            if "bad_alloc" in str(error) or "memory" in str(error).lower():
                os._exit(OUT_OF_MEMORY)
            send("error", number, type(error).__name__)
        else:
            send("vectors", number, vectors)


# -- models -----------------------------------------------------------------------------------------------------------


def load(source: Source, threads: int) -> dict[str, list[Runner]]:
    """Return the lanes of a model per kind: functions that may run at the same time."""
    return (_load_torch if source.engine == "torch" else _load_graph)(source, threads)


def _load_graph(source: Source, threads: int) -> dict[str, list[Runner]]:
    """Load a graph: queries use all threads, while streams of bulk batches run concurrently.

    The streams' threads have a lower priority (Linux), which they inherit from the thread that starts them.
    """
    from essent.engine.runtime import runtime_of

    os.environ.setdefault(PRIMITIVES, str(MAX_PRIMITIVES))  # read when the first graph is compiled
    runtime = runtime_of(source.engine, source.precision)(Path(source.folder), source.precision, threads)

    def run(infer: Any, sequences: list[np.ndarray]) -> np.ndarray:
        width = width_of(sequences, source.max_seq_length)
        ids, attention_mask = pad_arrays(sequences, source.pad_id, least=width)
        vectors: np.ndarray = infer(ids, attention_mask.astype(np.int64))
        return vectors[:, : source.dimensions]  # the model may declare fewer dimensions

    with ThreadPoolExecutor(1, initializer=_lower_priority) as pool:
        streams = pool.submit(runtime.lanes).result()
    return {QUICK: [partial(run, runtime.one)], BULK: [partial(run, stream) for stream in streams]}


def width_of(sequences: list[np.ndarray], max_seq_length: int | None) -> int:
    """Return a batch's width, a multiple of 4 if possible: every new shape costs the engine time."""
    longest = max(map(len, sequences))
    rounded = -(-longest // WIDTH_MULTIPLE) * WIDTH_MULTIPLE
    return longest if max_seq_length is not None and rounded > max_seq_length else rounded


def _lower_priority() -> None:
    if sys.platform == "linux":
        niceness = os.getpriority(os.PRIO_PROCESS, 0) + BULK_NICENESS
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), niceness)


def _load_torch(source: Source, threads: int) -> dict[str, list[Runner]]:
    """Load an Encoder as one lane: torch's threads run one batch at a time."""
    import torch

    from essent.encoder.encoder import Encoder

    torch.set_num_threads(threads)
    encoder = Encoder(source.folder)
    encoder.eval()

    @torch.inference_mode()
    def run(sequences: list[np.ndarray]) -> np.ndarray:
        ids, attention_mask = map(torch.from_numpy, pad_arrays(sequences, source.pad_id))  # (B,T)
        features = {"input_ids": ids.to(encoder.device), "attention_mask": attention_mask.long().to(encoder.device)}
        embedding = encoder(features)["sentence_embedding"]  # (B,D)
        vectors: np.ndarray = embedding[:, : source.dimensions].float().cpu().numpy()
        return vectors

    return {QUICK: [], BULK: [run]}
