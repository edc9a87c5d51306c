"""Kinds and columns, also with names of one's own; rows that are refused."""

from pathlib import Path
from typing import Any

import pandas
import pytest

from command_line import write_rows
from essent.errors import DataError, InputError
from essent.tasks.clusters import ClusterTask
from essent.tasks.data import Row
from essent.tasks.examples import ROLES, renamed
from essent.tasks.geometry import GeometryTask
from essent.tasks.labels import LabelTask
from essent.tasks.locate import as_task, load_labelled, load_pairs, load_task
from essent.tasks.pairs import DuplicateTask, PairTask, TripletTask
from essent.tasks.retrieval import RetrievalTask

LABELLED = [{"text": f"text {n}", "label": "ab"[n % 2]} for n in range(20)]


def pair(**columns: Any) -> dict[str, Any]:
    return {"sentence1": "a", "sentence2": "b", **columns}


@pytest.mark.parametrize(
    ("rows", "kind"),
    [
        ([pair(score=3.5, label=1, subset="a"), pair(score=0, label=0, subset="b")], PairTask),
        ([pair(label=3), pair(label=0)], PairTask),
        ([pair(label=True), pair(label=False)], DuplicateTask),
        ([pair(label="1"), pair(label="0")], DuplicateTask),
        ([pair(label=name) for name in ("entailment", "neutral") * 10], LabelTask),
        ([{"Anchor": "a", "Positive": "b", "Negative": "c"}], TripletTask),
        ([{"query": "a", "positive": "b"}], RetrievalTask),
        ([{"text": f"t{n}", "cluster": n % 2} for n in range(20)], ClusterTask),
        ([{**row, "document": "d", "split": ("train", "test")[n > 15]} for n, row in enumerate(LABELLED)], LabelTask),
        ([{"anchor": "a", "document": name, "relevance": n} for n, name in enumerate("bc")], RetrievalTask),
        ([{"text": "one\ntwo", "score": 0.5}, {"text": "three\nfour", "score": 0.1}], PairTask),
    ],
)
def test_the_columns_tell_the_kind(tmp_path: Path, rows: list[dict[str, Any]], kind: type) -> None:
    """Also columns with names of one's own, which are read ignoring case."""
    from_file: Any = load_task(write_rows(tmp_path / "mine.jsonl", rows))
    in_memory: Any = as_task(rows)
    assert (from_file.name, in_memory.name) == ("mine", from_file.kind)
    columns = {role.lower(): f"my {role}" for role in rows[0]}
    own = [{f"My {role}": value for role, value in row.items()} for row in rows]
    renamed_file = load_task(write_rows(tmp_path / "own.jsonl", own), columns=columns)
    assert (from_file.source.get("columns"), renamed_file.source["columns"]) == (None, columns)
    for task in (
        from_file,
        in_memory,
        as_task(pandas.DataFrame(rows)),
        load_labelled(f"{from_file.kind}:{tmp_path / 'mine.jsonl'}"),
        renamed_file,
        as_task(own, columns=columns),
    ):
        assert type(task) is kind
        assert task.digest() == from_file.digest()


@pytest.mark.parametrize("column", ["label", "grade"])
def test_columns_of_relevance(column: str) -> None:
    task: Any = as_task([{"query": "a", "positive": f"b{n}", column: n} for n in range(3)])
    assert sorted(grade for grades in task.relevant.values() for grade in grades.values()) == [0, 1, 2]
    named = {"relevance": "mine"}
    task = as_task([{"query": "a", "positive": f"b{n}", column: 0, "mine": n} for n in range(3)], columns=named)
    assert sorted(grade for grades in task.relevant.values() for grade in grades.values()) == [0, 1, 2]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"text": "a"}], r"line 1: no kind of labels has the columns 'text'\. Rename.*: pairs \(sentence1"),
        ([pair(label=1), {"text": "a", "label": 0}], r"line 2: no column 'sentence1'.*all rows must be of one kind"),
        ([pair(label=1), pair(label=1)], "2 of 2 pairs are duplicates"),
        ([{"anchor": "a", "positive": "b"}, {"anchor": "a", "positive": "b", "negative": "c"}], "no column 'negative'"),
        ([{"query": "a", "positive": "b", "label": "much"}], "'label', the relevance, must be a whole number"),
        (
            [{"query": "a", "positive": "b", "label": grade} for grade in (1, 1, 0)],
            "line 3: this query and this positive have a different relevance in a row above",
        ),
    ],
)
def test_invalid_rows_are_refused(tmp_path: Path, rows: list[dict[str, Any]], message: str) -> None:
    with pytest.raises(DataError, match=message):
        load_task(write_rows(tmp_path / "mine.jsonl", rows))


def test_the_named_kind_is_what_is_read(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "texts.jsonl", LABELLED)
    classes, clusters = (load_task(f"{kind}:{path}") for kind in ("classification", "clustering"))
    assert (type(classes), type(clusters)) == (LabelTask, ClusterTask)
    assert (classes.name, clusters.name) == ("classification.texts", "clustering.texts")
    assert classes.texts() == clusters.texts()
    pairs = write_rows(tmp_path / "pairs.jsonl", [pair(score=n) for n in range(6)])
    assert isinstance(load_task(f"geometry:{pairs}"), GeometryTask)
    with pytest.raises(InputError, match="has no labels to search on"):
        load_labelled(f"geometry:{pairs}")


def test_too_many_classes_are_refused_before_allocation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("essent.tasks.labels.MOST_TARGETS", 10_000_000)
    with pytest.raises(DataError, match="2,000 classes and 6,000 examples"):
        as_task([{"text": str(n), "label": n % 2000} for n in range(6000)])


