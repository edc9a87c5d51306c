"""Conversion of rows into examples of each kind: the accepted columns and values."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from essent.errors import DataError, InputError
from essent.tasks.data import Row

PARTS = ("train", "dev", "test")
PART_NAMES = {"train": "train", "dev": "dev", "validation": "dev", "test": "test"}
TRUE, FALSE = ("1", "1.0", "true"), ("0", "0.0", "false")
SIDES = ("sentence1", "sentence2")
QUERY, DOCUMENT = ("anchor", "query"), ("positive", "document")
SCORE = ("score", "label")
TRIPLET = {"anchor": QUERY, "positive": DOCUMENT, "negative": ("negative",)}
LABELS = ("label", "score", "cluster", "relevance")
ROLES = ("text", *SIDES, *QUERY, *DOCUMENT, "negative", *LABELS, "split", "subset")
NO_TABLE = (
    "The columns are those of labelled data or tests, but there are neither. For the texts of a table, use --column."
)
COLUMNS = {
    "pairs": "sentence1, sentence2, score",
    "duplicates": "sentence1, sentence2, label with 0 and 1",
    "triplets": "anchor, positive, negative",
    "classification": "text, label",
    "clustering": "text, cluster",
    "retrieval": "query, positive, or a folder with corpus.jsonl, queries.jsonl and qrels",
}
SAME_KIND = "; all rows must be of one kind"


class Pair(NamedTuple):
    """Two texts, their gold similarity, and their subset of the task (None: no subsets).

    Example:
        >>> from essent.tasks import Pair
        >>> Pair("A man eats.", "A man is eating.", 4.8).score
        4.8
    """

    sentence1: str
    sentence2: str
    score: float
    subset: str | None = None


class Example(NamedTuple):
    """A labelled text or pair: its texts, its label (a class, or a score between classes), its part (train, dev, test).

    Example:
        >>> from essent.tasks import Example
        >>> Example(("How far is the moon?",), "number", "train").target
        'number'
    """

    texts: tuple[str, ...]
    target: str | float
    part: str | None = None


class MinimalPair(NamedTuple):
    """A sentence, the sentence after one small change, and the kind of change (one of `SUBSETS`).

    Example:
        >>> from essent.tasks import MinimalPair
        >>> MinimalPair("The film was boring.", "The film was exciting.", "Antonym").subset
        'Antonym'
    """

    original: str
    changed: str
    subset: str


SUBSETS = ("Synonym", "Antonym", "Random MLM", "Typo", "Negation (Main)", "Negation (Antonym)")  # the paper's order


def renamed(rows: Sequence[Row], columns: Mapping[str, str] | None) -> list[Row]:
    """Rename the columns of a table to those that the tasks read; a named column replaces others of its group.

    Groups are labels, queries and documents: with `label` named, columns `score` and `cluster` are removed.

    Args:
        columns: the table's column, ignoring case, by role; see `ROLES`.

    Raises:
        InputError: an unknown role.
        DataError: a row without a named column; the message lists its columns.
    """
    columns = columns or {}
    check_roles(columns)
    unread = {name for group in (LABELS, QUERY, DOCUMENT) if set(group) & set(columns) for name in group}
    table = []
    for row in rows:
        own = {}
        for role, name in columns.items():
            if (column := row.column(role, [name.lower()])) is None:
                names = ", ".join(map(repr, row.values)) or "none"
                raise DataError(f"{row.where}: no column {name!r} for {role!r}. Columns: {names}.")
            own[role] = column
        retained = {
            name: value for name, value in row.values.items() if name not in own.values() and name.lower() not in unread
        }
        table.append(row._replace(values=retained | {role: row.values[name] for role, name in own.items()}))
    return table


def check_roles(columns: Mapping[str, str]) -> None:
    """Raise an InputError for an unknown role; the message lists all roles."""
    if not isinstance(columns, Mapping):
        raise InputError(f"columns={columns!r}: must be a dictionary by role, such as {{'text': 'body'}}.")
    for role, name in columns.items():
        if role not in ROLES:
            roles = ", ".join(ROLES)
            raise InputError(f"Unknown role {role!r} in columns (ROLE=COLUMN, such as text=body). Roles: {roles}.")
        if not isinstance(name, str) or not name:
            raise InputError(f"The column of {role!r} must be a name, not {name!r}.")


def kind_of(rows: Sequence[Row]) -> str:
    """Infer the kind of rows, a key of `COLUMNS`, from the columns of the first row and the values of pairs' labels.

    Raises:
        DataError: no kind has these columns; the message lists all kinds.
    """
    has = rows[0].column
    if has("query", QUERY) and has("document", DOCUMENT):
        return "triplets" if any(row.column("negative") for row in rows) else "retrieval"
    is_pair, label = all(map(has, SIDES)), has("label")
    if is_pair and has("score"):
        return "pairs"
    if is_pair and label:
        labels = {_plain(row.values.get(label)) for row in rows}
        if labels <= {*TRUE, *FALSE}:
            return "duplicates"
        return "classification" if any(math.isnan(_number(cell)) for cell in labels) else "pairs"
    if has("text") and has("cluster"):
        return "clustering"
    if (is_pair or has("text")) and label:
        return "classification"
    if has("text") and has("score"):
        return "pairs"  # two sentences on two lines, as in STR-2022
    known = "; ".join(f"{kind} ({columns})" for kind, columns in COLUMNS.items())
    raise DataError(
        f"{rows[0].where}: no kind of labels has the columns {', '.join(map(repr, rows[0].values)) or '(none)'}. "
        f"Rename the columns to those of one kind, or name them, such as --columns text=body,label=topic (columns=… in "
        f"Python): {known}."
    )


def pairs_from_rows(rows: Sequence[Row]) -> list[Pair]:
    """Convert rows to scored pairs, in order and with duplicates; sentences may be empty.

    Raises:
        DataError: a missing column, a sentence that is not a string, a score that is not a finite number, or a subset
            in some rows only.
    """
    pairs = [Pair(*_sentences(row), _score(row), _subset(row)) for row in rows]
    for row, pair in zip(rows, pairs, strict=True):
        if (pair.subset is None) != (pairs[0].subset is None):
            raise DataError(f"{row.where}: 'subset' must be given in every row or in none.")
    return pairs


def duplicates_from_rows(rows: Sequence[Row]) -> list[tuple[str | bool, ...]]:
    """Convert rows to (first text, second text, whether they are duplicates)."""
    return [(*(row.text(side, hint=SAME_KIND) for side in SIDES), _is_duplicate(row)) for row in rows]


def triplets_from_rows(rows: Sequence[Row]) -> list[tuple[str, ...]]:
    """Convert rows to (anchor, positive, negative)."""
    return [tuple(row.text(role, names, SAME_KIND) for role, names in TRIPLET.items()) for row in rows]


def examples_from_rows(rows: Sequence[Row]) -> list[Example]:
    """Convert rows to labelled texts or pairs, in order and with duplicates; whole numbers become strings.

    Raises:
        DataError: a missing column, a text that is not a string, a label that is neither text nor whole number, or a
            `split` that is none of train, dev and test or is given in some rows only.
    """
    examples = [Example(_texts(row), _label(row), part_of(row)) for row in rows]
    check_examples("", examples, [row.where for row in rows])
    return examples


def scored_from_rows(rows: Sequence[Row]) -> list[Example]:
    """Convert rows of scored pairs (see `pairs_from_rows`) to examples whose target is the score."""
    pairs = pairs_from_rows(rows)
    return [Example(pair[:2], pair.score, part_of(row)) for row, pair in zip(rows, pairs, strict=True)]


def answers_from_rows(rows: Sequence[Row]) -> tuple[dict[str, str], dict[str, str], dict[str, dict[str, int]]]:
    """Convert rows of a query and a positive to queries and documents (texts by id) and grades by query and document.

    Every distinct positive is a document; a query's positives are those of all its rows. A column `relevance`, `label`
    or `score` contains the relevance of a document, 0 for none. A text that is both query and document has one id.

    Raises:
        DataError: a missing column, or two relevances of one query and document.
    """
    ids: dict[str, str] = {}
    queries: dict[str, str] = {}
    corpus: dict[str, str] = {}
    relevant: dict[str, dict[str, int]] = {}
    for row in rows:
        texts = [row.text("query", QUERY, SAME_KIND), row.text("positive", DOCUMENT, SAME_KIND)]
        query, document = (ids.setdefault(text, f"{len(ids) + 1}") for text in texts)
        queries[query], corpus[document] = texts
        grade = _grade(row)
        if relevant.setdefault(query, {}).setdefault(document, grade) != grade:
            raise DataError(f"{row.where}: this query and this positive have a different relevance in a row above.")
    return queries, corpus, relevant


def check_examples(name: str, examples: Sequence[Example], sources: Sequence[str] = ()) -> None:
    """Check that a task has examples, all with the same number of texts, one or two, and all or none with a part.

    Args:
        sources: of each example, e.g. its file and line, for the message; by default its number in the task.

    Raises:
        DataError: no examples, or an invalid one.
    """
    if not examples:
        raise DataError(f"The task {name!r} has no examples.")
    first = examples[0]
    for number, (texts, _, part) in enumerate(examples):
        source = sources[number] if sources else f"{name}, example {number + 1}"
        if not isinstance(texts, tuple) or not all(isinstance(text, str) for text in texts) or len(texts) not in (1, 2):
            raise DataError(f"{source}: the texts must be a tuple of one or two strings, not {texts!r}.")
        if len(texts) != len(first.texts):
            raise DataError(f"{source}: expected {len(first.texts)} texts as in the first example, not {len(texts)}.")
        if part not in {None, *PARTS} or (part is None) != (first.part is None):
            raise DataError(
                f"{source}: the part (split) is {part!r}. It must be one of {', '.join(PARTS)} in every example, or "
                "None in all."
            )


def check_classes(name: str, classes: Sequence[str]) -> None:
    """Check that labels (N,) have at least two classes, and are not ids of single examples.

    Raises:
        DataError: too few or too many classes; the message contains their number.
    """
    count = len(set(classes))
    if count < 2:
        raise DataError(f"The task {name!r} has {count} class; at least 2 are needed.")
    if count > max(len(classes) // 2, 2):
        raise DataError(
            f"The task {name!r} has {count} classes in {len(classes)} examples. Check that its label is not an id."
        )


def _sentences(row: Row) -> tuple[str, str]:
    if row.column("text") is None or any(map(row.column, SIDES)):
        return row.text("sentence1"), row.text("sentence2")
    # STR-2022 is published with both sentences in one column, a line break between them
    sentences = [line.strip() for line in row.text("text").split("\n") if line.strip()]
    if len(sentences) != 2:
        raise DataError(
            f"{row.where}: the column 'text' must contain two sentences on two lines, not {len(sentences)}. For "
            "classes of single texts, name the column label or cluster."
        )
    return sentences[0], sentences[1]


def _score(row: Row) -> float:
    score = row.values[row.required("score", SCORE)]
    number = math.nan if isinstance(score, bool) else _number(score)
    if not math.isfinite(number):
        raise DataError(f"{row.where}: 'score' must be a finite number, not {score!r}.")
    return number


def _subset(row: Row) -> str | None:
    column = row.column("subset")
    subset = None if column is None else row.values[column]
    if isinstance(subset, bool) or not isinstance(subset, (str, int, type(None))) or subset == "":
        raise DataError(f"{row.where}: 'subset' must be a text or a whole number, not {subset!r}.")
    return None if subset is None else str(subset)


def _is_duplicate(row: Row) -> bool:
    column = row.required("label", hint=SAME_KIND)
    label = _plain(row.values[column])
    if label not in {*TRUE, *FALSE}:
        raise DataError(f"{row.where}: {column!r} must be 1 for duplicates or 0, not {label!r}.")
    return label in TRUE


def _grade(row: Row) -> int:
    """Return the relevance of a row's document; 1 without such a column."""
    column = row.column("relevance", ("relevance", "grade", "relevant", "score", "label"))
    grade = "1" if column is None else _plain(row.values[column])
    number = float(grade in TRUE) if grade in {*TRUE, *FALSE} else _number(grade)
    if not number.is_integer():
        raise DataError(f"{row.where}: {column!r}, the relevance, must be a whole number, not {grade!r}.")
    return int(number)


