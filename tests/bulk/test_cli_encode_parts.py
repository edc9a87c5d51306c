"""`essent encode` into a folder of parts: what it says, and with which exit code it ends."""

import os
from pathlib import Path

import numpy as np
import pytest
from bulk_helpers import Bulk, end_of, sentences

from command_line import PROGRAM, error, write_rows

TEXTS = sentences(120)


def run(*words: object, code: int = 0) -> str:
    return error("encode", *words, code=code)


def test_rows_in_and_parts_out(bulk: Bulk) -> None:
    path = bulk.parquet([*TEXTS, None, "", " "])
    words = (path, "-m", bulk.static, "-o", "out")
    output = run(*words, "--rows-per-part", 50)
    assert f"{bulk.out}: 123 rows in 3 parts" in output
    assert "1 row: null (there is no text)" in output
    assert "2 rows: empty (the text is empty, or blank)" in output
    np.testing.assert_array_equal(bulk.vectors()[:120], bulk.encoder().encode(TEXTS))
    output = run(*words, "--rows-per-part", 50)
    assert "123 of them by earlier runs" in output
    assert f"Loading {bulk.static} to resume after 123 rows." in output
    before = bulk.parts()
    assert "rows_per_part was 50 and is now 32768" in run(*words, code=2)
    assert bulk.parts() == before
    assert run(*words, "--force", "--quiet") == ""
    assert bulk.parts() != before


def test_every_option_arrives(bulk: Bulk) -> None:
    rows = [{"id": n, "page": n % 3, "body": text, "lang": "en"} for n, text in enumerate(TEXTS)]
    path = write_rows(Path("a.jsonl"), rows)
    options = ["--column", "body", "--id", "id", "page", "--dtype", "int8"]
    options += ["--prompt", "query: ", "--normalize", "--truncate-dim", 6]
    run(path, "-m", bulk.static, "-o", "out", *options)
    table = bulk.table()
    assert table.column_names == ["id", "page", "other_values", "status", "scale", "embedding"]
    assert table["id"].to_pylist() == list(range(120))
    expected = bulk.encoder().encode(TEXTS, prompt="query: ", normalize_embeddings=True, truncate_dim=6)
    vectors = bulk.vectors() * np.array(table["scale"].to_pylist())[:, None]
    np.testing.assert_allclose(vectors, expected, atol=0.005)


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="needs a shell")
def test_a_bare_locale_and_no_standard_input(monkeypatch: pytest.MonkeyPatch, bulk: Bulk) -> None:
    """Names and texts beyond ASCII arrive under LC_ALL=C; another file may get the number of a closed stdin."""
    texts = [f"schöne Grüße an 東京 {n}" for n in range(50)]
    source = bulk.write("wörter.csv", "\n".join(["ünï,text", *(f"é{n},{text}" for n, text in enumerate(texts))]))
    program = ("sh", "-c", 'exec "$@" <&-', "sh", *PROGRAM)
    monkeypatch.setenv("LC_ALL", "C")
    words = ("wörter.csv", "--rows-per-part", 20, "--workers", 2, "--prompt", "für: ")
    process = bulk.start(*words, program=program, out="äus")
    assert "äus: 50 rows in 3 parts" in end_of(process, 0)
    assert bulk.table("äus")["text"].to_pylist() == texts
    bulk.encode(source, prompt="für: ", rows_per_part=20)
    assert bulk.parts("äus") == bulk.parts()
