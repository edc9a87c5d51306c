"""Where people run it: a bare locale, no standard input, every start method of processes."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from bulk_helpers import Bulk, sentences

from command_line import PROGRAM, environment

posix_only = pytest.mark.skipif(os.name != "posix", reason="needs a shell")


@pytest.mark.slow
@posix_only
def test_a_bare_locale_and_no_standard_input(static_folder: Path, tmp_path: Path, bulk: Bulk) -> None:
    """Names and texts beyond ASCII arrive under LC_ALL=C; another file may get the number of a closed stdin."""
    texts = [f"schöne Grüße an 東京 {n}" for n in range(50)]
    (tmp_path / "wörter.csv").write_text("\n".join(["ünï,text", *(f"é{n},{t}" for n, t in enumerate(texts))]), "utf-8")
    command = ["sh", "-c", 'exec "$@" <&-', "sh", *PROGRAM, "encode", "wörter.csv", "-m", str(static_folder)]
    command += ["-o", "äus", "--rows-per-part", "20", "--workers", "2", "--prompt", "für: "]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", env=environment(LC_ALL="C"), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "äus: 50 rows in 3 parts" in " ".join(done.stderr.split())
    table = bulk.table("äus")
    assert table["text"].to_pylist() == texts
    bulk.encode(tmp_path / "wörter.csv", out="whole", prompt="für: ", rows_per_part=20)
    assert bulk.parts("äus") == bulk.parts("whole")


@posix_only
def test_output_name_is_not_utf8(bulk: Bulk) -> None:
    bulk.refuse("is not UTF-8. Choose another name", bulk.parquet(3), out=os.fsdecode(b"gr\xf6sse"))


SCRIPT = """
import multiprocessing, sys
from essent.bulk import encode

def work(path, model, out):
    print(encode(path, model, out, rows_per_part=20, workers=2).rows, flush=True)

if __name__ == "__main__":
    method, *words = sys.argv[1:]
    multiprocessing.set_start_method(method)
    process = multiprocessing.Process(target=work, args=words)
    process.start()
    process.join()
    sys.exit(process.exitcode)
"""
METHODS = [method for method in ("spawn", "forkserver", "fork") if method in multiprocessing.get_all_start_methods()]


def run_script(code: str, *words: object) -> subprocess.CompletedProcess[str]:
    script = Path(str(words[-1])).with_name("script.py")
    script.write_text(code, "utf-8")
    command = [sys.executable, str(script), *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, env=environment())


@pytest.fixture
def words(tmp_path: Path, static_folder: Path, bulk: Bulk) -> tuple[Path, Path, Path]:
    pq.write_table(pa.table({"text": sentences(60)}), tmp_path / "a.parquet")
    return tmp_path / "a.parquet", static_folder, bulk.out


@pytest.mark.slow
def test_workers_of_processes(words: tuple[Path, Path, Path]) -> None:
    """Started by every method; a script without a guard starts itself, and multiprocessing says so."""
    for method in METHODS:
        done = run_script(SCRIPT, method, *words[:2], words[2].with_name(method))
        assert (done.returncode, done.stdout) == (0, "60\n"), done.stderr
    unguarded = "import sys\nfrom essent.bulk import encode\nencode(*sys.argv[1:], rows_per_part=20, workers=2)\n"
    done = run_script(unguarded, *words)
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert "DataError: A worker process ended with code 1 (see its error above)" in last
    assert "if __name__ == '__main__':" in done.stderr
    assert not list(words[-1].iterdir())
