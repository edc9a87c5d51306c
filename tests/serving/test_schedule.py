"""Queries overtake, corpora do not starve, batches hold texts of like lengths, and no text is lost or run twice."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from essent.serving.schedule import LONGER, SHORTER, TOKENS_PER_SECOND, Job, Schedule
from essent.serving.worker import width_of


def job(lengths: list[int], arrival: float = 0.0, model: str = "a", timeout: float = 60.0) -> Job:
    return Job(model, [np.full(length, 7, np.int32) for length in lengths], arrival, timeout, None)


def waiting(*jobs: Job, budget: int = 2048) -> Schedule:
    schedule = Schedule(budget, 10**6)
    for request in jobs:
        schedule.add(request)
    return schedule


def test_a_query_overtakes_a_corpus() -> None:
    """Its batch has none of the corpus's texts; a corpus waits half its allowance at most."""
    corpus, query = job([30] * 1000, 0.0), job([30], 3.0)
    schedule = waiting(corpus, query)
    assert [schedule.next().texts, schedule.next().jobs] == [[(query, 0)], [corpus]]
    assert job([500] * 2048, 5.0, timeout=60.0).due == 35.0


def test_a_corpus_does_not_starve() -> None:
    """Queries that need all the time there is come without end; the corpus is due after its tokens' patience."""
    corpus = job([50] * 400, 0.0)
    schedule = waiting(corpus, budget=512)
    for number in range(1, 100_000):
        schedule.add(job([20], number / 100))
        if corpus in schedule.next().jobs:
            break
    assert number / 100 == pytest.approx(corpus.tokens / TOKENS_PER_SECOND, abs=0.05)


def test_requests_of_clients_share_batches() -> None:
    jobs = [job([20 + number % 3], number / 100) for number in range(40)]
    assert waiting(*jobs).next().jobs == jobs


def test_widths_are_multiples_of_four() -> None:
    for longest, most, width in ((5, None, 8), (8, None, 8), (9, 12, 12), (9, 10, 9)):
        assert width_of([np.zeros(3), np.zeros(longest)], most) == width


REQUESTS = st.lists(
    st.tuples(st.lists(st.integers(0, 600), min_size=1, max_size=30), st.floats(0, 100), st.sampled_from("ab")),
    min_size=1,
    max_size=20,
)


@given(requests=REQUESTS, budget=st.integers(16, 4096), only_queries=st.booleans())
def test_texts_run_once_within_the_budget(requests: list, budget: int, only_queries: bool) -> None:
    jobs = [job(lengths, arrival, model) for lengths, arrival, model in requests]
    schedule = waiting(*jobs, budget=budget)
    batches = []
    if only_queries and (query := schedule.next(only_queries=True)) is not None:
        assert query.is_query
        batches.append(query)
    batches.extend(iter(schedule.next, None))
    ran = [(id(request), row) for batch in batches for request, row in batch.texts]
    assert sorted(ran) == sorted((id(request), row) for request in jobs for row in range(len(request.sequences)))
    for batch in batches:
        assert {request.model for request in batch.jobs} == {batch.model}
        lengths = [max(len(ids), 1) for ids in (request.sequences[row] for request, row in batch.texts)]
        assert len(lengths) == 1 or len(lengths) * max(lengths) <= budget * 1.2
        assert min(lengths) >= min(SHORTER * max(lengths) / LONGER, max(lengths) - 4) - 1
    assert schedule.tokens == 0
    assert not schedule.jobs
