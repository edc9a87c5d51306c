"""Loading of tasks: by name from the catalogue, the hub or a folder, from one file, or from memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from essent.errors import DataError, InputError, UnknownNameError
from essent.tasks.base import LabeledTask, Task
from essent.tasks.catalogue import ON_HUB, Clusters, DataSet, Labels, Pairs, find_row, task_names
from essent.tasks.clusters import ClusterTask
from essent.tasks.columns import check_roles
from essent.tasks.data import SUFFIXES, Row, hub_rows, located_rows, rows_in_memory
from essent.tasks.examples import (
    COLUMNS,
    PART_NAMES,
    PARTS,
    answers_from_rows,
    duplicates_from_rows,
    examples_from_rows,
    kind_of,
    pairs_from_rows,
    part_of,
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
EACH_PART = f".{{{','.join(PARTS)}}}"  # in a file's name


def load_task(
    name: str | Path, data: str | Path | None = None, *, columns: Mapping[str, str] | None = None
) -> LabeledTask | GeometryTask:
    """Load a task by name, or from a file or folder.

    Args:
        name: one of

            - a task of the catalogue: "sts12", "stsb.dev", "trec", "agnews";
            - a file, whose kind follows from its columns (`essent.tasks.examples.COLUMNS`). Parts of a classification
              come from its column `split`, or from files next to it if its name is NAME.train.jsonl;
            - "KIND:FILE" or "KIND:TASK" to set the kind: "clustering:FILE" reads labelled texts as clusters,
              "duplicates:mrpc" a data set of the catalogue as duplicates;
            - a folder in BEIR's layout (corpus.jsonl, queries.jsonl and qrels/SPLIT.tsv), or one of its qrels files to
              choose a split;
            - "geometry:TASK", the geometry of the vectors of scored pairs.
        data: folder with local files of catalogue tasks; None reads the hub. The first existing file is read, of
            `sts/NAME.jsonl` (`classification/`, `clustering/`) and `NAME.jsonl` (also .json, .csv, .tsv, .parquet;
            `NAME.SPLIT.jsonl` first, and without SPLIT the test split of pairs). Ignored for files and folders.
        columns: names of the columns of a file by role, if they differ from the usual ones: {"text": "body", "label":
            "category"}. Roles are the keys of `essent.tasks.columns.ROLES`. Ignored for tasks of the catalogue and
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
    path, folder = Path(target), None if data is None else Path(data)
    if kind in ("", "retrieval") and (is_beir(path) or (kind and path.is_dir())):
        return beir_task(path)
    is_file_name = isinstance(name, Path) or path.suffix.lower() in SUFFIXES or len(path.parts) > 1
    if is_file_name or (kind and path.exists()):
        return _task_of_file(path, kind, columns)
    base, _, part = target.partition(".")
    try:
        data_set, split = find_row(base if kind else target)
    except UnknownNameError:
        if path.exists():
            return _task_of_file(path, kind, columns)
        raise
    if kind in ("", data_set.kind):
        return _task_of_catalogue(*find_row(target), folder)
    rows, source, _ = _rows_of_catalogue(data_set, split, folder)
    rows = [row for row in rows if part_of(row) in (None, part or "test")]
    if not rows:
        raise DataError(f"The data set {base!r} has no part {part or 'test'!r}.")
    return _task_of_rows(kind, f"{kind}.{target}", rows, source)


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
    rows = rows_in_memory(source, "data" if number == 1 else f"data {number}", columns)
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
    rows, source, notes = _rows_of_catalogue(row, split, data)
    if isinstance(row, Pairs):
        pairs, (low, high) = tuple(pairs_from_rows(rows)), row.scale
        if outside := sum(not low <= pair.score <= high for pair in pairs):  # a wrong column may be the reason
            notes.append(f"{outside} of {len(pairs)} gold scores lie outside the scale {low}–{high} of {row.name}.")
        name = row.name if split == "test" else f"{row.name}.{split}"
        return PairTask(name, pairs, source=source, notes=tuple(notes))
    examples = (scored_from_rows if getattr(row, "scale", None) else examples_from_rows)(rows)
    if isinstance(row, Clusters):
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


