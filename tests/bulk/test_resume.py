"""Runs that are killed, interrupted, short of disk or given something else: the same bytes in the end, or refused."""

from __future__ import annotations

import json
import lzma
import os
import re
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from bulk_helpers import contents, sentence, sentences, table_of, write_sources
from fsspec.implementations.memory import MemoryFile

from command_line import PROGRAM
from essent import EssentError
from essent.bulk.parts import read_parts
from essent.bulk.run import encode
from waiting import LIMIT, wait_until

FOLDER = Path(__file__).parent
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


@pytest.fixture
def root(tmp_path: Path, static_folder: Path) -> Path:
    """Sources of three kinds, 3,000 rows, and the static encoder."""
    sources = write_sources(tmp_path, (1400, 2400, 3000))
    (tmp_path / "sources.json").write_text(json.dumps(sources), "utf-8")
    shutil.copytree(static_folder, tmp_path / "static")
    return tmp_path


def kill_at_random(root: Path, kills: int, seed: int, rows: int, most: int) -> None:
    """Kill a run so often and let it end; compare it with one that nobody killed.

    Args:
        rows: of a part.
        most: parts that an attempt may compute before it is killed.
    """
    (root / "settings.json").write_text(json.dumps({"rows_per_part": rows}), "utf-8")
    command = [sys.executable, str(FOLDER / "killed_runs.py"), str(root), str(kills), str(seed), str(most)]
    done = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT)
    assert done.returncode == 0, done.stderr
    sources, settings = (json.loads((root / f"{name}.json").read_text("utf-8")) for name in ("sources", "settings"))
    encode(sources, root / "static", root / "whole", **settings)
    parts = contents(root / "out")
    assert len(parts) > kills * most
    assert parts == contents(root / "whole")
    assert not [path.name for path in (root / "out").iterdir() if path.name not in parts]
    computed = Counter((root / "computed.log").read_text("utf-8").split())
    assert sum(computed.values()) - len(parts) <= kills  # at most one whole part a kill
    assert table_of(root / "out")["n"].to_pylist()[:1400] == list(range(1400))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the attempts are forked")
@pytest.mark.slow
def test_killed_at_a_few_instants(root: Path) -> None:
    kill_at_random(root, 4, 1, 150, 4)


@pytest.mark.faults
@pytest.mark.skipif(not hasattr(os, "fork"), reason="the attempts are forked")
def test_killed_at_a_hundred_instants(root: Path) -> None:
    rows = [json.dumps({"n": n, "text": sentence(n)}) for n in range(12_000)]  # 900 parts
    (root / "b.jsonl").write_text("\n".join(rows), "utf-8")
    kill_at_random(root, 100, 2, 14, 8)


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


