"""Finding a task's data: the catalogue, a folder, one's own files, the hub."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from command_line import write_rows
from essent.errors import DataError, InputError, UnknownNameError
from essent.tasks import catalogue
from essent.tasks.catalogue import CLASSIFICATION12, CLUSTERING6, STS7, Labels, Pairs, add, find_row, task_names
from essent.tasks.clusters import ClusterTask
from essent.tasks.examples import Example, Pair
from essent.tasks.locate import load_pairs, load_task


def scored(*scores: float | None) -> list[dict]:
    return [{"sentence1": "a", "sentence2": "b", "score": score} for score in scores]


def labelled(count: int = 20, **more: object) -> list[dict]:
    return [{"text": f"t{n}", "label": n % 2, **more} for n in range(count)]


def parts_of(task: Any) -> list[str | None]:
    return [example.part for example in task.examples]


# -- names ------------------------------------------------------------------------------------------------------------


def test_catalogue() -> None:
    names = task_names("pairs")
    assert names == [*STS7[:5], "stsb", "stsb.dev", "stsb.train", "sickr", "sickr.dev", "sickr.train", "str"]
    assert task_names() == [*names, *task_names("classification"), *task_names("clustering")]
    assert (set(task_names("classification")), task_names("clustering")) == (set(CLASSIFICATION12), list(CLUSTERING6))
    assert all(len(str(find_row(name)[0].revision)) == 40 for name in STS7)  # type: ignore[union-attr]
    assert (find_row("SICK-R.train")[0].name, find_row("stsb.dev")[1]) == ("sickr", "dev")


def test_unknown_names() -> None:
    for name, message in (
        ("sts17", "'sts17'. Did you mean .*'sts1.'.*Tasks: sts12, sts13.*stsb.dev"),
        ("sts12.dev", "'sts12.dev'"),
        ("xyzzy", "Known: "),
    ):
        with pytest.raises(UnknownNameError, match=message):
            load_task(name)
    with pytest.raises(UnknownNameError, match="kind of task 'cluster'"):
        task_names("cluster")


def test_a_data_set_is_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogue, "_rows", dict(catalogue._rows))
    add(Pairs("mine", scale=(0, 1)))
    with pytest.raises(ValueError, match="taken"):
        add(Pairs("mine", scale=(0, 5)))
    with pytest.raises(ValueError, match="without dots"):
        add(Pairs("mine.dev"))
    write_rows(tmp_path / "mine.jsonl", scored(1))
    assert load_task("mine", tmp_path).pairs == (Pair("a", "b", 1.0),)  # type: ignore[union-attr]


# -- a folder ---------------------------------------------------------------------------------------------------------


def test_the_nearest_file_counts(tmp_path: Path) -> None:
    write_rows(tmp_path / "stsb.jsonl", scored(1))
    assert load_pairs("stsb", tmp_path).pairs[0].score == 1
    (tmp_path / "stsb.test.csv").write_text("sentence1,sentence2,score\na,b,2\n")
    assert load_pairs("stsb", tmp_path).pairs[0].score == 2
    path = tmp_path / "sts" / "stsb.tsv"
    path.parent.mkdir()
    path.write_text("sentence1\tsentence2\tscore\na\tb\t3\n")
    nearest = load_pairs("stsb", str(tmp_path))
    assert (nearest.name, nearest.pairs, nearest.source["source"]) == ("stsb", (Pair("a", "b", 3.0),), str(path))
    write_rows(tmp_path / "sickr.train.jsonl", scored(0.2, 1))
    outside = load_pairs("sickr.train", tmp_path)
    assert outside.name == "sickr.train"
    assert outside.notes == ("1 of 2 gold scores lie outside the scale 1–5 of sickr.",)


def test_labelled_texts_in_a_folder(tmp_path: Path) -> None:
    write_rows(tmp_path / "classification" / "mr.jsonl", labelled())
    mr: Any = load_task("MR", tmp_path)
    assert (mr.name, len(mr), mr.examples[1]) == ("mr", 20, Example(("t1",), "1"))
    write_rows(tmp_path / "clustering" / "tweet.jsonl", labelled())
    tweet = load_task("tweet", tmp_path)
    assert isinstance(tweet, ClusterTask)
    assert "2,472 texts, this one 20" in tweet.notes[0]
    write_rows(tmp_path / "mrpc.jsonl", labelled())
    assert "cross-validation" in load_task("mrpc", tmp_path).notes[0]
    for part, count in (("train", 12), ("dev", 4), ("test", 4)):
        for name in ("trec", "cr", "sst2", "sst5"):
            write_rows(tmp_path / "classification" / f"{name}.{part}.jsonl", labelled(count))
    (tmp_path / "classification" / "sst5.dev.jsonl").unlink()
    trec, cr, sst2, sst5 = (load_task(name, tmp_path) for name in ("trec", "cr", "sst2", "sst5"))
    assert parts_of(trec).count("train") == 16
    assert set(parts_of(cr)) == {None}
    assert set(parts_of(sst2)) == {"train", "dev", "test"}
    assert "dev is missing" in sst5.notes[0]


def test_soft_targets_come_from_the_scored_pairs(tmp_path: Path) -> None:
    for part, count in (("train", 12), ("dev", 3), ("test", 4)):
        rows = [{"sentence1": f"a{n}", "sentence2": f"b{n}", "score": n % 5} for n in range(count)]
        write_rows(tmp_path / "sts" / f"stsb.{part}.jsonl", rows)
    task: Any = load_task("stsb-soft", tmp_path)
    assert (task.scale, len(task), task.examples[1].target) == ((1, 5), 19, 1.0)


def test_missing_data_lists_where_it_was_looked_for(tmp_path: Path) -> None:
    write_rows(tmp_path / "stsb.jsonl", scored(1))
    for task, pattern in (("stsb.dev", "sts/stsb.dev.{"), ("trec", "classification/trec.{train,dev,test}.{")):
        with pytest.raises(DataError) as error:
            load_task(task, tmp_path)
        assert str(tmp_path / f"{pattern}jsonl,json,csv,tsv,parquet}}") in str(error.value)
        assert "/stsb.{" not in str(error.value)
    for task, folder, message in (
        ("stsb", tmp_path / "no", "does not exist"),
        ("agnews", tmp_path / "stsb.jsonl", r"is a file\. To score it"),
        ("agnews", None, r"'agnews' is not on the hub.*DIR/clustering/agnews"),
        ("sickr.train", None, r"'sickr.train' is not on the hub.* DIR/sts/sickr.train"),
    ):
        with pytest.raises(DataError, match=message):
            load_task(task, folder)


# -- files ------------------------------------------------------------------------------------------------------------


def test_a_name_may_be_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "mine.tsv"
    path.write_text("sent1\tsent2\tlabel\na\tb\t1\nc\td\t0.5\n")
    for name in (path, str(path)):
        task = load_pairs(name)
        assert (task.name, len(task), task.source["source"]) == ("mine", 2, str(path))
    (tmp_path / "agnews").write_text(path.read_text())  # with a kind, a path comes before the catalogue
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match="agnews"):
        load_task("clustering:agnews")
    with pytest.raises(DataError, match=r"Did you mean 'mine.tsv'"):
        load_task(str(tmp_path / "mine.csv"))
    with pytest.raises(InputError, match=r"Expected scored pairs, but .* contains classification.*stsb.dev"):
        load_pairs(write_rows(tmp_path / "texts.jsonl", labelled()))


def test_parts_of_files(tmp_path: Path) -> None:
    rows = labelled(12, split="train") + labelled(4, split="validation") + labelled(3, split="test")
    assert set(parts_of(load_task(write_rows(tmp_path / "split.jsonl", rows)))) == {"train", "dev", "test"}
    train = write_rows(tmp_path / "apart.train.jsonl", labelled(12))
    alone = load_task(train)  # as if it had no parts
    assert (alone.name, set(parts_of(alone))) == ("apart.train", {None})
    for part in ("validation", "test"):
        write_rows(tmp_path / f"apart.{part}.jsonl", labelled(2))
    apart = load_task(train)
    assert (apart.name, set(parts_of(apart))) == ("apart", {"train", "dev", "test"})


# -- the hub ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository that is a local folder, which `datasets` loads in the same way."""
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.setattr(catalogue, "_rows", dict(catalogue._rows))
    return tmp_path / "repository"


