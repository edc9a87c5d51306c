"""Every format: the same rows in their order, with all columns, whatever stands in them; vectors that others read."""

import json
from collections.abc import Iterable
from pathlib import Path

import datasets
import duckdb
import fsspec
import numpy as np
import pandas as pd
import polars
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from bulk_helpers import Bulk, sentence, sentences
from sentence_transformers.util.quantization import quantize_embeddings

ROWS = 400
TEXTS = [
    text if number % 9 else f'{text}, "quoted"\nand a second line ünï' for number, text in enumerate(sentences(ROWS))
]
FLAT = [text.replace("\n", " ") for text in TEXTS]
TABLE = pa.table({"n": range(ROWS), "text": TEXTS, "tags": [["a", "b"][: n % 3] for n in range(ROWS)]})
LINES = {  # with blank lines, line ends of both kinds, a mark of the byte order, and none at the end
    "jsonl": "\n\n".join(json.dumps(row, ensure_ascii=bool(row["n"] % 2)) for row in TABLE.to_pylist()),
    "csv": TABLE.select(["n", "text"]).to_pandas().to_csv(index=False, lineterminator="\r\n"),
    "tsv": "\r\n".join(["\ufeffn\ttext", *(f"{n}\t{text}" for n, text in enumerate(FLAT))]),
    "txt": "\n".join(FLAT),
}


def write(name: str, bulk: Bulk) -> list[str]:
    """A file or folder of the format that its name says; its texts in their order."""
    stem, _, suffix = name.partition(".")
    kind = suffix.partition(".")[0]
    if kind in LINES:
        bulk.write(name, LINES[kind])
        return TEXTS if kind in ("jsonl", "csv") else FLAT
    if kind == "parquet":
        pq.write_table(TABLE, name, row_group_size=7 if stem == "small" else 160)
    elif kind == "arrow":
        open_writer = pa.ipc.new_stream if stem == "stream" else pa.ipc.new_file
        with open_writer(name, TABLE.schema) as writer:
            writer.write_table(TABLE, max_chunksize=60)
    else:
        datasets.Dataset.from_dict(TABLE.to_pydict()).save_to_disk(name, num_shards=2)
    return TEXTS


LOCAL = "a.parquet small.parquet a.arrow stream.arrow data-set a.jsonl a.csv a.tsv a.txt a.csv.bz2 a.tsv.zst".split()
REMOTE = "a.parquet stream.arrow a.jsonl a.jsonl.gz".split()
CASES = [*((name, "") for name in LOCAL), *((name, "memory://shelf/") for name in REMOTE)]


@pytest.mark.parametrize(("name", "remote"), CASES)
def test_every_format(name: str, remote: str, bulk: Bulk) -> None:
    """On the disk, or at an address that fsspec knows."""
    texts = write(name, bulk)
    if remote:
        fsspec.filesystem("memory").pipe_file(f"/shelf/{name}", Path(name).read_bytes())
    run = bulk.encode(remote + name, rows_per_part=80)
    table = bulk.table()
    assert run.parts > 3
    assert run.statuses == {"ok": ROWS}
    assert table["text"].to_pylist() == texts
    if "n" in table.column_names:
        assert table["n"].cast(pa.int64()).to_pylist() == list(range(ROWS))
    if "tags" in table.column_names:
        assert table["tags"].to_pylist() == TABLE["tags"].to_pylist()
    np.testing.assert_array_equal(bulk.vectors(), bulk.encoder().encode(texts))


def test_lines_across_byte_ranges(monkeypatch: pytest.MonkeyPatch, bulk: Bulk) -> None:
    """Ranges that end within lines, at their ends and beginnings, and hold none at all."""
    monkeypatch.setattr("essent.bulk.units.MIN_RANGE", 1)
    texts = [(sentence(number) if number % 5 else "") * (number % 3) for number in range(30)]
    run = bulk.encode(bulk.write("a.txt", "\n".join(texts)), rows_per_part=1)
    assert bulk.table()["text"].to_pylist() == texts
    assert run.parts > 20


def test_several_sources_in_their_order(bulk: Bulk) -> None:
    """A pattern, a folder and a file; columns of all of them, null where a file lacks one."""
    Path("folder").mkdir()
    pq.write_table(pa.table({"text": ["one", "two"], "year": [1, 2]}), "folder/b.parquet")
    bulk.write("folder/a.jsonl", '{"text": "three", "place": "here"}\n"four"\n')
    bulk.write("folder/_ignored.jsonl", "?")
    for number in (2, 1):
        bulk.write(f"lines-{number}.txt", f"a line of {number}\n")
    bulk.encode(["lines-*.txt", "folder"])
    table = bulk.table()
    assert table["text"].to_pylist() == ["a line of 1", "a line of 2", "three", "four", "one", "two"]
    assert table["year"].to_pylist() == [None, None, None, None, 1, 2]
    assert table["place"].to_pylist() == [None, None, "here", None, None, None]


