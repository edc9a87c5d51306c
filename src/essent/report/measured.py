"""Sections of results without one main score: minimal pairs, geometry, and whatever else a result holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from essent.report.labels import Names
from essent.report.lead import signed
from essent.report.parts import Bars, Block, Column, Heat, Line, Number, Point, Points, Section, Table, finite
from essent.report.rows import ROW, Row, bar_chart, by_row, flattened, label_of, long_table, notes_of
from essent.tasks.heros import CHANGED, KEPT, comparisons
from essent.tasks.result import Result

BY_CONSTRUCTION = ("anisotropy", "isoscore")  # what centring and whitening set on the texts that they are fitted on
GEOMETRY = {"anisotropy": "lower", "isoscore": "higher", "alignment": "lower", "uniformity": "lower"}  # what is better


def heros_section(kind: tuple[str, ...], group: Sequence[Result], names: Names) -> Section:
    """Similarities as a heat map and with their intervals, and how often a changed meaning looks closer."""
    rows = {row: next(iter(found.values())) for row, found in by_row(group).items()}
    subsets = [s for s in (*KEPT, *CHANGED) if any(s in result.metrics["similarity"] for result in rows.values())]
    spans = (("meaning kept", KEPT), ("meaning changed", CHANGED))
    heat = Heat(
        "Similarity after one small change",
        "",
        tuple(subsets),
        tuple(
            (label_of(row, names), tuple(result.metrics["similarity"].get(subset) for subset in subsets))
            for row, result in rows.items()
        ),
        tuple((title, n) for title, members in spans if (n := sum(subset in members for subset in subsets))),
        about="1 is the same sentence, 0 any other one.",
    )
    columns = (Column(ROW, None), *(Column(subset) for subset in subsets), Column("baseline"))
    lines: list[Line] = []
    for row, result in rows.items():
        numbers = []
        for subset in subsets:
            scores = result.subsets.get(subset, {})
            value = result.metrics["similarity"].get(subset)
            numbers.append(Number(value, scores.get("low"), scores.get("high")))
        lines.append((label_of(row, names), *numbers, Number(result.metrics["baseline"].get("all"))))
    about = "With 95 % intervals; the baseline is the mean cosine of two different originals."
    table = Table("Similarities", columns, tuple(lines), about)
    title = "HEROS" if kind[1] == "heros" else f"Minimal pairs: {kind[1]}"
    ranked = _ranked(rows, names)
    blocks = (*([heat] if subsets else []), table, *ranked)
    return Section(title, blocks, notes=notes_of(group), verdict=_verdict(title, ranked))


def _verdict(title: str, ranked: Sequence[Block]) -> tuple[str, ...]:
    """Which row mistakes a changed meaning least often, by the first comparison."""
    bars = next((block for block in ranked if isinstance(block, Bars)), None)
    known = [(row.number.known, row) for row in bars.rows if row.number.known is not None] if bars else []
    if bars is None or not known:
        return ()
    _, best = min(known, key=lambda pair: pair[0])
    what = bars.title.removesuffix(", %").replace("Ranks ", "ranks ", 1)
    least = "" if len(known) == 1 else f", the lowest of {len(known)} rows"
    return (f"{title}: {best.label} {what} for {signed(best.number, 0)} % of the originals{least}.",)


def _ranked(rows: Mapping[Row, Result], names: Names) -> list[Block]:
    """How often a change of the meaning is ranked above one that keeps it: a table for each of those."""
    found: dict[str, dict[str, dict[Row, Number]]] = {}
    for row, result in rows.items():
        try:
            compared = comparisons(result)
        except (KeyError, TypeError):  # a result made by hand
            continue
        for c in compared:
            number = Number(100 * c.share, 100 * c.low, 100 * c.high)
            found.setdefault(c.below, {}).setdefault(c.above, {})[row] = number
    blocks: list[Block] = []
    for below, changes in found.items():
        first = next(iter(changes))
        if not blocks:
            blocks.append(bar_chart(f"Ranks {first} above {below}, %", changes[first], names, 0, better="lower"))
        table = Table(
            f"Ranked above {below}, % of the originals",
            (Column(ROW, None), *(Column(name, 0, "lower") for name in changes)),
            tuple((label_of(row, names), *(line.get(row, Number()) for line in changes.values())) for row in rows),
            f"How often each change looks closer to the original than {below} does, with 95 % intervals.",
        )
        blocks.append(table)
    return blocks


def geometry_section(kind: tuple[str, ...], group: Sequence[Result], names: Names) -> Section:
    """The measures as a table, alignment against uniformity as a plot."""
    rows = {row: next(iter(found.values())) for row, found in by_row(group).items()}
    flat = {row: flattened(result.metrics) for row, result in rows.items()}
    measures = list(dict.fromkeys(name for scores in flat.values() for name in scores))
    fitted = [label_of(row, names) for row, result in rows.items() if _is_fitted(result)]
    better = {name: side for name, side in GEOMETRY.items() if not fitted or name not in BY_CONSTRUCTION}
    about = "Lower is better for alignment, uniformity and the average cosine (anisotropy), higher for IsoScore."
    if fitted:
        about += (
            f" The shaping of {', '.join(fitted)} was fitted on these texts, which brings anisotropy to 0 or IsoScore "
            "to 1 whatever the vectors mean: no row is marked as the best by them."
        )
    table = Table(
        "Measures",
        (Column(ROW, None), *(Column(name, 3, better.get(name, "")) for name in measures)),
        tuple((label_of(row, names), *(Number(scores.get(name)) for name in measures)) for row, scores in flat.items()),
        about,
    )
    points = []
    for row, scores in flat.items():
        x, y = finite(scores.get("uniformity")), finite(scores.get("alignment"))
        if x is not None and y is not None:
            points.append(Point(label_of(row, names), x, y, names.series(row[0])))
    about = "Lower is better on both: best is at the bottom left."
    plot = Points("Alignment and uniformity", "uniformity", "alignment", tuple(points), 3, about)
    return Section(f"Geometry: {kind[1]}", (*([plot] if points else []), table), notes=notes_of(group))


def _is_fitted(result: Result) -> bool:
    """Whether a recipe's shaping has learned from the very texts that are measured."""
    return result.provenance.get("fitted_on") == "task" and "|" in str(result.provenance.get("recipe"))


def plain_section(kind: tuple[str, ...], group: Sequence[Result], names: Names) -> Section:
    """A section with one table of main scores and without figures."""
    rows = {row: next(iter(found.values())) for row, found in by_row(group).items()}
    lines = [(label_of(row, names), (), result.n, flattened(result.metrics)) for row, result in rows.items()]
    table = long_table("Scores", lines, ())
    return Section(kind[1], (Table(table.title, table.columns, table.rows),), notes=notes_of(group))
