"""From a task's name to its data: on the hub, in a folder, or in one file.

A folder of BEIR holds corpus.jsonl, queries.jsonl and qrels/SPLIT.tsv.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from essent.errors import DataError, InputError, UnknownNameError
from essent.tasks.base import Task
from essent.tasks.catalogue import Pairs
from essent.tasks.data import SUFFIXES, Pair, Row, hub_rows, located_rows, pairs_from_rows, read_pairs, text_value
from essent.tasks.geometry import GeometryTask
from essent.tasks.judged import JudgedTask
from essent.tasks.kinds import COLUMNS, kind_of, rows_in_memory, task_of_examples, task_of_rows
from essent.tasks.locate_labelled import labelled_task, task_of_file
from essent.tasks.names import find_row, task_names
from essent.tasks.pairs import PairTask
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


GEOMETRY = {"geometry": "simcse", "geometry-raw": "raw"}


def load_task(
    name: str | Path, data: str | Path | None = None, *, split: str | None = None
) -> JudgedTask | GeometryTask:
    """Read the data of a task.

    Args:
        name: a task of the catalogue ("sts12", "stsb.dev", "trec", "agnews"), or a file or folder (then `data` and
            `split` say nothing). What a file holds is told from its columns (`essent.tasks.kinds.COLUMNS`); "KIND:PATH"
            says it: "clustering:PATH" takes labelled texts as clusters, "duplicates:mrpc" a data set of the catalogue.
            A folder with corpus.jsonl, queries.jsonl and qrels is a retrieval data set; one of its files of judgements
            names a split. Parts of a classification come from its column `split`, or from files beside it: PATH is
            NAME.train.jsonl. "geometry:TASK" measures the space on a task of scored pairs, "geometry-raw:TASK" in the
            other published setting (see `essent.tasks.geometry.SETTINGS`).
        data: None reads the hub. A folder is searched for `sts/NAME.jsonl` (`classification/`, `clustering/`) and
            `NAME.jsonl` (also .json, .csv, .tsv, .parquet; `NAME.SPLIT.jsonl` first, the name alone means the test
            split), then for SentEval's layout (`STS/STS12-en-test/…`, also below `downstream/`). The first that is
            there counts.
        split: of scored pairs: "test" (default), "dev" or "train", where the data set has them.

    Raises:
        UnknownNameError: no such task or split.
        DataError: the data cannot be found (the message lists where it was looked for) or has a malformed row.
    """
    kind, colon, rest = str(name).partition(":")
    if colon and kind in GEOMETRY:
        return GeometryTask.of_pairs(load_pairs(rest, data, split=split), GEOMETRY[kind])
    if colon and kind in COLUMNS:
        return _of_kind(kind, rest, data)
    if _is_beir(Path(name)):
        return beir_task(Path(name))
    if _is_file_name(name):
        if Path(name).suffix.lower() not in SUFFIXES:
            _refuse_path(Path(name))
        return task_of_file(Path(name))
    try:
        row, chosen = find_row(str(name), split)
    except UnknownNameError:
        _refuse_path(Path(name))
        raise
    if not isinstance(row, Pairs):
        return labelled_task(row, None if data is None else Path(data))
    return _pairs_of_row(row, chosen, data)


def _of_kind(kind: str, name: str, data: str | Path | None) -> JudgedTask:
    """A file, or a data set of the catalogue, as the kind that is asked for."""
    path = Path(name)
    if kind == "retrieval" and (path.is_dir() or _is_beir(path)):
        return beir_task(path)
    if path.exists() or path.suffix.lower() in SUFFIXES or len(path.parts) > 1 or name.lower() in task_names(kind):
        return task_of_file(path, kind)
    base, dot, part = name.partition(".")
    task = load_task(base, data)
    examples = getattr(task, "examples", None)
    if examples is None:
        raise DataError(f"The data set {name!r} cannot be read as {kind}.")
    if dot:
        examples = tuple(example for example in examples if example.part == part)
        if not examples:
            raise DataError(f"The data set {base!r} has no part {part!r}.")
    elif any(example.part == "test" for example in examples):
        examples = tuple(example for example in examples if example.part == "test")
    return task_of_examples(kind, f"{kind}.{name}", examples, dict(getattr(task, "source", {})))


def load_pairs(name: str | Path, data: str | Path | None = None, *, split: str | None = None) -> PairTask:
    """Read a task of scored pairs; see `load_task`.

    Raises:
        InputError: a task of another kind; the message lists those that there are.
    """
    task = load_task(name, data, split=split)
    if not isinstance(task, PairTask):
        raise InputError(
            f"{name} holds {getattr(task, 'kind', 'geometry')}, and only scored pairs will do here: "
            f"{', '.join(task_names('pairs'))} or a file of pairs (columns {COLUMNS['pairs']})."
        )
    return task


def as_task(given: Any, folder: str | Path | None = None, number: int = 1) -> Task:
    """A task that is one already, a task by name or file, or rows in memory, whose kind is told from their columns.

    Args:
        given: rows: a data frame, a `datasets.Dataset`, a list of dictionaries or of (sentence1, sentence2, score).
            Their task is called after its kind: "pairs", "pairs 2".
        number: of this task among several.

    Raises:
        InputError: something else; DataError as `load_task`.
    """
    if isinstance(given, (str, Path)):
        return load_task(given, folder)
    if hasattr(given, "score_vectors"):
        task: Task = given
        return task
    if isinstance(given, (Mapping, tuple)) or not (hasattr(given, "__iter__") or hasattr(given, "columns")):
        raise InputError(
            f"Task {number} is a {type(given).__name__}; a task is a name, a file, a Task, or rows in a list, a frame "
            "or a data set: [rows], not rows."
        )
    rows = rows_in_memory(given, "data" if number == 1 else f"data {number}")
    kind = kind_of(rows)
    return task_of_rows(kind, kind if number == 1 else f"{kind} {number}", rows, {"source": "memory"})


def load_judged(given: Any, folder: str | Path | None = None) -> JudgedTask:
    """As `as_task`, for what a search chooses on: every kind of judgement.

    Raises:
        InputError: minimal pairs or geometry, which have no score that a search can use.
    """
    task = as_task(given, folder)
    if not isinstance(task, JudgedTask):
        raise InputError(f"{given} cannot be searched on; what can be: {', '.join(COLUMNS)}.")
    return task


def _pairs_of_row(row: Pairs, chosen: str, data: str | Path | None) -> PairTask:
    if data is None:
        pairs, source, notes = _from_hub(row, chosen)
    else:
        pairs, found = _from_folder(row, chosen, Path(data))
        source, notes = {"source": str(found), "split": chosen}, ()
    low, high = row.scale
    outside = sum(not low <= pair.score <= high for pair in pairs)
    if outside:  # a correlation does not mind, but a wrong column may be the reason
        notes = (*notes, f"{outside} of {len(pairs)} gold scores lie outside the scale {low}–{high} of {row.name}.")
    return PairTask(row.name if chosen == "test" else f"{row.name}.{chosen}", tuple(pairs), source, notes)


def _is_beir(path: Path) -> bool:
    """Whether this is a retrieval data set, or a file of judgements within one."""
    return is_beir_folder(path) or (
        path.is_file() and path.parent.name == "qrels" and is_beir_folder(path.parent.parent)
    )


def _refuse_path(path: Path) -> None:
    """What to do with a file or folder that is there, and that no task can be read from as it is named.

    Raises:
        DataError: where the path exists.
    """
    if path.is_dir():
        raise DataError(
            f"{path} is a folder, and not one of a retrieval data set (corpus.jsonl, queries.jsonl, qrels). Name a "
            f"file in it; a folder with data sets of the catalogue is --data-folder {path}."
        )
    if path.is_file():
        raise DataError(
            f"{path} is a file in no format that judgements are read from: {', '.join(SUFFIXES)}. Texts without "
            "labels are for --texts, of search and distill."
        )


def _is_file_name(name: str | Path) -> bool:
    path = Path(name)
    return isinstance(name, Path) or path.suffix.lower() in SUFFIXES or len(path.parts) > 1


def _from_hub(row: Pairs, split: str) -> tuple[list[Pair], dict[str, str | None], tuple[str, ...]]:
    if row.hub is None or split not in row.hub_splits:
        raise DataError(
            f"The {split} split of {row.name!r} is not on the hub{f' ({row.hub})' if row.hub else ''}. "
            f"Give local files: --data-folder DIR, with {' or '.join(_patterns(row, split, Path('DIR')))}."
        )
    place = row.hub_splits[split]
    where = f"hub data set {row.hub}, split {place}"
    rows = hub_rows(row.hub, row.revision, place)
    pairs = pairs_from_rows(Row(f"{where}, row {number}", values) for number, values in enumerate(rows, start=1))
    source = {"source": f"hub:{row.hub}", "revision": row.revision, "split": place}
    return pairs, source, (row.hub_note,) if row.hub_note else ()


def _stems(row: Pairs, split: str, data: Path) -> list[Path]:
    names = [f"{row.name}.{split}", *([row.name] if split == "test" else [])]
    return [folder / name for folder in (data / "sts", data) for name in names]


def _patterns(row: Pairs, split: str, data: Path) -> list[str]:
    """Where a task's pairs are looked for, for messages."""
    kinds = ",".join(suffix[1:] for suffix in SUFFIXES)
    patterns = [f"{stem}.{{{kinds}}}" for stem in _stems(row, split, data)]
    senteval = row.senteval.files(data, split) if row.senteval else []
    return [*patterns, *([str(senteval[0])] if senteval else [])]


def _from_folder(row: Pairs, split: str, data: Path) -> tuple[list[Pair], Path]:
    if not data.is_dir():
        reason = (
            "is a file; to score its pairs, give its path as the task's name" if data.is_file() else "does not exist"
        )
        raise DataError(f"The data folder {data} {reason}.")
    for stem in _stems(row, split, data):
        for suffix in SUFFIXES:
            path = stem.parent / f"{stem.name}{suffix}"
            if path.is_file():
                return read_pairs(path), path
    for root in (data, data / "downstream"):
        files = row.senteval.files(root, split) if row.senteval else []
        if row.senteval and any(path.is_file() for path in files):  # part of a year must fail, not score a part
            return row.senteval.read(root, split), files[0] if len(files) == 1 else files[0].parent
    looked = "\n  ".join(_patterns(row, split, data))
    raise DataError(f"No data for {row.name!r}, split {split!r}, in {data}. Looked for:\n  {looked}")