def beir(folder: Path, labels: str = "q1\td1\t1\nq2\td2\t2\n", split: str = "test") -> Path:
    write_rows(
        folder / "corpus.jsonl", [{"_id": "d1", "title": "One", "text": "first"}, {"_id": "d2", "text": "second"}]
    )
    write_rows(folder / "queries.jsonl", [{"_id": "q1", "text": "one?"}, {"_id": "q2", "text": "two?"}])
    (folder / "qrels").mkdir(exist_ok=True)
    (folder / "qrels" / f"{split}.tsv").write_text(f"query-id\tcorpus-id\tscore\n{labels}", "utf-8")
    return folder


def test_a_beir_folder(tmp_path: Path) -> None:
    folder = beir(tmp_path / "mine")
    task: Any = load_task(folder)
    assert (task.name, task.texts()) == ("mine", ["one?", "two?", "One first", "second"])
    assert task.relevant == {"q1": {"d1": 1}, "q2": {"d2": 2}}
    beir(folder, "q1\td2\t1\n", "dev")
    dev: Any = load_task(folder / "qrels" / "dev.tsv")
    assert (dev.name, list(dev.queries)) == ("mine.dev", ["q1"])
    assert load_task(f"retrieval:{folder}").texts() == task.texts()
    write_rows(folder / "corpus.jsonl", [{"_id": "d1", "text": "x"}, {"_id": "d1", "text": "y"}])
    with pytest.raises(DataError, match=r"corpus\.jsonl, line 2: the id 'd1' occurs twice"):
        load_task(folder)
    write_rows(folder / "corpus.jsonl", [{"text": "x"}])
    with pytest.raises(DataError, match=r"corpus\.jsonl, line 1: no '_id'. Columns: 'text'"):
        load_task(folder)
    for name in ("test", "dev"):
        (folder / "qrels" / f"{name}.tsv").unlink()
    with pytest.raises(DataError, match=r"must contain test\.tsv or a single \.tsv file, not: none"):
        load_task(folder)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ("q1\td1\t1\nq9\td1\t1\n", "'mine': a label refers to the query 'q9', which is missing"),
        ("q1\td1\t0.5\n", "line 2: expected query-id, corpus-id and score"),
        ("q1\td1\t1\nq1\td1\t2\n", "line 3: 'q1' and 'd1' have a different score in a row above"),
        ("q1\td1\t0\n", "no query with a relevant document"),
    ],
)
def test_bad_labels_name_file_and_line(tmp_path: Path, labels: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        load_task(beir(tmp_path / "mine", labels))


def test_existing_paths_are_not_unknown_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_rows(tmp_path / "mine" / "classification" / "trec.jsonl", LABELLED)
    (tmp_path / "lines.txt").write_text("one\ntwo\n", "utf-8")
    assert isinstance(load_task("trec", "mine"), LabelTask)
    write_rows(tmp_path / "stsb" / "x.jsonl", LABELLED)
    for name, message in (
        ("lines.txt", r"lines\.txt: cannot read files with the suffix '\.txt'.*\.jsonl"),
        ("retrieval:mine", r"mine has no corpus\.jsonl"),
        ("stsb", "No data for 'stsb'"),  # the data set, though a folder has its name
    ):
        with pytest.raises(DataError, match=message):
            load_task(name, "mine")


@pytest.mark.parametrize(
    ("rows", "error", "message"),
    [
        ([pandas.DataFrame(LABELLED)], DataError, "not a DataFrame.*Give a frame itself"),
        (pandas.DataFrame([["a", 0, 1]], columns=["text", "label", "label"]), DataError, "two columns 'label'"),
        ([("a text", "a label")], DataError, "a dictionary by column, such as text and label"),
        (LABELLED[0], InputError, r"\[rows\], not rows"),
        (3, InputError, "A task is a name"),
    ],
)
def test_invalid_rows_in_memory(rows: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        as_task(rows)


# -- columns with names of one's own -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("columns", "values", "expected"),
    [
        (  # instead of other labels, and of a column with the role's name
            {"text": "body", "label": "fine"},
            {"text": "old", "body": "t", "label": "coarse", "fine": "f", "cluster": 3, "split": "test"},
            {"text": "t", "label": "f", "split": "test"},
        ),
        (  # ignoring case, and instead of other queries and documents
            {"query": "q", "positive": "answer"},
            {"q": "a", "answer": "b", "Document": 7, "anchor": "c", "Score": 1},
            {"query": "a", "positive": "b", "Score": 1},
        ),
    ],
)
def test_named_columns_win(columns: dict[str, str], values: dict[str, Any], expected: dict[str, Any]) -> None:
    (row,) = renamed([Row("here", values)], columns)
    assert row.values == expected


def test_unknown_columns_are_refused(tmp_path: Path) -> None:
    file = write_rows(tmp_path / "own.jsonl", [{"body": "a", "topic": "x"}, {"body": "b"}])
    for columns, error, message in (
        ({"text": "bodi"}, DataError, r"own.jsonl, line 1: no column 'bodi' for 'text'\. Columns: 'body', 'topic'\."),
        ({"text": "body", "label": "topic"}, DataError, r"line 2: no column 'topic' for 'label'\. Columns: 'body'\."),
        ({"text": ""}, InputError, r"column of 'text' must be a name, not ''"),
        (["text"], InputError, r"columns=\['text'\]: must be a dictionary by role"),
    ):
        with pytest.raises(error, match=message):
            load_task(file, columns=columns)
    with pytest.raises(InputError, match=rf"Unknown role 'body' in columns \(ROLE=COLUMN.*Roles: {', '.join(ROLES)}\."):
        load_pairs("stsb", tmp_path, columns={"body": "text"})  # before the data are looked for
