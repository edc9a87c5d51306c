"""A few pairs for the user to annotate: their selection, their file, and the resulting task.

candidate pairs ─ cosines of every recipe (one pass per template) ─ ranks and their spread ─ pairs to annotate

The candidates are divided into strata of similarity, so that the annotated pairs span the whole scale: a correlation
on the most disputed pairs alone ranks recipes wrongly. Each stratum contributes the pair on which the recipes disagree
most, and one random pair. Measured by `benchmarks/ask.py`.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from essent._core.atomic import write_text
from essent._core.texts import check_texts
from essent.errors import DataError
from essent.selection.label_free import TEACHER, unit_ranks, usable
from essent.selection.topics import TOPICS
from essent.tasks.data import located_rows
from essent.tasks.examples import pairs_from_rows
from essent.tasks.pairs import PairTask

PRIOR = {TEACHER: 30, TOPICS: 60}  # labelled pairs that a score without labels counts as: benchmarks/ask.py, uses.py
COLUMNS = ("sentence1", "sentence2", "score")
PER_STRATUM = 2  # pairs: one on which the recipes disagree, one at random

ScoredPair = tuple[str, str, float | None]  # None: not annotated yet


@dataclass(frozen=True)
class AnnotatedPairs(PairTask):
    """Annotated pairs together with the unlabelled texts that they were selected from.

    Recipes learn from these texts, and the criterion without labels (`teacher`; `topics` for clusters and classes)
    scores on them. `search` ranks recipes by both: Spearman on the N annotated pairs has weight N, the criterion PRIOR.

    Attributes:
        all_texts: the texts that recipes learn from.

    Example:
        >>> from pathlib import Path
        >>> from essent.selection import read_annotated
        >>> texts = Path("texts.txt").read_text(encoding="utf-8").splitlines()
        >>> annotated = read_annotated("pairs.jsonl", texts)
        >>> annotated.units, len(annotated.all_texts)
        (120, 80)
    """

    all_texts: tuple[str, ...] = ()

    def texts(self) -> list[str]:
        """Return all texts of the data, then the annotated texts that are not among them."""
        return list(self._texts)

    def compared(self) -> np.ndarray:
        """Return the positions in `texts()` of each annotated pair, (E,2)."""
        position = {text: number for number, text in reversed(list(enumerate(self._texts)))}
        return np.array([[position[text] for text in pair[:2]] for pair in self.pairs], np.int64)

    @cached_property
    def _texts(self) -> tuple[str, ...]:
        known = set(self.all_texts)
        new = dict.fromkeys(text for pair in self.pairs for text in pair[:2] if text not in known)
        return (*self.all_texts, *new)


def write_pairs(path: str | Path, pairs: Sequence[ScoredPair]) -> None:
    """Write pairs with their scores to a .csv file, the whole file or nothing.

    Raises:
        DataError: a path that cannot be written.
    """
    cells = ((*texts, "" if score is None else f"{score:g}") for *texts, score in pairs)
    file = io.StringIO()
    csv.writer(file).writerows([COLUMNS, *cells])
    write_text(path, file.getvalue())


def read_pairs(path: str | Path) -> list[ScoredPair]:
    """Read pairs with their scores; a pair with an empty or null score is not annotated yet.

    Raises:
        DataError: no such file, a missing column, or a score that is not a finite number; names the file and line.
    """
    pairs: list[ScoredPair] = []
    for row in located_rows(path):
        column = row.required("score", ["score"])
        score = row.values[column]
        is_empty = score is None or not str(score).strip()
        (pair,) = pairs_from_rows([row._replace(values={**row.values, column: 0.0}) if is_empty else row])
        pairs.append((*pair[:2], None if is_empty else pair.score))
    return pairs


def read_annotated(path: str | Path, texts: Sequence[str]) -> AnnotatedPairs:
    """Read annotated pairs from a file, as data for `search`; a note counts pairs without a score.

    Args:
        path: a file with the columns sentence1, sentence2 and score.
        texts: the unlabelled texts that the annotated pairs were selected from.

    Raises:
        DataError: no such file, a missing column, fewer than two different scores, or one that is not a finite number.

    Example:
        >>> from pathlib import Path
        >>> from essent.selection import read_annotated
        >>> texts = Path("texts.txt").read_text(encoding="utf-8").splitlines()
        >>> read_annotated("pairs.jsonl", texts).units
        120
    """
    pairs = read_pairs(path)
    scored: Any = [pair for pair in pairs if pair[2] is not None]
    if not scored:
        raise DataError(
            f"{path}: none of the {len(pairs)} pairs has a score. Fill in the column 'score', for example from "
            "0 (unrelated) to 5 (same meaning); for clusters and classes, 1 (the same group) or 0."
        )
    if len({score for *_, score in scored}) < 2:
        raise DataError(f"{path}: all scores are {scored[0][2]:g}. At least two different scores are needed.")
    unscored, count = len(pairs) - len(scored), len(scored)
    notes = [f"{path}: {unscored} of {len(pairs)} pairs have no score and are excluded."] if unscored else []
    return AnnotatedPairs(
        Path(path).stem,
        tuple(scored),
        tuple(check_texts(texts)),
        source={"source": str(path), "judged": count},
        notes=tuple(notes),
    )


def choose_pairs(cosines: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """Select the pairs to annotate; return their indices in random order, so that any first part is a sample.

    Args:
        cosines: (R,P), by recipe; recipes with constant cosines are ignored.
    """
    defined = usable(cosines)
    ranks = unit_ranks(cosines[defined]) if defined.any() else np.zeros((1, cosines.shape[1]))
    spread = ranks.std(axis=0)
    strata = np.array_split(np.argsort(ranks.mean(axis=0), kind="stable"), max(1, count // PER_STRATUM))
    indices: list[int] = []
    for stratum, share in zip(strata, np.array_split(np.arange(count), len(strata)), strict=True):
        disputed = stratum[np.argmax(spread[stratum])]
        indices += [disputed, *rng.choice(stratum[stratum != disputed], len(share) - 1, replace=False)]
    return rng.permutation(indices)
