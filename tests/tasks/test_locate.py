"""Finding a task's pairs: the catalogue, our folder layout, SentEval's, a single file, the hub."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from essent.errors import DataError, InputError, UnknownNameError
from essent.tasks import catalogue
from essent.tasks.catalogue import STS7, Pairs, add
from essent.tasks.data import Pair
from essent.tasks.locate import load_task
from essent.tasks.names import find_row, task_names

LINE = '{"sentence1": "a", "sentence2": "b", "score": %s}\n'


def put(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def test_catalogue() -> None:
    names = task_names("pairs")
    assert names == [*STS7[:5], "stsb", "stsb.dev", "stsb.train", "sickr", "sickr.dev", "sickr.train", "str"]
    for name in STS7:
        row, split = find_row(name)
        assert split == "test"
        assert row.revision is not None
        assert len(row.revision) == 40


@pytest.mark.parametrize(
    ("name", "split", "expected"),
    [
        ("stsb", None, ("stsb", "test")),
        ("stsb", "dev", ("stsb", "dev")),
        ("stsb.train", None, ("stsb", "train")),
        ("stsb.dev", "dev", ("stsb", "dev")),
        ("STS-B", None, ("stsb", "test")),
        ("SICK-R", "train", ("sickr", "train")),
        ("STS12", None, ("sts12", "test")),
    ],
)
def test_names_and_splits(name: str, split: str | None, expected: tuple[str, str]) -> None:
    row, found = find_row(name, split)
    assert (row.name, found) == expected


def test_unknown_names() -> None:
    with pytest.raises(UnknownNameError, match=r"'sts17'. Did you mean .*'sts1.'.*Tasks: sts12, sts13.*stsb.dev"):
        load_task("sts17")
    with pytest.raises(UnknownNameError, match=r"'stsb.tset'. Did you mean 'stsb"):
        load_task("stsb.tset")
    with pytest.raises(UnknownNameError, match=r"'sts12.dev'"):
        load_task("sts12", split="dev")
    with pytest.raises(UnknownNameError, match=r"Known: "):
        load_task("xyzzy")
    with pytest.raises(InputError, match="different splits"):
        load_task("stsb.dev", split="test")


def test_a_data_set_is_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogue, "_rows", dict(catalogue._rows))
    add(Pairs("mine", scale=(0, 1)))
    add(Pairs("mine", scale=(0, 1)))
    with pytest.raises(ValueError, match="taken"):
        add(Pairs("mine", scale=(0, 5)))
    with pytest.raises(ValueError, match="without dots"):
        add(Pairs("mine.dev"))
    put(tmp_path / "mine.jsonl", LINE % 1)
    assert load_task("mine", tmp_path).pairs == (Pair("a", "b", 1.0),)
    with pytest.raises(DataError, match=r"'mine' is not on the hub. .*DIR/sts/mine.test"):
        load_task("mine")


@pytest.mark.parametrize(
    ("file", "task"),
    [
        ("sts/sts12.jsonl", "sts12"),
        ("sts12.json", "sts12"),
        ("sts/stsb.test.jsonl", "stsb"),
        ("stsb.jsonl", "stsb"),
        ("sts/stsb.dev.jsonl", "stsb.dev"),
        ("sickr.train.jsonl", "sickr.train"),
    ],
)
def test_own_folder_layout(tmp_path: Path, file: str, task: str) -> None:
    path = put(tmp_path / file, LINE % 3)
    loaded = load_task(task, str(tmp_path))
    assert loaded.name == task
    assert loaded.pairs == (Pair("a", "b", 3.0),)
    assert loaded.source["source"] == str(path)


def test_the_nearest_file_counts(tmp_path: Path) -> None:
    put(tmp_path / "stsb.jsonl", LINE % 1)
    assert load_task("stsb", tmp_path).pairs[0].score == 1
    put(tmp_path / "stsb.test.csv", "sentence1,sentence2,score\na,b,2\n")
    assert load_task("stsb", tmp_path).pairs[0].score == 2
    put(tmp_path / "sts" / "stsb.tsv", "sentence1\tsentence2\tscore\na\tb\t3\n")
    assert load_task("stsb", tmp_path).pairs[0].score == 3


def test_missing_data_lists_where_it_was_looked_for(tmp_path: Path) -> None:
    put(tmp_path / "stsb.jsonl", LINE % 1)
    with pytest.raises(DataError) as error:
        load_task("stsb.dev", tmp_path)
    for place in ("sts/stsb.dev.{jsonl,json,csv,tsv,parquet}", "STS/STSBenchmark/sts-dev.csv"):
        assert str(tmp_path / place) in str(error.value)
    assert "/stsb.{" not in str(error.value)
    with pytest.raises(DataError, match="does not exist"):
        load_task("stsb", tmp_path / "no")
    with pytest.raises(DataError, match="is a file; to score its pairs"):
        load_task("stsb", tmp_path / "stsb.jsonl")


def test_a_name_may_be_a_file(tmp_path: Path) -> None:
    path = put(tmp_path / "mine.tsv", "sent1\tsent2\tlabel\na\tb\t1\nc\td\t0\n")
    for name in (path, str(path)):
        task = load_task(name)
        assert (task.name, len(task), task.source["source"]) == ("mine", 2, str(path))
    with pytest.raises(DataError, match=r"Did you mean 'mine.tsv'"):
        load_task(str(tmp_path / "mine.csv"))


def test_scores_outside_the_scale_are_noted(tmp_path: Path) -> None:
    put(tmp_path / "sickr.jsonl", LINE % 0.2 + LINE % 1)
    assert load_task("sickr", tmp_path).notes == ("1 of 2 gold scores lie outside the scale 1–5 of sickr.",)


SUBSETS = {"FNWN": ["4.5", "", "0.25"], "headlines": ["1"], "OnWN": ["2", "3"]}


def senteval_year(root: Path) -> None:
    for name, golds in SUBSETS.items():
        lines = "".join(f"{name} {number} a\t{name} \u2028 b\n" for number in range(len(golds)))
        put(root / f"STS/STS13-en-test/STS.input.{name}.txt", lines)
        put(root / f"STS/STS13-en-test/STS.gs.{name}.txt", "".join(f"{gold}\n" for gold in golds))


@pytest.mark.parametrize("below", ["", "downstream"])
def test_senteval_year(tmp_path: Path, below: str) -> None:
    senteval_year(tmp_path / below)
    task = load_task("sts13", tmp_path)
    assert [(pair.subset, pair.score) for pair in task.pairs] == [
        ("FNWN", 4.5),
        ("FNWN", 0.25),
        ("headlines", 1.0),
        ("OnWN", 2.0),
        ("OnWN", 3.0),
    ]
    assert task.pairs[1] == Pair("FNWN 2 a", "FNWN \u2028 b", 0.25, "FNWN")
    assert task.source["source"] == str(tmp_path / below / "STS/STS13-en-test")


def test_senteval_and_json_lines_have_one_digest(tmp_path: Path) -> None:
    senteval_year(tmp_path)
    senteval = load_task("sts13", tmp_path)
    rows = "".join(json.dumps(pair._asdict()) + "\n" for pair in senteval.pairs)
    assert load_task("sts13", put(tmp_path / "sts/sts13.jsonl", rows).parent).digest() == senteval.digest()


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("STS.gs.OnWN.txt", "1\n", r"STS.input.OnWN.txt has 2 lines, but .*STS.gs.OnWN.txt has 1"),
        ("STS.gs.OnWN.txt", "1\nhigh\n", r"STS.gs.OnWN.txt, line 2: 'score' must be a finite number"),
        ("STS.input.OnWN.txt", "a\tb\nno tab\n", r"STS.input.OnWN.txt, line 2: two sentences with a tab"),
    ],
)
def test_malformed_senteval_year(tmp_path: Path, file: str, text: str, message: str) -> None:
    senteval_year(tmp_path)
    put(tmp_path / "STS/STS13-en-test" / file, text)
    with pytest.raises(DataError, match=message):
        load_task("sts13", tmp_path)


def test_part_of_a_senteval_year_is_not_scored(tmp_path: Path) -> None:
    senteval_year(tmp_path)
    (tmp_path / "STS/STS13-en-test/STS.input.headlines.txt").unlink()
    with pytest.raises(DataError, match=r"STS.input.headlines.txt does not exist"):
        load_task("sts13", tmp_path)


def test_senteval_tables(tmp_path: Path) -> None:
    put(tmp_path / "STS/STSBenchmark/sts-dev.csv", 'news\tMSR\t2012\t0001\t3.5\tA "quoted man.\tTwo, men.\tsource\n')
    put(
        tmp_path / "SICK/SICK_test_annotated.txt",
        "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment\n6\tA boy\tNo boy\t3.3\tNEUTRAL\n",
    )
    assert load_task("stsb.dev", tmp_path).pairs == (Pair('A "quoted man.', "Two, men.", 3.5),)
    assert load_task("sickr", tmp_path).pairs == (Pair("A boy", "No boy", 3.3),)
    put(tmp_path / "STS/STSBenchmark/sts-test.csv", "news\tMSR\t2012\t0001\t3.5\tonly one\n")
    with pytest.raises(DataError, match=r"sts-test.csv, line 1: 6 columns, at least 7"):
        load_task("stsb", tmp_path)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Rows of the catalogue whose repository is a local folder, which `datasets` loads in the same way."""
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.setattr(catalogue, "_rows", dict(catalogue._rows))
    return tmp_path / "repository"


