"""`essent encode` to a file: every input and output; nothing is computed for a call that cannot end well."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from command_line import TEXTS, run
from essent import Encoder


@pytest.fixture(scope="module")
def expected(tiny: str) -> np.ndarray:
    return Encoder(tiny, "first-last | zscore").fit(TEXTS).encode(TEXTS)


@pytest.fixture
def call(tiny: str):
    def encode(*arguments: object, **options):
        return run("encode", "-m", tiny, *arguments, **options)

    return encode


@pytest.fixture
def no_model(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments, **options):
        raise AssertionError("the model was loaded")

    monkeypatch.setattr("essent.encoder.encoder.load", fail)


def test_npy(call, lines: Path, tmp_path: Path, expected: np.ndarray) -> None:
    output = tmp_path / "new" / "vectors.npy"
    result = call("-r", "first-last | zscore", lines, "-o", output)
    found = np.load(output)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, atol=1e-6)
    assert "fitted on the input itself" in result.stderr
    assert result.stdout == ""
    assert [path.name for path in output.parent.iterdir()] == ["vectors.npy"]


def test_parquet(call, lines: Path, tmp_path: Path, expected: np.ndarray) -> None:
    import pyarrow
    import pyarrow.parquet as parquet

    call("-r", "first-last | zscore", lines, "-o", tmp_path / "v.parquet", "-q")
    table = parquet.read_table(tmp_path / "v.parquet")
    assert table.schema.field("embedding").type == pyarrow.list_(pyarrow.float32())
    assert table["text"].to_pylist() == TEXTS
    np.testing.assert_allclose(np.array(table["embedding"].to_pylist(), np.float32), expected, atol=1e-6)


def test_jsonl(call, lines: Path, tmp_path: Path, expected: np.ndarray) -> None:
    result = call("-r", "first-last | zscore", lines, "-o", tmp_path / "v.jsonl", "--quiet")
    rows = [json.loads(line) for line in (tmp_path / "v.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [row["text"] for row in rows] == TEXTS
    np.testing.assert_allclose(np.array([row["embedding"] for row in rows], np.float32), expected, atol=1e-6)
    assert result.stderr == ""


def test_standard_input_and_options(call, tiny: str, tmp_path: Path) -> None:
    stdin = "\ufeffA man\r\n\nThe dogs run\u2028on\n".encode()
    options = ("--prompt", "query: ", "--normalize", "--truncate-dim", 8, "--max-seq-length", 5, "--device", "cpu")
    call("-r", "cls", *options, "--batch-size", 1, "-o", tmp_path / "v.npy", stdin=stdin)
    encoder = Encoder(tiny, "cls")
    encoder.max_seq_length = 5
    texts = ["A man", "", "The dogs run\u2028on"]
    wanted = encoder.encode(texts, prompt="query: ", normalize_embeddings=True, truncate_dim=8)
    np.testing.assert_allclose(np.load(tmp_path / "v.npy"), wanted, atol=1e-6)


@pytest.mark.parametrize(
    ("suffix", "content"),
    [
        (".jsonl", '{"id": 0, "body": "A man, a flute"}\n{"id": 1, "body": "Two dogs"}\n'),
        (".csv", 'id,body\n0,"A man, a flute"\n1,Two dogs\n'),
        (".tsv", "id\tbody\n0\tA man, a flute\n1\tTwo dogs\n"),
    ],
)
def test_columns(call, tiny: str, tmp_path: Path, suffix: str, content: str) -> None:
    path = tmp_path / f"rows{suffix}"
    path.write_text(content)
    call("-r", "mean", path, "--column", "body", "-o", tmp_path / "v.npy")
    wanted = Encoder(tiny, "mean").encode(["A man, a flute", "Two dogs"])
    np.testing.assert_allclose(np.load(tmp_path / "v.npy"), wanted, atol=1e-6)
    assert "no column 'text'" in call("-r", "mean", path, "-o", tmp_path / "w.npy", code=2).stderr


def test_texts_of_several_files_in_their_order(call, tiny: str, lines: Path, tmp_path: Path) -> None:
    more, recipe = tmp_path / "more.jsonl", "mean | zscore"
    more.write_text('{"text": "Two cats."}\n{"text": "One bird."}\n', "utf-8")
    wanted = Encoder(tiny, recipe).fit([*TEXTS, "Two cats.", "One bird."]).encode(["Two cats.", "A", "B", *TEXTS[:1]])
    for files in (("--fit", lines, more), ("--fit", lines, "--fit", more)):
        result = call(more, "-", lines, "-r", recipe, *files, "-o", tmp_path / "v.npy", "-f", stdin=b"A\nB\n")
        np.testing.assert_allclose(np.load(tmp_path / "v.npy")[[0, 2, 3, 4]], wanted, atol=1e-6)
        assert f"is fitted on {lines}, {more}." in result.stderr
    error = call("-", "-", "-o", tmp_path / "x.npy", code=2, stdin=b"A\n").stderr
    assert "Standard input (-) can be read once only." in error


def test_fit_on_another_file(call, tiny: str, lines: Path, tmp_path: Path) -> None:
    corpus = ["Two dogs run.", "The moon.", "A man plays.", "A man runs far."]
    path, counted = tmp_path / "corpus.txt", tmp_path / "counted.txt"
    path.write_text("\n".join(corpus))
    counted.write_text("The moon.\nThe man.\n")
    call(
        *("-r", "weights=idf | centre", lines, "--fit", path, "--frequencies", counted),
        *("--prompt", "say ", "-o", tmp_path / "v.npy"),
    )
    encoder = Encoder(tiny, "weights=idf | centre")
    encoder.fit([f"say {text}" for text in corpus], frequency_texts=["say The moon.", "say The man."])
    np.testing.assert_allclose(np.load(tmp_path / "v.npy"), encoder.encode(TEXTS, prompt="say "), atol=1e-6)
    result = call("-r", "mean", lines, "--fit", path, "-o", tmp_path / "w.npy")
    assert f"learns nothing: --fit {path} is not used" in result.stderr
    result = call("-r", "mean | centre", lines, "--frequencies", path, "-o", tmp_path / "x.npy")
    assert f"counts no tokens: --frequencies {path} is not used" in result.stderr


def test_saved_encoder_needs_no_recipe_and_no_fit(call, tiny: str, lines: Path, tmp_path: Path) -> None:
    encoder = Encoder(tiny, "mean | zscore").fit(TEXTS)
    encoder.save(str(tmp_path / "saved"))
    result = run("encode", "-m", tmp_path / "saved", lines, "-o", tmp_path / "v.npy")
    assert "fitted" not in result.stderr
    np.testing.assert_allclose(np.load(tmp_path / "v.npy"), encoder.encode(TEXTS), atol=1e-5)
    result = run("encode", "-m", tmp_path / "saved", "-r", "mean", lines, "-o", tmp_path / "w.npy", code=2)
    assert "its own recipe" in result.stderr


ROWS: list[dict] = [
    {"id": 7, "text": "A man plays a flute.", "tags": ["a", "b"]},
    {"id": 8, "text": None, "tags": []},
    {"id": 9, "text": "Two dogs run.", "price": 1.5},
]


def written(path: Path, rows: list[dict]) -> Path:
    """Rows as the file whose suffix says how."""
    if path.suffix == ".parquet":
        import pyarrow
        import pyarrow.parquet as parquet

        schema = pyarrow.schema([("id", pyarrow.int16()), ("text", pyarrow.large_string()), ("at", pyarrow.date32())])
        parquet.write_table(pyarrow.Table.from_pylist(rows, schema=schema), path)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_other_columns_are_kept_and_a_null_has_no_vector(call, tiny: str, tmp_path: Path) -> None:
    texts = written(tmp_path / "rows.jsonl", ROWS)
    result = call("-r", "mean | centre", texts, "-o", tmp_path / "v.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "v.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [list(row) for row in rows] == [["id", "text", "tags", "price", "embedding"]] * 3
    assert [(row["id"], row["text"], row["tags"], row["price"]) for row in rows] == [
        (7, ROWS[0]["text"], ["a", "b"], None),
        (8, None, [], None),
        (9, ROWS[2]["text"], None, 1.5),
    ]
    there = [ROWS[0]["text"], ROWS[2]["text"]]
    wanted = Encoder(tiny, "mean | centre").fit(there).encode(there)
    assert rows[1]["embedding"] is None
    np.testing.assert_allclose([rows[0]["embedding"], rows[2]["embedding"]], wanted, atol=1e-6)
    assert f"1 of 3 rows have no text ('text' is null), the first {texts}, line 2: their vectors are null" in (
        result.stderr.replace("\n", " ")
    )
    result = call("-r", "mean | centre", texts, "-o", tmp_path / "v.npy")
    found = np.load(tmp_path / "v.npy")
    assert np.isnan(found[1]).all()
    np.testing.assert_allclose(found[[0, 2]], wanted, atol=1e-6)
    assert "'id', 'tags', 'price' of the input are not kept" in result.stderr
    assert "their vectors are NaN" in result.stderr


def test_columns_of_parquet_keep_their_types(call, tiny: str, tmp_path: Path) -> None:
    import datetime

    import pyarrow
    import pyarrow.parquet as parquet

    day = datetime.date(2026, 3, 1)
    rows = [{"id": n, "text": None if n == 1 else f"Text {n}.", "at": day} for n in range(4)]
    texts = written(tmp_path / "rows.parquet", rows)
    call("-r", "mean", texts, "-o", tmp_path / "v.parquet", "-q")
    table = parquet.read_table(tmp_path / "v.parquet")
    assert table.schema.names == ["id", "text", "at", "embedding"]
    assert (table.schema.field("id").type, table.schema.field("at").type) == (pyarrow.int16(), pyarrow.date32())
    assert table["id"].to_pylist() == [0, 1, 2, 3]
    assert table["embedding"].null_count == 1
    found = table["embedding"].to_pylist()
    wanted = Encoder(tiny, "mean").encode(["Text 0.", "Text 2.", "Text 3."])
    np.testing.assert_allclose([found[0], found[2], found[3]], wanted, atol=1e-6)
    call("-r", "mean", texts, "-o", tmp_path / "v.jsonl", "-q")
    assert json.loads((tmp_path / "v.jsonl").read_text().splitlines()[0])["at"] == "2026-03-01"


def test_a_log_is_told_how_far_it_is(call, lines: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Standard error is no terminal here: lines and no bar; none with --quiet."""
    monkeypatch.setattr("essent._core.progress.FIRST", 0.0)
    monkeypatch.setattr("essent._core.progress.LATER", 0.0)
    lines.write_text("".join(f"{'A long text. ' * 20} {n}\n" for n in range(3)), encoding="utf-8")
    result = call("-r", "mean", lines, "-o", tmp_path / "v.npy", "--batch-size", 1)
    assert "1 of 3 texts, " in result.stderr
    assert "3 of 3 texts, " in result.stderr
    assert "s left\n" in result.stderr
    assert "\r" not in result.stderr
    assert call("-r", "mean", lines, "-o", tmp_path / "w.npy", "-q").stderr == ""


