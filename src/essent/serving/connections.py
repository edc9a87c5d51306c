"""Ends connections that nobody uses: no request comes, or an answer is not read. Their number is uvicorn's to limit."""

from __future__ import annotations

import asyncio
import time
from typing import Any

LOOK = 1.0  # seconds between two looks
HEADERS = 30.0  # seconds in which the head of a request must arrive; also what a connection may stay unused
UNREAD = 60.0  # seconds for which an answer may not be read at all


async def sweep(connections: set[Any], headers: float = HEADERS, unread: float = UNREAD) -> None:
    """Look at all connections again and again.

    Args:
        connections: uvicorn's protocols, each with `transport`, `cycle` (its request) and `flow`.
        headers, unread: seconds.
    """
    idle: dict[Any, float] = {}
    stuck: dict[Any, float] = {}
    while True:
        await asyncio.sleep(LOOK)
        now = time.monotonic()
        for one in list(connections):
            waits = one.cycle is None or one.cycle.response_complete
            _end(one, idle, waits, now, headers)
            _end(one, stuck, not waits and one.flow is not None and one.flow.write_paused, now, unread)
        for known in (idle, stuck):
            for gone in known.keys() - connections:
                del known[gone]


def _end(one: Any, since: dict[Any, float], holds: bool, now: float, most: float) -> None:
    """End a connection for which something has held for too long."""
    if not holds:
        since.pop(one, None)
    elif now - since.setdefault(one, now) > most:
        one.transport.abort()
