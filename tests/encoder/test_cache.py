"""Each distinct text once per recipe, across tasks and runs; killed runs and other weights do no harm."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch

from essent import Encoder
from essent.encoder.cache import PooledCache, digest_of, digest_of_backbone, key_of
from essent.errors import DataError
from essent.recipe.types import CorpusStats


class Counting:
    """Rows that tell their text; notes what it was asked for."""

    def __init__(self, widths: tuple[int, ...] = (3, 2)) -> None:
        self.computed: list[list[str]] = []
        self.widths = widths

    def __call__(self, texts: list[str]) -> list[np.ndarray]:
        self.computed.append(texts)
        return [np.array([[len(text) + key] * width for text in texts], np.float32)
                for key, width in enumerate(self.widths)]  # fmt: skip


def test_each_distinct_text_is_computed_a_single_time(tmp_path: Path) -> None:
    cache, compute = PooledCache(), Counting()
    first, second = cache.vectors(["a", "b"], (3, 2), ["x", "yy", "x", ""], compute)
    np.testing.assert_array_equal(first, [[1] * 3, [2] * 3, [1] * 3, [0] * 3])
    np.testing.assert_array_equal(second, [[2] * 2, [3] * 2, [2] * 2, [1] * 2])
    cache.vectors(["a", "b"], (3, 2), ["zzz", "yy"], compute)
    both = cache.vectors(["a", "c"], (3, 2), ["yy", "x", "w"], Counting())
    np.testing.assert_array_equal([rows[:, 0] for rows in both], [[2, 1, 1], [3, 2, 2]])
    assert compute.computed == [["x", "yy", ""], ["zzz"]]
    again = Counting()
    later = PooledCache(cache.folder).vectors(["b", "a"], (2, 3), ["zzz", "x"], again)
    assert again.computed == []
    np.testing.assert_array_equal(later[0], [[4, 4], [2, 2]])
    assert cache.vectors(["a"], (3,), [], again)[0].shape == (0, 3)
    assert cache.vectors(["a"], (3,), ["\ud800", "é", "e\u0301"], Counting((3,)))[0].shape == (3, 3)
    (tmp_path / "file").write_text("", "utf-8")
    with pytest.raises(DataError, match="is a file"):
        PooledCache(tmp_path / "file")


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "another file": lambda content: b"text" * 1000,
    "half": lambda content: content[: len(content) // 2],
    "zeros": lambda content: content[:4096] + bytes(len(content) - 4096),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_named(tmp_path: Path, damage: str) -> None:
    cache, texts = PooledCache(tmp_path), ["x" * size for size in range(3000)]
    cache.vectors(["a"], (3,), texts, Counting((3,)))
    cache.file.write_bytes(DAMAGES[damage](cache.file.read_bytes()))
    with pytest.raises(DataError, match=r"vectors\.sqlite is damaged \(.*\)\. Remove the folder .*\."):
        PooledCache(tmp_path).vectors(["a"], (3,), texts, Counting((3,)))
    shutil.rmtree(tmp_path)
    tmp_path.mkdir()
    (stored,) = cache.vectors(["a"], (3,), texts, Counting((3,)))
    np.testing.assert_array_equal(stored[:, 0], range(3000))


def test_a_changed_row_is_computed_again(tmp_path: Path) -> None:
    cache, compute, texts = PooledCache(tmp_path), Counting((3,)), ["x" * size for size in range(3000)]
    cache.vectors(["a"], (3,), texts, compute)
    content, row = cache.file.read_bytes(), np.full(3, 2000, np.float32).tobytes()
    assert content.count(row) == 1
    cache.file.write_bytes(content.replace(row, np.full(3, 7, np.float32).tobytes()))
    (rows,) = cache.vectors(["a"], (3,), texts, compute)
    np.testing.assert_array_equal(rows[:, 0], range(3000))
    assert [len(computed) for computed in compute.computed] == [3000, 1024]


def test_an_unreadable_file_is_named(tmp_path: Path) -> None:
    cache = PooledCache(tmp_path)
    cache.file.mkdir()
    with pytest.raises(DataError, match=r"vectors\.sqlite cannot be read or written: unable to open database file\."):
        cache.vectors(["a"], (3,), ["x"], Counting((3,)))


def test_keys_tell_models_recipes_and_counts_apart() -> None:
    counts = [CorpusStats(2, np.array([1, n]), np.array([1, 1])) for n in (1, 2)]
    keys = {key_of(m, r, s) for m in ("m", "n") for r in ("mean", "cls") for s in (None, *counts)}
    assert len(keys) == 12


def test_concurrent_writers_share_a_folder(tmp_path: Path) -> None:
    def write(first: int) -> None:
        cache = PooledCache(tmp_path)  # each has its own, as processes do
        for start in range(first, 100, 7):
            texts = ["a" * (start + step) for step in range(5)]
            (stored,) = cache.vectors(["k"], (64,), texts, Counting((64,)))
            assert stored[:, 0].tolist() == [len(text) for text in texts]

    with ThreadPoolExecutor(3) as writers:
        list(writers.map(write, (0, 2, 3)))
    compute = Counting((64,))
    (rows,) = PooledCache(tmp_path).vectors(["k"], (64,), ["a" * size for size in (9, 200, 2, 100)], compute)
    np.testing.assert_array_equal(rows[:, 0], [9, 200, 2, 100])
    assert compute.computed == [["a" * 200]]


def test_another_tokenizer_or_configuration_is_another_model(bert: Path, tmp_path: Path) -> None:
    backbone = Encoder(bert, "mean").module.backbone
    same = digest_of_backbone(backbone)
    folder = Path(shutil.copytree(bert, tmp_path / "model"))
    assert digest_of_backbone(Encoder(folder, "mean").module.backbone) == same  # the path is no part of it
    config = json.loads((folder / "config.json").read_text("utf-8"))
    (folder / "config.json").write_text(json.dumps({**config, "layer_norm_eps": 1e-3}), "utf-8")
    assert digest_of_backbone(Encoder(folder, "mean").module.backbone) != same
    assert len({digest_of_backbone(backbone), digest_of_backbone(backbone, 64), digest_of_backbone(backbone, 128)}) == 3
    backbone.tokenizer.add_tokens(["flutist"])
    assert digest_of_backbone(backbone) != same


@pytest.mark.parametrize(("rows", "dtype"), [((0, 1), torch.float32), ((3, 2900), torch.int8)])
def test_digests_distinguish_swapped_weights(rows: tuple[int, int], dtype: torch.dtype) -> None:
    model = torch.nn.Module()
    model.register_buffer("rows", (torch.randn(3000, 7, generator=torch.manual_seed(0)) * 50).to(dtype))
    before = digest_of(model)
    changed = model.rows.data.numpy()  # torch does not see what changes here
    changed[list(rows)] = changed[list(rows[::-1])]
    assert digest_of(model) != before
    changed[list(rows)] = changed[list(rows[::-1])]
    assert digest_of(model) == before
    changed[-1, -1] += 1  # behind the last whole block
    assert digest_of(model) != before
