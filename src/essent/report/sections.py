"""Sections of leaderboards and of results without a main score; rows and tables shared by all sections."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, NamedTuple

from essent.report.parts import (
    NO_MODEL,
    Bar,
    Bars,
    Block,
    Column,
    Curves,
    Heat,
    Line,
    Names,
    Number,
    Point,
    Points,
    Section,
    Table,
    decimals_for,
    distinct,
    finite,
    key_of,
    with_interval,
)
from essent.tasks.heros import CHANGED, KEPT, comparisons
from essent.tasks.pairs import METRICS
from essent.tasks.result import Result

if TYPE_CHECKING:
    from essent.selection.leaderboard import Leaderboard, Trial

MAX_BARS = 16  # per chart
ROW = "model and recipe"
BY_CONSTRUCTION = ("anisotropy", "isoscore")  # determined by centring and whitening on the texts of their fit
GEOMETRY = {"anisotropy": "lower", "isoscore": "higher", "alignment": "lower", "uniformity": "lower"}  # is better
MAX_TRIALS, MAX_TRIAL_BARS = 50, 10
CURVES = {"alone": "one layer", "with 0": "mean with layer 0"}
FIRST, PLAIN, BASELINE = 1, 0, 2  # series of trials' bars


class Row(NamedTuple):
    """A row of a section: its label, and the index of its model."""

    label: str
    series: int


def by_row(group: Iterable[Result], names: Names) -> dict[Row, dict[str, Result]]:
    """Group results by row and task; repeated results count once, differing results of the same name get a new row."""
    rows: dict[Row, dict[str, Result]] = {}
    for result in group:
        key = key_of(result.provenance)
        for number in count(1):
            label = names.rows[key] + (f" ({number})" if number > 1 else "")
            present = rows.setdefault(Row(label, names.series(key)), {}).setdefault(result.task, result)
            if present.to_dict() == result.to_dict():
                break
    return rows


def notes_of(group: Sequence[Result], rows: Mapping[Row, object]) -> tuple[str, ...]:
    """Return the notes of the results, each once, and a note about repeated rows."""
    sentences = [f"{result.task}: {note}" for result in group for note in result.notes]
    if len(rows) > len({key_of(result.provenance) for result in group}):
        sentences.append("A row with (2) is another result of the same model, recipe and task.")
    return distinct(sentences)


def bar_chart(
    title: str,
    lines: Mapping[Row, Number],
    decimals: int,
    reach: Sequence[float] = (),
    better: str = "higher",
    values_on: str = "page with numbers",
) -> Bars:
    """Create bars in the order of the table; of many only the best, sorted, missing values last.

    Args:
        better: "higher" or "lower".
    """
    rows, captions = list(lines), ["Lower is better."] if better == "lower" else []
    if len(rows) > MAX_BARS:
        sign = 1.0 if better == "lower" else -1.0
        rows.sort(key=lambda row: math.inf if (value := lines[row].known) is None else sign * value)
        rows = rows[:MAX_BARS]
        captions.append(f"The best {MAX_BARS} of {len(lines)}.")
    bars = tuple(Bar(row.label, lines[row], row.series) for row in rows)
    return Bars(title, bars, decimals, " ".join(captions), tuple(reach), values_on)


def long_table(
    title: str, heads: Sequence[str], lines: Sequence[tuple[tuple[str, ...], float | None, Mapping[str, float]]]
) -> Table:
    """Create a folded table, one line per result: its texts, its number of examples, and all scores."""
    measures = list(dict.fromkeys(name for *_, scores in lines for name in scores))
    columns = [*(Column(head, None) for head in heads), Column("n", 0)]
    columns += [Column(name, decimals_for(scores.get(name) for *_, scores in lines)) for name in measures]
    rows: list[Line] = [
        (*texts, Number(n), *(Number(scores.get(name)) for name in measures)) for texts, n, scores in lines
    ]
    return Table(title, tuple(columns), tuple(rows), folded=True)


def flattened(metrics: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Flatten metrics by subset to one dictionary."""
    return {
        metric if subset == "all" else f"{metric}, {subset}": score
        for metric, scores in metrics.items()
        for subset, score in scores.items()
    }


