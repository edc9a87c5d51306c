"""Training examples: texts, pairs or triplets, read from files, checked, and identified by a digest."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from essent._core.texts import mend_surrogates
from essent.errors import DataError, InputError
from essent.tasks.data import Row, located_rows

# Accepted column names, ignoring case; the first one present is used. sent0, sent1 and hard_neg are the names in
# SimCSE's NLI file.
COLUMNS = {
    "anchor": ("anchor", "premise", "sent0", "sentence1", "query", "question"),
    "positive": ("positive", "entailment", "sent1", "sentence2", "answer"),
    "negative": ("negative", "contradiction", "hard_neg", "hard_negative"),
}


@dataclass(frozen=True)
class Examples:
    """Training examples of one width: 1 (texts), 2 (anchor, positive) or 3 (and a hard negative).

    Attributes:
        rows: the texts of each example, in the order of the data.
        notes: sentences about excluded rows.

    Example:
        >>> from essent.training import Examples
        >>> examples = Examples((("A man plays.", "Somebody plays."), ("Two dogs run.", "Animals are running.")))
        >>> len(examples), examples.width
        (2, 2)
        >>> examples.columns()["positive"]
        ['Somebody plays.', 'Animals are running.']
    """

    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def width(self) -> int:
        """The number of texts of an example: 1, 2 or 3."""
        return len(self.rows[0])

    def columns(self) -> dict[str, list[str]]:
        """The examples as columns, for a data set."""
        names = list(COLUMNS)[: self.width] if self.width > 1 else ["text"]
        return {name: [row[index] for row in self.rows] for index, name in enumerate(names)}

    def digest(self) -> str:
        """SHA-256 of the rows."""
        lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in self.rows)
        return hashlib.sha256(lines.encode("utf-8", "surrogatepass")).hexdigest()


def as_examples(data: Any) -> Examples:
    """Check training data and convert it to `Examples`.

    In a list of texts, blank and repeated ones are excluded (a text must not be its own negative). A list of pairs or
    triplets of texts is unchanged.

    Raises:
        InputError: another type of data, rows of different widths, a blank text in a pair, or fewer than two examples.
    """
    if isinstance(data, Examples):
        return data
    if isinstance(data, (str, bytes)) or not hasattr(data, "__iter__"):
        raise InputError(f"Expected a list of texts, pairs or triplets, got {type(data).__name__}: {str(data)[:60]!r}.")
    rows = [(row,) if isinstance(row, str) else row for row in data]
    width = len(rows[0]) if rows and isinstance(rows[0], (tuple, list)) else 0
    for index, row in enumerate(rows):
        is_texts = isinstance(row, (tuple, list)) and all(isinstance(text, str) for text in row)
        if not is_texts or not 1 <= len(row) == width <= 3 or (width > 1 and not all(text.strip() for text in row)):
            raise InputError(
                f"Example {index} is {str(row)[:60]!r} ({type(row).__name__}). All examples must be texts, or all "
                "pairs or all triplets of texts that are not blank."
            )
    examples = [tuple(map(mend_surrogates, row)) for row in rows]
    if width < 2:
        examples = list(dict.fromkeys(row for row in examples if row[0].strip()))
    if len(examples) < 2:
        raise InputError(
            f"Contrastive training needs at least two different {'texts' if width < 2 else 'pairs'}, got "
            f"{len(examples)}: the negatives of a text are the others of its batch."
        )
    omitted = len(rows) - len(examples)
    notes = (f"{omitted} of {len(rows)} texts excluded: blank or repeated.",) if omitted else ()
    return Examples(tuple(examples), notes)


def read_examples(path: str | Path) -> Examples:
    """Read pairs or triplets from a file with named columns (.jsonl, .json, .csv, .tsv, .parquet).

    Columns are `anchor`, `positive` and optionally `negative`, or another name in `COLUMNS`; other columns are
    ignored. With a column of negatives every row must have one.

    Raises:
        DataError: no such file, no such columns, a value that is blank or not a text; names file and line.

    Example:
        >>> from essent.training import read_examples
        >>> examples = read_examples("questions.jsonl")
        >>> examples.rows[0]
        ('How was the soup?', 'The soup of day 0 was not good.')
    """
    return as_examples([_read_row(row) for row in located_rows(path)])


def _read_row(row: Row) -> tuple[str, ...]:
    has_negative = row.column("negative", COLUMNS["negative"]) is not None
    texts = {role: row.text(role, names) for role, names in COLUMNS.items() if role != "negative" or has_negative}
    if blank := [role for role, text in texts.items() if not text.strip()]:
        raise DataError(f"{row.where}: {row.column(blank[0], COLUMNS[blank[0]])!r} is blank. Remove the row.")
    return tuple(texts.values())