# -- what cannot be read -----------------------------------------------------------------------------------------------


def test_rows_without_text(bulk: Bulk) -> None:
    lines = ['{"text": "a dog", "n": 1}', '{"text": null}', '{"text": 5, "n": 2}', '{"text": " "}', "{not json", "[1]"]
    lines += ['{"n": 3}', '{"text": "\\ud83d a tree"}', '"only a text"']
    bulk.encode(bulk.write("a.jsonl", "\n".join(lines).encode() + b'\n{"text": "\xff\xfe"}\n'))
    table = bulk.table()
    kinds = ["ok", "null", "not text", "empty", "unreadable", "unreadable", "null", "ok", "ok", "unreadable"]
    assert table["status"].to_pylist() == kinds
    assert table["embedding"].is_valid().to_pylist() == [kind == "ok" for kind in kinds]
    assert bulk.vectors().any(axis=1).all()
    assert table["text"].to_pylist()[7] == "� a tree"  # half a surrogate pair is mended, as everywhere
    assert json.loads(table["other_values"].to_pylist()[2]) == {"text": 5}


def test_json_values_of_mixed_types(bulk: Bulk) -> None:
    """The first rows tell the types; what comes later and is of another kind is not lost."""
    rows = [{"text": f"dog {n}", "n": n, "score": n / 2, "tags": [n]} for n in range(1100)]
    rows += [{"text": "dog", "n": 1.5, "score": 3, "tags": ["a"], "new": {"deep": 1}}, {"text": "dog", "n": 2**70}]
    bulk.encode(bulk.write("a.jsonl", "\n".join(json.dumps(row) for row in rows)))
    table = bulk.table()
    assert table.schema.field("n").type == pa.int64()
    assert table["score"].to_pylist()[-2] == 3.0
    overflow = [json.loads(value) for value in table["other_values"].to_pylist() if value is not None]
    assert overflow == [{"n": 1.5, "tags": ["a"], "new": {"deep": 1}}, {"n": 2**70}]


def test_stray_quotation_mark(bulk: Bulk) -> None:
    rows = [f'{n},"text {n}"' if n % 2 else f"{n},text {n}" for n in range(400)]
    rows[150] = '150,"never closed'
    rows[250] = "250,one,too,many"
    bulk.encode(bulk.write("a.csv", "\n".join(["n,text", *rows])), rows_per_part=60)
    table = bulk.table()
    assert [n for n, status in enumerate(table["status"].to_pylist()) if status != "ok"] == [150, 250]
    assert table["text"].to_pylist()[151] == "text 151"
    assert table.num_rows == 400


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_damaged_file(workers: int, bulk: Bulk) -> None:
    """The error names it, also where a worker reads it."""
    content = bytearray(bulk.parquet(ROWS).read_bytes())
    content[3000:6000] = bytes(3000)
    bulk.refuse(r"rows\.parquet, after row", bulk.write("rows.parquet", content), rows_per_part=20, workers=workers)


def test_parquet_texts_are_not_utf8(bulk: Bulk) -> None:
    binary = pa.array([b"a dog", b"\xff\xfe", b"trees", None], pa.binary())
    pq.write_table(pa.table({"text": pa.Array.from_buffers(pa.string(), 4, binary.buffers())}), "a.parquet")
    bulk.refuse(r"a\.parquet: 'text' is not UTF-8 text", "a.parquet")


def test_truncated_file_error_counts_rows(bulk: Bulk) -> None:
    """In this run or before it; nothing where the damage comes before the end of the first part."""
    path = bulk.write("a.txt.gz", "\n".join(sentences(2000)))
    path.write_bytes(path.read_bytes()[:-2000])
    for _ in range(2):
        message = r"a\.txt\.gz: cannot be read to its end.*damaged or incomplete"
        error = bulk.refuse(message, path, rows_per_part=350)
        rows = bulk.table().num_rows
        assert rows in range(350, 2000, 350)
        assert error.endswith(f"{bulk.out} has {rows:,} rows, in {rows // 350} parts.")
    path.write_bytes(path.read_bytes()[:30])  # found before there is a folder
    bulk.refuse(r"damaged or incomplete\.$", path, out="other")


def test_files_without_rows_give_parts_without_rows(bulk: Bulk) -> None:
    """Readers find the columns; the run is complete, and so is a second one."""
    for name, content in (("a.txt", "\ufeff"), ("b.txt.gz", ""), ("c.csv", "text,page\n"), ("d.jsonl", "\n \n")):
        bulk.write(name, content)
    pq.write_table(TABLE[:0], "e.parquet")
    pyarrow.feather.write_feather(TABLE[:0], "f.arrow")
    for _ in range(2):
        run = bulk.encode("*.*")
        assert (run.rows, run.parts) == (0, 6)
    table = pq.read_table(bulk.out)
    assert table.num_rows == 0
    assert {"text", "page", "tags", "status", "embedding"} <= set(table.column_names)


