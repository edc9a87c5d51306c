"""Files of results and of leaderboards, told apart by what they say they are."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
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
    kind = content.get("format") if isinstance(content, dict) else None
    if kind == FORMAT:
        return load_results(path)
    with needs_torch(f"{path}: a leaderboard of essent search"):
        from essent.selection.leaderboard import FORMAT as BOARD_FORMAT

    if kind != BOARD_FORMAT:
        raise DataError(
            f"{path} is neither a file of results nor a leaderboard: its format is {kind!r}, expected {FORMAT!r} or "
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
            None if trial.get("interval") is None else _numbers(trial["interval"], 2),
        )
        for trial in values["trials"]
    )
    if any(criterion not in trial.scores for trial in trials):
        raise ValueError(f"a recipe has no score by {criterion!r}")

    def compared(rows: Iterable[Mapping[str, Any]]) -> tuple[Comparison, ...]:
        return tuple(
            Comparison(
                str(row["first"]),
                str(row["second"]),
                _number(row["difference"]),
                _number(row["low"]),
                _number(row["high"]),
                _number(row["p"]),
                str(row.get("criterion", "spearman")),
            )
            for row in rows
        )

    checks = tuple(
        Check(
            str(check["task"]),
            int(check.get("units", check.get("pairs"))),  # the second: as version 0.1 wrote it
            {str(recipe): _numbers(scores, 3) for recipe, scores in check["scores"].items()},
            compared(check["comparisons"]),
            **{name: int(check.get(name, 0)) for name in ("left_out", "shared_texts", "texts")},
            unit=str(check.get("unit", "pairs")),
            score=str(check.get("score", "spearman")),
        )
        for check in values.get("checks", ())
    )
    best, first = values.get("best"), str(trials[0].recipe) if trials else None
    winner = values.get("winner", first)
    return Leaderboard(
        criterion,
        trials,
        tuple(map(str, values.get("baselines", ()))),
        compared(values.get("comparisons", ())),
        checks,
        tuple(map(str, values.get("notes", ()))),
        dict(values.get("provenance", {})),
        kept=None if best is None or best == winner else str(best),
        verdict=str(values.get("verdict", "")),
        winner=None if winner is None or winner == first else str(winner),
        held_out=compared(values.get("held_out", ())),
    )


def _number(value: Any) -> float:
    if value is None:
        return math.nan
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{value!r} is no number")
    return float(value)


def _numbers(values: Any, count: int) -> Any:
    if len(values) != count:
        raise ValueError(f"{values!r} are not {count} numbers")
    return tuple(map(_number, values))
