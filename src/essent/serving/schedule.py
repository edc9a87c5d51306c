"""Decide which texts run next: a queue of requests by due time, cut into batches by tokens.

A request of S tokens is due S / TOKENS_PER_SECOND seconds after its arrival, or after half its timeout if that is
sooner. So queries overtake bulk requests, and bulk requests do not starve. A batch contains texts of the first request,
and texts of similar length from the requests behind it.
"""

from __future__ import annotations

import bisect
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import numpy as np

TOKENS_PER_SECOND = 2000.0  # defines the due time
QUERY_TOKENS = 512  # largest request that counts as a query
SHORTER, LONGER, MARGIN = 0.95, 1.05, 2  # lengths that share a batch: relative to the first text's, or ± MARGIN tokens
MAX_TEXTS, MAX_REQUESTS = 512, 256  # maximum texts of a batch; maximum requests searched to fill it


@dataclass(eq=False)
class Job:
    """The texts of one request for one model.

    Attributes:
        model: name of the model.
        sequences: ids of each distinct text within its frame.
        arrival, timeout: seconds of a monotonic clock; seconds until the request times out.
        future: receives the vectors (N,K).
        waiting: rows of the texts that are in no batch yet, shortest first; `lengths` are their numbers of tokens.
    """

    model: str
    sequences: list[np.ndarray]
    arrival: float
    timeout: float
    future: Any
    vectors: np.ndarray | None = None

    def __post_init__(self) -> None:
        lengths = [max(len(ids), 1) for ids in self.sequences]
        self.tokens = sum(lengths)
        self.is_query = self.tokens <= QUERY_TOKENS
        self.due = self.arrival + min(self.tokens / TOKENS_PER_SECOND, self.timeout / 2)
        self.unanswered = len(lengths)
        self.waiting = sorted(range(len(lengths)), key=lengths.__getitem__)
        self.lengths = [lengths[row] for row in self.waiting]


@dataclass
class Batch:
    """Texts that run together, each as (request, row); sending the batch sets `lane` and `sent_at`."""

    model: str
    is_query: bool
    jobs: list[Job]
    texts: list[tuple[Job, int]]
    tokens: int = 0
    lane: str = ""
    sent_at: float = 0.0


class Schedule:
    """The queue of requests.

    Args:
        budget: maximum tokens of a batch, including padding; a longer text runs alone.
        max_tokens: maximum tokens in the queue; a larger request is accepted if the queue is empty.

    Attributes:
        jobs: the requests that have waiting texts, by due time.
        tokens: number of tokens of all waiting texts.
    """

    def __init__(self, budget: int, max_tokens: int) -> None:
        self.budget, self.max_tokens = budget, max_tokens
        self.tokens = 0
        self.jobs: list[Job] = []

    def add(self, job: Job, unlimited: bool = False) -> bool:
        """Queue a request; return False if the queue is full."""
        if self.jobs and not unlimited and self.tokens + job.tokens > self.max_tokens:
            return False
        bisect.insort(self.jobs, job, key=attrgetter("due"))
        self.tokens += job.tokens
        return True

    def remove(self, job: Job) -> None:
        """Remove a request's waiting texts, if there are any."""
        if job in self.jobs:
            self.jobs.remove(job)
            self.tokens -= sum(job.lengths)

    def next(self, only_queries: bool = False) -> Batch | None:
        """Return the next batch (with `only_queries`, of queries), or None."""
        head = next((job for job in self.jobs if job.is_query or not only_queries), None)
        if head is None:
            return None
        longest = head.lengths[-1]
        shortest = min(SHORTER * longest, longest - MARGIN)
        batch = Batch(head.model, head.is_query, [], [])
        followers = [
            job for job in self.jobs[:MAX_REQUESTS]
            if job is not head and job.model == head.model and (job.is_query or not head.is_query)
        ]  # fmt: skip
        for job in (head, *followers):
            width = longest if job is head else max(LONGER * longest, longest + MARGIN)
            free = min(MAX_TEXTS, max(1, int(self.budget // width))) - len(batch.texts)
            if free <= 0:
                break
            stop = bisect.bisect_right(job.lengths, width)
            start = max(bisect.bisect_left(job.lengths, shortest), stop - free)
            if start < stop:
                batch.jobs.append(job)
                batch.texts += [(job, row) for row in reversed(job.waiting[start:stop])]
                batch.tokens += sum(job.lengths[start:stop])
                del job.waiting[start:stop], job.lengths[start:stop]
        self.tokens -= batch.tokens
        self.jobs = [job for job in self.jobs if job.waiting]
        return batch
