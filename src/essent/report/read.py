"""Reading of files of results and leaderboards, distinguished by their format field."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from essent._core.lazy import needs_torch
from essent.errors import DataError, EssentError
from essent.tasks.result import FORMAT, Result, load_results

if TYPE_CHECKING:
    from essent.selection.leaderboard import Leaderboard


def read_results(path: str | Path) -> list[Result] | Leaderboard:
    """Read the file of `essent evaluate --json`, `essent lab minimal-pairs evaluate --json` or `essent search --json`.

    Raises:
        DataError: no such file, or another format.

    Example:
        >>> from essent import evaluate
        >>> from essent.report import read_results
        >>> from essent.tasks import save_results
        >>> results = evaluate("sentence-transformers/all-MiniLM-L6-v2", ["mean"], ["duplicates.jsonl"])
        >>> save_results(results["mean"], "evaluated.json")
        >>> [result.task for result in read_results("evaluated.json")]
        ['duplicates']
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
            f"{path} is neither a file of results nor a leaderboard: its format is {kind!r}. Expected {FORMAT!r} or "
            f"{BOARD_FORMAT!r}, written by evaluate, search or lab minimal-pairs evaluate with --json."
        )
    try:
        return leaderboard_from(content)
    except (EssentError, AttributeError, KeyError, TypeError, ValueError) as error:
        raise DataError(f"{path} is not a leaderboard: {type(error).__name__}: {error}.") from None


def leaderboard_from(values: Mapping[str, Any]) -> Leaderboard:
    """Create a leaderboard from the values of `Leaderboard.to_dict`.

    Raises:
        KeyError, TypeError, ValueError, RecipeError: a value is missing or has another type.
    """
    from essent.recipe.recipe import Recipe
    from essent.selection.leaderboard import Check, Leaderboard, Trial
    from essent.tasks.comparison import Comparison

    def compared(rows: Iterable[Mapping[str, Any]]) -> tuple[Comparison, ...]:
        return tuple(_dataclass_from(Comparison, row) for row in rows)

    criterion = str(values["criterion"])
    trials = []
    for trial in values["trials"]:
        scores = {str(name): _number(score) for name, score in trial["scores"].items()}
        interval = None if trial.get("interval") is None else _numbers(trial["interval"], 2)
        trials.append(Trial(Recipe.parse(trial["recipe"]), scores, interval))
        if criterion not in scores:
            raise ValueError(f"a recipe has no score by {criterion!r}")
    checks = []
    for check in values.get("checks", ()):
        checked = {str(recipe): _numbers(scores, 3) for recipe, scores in check["scores"].items()}
        checks.append(
            _dataclass_from(Check, {**check, "scores": checked, "comparisons": compared(check["comparisons"])})
        )
    best, first = values.get("best"), str(trials[0].recipe) if trials else None
    winner = values.get("winner", first)
    parts = {
        **{name: compared(values.get(name, ())) for name in ("comparisons", "held_out")},
        **{name: tuple(map(str, values.get(name, ()))) for name in ("baselines", "notes")},
        "trials": tuple(trials),
        "checks": tuple(checks),
        "provenance": dict(values.get("provenance", {})),
        "kept": None if best == winner else best,
        "winner": None if winner == first else winner,
    }
    return cast("Leaderboard", _dataclass_from(Leaderboard, {**values, **parts}))


def _dataclass_from(kind: Any, values: Mapping[str, Any]) -> Any:
    """Create a dataclass from plain values by name; texts and numbers are checked, unknown names ignored."""
    readers: Mapping[Any, Callable[[Any], Any]] = {"float": _number, "int": int, "str": str}
    present = {part.name: readers.get(part.type) for part in fields(kind) if part.name in values}
    return kind(**{name: values[name] if read is None else read(values[name]) for name, read in present.items()})


def _number(value: Any) -> float:
    if value is None:
        return math.nan
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{value!r} is not a number")
    return float(value)


def _numbers(values: Any, count: int) -> Any:
    if len(values) != count:
        raise ValueError(f"{values!r} are not {count} numbers")
    return tuple(map(_number, values))
