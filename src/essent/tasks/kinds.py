"""Which kind of judgement rows hold, told from their columns, and the task that they make."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from essent.errors import DataError
from essent.tasks.clusters import ClusterTask
from essent.tasks.data import PAIR_COLUMNS, Row, pairs_from_rows, text_value
from essent.tasks.duplicates import DuplicateTask
from essent.tasks.examples import LABEL, TEXT, Example, examples_from_rows
from essent.tasks.judged import JudgedTask
from essent.tasks.labels import LabelTask
from essent.tasks.pairs import PairTask, columns_of, rows_of
from essent.tasks.retrieval import RetrievalTask
from essent.tasks.triplets import TripletTask

# Accepted names of columns, without regard to case; the first one present counts.
ANCHOR = ("anchor", "query", "question", "sentence", "sentence1", "text")
POSITIVE = ("positive", "answer", "document", "passage")
NEGATIVE = ("negative",)
GRADE = ("grade", "relevance", "relevant", "score", "label")
SCORE = tuple(name for name in PAIR_COLUMNS["score"] if name != "label")
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
SCORE_NAMES = tuple(
    dict.fromkeys(
        name
        for kind in (PairTask, DuplicateTask, TripletTask, ClusterTask, RetrievalTask)
        for name in (*kind.score_names, "f1_macro", "pearson")
    )
)
KNOWN = "; ".join(f"{kind} ({columns})" for kind, columns in COLUMNS.items())


def kind_of(rows: Sequence[Row]) -> str:
    """One of `COLUMNS`, from the names of the columns of the first row, and the values of a label of pairs.

    Raises:
        DataError: no kind has these columns; names them all.
    """
    columns = _lower(rows[0])
    anchor = _first(columns, ANCHOR)
    plain = anchor in TEXT and _first(columns, LABEL) is not None  # a labelled text with a column "document"
    if anchor and _first(columns, POSITIVE) and not plain:
        return "triplets" if any(_first(_lower(row), NEGATIVE) for row in rows) else "retrieval"
    if all(_first(columns, PAIR_COLUMNS[side]) for side in ("sentence1", "sentence2")):
        if _first(columns, SCORE):
            return "pairs"
        if name := _first(columns, DUPLICATE):
            values = {_plain(_lower(row).get(name)) for row in rows}
            if values <= {*TRUE, *FALSE}:
                return "duplicates"
            return "pairs" if name == "label" and all(map(_is_number, values)) else "classification"
        if _first(columns, LABEL):
            return "classification"
    elif _first(columns, TEXT):
        if _first(columns, CLUSTER):
            return "clustering"
        if _first(columns, LABEL):
            return "classification"
        if _first(columns, SCORE):
            return "pairs"  # two sentences on two lines, as STR-2022 has them
    raise DataError(
        f"{rows[0].where}: no kind of judgement has the columns {', '.join(map(repr, rows[0].values)) or '(none)'}. "
        f"Known: {KNOWN}. Rename the columns to those of one kind."
    )


def hint_of_kind(kind: str, rows: Sequence[Row]) -> str:
    """What rows that are not of the kind that was named could be read as; "" where nothing would work."""
    try:
        found = kind_of(rows)
        task_of_rows(found, "rows", rows, {})
    except DataError:
        return ""
    return "" if found == kind else f" These columns are those of {found}: give the file without {kind!r} before it."


def task_of_rows(kind: str, name: str, rows: Sequence[Row], source: Mapping[str, Any]) -> JudgedTask:
    """The task that rows of a kind make.

    Raises:
        DataError: a missing column or a value that cannot be; names file and line.
    """
    if kind == "pairs":
        return PairTask(name, tuple(pairs_from_rows(rows)), source)
    if kind == "duplicates":
        return DuplicateTask(name, tuple(map(_duplicate, rows)), source)
    if kind == "triplets":
        return TripletTask(name, tuple(map(_triplet, rows)), source)
    if kind == "retrieval":
        return _positives(name, rows, source)
    if kind == "clustering":
        rows = [_as_label(row) for row in rows]
        return ClusterTask(name, tuple(examples_from_rows(rows)), source=source)
    return LabelTask(name, tuple(examples_from_rows(rows)), source=source)


def task_of_examples(kind: str, name: str, examples: Sequence[Example], source: Mapping[str, Any]) -> JudgedTask:
    """A data set of labelled texts as another kind: classes as clusters, paraphrases as duplicates.

    Raises:
        DataError: the examples cannot be of that kind.
    """
    if kind == "clustering":
        return ClusterTask(name, tuple(examples), source=source)
    if kind == "duplicates" and len(examples[0].texts) == 2:
        rows = [
            Row(f"{name}, example {number}", {"sentence1": e.texts[0], "sentence2": e.texts[1], "label": e.target})
            for number, e in enumerate(examples, start=1)
        ]
        return DuplicateTask(name, tuple(map(_duplicate, rows)), source)
    raise DataError(f"The data set {name!r} cannot be read as {kind}: it has labelled texts.")


def _duplicate(row: Row) -> tuple[str, str, bool]:
    first, second = (_text(row, PAIR_COLUMNS[side], side) for side in ("sentence1", "sentence2"))
    columns = _lower(row)
    name = _first(columns, DUPLICATE) or _first(columns, SCORE)
    value = _plain(columns.get(name or ""))
    if name is None or value not in {*TRUE, *FALSE}:
        shown = "there is none" if name is None else f"not {columns[name]!r}"
        raise DataError(f"{row.where}: whether a pair is a duplicate (label) must be 0 or 1, {shown}.")
    return first, second, value in TRUE


def _triplet(row: Row) -> tuple[str, str, str]:
    return _text(row, ANCHOR, "anchor"), _text(row, POSITIVE, "positive"), _text(row, NEGATIVE, "negative")


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
        query, document = _text(row, ANCHOR, "query"), _text(row, POSITIVE, "positive")
        query_id = ids.setdefault(query, f"{len(ids) + 1}")
        document_id = ids.setdefault(document, f"{len(ids) + 1}")
        queries[query_id], corpus[document_id] = query, document
        relevant.setdefault(query_id, {})[document_id] = _grade(row)
    return RetrievalTask(name, queries, corpus, relevant, ignore_identical_ids=True, source=source)


def _grade(row: Row) -> int:
    """How relevant a row's document is; 1 where no column says it."""
    columns = _lower(row)
    name = _first(columns, GRADE)
    if name is None:
        return 1
    plain = _plain(columns[name])
    if plain in TRUE or plain in FALSE:
        return int(plain in TRUE)
    try:
        if float(plain) != int(float(plain)):
            raise ValueError(plain)
        return int(float(plain))
    except (ValueError, OverflowError):
        raise DataError(
            f"{row.where}: {name!r} says how relevant the document is, a whole number, not {columns[name]!r}."
        ) from None