@pytest.mark.parametrize("packing", ["gzip", "bz2", "xz", "zstd", None])
def test_resume_within_a_stream(packing: str | None, static_folder: Path, tmp_path: Path) -> None:
    """From where the last part before the first missing one ended."""
    content = "\n".join(["n,text", *(f'{n},"{sentence(n)}\nand ünï"' for n in range(200))]).encode()
    suffix = {"gzip": ".gz", "bz2": ".bz2", "xz": ".xz", "zstd": ".zst", None: ""}[packing]
    path = tmp_path / f"a.csv{suffix}"
    if packing == "xz":
        path.write_bytes(lzma.compress(content))
    else:
        with pa.output_stream(str(path), compression=packing) as sink:
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


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"dtype": "float16"}, 'dtype was "float32" and is now "float16"'),
        ({"prompt": "query: "}, 'prompt was "" and is now "query: "'),
        ({"normalize": True}, "normalize was false and is now true"),
        ({"truncate_dim": 5}, "truncate_dim was null and is now 5"),
        ({"vectors": "fixed"}, 'vectors was "list" and is now "fixed"'),
        ({"id": "n"}, 'id was [] and is now ["n"]'),
        ({"chunk": "sentences"}, 'chunk was null and is now "sentences"'),
        ({"rows_per_part": 31}, "rows_per_part was 30 and is now 31"),
    ],
)
def test_changed_settings_are_refused(
    settings: dict, message: str, parquet: Callable[..., Path], static_folder: Path, tmp_path: Path
) -> None:
    path = parquet(90)
    encode(path, static_folder, tmp_path / "out", rows_per_part=30)
    before = contents(tmp_path / "out")
    with pytest.raises(EssentError, match=re.escape(message)):
        encode(path, static_folder, tmp_path / "out", **{"rows_per_part": 30, **settings})
    assert contents(tmp_path / "out") == before
    encode(path, static_folder, tmp_path / "out", force=True, **{"rows_per_part": 30, **settings})
    assert contents(tmp_path / "out") != before


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
    shutil.move(path, path.with_name("moved.parquet"))
    with pytest.raises(EssentError, match=r"source 1 was .*rows\.parquet and is now .*moved\.parquet"):
        encode(path.with_name("moved.parquet"), static_folder, tmp_path / "out", rows_per_part=30)
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
    with pytest.raises(EssentError, match="is among the sources"):
        encode(tmp_path, static_folder, tmp_path / "out", force=True)
    with pytest.raises(EssentError, match="is a file; the output is a folder"):
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
    with pytest.raises(EssentError, match=r"a\.txt has changed while it was read \(bytes .*intact"):
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
def test_no_room_for_a_part(tmp_path: Path, static_folder: Path) -> None:
    """The system refuses to write more: an error without a traceback, and the parts before are whole."""
    texts = [*sentences(200), *(sentence(n) * 40 + os.urandom(9000).hex() for n in range(60))]
    (tmp_path / "a.txt").write_text("\n".join(texts), "utf-8")
    words = ["encode", tmp_path / "a.txt", "-m", static_folder, "-o", tmp_path / "out", "--rows-per-part", "1"]
    command = [sys.executable, "-c", LIMITED, *map(str, words[:-1]), "10"]
    done = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT)
    assert done.returncode == 2, done.stderr
    assert "The disk is full. The parts in" in done.stderr.replace("\n", " ")
    assert "Traceback" not in done.stderr
    parts = read_parts(tmp_path / "out")
    assert not list((tmp_path / "out").glob(".*"))
    encode(tmp_path / "a.txt", static_folder, tmp_path / "out", rows_per_part=10)
    assert table_of(tmp_path / "out")["text"].to_pylist() == texts
    assert len(parts) < len(read_parts(tmp_path / "out"))


def started(root: Path, *more: str) -> subprocess.Popen[str]:
    words = ["encode", str(root / "b.jsonl"), "-m", str(root / "static"), "-o", str(root / "out"), *more]
    return subprocess.Popen([*PROGRAM, *words], stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGINT to another process")
@pytest.mark.slow
@pytest.mark.parametrize("workers", ["1", "2"])
def test_interrupted(root: Path, workers: str) -> None:
    """Ctrl-C ends after the part that was begun, and says how to go on; most of the 1,000 parts are still to come."""
    rows = [json.dumps({"n": n, "text": sentence(n)}) for n in range(3000)]
    (root / "b.jsonl").write_text("\n".join(rows), "utf-8")
    process = started(root, "--rows-per-part", "3", "--workers", workers)
    wait_until(lambda: process.poll() is not None or len(list((root / "out").glob("part-*"))) >= 3)
    process.send_signal(signal.SIGINT)
    output = process.communicate(timeout=LIMIT)[1]
    assert process.returncode == 130, output
    assert "The same command goes on from there" in output.replace("\n", " ")
    assert not list((root / "out").glob(".*"))
    count = len(read_parts(root / "out"))
    assert 3 <= count < 1000
    encode(root / "b.jsonl", root / "static", root / "out", rows_per_part=3)
    assert table_of(root / "out")["n"].to_pylist() == list(range(3000))