@pytest.mark.usefixtures("no_model")
class TestRefusedBeforeTheModelIsLoaded:
    def test_recipe(self, call, lines: Path, tmp_path: Path) -> None:
        assert "Did you mean 'mean'" in call("-r", "maen", lines, "-o", tmp_path / "v.npy", code=2).stderr
        result = call("-r", 'template="[MASK] [red]"', lines, "-o", tmp_path / "v.npy", code=2)
        assert "[MASK] [red]" in result.stderr  # as text, not as markup

    def test_output(self, call, lines: Path, tmp_path: Path) -> None:
        refused = call(lines, "-o", tmp_path / "v.txt", code=2).stderr
        assert "ends in .npy, .parquet, .jsonl, and '.txt' is none; a folder of parts has no suffix" in refused
        (tmp_path / "folder.npy").mkdir()
        assert "is a folder" in call(lines, "-o", tmp_path / "folder.npy", code=2).stderr
        there = tmp_path / "v.npy"
        there.write_bytes(b"mine")
        assert "--force" in call(lines, "-o", there, code=2).stderr
        assert there.read_bytes() == b"mine"
        assert "not a folder" in call(lines, "-o", there / "v.npy", code=2).stderr

    def test_rows(self, call, tmp_path: Path) -> None:
        def refused(rows: list[dict], name: str, *options: object) -> str:
            texts = written(tmp_path / "rows.jsonl", rows)
            return call(texts, "-o", tmp_path / name, *options, code=2).stderr

        assert "line 2: 'text' is null, one of 1 such rows (--strict)" in refused(ROWS, "v.jsonl", "--strict")
        assert "No row has a text: 'text' is null in all 1" in refused(ROWS[1:2], "v.jsonl")
        assert "has a column 'embedding'" in refused([{"text": "a", "embedding": [1]}], "v.jsonl")
        mixed = [{"text": "a", "id": 1}, {"text": "b", "id": "x"}]
        assert "'id' does not fit into one type" in refused(mixed, "v.parquet")
        assert not list(tmp_path.glob("v.*"))

    def test_input(self, call, tmp_path: Path) -> None:
        output = tmp_path / "v.npy"
        (tmp_path / "empty.txt").touch()
        (tmp_path / "latin.txt").write_bytes(b"one\ntwo \xe9\n")
        (tmp_path / "bad.jsonl").write_text('{"text": "a"}\n{"text"\n')
        (tmp_path / "number.jsonl").write_text('{"text": "a"}\n{"text": 3}\n')
        (tmp_path / "half.jsonl").write_text('{"text": "\\ud800"}\n')
        for name, message in {
            "none.txt": "does not exist",
            "empty.txt": "no texts",
            "latin.txt": "latin.txt, line 2: not UTF-8",
            "bad.jsonl": "bad.jsonl, line 2: not JSON",
            "number.jsonl": "number.jsonl, line 2: 'text' must be a string, not int (3)",
            "half.jsonl": "surrogate",
        }.items():
            assert message in call(tmp_path / name, "-o", output, code=2).stderr
        assert "line 2: not UTF-8" in call("-o", output, code=2, stdin=b"a\n\xff\n").stderr
        assert "Standard input has no texts" in call("-o", output, code=2, stdin=b"").stderr
        assert not output.exists()


def test_unknown_model(lines: Path, tmp_path: Path) -> None:
    result = run("encode", "-m", tmp_path / "nowhere", lines, "-o", tmp_path / "v.npy", code=2)
    assert result.stderr.startswith("Error: There is no model folder")
    assert "Traceback" not in result.stderr


def test_force_replaces(call, lines: Path, tmp_path: Path) -> None:
    (tmp_path / "v.npy").write_bytes(b"mine")
    call(lines, "-o", tmp_path / "v.npy", "--force")
    assert np.load(tmp_path / "v.npy").shape == (len(TEXTS), 32)


def test_interrupted_run_leaves_nothing(call, lines: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr("numpy.save", interrupt)
    result = call(lines, "-o", tmp_path / "v.npy", code=130)
    assert "Interrupted" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["texts.txt"]
