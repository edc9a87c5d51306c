"""Sections of leaderboards and of results without a main score, and the tables and charts that all sections share."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from essent.report.parts import (
    NO_MODEL,
    Bars,
    Block,
    Column,
    Curves,
    Heat,
    Names,
    Number,
    Row,
    Section,
    Table,
    decimals_for,
    finite,
    with_interval,
)
from essent.tasks.comparison import units_of
from essent.tasks.heros import CHANGED, KEPT, comparisons
from essent.tasks.result import SCORE_NAMES, Result, spelled

if TYPE_CHECKING:
    from essent.selection.leaderboard import Leaderboard

MAX_BARS = 16  # per chart
ROW = "model and recipe"
WHOLE_NUMBERS = ("n", "rank")  # columns
GEOMETRY = (
    "Lower is better for alignment, uniformity and the average cosine (anisotropy), higher for IsoScore. Centring sets "
    "the average cosine of the texts of its fit to 0, and whitening their IsoScore to 1, for any vectors: no row is "
    "marked as the best by these."
)
MAX_TRIALS, MAX_TRIAL_BARS = 50, 10
CURVES = {"alone": "one layer", "with 0": "mean with layer 0"}
PLAIN, FIRST, BASELINE = range(3)  # series of trials' bars
MEANINGS = {"meaning kept": KEPT, "meaning changed": CHANGED}
Rows = Mapping[Row, Result]
Record = Mapping[str, str | float | Number | None]  # a line of a table by column


def keep_best_bars(bars: Bars, better: str = "higher") -> Bars:
    """Return a chart with its rows in order or, if there are too many, only the best, sorted, missing values last."""
    captions = ["Lower is better."] if better == "lower" else []
    rows = bars.rows
    if len(rows) > MAX_BARS:
        sign = 1.0 if better == "lower" else -1.0
        rows = sorted(rows, key=lambda row: (row[1].value is None, sign * (row[1].value or 0.0)))[:MAX_BARS]
        captions.append(f"The best {MAX_BARS} of {len(bars.rows)}.")
    return replace(bars, rows=rows, caption=" ".join(captions))


def record_table(
    title: str,
    records: Iterable[Record],
    caption: str = "",
    *,
    decimals: int | None = None,
    better: Mapping[str, str] = MappingProxyType({}),
    folded: bool = False,
) -> Table:
    """Create a table of texts and numbers by column name; equal records count once.

    Args:
        decimals: of all numbers; None chooses them per column.
        better: direction of the columns whose best number is marked.
    """
    distinct = [dict(cells) for cells in dict.fromkeys(tuple(record.items()) for record in records)]
    columns: list[Column] = []
    cells_by_column: list[list[str | Number]] = []
    for name in dict.fromkeys(name for record in distinct for name in record):
        values = [record.get(name) for record in distinct]
        cells = [value if isinstance(value, (str, Number)) else Number(value) for value in values]
        numbers = [cell.value for cell in cells if isinstance(cell, Number)]
        own = 0 if name in WHOLE_NUMBERS else decimals_for(numbers) if decimals is None else decimals
        columns.append(Column(name, own if numbers else None, better.get(name, "")))
        cells_by_column.append(cells)
    return Table(title, columns, list(zip(*cells_by_column, strict=True)), caption, folded)


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
    similarities: dict[str, dict[str, Number]] = {}  # by label and subset
    for row, result in rows.items():
        means, ends = result.metrics["similarity"], {name: result.subsets.get(name, {}) for name in subsets}
        similarities[row.label] = {
            name: Number(means.get(name), ends[name].get("low"), ends[name].get("high")) for name in subsets
        }
    blocks: list[Block] = []
    records: list[Record]
    if subsets:
        heat = [(label, [number.value for number in line.values()]) for label, line in similarities.items()]
        spans = [(name, len({*members} & {*subsets})) for name, members in MEANINGS.items()]
        caption = "1 is the same sentence, 0 any other sentence."
        groups = [(name, span) for name, span in spans if span]
        blocks.append(Heat("Similarity after one small change", "", subsets, heat, groups, caption=caption))
        records = [
            {ROW: row.label, **similarities[row.label], "baseline": result.metrics["baseline"].get("all")}
            for row, result in rows.items()
        ]
        caption = "With 95 % intervals; the baseline is the mean cosine of two different originals."
        blocks.append(record_table("Similarities", records, caption, decimals=2))
    else:
        records = [
            {ROW: row.label, **{name: scores.get("cosine") for name, scores in result.subsets.items()}}
            for row, result in rows.items()
        ]
        blocks.append(record_table("Cosines", records, "Similarities are undefined.", decimals=2))
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
        better = dict.fromkeys(shares_by_change, "lower")
        records = [{ROW: row.label, **{name: s.get(row) for name, s in shares_by_change.items()}} for row in rows]
        caption = f"How often each change is more similar to the original than {kept}, with 95 % intervals."
        title_of_table = f"Ranked above {kept}, % of the originals"
        blocks.append(record_table(title_of_table, records, caption, decimals=0, better=better))
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
    """Return a table of the measures."""
    records: list[Record] = [{ROW: row.label, **flattened(result.metrics)} for row, result in rows.items()]
    better = {"alignment": "lower", "uniformity": "lower"}
    return Section(f"Geometry: {task}", [record_table("Measures", records, GEOMETRY, decimals=3, better=better)])


def plain_section(task: str, rows: Rows) -> Section:
    """Return one table of scores, without figures."""
    records: list[Record] = [
        {ROW: row.label, "n": result.n, **flattened(result.metrics)} for row, result in rows.items()
    ]
    return Section(task, [record_table("Scores", records)])


# -- leaderboards -----------------------------------------------------------------------------------------------------


def board_section(board: Leaderboard, names: Names) -> Section:
    """Return the section of a search: its first recipes, layer curves, heads, and the scores on test data."""
    provenance, criterion = board.provenance, board.criterion
    model = names.models[str(provenance.get("model") or NO_MODEL)]
    measure = f"{spelled(criterion)} ×100" if criterion in SCORE_NAMES else criterion
    units = units_of(board.judgements) or "pairs"
    decimals = decimals_for(trial.scores[criterion] for trial in board.trials)
    blocks = [*_trial_blocks(board, units, decimals), *_layer_curves(board, measure, decimals)]
    blocks += _head_heat(board, measure, decimals)
    blocks.sort(key=lambda block: isinstance(block, Table))  # figures first
    for check in board.checks:  # scores on data that was not used to choose
        name = f"{spelled(check.score)} ×100"
        records: list[Record] = [{"recipe": recipe, name: Number(*scores)} for recipe, scores in check.scores.items()]
        title = f"On {check.summary().rstrip('.')}"
        blocks.append(record_table(title, records, decimals=2, better={name: "higher"}))
    compared = [*board.comparisons, *(c for check in board.checks for c in check.comparisons)]
    sentences = [comparison.summary() for comparison in compared]
    sentences += [f"On {units} held out of the choice: {comparison.summary()}" for comparison in board.held_out]
    space = f" ({provenance['space']})" if "space" in provenance else ""
    title = f"Search on {provenance.get('data', 'pairs')}{space}: {model}"
    first = board.verdict or next(iter(sentences), "")
    caption = f"{len(board.trials)} recipes on {model}, ranked by {measure}."
    notes = list(dict.fromkeys([*sentences, *board.notes]))
    return Section(title, blocks, caption, notes, f"{title}: {first}" if first else "")


def _trial_blocks(board: Leaderboard, units: str, decimals: int) -> Iterator[Block]:
    """Yield a chart and a table of the first trials and the baselines."""
    bars: list[tuple[Row, Number]] = []
    records: list[Record] = []
    for rank, trial in enumerate(board.trials, start=1):
        is_baseline = str(trial.recipe) in board.baselines
        label = f"{trial.recipe}{' (baseline)' if is_baseline else ''}"
        number = Number(trial.scores[board.criterion], *(trial.interval or ()))
        if rank <= MAX_TRIAL_BARS or is_baseline:
            series = BASELINE if is_baseline else FIRST if rank == 1 else PLAIN
            bars.append((Row(f"{rank}. {label}", series), number))
        if rank <= MAX_TRIALS or is_baseline:
            records.append({"recipe": label, "rank": rank, **trial.scores, board.criterion: number})
    if any(finite(trial.scores[board.criterion]) is not None for trial in board.trials):
        caption = f"Lines: 95 % intervals, bootstrap over {units}." if any(n.interval for _, n in bars) else ""
        yield Bars("First recipes and baselines", bars, decimals, caption)
    excerpt = f"The first {MAX_TRIALS} of {len(board.trials)} recipes, and the baselines."
    caption = excerpt if len(records) < len(board.trials) else ""
    yield record_table("Recipes", records, caption, folded=len(records) > MAX_TRIAL_BARS)


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
