"""Columns with names of one's own: every kind of task reads the same examples as with the usual names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from essent.errors import DataError, InputError
from essent.tasks.columns import ROLES
from essent.tasks.data import rows_in_memory
from essent.tasks.locate import as_task, load_labelled, load_pairs, load_task

ROWS = {
    "pairs": [
        {"sentence1": "A cat sleeps.", "sentence2": "A cat naps.", "score": 4.5, "subset": "a"},
        {"sentence1": "A cat sleeps.", "sentence2": "Rain falls.", "score": 0.0, "subset": "b"},
    ],
    "duplicates": [{"sentence1": "a", "sentence2": "b", "label": n % 2} for n in range(4)],
    "triplets": [{"anchor": f"a {n}", "positive": f"p {n}", "negative": f"n {n}"} for n in range(3)],
    "classification": [
        {"text": f"text {n}", "label": "xy"[n % 2], "split": "train test".split()[n > 9]} for n in range(20)
    ],
    "clustering": [{"text": f"text {n}", "cluster": "xy"[n % 2]} for n in range(20)],
    "retrieval": [{"query": f"q {n}", "document": f"d {n}", "relevance": 1} for n in range(3)],
}


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return path


@pytest.mark.parametrize("kind", ROWS)
def test_every_role_of_every_kind(kind: str, tmp_path: Path) -> None:
    rows = ROWS[kind]
    columns = {role: f"My {role}" for role in rows[0]}
    own = [{columns[role]: value for role, value in row.items()} for row in rows]
    expected = load_task(write(tmp_path / "data.jsonl", rows))
    task = load_task(write(tmp_path / "own.jsonl", own), columns={role: name.lower() for role, name in columns.items()})
    assert (task.kind, task.digest()) == (kind, expected.digest())
    assert task.source["columns"] == {role: name.lower() for role, name in columns.items()}
    assert "columns" not in expected.source
    for table in (own, pd.DataFrame(own)):
        assert as_task(table, columns=columns).digest() == expected.digest()
    for explicit in (f"{kind}:{tmp_path / 'own.jsonl'}", Path(tmp_path / "own.jsonl")):
        assert load_labelled(explicit, columns=columns).digest() == expected.digest()


@pytest.mark.parametrize(
    ("columns", "values", "expected"),
    [
        # other names of the role, of the labels and of other kinds' texts
        (
            {"text": "body", "label": "fine"},
            {"text": "old", "body": "t", "label": "coarse", "fine": "f", "cluster": 3, "question": "q", "answer": "a"},
            {"text": "t", "label": "f"},
        ),
        ({"query": "q"}, {"q": "x", "anchor": "y", "text": "z", "answer": "a"}, {"answer": "a", "query": "x"}),
        (
            {"sentence2": "b"},
            {"sentence1": "a", "b": "c", "score": 1, "text": "t"},
            {"sentence1": "a", "score": 1, "sentence2": "c"},
        ),
        ({"score": "label", "text": "text"}, {"text": "a\nb", "label": 1}, {"score": 1, "text": "a\nb"}),
        ({"sentence1": "b", "sentence2": "a"}, {"a": "x", "b": "y"}, {"sentence1": "y", "sentence2": "x"}),
    ],
)
def test_named_columns_win(columns: dict[str, str], values: dict[str, Any], expected: dict[str, Any]) -> None:
    (row,) = rows_in_memory([values], "data", columns)
    assert row.values == expected


def test_refusals(tmp_path: Path) -> None:
    file = write(tmp_path / "own.jsonl", [{"body": "a", "topic": "x"}, {"body": "b"}])
    roles = ", ".join(ROLES)
    for columns, error, message in (
        ({"body": "text"}, InputError, rf"Unknown role 'body' in columns \(ROLE=COLUMN.*Roles: {roles}\."),
        ({"text": "bodi"}, DataError, r"own.jsonl, line 1: no column 'bodi' for 'text'. Columns: 'body', 'topic'."),
        ({"label": "kind"}, DataError, r"no column 'kind' for 'label'. Columns: 'body', 'topic'."),
        ({"text": "body", "label": "topic"}, DataError, r"line 2: no column 'topic' for 'label'. Columns: 'body'."),
        ({"text": ""}, InputError, r"column of 'text' must be a name, not ''"),
        (["text"], InputError, r"columns=\['text'\]: must be a dictionary by role"),
    ):
        with pytest.raises(error, match=message):
            load_task(file, columns=columns)
    with pytest.raises(InputError, match="Unknown role 'body'"):
        load_pairs("stsb", tmp_path, columns={"body": "text"})  # before the data are looked for
