"""Each distinct text once per recipe, across tasks and runs; killed runs and other weights do no harm."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer

from essent.cache import PooledCache, digest_of, key_of
from essent.types import CorpusStats, DataError


class Counting:
    """Rows that tell their text; notes what it was asked for."""

    def __init__(self, widths: tuple[int, ...] = (3, 2)) -> None:
        self.asked: list[list[str]] = []
        self.widths = widths

    def __call__(self, texts: list[str]) -> list[np.ndarray]:
        self.asked.append(texts)
        return [np.array([[len(text) + key] * width for text in texts], np.float32)
                for key, width in enumerate(self.widths)]  # fmt: skip


@pytest.mark.parametrize("kept", [True, False])
def test_each_distinct_text_is_computed_once(tmp_path: Path, kept: bool) -> None:
    cache, compute = PooledCache(tmp_path / "cache" if kept else None), Counting()
    first, second = cache.vectors(["a", "b"], (3, 2), ["x", "yy", "x", ""], compute)
    np.testing.assert_array_equal(first, [[1] * 3, [2] * 3, [1] * 3, [0] * 3])
    np.testing.assert_array_equal(second, [[2] * 2, [3] * 2, [2] * 2, [1] * 2])
    cache.vectors(["a", "b"], (3, 2), ["zzz", "yy"], compute)
    cache.vectors(["a"], (3,), ["yy"], compute)
    assert compute.asked == [["x", "yy", ""], ["zzz"]]
    again = Counting()
    later = PooledCache(cache.folder).vectors(["b", "a"], (2, 3), ["zzz", "x"], again)
    assert again.asked == []
    np.testing.assert_array_equal(later[0], [[4, 4], [2, 2]])


def test_a_key_that_lacks_texts_is_filled_beside_one_that_has_them(tmp_path: Path) -> None:
    cache = PooledCache(tmp_path)
    cache.vectors(["a"], (3,), ["x", "yy"], Counting((3,)))
    both = cache.vectors(["a", "b"], (3, 2), ["yy", "x", "w"], Counting())
    np.testing.assert_array_equal(both[0][:, 0], [2, 1, 1])
    np.testing.assert_array_equal(both[1][:, 0], [3, 2, 2])


@pytest.mark.parametrize("suffix", ["f32", "texts"])
def test_a_run_that_was_killed_while_writing_leaves_a_cache_that_works(tmp_path: Path, suffix: str) -> None:
    PooledCache(tmp_path).vectors(["a"], (3,), ["x", "yy", "zzz"], Counting((3,)))
    path = tmp_path / f"a.{suffix}"
    path.write_bytes(path.read_bytes()[:-5])
    compute = Counting((3,))
    (found,) = PooledCache(tmp_path).vectors(["a"], (3,), ["zzz", "x"], compute)
    np.testing.assert_array_equal(found[:, 0], [3, 1])
    assert compute.asked == [["zzz"]]


def test_odd_texts_and_a_file_in_the_way(tmp_path: Path) -> None:
    cache = PooledCache()
    (found,) = cache.vectors(["a"], (1,), ["\ud800", "é", "e\u0301"], Counting((1,)))
    assert found.shape == (3, 1)
    (tmp_path / "file").write_text("", "utf-8")
    with pytest.raises(DataError, match="is a file"):
        PooledCache(tmp_path / "file")


def test_keys_tell_models_recipes_and_counts_apart(shell_of: Callable[[str], SentenceTransformer]) -> None:
    model = shell_of("bert")[0].model
    counts = [CorpusStats(2, np.array([1, n]), np.array([1, 1])) for n in (1, 2)]
    keys = {key_of(m, r, s) for m in ("m", "n") for r in ("mean", "cls") for s in (None, *counts)}
    assert len(keys) == 12
    before = digest_of(model, 128)
    assert digest_of(model, 128) == before != digest_of(model, 64)
    parameter = next(model.parameters())
    with torch.no_grad():
        parameter[0, 0] += 1
        changed = digest_of(model, 128)
        parameter[0, 0] -= 1
    assert changed != before
