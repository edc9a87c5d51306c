"""From the name of a classification or clustering task to its data: on the hub, in a folder, or in one's own files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from essent.errors import DataError
from essent.tasks.catalogue import Clusters, Labels
from essent.tasks.clusters import ClusterTask
from essent.tasks.data import SUFFIXES, Row, hub_rows, located_rows
from essent.tasks.examples import PART_NAMES, PARTS, Example, examples_from_rows, scored_from_rows
from essent.tasks.judged import JudgedTask
from essent.tasks.kinds import hint_of_kind, kind_of, task_of_rows
from essent.tasks.labels import LabelTask
from essent.tasks.names import task_names

DEALT = "classification:FILE and clustering:FILE take your own files."


def task_of_file(path: Path, kind: str | None = None) -> JudgedTask:
    """A file as a task; labelled texts in NAME.train.jsonl bring NAME.dev.jsonl and NAME.test.jsonl along.

    Args:
        kind: of `essent.tasks.kinds.COLUMNS`; None tells it from the columns. A kind that is named is part of the
            task's name.

    Raises:
        DataError: no such file, a malformed row, or columns that no kind has.
    """
    if kind is not None and not path.exists() and str(path).lower() in task_names(kind):
        raise DataError(f"{path} is not a file; the data set of that name is the task {str(path)!r}, without {kind}:.")
    rows = located_rows(path)
    found = kind or kind_of(rows)
    before, source = "" if kind is None else f"{kind}.", {"source": str(path)}
    name, dot, part = path.stem.rpartition(".")
    if found == "classification" and dot and part in PART_NAMES:
        files = {other: path.with_name(f"{name}.{other}{path.suffix}") for other in PART_NAMES}
        present = {other: file for other, file in files.items() if file.is_file()}
        if len(present) > 1:
            return LabelTask(before + name, tuple(examples_from_rows(_rows_of_parts(present))), source=source)
    try:
        return task_of_rows(found, before + path.stem, rows, source)
    except DataError as error:
        if kind is None:
            raise
        raise DataError(f"{error}{hint_of_kind(kind, rows)}") from None


def labelled_task(row: Labels | Clusters, data: Path | None) -> LabelTask | ClusterTask:
    """The task of a catalogue row.

    Args:
        data: a folder, or None for the hub.

    Raises:
        DataError: the data cannot be found or has a malformed row.
    """
    if data is None:
        return _from_hub(row)
    if not data.is_dir():
        reason = "is a file" if data.is_file() else "does not exist"
        raise DataError(f"The data folder {data} {reason}. {DEALT}")
    rows, source = _from_folder(row, data)
    examples, notes = _as_published(row, _examples(row, rows))
    if isinstance(row, Clusters) and len(examples) != row.size:
        notes.append(f"The published {row.name} has {row.size:,} texts, this one {len(examples):,}.")
    return _task(row.kind, row.name, examples, {"source": str(source)}, row, tuple(notes))


def _as_published(row: Labels | Clusters, examples: list[Example]) -> tuple[tuple[Example, ...], list[str]]:
    """The published parts: none where it is cross-validation, dev with train where there is no dev; what differs."""
    if not isinstance(row, Labels):
        return tuple(examples), []
    found = {example.part for example in examples}
    notes = [row.note] if row.note else []
    if not row.parts:
        return tuple(example._replace(part=None) for example in examples), notes
    if None in found:
        notes.append(f"{row.name} is published with {', '.join(row.parts)}; here it is one file: cross-validation.")
    elif "dev" in found and "dev" not in row.parts:
        examples = [e._replace(part="train") if e.part == "dev" else e for e in examples]
    elif absent := set(row.parts) - found:
        notes.append(f"{row.name} is published with {', '.join(row.parts)}; {', '.join(sorted(absent))} is not here.")
    return tuple(examples), notes


def _task(
    kind: str,
    name: str,
    examples: tuple[Example, ...],
    source: dict[str, Any],
    row: Labels | Clusters | None = None,
    notes: tuple[str, ...] = (),
) -> LabelTask | ClusterTask:
    if kind == "clustering":
        return ClusterTask(name, examples, source=source, notes=notes)
    return LabelTask(name, examples, row.scale if isinstance(row, Labels) else None, source=source, notes=notes)


def _examples(row: Labels | Clusters, rows: Iterator[Row] | list[Row]) -> list[Example]:
    return scored_from_rows(rows) if isinstance(row, Labels) and row.scale else examples_from_rows(rows)


def _rows_of_parts(files: dict[str, Path]) -> Iterator[Row]:
    for part, path in files.items():
        for where, values in located_rows(path):
            yield Row(where, {**{k: v for k, v in values.items() if k.lower() != "split"}, "split": part})


def _stems(row: Labels | Clusters, data: Path) -> list[Path]:
    scored = isinstance(row, Labels) and row.scale is not None
    name = row.stem if isinstance(row, Labels) and row.stem else row.name
    return [folder / name for folder in (data / ("sts" if scored else row.kind), data)]


def _from_folder(row: Labels | Clusters, data: Path) -> tuple[Iterator[Row] | list[Row], Path]:
    for stem in _stems(row, data):
        for suffix in SUFFIXES:
            files = {part: stem.with_name(f"{stem.name}.{part}{suffix}") for part in PARTS}
            found = {part: file for part, file in files.items() if file.is_file()}
            if {"train", "test"} <= set(found) and isinstance(row, Labels):
                return _rows_of_parts(found), found["train"]
            single = stem.with_name(f"{stem.name}{suffix}")
            if single.is_file() and not (isinstance(row, Labels) and row.scale):
                return located_rows(single), single
    senteval = row.senteval if isinstance(row, Labels) else None
    for root in (data, data / "downstream"):
        if senteval and any(file.is_file() for file in senteval.files(root)):
            return senteval.rows(root), senteval.files(root)[0].parent
    looked = "\n  ".join(_patterns(row, data))
    raise DataError(f"No data for {row.name!r} in {data}. Looked for:\n  {looked}")


def _patterns(row: Labels | Clusters, data: Path) -> list[str]:
    kinds = ",".join(suffix[1:] for suffix in SUFFIXES)
    parts = row.parts if isinstance(row, Labels) else ()
    marks = [*([f".{{{','.join(parts)}}}"] if parts else []), *([] if isinstance(row, Labels) and row.scale else [""])]
    patterns = [f"{stem}{mark}.{{{kinds}}}" for stem in _stems(row, data) for mark in marks]
    senteval = row.senteval.files(data) if isinstance(row, Labels) and row.senteval else []
    return [*patterns, *map(str, senteval[:1])]


def _from_hub(row: Labels | Clusters) -> LabelTask | ClusterTask:
    instead = f"--data-folder DIR, with {' or '.join(_patterns(row, Path('DIR')))}"
    if isinstance(row, Clusters) or row.hub is None:
        raise DataError(f"{row.name!r} is not on the hub. Give local files: {instead}.")
    rows = []
    names = {"train": "train", "dev": "validation", "test": "test"}
    for part, split in (row.hub_splits or {part: names[part] for part in row.parts}).items():
        where = f"hub data set {row.hub}, split {split}"
        for number, values in enumerate(hub_rows(row.hub, row.revision, split, instead), start=1):
            columns = {name: value for name, value in values.items() if name.lower() != "split"}
            rows.append(Row(f"{where}, row {number}", {**columns, "split": part} if row.parts else columns))
    source = {"source": f"hub:{row.hub}", "revision": row.revision}
    unpinned = f"The revision of {row.hub} is not pinned: none could be confirmed." if row.revision is None else ""
    examples, notes = _as_published(row, _examples(row, rows))
    notes += [note for note in (row.hub_note, unpinned) if note]
    return _task(row.kind, row.name, examples, source, row, tuple(notes))
