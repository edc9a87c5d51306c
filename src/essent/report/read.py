"""Files of results and of leaderboards, told apart by what they say they are."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from essent._core.lazy import needs_torch
from essent.errors import DataError, EssentError
from essent.tasks.result import FORMAT, Result, load_results

if TYPE_CHECKING:
    from essent.selection.leaderboard import Leaderboard


def read_results(path: str | Path) -> list[Result] | Leaderboard:
    """Read what `essent evaluate --json`, `essent lab minimal-pairs evaluate --json` or `essent search --json` wrote.

    Raises:
        DataError: no such file, or none of these.
    """
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise DataError(f"Cannot read the results {path}: {error.strerror}.") from None
    except (ValueError, RecursionError) as error:  # not UTF-8, not JSON
        raise DataError(f"{path} is not a JSON file: {error}.") from None
    found = content.get("format") if isinstance(content, dict) else None
    if found == FORMAT:
        return load_results(path)
    with needs_torch(f"{path}: a leaderboard of essent search"):
        from essent.selection.leaderboard import FORMAT as BOARD_FORMAT

    if found != BOARD_FORMAT:
        raise DataError(
            f"{path} is neither a file of results nor a leaderboard: its format is {found!r}, expected {FORMAT!r} or "
            f"{BOARD_FORMAT!r}, as evaluate, search and lab minimal-pairs evaluate write with --json."
        )
    try:
        return leaderboard_from(content)
    except (EssentError, AttributeError, KeyError, TypeError, ValueError) as error:
        raise DataError(f"{path} is not a leaderboard: {type(error).__name__}: {error}.") from None


def leaderboard_from(values: Mapping[str, Any]) -> Leaderboard:
    """The inverse of `Leaderboard.to_dict`.

    Raises:
        KeyError, TypeError, ValueError, RecipeError: a part is missing or is something else.
    """
    from essent.recipe.recipe import Recipe
    from essent.selection.leaderboard import Check, Leaderboard, Trial
    from essent.tasks.comparison import Comparison

    criterion = str(values["criterion"])
    trials = tuple(
        Trial(
            Recipe.parse(trial["recipe"]),
            {str(name): _number(score) for name, score in trial["scores"].items()},
            None if trial.get("interval") is None else _pair(trial["interval"]),
        )
        for trial in values["trials"]
    )
    if any(criterion not in trial.scores for trial in trials):
        raise ValueError(f"a recipe has no score by {criterion!r}")
    checks = tuple(
        Check(
            str(check["task"]),
            int(check.get("units", check.get("pairs"))),  # the second: as version 0.1 wrote it
            {str(recipe): _three(scores) for recipe, scores in check["scores"].items()},
            tuple(_comparison(Comparison, c) for c in check["comparisons"]),
            int(check.get("left_out", 0)),
            int(check.get("shared_texts", 0)),
            int(check.get("texts", 0)),
            unit=str(check.get("unit", "pairs")),
            score=str(check.get("score", "spearman")),
        )
        for check in values.get("checks", ())
    )
    best = values.get("best")
    first = str(trials[0].recipe) if trials else None
    winner = values.get("winner", first)
    return Leaderboard(
        criterion,
        trials,
        tuple(map(str, values.get("baselines", ()))),
        tuple(_comparison(Comparison, c) for c in values.get("comparisons", ())),
        checks,
        tuple(map(str, values.get("notes", ()))),
        dict(values.get("provenance", {})),
        kept=None if best is None or best == winner else str(best),
        verdict=str(values.get("verdict", "")),
        winner=None if winner is None or winner == first else str(winner),
        held_out=tuple(_comparison(Comparison, c) for c in values.get("held_out", ())),
    )


def _comparison(kind: Any, values: Mapping[str, Any]) -> Any:
    numbers = {name: _number(values[name]) for name in ("difference", "low", "high", "p")}
    return kind(
        str(values["first"]), str(values["second"]), **numbers, criterion=str(values.get("criterion", "spearman"))
    )


def _number(value: Any) -> float:
    if value is None:
        return math.nan
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{value!r} is no number")
    return float(value)


def _pair(values: Any) -> tuple[float, float]:
    low, high = map(_number, values)
    return low, high


def _three(values: Any) -> tuple[float, float, float]:
    score, low, high = map(_number, values)
    return score, low, high
