"""Arrangement of results and leaderboards as a report: its sections, and its verdict about the highest row."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from essent.errors import InputError
from essent.report.parts import (
    NO_MODEL,
    Bars,
    Block,
    Curves,
    Heat,
    Names,
    Number,
    Record,
    Report,
    Row,
    Section,
    Table,
    decimals_for,
    finite,
    key_of,
    names_of,
    record_table,
    short_paths,
    with_interval,
)
from essent.tasks.comparison import units_of
from essent.tasks.heros import CHANGED, KEPT, comparisons
from essent.tasks.result import AVERAGE, SCORE_NAMES, Result, spelled

if TYPE_CHECKING:
    from essent.selection.leaderboard import Leaderboard

ROW = "model and recipe"
MAX_TRIALS, MAX_TRIAL_BARS = 50, 10
CURVES = {"alone": "one layer", "with 0": "mean with layer 0"}
PLAIN, FIRST, BASELINE = range(3)  # series of trials' bars
Rows = Mapping[Row, Mapping[str, Result]]  # by row and task


def gather(
    results: Sequence[Result],
    searches: Sequence[Leaderboard] = (),
    title: str = "Sentence embeddings",
    paired: Sequence[str] = (),
) -> Report:
    """Arrange results and leaderboards as a report.

    Args:
        paired: sentences about paired differences, for the top.

    Raises:
        InputError: nothing to report, or two different results of one model, recipe and task.
    """
    if not results and not searches:
        raise InputError("A report needs at least one result or leaderboard.")
    names = names_of(
        (key_of(result.provenance) for result in results),
        (str(board.provenance.get("model") or NO_MODEL) for board in searches),
    )
    sections = [*_result_sections(results, names), *(_board_section(board, names) for board in searches)]
    if results:
        sections.append(_provenance_section(results, names))
    return Report(title, sections, verdict=[*paired, *(section.verdict for section in sections if section.verdict)])


def _result_sections(results: Iterable[Result], names: Names) -> Iterator[Section]:
    """Yield one section per main score, and one per task without a main score."""
    groups: dict[tuple[str, str], list[Result]] = {}
    for result in results:
        groups.setdefault(result.main or ("", result.task), []).append(result)
    for (metric, name), group in groups.items():
        rows: dict[Row, dict[str, Result]] = {}
        digests: dict[str, set[str]] = {}  # of the data, by task
        for result in group:
            row = names.rows[key_of(result.provenance)]
            earlier = rows.setdefault(row, {}).setdefault(result.task, result)
            if earlier.to_dict() != result.to_dict():
                raise InputError(f"{row.label} has two different results on {result.task}. Give only one.")
            digests.setdefault(result.task, set()).add(str(result.provenance.get("sha256")))
        notes = list(dict.fromkeys(f"{result.task}: {note}" for result in group for note in result.notes))
        verdict = ""
        if metric:
            title, blocks, verdict = _scored(metric, name, rows)
        elif "baseline" in group[0].metrics:
            title, blocks, verdict = _minimal_pairs(name, {row: by_task[name] for row, by_task in rows.items()})
        else:
            title, blocks = name, [_scores_table("Scores", rows, ())]
        if unlike := [task for task, distinct in digests.items() if len(distinct) > 1]:
            notes.append(f"Results on different data of the same name cannot be compared: {', '.join(unlike)}.")
            verdict = ""
        yield Section(title, blocks, notes=notes, verdict=verdict)


def _provenance_section(results: Sequence[Result], names: Names) -> Section:
    """Return the section of models and recipes, and data with their digests."""
    rows: list[Record] = [
        {"row": row.label, "model": names.models[model], "recipe": short_paths(recipe)}
        for (model, recipe), row in names.rows.items()
    ]
    data: list[Record] = []
    for result in results:
        source, digest = (str(result.provenance.get(name) or "") for name in ("source", "sha256"))
        data.append({"task": result.task, "n": result.n, "source": short_paths(source), "SHA-256": digest[:12]})
    return Section("Provenance", [record_table("Rows", rows, folded=True), record_table("Data", data, folded=True)])


def _scores_table(title: str, rows: Rows, excluded: Iterable[str], *, folded: bool = False) -> Table:
    """Return a table of all scores that are not excluded, one line per row and task."""
    records: list[Record] = []
    for row, results_by_task in rows.items():
        for task, result in results_by_task.items():
            scores = {
                metric if name == "all" else f"{metric}, {name}": score
                for metric, by_name in result.metrics.items()
                for name, score in by_name.items()
            }
            others = {name: score for name, score in scores.items() if name not in excluded}
            if others:
                records.append({ROW: row.label, "task": task, "n": result.n, **others})
    return record_table(title, records, folded=folded)


# -- results with one main score --------------------------------------------------------------------------------------


def _scored(metric: str, subset: str, rows: Rows) -> tuple[str, list[Block], str]:
    """Return title, blocks (a table of rows × tasks, a bar chart, other scores), and a verdict on the highest row."""
    columns = list(dict.fromkeys(task for line in rows.values() for task in line))
    names = (subset, "low", "high")
    lines = [[line[task].metrics[metric] if task in line else {} for task in columns] for line in rows.values()]
    scores = np.array([[[cell.get(name, math.nan) for name in names] for cell in line] for line in lines])  # (R,T,3)
    if len(columns) > 1:
        means = scores[..., :1].mean(axis=1, keepdims=True)  # (R,1,1), NaN if a score is missing
        columns, scores = [*columns, AVERAGE], np.concatenate([scores, means * [1, math.nan, math.nan]], axis=1)
    decimals = decimals_for(scores[..., 0].ravel().tolist())
    numbers = [[Number(*values) for values in line] for line in scores.tolist()]
    records: list[Record] = [
        {ROW: row.label, **dict(zip(columns, line, strict=True))} for row, line in zip(rows, numbers, strict=True)
    ]
    caption = "With 95 % intervals." if np.isfinite(scores).all(axis=-1).any() else ""
    blocks: list[Block] = [record_table("Scores", records, caption, decimals=decimals)]
    bars = [(row, line[-1]) for row, line in zip(rows, numbers, strict=True) if line[-1].value is not None]
    measure = f"{spelled(metric)} ×100" + ("" if subset == "all" else f", {subset}")
    verdict = ""
    if bars:
        blocks.append(Bars(columns[-1], bars, decimals))
        best, score = max(bars, key=lambda bar: bar[1].value or 0.0)
        data = f"on average over {len(columns) - 1} tasks" if len(columns) > 1 else f"on {columns[0]}"
        verdict = f"{measure}: {best.label} has {with_interval(score, decimals)} {data}"
        verdict += f", the highest of {len(bars)} rows" if len(bars) > 1 else ""
        if partial := len(rows) - len(bars):
            verdict += f" ({partial} more without a score on every task)"
        verdict += "."
    others = _scores_table("Other scores", rows, {metric, *(f"{metric}, {name}" for name in names)}, folded=True)
    return measure, [*blocks, *[others] * bool(others.rows)], verdict


# -- minimal pairs ----------------------------------------------------------------------------------------------------


def _minimal_pairs(task: str, rows: Mapping[Row, Result]) -> tuple[str, list[Block], str]:
    """Return title, blocks (similarities as heat map and table, how often a changed meaning is closer), and verdict."""
    subsets = [s for s in (*KEPT, *CHANGED) if any(s in result.metrics["similarity"] for result in rows.values())]
    title, verdict, blocks = "HEROS" if task == "heros" else f"Minimal pairs: {task}", "", list[Block]()
    if subsets:
        means = {row: [result.metrics["similarity"].get(name) for name in subsets] for row, result in rows.items()}
        heat = [(row.label, list(map(finite, values))) for row, values in means.items()]
        caption = "1 is the same sentence, 0 any other sentence."
        blocks.append(Heat("Similarity after one small change", "", subsets, heat, caption=caption))
    records: list[Record] = []
    for row, result in rows.items():
        measured = "similarity" if subsets else "cosine"
        numbers = {
            name: Number(scores.get(measured), scores.get("low"), scores.get("high"))
            for name, scores in result.subsets.items()
        }
        records.append({ROW: row.label, **numbers, "baseline": result.metrics["baseline"].get("all")})
    caption = "With 95 % intervals; the baseline is the mean cosine of two different originals."
    blocks.append(record_table("Similarities" if subsets else "Cosines", records, caption, decimals=2))
    for kept, shares_by_change in _shares_ranked_above(rows).items():
        if not verdict:  # the row that ranks a changed meaning first least often
            changed, shares = next(iter(shares_by_change.items()))
            blocks.append(Bars(f"Ranks {changed} above {kept}, %", list(shares.items()), 0, "Lower is better."))
            best = min(shares, key=lambda row: shares[row].value or 0.0)
            lowest = "" if len(shares) == 1 else f", the lowest of {len(shares)} rows"
            share = with_interval(shares[best], 0)
            verdict = f"{title}: {best.label} ranks {changed} above {kept} for {share} % of the originals{lowest}."
        records = [{ROW: row.label, **{name: s.get(row) for name, s in shares_by_change.items()}} for row in rows]
        caption = f"How often each change is more similar to the original than {kept}, with 95 % intervals."
        blocks.append(record_table(f"Ranked above {kept}, % of the originals", records, caption, decimals=0))
    return title, blocks, verdict


def _shares_ranked_above(rows: Mapping[Row, Result]) -> dict[str, dict[str, dict[Row, Number]]]:
    """Return how often a changed meaning is ranked above the same meaning, in %: kept -> changed -> row -> share."""
    shares: dict[str, dict[str, dict[Row, Number]]] = {}
    for row, result in rows.items():
        for c in comparisons(result):
            number = Number(100 * c.share, 100 * c.low, 100 * c.high)
            shares.setdefault(c.below, {}).setdefault(c.above, {})[row] = number
    return shares


# -- leaderboards -----------------------------------------------------------------------------------------------------


def _board_section(board: Leaderboard, names: Names) -> Section:
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
        blocks.append(record_table(title, records, decimals=2))
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
        yield Curves("Mean of all tokens, by layer", "layer", measure, layers, series, decimals)


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
    yield Heat(f"Ditto by head, layers={mix}", "layer", columns, rows, 1 if decimals == 2 else 3, caption)
