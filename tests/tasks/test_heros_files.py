"""HEROS' files: both layouts, any order of columns, two columns of one name, and what is wrong where."""

from __future__ import annotations

import csv
import json
import math
import random
import sys
import types
from collections.abc import Sequence
from pathlib import Path

import pytest

from essent.errors import DataError
from essent.tasks.examples import SUBSETS
from essent.tasks.heros import HerosTask, load_heros
from essent.tasks.sample import sample_minimal_pairs_path

RELEASED = ("Original", "Synonym", "Antonym", "Negation", "Random", "Typo", "Negation")


@pytest.fixture(scope="module")
def demo() -> HerosTask:
    return load_heros(sample_minimal_pairs_path())


def wide(task: HerosTask) -> list[dict[str, str]]:
    rows: dict[str, dict[str, str]] = {}
    for pair in task.pairs:
        rows.setdefault(pair.original, {"Original": pair.original})[pair.subset] = pair.changed
    return list(rows.values())


def write_table(path: Path, header: Sequence[str], rows: Sequence[Sequence[str]]) -> Path:
    tabs = path.suffix == ".tsv"
    with path.open("w", encoding="utf-8", newline="") as file:
        quoting = csv.QUOTE_NONE if tabs else csv.QUOTE_MINIMAL
        csv.writer(file, delimiter="\t" if tabs else ",", quoting=quoting).writerows([header, *rows])
    return path


@pytest.mark.parametrize(("suffix", "seed"), [(".tsv", 0), (".csv", 1)])
def test_columns_in_any_order_with_two_called_negation(demo: HerosTask, tmp_path: Path, suffix: str, seed: int) -> None:
    order = random.Random(seed).sample(["Original", *SUBSETS], 7)  # noqa: S311
    rows = [[row[name] for name in order] for row in wide(demo)]
    task = load_heros(write_table(tmp_path / f"heros{suffix}", [name.split(" ")[0] for name in order], rows))
    assert set(task.pairs) == set(demo.pairs)
    negations = [name for name in order if name.startswith("Negation")]
    columns = dict(zip(negations, ("Negation", "Negation.1"), strict=True))
    assert {name: task.source["columns"][name] for name in negations} == columns
    reason = f"{columns['Negation (Antonym)']!r} changes them at the antonym's place in 20 of the 20 rows that tell"
    assert reason in task.source["columns_read"]


def test_ambiguous_negations_are_read_in_order(tmp_path: Path) -> None:
    rows = [["It is not so.", "It is thus.", "It is else.", "It is so.", "It is on.", "It is sso.", "It is so."]]
    task = load_heros(write_table(tmp_path / "h.tsv", RELEASED, rows))
    assert task.source["columns"]["Negation (Main)"] == "Negation"
    assert "by position, the main verb's first: their sentences do not tell" in task.source["columns_read"]


def test_json_and_empty_cells(demo: HerosTask, tmp_path: Path) -> None:
    rows: list[dict] = wide(demo)
    rows[0]["Typo"], rows[1]["Synonym"], rows[2]["Antonym"] = None, "  ", math.nan  # as pandas has empty cells
    (tmp_path / "h.json").write_text(json.dumps(rows), encoding="utf-8")
    empty = {(row["Original"], subset) for row, subset in zip(rows, ("Typo", "Synonym", "Antonym"), strict=False)}
    assert set(load_heros(tmp_path / "h.json").pairs) == {p for p in demo.pairs if (p[0], p[2]) not in empty}

    row = ["It is so.", "It is not so.", "It is thus."]
    task = load_heros(write_table(tmp_path / "h.csv", ["Original", "Negation", "Negation_Antonym"], [row]))
    names = {"Original": "Original", "Negation (Main)": "Negation", "Negation (Antonym)": "Negation_Antonym"}
    assert (task.source["columns"], task.source["columns_read"]) == (names, "by name")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("Original,Negation\na,b\n", r"which negation 'Negation' is cannot be told"),
        ("Original,Negation,Negation,Negation\na,b,c,d\n", r"'Negation' and 'Negation.1' and 'Negation.2'"),
        ("Original,Typo,Typos\na,b,c\n", "'Typo', 'Typos' are both 'Typo'"),
        ("Synonym,Typo\na,b\n", "has a column 'Original' and one for each of Synonym"),
        ("Original,Typo\na,b\n,c\n", r"line 3: the column 'Original' is empty"),
        ("Original,Typo\na,\n", "no row has a changed sentence"),
        ("original,subset\na,Typo\n", "no column 'converted'"),
        (
            "original,converted,subset\na,b,Typo\na,b,Negation\n",
            r"line 3: the subset 'Negation' is not one of HEROS. Did you mean 'Negation \(Main\)'",
        ),
        ("original,converted,subset\na,,Typo\n", "line 2: the column 'converted' is empty"),
    ],
)
def test_errors_name_the_line(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "bad.csv"
    path.write_text(content)
    with pytest.raises(DataError, match=rf"bad\.csv.*{message}"):
        load_heros(path)


def test_the_hub(demo: HerosTask, monkeypatch: pytest.MonkeyPatch) -> None:
    """With `datasets` replaced, as there is no hub here. Asks for the right data set, says what it read."""
    rows = [
        {"Negation.1" if name == "Negation (Antonym)" else name.split(" ")[0]: text for name, text in row.items()}
        for row in wide(demo)
    ]
    requests: list[tuple] = []

    def load_dataset(repo: str, revision: str | None, split: str) -> types.SimpleNamespace:
        requests.append((repo, revision, split))
        return types.SimpleNamespace(to_list=lambda: rows)

    monkeypatch.setitem(sys.modules, "datasets", types.SimpleNamespace(load_dataset=load_dataset))
    for data in (None, "hub", "hub:me/mine"):
        task = load_heros(data)
        assert set(task.pairs) == set(demo.pairs)
        assert "not pinned" in task.notes[0]
    assert requests == [("dcml0714/Heros", None, "train")] * 2 + [("me/mine", None, "train")]
    rows.clear()
    with pytest.raises(DataError, match=r"no rows"):
        load_heros()