# -- minimal pairs ----------------------------------------------------------------------------------------------------


def heros_section(kind: tuple[str, ...], group: Sequence[Result], names: Names) -> Section:
    """Return similarities as a heat map and with intervals, and how often a changed meaning is closer."""
    grouped = by_row(group, names)
    rows = {row: next(iter(tasks.values())) for row, tasks in grouped.items()}
    subsets = [s for s in (*KEPT, *CHANGED) if any(s in result.metrics["similarity"] for result in rows.values())]
    heat: list[tuple[str, tuple[float | None, ...]]] = []
    lines: list[Line] = []
    for row, result in rows.items():
        scores = [result.subsets.get(subset, {}) for subset in subsets]
        values = [result.metrics["similarity"].get(subset) for subset in subsets]
        numbers = [Number(v, s.get("low"), s.get("high")) for v, s in zip(values, scores, strict=True)]
        heat.append((row.label, tuple(values)))
        lines.append((row.label, *numbers, Number(result.metrics["baseline"].get("all"))))
    spans = (("meaning kept", KEPT), ("meaning changed", CHANGED))
    groups = tuple((title, span) for title, members in spans if (span := len({*members} & {*subsets})))
    caption = "1 is the same sentence, 0 any other sentence."
    blocks: list[Block] = []
    if subsets:
        blocks = [Heat("Similarity after one small change", "", tuple(subsets), tuple(heat), groups, about=caption)]
    columns = (Column(ROW, None), *map(Column, subsets), Column("baseline"))
    caption = "With 95 % intervals; the baseline is the mean cosine of two different originals."
    blocks.append(Table("Similarities", columns, tuple(lines), caption))
    title = "HEROS" if kind[1] == "heros" else f"Minimal pairs: {kind[1]}"
    verdict: tuple[str, ...] = ()
    for below, changes in _shares(rows).items():
        if not verdict:  # the row that ranks a changed meaning first least often
            above, shares = next(iter(changes.items()))
            blocks.append(bar_chart(f"Ranks {above} above {below}, %", shares, 0, better="lower"))
            best = min(shares, key=lambda row: shares[row].value or 0.0)
            least = "" if len(shares) == 1 else f", the lowest of {len(shares)} rows"
            share = with_interval(shares[best], 0)
            verdict = (f"{title}: {best.label} ranks {above} above {below} for {share} % of the originals{least}.",)
        heads = (Column(ROW, None), *(Column(name, 0, "lower") for name in changes))
        lines = [(row.label, *(line.get(row, Number()) for line in changes.values())) for row in rows]
        caption = f"How often each change is more similar to the original than {below}, with 95 % intervals."
        blocks.append(Table(f"Ranked above {below}, % of the originals", heads, tuple(lines), caption))
    return Section(title, tuple(blocks), "", notes_of(group, grouped), verdict)


def _shares(rows: Mapping[Row, Result]) -> dict[str, dict[str, dict[Row, Number]]]:
    """Return how often a changed meaning is ranked above the same meaning, in %: kept -> changed -> row -> share."""
    shares: dict[str, dict[str, dict[Row, Number]]] = {}
    for row, result in rows.items():
        try:
            compared = comparisons(result)
        except (KeyError, TypeError):  # a result created by the user
            continue
        for c in compared:
            number = Number(100 * c.share, 100 * c.low, 100 * c.high)
            shares.setdefault(c.below, {}).setdefault(c.above, {})[row] = number
    return shares


# -- geometry, and other results --------------------------------------------------------------------------------------


