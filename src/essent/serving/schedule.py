"""Which texts run next: a queue of requests in the order in which they are due, cut into batches by tokens.

A request of S tokens that arrived at t is due at t + S/PATIENCE, at most half its time allowance after t. So a query
overtakes a corpus, and nothing starves: what arrives after that moment comes behind. A batch takes texts of its first
request, and fills up with texts of about the same length from those behind it.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

PATIENCE = 2000.0  # tokens a second
SMALL = 512  # tokens of a request that may use the lane of queries
SHORTER, LONGER, ALIKE = 0.95, 1.05, 2  # lengths that share a batch: shares of the first one's, or so many tokens off
MOST_TEXTS, MOST_REQUESTS = 512, 256  # of a batch; requests that are looked at to fill it


@dataclass(eq=False)
class Job:
    """The texts of one request that one model must run.

    Attributes:
        model: its number.
        sequences: ids of each distinct text, in its frame.
        arrival, allowance: when it came, in seconds of a monotonic clock, and how long it may take.
        done: the future of its vectors (N,K).
        small: whether it is a query rather than a corpus.
        waiting: rows of the texts that are in no batch yet, shortest first, and their lengths.
    """

    model: int
    sequences: list[np.ndarray]
    arrival: float
    allowance: float
    done: Any
    tokens: int = field(init=False)
    small: bool = field(init=False)
    waiting: list[int] = field(init=False)
    lengths: list[int] = field(init=False)
    due: float = field(init=False)
    vectors: np.ndarray | None = field(init=False, default=None)
    unanswered: int = field(init=False)
    started: float | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        lengths = [max(len(ids), 1) for ids in self.sequences]
        self.tokens = sum(lengths)
        self.small = self.tokens <= SMALL
        self.due = self.arrival + min(self.tokens / PATIENCE, self.allowance / 2)
        self.unanswered = len(lengths)
        self.waiting = sorted(range(len(lengths)), key=lengths.__getitem__)
        self.lengths = [lengths[row] for row in self.waiting]

    def take(self, shortest: float, longest: float, room: int) -> tuple[list[int], int]:
        """At most `room` waiting texts between two lengths, longest first, and their tokens: they wait no more."""
        stop = bisect.bisect_right(self.lengths, longest)
        start = max(bisect.bisect_left(self.lengths, shortest), stop - room)
        if start >= stop:
            return [], 0
        rows, tokens = self.waiting[start:stop][::-1], sum(self.lengths[start:stop])
        del self.waiting[start:stop], self.lengths[start:stop]
        return rows, tokens


@dataclass(frozen=True)
class Batch:
    """Texts that run together: the request and row of each."""

    model: int
    texts: list[tuple[Job, int]]
    small: bool

    @property
    def sequences(self) -> list[np.ndarray]:
        """The ids of each text."""
        return [job.sequences[row] for job, row in self.texts]

    @property
    def jobs(self) -> list[Job]:
        """Each request once."""
        return list(dict.fromkeys(job for job, _ in self.texts))


class Schedule:
    """Waiting requests.

    Args:
        budget: the most tokens of a batch, padding included; one longer text runs alone.
        most: tokens that may wait; a single larger request is taken when nothing waits.
    """

    def __init__(self, budget: int, most: int) -> None:
        self.budget, self.most = budget, most
        self.tokens = 0  # of waiting texts
        self._jobs: list[tuple[float, int, Job]] = []  # by when they are due
        self._number = itertools.count()

    def __len__(self) -> int:
        return len(self._jobs)

    @property
    def queries(self) -> int:
        """Queries that wait."""
        return sum(job.small for _, _, job in self._jobs)

    def has_room(self, tokens: int) -> bool:
        """Whether a request of so many tokens may wait."""
        return not self._jobs or self.tokens + tokens <= self.most

    def add(self, job: Job) -> None:
        """Let a request wait."""
        bisect.insort(self._jobs, (job.due, next(self._number), job))
        self.tokens += job.tokens

    def remove(self, job: Job) -> None:
        """Forget the texts of a request that wait: nobody is there for them any more."""
        for position, (_, _, waiting_job) in enumerate(self._jobs):
            if waiting_job is job:
                del self._jobs[position]
                self.tokens -= sum(job.take(0, float("inf"), len(job.waiting))[1:])
                return

    def clear(self) -> list[Job]:
        """Forget all, and give them."""
        jobs = [job for _, _, job in self._jobs]
        self._jobs.clear()
        self.tokens = 0
        return jobs

    def next(self, only_small: bool = False) -> Batch | None:
        """The next batch; with `only_small` the next one of queries."""
        head = next((job for _, _, job in self._jobs if job.small or not only_small), None)
        if head is None:
            return None
        longest = head.lengths[-1]
        shortest = min(SHORTER * longest, longest - ALIKE)
        texts: list[tuple[Job, int]] = []
        most = max(longest * LONGER, longest + ALIKE)
        for job in self._alike(head):
            limit = longest if job is head else most
            widest = max(longest, min(limit, most))
            room = min(MOST_TEXTS, max(1, int(self.budget // widest))) - len(texts)
            if room <= 0:
                break
            rows, tokens = job.take(shortest, limit, room)
            texts += [(job, row) for row in rows]
            self.tokens -= tokens
        self._jobs = [entry for entry in self._jobs if entry[2].waiting]
        return Batch(head.model, texts, head.small)

    def _alike(self, head: Job) -> Iterator[Job]:
        """The first request, and those behind it whose texts may share its batch."""
        yield head
        for _, _, job in itertools.islice(list(self._jobs), MOST_REQUESTS):
            if job is not head and job.model == head.model and job.waiting and (job.small or not head.small):
                yield job
