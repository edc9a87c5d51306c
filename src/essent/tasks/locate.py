"""Loading of tasks: by name from the catalogue, the hub or a folder, from one file, or from memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from essent._core.registry import did_you_mean
from essent._core.texts import distinct_texts
from essent.errors import DataError, InputError, UnknownNameError
from essent.tasks.base import LabeledTask, Task, as_matrix
from essent.tasks.catalogue import ON_HUB, Clusters, Labels, Pairs, find_row, task_names
from essent.tasks.clusters import ClusterTask
from essent.tasks.data import SUFFIXES, Row, hub_rows, located_rows, rows_in_memory
from essent.tasks.examples import (
    COLUMNS,
    PART_NAMES,
    PARTS,
    Example,
    answers_from_rows,
    duplicates_from_rows,
    examples_from_rows,
    kind_of,
    pairs_from_rows,
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
GEOMETRY = {"geometry": "simcse", "geometry-raw": "raw"}


def load_task(name: str | Path, data: str | Path | None = None) -> LabeledTask | GeometryTask:
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
            - "geometry:TASK" or, in the other published setting, "geometry-raw:TASK": the geometry of the vectors of
              scored pairs (see `essent.tasks.geometry.SETTINGS`).
        data: folder with local files of catalogue tasks; None reads the hub. The first existing file is read, of
            `sts/NAME.jsonl` (`classification/`, `clustering/`) and `NAME.jsonl` (also .json, .csv, .tsv, .parquet;
            `NAME.SPLIT.jsonl` first, and without SPLIT the test split of pairs). Ignored for files and folders.

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
    kind, colon, target = str(name).partition(":")
    if colon and kind in GEOMETRY:
        return GeometryTask.of_pairs(load_pairs(target, data), GEOMETRY[kind])
    if colon and kind in COLUMNS:
        return _task_of_kind(kind, target, data)
    path = Path(name)
    if is_beir(path):
        return beir_task(path)
    if isinstance(name, Path) or _is_file_name(path):
        return _task_of_file(path)
    try:
        row, split = find_row(str(name))
    except UnknownNameError:
        if path.exists():
            return _task_of_file(path)
        raise
    folder = None if data is None else Path(data)
    return _pairs_of_row(row, split, folder) if isinstance(row, Pairs) else _labels_of_row(row, folder)


def load_pairs(name: str | Path, data: str | Path | None = None) -> PairTask:
    """Load a task of scored pairs; see `load_task`.

    Raises:
        InputError: a task of another kind; the message lists the tasks of scored pairs.

    Example:
        >>> from essent.tasks import load_pairs
        >>> task = load_pairs("pairs.jsonl")
        >>> task.pairs[0].sentence1, task.pairs[0].score
        ('Nina is still too young to drive.', 5.0)
    """
    task = load_task(name, data)
    if not isinstance(task, PairTask):
        raise InputError(
            f"Expected scored pairs, but {name} contains {getattr(task, 'kind', 'geometry')}. Give one of "
            f"{', '.join(task_names('pairs'))}, or a file with the columns {COLUMNS['pairs']}."
        )
    return task


def as_task(source: Any, folder: str | Path | None = None, number: int = 1) -> Task:
    """Convert a task's name, a file or rows in memory to a task; a task is returned unchanged.

    Args:
        source: rows are a data frame, a `datasets.Dataset`, or a list of dictionaries or of (sentence1, sentence2,
            score). Their kind follows from their columns and names the task: "pairs", "pairs 2".
        folder: local data for task names.
        number: of this task among several.

    Raises:
        InputError: another type.
        DataError: as `load_task`.
    """
    if isinstance(source, (str, Path)):
        return load_task(source, folder)
    if hasattr(source, "score_vectors"):
        task: Task = source
        return task
    if isinstance(source, (Mapping, tuple)) or not (hasattr(source, "__iter__") or hasattr(source, "columns")):
        raise InputError(
            f"Task {number} is a {type(source).__name__}. A task is a name, a file, a Task, or rows in a list, a frame "
            "or a data set. Give several tasks as a list: [rows], not rows."
        )
    rows = rows_in_memory(source, "data" if number == 1 else f"data {number}")
    kind = kind_of(rows)
    return _task_of_rows(kind, kind if number == 1 else f"{kind} {number}", rows, {"source": "memory"})


def load_labelled(source: Any, folder: str | Path | None = None) -> LabeledTask:
    """Convert a source to a task with labels; see `as_task`.

    Raises:
        InputError: minimal pairs or geometry, which have no score for a search.
    """
    task = as_task(source, folder)
    if not isinstance(task, LabeledTask):
        raise InputError(f"{source} has no labels to search on. Give labelled data of a kind: {', '.join(COLUMNS)}.")
    return task


@dataclass(frozen=True)
class TaskScorer:
    """A callable for `scoring=` of scikit-learn's searches, created by `scorer`.

    Attributes:
        task: the labelled data without a test part, which a choice must not read.
        score: name of the score, ×100.

    Example:
        >>> from essent.tasks import scorer
        >>> scoring = scorer("reviews.csv", "f1_macro")
        >>> scoring.score, scoring.task.units
        ('f1_macro', 40)
    """

    task: LabeledTask
    score: str

    def __call__(self, estimator: Any, X: Any = None, y: Any = None) -> float:
        """Score a fitted transformer's vectors of the task's texts, ×100; `X` and `y` are ignored."""
        distinct, rows = distinct_texts(self.task.texts())
        vectors = as_matrix(estimator.transform(distinct), distinct)
        evidence = self.task.evidence(vectors, rows.tolist())
        return float(self.task.scores(evidence[None], self.score)[0])


def scorer(data: Any, score: str = "", folder: str | Path | None = None) -> TaskScorer:
    """Create a scikit-learn scorer for transformers of texts, from labels of any kind.

    The labels are not rows of `X`, so they are not split. Fit on other texts, or on `scorer.task.texts()` with one
    split of all texts to get the score of `search` and `evaluate`.

    Args:
        data: a task, its name, a file, or rows in memory, as in `essent.search`.
        score: "spearman", "f1_macro", "recall@10" …; by default the main score of the kind.
        folder: local data for task names.

    Raises:
        InputError, DataError: data without labels.
        UnknownNameError: a score that this kind does not have.

    Example:
        >>> from sklearn.model_selection import GridSearchCV
        >>> from essent import EncoderTransformer
        >>> from essent.tasks import scorer
        >>> by_pairs = scorer("data/sts/stsb.jsonl")
        >>> texts = by_pairs.task.texts()
        >>> transformer = EncoderTransformer("sentence-transformers/all-MiniLM-L6-v2")
        >>> grid, everything = {"recipe": ["mean", "static"]}, [(range(len(texts)), range(len(texts)))]
        >>> GridSearchCV(transformer, grid, scoring=by_pairs, cv=everything).fit(texts).best_params_
        {'recipe': 'mean'}
    """
    task = load_labelled(data, folder).scored_by(score).for_choice()
    if score and score not in task.score_names:
        known = list(task.score_names)
        raise UnknownNameError(f"{task.name} ({task.kind}) has no score {score!r}. {did_you_mean(score, known)}")
    return TaskScorer(task, score or task.score_names[0])


# -- data sets of the catalogue ---------------------------------------------------------------------------------------


def _pairs_of_row(row: Pairs, split: str, data: Path | None) -> PairTask:
    name = row.name if split == "test" else f"{row.name}.{split}"
    stems = _stems("sts", dict.fromkeys((f"{row.name}.{split}", name)), data)
    notes: tuple[str, ...] = ()
    source: dict[str, Any]
    if data is not None:
        path = next((file for stem in stems if (file := _file(stem))), None)
        if path is None:
            raise _no_data(row.name, data, stems)
        rows, source = located_rows(path), {"source": str(path), "split": split}
    elif row.hub is None or split not in row.hub_splits:
        where = f" ({row.hub})" if row.hub else ""
        raise DataError(f"The {split} split of {row.name!r} is not on the hub{where}. Give {_instead(stems)}.")
    else:
        rows = hub_rows(row.hub, row.revision, row.hub_splits[split], _instead(stems))
        source = {"source": f"hub:{row.hub}", "revision": row.revision, "split": row.hub_splits[split]}
        notes = (row.hub_note,) * bool(row.hub_note)
    pairs, (low, high) = tuple(pairs_from_rows(rows)), row.scale
    if outside := sum(not low <= pair.score <= high for pair in pairs):  # a wrong column may be the reason
        notes = (*notes, f"{outside} of {len(pairs)} gold scores lie outside the scale {low}–{high} of {row.name}.")
    return PairTask(name, pairs, source=source, notes=notes)


def _labels_of_row(row: Labels | Clusters, data: Path | None) -> LabelTask | ClusterTask:
    folder = "clustering" if isinstance(row, Clusters) else "sts" if row.scale else "classification"
    stems = _stems(folder, [getattr(row, "stem", None) or row.name], data)
    notes: tuple[str, ...] = ()
    if data is None and isinstance(row, Labels) and row.hub is not None:
        rows, source = [], {"source": f"hub:{row.hub}", "revision": row.revision}
        for part, split in (row.hub_splits or {part: ON_HUB[part] for part in row.parts}).items():
            rows += _rows_of_part(
                hub_rows(row.hub, row.revision, split, _instead(stems, row)), part if row.parts else None
            )
        if row.revision is None:
            notes = (f"The revision of {row.hub} is not pinned: none could be confirmed.",)
    else:
        rows, source = _rows_in_folder(stems, row, data)
    if isinstance(row, Clusters):
        examples = tuple(examples_from_rows(rows))
        differs = f"The published {row.name} has {row.size:,} texts, this one {len(examples):,}."
        return ClusterTask(row.name, examples, source=source, notes=(differs,) * (len(examples) != row.size))
    labelled = examples_from_rows(rows) if row.scale is None else scored_from_rows(rows)
    examples, differences = _as_published(row, tuple(labelled))
    return LabelTask(row.name, examples, row.scale, source=source, notes=(*differences, *notes))


def _as_published(row: Labels, examples: tuple[Example, ...]) -> tuple[tuple[Example, ...], list[str]]:
    """Return the examples with the published parts, and notes about differences.

    Data sets that use cross-validation have no parts; a dev part that is not published is added to train.
    """
    parts = {example.part for example in examples}
    notes = [row.note] if row.note else []
    published = f"{row.name} is published with {', '.join(row.parts)}"
    if not row.parts:
        examples = tuple(example._replace(part=None) for example in examples)
    elif None in parts:
        notes.append(f"{published}; this is one file, scored by cross-validation.")
    elif "dev" in parts and "dev" not in row.parts:
        examples = tuple(e._replace(part="train") if e.part == "dev" else e for e in examples)
    elif absent := set(row.parts) - parts:
        notes.append(f"{published}; {', '.join(sorted(absent))} is missing.")
    return examples, notes


def _rows_in_folder(
    stems: Sequence[Path], row: Labels | Clusters, data: Path | None
) -> tuple[list[Row], dict[str, Any]]:
    """Read the labelled rows of one file, or of one file per part."""
    if data is None:
        raise DataError(f"{row.name!r} is not on the hub. Give {_instead(stems, row)}.")
    for stem in stems:
        files = {part: file for part in PARTS if (file := _file(stem.with_name(f"{stem.name}.{part}")))}
        if isinstance(row, Labels) and {"train", "test"} <= set(files):
            return _rows_of_parts(files), {"source": str(files["train"])}
        if not (isinstance(row, Labels) and row.scale) and (file := _file(stem)):
            return located_rows(file), {"source": str(file)}
    raise _no_data(row.name, data, stems, row)


def _rows_of_parts(files: Mapping[str, Path]) -> list[Row]:
    return [row for part, path in files.items() for row in _rows_of_part(located_rows(path), part)]


def _rows_of_part(rows: Sequence[Row], part: str | None) -> list[Row]:
    """Return the rows with their part replaced by this one."""
    own = [{name: cell for name, cell in row.values.items() if name.lower() != "split"} for row in rows]
    return [Row(row.where, {**cells, "split": part}) for row, cells in zip(rows, own, strict=True)]


def _stems(kind: str, names: Iterable[str], data: Path | None) -> list[Path]:
    """Return the paths at which a data set is searched, without suffixes.

    Raises:
        DataError: no such folder.
    """
    if data is not None and not data.is_dir():
        reason = "is a file. To score it, give its path as the task" if data.is_file() else "does not exist"
        raise DataError(f"The data folder {data} {reason}.")
    root = data or Path("DIR")
    return [folder / name for folder in (root / kind, root) for name in names]


def _file(stem: Path) -> Path | None:
    paths = (stem.with_name(f"{stem.name}{suffix}") for suffix in SUFFIXES)
    return next((path for path in paths if path.is_file()), None)


def _patterns(stems: Sequence[Path], row: Labels | Clusters | None) -> str:
    part = f".{{{','.join(row.parts)}}}" if isinstance(row, Labels) and row.parts else ""
    return " or ".join(f"{stem}{part}.{{{','.join(suffix[1:] for suffix in SUFFIXES)}}}" for stem in stems)


def _instead(stems: Sequence[Path], row: Labels | Clusters | None = None) -> str:
    return f"the file itself, or --data-folder DIR with {_patterns(stems, row)}"


def _no_data(name: str, data: Path, stems: Sequence[Path], row: Labels | Clusters | None = None) -> DataError:
    return DataError(f"No data for {name!r} in {data}. Expected {_patterns(stems, row)}.")


# -- files ------------------------------------------------------------------------------------------------------------


def _task_of_rows(kind: str, name: str, rows: Sequence[Row], source: Mapping[str, Any]) -> LabeledTask:
    """Create a task of a kind from rows.

    Raises:
        DataError: a missing column or an invalid value; the message contains file and line.
    """
    if kind == "retrieval":  # a document equal to the query is no answer, unless labelled as one
        return RetrievalTask(name, *answers_from_rows(rows), ignore_identical_ids=True, source=source)
    build, read = OF_ROWS[kind]
    return build(name, tuple(read(rows)), source=source)


def _task_of_file(path: Path, kind: str | None = None) -> LabeledTask:
    """Create a task from a file, by default of the kind of its columns; a given kind is part of the task's name.

    For labelled texts in NAME.train.jsonl, NAME.dev.jsonl and NAME.test.jsonl are read too.
    """
    rows = located_rows(path)
    prefix, source, kind = f"{kind}." if kind else "", {"source": str(path)}, kind or kind_of(rows)
    name, dot, part = path.stem.rpartition(".")
    if kind == "classification" and dot and part in PART_NAMES:
        files = {part_name: path.with_name(f"{name}.{part_name}{path.suffix}") for part_name in PART_NAMES}
        files = {part_name: file for part_name, file in files.items() if file.is_file()}
        if len(files) > 1:
            return _task_of_rows(kind, prefix + name, _rows_of_parts(files), source)
    return _task_of_rows(kind, prefix + path.stem, rows, source)


def _task_of_kind(kind: str, name: str, data: str | Path | None) -> LabeledTask:
    """Read a file, or a data set of the catalogue, as the given kind."""
    path = Path(name)
    if kind == "retrieval" and (path.is_dir() or is_beir(path)):
        return beir_task(path)
    if path.exists() or _is_file_name(path):
        return _task_of_file(path, kind)
    base, dot, part = name.partition(".")
    task = load_task(base, data)
    if not isinstance(task, (LabelTask, ClusterTask)):
        raise DataError(f"The data set {name!r} cannot be read as {kind}.")
    examples = [example for example in task.examples if example.part == (part or "test")]
    if dot and not examples:
        raise DataError(f"The data set {base!r} has no part {part!r}.")
    rows = [
        Row(f"{name}, example {n}", {**dict(zip(columns, e.texts, strict=False)), "label": e.target})
        for n, e in enumerate(examples or task.examples, start=1)
        for columns in [("text",) if len(e.texts) == 1 else ("sentence1", "sentence2")]
    ]
    return _task_of_rows(kind, f"{kind}.{name}", rows, dict(task.source))


def _is_file_name(path: Path) -> bool:
    return path.suffix.lower() in SUFFIXES or len(path.parts) > 1
