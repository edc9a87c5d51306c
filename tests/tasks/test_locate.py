"""Finding a task's data: the catalogue, a folder, one's own files, the hub."""

from pathlib import Path
from typing import Any

import pytest

from command_line import write_rows
from essent.errors import DataError, InputError, UnknownNameError
from essent.tasks.catalogue import DATA_SETS, DataSet, task_names
from essent.tasks.examples import Example, Pair
from essent.tasks.locate import load_pairs, load_task


def scored(*scores: float | None) -> list[dict]:
    return [{"sentence1": "a", "sentence2": "b", "score": score} for score in scores]


def labelled(count: int = 20, **more: object) -> list[dict]:
    return [{"text": f"t{n}", "label": n % 2, **more} for n in range(count)]


def parts_of(task: Any) -> list[str | None]:
    return [example.part for example in task.examples]


# -- names ------------------------------------------------------------------------------------------------------------


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


# -- a folder ---------------------------------------------------------------------------------------------------------


def test_pairs_in_a_folder(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "sts" / "stsb.jsonl", scored(1))
    task = load_pairs("stsb", str(tmp_path))
    assert (task.name, task.pairs, task.source["source"]) == ("stsb", (Pair("a", "b", 1.0),), str(path))
    write_rows(tmp_path / "sts" / "stsb.test.jsonl", scored(2))
    assert load_pairs("stsb", tmp_path).pairs[0].score == 2
    write_rows(tmp_path / "sts" / "sickr.train.jsonl", scored(0.2, 1))
    notes = ("1 of 2 gold scores lie outside the scale 1–5 of sickr.",)
    assert load_pairs("sickr.train", tmp_path).notes == notes


def test_labelled_texts_in_a_folder(tmp_path: Path) -> None:
    folder = tmp_path / "classification"
    write_rows(folder / "mr.jsonl", labelled())
    mr: Any = load_task("mr", tmp_path)
    assert (mr.name, len(mr), mr.examples[1]) == ("mr", 20, Example(("t1",), "1"))
    write_rows(tmp_path / "clustering" / "tweet.jsonl", labelled())
    assert "2,472 texts, this one 20" in load_task("tweet", tmp_path).notes[0]
    write_rows(folder / "mrpc.jsonl", labelled())
    assert "cross-validation" in load_task("mrpc", tmp_path).notes[0]
    for part, count in (("train", 12), ("dev", 4), ("test", 4)):
        for name in ("trec", "cr", "sst2"):
            write_rows(folder / f"{name}.{part}.jsonl", labelled(count))
    trec, cr, sst2 = (load_task(name, tmp_path) for name in ("trec", "cr", "sst2"))
    assert parts_of(trec).count("train") == 16
    assert set(parts_of(cr)) == {None}
    assert set(parts_of(sst2)) == {"train", "dev", "test"}
    (folder / "sst2.dev.jsonl").unlink()
    assert "dev is missing" in load_task("sst2", tmp_path).notes[-1]
    for part in ("train", "dev", "test"):  # as on the hub, the coarse classes
        rows = [{"text": f"t{n}", "label_coarse": n % 2, "label": n % 4} for n in range(12)]
        write_rows(folder / f"trec.{part}.jsonl", rows)
    coarse: Any = load_task("trec", tmp_path)
    assert {example.target for example in coarse.examples} == {"0", "1"}
    (folder / "trec.test.jsonl").unlink()
    with pytest.raises(DataError, match="No data for 'trec'"):
        load_task("trec", tmp_path)


def test_soft_targets_come_from_the_scored_pairs(tmp_path: Path) -> None:
    for part, count in (("train", 12), ("dev", 3), ("test", 4)):
        write_rows(tmp_path / "sts" / f"stsb.{part}.jsonl", scored(*range(count)))
    task: Any = load_task("stsb-soft", tmp_path)
    assert (task.scale, len(task), task.examples[1].target) == ((1, 5), 19, 1.0)


