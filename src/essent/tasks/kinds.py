"""Which kind of labels rows hold, told from their columns, and the task of such rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from essent.errors import DataError
from essent.tasks.base import LabeledTask
from essent.tasks.clusters import ClusterTask
from essent.tasks.data import SIDES, Row
from essent.tasks.examples import LABEL, SCORE, TEXT, examples_from_rows, pairs_from_rows
from essent.tasks.labels import LabelTask
from essent.tasks.pairs import DuplicateTask, PairTask, TripletTask
from essent.tasks.retrieval import RetrievalTask

# Accepted names of columns, without regard to case; the first one present counts.
ANCHOR = ("anchor", "query", "question", "sentence", "sentence1", "text")
POSITIVE = ("positive", "answer", "document", "passage")
NEGATIVE = ("negative",)
GRADE = ("grade", "relevance", "relevant", "score", "label")
DUPLICATE = ("is_duplicate", "duplicate", "is_paraphrase", "paraphrase", "label")
CLUSTER = ("cluster", "cluster_id")
TRUE, FALSE = ("1", "1.0", "true", "yes", "duplicate"), ("0", "0.0", "false", "no", "not_duplicate")
COLUMNS = {
    "pairs": "sentence1, sentence2, score",
    "duplicates": "sentence1, sentence2, label with 0 and 1",
    "triplets": "anchor, positive, negative",
    "classification": "text, label",
    "clustering": "text, cluster",
    "retrieval": "query, positive, or a folder with corpus.jsonl, queries.jsonl and qrels",
}
KNOWN = "; ".join(f"{kind} ({columns})" for kind, columns in COLUMNS.items())
SAME_KIND = "; all rows must be of one kind"


def kind_of(rows: Sequence[Row]) -> str:
    """One of `COLUMNS`, from the names of the columns of the first row, and the values of a label of pairs.

    Raises:
        DataError: no kind has these columns; names them all.
    """
    has = rows[0].column
    labelled_text = has(ANCHOR) and str(has(ANCHOR)).lower() in TEXT and has(LABEL)  # it may have a column "document"
    if has(ANCHOR) and has(POSITIVE) and not labelled_text:
        return "triplets" if any(row.column(NEGATIVE) for row in rows) else "retrieval"
    if all(map(has, SIDES)):
        if has(SCORE[:-1]):  # all but "label"
            return "pairs"
        if column := has(DUPLICATE):
            labels = {_plain(row.values.get(column)) for row in rows}
            if labels <= {*TRUE, *FALSE}:
                return "duplicates"
            return "pairs" if column.lower() == "label" and all(map(_is_number, labels)) else "classification"
        if has(LABEL):
            return "classification"
    elif has(TEXT):
        if has(CLUSTER):
            return "clustering"
        if has(LABEL):
            return "classification"
        if has(SCORE):
            return "pairs"  # two sentences on two lines, as STR-2022 has them
    raise DataError(
        f"{rows[0].where}: no kind of judgement has the columns {', '.join(map(repr, rows[0].values)) or '(none)'}. "
        f"Known: {KNOWN}. Rename the columns to those of one kind."
    )


def task_of_rows(kind: str, name: str, rows: Sequence[Row], source: Mapping[str, Any]) -> LabeledTask:
    """The task of rows of a kind.

    Raises:
        DataError: a missing column or a value that cannot be; names file and line.
    """
    tasks: dict[str, Callable[[], LabeledTask]] = {
        "pairs": lambda: PairTask(name, tuple(pairs_from_rows(rows)), source),
        "duplicates": lambda: DuplicateTask(name, tuple(map(_duplicate, rows)), source),
        "triplets": lambda: TripletTask(name, tuple(map(_triplet, rows)), source),
        "classification": lambda: LabelTask(name, tuple(examples_from_rows(rows)), source=source),
        "clustering": lambda: ClusterTask(name, tuple(examples_from_rows([*map(_as_label, rows)])), source=source),
        "retrieval": lambda: _positives(name, rows, source),
    }
    return tasks[kind]()


def hint_of_kind(kind: str, rows: Sequence[Row]) -> str:
    """What rows that are not of the kind that was named could be read as; "" where nothing would work."""
    try:
        actual = kind_of(rows)
        task_of_rows(actual, "rows", rows, {})
    except DataError:
        return ""
    return "" if actual == kind else f" These columns are those of {actual}: give the file without {kind!r} before it."


def _duplicate(row: Row) -> tuple[str, str, bool]:
    column = row.column(DUPLICATE) or row.column(SCORE)
    label = _plain(row.values.get(column or ""))
    if column is None or label not in {*TRUE, *FALSE}:
        problem = "there is none" if column is None else f"not {row.values[column]!r}"
        raise DataError(f"{row.where}: whether a pair is a duplicate (label) must be 0 or 1, {problem}.")
    return row.text("sentence1", SIDES[0], SAME_KIND), row.text("sentence2", SIDES[1], SAME_KIND), label in TRUE


def _triplet(row: Row) -> tuple[str, str, str]:
    return (
        row.text("anchor", ANCHOR, SAME_KIND),
        row.text("positive", POSITIVE, SAME_KIND),
        row.text("negative", NEGATIVE, SAME_KIND),
    )


def _positives(name: str, rows: Sequence[Row], source: Mapping[str, Any]) -> RetrievalTask:
    """Every distinct positive is a document; a query's positives are those of all its rows.

    A column such as `label` or `score` says how relevant a document is, 0 not at all. A document that is the query
    itself does not answer it, unless a row says so.
    """
    ids: dict[str, str] = {}  # a text that is query and document has one
    queries: dict[str, str] = {}
    corpus: dict[str, str] = {}
    relevant: dict[str, dict[str, int]] = {}
    for row in rows:
        query, document = row.text("query", ANCHOR, SAME_KIND), row.text("positive", POSITIVE, SAME_KIND)
        query_id = ids.setdefault(query, f"{len(ids) + 1}")
        document_id = ids.setdefault(document, f"{len(ids) + 1}")
        queries[query_id], corpus[document_id] = query, document
        relevant.setdefault(query_id, {})[document_id] = _grade(row)
    return RetrievalTask(name, queries, corpus, relevant, ignore_identical_ids=True, source=source)


def _grade(row: Row) -> int:
    """How relevant a row's document is; 1 where no column says it."""
    column = row.column(GRADE)
    grade = "1" if column is None else _plain(row.values[column])
    if grade in TRUE or grade in FALSE:
        return int(grade in TRUE)
    if not _is_number(grade) or not float(grade).is_integer():
        raise DataError(f"{row.where}: {column!r} says how relevant the document is, a whole number, not {grade!r}.")
    return int(float(grade))


def _as_label(row: Row) -> Row:
    """A column `cluster` under the name `label`."""
    column = row.column(CLUSTER)
    if column is None or row.column(LABEL):
        return row
    return Row(row.where, {"label" if name == column else name: cell for name, cell in row.values.items()})


def _plain(cell: Any) -> str:
    return str(cell).strip().lower()


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
