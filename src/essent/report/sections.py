"""Sections of leaderboards and of results without a main score, and the tables and charts that all sections share."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from essent.report.parts import (
    NO_MODEL,
    Bars,
    Better,
    Block,
    Column,
    Curves,
    Heat,
    Line,
    Names,
    Number,
    Points,
    Row,
    Section,
    Table,
    decimals_for,
    finite,
    with_interval,
)
from essent.tasks.heros import CHANGED, KEPT, comparisons
from essent.tasks.pairs import METRICS
from essent.tasks.result import Result

if TYPE_CHECKING:
    from essent.selection.leaderboard import Leaderboard

MAX_BARS = 16  # per chart
ROW = "model and recipe"
BY_CONSTRUCTION = ("anisotropy", "isoscore")  # determined by centring and whitening on the texts of their fit
GEOMETRY: dict[str, Better] = {
    "anisotropy": "lower",
    "isoscore": "higher",
    "alignment": "lower",
    "uniformity": "lower",
}
MAX_TRIALS, MAX_TRIAL_BARS = 50, 10
CURVES = {"alone": "one layer", "with 0": "mean with layer 0"}
PLAIN, FIRST, BASELINE = range(3)  # series of trials' bars
MEANINGS = {"meaning kept": KEPT, "meaning changed": CHANGED}
Rows = Mapping[Row, Result]
Record = Mapping[str, str | float | None]  # a line of a table by column


def keep_best_bars(bars: Bars, better: str = "higher") -> Bars:
    """Return a chart with its rows in order or, if there are too many, only the best, sorted, missing values last."""
    captions = ["Lower is better."] if better == "lower" else []
    rows = bars.rows
    if len(rows) > MAX_BARS:
        sign = 1.0 if better == "lower" else -1.0
        rows = sorted(rows, key=lambda row: (row[1].value is None, sign * (row[1].value or 0.0)))[:MAX_BARS]
        captions.append(f"The best {MAX_BARS} of {len(bars.rows)}.")
    return replace(bars, rows=rows, caption=" ".join(captions))


def row_table(
    title: str, columns: Iterable[Column], rows: Mapping[Row, Sequence[Number]], caption: str = "", folded: bool = False
) -> Table:
    """Create a table of numbers by row."""
    lines: list[Line] = [(row.label, *numbers) for row, numbers in rows.items()]
    return Table(title, [Column(ROW, None), *columns], lines, caption, folded)


def record_table(title: str, records: Iterable[Record], folded: bool = True) -> Table:
    """Create a table of texts and scores by column name; equal records count once."""
    distinct = [dict(cells) for cells in dict.fromkeys(tuple(record.items()) for record in records)]
    columns = []
    for name in dict.fromkeys(name for record in distinct for name in record):
        cells = [record.get(name) for record in distinct]
        numbers = [cell for cell in cells if not isinstance(cell, str)]
        columns.append(Column(name, 0 if name == "n" else decimals_for(numbers) if numbers else None))
    lines: list[Line] = []
    for record in distinct:
        cells = [record.get(column.name) for column in columns]
        lines.append(tuple(cell if isinstance(cell, str) else Number(cell) for cell in cells))
    return Table(title, columns, lines, folded=folded)


def flattened(metrics: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Flatten metrics by subset to one dictionary."""
    return {
        metric if subset == "all" else f"{metric}, {subset}": score
        for metric, scores in metrics.items()
        for subset, score in scores.items()
    }


# -- minimal pairs ----------------------------------------------------------------------------------------------------


