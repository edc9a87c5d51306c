"""Sections of results without one main score: minimal pairs, geometry, and whatever else a result holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from essent.report.labels import Names
from essent.report.parts import Block, Column, Heat, Line, Number, Point, Points, Section, Table, finite
from essent.report.rows import ROW, Row, bar_chart, by_row, flattened, label_of, long_table, notes_of
from essent.tasks import CHANGED, KEPT, Result, comparisons

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
    blocks = (*([heat] if subsets else []), table, *_ranked(rows, names))
    return Section(title, blocks, notes=notes_of(group))


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
    table = Table(
        "Measures",
        (Column(ROW, None), *(Column(name, 3, GEOMETRY.get(name, "")) for name in measures)),
        tuple((label_of(row, names), *(Number(scores.get(name)) for name in measures)) for row, scores in flat.items()),
        "Lower is better for alignment, uniformity and the average cosine (anisotropy), higher for IsoScore.",
    )
    points = []
    for row, scores in flat.items():
        x, y = finite(scores.get("uniformity")), finite(scores.get("alignment"))
        if x is not None and y is not None:
            points.append(Point(label_of(row, names), x, y, names.series(row[0])))
    about = "Lower is better on both: best is at the bottom left."
    plot = Points("Alignment and uniformity", "uniformity", "alignment", tuple(points), 3, about)
    return Section(f"Geometry: {kind[1]}", (*([plot] if points else []), table), notes=notes_of(group))


def plain_section(kind: tuple[str, ...], group: Sequence[Result], names: Names) -> Section:
    """A section with one table of main scores and without figures."""
    rows = {row: next(iter(found.values())) for row, found in by_row(group).items()}
    lines = [(label_of(row, names), (), result.n, flattened(result.metrics)) for row, result in rows.items()]
    table = long_table("Scores", lines, ())
    return Section(kind[1], (Table(table.title, table.columns, table.rows),), notes=notes_of(group))
