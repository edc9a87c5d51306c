"""Loading of tasks: by name from the catalogue, the hub or a folder, from one file, or from memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from essent.errors import DataError, InputError
from essent.tasks.base import LabeledTask, Task
from essent.tasks.catalogue import DataSet, find_row, task_names
from essent.tasks.clusters import ClusterTask
from essent.tasks.data import SUFFIXES, Row, hub_rows, located_rows, rows_in_memory
from essent.tasks.examples import (
    COLUMNS,
    PARTS,
    answers_from_rows,
    check_roles,
    duplicates_from_rows,
    examples_from_rows,
    kind_of,
    pairs_from_rows,
    renamed,
    scored_from_rows,
    triplets_from_rows,
)
from essent.tasks.geometry import GeometryTask
from essent.tasks.labels import LabelTask
from essent.tasks.pairs import DuplicateTask, PairTask, TripletTask
from essent.tasks.retrieval import RetrievalTask, beir_task, is_beir

OF_ROWS: dict[str, tuple[Callable[..., LabeledTask], Callable[[Sequence[Row]], list[Any]]]] = {
    "pairs": (PairTask, pairs_from_rows),
    "duplicates": (DuplicateTask, duplicates_from_rows),
    "triplets": (TripletTask, triplets_from_rows),
    "classification": (LabelTask, examples_from_rows),
    "clustering": (ClusterTask, examples_from_rows),
}


def load_task(
    name: str | Path, data: str | Path | None = None, *, columns: Mapping[str, str] | None = None
) -> LabeledTask | GeometryTask:
    """Load a task by name, or from a file or folder.

    Args:
        name: one of

            - a task of the catalogue: "sts12", "stsb.dev", "trec", "agnews";
            - a file, whose kind follows from its columns (`essent.tasks.examples.COLUMNS`). Parts of a classification
              come from its column `split`;
            - "KIND:FILE" to set the kind: "clustering:FILE" reads labelled texts as clusters;
            - a folder in BEIR's layout (corpus.jsonl, queries.jsonl and qrels/SPLIT.tsv), or one of its qrels files to
              choose a split;
            - "geometry:TASK", the geometry of the vectors of scored pairs.
        data: folder with local files of catalogue tasks, `sts/NAME.jsonl`, `classification/NAME.jsonl` or
            `clustering/NAME.jsonl`, or NAME.SPLIT.jsonl; None reads the hub. Ignored for files and folders.
        columns: names of the columns of a file by role, if they differ from the usual ones: {"text": "body", "label":
            "category"}. Roles are the keys of `essent.tasks.examples.ROLES`. Ignored for tasks of the catalogue and
            BEIR's layout.

    Raises:
        UnknownNameError: no such task or split.
        DataError: the data cannot be found (the message lists the searched paths) or has an invalid row.

    Example:
        >>> from essent.tasks import load_task
        >>> for name in ("pairs.jsonl", "reviews.csv", "clustering:reviews.csv", "faq"):
        ...     task = load_task(name)
        ...     print(task.name, task.kind, len(task), task.unit)
        pairs pairs 120 pairs
        reviews classification 40 texts
        clustering.reviews clustering 40 texts
        faq retrieval 4 queries
        >>> load_task("stsb", data="data").name  # reads data/sts/stsb.jsonl
        'stsb'
    """
    check_roles(columns or {})
    kind, colon, target = str(name).partition(":")
    if colon and kind == "geometry":
        return GeometryTask.of_pairs(load_pairs(target, data, columns=columns))
    if not colon or kind not in COLUMNS:
        kind, target = "", str(name)
    path = Path(target)
    try:
        is_retrieval = kind in ("", "retrieval") and (is_beir(path) or (kind and path.is_dir()))
    except OSError as error:  # a text that is too long for a path
        raise DataError(f"{str(name)!r:.60} is no task and no file ({error.strerror}).") from None
    if is_retrieval:
        return beir_task(path)
    if kind or isinstance(name, Path) or len(path.parts) > 1 or path.suffix.lower() in SUFFIXES or path.is_file():
        rows = renamed(located_rows(path), columns)
        title, kind = f"{kind}." * bool(kind) + path.stem, kind or kind_of(rows)
        return _task_of_rows(kind, title, rows, {"source": str(path)}, columns)
    return _task_of_catalogue(*find_row(target), None if data is None else Path(data))


def load_pairs(
    name: str | Path, data: str | Path | None = None, *, columns: Mapping[str, str] | None = None
) -> PairTask:
    """Load a task of scored pairs; see `load_task`.

    Raises:
        InputError: a task of another kind; the message lists the tasks of scored pairs.

    Example:
        >>> from essent.tasks import load_pairs
        >>> task = load_pairs("pairs.jsonl")
        >>> task.pairs[0].sentence1, task.pairs[0].score
        ('Nina is still too young to drive.', 5.0)
    """
    task = load_task(name, data, columns=columns)
    if not isinstance(task, PairTask):
        raise InputError(
            f"Expected scored pairs, but {name} contains {getattr(task, 'kind', 'geometry')}. Give one of "
            f"{', '.join(task_names('pairs'))}, or a file with the columns {COLUMNS['pairs']}."
        )
    return task


def as_task(
    source: Any, folder: str | Path | None = None, number: int = 1, columns: Mapping[str, str] | None = None
) -> Task:
    """Convert a task's name, a file or rows in memory to a task; a task is returned unchanged.

    Args:
        source: rows are a data frame, a `datasets.Dataset`, or a list of dictionaries or of (sentence1, sentence2,
            score). Their kind follows from their columns and names the task: "pairs", "pairs 2".
        folder: local data for task names.
        number: of this task among several.
        columns: names of the columns of a file or of rows by role, as in `load_task`.

    Raises:
        InputError: another type.
        DataError: as `load_task`.
    """
    if isinstance(source, (str, Path)):
        return load_task(source, folder, columns=columns)
    if hasattr(source, "score_vectors"):
        task: Task = source
        return task
    if isinstance(source, (Mapping, tuple)) or not (hasattr(source, "__iter__") or hasattr(source, "columns")):
        raise InputError(
            f"Task {number} is a {type(source).__name__}. A task is a name, a file, a Task, or rows in a list, a frame "
            "or a data set. Give several tasks as a list: [rows], not rows."
        )
    rows = renamed(rows_in_memory(source, "data" if number == 1 else f"data {number}"), columns)
    kind = kind_of(rows)
    return _task_of_rows(kind, kind if number == 1 else f"{kind} {number}", rows, {"source": "memory"}, columns)


def load_labelled(
    source: Any, folder: str | Path | None = None, *, columns: Mapping[str, str] | None = None
) -> LabeledTask:
    """Convert a source to a task with labels; see `as_task`.

    Raises:
        InputError: minimal pairs or geometry, which have no score for a search.
    """
    task = as_task(source, folder, columns=columns)
    if not isinstance(task, LabeledTask):
        raise InputError(f"{source} has no labels to search on. Give labelled data of a kind: {', '.join(COLUMNS)}.")
    return task


# -- data sets of the catalogue ---------------------------------------------------------------------------------------


def _task_of_catalogue(row: DataSet, split: str, data: Path | None) -> LabeledTask:
    rows, source, notes = _rows_of_hub(row, split) if data is None else _rows_of_folder(row, split, data)
    if row.kind == "pairs":
        pairs, (low, high) = tuple(pairs_from_rows(rows)), row.scale or (0, 5)
        if outside := sum(not low <= pair.score <= high for pair in pairs):  # a wrong column may be the reason
            notes.append(f"{outside} of {len(pairs)} gold scores lie outside the scale {low}–{high} of {row.name}.")
        name = row.name if split == "test" else f"{row.name}.{split}"
        return PairTask(name, pairs, source={**source, "split": split}, notes=tuple(notes))
    examples = (scored_from_rows if row.scale else examples_from_rows)(rows)
    if row.kind == "clustering":
        if len(examples) != row.size:
            notes.append(f"The published {row.name} has {row.size:,} texts, this one {len(examples):,}.")
        return ClusterTask(row.name, tuple(examples), source=source, notes=tuple(notes))
    parts, published = {example.part for example in examples}, f"{row.name} is published with {', '.join(row.parts)}"
    if not row.parts:  # published for cross-validation
        examples = [example._replace(part=None) for example in examples]
    elif None in parts:
        notes.insert(0, f"{published}; this is one file, scored by cross-validation.")
    elif "dev" in parts and "dev" not in row.parts:
        examples = [example._replace(part="train") if example.part == "dev" else example for example in examples]
    elif missing := ", ".join(sorted(set(row.parts) - parts)):
        notes.insert(0, f"{published}; {missing} is missing.")
    return LabelTask(row.name, tuple(examples), row.scale, source=source, notes=(*[row.note] * bool(row.note), *notes))


def _files_of(row: DataSet, split: str, data: Path) -> dict[str, Path]:
    """Return the local files of a data set by part: NAME.SPLIT.jsonl, and NAME.jsonl ("") for its test or all parts."""
    stem = data / ("sts" if row.scale else row.kind) / (row.stem or row.name)
    parts = {"pairs": (split,), "classification": PARTS}.get(row.kind, ())
    files = {part: Path(f"{stem}.{part}.jsonl") for part in parts}
    return files | ({"": Path(f"{stem}.jsonl")} if split == "test" else {})


def _rows_of_folder(row: DataSet, split: str, data: Path) -> tuple[list[Row], dict[str, Any], list[str]]:
    """Read a data set from a folder: its rows, their source, and no notes.

    Raises:
        DataError: nothing to read; the message lists the searched files.
    """
    searched = _files_of(row, split, data)
    files = {part: path for part, path in searched.items() if path.is_file()}
    if row.kind == "classification" and not {"train", "test"} <= files.keys():
        files = {"": files[""]} if "" in files and row.scale is None else {}
    if not files:
        expected = " or ".join(map(str, searched.values()))
        raise DataError(f"No data for {row.name!r} in {data}. Expected {expected}.")
    if len(files) > 1:
        files.pop("", None)
    rows = []
    for part, path in files.items():
        part_rows = located_rows(path)
        if row.columns and all(part_rows[0].column(role, [name]) for role, name in row.columns.items()):
            part_rows = renamed(part_rows, row.columns)  # as on the hub
        rows += _with_part(part_rows, part if row.kind == "classification" else "")
    return rows, {"source": str(next(iter(files.values())))}, []


def _rows_of_hub(row: DataSet, split: str) -> tuple[list[Row], dict[str, Any], list[str]]:
    """Read a split of pairs, or all parts of classes, from the hub: the rows, their source, and notes."""
    files = " or ".join(map(str, _files_of(row, split, Path("DIR")).values()))
    instead = f"the file itself, or --data-folder DIR with {files}"
    if row.hub is None or (row.kind == "pairs" and split not in row.hub_splits):
        name = row.name if split == "test" else f"{row.name}.{split}"
        raise DataError(f"{name!r} is not on the hub. Give {instead}.")
    notes = [] if row.revision else [f"The revision of {row.hub} is not pinned: none could be confirmed."]
    notes = [row.note, *notes] if row.note and row.kind == "pairs" else notes
    rows = []
    for part in (split,) if row.kind == "pairs" else row.hub_splits:
        hub_part = renamed(hub_rows(row.hub, row.revision, row.hub_splits[part], instead), row.columns)
        rows += _with_part(hub_part, part if row.parts else "")
    return rows, {"source": f"hub:{row.hub}", "revision": row.revision}, notes


# -- files ------------------------------------------------------------------------------------------------------------


def _task_of_rows(
    kind: str, name: str, rows: Sequence[Row], source: Mapping[str, Any], columns: Mapping[str, str] | None = None
) -> LabeledTask:
    """Create a task of a kind from rows.

    Raises:
        DataError: a missing column or an invalid value; the message contains file and line.
    """
    source = {**source, "columns": dict(columns)} if columns else source
    if kind == "retrieval":  # a document equal to the query is no answer, unless labelled as one
        return RetrievalTask(name, *answers_from_rows(rows), ignore_identical_ids=True, source=source)
    task_class, convert = OF_ROWS[kind]
    return task_class(name, tuple(convert(rows)), source=source)


def _with_part(rows: list[Row], part: str) -> list[Row]:
    """Set the part of all rows; "" leaves them unchanged."""
    return [row._replace(values={**row.values, "split": part}) for row in rows] if part else rows
