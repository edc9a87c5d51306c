"""Retrieval data sets as BEIR publishes them: corpus.jsonl, queries.jsonl, qrels/SPLIT.tsv."""

from __future__ import annotations

import json
from pathlib import Path

from essent.errors import DataError
from essent.tasks.data import Row, located_rows, text_value
from essent.tasks.retrieval import RetrievalTask


def is_beir_folder(path: Path) -> bool:
    """Whether a folder holds a retrieval data set as BEIR publishes them."""
    return (path / "corpus.jsonl").is_file() and (path / "queries.jsonl").is_file()


def beir_task(path: Path) -> RetrievalTask:
    """A BEIR folder, or one of its files of judgements: DIR (its qrels/test.tsv, or the only one), DIR/qrels/dev.tsv.

    Raises:
        DataError: a file is missing, an id comes twice, or a judgement names an id that is not there (file and line).
    """
    folder = path.parent.parent if path.is_file() else path
    for name in ("corpus.jsonl", "queries.jsonl"):
        if not (folder / name).is_file():
            raise DataError(f"{folder} has no {name}; a retrieval data set is a folder as BEIR publishes them.")
    judgements = path if path.is_file() else _judgements(folder)
    corpus = _by_id(folder / "corpus.jsonl", with_title=True)
    queries = _by_id(folder / "queries.jsonl", with_title=False)
    relevant: dict[str, dict[str, int]] = {}
    for row in located_rows(judgements):
        query, document, grade = _judgement(row)
        for what, found, known in (("query", query, queries), ("document", document, corpus)):
            if found not in known:
                raise DataError(f"{row.where}: the {what} {found!r} is not in {folder}.")
        if relevant.setdefault(query, {}).setdefault(document, grade) != grade:
            raise DataError(f"{row.where}: the pair of {query!r} and {document!r} was judged otherwise before.")
    asked = {query: queries[query] for query in queries if query in relevant}
    name = folder.name if judgements.stem == "test" else f"{folder.name}.{judgements.stem}"
    return RetrievalTask(name, asked, corpus, relevant, source={"source": str(folder), "judgements": judgements.name})


def _judgements(folder: Path) -> Path:
    files = sorted((folder / "qrels").glob("*.tsv")) if (folder / "qrels").is_dir() else []
    wanted = [file for file in files if file.stem == "test"] or files
    if len(wanted) != 1:
        found = ", ".join(file.name for file in files) or "none"
        raise DataError(f"{folder}/qrels should have test.tsv, or one .tsv file; found: {found}. Name one of them.")
    return wanted[0]


def _by_id(file: Path, *, with_title: bool) -> dict[str, str]:
    found: dict[str, str] = {}
    for row in located_rows(file):
        number = row.values.get("_id", row.values.get("id"))
        if number is None or isinstance(number, (dict, list, bool)):
            raise DataError(f"{row.where}: no '_id'; it has {', '.join(map(repr, row.values))}.")
        text = text_value(row, "text", row.values.get("text"))
        title = row.values.get("title") if with_title else None
        if title:
            text = f"{text_value(row, 'title', title)} {text}".strip()
        if str(number) in found:
            raise DataError(f"{row.where}: the id {json.dumps(str(number))} comes twice.")
        found[str(number)] = text
    return found


def _judgement(row: Row) -> tuple[str, str, int]:
    try:
        query, document, grade = (row.values[name] for name in ("query-id", "corpus-id", "score"))
        if float(grade) != int(float(grade)):
            raise ValueError(grade)
        return str(query), str(document), int(float(grade))
    except (KeyError, TypeError, ValueError, OverflowError):
        raise DataError(
            f"{row.where}: a judgement has the columns query-id, corpus-id and score (a whole number), not "
            f"{dict(row.values)!r}."
        ) from None