def test_missing_data_lists_where_it_was_looked_for(tmp_path: Path) -> None:
    write_rows(tmp_path / "sts" / "stsb.jsonl", scored(1))
    for task, folder, message in (
        ("stsb.dev", tmp_path, r"No data for 'stsb' in .*\. Expected [^ ]*sts/stsb\.dev\.jsonl\.$"),
        ("trec", tmp_path, r"classification/trec\.train\.jsonl or .* or [^ ]*classification/trec\.jsonl\.$"),
        ("agnews", None, r"'agnews' is not on the hub.*DIR/clustering/agnews\.jsonl"),
        ("sickr.train", None, r"'sickr.train' is not on the hub.* DIR/sts/sickr\.train\.jsonl"),
    ):
        with pytest.raises(DataError, match=message):
            load_task(task, folder)


# -- files ------------------------------------------------------------------------------------------------------------


def test_a_name_may_be_a_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.tsv"
    path.write_text("sentence1\tsentence2\tscore\na\tb\t1\nc\td\t0.5\n")
    task = load_pairs(str(path))
    assert (task.name, len(task), task.source["source"]) == ("mine", 2, str(path))
    with pytest.raises(DataError, match=r"mine\.csv does not exist\. Did you mean 'mine\.tsv'"):
        load_task(str(tmp_path / "mine.csv"))
    with pytest.raises(DataError, match="no task and no file"):
        load_task("A whole text. " * 30)
    with pytest.raises(InputError, match=r"Expected scored pairs, but .* contains classification.*stsb.dev"):
        load_pairs(write_rows(tmp_path / "texts.jsonl", labelled()))


def test_parts_of_files(tmp_path: Path) -> None:
    rows = labelled(12, part="train") + labelled(4, part="validation") + labelled(3, part="test")
    assert set(parts_of(load_task(write_rows(tmp_path / "parts.jsonl", rows)))) == {"train", "dev", "test"}


# -- the hub ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository that is a local folder, which `datasets` loads in the same way; four data sets are there."""
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    folder, own = tmp_path / "repository", {"text": "body", "label": "topic"}
    dev_and_test, parts = {"dev": "validation", "test": "test"}, {"train": "train", "test": "test"}
    for row in (
        DataSet("toy", hub=str(folder), splits=("test", "dev"), hub_splits=dev_and_test, note="Not the same."),
        DataSet("absent", hub=str(folder), hub_splits={"test": "other"}),
        DataSet("folds", "classification", str(folder), hub_splits=parts, columns=own),
        DataSet("parts", "classification", str(folder), hub_splits=parts, columns=own, parts=("train", "test")),
    ):
        monkeypatch.setitem(DATA_SETS, row.name, row)
    return folder


def test_pairs_from_the_hub(hub: Path) -> None:
    write_rows(hub / "validation.jsonl", [{**row, "genre": "news"} for row in scored(4.0, 4.0)])
    write_rows(hub / "test.jsonl", scored(1, None))
    task = load_pairs("toy.dev")
    notes = ("Not the same.", f"The revision of {hub} is not pinned: none could be confirmed.")
    assert (task.name, task.pairs, task.notes) == ("toy.dev", (Pair("a", "b", 4.0),) * 2, notes)
    assert task.source == {"source": f"hub:{hub}", "revision": None, "split": "dev"}
    with pytest.raises(DataError, match=r"hub data set .*repository, split test, row 2: 'score'"):
        load_task("toy")
    with pytest.raises(DataError, match=r"split 'other' of the data set .*repository.*--data-folder DIR"):
        load_task("absent")


def test_labelled_texts_from_the_hub(hub: Path) -> None:
    for split, count in (("train", 12), ("test", 4)):
        write_rows(hub / f"{split}.jsonl", [{"body": f"t{n}", "topic": n % 2, "label": n} for n in range(count)])
    toy, parts = load_task("folds"), load_task("parts")
    assert [len(toy), len(parts)] == [16, 16]  # type: ignore[arg-type]
    assert set(parts_of(toy)) == {None}
    assert set(parts_of(parts)) == {"train", "test"}
    assert "not pinned" in toy.notes[0]  # type: ignore[union-attr]
