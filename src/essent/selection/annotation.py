"""A few pairs for the user to annotate: which pairs, their file, and the task that they make.

candidate pairs ─ cosines of every recipe (one pass per template) ─ ranks, where they differ ─ pairs to annotate

The candidates are cut into strata of similarity, so that the annotated pairs span the whole scale: a correlation on the
most disputed pairs alone ranks recipes wrongly. Of each stratum the pair on which the recipes disagree most is taken,
and one at random. `benchmarks/ask.py` measured it.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from essent._core.atomic import write_text
from essent._core.registry import did_you_mean
from essent._core.texts import check_texts
from essent.errors import DataError, InputError
from essent.selection.label_free import TEACHER, unit_ranks, usable
from essent.tasks.data import located_rows
from essent.tasks.examples import Pair, pairs_from_rows
from essent.tasks.pairs import PairTask

PRIOR = 30  # labels that the score by TEACHER counts for, beside those of the user; measured by benchmarks/ask.py
COLUMNS = ("sentence1", "sentence2", "score")
SUFFIXES = (".csv", ".jsonl")
PER_STRATUM = 2  # pairs: one that the recipes disagree on, the others at random

ScoredPair = tuple[str, str, float | None]  # None: not annotated yet


@dataclass(frozen=True)
class AnnotatedPairs(PairTask):
    """Annotated pairs, and the unlabelled data that they are from, on which recipes learn and `teacher` scores.

    `search` ranks recipes by both: Spearman on the N annotated pairs counts N times, the score by `teacher` PRIOR
    times.

    Attributes:
        all_texts: what recipes learn from.
        all_pairs: where the data were pairs, all of them.
    """

    all_texts: tuple[str, ...] = ()
    all_pairs: tuple[tuple[str, str], ...] = ()

    def texts(self) -> list[str]:
        """All texts of the data, then those annotated that are not among them."""
        return list(self._texts)

    def compared(self) -> np.ndarray:
        """Each annotated pair's positions in `texts()`."""
        position = {text: number for number, text in reversed(list(enumerate(self._texts)))}
        return np.array([[position[pair.sentence1], position[pair.sentence2]] for pair in self.pairs], np.int64)

    @cached_property
    def _texts(self) -> tuple[str, ...]:
        known = set(self.all_texts)
        own = dict.fromkeys(text for pair in self.pairs for text in pair[:2])
        return (*self.all_texts, *(text for text in own if text not in known))


@dataclass(frozen=True)
class Annotation:
    """Pairs to annotate, in random order: whoever stops early has annotated a sample of the whole.

    Attributes:
        pairs: two texts each.
        reasons: why each was chosen. They are not in the file, as they would influence who annotates.
        source: the texts, or the pairs, that they were chosen from.
    """

    pairs: tuple[tuple[str, str], ...]
    reasons: tuple[str, ...]
    source: tuple[Any, ...] = field(repr=False)

    def write(self, path: str | Path) -> None:
        """Write the pairs as .csv or .jsonl, to be filled in with a score each.

        Raises:
            DataError: another suffix, or a path that cannot be written to.
        """
        write_pairs(path, [(*pair, None) for pair in self.pairs])

    def with_scores(self, scores: str | Path | Sequence[float | None]) -> AnnotatedPairs:
        """The pairs with the scores of a filled-in file, or with one score each (None: not annotated)."""
        if isinstance(scores, (str, Path)):
            return read_annotated(scores, self.source)
        scored = [(*pair, score) for pair, score in zip(self.pairs, scores, strict=True)]
        return _annotated("judged", scored, self.source)


def write_pairs(path: str | Path, pairs: Sequence[ScoredPair]) -> None:
    """Write pairs with the scores that they have, whole or not at all.

    Raises:
        DataError: a suffix other than .csv and .jsonl, or a path that cannot be written to.
    """
    suffix = Path(path).suffix.lower()
    if suffix not in SUFFIXES:
        hint = did_you_mean(suffix, list(SUFFIXES))
        raise DataError(f"{path}: pairs to judge are written as .csv or .jsonl. {hint}")
    if suffix == ".jsonl":
        lines = (json.dumps(dict(zip(COLUMNS, pair, strict=True)), ensure_ascii=False) + "\n" for pair in pairs)
        write_text(path, "".join(lines))
        return
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows([first, second, "" if score is None else f"{score:g}"] for first, second, score in pairs)
    write_text(path, file.getvalue())


