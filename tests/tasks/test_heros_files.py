"""HEROS' files: both layouts, any order of columns, two columns of one name, and what is wrong where."""

from __future__ import annotations

import csv
import json
import random
import sys
import types
from collections.abc import Sequence
from pathlib import Path

import pytest

from essent.errors import DataError
from essent.tasks.heros import SUBSETS, HerosTask
from essent.tasks.heros_files import load_heros, numbered
from essent.tasks.sample import sample_minimal_pairs_path

RELEASED = ("Original", "Synonym", "Antonym", "Negation", "Random", "Typo", "Negation")
HEADS = {subset: subset.split(" ")[0] for subset in SUBSETS}  # both negations "Negation", as released


@pytest.fixture(scope="module")
def demo() -> HerosTask:
    return load_heros(sample_minimal_pairs_path())


def wide(task: HerosTask) -> list[dict[str, str]]:
    rows: dict[str, dict[str, str]] = {}
    for pair in task.pairs:
        rows.setdefault(pair.original, {"Original": pair.original})[pair.subset] = pair.changed
    return list(rows.values())


def write_table(path: Path, header: Sequence[str], rows: Sequence[Sequence[str]], delimiter: str) -> Path:
    with path.open("w", encoding="utf-8", newline="") as file:
        quoting = csv.QUOTE_NONE if delimiter == "\t" else csv.QUOTE_MINIMAL
        csv.writer(file, delimiter=delimiter, quoting=quoting, lineterminator="\n").writerows([header, *rows])
    return path


def test_one_row_a_pair(demo: HerosTask) -> None:
    assert len(demo) == 120
    assert len(demo.originals) == 20
    assert demo.source["columns_read"] == "by name, one row a pair"
    assert demo.name == "sample_minimal_pairs"


@pytest.mark.parametrize("suffix", [".tsv", ".csv"])
@pytest.mark.parametrize("seed", range(4))
def test_columns_in_any_order_with_two_called_negation(demo: HerosTask, tmp_path: Path, suffix: str, seed: int) -> None:
    order = random.Random(seed).sample(["Original", *SUBSETS], 7)  # noqa: S311
    rows = [[row[name] for name in order] for row in wide(demo)]
    header = [HEADS.get(name, name) for name in order]
    path = write_table(tmp_path / f"heros{suffix}", header, rows, "\t" if suffix == ".tsv" else ",")
    found = load_heros(path)
    assert set(found.pairs) == set(demo.pairs)
    negations = [name for name in order if name.startswith("Negation")]
    columns = dict(zip(negations, ("Negation", "Negation.1"), strict=True))
    assert {name: found.source["columns"][name] for name in negations} == columns
    told = f"{columns['Negation (Antonym)']!r} changes them at the antonym's place in 20 of the 20 rows that tell"
    assert told in found.source["columns_read"]


def test_negations_whose_sentences_do_not_tell_are_read_in_their_order(tmp_path: Path) -> None:
    rows = [["It is not so.", "It is thus.", "It is else.", "It is so.", "It is on.", "It is sso.", "It is so."]]
    found = load_heros(write_table(tmp_path / "h.tsv", RELEASED, rows, "\t"))
    assert found.source["columns"]["Negation (Main)"] == "Negation"
    assert "by position, the main verb's first: their sentences do not tell" in found.source["columns_read"]


def test_by_position(demo: HerosTask, tmp_path: Path) -> None:
    order = ["Original", "Negation (Antonym)", "Synonym", "-", "Typo"]
    rows = [[row[name] if name != "-" else "no text" for name in order] for row in wide(demo)]
    path = write_table(tmp_path / "h.csv", ["text", "n", "s", "number", "t"], rows, ",")
    found = load_heros(path, [" original", "negation (antonym)", "SYNONYM ", "-", "typos"])
    assert set(found.pairs) == {pair for pair in demo.pairs if pair.subset in order}
    assert found.source["columns_read"] == "by position, as given"
    assert found.source["columns"]["Synonym"] == "s"


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (["Original", "Synonym"], r"2 columns were given, it has 3: 'a', 'b', 'c'"),
        (["Original", "Negation", "Typo"], "'Negation' is not one of Original"),
        (["Original", "Typo", "typos"], "'Typo' twice"),
        (["-", "Synonym", "Typo"], "must name Original"),
        (["Original", "-", "-"], "at least one of Synonym"),
    ],
)
def test_positions_that_cannot_be(tmp_path: Path, columns: list[str], message: str) -> None:
    path = write_table(tmp_path / "h.csv", ["a", "b", "c"], [["1", "2", "3"]], ",")
    with pytest.raises(DataError, match=message):
        load_heros(path, columns)


def test_rows_of_other_columns_have_no_positions(tmp_path: Path) -> None:
    path = tmp_path / "h.jsonl"
    path.write_text('{"a": "x", "b": "y"}\n{"b": "y", "a": "x"}\n')
    with pytest.raises(DataError, match="line 2: its columns are not those of the first row"):
        load_heros(path, ["Original", "Typo"])


