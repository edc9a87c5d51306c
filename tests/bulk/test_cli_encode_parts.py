"""`essent encode` into a folder of parts: what it says, and with which exit code it ends."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bulk_helpers import Bulk, contents, sentences, table_of, vectors_of

from command_line import run as run_line
from essent.bulk.parts import read_parts

TEXTS = sentences(120)


def run(*words: object, code: int = 0) -> str:
    return " ".join(run_line("encode", *words, code=code).stderr.split())


def test_rows_in_and_parts_out(bulk: Bulk) -> None:
    path, out = bulk.parquet([*TEXTS, None, "", " "]), bulk.out
    output = run(path, "-m", bulk.static, "-o", out, "--rows-per-part", 50)
    assert f"{out}: 123 rows in 3 parts" in output
    assert "1 row: null (there is no text), first: row" in output
    assert "2 rows: empty (the text is empty, or blank)" in output
    np.testing.assert_array_equal(vectors_of(table_of(out))[:120], bulk.encoder().encode(TEXTS))
    output = run(path, "-m", bulk.static, "-o", out, "--rows-per-part", 50)
    assert "123 of them by earlier runs" in output
    before = contents(out)
    assert "rows_per_part was 50 and is now 32768" in run(path, "-m", bulk.static, "-o", out, code=2)
    assert contents(out) == before
    assert run(path, "-m", bulk.static, "-o", out, "--force", "--quiet") == ""
    assert contents(out) != before


def test_every_option_arrives(tmp_path: Path, bulk: Bulk) -> None:
    rows = [{"id": n, "page": n % 3, "body": text, "lang": "en"} for n, text in enumerate(TEXTS)]
    path, out = tmp_path / "a.jsonl", bulk.out
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    options = ["--column", "body", "--id", "id", "page", "--dtype", "int8"]
    options += ["--prompt", "query: ", "--normalize", "--truncate-dim", 6]
    output = run(path, "-m", bulk.static, "-o", out, *options)
    table = table_of(out)
    assert table.column_names == ["id", "page", "other_values", "status", "scale", "embedding"]
    assert table["id"].to_pylist() == list(range(120))
    assert "cosine with float32 0.9999 on average" in output or "cosine with float32 1.0000 on average" in output
    expected = bulk.encoder().encode(TEXTS, prompt="query: ", normalize_embeddings=True, truncate_dim=6)
    vectors = vectors_of(table) * np.array(table["scale"].to_pylist())[:, None]
    np.testing.assert_allclose(vectors, expected, atol=0.005)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["no.txt"], "no.txt does not exist"),
        (["a.txt", "--column", "body"], "no column 'body'"),
        (["a.txt", "--dtype", "int4"], 'Choose from: "float32", "float16", "int8"'),
        (["a.txt", "--fit", "none.txt"], "none.txt does not exist"),
        (["a.txt", "a.txt"], "is given twice"),
        (["a.txt", "-"], "not standard input"),
    ],
)
def test_usage_errors(words: list, message: str, tmp_path: Path, monkeypatch: Any, bulk: Bulk) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.txt").write_text("a dog\n", "utf-8")
    assert message in run(*words, "-m", bulk.static, "-o", "out", code=2)
    assert not list(Path("out").glob("part-*"))


def test_options_of_parts_are_refused_for_a_file(tmp_path: Path) -> None:
    message = run("a.txt", "-m", "nowhere", "-o", tmp_path / "v.npy", "--rows-per-part", 10, code=2)
    assert "--rows-per-part is for a folder of parts, but" in message


def test_fitted_recipe(bert: Path, tmp_path: Path, bulk: Bulk) -> None:
    bulk.write("a.txt", "\n".join(TEXTS))
    bulk.write("fit.txt", "\n".join(TEXTS[:50]))
    words = [tmp_path / "a.txt", "-m", bert, "-o", bulk.out, "-r", "mean | zscore"]
    run(*words, "--fit", tmp_path / "fit.txt", "--device", "cpu")
    assert "fitted otherwise" in run(*words, code=2)
    (part,) = read_parts(bulk.out).values()
    assert (part.run["recipe"], bool(part.run["fit"])) == ("mean | zscore", True)
