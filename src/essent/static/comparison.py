"""Compare a static encoder with its teacher on held-out texts, without labels."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from essent._core.texts import distinct_texts
from essent.encoder.stock_modules import rounded
from essent.static.sums import MOST, SEED
from essent.static.table import PAIRS, Choice, Material, agreement, rank_agreement, reduce_table
from essent.tasks.base import unit_rows


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
    rows = np.unique(distinct_texts(material.texts)[1], return_index=True)[1]  # the first of each distinct text
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
