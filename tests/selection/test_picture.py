"""The picture: the panels that a search has scores for, in the format that the suffix names."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

from essent.errors import InputError
from essent.recipe.recipe import Recipe
from essent.selection.leaderboard import Leaderboard, Trial
from essent.selection.picture import draw_leaderboard
from essent.selection.run import search
from essent.selection.space import Space
from essent.tasks.pairs import PairTask
from selection_samples import TASK

Shells = Callable[[str], SentenceTransformer]


@pytest.mark.parametrize(
    ("space", "panels"),
    [
        ("heads", 2),
        pytest.param("layers", 2, marks=pytest.mark.slow),
        pytest.param("weights", 1, marks=pytest.mark.slow),
        pytest.param("full", 3, marks=pytest.mark.slow),
    ],
)
def test_pictures_of_spaces(shell_of: Shells, tmp_path: Path, space: str, panels: int) -> None:
    import matplotlib.image

    draw_leaderboard(search(shell_of("bert"), TASK, space), tmp_path / "picture.png")
    pixels = matplotlib.image.imread(tmp_path / "picture.png")
    assert pixels.shape[1] == pytest.approx(15 * 110 * (0.28 + 0.24 * panels), abs=2)
    assert np.unique(pixels.reshape(-1, pixels.shape[2]), axis=0).shape[0] > 50


def test_dollars_are_no_formulas(tmp_path: Path) -> None:
    recipe = Recipe(template="$_$ {text} [MASK]", weights=("mask",))
    provenance = {"model": "./runs/a$_$b", "data": "$^$.jsonl"}
    board = Leaderboard("spearman", (Trial(recipe, {"spearman": 70.0}),), provenance=provenance)
    draw_leaderboard(board, tmp_path / "picture.png")
    assert (tmp_path / "picture.png").stat().st_size > 5_000


def test_nothing_to_draw(shell_of: Shells, tmp_path: Path) -> None:
    board = search(shell_of("bert"), PairTask("one", TASK.pairs[:1]), Space(named=("mean",)))
    with pytest.raises(InputError, match="nothing to draw"):
        draw_leaderboard(board, tmp_path / "picture.png")
