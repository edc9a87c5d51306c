"""Runs that are killed, interrupted, short of disk or given something else: the same bytes in the end, or refused."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from bulk_helpers import contents, sentence, sentences, table_of, write_sources
from fsspec.implementations.memory import MemoryFile

from essent import EssentError
from essent.bulk.parts import read_parts
from essent.bulk.run import encode

FOLDER = Path(__file__).parent
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


@pytest.fixture
def root(tmp_path: Path, static_folder: Path) -> Path:
    """Sources of three kinds, 3,000 rows, and the static encoder."""
    sources = write_sources(tmp_path, (1400, 2400, 3000))
    (tmp_path / "sources.json").write_text(json.dumps(sources), "utf-8")
    shutil.copytree(static_folder, tmp_path / "static")
    return tmp_path


def test_missing_parts_are_recomputed(root: Path) -> None:
    """Wherever it stood: also in a file that is read from its beginning."""
    sources = json.loads((root / "sources.json").read_text("utf-8"))
    encode(sources, root / "static", root / "out", rows_per_part=70)
    whole = contents(root / "out")
    missing = [name for number, name in enumerate(whole) if number % 3 == 1]
    for name in missing:
        (root / "out" / name).unlink()
    run = encode(sources, root / "static", root / "out", rows_per_part=70)
    assert contents(root / "out") == whole
    assert run.rows == 3000
    assert run.resumed == 3000 - sum(read_parts(root / "out")[name].rows for name in missing)


@pytest.mark.parametrize("suffix", ["", ".gz", ".zst"])  # what can seek, and what cannot
def test_resume_within_a_stream(suffix: str, static_folder: Path, tmp_path: Path) -> None:
    """From where the last part before the first missing one ended."""
    content = "\n".join(["n,text", *(f'{n},"{sentence(n)}\nand ünï"' for n in range(200))]).encode()
    path = tmp_path / f"a.csv{suffix}"
    with pa.output_stream(str(path), compression="detect" if suffix else None) as sink:
        sink.write(content)
    encode(path, static_folder, tmp_path / "out", rows_per_part=30)
    whole = contents(tmp_path / "out")
    for name in list(whole)[3:5]:
        (tmp_path / "out" / name).unlink()
    encode(path, static_folder, tmp_path / "out", rows_per_part=30)
    assert contents(tmp_path / "out") == whole
    assert table_of(tmp_path / "out")["n"].to_pylist() == [str(n) for n in range(200)]


@pytest.mark.slow
def test_a_resume_reads_little(static_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At 99 % it reads under 2 % of the input."""
    lines = "".join(json.dumps({"text": sentence(n), "filler": f"{n:x}" * 250}) + "\n" for n in range(24_000))
    fsspec.filesystem("memory").pipe_file("/shelf/large.jsonl", lines.encode())
    encode("memory://shelf/large.jsonl", static_folder, tmp_path / "out", rows_per_part=240)
    whole = contents(tmp_path / "out")
    (tmp_path / "out" / list(whole)[-1]).unlink()
    read: list[int] = []
    for name in ("read", "readinto"):
        original = getattr(MemoryFile, name)

        def counted(self: MemoryFile, *arguments: Any, original: Callable = original) -> Any:
            received = original(self, *arguments)
            read.append(received if isinstance(received, int) else len(received))
            return received

        monkeypatch.setattr(MemoryFile, name, counted)
    encode("memory://shelf/large.jsonl", static_folder, tmp_path / "out", rows_per_part=240)
    assert contents(tmp_path / "out") == whole
    assert len(lines) > 20e6
    assert 0 < sum(read) < 0.02 * len(lines)


# -- refused ----------------------------------------------------------------------------------------------------------


def test_changed_settings_are_refused(parquet: Callable[..., Path], static_folder: Path, tmp_path: Path) -> None:
    path, out = parquet(90), tmp_path / "out"
    encode(path, static_folder, out, rows_per_part=30)
    before = contents(out)
    for settings, message in (
        ({"dtype": "float16", "normalize": True}, 'dtype was "float32" and is now "float16"; normalize was false'),
        ({"prompt": "query: "}, 'prompt was "" and is now "query: "'),
        ({"truncate_dim": 5}, "truncate_dim was null and is now 5"),
        ({"vectors": "fixed", "id": "n"}, 'id was [] and is now ["n"]'),
        ({"chunk": "sentences"}, 'chunk was null and is now "sentences"'),
        ({"rows_per_part": 31}, "rows_per_part was 30 and is now 31"),
    ):
        with pytest.raises(EssentError, match=re.escape(message)):
            encode(path, static_folder, out, **{"rows_per_part": 30, **settings})
    assert contents(out) == before
    encode(path, static_folder, out, force=True, rows_per_part=31)
    assert contents(out) != before


