"""Texts that come more than once."""

from __future__ import annotations

import numpy as np
import pytest

from essent._core.texts import distinct_texts, repeat_in_place


@pytest.mark.parametrize("rows", [1, 3, 100])
def test_vectors_of_distinct_texts_are_repeated(rows: int) -> None:
    texts = [str(number) for number in np.random.default_rng(rows).integers(0, 8, 20)]
    distinct, inverse = distinct_texts(texts)
    vectors = np.resize(np.array(distinct), (20, 1))
    repeat_in_place(vectors, inverse, rows)
    assert vectors[:, 0].tolist() == texts
