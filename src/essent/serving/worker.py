"""The engine's process: batches of ids in, vectors out, and a sign of life several times a second.

One thread receives batches, one per lane runs them, one sends the signs of life. When the HTTP process is gone, this
one ends; when memory runs out it ends too, so that the next one begins with all of it.

Messages go through a `multiprocessing.connection`. A batch is the pickle of its number, lane, model, the lengths (B,)
and the ids of all texts, int32. What comes back is a tuple that begins with its kind: ("vectors", number, digest,
vectors (B,K) float32), where the digest is that of the batch as it was received, so that whoever gets the vectors can
compare it with what was sent; ("error", number, message); ("beat",); ("ready", lanes); ("failed", message).
"""

from __future__ import annotations

import ctypes
import hashlib
import logging
import os
import pickle
import queue
import signal
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from essent.recipe.tokens.ids import pad_arrays

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
    """What the process loads: a model's engine, its folder, the id of its padding, and the most tokens of a text."""

    engine: str
    folder: str
    precision: str
    pad_id: int
    dimensions: int
    most: int | None = None


def digest(message: bytes) -> bytes:
    """Of a batch as it is sent: its number, its model, every id in its position."""
    return hashlib.blake2b(message, digest_size=16).digest()


def ignore_stop_signals() -> None:
    """Leave SIGINT and SIGTERM, which a terminal or service manager sends to all processes, to the HTTP process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def main(connection: Connection, sources: list[Source], threads: int) -> None:
    """Load every model, say so, and run batches until the other side is gone."""
    ignore_stop_signals()
    logging.basicConfig(level=logging.WARNING, format="engine: %(levelname)s: %(message)s")
    sending = threading.Lock()

    def send(*message: Any) -> None:
        try:
            with sending:
                connection.send(message)
        except OSError:
            os._exit(0)

    threading.Thread(target=_beat, args=(send,), daemon=True).start()
    try:
        loaded = [load(source, threads) for source in sources]
    except Exception as error:
        send("failed", f"{type(error).__name__}: {error}")
        return
    queues: dict[str, queue.SimpleQueue[bytes]] = {QUICK: queue.SimpleQueue(), BULK: queue.SimpleQueue()}
    lanes = {kind: min(len(model[kind]) for model in loaded) for kind in queues}
    for kind, batches in queues.items():
        for lane in range(lanes[kind]):
            runners = [model[kind][lane] for model in loaded]
            threading.Thread(target=_run_lane, args=(batches, runners, send), daemon=True).start()
    send("ready", lanes)
    while True:
        try:
            message = connection.recv_bytes()
        except (EOFError, OSError):
            os._exit(0)  # whatever the lanes are doing: nobody waits for it
        queues[pickle.loads(message)[1]].put(message)  # noqa: S301  from the process that has started this one


def _beat(send: Callable[..., None]) -> None:
    """Send signs of life, and return freed memory, some of which glibc otherwise keeps for ever, to the system."""
    waiting, beats = threading.Event(), 0
    while not waiting.wait(BEAT):
        send("beat")
        beats += 1
        if beats % TIDYING == 0 and sys.platform == "linux":
            with suppress(OSError, AttributeError):  # another C library
                ctypes.CDLL("libc.so.6").malloc_trim(0)


def _run_lane(batches: queue.SimpleQueue[bytes], runners: list[Runner], send: Callable[..., None]) -> None:
    while True:
        message = batches.get()
        number, _, model, lengths, ids = pickle.loads(message)  # noqa: S301
        try:
            sequences = np.split(ids, np.cumsum(lengths)[:-1])
            vectors = np.ascontiguousarray(runners[model](sequences), np.float32)
        except MemoryError:
            os._exit(OUT_OF_MEMORY)
        except Exception as error:  # the engines' libraries raise whatever they like; this batch alone failed
            if "bad_alloc" in str(error) or "memory" in str(error).lower():
                os._exit(OUT_OF_MEMORY)
            send("error", number, type(error).__name__)
        else:
            send("vectors", number, digest(message), vectors)


# -- models -----------------------------------------------------------------------------------------------------------


def load(source: Source, threads: int) -> dict[str, list[Runner]]:
    """The lanes of a model: functions that may run at the same time."""
    return (_torch if source.engine == "torch" else _graph)(source, threads)


def _graph(source: Source, threads: int) -> dict[str, list[Runner]]:
    """A query has all threads on it, beside the streams of a corpus."""
    from essent.engine.runtime import runtime_of

    os.environ.setdefault(PRIMITIVES, str(PRIMITIVES_KEPT))  # read when the first graph is compiled
    runtime = runtime_of(source.engine, source.precision)(Path(source.folder), source.precision, threads)

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
    encoder = Encoder(source.folder)
    encoder.eval()
    device = encoder.device

    @torch.inference_mode()
    def run(sequences: list[np.ndarray]) -> np.ndarray:
        ids, attention_mask = pad_arrays(sequences, source.pad_id)
        features = {"input_ids": torch.from_numpy(ids), "attention_mask": torch.from_numpy(attention_mask).long()}
        embedding = encoder({name: value.to(device) for name, value in features.items()})["sentence_embedding"]
        vectors: np.ndarray = embedding[:, : source.dimensions].float().cpu().numpy()
        return vectors

    return {QUICK: [], BULK: [run]}