def geometry_section(kind: tuple[str, ...], group: Sequence[Result], names: Names) -> Section:
    """Return a table of the measures, and a plot of alignment against uniformity."""
    grouped = by_row(group, names)
    rows = {row: next(iter(tasks.values())) for row, tasks in grouped.items()}
    flat = {row: flattened(result.metrics) for row, result in rows.items()}
    measures = list(dict.fromkeys(name for scores in flat.values() for name in scores))
    fitted = [  # rows whose shaping was fitted on the measured texts
        row.label
        for row, result in rows.items()
        if result.provenance.get("fitted_on") == "task" and "|" in str(result.provenance.get("recipe"))
    ]
    better = {name: side for name, side in GEOMETRY.items() if not fitted or name not in BY_CONSTRUCTION}
    caption = "Lower is better for alignment, uniformity and the average cosine (anisotropy), higher for IsoScore."
    if fitted:
        caption += (
            f" The shaping of {', '.join(fitted)} was fitted on these texts, which sets anisotropy to 0 or IsoScore "
            "to 1 for any vectors. No row is marked as the best by these measures."
        )
    columns = (Column(ROW, None), *(Column(name, 3, better.get(name, "")) for name in measures))
    lines: list[Line] = [(row.label, *(Number(scores.get(name)) for name in measures)) for row, scores in flat.items()]
    table = Table("Measures", columns, tuple(lines), caption)
    places = {row: (finite(scores.get("uniformity")), finite(scores.get("alignment"))) for row, scores in flat.items()}
    points = [Point(row.label, x, y, row.series) for row, (x, y) in places.items() if x is not None and y is not None]
    caption = "Lower is better on both axes: the best is at the bottom left."
    plot = Points("Alignment and uniformity", "uniformity", "alignment", tuple(points), 3, caption)
    blocks: list[Block] = [*([plot] if points else []), table]
    return Section(f"Geometry: {kind[1]}", tuple(blocks), notes=notes_of(group, grouped))


def plain_section(kind: tuple[str, ...], group: Sequence[Result], names: Names) -> Section:
    """Return one table of scores, without figures."""
    grouped = by_row(group, names)
    rows = [(row.label, next(iter(tasks.values()))) for row, tasks in grouped.items()]
    table = long_table("Scores", [ROW], [((label,), result.n, flattened(result.metrics)) for label, result in rows])
    return Section(kind[1], (replace(table, folded=False),), notes=notes_of(group, grouped))


# -- leaderboards -----------------------------------------------------------------------------------------------------


def board_section(board: Leaderboard, names: Names) -> Section:
    """Return the section of a search: its first recipes, layer curves, heads, and the scores on test data."""
    provenance, criterion = board.provenance, board.criterion
    model = names.models[str(provenance.get("model") or NO_MODEL)]
    measure = f"{criterion.capitalize()} ×100" if criterion in METRICS else criterion
    decimals = decimals_for(trial.scores[criterion] for trial in board.trials)
    blocks: list[Block] = []
    if any(finite(trial.scores[criterion]) is not None for trial in board.trials):
        blocks.append(_first_bars(board, decimals))
    blocks += [*_layer_curves(board, measure, decimals), *_head_heat(board, measure, decimals), _trials(board)]
    for check in board.checks:  # scores on data that was not used to choose
        columns = (Column("recipe", None), Column("Spearman ×100", 2, "higher"))
        rows = tuple((recipe, Number(*scores)) for recipe, scores in check.scores.items())
        blocks.append(Table(f"On {check.summary().rstrip('.')}", columns, rows))
    compared = [*board.comparisons, *(c for check in board.checks for c in check.comparisons)]
    sentences = [comparison.summary() for comparison in compared]
    sentences += [f"On pairs held out of the choice: {comparison.summary()}" for comparison in board.held_out]
    space = f" ({provenance['space']})" if "space" in provenance else ""
    title = f"Search on {provenance.get('data', 'pairs')}{space}: {model}"
    first = board.verdict or (sentences[0] if sentences else "")
    verdict = (f"{title}: {first}",) if first else ()
    caption = f"{len(board.trials)} recipes on {model}, ranked by {measure}."
    return Section(title, tuple(blocks), caption, distinct([*sentences, *board.notes]), verdict)


