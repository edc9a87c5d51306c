"""What the HTTP process and the engine's process say to each other: frames of a JSON header and raw arrays.

A batch goes over as `{"kind": "batch", "batch", "model", "lane", "count"}` with the lengths (B,) and the ids of all
texts, int32; a result comes back as `{"kind": "result", "batch", "digest", "shape"}` with the vectors (B,K) float32.
The digest is that of the batch's number, model, lengths and ids as the engine read them: whoever gets the vectors
compares it with what was sent.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import socket
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from essent.errors import EngineError

SIZES = struct.Struct("<II")  # of header and body
MOST_HEADER, MOST_BODY = 1 << 20, 1 << 30


class WireError(EngineError):
    """What came over is not a frame, or not the answer to what was sent."""


def frame(about: dict[str, Any], body: bytes = b"") -> bytes:
    """One frame."""
    header = json.dumps(about, separators=(",", ":")).encode()
    return SIZES.pack(len(header), len(body)) + header + body


def _sizes(found: bytes) -> tuple[int, int]:
    header, body = SIZES.unpack(found)
    if header > MOST_HEADER or body > MOST_BODY:
        raise WireError(f"A frame of {header} and {body} bytes is too large.")
    return header, body


async def read_frame(reader: asyncio.StreamReader) -> tuple[dict[str, Any], bytes]:
    """The next frame.

    Raises:
        EOFError: the other side is gone (asyncio.IncompleteReadError).
        WireError: not a frame.
    """
    header, body = _sizes(await reader.readexactly(SIZES.size))
    about: dict[str, Any] = json.loads(await reader.readexactly(header))
    return about, await reader.readexactly(body)


def receive_frame(connection: socket.socket) -> tuple[dict[str, Any], bytes]:
    """The next frame, waiting for it.

    Raises:
        EOFError: the other side is gone.
    """
    header, body = _sizes(_receive(connection, SIZES.size))
    return json.loads(_receive(connection, header)), _receive(connection, body)


def _receive(connection: socket.socket, size: int) -> bytes:
    found = bytearray(size)
    view, got = memoryview(found), 0
    while got < size:
        count = connection.recv_into(view[got:])
        if not count:
            raise EOFError
        got += count
    return bytes(found)


def batch_body(sequences: Sequence[np.ndarray]) -> bytes:
    """Lengths and ids of texts, int32."""
    lengths = np.fromiter((len(ids) for ids in sequences), np.int32, len(sequences))
    return lengths.tobytes() + np.concatenate([*sequences, np.empty(0, np.int32)]).astype(np.int32).tobytes()


def sequences_of(body: bytes, count: int) -> list[np.ndarray]:
    """The ids of each text.

    Raises:
        WireError: lengths and ids do not fit.
    """
    numbers = np.frombuffer(body, np.int32)
    lengths, ids = numbers[:count], numbers[count:]
    if len(lengths) != count or lengths.sum() != len(ids):
        raise WireError(f"A batch of {count} texts has {len(numbers)} numbers, which do not fit.")
    return np.split(ids, np.cumsum(lengths)[:-1]) if count else []


def digest(batch: int, model: int, body: bytes) -> str:
    """Of a batch: its number, its model, every id in its place."""
    return hashlib.blake2b(struct.pack("<QI", batch, model) + body, digest_size=16).hexdigest()


def vectors_of(about: dict[str, Any], body: bytes) -> np.ndarray:
    """The vectors (B,K) float32 of a result.

    Raises:
        WireError: numbers and shape do not fit.
    """
    rows, columns = about["shape"]
    if len(body) != 4 * rows * columns:
        raise WireError(f"A result of shape ({rows},{columns}) has {len(body)} bytes.")
    return np.frombuffer(body, np.float32).reshape(rows, columns)
