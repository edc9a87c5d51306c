"""Reductions against loops over tokens."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from essent.recipe.pooling import reductions
from reference import reduced

SPECS = ["sum", "max", "power:2", "power", "dct:1", "dct:9"]


def batch(lengths: list[int], width: int, side: str, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Random states, weights and mask; what stands on padding is large, and must not count."""
    draw = np.random.default_rng(seed)
    attention_mask = torch.zeros(len(lengths), width, dtype=torch.bool)
    for row, length in enumerate(lengths):
        attention_mask[row, slice(width - length, width) if side == "left" else slice(0, length)] = True
    hidden = torch.from_numpy(draw.standard_normal((len(lengths), width, 5)) + 1e3 * ~attention_mask.numpy()[..., None])
    weights = torch.from_numpy(draw.random((len(lengths), width)) + 0.1) * attention_mask
    return hidden, weights, attention_mask


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("side", ["left", "right"])
def test_reductions_equal_loops(spec: str, side: str) -> None:
    lengths = [1, 2, 5, 7]  # shorter and longer than the number of DCT coefficients
    hidden, weights, attention_mask = batch(lengths, 7, side)
    weights[2:, 3] = 0  # a token that only the texts of five and seven have
    vectors = reductions.create(spec).reduce(hidden, weights, attention_mask).numpy()
    for row in range(len(lengths)):
        attended = attention_mask[row]
        oracle = reduced(list(hidden[row][attended].numpy()), weights[row][attended].tolist(), spec)
        np.testing.assert_allclose(vectors[row], oracle, atol=1e-9)
    assert vectors.shape[1] == reductions.create(spec).width(5)
