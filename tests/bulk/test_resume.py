"""Runs that are killed, interrupted, short of disk or given something else: the same bytes in the end, or refused."""

import json
import os
import re
import sys
from collections.abc import Callable
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from bulk_helpers import Bulk, end_of, sentence, sentences
from fsspec.implementations.memory import MemoryFile

from essent.bulk import work
from essent.bulk.parts import read_parts


def test_missing_parts_are_recomputed(bulk: Bulk) -> None:
    """Wherever they stood: also in a file that is read from its beginning, or from where the part before ends."""
    lines = ["line,text", *(f'{n},"{sentence(n)}\nand ünï"' for n in range(200))]
    sources = [*bulk.sources(280, 480, 600), bulk.write("d.csv", "\n".join(lines))]
    bulk.encode(sources, rows_per_part=30)
    whole = bulk.parts()
    missing = [name for number, name in enumerate(whole) if number % 3 == 1]
    for name in missing:
        (bulk.out / name).unlink()
    run = bulk.encode(sources, rows_per_part=30)
    assert bulk.parts() == whole
    assert run.rows == 800
    assert run.resumed == 800 - sum(read_parts(bulk.out)[name].rows for name in missing)
    assert bulk.table()["line"].drop_null().to_pylist() == [str(n) for n in (*range(480, 600), *range(200))]


@pytest.mark.slow
def test_a_resume_reads_little(monkeypatch: pytest.MonkeyPatch, bulk: Bulk) -> None:
    """At 99 % it reads under 2 % of the input."""
    lines = "".join(json.dumps({"text": sentence(n), "filler": f"{n:x}" * 250}) + "\n" for n in range(26_000))
    fsspec.filesystem("memory").pipe_file("/shelf/large.jsonl", lines.encode())
    bulk.encode("memory://shelf/large.jsonl", rows_per_part=240)
    whole = bulk.parts()
    (bulk.out / list(whole)[-1]).unlink()
    read: list[int] = []
    for name in ("read", "readinto"):
        original = getattr(MemoryFile, name)

        def counted(self: MemoryFile, *arguments: Any, original: Callable = original) -> Any:
            received = original(self, *arguments)
            read.append(received if isinstance(received, int) else len(received))
            return received

        monkeypatch.setattr(MemoryFile, name, counted)
    bulk.encode("memory://shelf/large.jsonl", rows_per_part=240)
    assert bulk.parts() == whole
    assert len(lines) > 20e6
    assert 0 < sum(read) < 0.02 * len(lines)


# -- refused ----------------------------------------------------------------------------------------------------------


def test_another_run_is_refused(bulk: Bulk) -> None:
    path = bulk.parquet(90)
    bulk.encode(path)
    before = bulk.parts()
    for settings, message in (
        ({"dtype": "float16", "normalize": True}, 'dtype was "float32" and is now "float16"; normalize was false'),
        ({"prompt": "query: "}, 'prompt was "" and is now "query: "'),
        ({"truncate_dim": 5}, "truncate_dim was null and is now 5"),
        ({"id": "n"}, 'id was [] and is now ["n"]'),
        ({"chunk": "sentences"}, 'chunk was null and is now "sentences"'),
    ):
        bulk.refuse(re.escape(message), path, **settings)
    encoder = bulk.encoder()
    object.__setattr__(encoder.table, "rows", encoder.table.rows + 1)
    bulk.refuse("model was", path, encoder)
    changed = sentences(90)
    changed[40] = changed[40][::-1]  # the same length
    bulk.refuse(r"rows\.parquet has changed: .*samples", bulk.parquet(changed))
    assert bulk.parts() == before


def test_more_files_of_a_pattern_are_added(bulk: Bulk) -> None:
    bulk.parquet(60, "rows-1.parquet")
    bulk.encode("rows-*.parquet")
    before = bulk.parts()
    bulk.parquet(30, "rows-2.parquet")
    run = bulk.encode("rows-*.parquet")
    assert (run.rows, run.resumed) == (90, 60)
    assert before.items() < bulk.parts().items()
    bulk.parquet(30, "rows-0.parquet")
    bulk.refuse(r"source 1 was .*rows-1\.parquet and is now .*rows-0\.parquet", "rows-*.parquet")


def test_foreign_files_in_the_folder(bulk: Bulk) -> None:
    """What is not essent's stays; what has a part's name and is none is refused."""
    bulk.out.mkdir()
    (bulk.out / "notes.txt").write_text("mine", "utf-8")
    bulk.encode(bulk.parquet(30))
    bulk.encode(bulk.parquet(30, "b.parquet"), force=True)
    assert (bulk.out / "notes.txt").read_text("utf-8") == "mine"
    before = bulk.parts()
    bulk.refuse("Cannot load the model", "b.parquet", ".", force=True)
    assert bulk.parts() == before
    part = next(bulk.out.glob("part-*"))
    part.write_bytes(part.read_bytes()[:100])
    bulk.refuse("is damaged", "b.parquet")
    pq.write_table(pa.table({"a": [1]}), part)
    bulk.refuse("was not written by", "b.parquet")
    bulk.refuse("contains sources", "out", force=True)
    bulk.refuse(r"is a file\. Expected a folder", "b.parquet", out="b.parquet")
    bulk.refuse("is not UTF-8. Choose another name", "b.parquet", out="gr\udcf6sse")


# -- in the middle of a run -------------------------------------------------------------------------------------------


def test_source_changes_during_the_run(monkeypatch: pytest.MonkeyPatch, bulk: Bulk) -> None:
    """Somebody adds lines when some parts are written: they stay as they are, and the run ends."""
    path = bulk.write("a.txt", "\n".join(sentences(600)) + "\n")
    encode_batch = work.encode

    def encode_and_change(batch: Any, *arguments: Any) -> None:
        encode_batch(batch, *arguments)
        if batch.unit.index == 3:
            with path.open("a", encoding="utf-8") as file:
                file.write("one more\n")

    monkeypatch.setattr(work, "encode", encode_and_change)
    bulk.refuse(r"a\.txt is not the file that the run began with \(bytes .*intact", path, rows_per_part=50)
    parts = read_parts(bulk.out)
    assert 1 <= len(parts) <= 4
    assert bulk.table()["text"].to_pylist() == sentences(600)[: sum(p.rows for p in parts.values())]
    bulk.refuse("has changed: bytes", path, rows_per_part=50)


LIMITED = """
import resource, signal, sys
from essent.cli import main
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (8000, 8000))
sys.exit(main())
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="no limits of processes")
@pytest.mark.parametrize("workers", [1, 2])
def test_full_disk(workers: int, bulk: Bulk) -> None:
    """An error without a traceback, and what is there is whole."""
    texts = [*sentences(200), *(sentence(n) * 40 + os.urandom(9000).hex() for n in range(60))]
    bulk.write("a.txt", "\n".join(texts))
    program = (sys.executable, "-c", LIMITED)
    process = bulk.start("a.txt", "--rows-per-part", 10, "--workers", workers, program=program)
    message = end_of(process, 2)
    assert "The disk is full. The parts in" in message
    assert "Traceback" not in message
    assert not list(bulk.out.glob("[._]*"))
    assert read_parts(bulk.out) or workers == 2
    bulk.encode("a.txt", rows_per_part=10)
    assert bulk.table()["text"].to_pylist() == texts