def _texts(row: Row) -> tuple[str, ...]:
    if all(map(row.column, SIDES)):
        return tuple(map(row.text, SIDES))
    return (row.text("text", hint="; for pairs sentence1 and sentence2"),)


def _label(row: Row) -> str:
    column = row.required("label", ("label", "cluster"))
    label: Any = row.values[column]
    label = label.item() if hasattr(label, "item") else label  # a NumPy scalar of a data frame
    if isinstance(label, float) and label.is_integer():
        label = int(label)  # pandas reads a column of whole numbers with a missing value as floats
    if not isinstance(label, (str, int)) or not str(label).strip():
        raise DataError(f"{row.where}: {column!r} must be a text, a whole number, true or false, not {label!r}.")
    return str(label).lower() if isinstance(label, bool) else str(label)


def part_of(row: Row) -> str | None:
    """Return the part of a row, of train, dev and test; None without one."""
    column = row.column("split", ("split", "part"))
    if column is None or row.values[column] is None:
        return None
    part = PART_NAMES.get(_plain(row.values[column]))
    if part is None:
        raise DataError(f"{row.where}: {column!r} must be one of {', '.join(PART_NAMES)}, not {row.values[column]!r}.")
    return part


def _plain(cell: Any) -> str:
    return str(cell).strip().lower()


def _number(cell: Any) -> float:
    """Convert a cell to a number; NaN if it is not a number."""
    try:
        return float(cell)
    except (TypeError, ValueError, OverflowError):
        return math.nan