def test_empty_json_lines_file(bulk: Bulk) -> None:
    """It has the columns of the others, before or after it."""
    for name, content in (("a", ""), ("b", '{"text": "a dog", "n": 5}\n'), ("c", "\n")):
        bulk.write(f"{name}.jsonl", content)
    run = bulk.encode("*.jsonl", id="n")
    assert (run.rows, run.parts) == (1, 3)
    assert bulk.table()["n"].to_pylist() == [5]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", b"{}\n{}\n", "no column 'text'. Its first rows have no columns"),
        ("a.parquet", b"PAR1 and no more", "not a readable parquet file"),
        ("a.arrow", b"nothing of Arrow", "not a readable arrow file"),
        ("a.json", b'\xef\xbb\xbf [{"text": "x"}]', "one JSON array"),
        ("a.csv", b"\xff\xfe\n1\n", "the header is empty, or not UTF-8"),
        ("a.csv", b"text,text\na,b\n", "a column name twice"),
        ("a.jsonl", b'{"text": "a", "status": "x"}\n', "has the column 'status', and essent adds one of this name"),
        ("a.parquet.gz", b"", "own compression"),
        (
            "a.jsonl",
            b'{"text": ["a"], "title": "b"}\n',
            r"'text' holds list.*, not texts\. Columns with texts: title\.",
        ),
    ],
)
def test_invalid_input_is_refused_early(name: str, content: bytes, message: str, bulk: Bulk) -> None:
    bulk.write(name, content)
    bulk.refuse(message, name, "no model")
    assert not bulk.out.exists()


def test_conflicting_columns(bulk: Bulk) -> None:
    pq.write_table(pa.table({"text": ["a"], "n": [1]}), "a.parquet")
    pq.write_table(pa.table({"text": ["a"], "n": ["1"]}), "b.parquet")
    bulk.refuse(r"'n' is string in .*b\.parquet and int64 in .*a\.parquet", "*.parquet", "no model")


# -- how vectors are stored, and who reads them -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "kind"),
    [("float32", pa.float32()), ("float16", pa.float16()), ("int8", pa.int8()), ("ubinary", pa.uint8())],
)
def test_numbers_and_who_reads_them(dtype: str, kind: pa.DataType, bulk: Bulk) -> None:
    """DuckDB, Polars, pandas and datasets, all parts in one step, in the order of the rows."""
    texts = [None if number % 10 == 4 else text for number, text in enumerate(FLAT)]
    bulk.encode(bulk.parquet(texts), dtype=dtype, rows_per_part=90)
    out, table, stored = bulk.out, bulk.table(), bulk.vectors()
    assert table.schema.field("embedding").type.value_type == kind
    whole = bulk.encoder().encode([text for text in texts if text is not None])
    if dtype == "ubinary":
        np.testing.assert_array_equal(stored, quantize_embeddings(whole, "ubinary"))
    elif dtype == "int8":
        near = stored * np.array(table["scale"].drop_null())[:, None]
        assert np.abs(near - whole).max() <= np.abs(whole).max() / 254 * 1.01
    else:
        np.testing.assert_allclose(stored, whole, rtol=0 if dtype == "float32" else 1e-3, atol=1e-6)
    expected = table["embedding"].to_pylist()
    assert [row is None for row in expected] == [text is None for text in texts]

    def same(vectors_read: Iterable) -> None:
        assert [None if row is None else list(row) for row in vectors_read] == expected

    same(row[0] for row in duckdb.read_parquet(f"{out}/*.parquet").select("embedding").fetchall())
    same(polars.read_parquet(f"{out}/*.parquet")["embedding"].to_list())
    frame = pd.read_parquet(out)
    assert frame["n"].tolist() == list(range(ROWS))
    same(frame["embedding"])
    files = [str(path) for path in sorted(out.glob("*.parquet"))]
    same(datasets.Dataset.from_parquet(files, cache_dir="cache")["embedding"])


def test_numbers_that_cannot_be_stored(bulk: Bulk) -> None:
    """What the model knows nothing of has no vector, nor have infinite numbers; too large ones are refused."""
    encoder = bulk.encoder()
    ids = encoder.ids(["dogs", "kitten"])[0]
    rows = encoder.table.rows * 1e6
    rows[ids[0]], rows[ids[-1]] = 0, np.inf
    object.__setattr__(encoder.table, "rows", rows)
    bulk.encode(bulk.parquet(["dogs", "kitten", "tree"]), encoder)
    table = bulk.table()
    assert table["status"].to_pylist() == ["zero", "not finite", "ok"]
    assert table["embedding"].is_null().to_pylist() == [True, True, False]
    message = "float16 ends at 65504: use float32 or normalize"
    bulk.refuse(message, "rows.parquet", encoder, dtype="float16", out="other")
