"""Portions hold every text and pair once, whole pairs within one portion, within their bound."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from essent.selection.program import TextPairs, portions_of


@given(st.integers(2, 30), st.integers(0, 60), st.integers(1, 80), st.integers(0, 10**6))
def test_portions_partition_pairs_and_cover_texts(texts: int, pairs: int, most: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    ends = generator.integers(texts, size=(pairs, 2))
    lengths = generator.integers(1, 20, size=texts)
    portions = list(portions_of(ends, lengths, most))
    assert sorted(np.concatenate([part.pairs for part in portions]).tolist()) == list(range(pairs))
    assert set(np.concatenate([part.texts for part in portions]).tolist()) == set(range(texts))
    for part in portions:
        np.testing.assert_array_equal(part.texts[part.ends], ends[part.pairs])
        assert len(set(part.texts.tolist())) == len(part.texts)
        assert (np.diff(lengths[part.texts]) <= 0).all()
        assert lengths[part.texts].sum() <= most or len(part.texts) <= 2
    again = list(portions_of(ends, lengths, most))
    assert all((a.texts == b.texts).all() and (a.pairs == b.pairs).all() for a, b in zip(portions, again, strict=True))


def test_small_groups_share_a_portion() -> None:
    ends = np.array([[0, 1], [2, 3], [4, 5]])
    portions = list(portions_of(ends, np.array([9, 8, 7, 6, 5, 4]), 20))
    assert [part.texts.tolist() for part in portions] == [[0, 1], [2, 3], [4, 5]]


def test_texts_are_distinct_and_fitted_with_their_duplicates() -> None:
    data = TextPairs.of([("a", "b"), ("b", "b")], ["b", "c", "b"])
    assert data.texts == ["a", "b", "c"]
    assert data.pairs.tolist() == [[0, 1], [1, 1]]
    assert data.fit.tolist() == [1, 2, 1]
