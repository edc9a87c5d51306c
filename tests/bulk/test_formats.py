"""Every format: the same rows in their order, with all columns, whatever stands in them."""

from __future__ import annotations

import bz2
import csv
import gzip
import json
from pathlib import Path

import datasets
import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from bulk_helpers import Bulk, sentence, sentences, vectors_of

from essent import EssentError

ROWS = 400
TEXTS = [
    text if number % 9 else f'{text}, "quoted"\nand a second line ünï' for number, text in enumerate(sentences(ROWS))
]
FLAT = [text.replace("\n", " ") for text in TEXTS]


TABLE = pa.table({"n": range(ROWS), "text": TEXTS, "tags": [["a", "b"][: n % 3] for n in range(ROWS)]})
OPENERS = {".gz": gzip.open, ".bz2": bz2.open}


def write_lines(path: Path, kind: str) -> list[str]:
    """A file of lines, compressed as its name says; its texts."""
    opener = OPENERS.get(path.suffix, open)
    with opener(path, "wt", encoding="utf-8-sig" if kind == "tsv" else "utf-8", newline="") as file:
        if kind == "jsonl":
            for n, row in enumerate(TABLE.to_pylist()):
                file.write(json.dumps(row, ensure_ascii=bool(n % 2)) + "\n" * (1 + (n % 40 == 0)))  # blank lines
            return TEXTS
        if kind == "csv":
            csv.writer(file).writerows([("n", "text"), *enumerate(TEXTS)])
            return TEXTS
        rows = ["n\ttext", *(f"{n}\t{text}" for n, text in enumerate(FLAT))] if kind == "tsv" else FLAT
        file.write(("\r\n" if kind == "tsv" else "\n").join(rows))  # the last line has no end
        return FLAT


def write(path: Path) -> list[str]:
    """A file or folder of the format that its name says; its texts in their order."""
    kind = path.suffixes[0][1:] if path.suffix else ""
    if path.name == "data-set":
        datasets.Dataset.from_dict(TABLE.to_pydict()).save_to_disk(path, num_shards=2)
    elif kind == "parquet":
        pq.write_table(TABLE, path, row_group_size=7 if path.stem == "small" else 160)
    elif kind == "arrow":
        open_writer = pa.ipc.new_stream if path.stem == "stream" else pa.ipc.new_file
        with pa.OSFile(str(path), "wb") as sink, open_writer(sink, TABLE.schema) as writer:
            writer.write_table(TABLE, max_chunksize=60)
    elif path.suffix == ".zst":
        texts = write(plain := path.with_suffix(""))
        with pa.output_stream(str(path), compression="zstd") as sink:
            sink.write(plain.read_bytes())
        return texts
    else:
        return write_lines(path, kind)
    return TEXTS


FORMATS = "a.parquet small.parquet a.arrow stream.arrow data-set a.jsonl a.csv a.tsv a.txt".split()
PACKED = "a.jsonl.gz a.csv.bz2 a.tsv.zst".split()


REMOTE = "a.parquet stream.arrow a.jsonl a.jsonl.gz".split()
CASES = [*((name, "") for name in (*FORMATS, *PACKED)), *((name, "memory://shelf") for name in REMOTE)]


@pytest.mark.parametrize(("name", "remote"), CASES)
def test_every_format(name: str, remote: str, bulk: Bulk) -> None:
    """On the disk, or at an address that fsspec knows."""
    texts = write(Path(name))
    if remote:
        fsspec.filesystem("memory").pipe_file(f"/shelf/{name}", Path(name).read_bytes())
    run = bulk.encode(f"{remote}/{name}" if remote else name, rows_per_part=80)
    table = bulk.table()
    assert run.parts > 3
    assert run.statuses == {"ok": ROWS}
    assert table["text"].to_pylist() == texts
    if "n" in table.column_names:
        assert table["n"].cast(pa.int64()).to_pylist() == list(range(ROWS))
    if "tags" in table.column_names:
        assert table["tags"].to_pylist() == TABLE["tags"].to_pylist()
    np.testing.assert_array_equal(vectors_of(table), bulk.encoder().encode(texts))


def test_lines_across_byte_ranges(monkeypatch: pytest.MonkeyPatch, bulk: Bulk) -> None:
    """Ranges that end within lines, at their ends and beginnings, and hold none at all."""
    monkeypatch.setattr("essent.bulk.units.MIN_RANGE", 1)
    texts = [(sentence(number) if number % 5 else "") * (number % 3) for number in range(30)]
    bulk.write("a.txt", "\n".join(texts).encode())
    run = bulk.encode("a.txt", rows_per_part=1)
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
    lines += ['{"n": 3}', '{"text": "\\ud83d a tree"}', '{"text": ["a"]}', '"only a text"', '{"text": "\\u3042"}', "7"]
    path = bulk.write("a.jsonl", "\n".join(lines).encode() + b'\n{"text": "\xff\xfe"}\n')
    bulk.encode(path)
    table = bulk.table()
    kinds = ["ok", "null", "not text", "empty", "unreadable", "unreadable"]
    kinds += ["null", "ok", "not text", "ok", "ok", "unreadable", "unreadable"]
    assert table["status"].to_pylist() == kinds
    has = [vector is not None for vector in table["embedding"].to_pylist()]
    assert has == [kind == "ok" for kind in kinds]
    assert all(any(vector) for vector in table["embedding"].to_pylist() if vector is not None)
    assert table["text"].to_pylist()[7] == "� a tree"  # half a surrogate pair is mended, as everywhere
    assert json.loads(table["other_values"].to_pylist()[2]) == {"text": 5}