def test_json_parquet_and_empty_cells(demo: HerosTask, tmp_path: Path) -> None:
    import pyarrow
    from pyarrow import parquet

    rows = wide(demo)
    rows[0]["Typo"], rows[1]["Synonym"] = "  ", ""
    table = [{**row, "Typo": row["Typo"].strip() or None, "id": place} for place, row in enumerate(rows)]
    (tmp_path / "h.json").write_text(json.dumps(table), encoding="utf-8")
    parquet.write_table(pyarrow.Table.from_pylist(table), tmp_path / "h.parquet")
    left = {
        p
        for p in demo.pairs
        if (p.original, p.subset) not in {(rows[0]["Original"], "Typo"), (rows[1]["Original"], "Synonym")}
    }
    for name in ("h.json", "h.parquet"):
        assert set(load_heros(tmp_path / name).pairs) == left


def test_one_negation_is_told_by_what_the_other_is_called(tmp_path: Path) -> None:
    row = ["It is so.", "It is not so.", "It is thus."]
    found = load_heros(write_table(tmp_path / "h.csv", ["Original", "Negation", "Negation_Antonym"], [row], ","))
    assert found.source["columns"] == {
        "Original": "Original",
        "Negation (Main)": "Negation",
        "Negation (Antonym)": "Negation_Antonym",
    }
    assert found.source["columns_read"] == "by name"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("Original,Negation\na,b\n", r"which negation 'Negation' is cannot be told"),
        ("Original,Negation,Negation,Negation\na,b,c,d\n", r"'Negation' and 'Negation.1' and 'Negation.2'"),
        ("Original,Typo,Typos\na,b,c\n", "'Typo', 'Typos' are both 'Typo'"),
        ("Synonym,Typo\na,b\n", "has a column 'Original'"),
        ("Original,other\na,b\n", "one for each of Synonym"),
        ("Original,Typo\na,b\n,c\n", r"line 3: the original in the column 'Original' is empty"),
        ("Original,Typo\na,\n", "no row has a changed sentence"),
        ("original,subset\na,Typo\n", "'original', 'converted' .* and 'subset'"),
        (
            "original,converted,subset\na,b,Typo\na,b,Negation\n",
            r"line 3: the subset 'Negation' is not one of HEROS. Did you mean 'Negation \(Main\)'",
        ),
        ("original,converted,subset\na,b,Typo\n,b,Typo\n", "line 3: 'original' is empty"),
        ("original,converted,subset\na,,Typo\n", "line 2: 'converted' is empty"),
        ("Original,Typo\na,b\nc\n", "line 3: 1 fields"),
    ],
)
def test_what_is_wrong_and_where(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "bad.csv"
    path.write_text(content)
    with pytest.raises(DataError, match=message) as raised:
        load_heros(path)
    assert "bad.csv" in str(raised.value)


def test_wrong_types_and_missing_files(tmp_path: Path) -> None:
    path = tmp_path / "h.jsonl"
    path.write_text('{"Original": "a", "Typo": "b"}\n{"Original": "a", "Typo": 3}\n')
    with pytest.raises(DataError, match=r"line 2: 'Typo' must be a string, not int \(3\)"):
        load_heros(path)
    path.write_text('{"Original": "a", "Typo": "\\ud800"}\n')
    with pytest.raises(DataError, match="line 1: 'Typo' holds half a surrogate pair"):
        load_heros(path)
    with pytest.raises(DataError, match=r"does not exist.*h\.jsonl"):
        load_heros(tmp_path / "h.json")


def test_numbered_headers() -> None:
    assert numbered(["a", "b", "a", "a"]) == ["a", "b", "a.1", "a.2"]
    assert numbered(["a", "a", "a.1"]) == ["a", "a.2", "a.1"]


def test_the_hub(demo: HerosTask, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the library's door replaced: the sandbox has no hub. Asks for the right data set, says what it read."""
    order = ("Original", "Synonym", "Antonym", "Negation (Main)", "Random MLM", "Typo", "Negation (Antonym)")
    heads = numbered([HEADS.get(name, name) for name in order])
    rows = [{head: row[name] for head, name in zip(heads, order, strict=True)} for row in wide(demo)]
    asked: list[tuple] = []

    def load_dataset(repo: str, revision: str | None, split: str) -> types.SimpleNamespace:
        asked.append((repo, revision, split))
        return types.SimpleNamespace(to_list=lambda: rows)

    monkeypatch.setitem(sys.modules, "datasets", types.SimpleNamespace(load_dataset=load_dataset))
    for data in (None, "hub"):
        found = load_heros(data)
        assert set(found.pairs) == set(demo.pairs)
        assert found.source["source"] == "hub:dcml0714/Heros"
        assert "not pinned" in found.notes[0]
    assert asked == [("dcml0714/Heros", None, "train")] * 2
    rows.clear()
    with pytest.raises(DataError, match="no rows"):
        load_heros()


def test_the_hub_out_of_reach_names_local_files(monkeypatch: pytest.MonkeyPatch) -> None:
    def load_dataset(repo: str, **_: object) -> None:
        raise ConnectionError("no network")

    monkeypatch.setitem(sys.modules, "datasets", types.SimpleNamespace(load_dataset=load_dataset))
    with pytest.raises(DataError, match=r"dcml0714/Heros.*--data FILE, the heros\.tsv"):
        load_heros("hub")