def test_another_model_and_another_source_are_refused(
    parquet: Callable[..., Path], static_folder: Path, tmp_path: Path
) -> None:
    from safetensors.numpy import load_file, save_file

    path = parquet(90)
    encode(path, static_folder, tmp_path / "out", rows_per_part=30)
    shutil.copytree(static_folder, tmp_path / "other")
    (weights,) = (tmp_path / "other").rglob("model.safetensors")
    arrays = load_file(weights)
    save_file({name: array + 1 for name, array in arrays.items()}, weights)
    with pytest.raises(EssentError, match="model was"):
        encode(path, tmp_path / "other", tmp_path / "out", rows_per_part=30)
    changed = sentences(90)
    changed[40] = changed[40][::-1]  # the same length
    parquet(90, texts=changed)
    with pytest.raises(EssentError, match=r"rows\.parquet has changed: .*samples"):
        encode(path, static_folder, tmp_path / "out", rows_per_part=30)


def test_more_files_of_a_pattern_are_added(parquet: Callable[..., Path], static_folder: Path, tmp_path: Path) -> None:
    parquet(60, "rows-1.parquet")
    encode(tmp_path / "rows-*.parquet", static_folder, tmp_path / "out")
    before = contents(tmp_path / "out")
    parquet(30, "rows-2.parquet")
    run = encode(tmp_path / "rows-*.parquet", static_folder, tmp_path / "out")
    assert (run.rows, run.resumed) == (90, 60)
    assert before.items() < contents(tmp_path / "out").items()
    parquet(30, "rows-0.parquet")
    with pytest.raises(EssentError, match=r"source 1 was .*rows-1\.parquet and is now .*rows-0\.parquet"):
        encode(tmp_path / "rows-*.parquet", static_folder, tmp_path / "out")


def test_foreign_files_in_the_folder(parquet: Callable[..., Path], static_folder: Path, tmp_path: Path) -> None:
    """What is not essent's stays; what has a part's name and is none is refused."""
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "notes.txt").write_text("mine", "utf-8")
    encode(parquet(30), static_folder, tmp_path / "out")
    encode(parquet(30, "b.parquet"), static_folder, tmp_path / "out", force=True)
    assert (tmp_path / "out" / "notes.txt").read_text("utf-8") == "mine"
    part = next((tmp_path / "out").glob("part-*"))
    part.write_bytes(part.read_bytes()[:100])
    with pytest.raises(EssentError, match="is damaged"):
        encode(tmp_path / "b.parquet", static_folder, tmp_path / "out")
    pq.write_table(pa.table({"a": [1]}), part)
    with pytest.raises(EssentError, match="was not written by"):
        encode(tmp_path / "b.parquet", static_folder, tmp_path / "out")
    with pytest.raises(EssentError, match="contains sources"):
        encode(tmp_path, static_folder, tmp_path / "out", force=True)
    with pytest.raises(EssentError, match=r"is a file\. Expected a folder"):
        encode(tmp_path / "b.parquet", static_folder, tmp_path / "b.parquet")


# -- in the middle of a run -------------------------------------------------------------------------------------------


def test_source_changes_during_the_run(tmp_path: Path, static_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody adds lines when some parts are written: they stay as they are, and the run ends."""
    import essent.bulk.work as work

    path = tmp_path / "a.txt"
    path.write_text("\n".join(sentences(600)) + "\n", "utf-8")
    encode_batch, encoded = work.encode, []

    def encode_and_change(batch: Any, model: Any, settings: Any) -> None:
        encode_batch(batch, model, settings)
        encoded.append(batch.unit.index)
        if len(encoded) == 4:
            with path.open("a", encoding="utf-8") as file:
                file.write("one more\n")

    monkeypatch.setattr(work, "encode", encode_and_change)
    with pytest.raises(EssentError, match=r"a\.txt is not the file that the run began with \(bytes .*intact"):
        encode(path, static_folder, tmp_path / "out", rows_per_part=50)
    parts = read_parts(tmp_path / "out")
    assert 1 <= len(parts) <= 4
    assert table_of(tmp_path / "out")["text"].to_pylist() == sentences(600)[: sum(p.rows for p in parts.values())]
    with pytest.raises(EssentError, match="has changed: bytes"):
        encode(path, static_folder, tmp_path / "out", rows_per_part=50)


LIMITED = """
import resource, signal, sys
from essent.cli import main
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (8000, 8000))
sys.exit(main())
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="no limits of processes")
@pytest.mark.parametrize(("workers", "kind"), [("1", "static"), ("2", "static"), ("2", "bert")])
def test_full_disk(workers: str, kind: str, tmp_path: Path, static_folder: Path, bert: Path) -> None:
    """While a part is written, or the weights for workers: an error without a traceback, and what is there is whole."""
    texts = [*sentences(200), *(sentence(n) * 40 + os.urandom(9000).hex() for n in range(60))]
    (tmp_path / "a.txt").write_text("\n".join(texts), "utf-8")
    model, out = static_folder if kind == "static" else bert, tmp_path / "out"
    words = ["encode", tmp_path / "a.txt", "-m", model, "-o", out, "--rows-per-part", 10, "--workers", workers]
    command = [sys.executable, "-c", LIMITED, *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT)
    assert done.returncode == 2, done.stderr
    assert "The disk is full. The parts in" in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
    assert not list(out.glob("[._]*"))
    parts = read_parts(out)
    assert bool(parts) == (workers == "1")
    encode(tmp_path / "a.txt", model, out, rows_per_part=10)
    assert table_of(out)["text"].to_pylist() == texts
