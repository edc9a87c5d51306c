"""Cosines of pairs: the same in tiles of any size, with mixes and with zero vectors."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from essent.selection import program
from essent.selection.program import pair_cosines


@pytest.mark.parametrize("tile", [1, 2_000, 20_000, 2**21])
@pytest.mark.parametrize("mixes", [0, 5])
def test_cosines_in_tiles_of_any_size(tile: int, mixes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "TILE", tile)
    generator = torch.Generator().manual_seed(0)
    vectors = torch.randn(9, 7, 3, 16, generator=generator)  # (n,w,C,D)
    vectors[4, 2] = 0.0
    factors = torch.randn(mixes, 3, generator=generator)
    ends = torch.tensor([(0, 1), (4, 2), (3, 3), *((n % 9, (5 * n + 1) % 9) for n in range(40))])
    cosines = pair_cosines(vectors, ends, None if not mixes else lambda columns: factors @ columns)
    assert cosines.dtype == torch.float64
    exact = vectors.double() if not mixes else factors.double() @ vectors.double()  # (n,w,M,D)
    first, second = (exact[ends[:, side]] for side in (0, 1))  # (p,w,M,D)
    expected = torch.nn.functional.cosine_similarity(first, second, dim=-1).permute(1, 2, 0)
    np.testing.assert_allclose(cosines, expected, atol=1e-6)
    assert bool((cosines[2, :, 1] == 0).all())


def test_no_pairs() -> None:
    assert pair_cosines(torch.ones(2, 3, 1, 4), torch.empty(0, 2, dtype=torch.int64)).shape == (3, 1, 0)