def test_pairs_from_the_hub(hub: Path) -> None:
    write_rows(hub / "validation.jsonl", [{**row, "genre": "news"} for row in scored(4.0, 4.0)])
    write_rows(hub / "test.jsonl", scored(1, None))
    hub_splits = {"dev": "validation", "test": "test"}
    add(Pairs("toy", hub=str(hub), splits=("test", "dev"), hub_splits=hub_splits, hub_note="Not the same."))
    task = load_pairs("toy.dev")
    notes = ("Not the same.", f"The revision of {hub} is not pinned: none could be confirmed.")
    assert (task.name, task.pairs, task.notes) == ("toy.dev", (Pair("a", "b", 4.0),) * 2, notes)
    assert task.source == {"source": f"hub:{hub}", "revision": None, "split": "validation"}
    with pytest.raises(DataError, match=r"hub data set .*repository, split test, row 2: 'score'"):
        load_task("toy")
    add(Pairs("absent", hub=str(hub), hub_splits={"test": "other"}))
    with pytest.raises(DataError, match=r"split 'other' of the data set .*repository.*--data-folder DIR"):
        load_task("absent")


def test_labelled_texts_from_the_hub(hub: Path) -> None:
    for split, count in (("train", 12), ("test", 4)):
        write_rows(hub / f"{split}.jsonl", labelled(count))
    add(Labels("toy", hub=str(hub), hub_splits={"train": "train", "test": "test"}))
    add(Labels("parts", ("train", "test"), hub=str(hub)))
    toy, parts = load_task("toy"), load_task("parts")
    assert [len(toy), len(parts)] == [16, 16]  # type: ignore[arg-type]
    assert set(parts_of(toy)) == {None}
    assert set(parts_of(parts)) == {"train", "test"}
    assert "not pinned" in toy.notes[0]  # type: ignore[union-attr]
