"""Where people run it: a bare locale, no standard input, every start method of processes."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys

import pytest
from bulk_helpers import Bulk, end_of

from command_line import PROGRAM, environment

posix_only = pytest.mark.skipif(os.name != "posix", reason="needs a shell")


@pytest.mark.slow
@posix_only
def test_a_bare_locale_and_no_standard_input(monkeypatch: pytest.MonkeyPatch, bulk: Bulk) -> None:
    """Names and texts beyond ASCII arrive under LC_ALL=C; another file may get the number of a closed stdin."""
    texts = [f"schöne Grüße an 東京 {n}" for n in range(50)]
    source = bulk.write("wörter.csv", "\n".join(["ünï,text", *(f"é{n},{text}" for n, text in enumerate(texts))]))
    program = ("sh", "-c", 'exec "$@" <&-', "sh", *PROGRAM)
    monkeypatch.setenv("LC_ALL", "C")
    words = ("wörter.csv", "--rows-per-part", 20, "--workers", 2, "--prompt", "für: ")
    process = bulk.start(*words, program=program, out="äus")
    message = end_of(process)
    assert process.returncode == 0, message
    assert "äus: 50 rows in 3 parts" in message
    assert bulk.table("äus")["text"].to_pylist() == texts
    bulk.encode(source, prompt="für: ", rows_per_part=20)
    assert bulk.parts("äus") == bulk.parts()


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
UNGUARDED = "import sys\nfrom essent.bulk import encode\nencode(*sys.argv[1:], rows_per_part=20, workers=2)\n"


def run_script(bulk: Bulk, code: str, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(bulk.write("script.py", code)), *words]
    return subprocess.run(command, capture_output=True, text=True, env=environment())


@pytest.mark.slow
def test_workers_of_processes(bulk: Bulk) -> None:
    """Started by every method; a script without a guard starts itself, and multiprocessing says so."""
    words = (str(bulk.parquet(60)), str(bulk.static))
    for method in multiprocessing.get_all_start_methods():
        done = run_script(bulk, SCRIPT, method, *words, method)
        assert (done.returncode, done.stdout) == (0, "60\n"), done.stderr
    done = run_script(bulk, UNGUARDED, *words, "out")
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert "DataError: A worker process ended with code 1 (see its error above)" in last
    assert "if __name__ == '__main__':" in done.stderr
    assert not list(bulk.out.iterdir())
