"""Finding labelled texts: the catalogue, our folder layout, SentEval's, one's own files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from essent.errors import DataError, InputError, UnknownNameError
from essent.tasks import catalogue
from essent.tasks.catalogue import STS7
from essent.tasks.clusters import ClusterTask
from essent.tasks.examples import Example
from essent.tasks.geometry import GeometryTask
from essent.tasks.labelled_sets import CLASSIFICATION12, CLUSTERING6, TRANSFER7
from essent.tasks.labels import LabelTask
from essent.tasks.locate import load_pairs, load_task
from essent.tasks.names import task_names


def put(path: Path, text: str, encoding: str = "utf-8") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding=encoding)
    return path


def lines(count: int = 20, **more: object) -> str:
    return "".join(json.dumps({"text": f"t{n}", "label": n % 2, **more}) + "\n" for n in range(count))


def test_catalogue() -> None:
    assert set(task_names("classification")) == set(CLASSIFICATION12) >= set(TRANSFER7)
    assert task_names("clustering") == list(CLUSTERING6)
    assert set(STS7) < set(task_names("pairs"))
    assert task_names() == [*task_names("pairs"), *task_names("classification"), *task_names("clustering")]
    with pytest.raises(UnknownNameError, match="kind of task 'cluster'"):
        task_names("cluster")
    with pytest.raises(UnknownNameError, match=r"'trec.dev'"):
        load_task("trec.dev")


def test_own_layout(tmp_path: Path) -> None:
    put(tmp_path / "classification" / "cr.jsonl", lines())
    loaded = load_task("CR", tmp_path)
    assert isinstance(loaded, LabelTask)
    assert (loaded.name, len(loaded), loaded.examples[1]) == ("cr", 20, Example(("t1",), "1"))
    put(tmp_path / "sst2.train.csv", "text,label\na,0\nb,1\n")
    put(tmp_path / "sst2.test.csv", "text,label\nc,0\n")
    put(tmp_path / "sst2.dev.csv", "text,label\nd,1\n")
    parts = [example.part for example in load_task("sst2", tmp_path).examples]  # type: ignore[union-attr]
    assert parts == ["train", "train", "dev", "test"]
    put(tmp_path / "clustering" / "tweet.jsonl", lines())
    tweet = load_task("tweet", tmp_path)
    assert isinstance(tweet, ClusterTask)
    assert "2,472 texts, this one 20" in tweet.notes[0]


def test_one_file_of_a_data_set_with_parts(tmp_path: Path) -> None:
    put(tmp_path / "trec.jsonl", lines())
    task = load_task("trec", tmp_path)
    assert isinstance(task, LabelTask)
    assert "cross-validation" in task.notes[0]


def test_soft_targets_come_from_the_scored_pairs(tmp_path: Path) -> None:
    for part, count in (("train", 12), ("dev", 3), ("test", 4)):
        rows = [{"sentence1": f"a{n}", "sentence2": f"b{n}", "score": n % 5} for n in range(count)]
        put(tmp_path / "sts" / f"stsb.{part}.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    task = load_task("stsb-soft", tmp_path)
    assert isinstance(task, LabelTask)
    assert (task.scale, len(task), task.examples[1].target) == ((1, 5), 19, 1.0)


def test_missing_data(tmp_path: Path) -> None:
    with pytest.raises(DataError) as error:
        load_task("trec", tmp_path)
    for place in ("classification/trec.{train,test}.{jsonl,json,csv,tsv,parquet}", "TREC/train_5500.label"):
        assert str(tmp_path / place) in str(error.value)
    with pytest.raises(DataError, match="does not exist"):
        load_task("agnews", tmp_path / "no")
    with pytest.raises(DataError, match=r"'agnews' is not on the hub.*DIR/clustering/agnews"):
        load_task("agnews")
    with pytest.raises(DataError, match="'mr' is not on the hub"):
        load_task("mr")


def test_senteval_layout(tmp_path: Path) -> None:
    root = tmp_path / "downstream"
    put(root / "MR" / "rt-polarity.pos", "a café\ngood .\n" * 5, encoding="iso-8859-1")
    put(root / "MR" / "rt-polarity.neg", "bad .\n" * 9)
    mr = load_task("mr", tmp_path)
    assert isinstance(mr, LabelTask)
    assert (len(mr), mr.examples[0], mr.examples[-1].target) == (19, Example(("a café",), "1"), "0")
    put(root / "TREC" / "train_5500.label", "DESC:manner How did it go ?\nNUM:dist How far is it ?\n" * 6)
    put(root / "TREC" / "TREC_10.label", "NUM:dist How far ?\n")
    trec = load_task("trec", tmp_path)
    assert isinstance(trec, LabelTask)
    assert trec.examples[0] == Example(("How did it go ?",), "DESC", "train")
    assert trec.examples[-1] == Example(("How far ?",), "NUM", "test")
    header = "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n"
    put(root / "MRPC" / "msr_paraphrase_train.txt", header + '1\t1\t2\tOne "quoted .\tTwo .\n0\t1\t2\tA .\tB .\n' * 6)
    put(root / "MRPC" / "msr_paraphrase_test.txt", header + "1\t1\t2\tC .\tD .\n")
    mrpc = load_task("mrpc", tmp_path)
    assert isinstance(mrpc, LabelTask)
    assert mrpc.examples[0] == Example(('One "quoted .', "Two ."), "1", "train")
    for part in ("train", "dev", "test"):
        put(root / "SST" / "binary" / f"sentiment-{part}", f"{part} text\t1\nother\t0\n")
    assert load_task("sst2", tmp_path).texts()[:2] == ["train text", "other"]
    put(root / "MRPC" / "msr_paraphrase_test.txt", header + "1\t1\n")
    with pytest.raises(DataError, match="line 2: 2 columns, at least 5"):
        load_task("mrpc", tmp_path)
    put(root / "TREC" / "TREC_10.label", "How far\n")
    with pytest.raises(DataError, match="expected CLASS:detail"):
        load_task("trec", tmp_path)
    (root / "MR" / "rt-polarity.neg").unlink()
    with pytest.raises(DataError, match="does not exist"):
        load_task("mr", tmp_path)


def test_own_files(tmp_path: Path) -> None:
    path = put(tmp_path / "mine.csv", "Sentence,Category\n" + "".join(f"t{n},{'ab'[n % 2]}\n" for n in range(20)))
    one, other = load_task(f"classification:{path}"), load_task(f"clustering:{path}")
    assert isinstance(one, LabelTask)
    assert isinstance(other, ClusterTask)
    assert one.examples == other.examples
    assert (one.name, other.name) == ("classification.mine", "clustering.mine")
    split = put(
        tmp_path / "split.jsonl", lines(12, split="train") + lines(4, split="validation") + lines(3, split="test")
    )
    assert {e.part for e in load_task(f"classification:{split}").examples} == {"train", "dev", "test"}  # type: ignore[union-attr]
    train = put(tmp_path / "apart.train.jsonl", lines(12))
    alone = load_task(f"classification:{train}")  # as if it had no parts
    assert (alone.name, {e.part for e in alone.examples}) == ("classification.apart.train", {None})  # type: ignore[union-attr]
    put(tmp_path / "apart.test.jsonl", lines(2))
    apart = load_task(f"classification:{train}")
    assert isinstance(apart, LabelTask)
    assert (apart.name, len(apart)) == ("classification.apart", 14)
    with pytest.raises(DataError, match=r"does not exist\. Did you mean"):
        load_task(f"clustering:{tmp_path / 'mime.csv'}")
    told = load_task(put(tmp_path / "labels.jsonl", lines()))  # from its columns
    assert isinstance(told, LabelTask)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"label": 1}, "no column 'text'"),
        ({"text": "a"}, "no column 'label'"),
        ({"text": 1, "label": 1}, "must be a string, not int"),
        ({"text": "a", "label": None}, "a text, a whole number, true or false, not None"),
        ({"text": "a", "label": 0.5}, "a text, a whole number, true or false, not 0.5"),
        ({"text": "a", "label": " "}, "a text, a whole number, true or false"),
        ({"text": "a", "label": 1, "split": "all"}, "must be one of train"),
        ({"text": "a", "label": 1, "split": "test"}, "in every row or in none"),
        ({"sentence1": "a", "sentence2": "b", "label": 1}, "the other rows have 1 texts"),
        ({"text": "\ud800", "label": 1}, "half a surrogate"),
    ],
)
def test_bad_rows(tmp_path: Path, row: dict, message: str) -> None:
    path = put(tmp_path / "bad.jsonl", lines(2) + json.dumps(row) + "\n")
    with pytest.raises(DataError, match=rf"bad.jsonl, line 3: .*{message}"):
        load_task(f"classification:{path}")


def test_geometry_by_name(tmp_path: Path) -> None:
    rows = [{"sentence1": f"a{n}", "sentence2": f"b{n}", "score": n} for n in range(6)]
    path = put(tmp_path / "pairs.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    normal, raw = load_task(f"geometry:{path}"), load_task(f"geometry-raw:{path}")
    assert isinstance(normal, GeometryTask)
    assert isinstance(raw, GeometryTask)
    assert (normal.normalise, raw.normalise) == (True, False)


def test_only_pairs_will_do(tmp_path: Path) -> None:
    put(tmp_path / "cr.jsonl", lines())
    with pytest.raises(InputError, match=r"cr holds classification, and only scored pairs will do here.*stsb.dev"):
        load_pairs("cr", tmp_path)


def test_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogue, "_rows", dict(catalogue._rows))
    for split in ("train", "test"):
        put(tmp_path / "hub" / f"{split}.jsonl", lines(12 if split == "train" else 4))
    hub = str(tmp_path / "hub")
    catalogue.add(catalogue.Labels("toy", hub=hub, hub_splits={"train": "train", "test": "test"}))
    catalogue.add(catalogue.Labels("parts", ("train", "test"), hub=hub))
    toy, parts = load_task("toy"), load_task("parts")
    assert isinstance(toy, LabelTask)
    assert isinstance(parts, LabelTask)
    assert [len(toy), len(parts)] == [16, 16]
    assert {e.part for e in toy.examples} == {None}
    assert {e.part for e in parts.examples} == {"train", "test"}
    assert "not pinned" in toy.notes[0]


def test_published_parts(tmp_path: Path) -> None:
    for part, count in (("train", 12), ("dev", 4), ("test", 4)):
        for name in ("trec", "cr", "sst5"):
            if (name, part) != ("sst5", "dev"):
                put(tmp_path / "classification" / f"{name}.{part}.jsonl", lines(count))
    trec, cr, sst5 = (load_task(name, tmp_path) for name in ("trec", "cr", "sst5"))
    assert [e.part for e in trec.examples].count("train") == 16  # type: ignore[union-attr]
    assert {e.part for e in cr.examples} == {None}  # type: ignore[union-attr]
    assert "dev is not here" in sst5.notes[0]  # type: ignore[union-attr]
    with pytest.raises(DataError, match="is the task 'trec', without classification:"):
        load_task("classification:trec")
    for part in ("train", "validation", "test"):
        put(tmp_path / f"own.{part}.jsonl", lines(12))
    own = load_task(f"classification:{tmp_path / 'own.train.jsonl'}")
    assert {e.part for e in own.examples} == {"train", "dev", "test"}  # type: ignore[union-attr]
