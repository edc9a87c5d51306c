"""The picture: the panels that a search has scores for, in the format that the suffix names."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from essent.recipe.recipe import Recipe
from essent.selection.leaderboard import Leaderboard, Trial
from essent.selection.picture import draw_leaderboard


def test_a_picture_has_the_panels_of_its_scores(tmp_path: Path) -> None:
    import matplotlib.image

    heads = [Trial(Recipe.parse(f"ditto:{n // 2 + 1}-{n % 2 + 1}"), {"spearman": 40.0 + n}, (30, 50)) for n in range(4)]
    layers = [Trial(Recipe.parse(f"layers={name}"), {"spearman": 50.0}) for name in ("static", "0", "1", "L", "0+1")]
    for trials, panels in ((heads, 2), (layers, 2), (layers[:1], 1), ([*heads, *layers], 3)):
        draw_leaderboard(Leaderboard("spearman", tuple(trials), ("mean",)), tmp_path / "picture.png")
        pixels = matplotlib.image.imread(tmp_path / "picture.png")
        assert pixels.shape[1] == pytest.approx(15 * 110 * (0.28 + 0.24 * panels), abs=2)
        assert np.unique(pixels.reshape(-1, pixels.shape[2]), axis=0).shape[0] > 50


def test_dollars_are_no_formulas(tmp_path: Path) -> None:
    recipe = Recipe(template="$_$ {text} [MASK]", weights=("mask",))
    provenance = {"model": "./runs/a$_$b", "data": "$^$.jsonl"}
    board = Leaderboard("spearman", (Trial(recipe, {"spearman": 70.0}),), provenance=provenance)
    draw_leaderboard(board, tmp_path / "picture.png")
    assert (tmp_path / "picture.png").stat().st_size > 5_000
