"""`essent encode` to a file: every input and output; nothing is computed for a call that cannot end well."""

from __future__ import annotations

import datetime
import json
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet as parquet
import pytest

from command_line import TEXTS, error, run, write_rows
from essent import Encoder

ROWS: list[dict] = [
    {"id": 7, "text": "A man plays a flute.", "tags": ["a", "b"]},
    {"id": 8, "text": None, "tags": []},
    {"id": 9, "text": "Two dogs run.", "price": 1.5},
]


@pytest.fixture
def call(tiny: str):
    def encode(*arguments: object, **options):
        return run("encode", "-m", tiny, *arguments, **options)

    return encode


def json_rows(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_formats(call, tiny: str, lines: Path, tmp_path: Path) -> None:
    expected = Encoder(tiny, "first-last | zscore").fit(TEXTS).encode(TEXTS)
    folder = tmp_path / "new"
    command = ("-r", "first-last | zscore", lines, "-o")
    completed = call(*command, folder / "v.npy")
    assert "fitted on the input itself" in completed.stderr
    assert completed.stdout == ""
    assert np.load(folder / "v.npy").dtype == np.float32
    np.testing.assert_allclose(np.load(folder / "v.npy"), expected, atol=1e-6)
    assert call(*command, folder / "v.parquet", "--quiet").stderr == ""
    table = parquet.read_table(folder / "v.parquet")
    assert table.schema.field("embedding").type == pyarrow.list_(pyarrow.float32())
    assert table["text"].to_pylist() == TEXTS
    np.testing.assert_allclose(np.array(table["embedding"].to_pylist(), np.float32), expected, atol=1e-6)
    call(*command, folder / "v.jsonl")
    rows = json_rows(folder / "v.jsonl")
    assert [row["text"] for row in rows] == TEXTS
    np.testing.assert_allclose(np.array([row["embedding"] for row in rows], np.float32), expected, atol=1e-6)
    assert sorted(path.name for path in folder.iterdir()) == ["v.jsonl", "v.npy", "v.parquet"]


def test_standard_input_and_options(call, tiny: str, tmp_path: Path) -> None:
    stdin = "\ufeffA man\r\n\nThe dogs run\u2028on\n".encode()
    options = ("--prompt", "query: ", "--normalize", "--truncate-dim", 8, "--device", "cpu")
    call("-r", "cls", *options, "--batch-size", 1, "-o", tmp_path / "v.npy", stdin=stdin)
    texts = ["A man", "", "The dogs run\u2028on"]
    expected = Encoder(tiny, "cls").encode(texts, prompt="query: ", normalize_embeddings=True, truncate_dim=8)
    np.testing.assert_allclose(np.load(tmp_path / "v.npy"), expected, atol=1e-6)


def test_texts_of_several_files_in_their_order(call, tiny: str, lines: Path, tmp_path: Path) -> None:
    recipe, more = "mean | zscore", tmp_path / "more.csv"
    more.write_text('id,body\n0,"Two cats, a dog"\n1,One bird.\n', "utf-8")
    assert "no column 'text'" in call(more, "-o", tmp_path / "v.npy", code=2).stderr
    fitted = Encoder(tiny, recipe).fit([*TEXTS, "Two cats, a dog", "One bird."])
    expected = fitted.encode(["Two cats, a dog", "A", "B", *TEXTS[:1]])
    command = (more, "-", lines, "-r", recipe, "--column", "body", "-o", tmp_path / "v.npy", "-f")
    for files in (("--fit", lines, more), ("--fit", lines, "--fit", more)):
        completed = call(*command, *files, stdin=b"A\nB\n")
        np.testing.assert_allclose(np.load(tmp_path / "v.npy")[[0, 2, 3, 4]], expected, atol=1e-6)
        assert f"is fitted on {lines}, {more}." in completed.stderr
    twice = call("-", "-", "-o", tmp_path / "x.npy", code=2, stdin=b"A\n").stderr
    assert "Standard input (-) can be read once only." in twice


def test_a_prompt_stands_before_the_texts_of_a_fit_too(call, tiny: str, lines: Path, tmp_path: Path) -> None:
    corpus = ["Two dogs run.", "The moon.", "A man plays.", "A man runs far."]
    path, recipe = tmp_path / "corpus.txt", "weights=idf | centre"
    path.write_text("\n".join(corpus))
    call("-r", recipe, lines, "--fit", path, "--prompt", "say ", "-o", tmp_path / "v.npy")
    encoder = Encoder(tiny, recipe).fit([f"say {text}" for text in corpus])
    np.testing.assert_allclose(np.load(tmp_path / "v.npy"), encoder.encode(TEXTS, prompt="say "), atol=1e-6)
    completed = call("-r", "mean", lines, "--fit", path, "-o", tmp_path / "w.npy")
    assert f"learns nothing: --fit {path} is not used" in completed.stderr


def test_saved_encoder_needs_no_recipe_and_no_fit(tiny: str, lines: Path, tmp_path: Path) -> None:
    encoder = Encoder(tiny, "mean | zscore").fit(TEXTS)
    encoder.prompts, encoder.default_prompt_name = {"query": "query: "}, "query"
    encoder.save(str(tmp_path / "saved"))
    log = run("encode", "-m", tmp_path / "saved", lines, "-o", tmp_path / "v.npy").stderr
    assert "fitted" not in log
    assert "--prompt chooses another" in log
    np.testing.assert_allclose(np.load(tmp_path / "v.npy"), encoder.encode(TEXTS), atol=1e-5)
    refused = error("encode", "-m", tmp_path / "saved", "-r", "mean", lines, "-o", tmp_path / "w.npy")
    assert "its own recipe" in refused


def test_columns_and_null_texts(call, tiny: str, tmp_path: Path) -> None:
    texts = write_rows(tmp_path / "rows.jsonl", ROWS)
    log = call("-r", "mean | centre", texts, "-o", tmp_path / "v.jsonl").stderr
    rows = json_rows(tmp_path / "v.jsonl")
    assert [list(row) for row in rows] == [["id", "text", "tags", "price", "embedding"]] * 3
    assert [(row["id"], row["text"], row["tags"], row["price"]) for row in rows] == [
        (7, ROWS[0]["text"], ["a", "b"], None),
        (8, None, [], None),
        (9, ROWS[2]["text"], None, 1.5),
    ]
    nonnull = [ROWS[0]["text"], ROWS[2]["text"]]
    expected = Encoder(tiny, "mean | centre").fit(nonnull).encode(nonnull)
    assert rows[1]["embedding"] is None
    np.testing.assert_allclose([rows[0]["embedding"], rows[2]["embedding"]], expected, atol=1e-6)
    assert f"1 of 3 rows have no text ('text' is null), the first {texts}, line 2: their vectors are null" in (
        log.replace("\n", " ")
    )
    log = call("-r", "mean | centre", texts, "-o", tmp_path / "v.npy").stderr
    vectors = np.load(tmp_path / "v.npy")
    assert np.isnan(vectors[1]).all()
    np.testing.assert_allclose(vectors[[0, 2]], expected, atol=1e-6)
    assert "'id', 'tags', 'price' of the input are not kept" in log
    assert "their vectors are NaN" in log


def test_columns_of_parquet_keep_their_types(call, tiny: str, tmp_path: Path) -> None:
    day, texts = datetime.date(2026, 3, 1), tmp_path / "rows.parquet"
    schema = pyarrow.schema([("id", pyarrow.int16()), ("text", pyarrow.large_string()), ("at", pyarrow.date32())])
    rows = [{"id": n, "text": None if n == 1 else f"Text {n}.", "at": day} for n in range(4)]
    parquet.write_table(pyarrow.Table.from_pylist(rows, schema=schema), texts)
    call("-r", "mean", texts, "-o", tmp_path / "v.parquet")
    table = parquet.read_table(tmp_path / "v.parquet")
    assert table.schema.names == ["id", "text", "at", "embedding"]
    assert (table.schema.field("id").type, table.schema.field("at").type) == (pyarrow.int16(), pyarrow.date32())
    assert table["id"].to_pylist() == [0, 1, 2, 3]
    vectors = table["embedding"].to_pylist()
    expected = Encoder(tiny, "mean").encode(["Text 0.", "Text 2.", "Text 3."])
    assert vectors.pop(1) is None
    np.testing.assert_allclose(vectors, expected, atol=1e-6)
    call("-r", "mean", texts, "-o", tmp_path / "v.jsonl")
    assert json_rows(tmp_path / "v.jsonl")[0]["at"] == "2026-03-01"


def test_progress_in_a_log(call, lines: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Standard error is no terminal here: lines and no bar; none with --quiet."""
    monkeypatch.setattr("essent._core.progress.FIRST", 0.0)
    monkeypatch.setattr("essent._core.progress.LATER", 0.0)
    lines.write_text("".join(f"{'A long text. ' * 20} {n}\n" for n in range(3)), encoding="utf-8")
    command = ("-r", "mean", lines, "-o", tmp_path / "v.npy")
    log = call(*command, "--batch-size", 1).stderr
    for part in ("1 of 3 texts, ", "3 of 3 texts, ", "s left\n"):
        assert part in log
    assert "\r" not in log
    assert call(*command, "--force", "-q").stderr == ""


# -- refused before the model is loaded --------------------------------------------------------------------------------


@pytest.fixture
def refuse(call, monkeypatch: pytest.MonkeyPatch):
    def fail(*arguments, **options):
        raise AssertionError("the model was loaded")

    monkeypatch.setattr("essent.encoder.encoder.load", fail)
    return lambda *arguments, **options: call(*arguments, code=2, **options).stderr


def test_invalid_recipes_and_outputs(refuse, lines: Path, tmp_path: Path) -> None:
    output = tmp_path / "v.npy"
    assert "Did you mean 'mean'" in refuse("-r", "maen", lines, "-o", output)
    assert "[MASK] [red]" in refuse("-r", 'template="[MASK] [red]"', lines, "-o", output)  # as text, not as markup
    refused = refuse(lines, "-o", tmp_path / "v.txt")
    assert "ends in .npy, .parquet, .jsonl, and '.txt' is none; a folder of parts has no suffix" in refused
    (tmp_path / "folder.npy").mkdir()
    assert "is a folder" in refuse(lines, "-o", tmp_path / "folder.npy")
    output.write_bytes(b"mine")
    assert "--force" in refuse(lines, "-o", output)
    assert output.read_bytes() == b"mine"
    assert "not a folder" in refuse(lines, "-o", output / "v.npy")


def test_invalid_rows(refuse, tmp_path: Path) -> None:
    for rows, name, message in (
        (ROWS, "v.jsonl", "line 2: 'text' is null, one of 1 such rows (--strict)"),
        (ROWS[1:2], "v.jsonl", "No row has a text: 'text' is null in all 1"),
        ([{"text": "a", "embedding": [1]}], "v.jsonl", "has a column 'embedding'"),
        ([{"text": "a", "id": 1}, {"text": "b", "id": "x"}], "v.parquet", "'id' does not fit into one type"),
    ):
        assert message in refuse(write_rows(tmp_path / "rows.jsonl", rows), "-o", tmp_path / name, "--strict")
    assert not list(tmp_path.glob("v.*"))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("none.txt", None, "does not exist"),
        ("empty.txt", b"", "no texts"),
        ("latin.txt", b"one\ntwo \xe9\n", "latin.txt, line 2: not UTF-8"),
        ("bad.jsonl", b'{"text": "a"}\n{"text"\n', "bad.jsonl, line 2: not JSON"),
        ("number.jsonl", b'{"text": 3}\n', "number.jsonl, line 1: 'text' must be a string, not int (3)"),
        ("-", b"a\n\xff\n", "Standard input, line 2: not UTF-8"),
        ("-", b"", "Standard input has no texts"),
    ],
)
def test_invalid_inputs(refuse, tmp_path: Path, name: str, content: bytes | None, message: str) -> None:
    path: Path | str = "-" if name == "-" else tmp_path / name
    if isinstance(path, Path) and content is not None:
        path.write_bytes(content)
    assert message in refuse(path, "-o", tmp_path / "v.npy", stdin=content if name == "-" else None)
    assert not (tmp_path / "v.npy").exists()


def test_unknown_model(lines: Path, tmp_path: Path) -> None:
    refused = error("encode", "-m", tmp_path / "nowhere", lines, "-o", tmp_path / "v.npy")
    assert refused.startswith("Error: There is no model folder")
    assert "Traceback" not in refused


def test_interrupted_run_leaves_nothing(call, lines: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr("numpy.save", interrupt)
    assert "Interrupted" in call(lines, "-o", tmp_path / "v.npy", code=130).stderr
    assert [path.name for path in tmp_path.iterdir()] == ["texts.txt"]
