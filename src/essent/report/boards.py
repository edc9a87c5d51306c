"""Sections of leaderboards: first recipes, layer curves, heads, and how the winner does on other data."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from essent.report.labels import NO_MODEL, Names
from essent.report.parts import (
    Bar,
    Bars,
    Block,
    Column,
    Curves,
    Heat,
    Line,
    Number,
    Section,
    Table,
    decimals_for,
    distinct,
    finite,
)
from essent.tasks.pairs import METRICS

if TYPE_CHECKING:
    from essent.selection.leaderboard import Check, Leaderboard, Trial

MOST_ROWS, MOST_BARS = 50, 10
CURVES = {"alone": "one layer", "with 0": "mean with layer 0"}
FIRST, OTHER, BASELINE = 1, 0, 2  # series of bars


def board_section(board: Leaderboard, names: Names) -> Section:
    """What a search found, from its leaderboard."""
    about = board.provenance
    model = names.models[str(about.get("model") or NO_MODEL)]
    sentence = f"{len(board.trials)} recipes on {model}, ranked by {_named(board.criterion)}."
    decimals = decimals_for(trial.scores[board.criterion] for trial in board.trials)
    blocks: list[Block] = []
    if any(Number(trial.scores[board.criterion]).known is not None for trial in board.trials):
        blocks.append(_first_bars(board, decimals))
    if (curves := _layer_curves(board, decimals)) is not None:
        blocks.append(curves)
    if (heads := _head_heat(board, decimals)) is not None:
        blocks.append(heads)
    blocks.append(_trials(board))
    blocks += [_checked(check) for check in board.checks]
    told = [c.in_words() for c in (*board.comparisons, *(c for check in board.checks for c in check.comparisons))]
    told += [f"On pairs left out of the choice: {comparison.in_words()}" for comparison in board.held_out]
    space = f" ({about['space']})" if "space" in about else ""
    title = f"Search on {about.get('data', 'pairs')}{space}: {model}"
    first = board.verdict or (told[0] if told else "")
    verdict = (f"{title}: {first}",) if first else ()
    return Section(title, tuple(blocks), sentence, distinct([*told, *board.notes]), verdict)


def _named(criterion: str) -> str:
    return f"{criterion.capitalize()} ×100" if criterion in METRICS else criterion


def _number(trial: Trial, criterion: str) -> Number:
    low, high = trial.interval or (None, None)
    return Number(trial.scores[criterion], low, high)


def _listed(board: Leaderboard, most: int) -> list[tuple[int, Trial]]:
    """The first trials and the baselines, with their places."""
    numbered = enumerate(board.trials, start=1)
    return [(place, trial) for place, trial in numbered if place <= most or str(trial.recipe) in board.baselines]


def _first_bars(board: Leaderboard, decimals: int) -> Bars:
    listed = _listed(board, MOST_BARS)
    bars = []
    for place, trial in listed:
        recipe = str(trial.recipe)
        series = BASELINE if recipe in board.baselines else FIRST if place == 1 else OTHER
        label = f"{place}. {recipe}" + (" (baseline)" if series == BASELINE else "")
        bars.append(Bar(label, _number(trial, board.criterion), series))
    about = "Lines: 95 % intervals, bootstrap over pairs." if any(trial.interval for _, trial in listed) else ""
    return Bars("First recipes and baselines", tuple(bars), decimals, about)


def _trials(board: Leaderboard) -> Table:
    criteria = list(board.trials[0].scores) if board.trials else []
    listed = _listed(board, MOST_ROWS)
    columns = [Column("recipe", None), Column("place", 0)]
    for name in criteria:
        columns.append(Column(name, decimals_for(t.scores.get(name) for t in board.trials)))
    rows: list[Line] = []
    for place, trial in listed:
        numbers = [
            _number(trial, name) if name == board.criterion else Number(trial.scores.get(name)) for name in criteria
        ]
        named = f"{trial.recipe} (baseline)" if str(trial.recipe) in board.baselines else str(trial.recipe)
        rows.append((named, Number(place), *numbers))
    cut = (
        f"The first {MOST_ROWS} of {len(board.trials)} recipes, and the baselines."
        if len(listed) < len(board.trials)
        else ""
    )
    return Table("Recipes", tuple(columns), tuple(rows), cut, folded=len(rows) > MOST_BARS)


def _checked(check: Check) -> Table:
    """The winner on data that it was not chosen on."""
    columns = (Column("recipe", None), Column("Spearman ×100", 2, "higher"))
    rows = tuple((recipe, Number(*ends)) for recipe, ends in check.scores.items())
    return Table(f"On {check.in_words().rstrip('.')}", columns, rows)


def _layer_curves(board: Leaderboard, decimals: int) -> Curves | None:
    """Plain means by layer."""
    curves = board.layers()
    if not curves:
        return None
    places = sorted({name for curve in curves.values() for name in curve}, key=_depth)
    series = tuple(
        (CURVES.get(kind, kind), tuple(curve.get(place) for place in places)) for kind, curve in curves.items()
    )
    apart = int("static" in places)
    return Curves(
        "Mean of all tokens, by layer", "layer", _named(board.criterion), tuple(places), series, apart, decimals
    )


def _depth(source: str) -> tuple[int, int]:
    """static, 0, 1 … L-1, L."""
    if source.isdigit():
        return 1, int(source)
    above = re.fullmatch(r"L(?:-(\d+))?", source)
    return (2, -int(above.group(1) or 0)) if above else (0, 0)


def _head_heat(board: Leaderboard, decimals: int) -> Heat | None:
    """Ditto by layer and head."""
    found = board.heads()
    if found is None or sum(finite(score) is not None for line in found[1].tolist() for score in line) < 2:
        return None
    mix, grid = found
    rows = tuple((str(layer), _line(line)) for layer, line in enumerate(grid.tolist(), start=1))
    columns = tuple(str(head) for head in range(1, grid.shape[1] + 1))
    title = f"Ditto by head, layers={mix}"
    about = f"{_named(board.criterion)}; rows are layers, columns heads."
    return Heat(title, "layer", columns, rows, (("head", len(columns)),), 1 if decimals == 2 else 3, about)


def _line(values: Sequence[float]) -> tuple[float | None, ...]:
    return tuple(values)