def _number(trial: Trial, criterion: str) -> Number:
    return Number(trial.scores[criterion], *(trial.interval or (None, None)))


def _first_trials(board: Leaderboard, most: int) -> list[tuple[int, str, Trial, bool]]:
    """Return the first trials and the baselines: rank, label, trial, whether it is a baseline."""
    trials = []
    for rank, trial in enumerate(board.trials, start=1):
        is_baseline = str(trial.recipe) in board.baselines
        if rank <= most or is_baseline:
            trials.append((rank, f"{trial.recipe}{' (baseline)' if is_baseline else ''}", trial, is_baseline))
    return trials


def _first_bars(board: Leaderboard, decimals: int) -> Bars:
    bars = []
    for rank, label, trial, is_baseline in _first_trials(board, MAX_TRIAL_BARS):
        series = BASELINE if is_baseline else FIRST if rank == 1 else PLAIN
        bars.append(Bar(f"{rank}. {label}", _number(trial, board.criterion), series))
    caption = "Lines: 95 % intervals, bootstrap over pairs." if any(bar.number.interval for bar in bars) else ""
    return Bars("First recipes and baselines", tuple(bars), decimals, caption)


def _trials(board: Leaderboard) -> Table:
    criteria = list(board.trials[0].scores) if board.trials else []
    columns = [Column("recipe", None), Column("rank", 0)]
    columns += [Column(name, decimals_for(trial.scores.get(name) for trial in board.trials)) for name in criteria]
    rows: list[Line] = []
    for rank, label, trial, _ in _first_trials(board, MAX_TRIALS):
        others = {name: Number(trial.scores.get(name)) for name in criteria}
        numbers = others | {board.criterion: _number(trial, board.criterion)}
        rows.append((label, Number(rank), *numbers.values()))
    excerpt = f"The first {MAX_TRIALS} of {len(board.trials)} recipes, and the baselines."
    caption = excerpt if len(rows) < len(board.trials) else ""
    return Table("Recipes", tuple(columns), tuple(rows), caption, folded=len(rows) > MAX_TRIAL_BARS)


def _layer_curves(board: Leaderboard, measure: str, decimals: int) -> list[Curves]:
    """Return curves of the plain means by layer."""
    curves = board.layers()
    if not curves:
        return []
    layers = sorted({name for curve in curves.values() for name in curve}, key=_depth)
    series = tuple((CURVES.get(kind, kind), tuple(map(curve.get, layers))) for kind, curve in curves.items())
    begin = int("static" in layers)
    return [Curves("Mean of all tokens, by layer", "layer", measure, tuple(layers), series, begin, decimals)]


def _depth(source: str) -> tuple[int, int]:
    """Return a sort key for static, 0, 1 … L-1, L."""
    if source.isdigit():
        return 1, int(source)
    above = re.fullmatch(r"L(?:-(\d+))?", source)
    return (2, -int(above.group(1) or 0)) if above else (0, 0)


def _head_heat(board: Leaderboard, measure: str, decimals: int) -> list[Heat]:
    """Return a heat map of Ditto by layer and head."""
    mix, grid = board.heads() or ("", None)
    if grid is None or sum(finite(score) is not None for score in grid.ravel().tolist()) < 2:
        return []
    rows = tuple((str(layer), tuple(line)) for layer, line in enumerate(grid.tolist(), start=1))
    columns = tuple(str(head) for head in range(1, grid.shape[1] + 1))
    caption = f"{measure}; rows are layers, columns are attention heads."
    groups = (("head", len(columns)),)
    return [Heat(f"Ditto by head, layers={mix}", "layer", columns, rows, groups, 1 if decimals == 2 else 3, caption)]