def heros_section(task: str, rows: Rows) -> Section:
    """Return similarities as a heat map and as a table with intervals, and how often a changed meaning is closer."""
    subsets = [s for s in (*KEPT, *CHANGED) if any(s in result.metrics["similarity"] for result in rows.values())]
    similarities: dict[Row, list[Number]] = {}
    for row, result in rows.items():
        intervals = [result.subsets.get(subset, {}) for subset in subsets]
        means = [result.metrics["similarity"].get(subset) for subset in subsets]
        similarities[row] = [Number(m, i.get("low"), i.get("high")) for m, i in zip(means, intervals, strict=True)]
    blocks: list[Block] = []
    if subsets:
        spans = [(name, len({*members} & {*subsets})) for name, members in MEANINGS.items()]
        heat = [(row.label, [number.value for number in numbers]) for row, numbers in similarities.items()]
        caption = "1 is the same sentence, 0 any other sentence."
        groups = [(name, span) for name, span in spans if span]
        blocks.append(Heat("Similarity after one small change", "", subsets, heat, groups, caption=caption))
        for row, result in rows.items():
            similarities[row].append(Number(result.metrics["baseline"].get("all")))
        caption = "With 95 % intervals; the baseline is the mean cosine of two different originals."
        blocks.append(row_table("Similarities", map(Column, [*subsets, "baseline"]), similarities, caption))
    title = "HEROS" if task == "heros" else f"Minimal pairs: {task}"
    verdict = ""
    for kept, shares_by_change in _shares_ranked_above(rows).items():
        if not verdict:  # the row that ranks a changed meaning first least often
            changed, shares = next(iter(shares_by_change.items()))
            chart = Bars(f"Ranks {changed} above {kept}, %", list(shares.items()), 0)
            blocks.append(keep_best_bars(chart, better="lower"))
            best = min(shares, key=lambda row: shares[row].value or 0.0)
            lowest = "" if len(shares) == 1 else f", the lowest of {len(shares)} rows"
            share = with_interval(shares[best], 0)
            verdict = f"{title}: {best.label} ranks {changed} above {kept} for {share} % of the originals{lowest}."
        columns = [Column(name, 0, "lower") for name in shares_by_change]
        numbers_by_row = {row: [shares.get(row, Number()) for shares in shares_by_change.values()] for row in rows}
        caption = f"How often each change is more similar to the original than {kept}, with 95 % intervals."
        blocks.append(row_table(f"Ranked above {kept}, % of the originals", columns, numbers_by_row, caption))
    return Section(title, blocks, verdict=verdict)


def _shares_ranked_above(rows: Rows) -> dict[str, dict[str, dict[Row, Number]]]:
    """Return how often a changed meaning is ranked above the same meaning, in %: kept -> changed -> row -> share."""
    shares: dict[str, dict[str, dict[Row, Number]]] = {}
    for row, result in rows.items():
        for c in comparisons(result) if "comparisons" in result.provenance else ():  # a user's own result has none
            number = Number(100 * c.share, 100 * c.low, 100 * c.high)
            shares.setdefault(c.below, {}).setdefault(c.above, {})[row] = number
    return shares


# -- geometry, and other results --------------------------------------------------------------------------------------


def geometry_section(task: str, rows: Rows) -> Section:
    """Return a table of the measures, and a plot of alignment against uniformity."""
    scores_by_row = {row: flattened(result.metrics) for row, result in rows.items()}
    measures = list(dict.fromkeys(name for scores in scores_by_row.values() for name in scores))
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
    columns = [Column(name, 3, better.get(name, "")) for name in measures]
    numbers = {row: [Number(scores.get(name)) for name in measures] for row, scores in scores_by_row.items()}
    points = []
    for row, scores in scores_by_row.items():
        x, y = finite(scores.get("uniformity")), finite(scores.get("alignment"))
        if x is not None and y is not None:
            points.append((row, x, y))
    blocks: list[Block] = [row_table("Measures", columns, numbers, caption)]
    if points:
        caption = "Lower is better on both axes: the best is at the bottom left."
        blocks.insert(0, Points("Alignment and uniformity", "uniformity", "alignment", points, 3, caption))
    return Section(f"Geometry: {task}", blocks)


def plain_section(task: str, rows: Rows) -> Section:
    """Return one table of scores, without figures."""
    records: list[Record] = [
        {ROW: row.label, "n": result.n, **flattened(result.metrics)} for row, result in rows.items()
    ]
    return Section(task, [record_table("Scores", records, folded=False)])


# -- leaderboards -----------------------------------------------------------------------------------------------------