def read_pairs(path: str | Path) -> list[ScoredPair]:
    """Pairs with the scores that they have; an empty score, or null, is a pair that is not annotated yet.

    Raises:
        DataError: no such file, a missing column, or a score that is not a finite number; file and line are named.
    """
    pairs: list[ScoredPair] = []
    for row in located_rows(path):
        column = row.required("score", ["score"])
        empty = not str("" if row.values[column] is None else row.values[column]).strip()
        pair = pairs_from_rows([row._replace(values={**row.values, column: 0.0}) if empty else row])[0]
        pairs.append((pair.sentence1, pair.sentence2, None if empty else pair.score))
    return pairs


def read_annotated(path: str | Path, data: Sequence[Any]) -> AnnotatedPairs:
    """The annotated pairs of a file, to search on; those without a score are left out, and a note counts them.

    Args:
        data: the texts, or the pairs, without labels that the pairs were chosen from.

    Raises:
        DataError: no pair has a score, or as `read_pairs`.
    """
    return _annotated(str(path), read_pairs(path), data)


def _annotated(name: str, pairs: Sequence[ScoredPair], data: Sequence[Any]) -> AnnotatedPairs:
    known = [Pair(first, second, float(score)) for first, second, score in pairs if score is not None]
    if not known:
        raise DataError(
            f"{name}: none of the {len(pairs)} pairs has a score. Fill in the column 'score', for example "
            "0 (unrelated) to 5 (the same meaning)."
        )
    if not all(math.isfinite(pair.score) for pair in known):
        raise DataError(f"{name}: every score must be a finite number.")
    notes = [f"Chosen by {len(known)} judged pairs and by {TEACHER}, which counts as {PRIOR} more."]
    if len(known) < len(pairs):
        notes.append(f"{name}: {len(pairs) - len(known)} of {len(pairs)} pairs have no score and are left out.")
    source_pairs = [tuple(row) for row in data if not isinstance(row, str)]
    texts = [pair[side] for side in (0, 1) for pair in source_pairs] if source_pairs else list(data)
    source_texts = set(texts)
    if unsearched := sum(not source_texts.issuperset(pair[:2]) for pair in known):
        notes.append(
            f"{name}: {unsearched} of the {len(known)} judged pairs have a text that is not in the data searched."
        )
    return AnnotatedPairs(
        Path(name).stem,
        tuple(known),
        tuple(check_texts(texts)),
        tuple(source_pairs),
        source={"source": name, "judged": len(known)},
        notes=tuple(notes),
    )


def choose_pairs(cosines: np.ndarray, count: int, rng: np.random.Generator) -> tuple[np.ndarray, list[str]]:
    """Indices of the pairs to annotate, in random order, and the reason for each.

    Args:
        cosines: (R,P) of the recipes; those that are constant have no say.
    """
    known = usable(cosines)
    ranks = unit_ranks(cosines[known]) if known.any() else np.zeros((1, cosines.shape[1]))
    spread = ranks.std(axis=0)
    strata = np.array_split(np.argsort(ranks.mean(axis=0), kind="stable"), max(1, count // PER_STRATUM))
    shares = [len(share) for share in np.array_split(np.arange(count), len(strata))]
    indices, reasons = [], []
    for stratum, share in zip(strata, shares, strict=True):
        disputed = stratum[np.argmax(spread[stratum])]
        indices += [disputed, *rng.choice(stratum[stratum != disputed], share - 1, replace=False)]
        reasons += ["the recipes disagree on it", *["drawn at random"] * (share - 1)]
    order = rng.permutation(count)
    return np.array(indices)[order], [reasons[index] for index in order]


def distinct_pairs(pairs: Sequence[tuple[str, str]], count: int) -> np.ndarray:
    """Indices of the pairs of two different texts, each once in either order.

    Raises:
        InputError: fewer than `count`.
    """
    first: dict[frozenset[str], int] = {}
    for index, pair in enumerate(pairs):
        if pair[0].strip() and pair[1].strip() and pair[0] != pair[1]:
            first.setdefault(frozenset(pair), index)
    if count > len(first):
        raise InputError(
            f"{count} pairs to judge were asked for, and there are {len(first)}. Give more texts, or --ask "
            f"{len(first)}."
        )
    return np.array(list(first.values()), np.int64)