def test_json_values_of_mixed_types(bulk: Bulk) -> None:
    """The first rows tell the types; what comes later and is of another kind is not lost."""
    rows = [{"text": f"dog {n}", "n": n, "score": n / 2, "tags": [n]} for n in range(1100)]
    rows += [{"text": "dog", "n": 1.5, "score": 3, "tags": ["a"], "new": {"deep": 1}}, {"text": "dog", "n": 2**70}]
    path = bulk.write("a.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    bulk.encode(path)
    table = bulk.table()
    assert table.schema.field("n").type == pa.int64()
    assert table["score"].to_pylist()[-2] == 3.0
    overflow = [json.loads(value) for value in table["other_values"].to_pylist() if value is not None]
    assert overflow == [{"n": 1.5, "tags": ["a"], "new": {"deep": 1}}, {"n": 2**70}]


def test_stray_quotation_mark(bulk: Bulk) -> None:
    rows = [f'{n},"text {n}"' if n % 2 else f"{n},text {n}" for n in range(400)]
    rows[150] = '150,"never closed'
    rows[250] = "250,one,too,many"
    path = bulk.write("a.csv", "n,text\n" + "\n".join(rows) + "\n")
    bulk.encode(path, rows_per_part=60)
    table = bulk.table()
    assert [n for n, status in enumerate(table["status"].to_pylist()) if status != "ok"] == [150, 250]
    assert table["text"].to_pylist()[151] == "text 151"
    assert table.num_rows == 400


def test_damaged_file(bulk: Bulk) -> None:
    """The error names it."""
    binary = pa.array([b"a dog", b"\xff\xfe", b"trees", None], pa.binary())
    pq.write_table(pa.table({"text": pa.Array.from_buffers(pa.string(), 4, binary.buffers())}), "a.parquet")
    bulk.refuse(r"a\.parquet: 'text' is not UTF-8 text", "a.parquet")
    write(path := Path("b.parquet"))
    content = bytearray(path.read_bytes())
    content[3000:6000] = bytes(3000)
    path.write_bytes(content)
    bulk.refuse(r"b\.parquet", path)


def test_truncated_file_error_counts_rows(bulk: Bulk) -> None:
    """In this run or before it; nothing where the damage comes before the end of the first part."""
    path = bulk.write("a.txt.gz", gzip.compress("\n".join(sentences(2000)).encode())[:-2000])
    for _ in range(2):
        with pytest.raises(
            EssentError, match=r"a\.txt\.gz: cannot be read to its end.*damaged or incomplete"
        ) as caught:
            bulk.encode(path, rows_per_part=350)
        rows = bulk.table().num_rows
        assert rows in range(350, 2000, 350)
        assert str(caught.value).endswith(f"{bulk.out} has {rows:,} rows, in {rows // 350} parts.")
    path.write_bytes(path.read_bytes()[:30])  # found before there is a folder
    bulk.refuse(r"damaged or incomplete\.$", path, out="other")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.txt", b"\xef\xbb\xbf"),
        ("a.txt.gz", gzip.compress(b"", mtime=0)),
        ("a.csv", b"text,n\n"),
        ("a.jsonl", b"\n \n"),
        ("a.parquet", None),
        ("a.arrow", None),
    ],
)
def test_a_file_without_rows_gives_a_part_without_rows(name: str, content: bytes | None, bulk: Bulk) -> None:
    """Readers find the columns; the run is complete, and a second one computes nothing."""
    path, empty = Path(name), pa.table({"text": pa.array([], pa.string())})
    if content is not None:
        path.write_bytes(content)
    else:
        (pq.write_table if name == "a.parquet" else pyarrow.feather.write_feather)(empty, path)
    for _ in range(2):
        run = bulk.encode(path)
        assert (run.rows, run.parts) == (0, 1)
    table = pq.read_table(bulk.out)
    assert table.num_rows == 0
    assert {"text", "status", "embedding"} <= set(table.column_names)


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
        ("a.tsv", b"body\tn\na\t1\n", "no column 'text'"),
        ("a.jsonl", b'{"text": "a", "status": "x"}\n', "'status', which is the name of one that essent adds"),
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


def test_conflicting_columns(tmp_path: Path, bulk: Bulk) -> None:
    pq.write_table(pa.table({"text": ["a"], "n": [1]}), "a.parquet")
    pq.write_table(pa.table({"text": ["a"], "n": ["1"]}), "b.parquet")
    with pytest.raises(EssentError, match=r"'n' is string in .*b\.parquet and int64 in .*a\.parquet"):
        bulk.encode(tmp_path, "no model", out="../out")
    bulk.refuse(r"'n' holds int64, not texts\. Columns with texts: text\.", "a.parquet", "no model", column="n")
    bulk.refuse(r"a\.parqet does not exist", "a.parqet", "no model")
    bulk.refuse(r"no column 'm'.*--id", "a.parquet", "no model", id="m")
    bulk.refuse("matches no file", "*.txt", "no model")
