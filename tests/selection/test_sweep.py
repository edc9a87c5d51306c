"""The parts of a sweep: cosines of pairs, the folder of intermediate results, bfloat16 passes."""

from pathlib import Path

import numpy as np
import pytest
import torch

from essent._core.machine import has_bfloat16
from essent.errors import DataError
from essent.selection import program, sweep
from essent.selection.program import pair_cosines
from essent.selection.run import search
from essent.selection.sweep import Store
from essent.tasks.sample import sample_texts

# -- cosines ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("tile", "mixes"), [(1, 0), (2_000, 5), (20_000, 0), (20_000, 5), (2**21, 5)])
def test_cosines_in_tiles_of_any_size(tile: int, mixes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "TILE", tile)
    torch.manual_seed(0)
    vectors, factors = torch.randn(9, 7, 3, 16), torch.randn(mixes, 3) if mixes else torch.eye(3)  # (n,w,C,D), (M,C)
    vectors[4, 2] = 0.0
    ends = torch.cartesian_prod(torch.arange(9), torch.arange(9))
    cosines = pair_cosines(vectors, ends, (lambda columns: factors @ columns) if mixes else None)
    assert cosines.dtype == torch.float64
    first, second = (factors.double() @ vectors.double()[ends[:, side]] for side in (0, 1))  # (p,w,M,D)
    expected = torch.nn.functional.cosine_similarity(first, second, dim=-1).permute(1, 2, 0)
    np.testing.assert_allclose(cosines, expected, atol=1e-6)
    assert not cosines[2, :, ends[:, 0] == 4].any()
    assert pair_cosines(torch.ones(2, 3, 1, 4), torch.empty(0, 2, dtype=torch.int64)).shape == (3, 1, 0)


# -- the folder: started over, resumed or refused; never read if it is damaged ----------------------------------------


def test_unfinished_folder_restarts_and_a_damaged_one_is_not_read(tmp_path: Path) -> None:
    """As a run leaves it that is killed before the identity is written; NumPy would fill a short file with zeros."""
    (tmp_path / "rows.bin").write_bytes(b"half")
    store = Store(tmp_path, {"a": 1}, 2, 3)
    assert store.rows.tolist() == [[0, 0, 0], [0, 0, 0]]
    store.write("pooled.bin", 0, np.ones(6))
    store.rows[:] = 0.5
    store.finish("pass-0-1")
    del store
    again = Store(tmp_path, {"a": 1}, 2, 3)
    assert (again.done("pass-0-1"), again.done("pass-0-0")) == (True, False)
    assert (again.rows.sum(), again.read("pooled.bin", (2, 3)).sum()) == (3.0, 6.0)
    del again
    for name in ("rows.bin", "pooled.bin"):
        content = (tmp_path / name).read_bytes()
        for damaged in (content[:-8], content + content[-8:]):
            (tmp_path / name).write_bytes(damaged)
            with pytest.raises(DataError, match="is missing or damaged"):
                Store(tmp_path, {"a": 1}, 2, 3).read("pooled.bin", (2, 3))
        (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match="is a file"):
        Store(tmp_path / "rows.bin", {}, 2, 3)


@pytest.mark.parametrize("durable", [True, False])
def test_a_unit_is_noted_when_all_it_wrote_is_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, durable: bool
) -> None:
    """The order in which a power failure may find it; a temporary folder need not be synced."""
    store, log = Store(tmp_path, {}, 2, 3, durable=durable), []
    sync = sweep.sync
    monkeypatch.setattr(sweep, "sync", lambda path: (log.append((path.name, store.done("unit"))), sync(path)))
    for name, offset in (("b.bin", 0), ("a.bin", 0), ("a.bin", 6)):
        store.write(name, offset, np.ones(6))
    store.finish("unit")
    assert log == [("a.bin", False), ("b.bin", False), (tmp_path.name, False), (tmp_path.name, True)] * durable
    assert (tmp_path / "a.bin").stat().st_size == 48
    store.finish("another")
    assert [name for name, _ in log].count("a.bin") == durable


# -- passes in bfloat16: the same leaderboard to a tenth of a point --------------------------------------------------


@pytest.mark.skipif(not has_bfloat16("cpu"), reason="this CPU has no bfloat16 arithmetic")
@pytest.mark.slow  # two searches
def test_bfloat16_matches_float32(bert: Path) -> None:
    """On 1,500 pairs of English sentences, labelled by the words that they share."""
    texts = sample_texts()
    words = [set(text.lower().strip(".?!").split()) for text in texts]
    rows = [
        (texts[a], texts[b], len(words[a] & words[b]) / len(words[a] | words[b]))
        for a, b in np.random.default_rng(0).integers(0, len(texts), (1500, 2))
    ]
    boards = [search(bert, rows, "layers", precision=name, device="cpu", top=1) for name in ("float32", "bfloat16")]
    exact, rounded = ({trial.recipe: trial.scores["spearman"] for trial in board.trials} for board in boards)
    assert 0 < max(abs(exact[recipe] - rounded[recipe]) for recipe in exact) < 0.1
    assert boards[0].leader == boards[1].leader
