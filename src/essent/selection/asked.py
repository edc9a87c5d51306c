"""Pairs that a user was asked to judge: their file, and the task that they make with the data that they are from."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from essent._core.atomic import write_text
from essent._core.registry import did_you_mean
from essent._core.texts import check_texts
from essent.errors import DataError
from essent.tasks.data import Row, located_rows
from essent.tasks.examples import Pair, pairs_from_rows
from essent.tasks.pairs import PairTask

TEACHER = "teacher"
PRIOR = 30  # judgements that the score by TEACHER counts for, beside those of the user; measured by benchmarks/ask.py
COLUMNS = ("sentence1", "sentence2", "score")
WRITTEN = (".csv", ".jsonl")


@dataclass(frozen=True)
class Asked:
    """A pair, and its score where it has been judged."""

    sentence1: str
    sentence2: str
    score: float | None = None


@dataclass(frozen=True)
class AskedPairs(PairTask):
    """Judged pairs, and the unlabelled data that they are from, on which recipes learn and `teacher` scores.

    `search` ranks recipes by both: Spearman on the N judged pairs counts N times, the score by `teacher` PRIOR times.

    Attributes:
        all_texts: what recipes learn from.
        all_pairs: where the data were pairs, all of them.
    """

    all_texts: tuple[str, ...] = ()
    all_pairs: tuple[tuple[str, str], ...] = ()

    def texts(self) -> list[str]:
        """All texts of the data, then those judged that are not among them."""
        return list(self._places[1])

    def compared(self) -> np.ndarray:
        """Each judged pair's places in `texts()`."""
        place, _ = self._places
        return np.array([[place[pair.sentence1], place[pair.sentence2]] for pair in self.pairs], np.int64)

    @cached_property
    def _places(self) -> tuple[dict[str, int], tuple[str, ...]]:
        own = dict.fromkeys(text for pair in self.pairs for text in pair[:2])
        known = set(self.all_texts)
        listed = (*self.all_texts, *(text for text in own if text not in known))
        return {text: at for at, text in reversed(list(enumerate(listed)))}, listed


def write_pairs(path: str | Path, pairs: Sequence[Asked]) -> None:
    """Write pairs with the scores that they have, whole or not at all.

    Raises:
        DataError: a suffix other than .csv and .jsonl, or a place that cannot be written to.
    """
    suffix = Path(path).suffix.lower()
    if suffix not in WRITTEN:
        hint = did_you_mean(suffix, list(WRITTEN))
        raise DataError(f"{path}: pairs to judge are written as .csv or .jsonl. {hint}")
    rows = [[getattr(pair, name) for name in COLUMNS] for pair in pairs]
    if suffix == ".jsonl":
        lines = (json.dumps(dict(zip(COLUMNS, row, strict=True)), ensure_ascii=False) + "\n" for row in rows)
        write_text(path, "".join(lines))
        return
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows([first, second, "" if score is None else f"{score:g}"] for first, second, score in rows)
    write_text(path, file.getvalue())


def read_asked(path: str | Path) -> list[Asked]:
    """Pairs with the scores that they have; an empty score, or null, is a pair that is not judged yet.

    Raises:
        DataError: no such file, a missing column, or a score that is not a finite number; file and line are named.
    """
    found = []
    for row in located_rows(path):
        names = {name.lower(): name for name in row.values}
        column = names.get("score")
        if column is None:
            raise DataError(f"{row.where}: no column 'score'; it has {', '.join(map(repr, row.values))}.")
        value = row.values[column]
        empty = value is None or (isinstance(value, str) and not value.strip())
        (pair,) = pairs_from_rows([Row(row.where, {**row.values, column: 0.0 if empty else value})])
        found.append(Asked(pair.sentence1, pair.sentence2, None if empty else pair.score))
    return found


def read_judged(path: str | Path, data: Sequence[Any]) -> AskedPairs:
    """The judged pairs of a file, to search on; those without a score are left out, and a note counts them.

    Args:
        data: the texts, or the pairs, without labels that the pairs were chosen from.

    Raises:
        DataError: no pair has a score, or as `read_asked`.
    """
    return judged_pairs(str(path), read_asked(path), data)


def judged_pairs(name: str, pairs: Sequence[Asked], data: Sequence[Any]) -> AskedPairs:
    """The task of those pairs that have a score; see `read_judged`."""
    known = [Pair(one.sentence1, one.sentence2, float(one.score)) for one in pairs if one.score is not None]
    if not known:
        raise DataError(f"{name}: none of the {len(pairs)} pairs has a score. Fill in the column 'score', for example "
                        "0 (unrelated) to 5 (the same meaning).")  # fmt: skip
    if not all(math.isfinite(pair.score) for pair in known):
        raise DataError(f"{name}: every score must be a finite number.")
    notes = [f"Chosen by {len(known)} judged pairs and by {TEACHER}, which counts as {PRIOR} more."]
    if len(known) < len(pairs):
        notes.append(f"{name}: {len(pairs) - len(known)} of {len(pairs)} pairs have no score and are left out.")
    given = [tuple(item) for item in data if not isinstance(item, str)]
    texts = [pair[0] for pair in given] + [pair[1] for pair in given] if given else list(data)
    there = set(texts)
    if others := sum(not {pair.sentence1, pair.sentence2} <= there for pair in known):
        notes.append(f"{name}: {others} of the {len(known)} judged pairs have a text that is not in the data searched.")
    source = {"source": name, "judged": len(known)}
    return AskedPairs(Path(name).stem, tuple(known), source, tuple(notes), tuple(check_texts(texts)), tuple(given))