def test_from_the_hub(hub: Path) -> None:
    put(hub / "validation.jsonl", '{"sentence1": "a", "sentence2": "b", "score": 4.0, "genre": "news"}\n' * 2)
    add(Pairs("toy", hub=str(hub), splits=("test", "dev"), hub_splits={"dev": "validation"}, hub_note="Not the same."))
    task = load_task("toy.dev")
    assert task.name == "toy.dev"
    assert task.pairs == (Pair("a", "b", 4.0),) * 2
    assert task.source == {"source": f"hub:{hub}", "revision": None, "split": "validation"}
    assert task.notes == ("Not the same.",)
    with pytest.raises(DataError, match="test split of 'toy' is not on the hub"):
        load_task("toy")


def test_malformed_hub_row(hub: Path) -> None:
    put(hub / "test.jsonl", LINE % 1 + LINE % "null")
    add(Pairs("toy", hub=str(hub)))
    with pytest.raises(DataError, match=r"hub data set .*repository, split test, row 2: 'score'"):
        load_task("toy")


def test_str_from_the_hub_has_both_sentences_in_one_column(hub: Path) -> None:
    hub.mkdir()
    with (hub / "train.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["PairID", "Text", "Score"], ["1", "It rains.\nIt pours.", "0.5"]])
    add(Pairs("toy", hub=str(hub), scale=(0, 1), hub_splits=find_row("str")[0].hub_splits))
    assert load_task("toy").pairs == (Pair("It rains.", "It pours.", 0.5),)
