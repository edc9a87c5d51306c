"""A leaderboard on the screen and as a frame; what it writes is tested where it is searched and read."""

from __future__ import annotations

import math

import pandas as pd

from essent.recipe.recipe import Recipe
from essent.selection.leaderboard import Leaderboard, Trial

TRIALS = (
    Trial(Recipe.parse("weights=idf"), {"spearman": 71.25, "uniformity": -2.5}, (69.0, 73.5)),
    Trial(Recipe.parse("mean"), {"spearman": 70.0}),
    Trial(Recipe.parse("mean | zscore"), {"spearman": math.nan, "uniformity": 0.25}),
)


def test_repr() -> None:
    board = Leaderboard("spearman", TRIALS, ("mean",))
    assert repr(board) == "Leaderboard(3 recipes by 'spearman', best 'weights=idf' 71.25)"
    assert (
        repr(Leaderboard("spearman", TRIALS, kept="mean")) == "Leaderboard(3 recipes by 'spearman', best 'mean' 70.00)"
    )
    assert repr(Leaderboard("spearman", TRIALS, kept="prompt")) == "Leaderboard(3 recipes by 'spearman', best 'prompt')"
    assert repr(Leaderboard("spearman", TRIALS[2:])) == "Leaderboard(1 recipe by 'spearman', none with a score)"
    assert repr(Leaderboard("spearman", ())) == "Leaderboard(0 recipes by 'spearman', none with a score)"


def test_to_frame() -> None:
    frame = Leaderboard("spearman", TRIALS, ("mean",)).to_frame()
    expected = pd.DataFrame(
        {
            "recipe": ["weights=idf", "mean", "mean | zscore"],
            "spearman": [71.25, 70.0, math.nan],
            "uniformity": [-2.5, math.nan, 0.25],
            "low": [69.0, math.nan, math.nan],
            "high": [73.5, math.nan, math.nan],
            "baseline": [False, True, False],
        },
        index=pd.RangeIndex(1, 4, name="place"),
    )
    pd.testing.assert_frame_equal(frame, expected)
    empty = Leaderboard("spearman", ()).to_frame()
    assert empty.empty
    assert list(empty.columns) == ["recipe", "low", "high", "baseline"]