def _as_label(row: Row) -> Row:
    """A column `cluster` under the name `label`."""
    columns = {name.lower(): name for name in row.values}
    name = _first(columns, CLUSTER)
    if name is None or _first(columns, LABEL):
        return row
    others = {key: value for key, value in row.values.items() if key != columns[name]}
    return Row(row.where, {**others, "label": row.values[columns[name]]})


def _text(row: Row, names: Sequence[str], wanted: str) -> str:
    columns = _lower(row)
    name = _first(columns, names)
    if name is None:
        raise DataError(
            f"{row.where}: no column {wanted!r} (accepted: {', '.join(names)}); "
            f"it has {', '.join(map(repr, row.values))}. All rows must be of one kind."
        )
    return text_value(row, name, columns[name])


def rows_in_memory(rows: Any, name: str) -> list[Row]:
    """Rows of a frame, a data set or a list, by column; a plain tuple has sentence1, sentence2, score, subset.

    Raises:
        DataError: no rows, or one that is neither.
    """
    found = [Row(f"{name}, row {number}", columns_of(row)) for number, row in enumerate(rows_of(rows), start=1)]
    if not found:
        raise DataError(f"The task {name!r} has no rows.")
    return found


def _lower(row: Row) -> dict[str, Any]:
    return {name.lower(): value for name, value in row.values.items()}


def _first(columns: Mapping[str, Any], names: Sequence[str]) -> str | None:
    return next((name for name in names if name in columns), None)


def _plain(value: Any) -> str:
    return str(value).strip().lower()


def _is_number(value: str) -> bool:
    try:
        float(value)
    except ValueError:
        return False
    return True