def board_section(board: Leaderboard, names: Names) -> Section:
    """Return the section of a search: its first recipes, layer curves, heads, and the scores on test data."""
    provenance, criterion = board.provenance, board.criterion
    model = names.models[str(provenance.get("model") or NO_MODEL)]
    measure = f"{criterion.capitalize()} ×100" if criterion in METRICS else criterion
    decimals = decimals_for(trial.scores[criterion] for trial in board.trials)
    blocks = [*_trial_blocks(board, decimals), *_layer_curves(board, measure, decimals)]
    blocks += _head_heat(board, measure, decimals)
    blocks.sort(key=lambda block: isinstance(block, Table))  # figures first
    for check in board.checks:  # scores on data that was not used to choose
        columns = [Column("recipe", None), Column("Spearman ×100", 2, "higher")]
        rows = [(recipe, Number(*scores)) for recipe, scores in check.scores.items()]
        blocks.append(Table(f"On {check.summary().rstrip('.')}", columns, rows))
    compared = [*board.comparisons, *(c for check in board.checks for c in check.comparisons)]
    sentences = [comparison.summary() for comparison in compared]
    sentences += [f"On pairs held out of the choice: {comparison.summary()}" for comparison in board.held_out]
    space = f" ({provenance['space']})" if "space" in provenance else ""
    title = f"Search on {provenance.get('data', 'pairs')}{space}: {model}"
    first = board.verdict or next(iter(sentences), "")
    caption = f"{len(board.trials)} recipes on {model}, ranked by {measure}."
    notes = list(dict.fromkeys([*sentences, *board.notes]))
    return Section(title, blocks, caption, notes, f"{title}: {first}" if first else "")


def _trial_blocks(board: Leaderboard, decimals: int) -> Iterator[Block]:
    """Yield a chart and a table of the first trials and the baselines."""
    criteria = list(board.trials[0].scores) if board.trials else []
    bars: list[tuple[Row, Number]] = []
    lines: list[Line] = []
    for rank, trial in enumerate(board.trials, start=1):
        is_baseline = str(trial.recipe) in board.baselines
        label = f"{trial.recipe}{' (baseline)' if is_baseline else ''}"
        number = Number(trial.scores[board.criterion], *(trial.interval or ()))
        if rank <= MAX_TRIAL_BARS or is_baseline:
            series = BASELINE if is_baseline else FIRST if rank == 1 else PLAIN
            bars.append((Row(f"{rank}. {label}", series), number))
        if rank <= MAX_TRIALS or is_baseline:
            numbers = {name: Number(trial.scores.get(name)) for name in criteria} | {board.criterion: number}
            lines.append((label, Number(rank), *numbers.values()))
    if any(finite(trial.scores[board.criterion]) is not None for trial in board.trials):
        caption = "Lines: 95 % intervals, bootstrap over pairs." if any(n.interval for _, n in bars) else ""
        yield Bars("First recipes and baselines", bars, decimals, caption)
    columns = [Column("recipe", None), Column("rank", 0)]
    columns += [Column(name, decimals_for(trial.scores.get(name) for trial in board.trials)) for name in criteria]
    excerpt = f"The first {MAX_TRIALS} of {len(board.trials)} recipes, and the baselines."
    caption = excerpt if len(lines) < len(board.trials) else ""
    yield Table("Recipes", columns, lines, caption, folded=len(lines) > MAX_TRIAL_BARS)


def _layer_curves(board: Leaderboard, measure: str, decimals: int) -> Iterator[Curves]:
    """Yield the scores of plain means by layer."""
    scores = {CURVES.get(kind, kind): curve for kind, curve in board.layers().items()}
    if scores:
        layers = sorted({layer for curve in scores.values() for layer in curve}, key=_depth)
        series = [(kind, [finite(curve.get(layer)) for layer in layers]) for kind, curve in scores.items()]
        begin = int("static" in layers)
        yield Curves("Mean of all tokens, by layer", "layer", measure, layers, series, begin, decimals)


def _depth(source: str) -> tuple[int, int]:
    """Return a sort key for static, 0, 1 … L-1, L."""
    if source.isdigit():
        return 1, int(source)
    from_top = re.fullmatch(r"L(?:-(\d+))?", source)
    return (2, -int(from_top.group(1) or 0)) if from_top else (0, 0)


def _head_heat(board: Leaderboard, measure: str, decimals: int) -> Iterator[Heat]:
    """Yield a heat map of Ditto by layer and head, if at least two heads have a score."""
    mix, grid = board.heads() or ("", None)
    if grid is None:
        return
    rows = [(str(layer), list(map(finite, scores))) for layer, scores in enumerate(grid.tolist(), start=1)]
    if sum(score is not None for _, scores in rows for score in scores) < 2:
        return
    columns = [str(head) for head in range(1, grid.shape[1] + 1)]
    caption = f"{measure}; rows are layers, columns are attention heads."
    groups = [("head", len(columns))]
    yield Heat(f"Ditto by head, layers={mix}", "layer", columns, rows, groups, 1 if decimals == 2 else 3, caption)