def _rows_of_catalogue(row: DataSet, split: str, data: Path | None) -> tuple[list[Row], dict[str, Any], list[str]]:
    """Read a data set from the folder `data` or the hub: its rows, their source, and notes.

    Raises:
        DataError: nothing to read; the message lists the searched files.
    """
    stem, scale = getattr(row, "stem", None) or row.name, getattr(row, "scale", None)
    names = [stem]  # without suffix; the preferred one first
    if isinstance(row, Pairs):
        names = [f"{stem}.{split}", *[stem] * (split == "test")]
    elif isinstance(row, Labels):
        names = [stem + EACH_PART, *[stem] * (scale is None)]
    root = data or Path("DIR")
    folders = (root / ("sts" if scale else row.kind), root)
    suffixes = ",".join(suffix[1:] for suffix in SUFFIXES)
    expected = " or ".join(f"{folder / name}.{{{suffixes}}}" for folder in folders for name in names)
    if data is None:
        return _rows_of_hub(row, split, f"the file itself, or --data-folder DIR with {expected}")
    if not data.is_dir():
        reason = "is a file. To score it, give its path as the task" if data.is_file() else "does not exist"
        raise DataError(f"The data folder {data} {reason}.")
    for folder, name in product(folders, names):
        files: dict[str | None, Path | None] = {}
        for part in PARTS if name.endswith(EACH_PART) else (None,):
            file = name.replace(EACH_PART, f".{part}")
            files[part] = next(filter(Path.is_file, (folder / f"{file}{suffix}" for suffix in SUFFIXES)), None)
        if all(file or part == "dev" for part, file in files.items()):
            source = {"source": str(next(iter(files.values())))}
            return _rows_of_parts(files.items()), source | ({"split": split} if isinstance(row, Pairs) else {}), []
    raise DataError(f"No data for {row.name!r} in {data}. Expected {expected}.")


def _rows_of_hub(row: DataSet, split: str, instead: str) -> tuple[list[Row], dict[str, Any], list[str]]:
    if isinstance(row, Clusters) or row.hub is None or (row.hub_splits and split not in row.hub_splits):
        name = row.name if split == "test" else f"{row.name}.{split}"
        raise DataError(f"{name!r} is not on the hub. Give {instead}.")
    source: dict[str, Any] = {"source": f"hub:{row.hub}", "revision": row.revision}
    notes = [] if row.revision else [f"The revision of {row.hub} is not pinned: none could be confirmed."]
    if isinstance(row, Pairs):
        rows = hub_rows(row.hub, row.revision, row.hub_splits[split], instead)
        return rows, {**source, "split": row.hub_splits[split]}, [*[row.hub_note] * bool(row.hub_note), *notes]
    rows = []
    for part, hub_split in (row.hub_splits or {part: ON_HUB[part] for part in row.parts}).items():
        rows += _with_part(hub_rows(row.hub, row.revision, hub_split, instead), part if row.parts else None)
    return rows, source, notes


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


def _task_of_file(path: Path, kind: str, columns: Mapping[str, str] | None) -> LabeledTask:
    """Create a task from a file, by default of the kind of its columns; a given kind is part of the task's name.

    If the file is NAME.train.jsonl and contains labelled texts, its siblings NAME.dev.jsonl and NAME.test.jsonl are
    read as well (or the siblings of NAME.dev.jsonl, or of NAME.test.jsonl).
    """
    rows = located_rows(path, columns=columns)
    prefix, title, kind = f"{kind}." if kind else "", path.stem, kind or kind_of(rows)
    name, _, part = title.rpartition(".")
    files = {other: path.with_name(f"{name}.{other}{path.suffix}") for other in PART_NAMES}
    files = {other: file for other, file in files.items() if file.is_file()}
    if kind == "classification" and name and part in files and len(files) > 1:
        title, rows = name, _rows_of_parts(files.items(), columns)
    return _task_of_rows(kind, prefix + title, rows, {"source": str(path)}, columns)


def _rows_of_parts(
    files: Iterable[tuple[str | None, Path | None]], columns: Mapping[str, str] | None = None
) -> list[Row]:
    return [row for part, path in files if path for row in _with_part(located_rows(path, columns=columns), part)]


def _with_part(rows: list[Row], part: str | None) -> list[Row]:
    """Set the part of all rows; None leaves them unchanged."""
    if part is None:
        return rows
    cells = [{name: cell for name, cell in row.values.items() if name.lower() != "split"} for row in rows]
    return [row._replace(values={**values, "split": part}) for row, values in zip(rows, cells, strict=True)]
