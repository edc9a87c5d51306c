"""Compare a static encoder with its teacher on held-out texts, without labels."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from essent.encoder.stock_modules import rounded
from essent.static.sums import MOST, SEED
from essent.static.table import PAIRS, Choice, Material, agreement, rank_agreement, reduce_table
from essent.tasks.base import unit_rows

FAR_WORSE = 65.0  # below this agreement, see docs/evidence/static.md


class TeacherScore(NamedTuple):
    """Agreement of a static encoder with its teacher.

    Attributes:
        spearman: Spearman ×100 between the cosines of random pairs of texts, by the teacher and by the table.
        texts: number of texts in the pairs.
        held_out: whether the compared table is made of the other texts. Otherwise it is made of these texts as well,
            and the agreement is too high.
    """

    spearman: float
    texts: int
    held_out: bool

    @property
    def is_low(self) -> bool:
        """Whether the static encoder is far worse than its teacher; unknown (NaN) is not low."""
        return self.spearman < FAR_WORSE

    @property
    def warning(self) -> str:
        """The consequence of a low agreement."""
        return (
            f"The static encoder is far worse than its teacher: their similarities agree to only {self.spearman:.1f} "
            f"(Spearman ×100, good tables have 72 or more). Distil on more texts like those to be encoded, or "
            "export a graph of the model instead (essent save --format openvino)."
        )

    def __str__(self) -> str:
        if math.isnan(self.spearman):
            return "Agreement with the teacher: not measured, all similarities are equal"
        texts = (
            f"{self.texts:,} held-out texts"
            if self.held_out
            else f"{self.texts:,} texts of the table, so it is too high"
        )
        return f"Agreement with the teacher: {self.spearman:.1f} (Spearman ×100 of the similarities of {texts})"


def reduced_table(
    material: Material, choice: Choice, dimensions: int | None, dtype: str, *, progress: bool = False
) -> tuple[np.ndarray, dict[str, float]]:
    """Compute the table (V,K) of a choice with fewer dimensions and bits, and the effects of both."""
    table = material.table(choice, progress=progress)
    losses: dict[str, float] = {}
    if dimensions is not None:
        table, losses["variance"], losses["dimensions"] = reduce_table(material.token_counts, table, dimensions)
    if dtype != "float32":
        exact, table = table, rounded(table, dtype)
        losses["bits"] = agreement(material.token_counts, exact, table)
    return table, losses


def score_against_teacher(
    material: Material, table: np.ndarray, choice: Choice, dimensions: int | None, dtype: str
) -> TeacherScore:
    """Score a table against its teacher on texts that it is not made of.

    The held-out texts remain in the table, which would be worse without them. A second table is made of the other
    texts, with the same settings, and scored; the table itself is at least as good. If there are too few texts to hold
    some out, the table itself is scored on the texts that it is made of.

    Args:
        table: the table (V,K) of all texts.
    """
    assert material.vectors is not None  # noqa: S101
    first_rows = {text: row for row, text in reversed([*enumerate(material.texts)])}  # of each distinct text
    rows = np.array(sorted(first_rows.values()))
    if material.held_out is None:
        rows = np.sort(np.random.default_rng(SEED).permutation(rows)[:MOST])
    else:
        rows = rows[material.held_out.is_held_out[rows]]
        table, _ = reduced_table(material.without_held_out(choice.layers), choice, dimensions, dtype)
    first, second = np.random.default_rng(SEED).integers(0, len(rows), (2, PAIRS))
    distinct = first != second
    cosines = [
        np.einsum("pd,pd->p", units[first[distinct]], units[second[distinct]])
        for units in map(unit_rows, (material.vectors[rows], material.token_counts[rows] @ table))
    ]
    spearman = rank_agreement(*cosines) if distinct.any() else math.nan
    return TeacherScore(spearman, len(rows), material.held_out is not None)


def share_of_new(count: np.ndarray) -> float:
    """Estimate the share of tokens of further texts that a corpus with these counts (V,) lacks.

    The estimate is the number of tokens that occur once, divided by the number of all occurrences (Good 1953). It is
    accurate for further texts of the same kind in random order, and too low for texts of another kind.
    """
    return float((count == 1).sum() / count.sum()) if count.any() else math.nan
