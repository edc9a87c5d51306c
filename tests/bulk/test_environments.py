"""Where people run it: an ordinary user, a full disk, a bare locale, no stdin, every start method of processes."""

from __future__ import annotations

import multiprocessing
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from bulk_helpers import Bulk, contents, sentences

from command_line import PROGRAM, environment
from essent.bulk.run import encode

APP = [*PROGRAM, "encode"]
NOBODY = 65534
posix_only = pytest.mark.skipif(os.name != "posix", reason="needs users, mounts and signals")
WORKERS = ["1", pytest.param("2", marks=pytest.mark.slow)]


def run(*words: object, code: int = 0, start: list[str] | None = None, **more: Any) -> str:
    """The command in a process of its own; what it says, on one line."""
    command = [*(start or []), *APP, *map(str, words)]
    done = subprocess.run(
        command, capture_output=True, text=True, encoding="utf-8", env=environment(**more.pop("env", {})), **more
    )
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    return " ".join(done.stderr.split())


# -- an ordinary user -------------------------------------------------------------------------------------------------


@pytest.fixture
def ordinary() -> Iterator[tuple[Path, list[str]]]:
    """A folder of an ordinary user, and the beginning of a command that runs as that user."""
    folder, start = Path(tempfile.mkdtemp(prefix="essent-ordinary-")), list[str]()
    if os.geteuid() == 0:
        os.chown(folder, NOBODY, NOBODY)
        reads = "-all,+dac_read_search"  # where Python is installed for root alone; gives no right to write
        start = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
        start += [f"--inh-caps={reads}", f"--ambient-caps={reads}"]
        try:
            subprocess.run([*start, sys.executable, "-c", "import pyarrow"], check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError) as error:
            pytest.skip(f"no process of an ordinary user can be started: {error}")
    yield folder, start
    shutil.rmtree(folder)


@posix_only
@pytest.mark.slow
@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_read_only_output(workers: str, ordinary: tuple[Path, list[str]], static_folder: Path) -> None:
    """Refused before anything is computed; what is there stays, and is gone on with when it can be written to."""
    folder, start = ordinary
    shutil.copytree(static_folder, folder / "static")
    (folder / "a.txt").write_text("\n".join(sentences(90)), "utf-8")
    locked, out = folder / "locked", folder / "locked" / "out"
    locked.mkdir(mode=0o755)
    locked.chmod(0o555)
    words = (folder / "a.txt", "-m", folder / "static", "-o", out, "--rows-per-part", 30, "--workers", workers)
    assert f"{out} cannot be written: {locked} is read-only." in run(*words, code=2, start=start)
    encode(folder / "a.txt", folder / "static", out, rows_per_part=30)
    whole = contents(out)
    (out / "part-00000-000001.parquet").unlink()
    before = contents(out)
    out.chmod(0o555)
    if os.geteuid() == 0:
        for path in out.rglob("*"):
            os.chown(path, NOBODY, NOBODY)
        os.chown(out, NOBODY, NOBODY)
    assert f"{out} cannot be written: {out} is read-only." in run(*words, code=2, start=start)
    assert contents(out) == before
    out.chmod(0o755)
    run(*words, start=start)
    assert contents(out) == whole
    assert {path.name for path in out.iterdir()} == whole.keys()


# -- a full disk -----------------------------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """A disk in memory of some size; called again, it is made larger."""
    disk = tmp_path / "disk"
    disk.mkdir()

    def sized(size: str) -> Path:
        again = ["-o", f"remount,size={size}"] if disk.is_mount() else ["-t", "tmpfs", "-o", f"size={size}", "tmpfs"]
        done = subprocess.run(["mount", *again, str(disk)], capture_output=True, text=True)
        if done.returncode:
            pytest.skip(f"no file system can be mounted here: {done.stderr.strip()}")
        return disk

    if not sys.platform.startswith("linux") or shutil.which("mount") is None:
        pytest.skip("needs Linux and mount")
    yield sized
    subprocess.run(["umount", "--lazy", str(disk)], capture_output=True)


@pytest.mark.slow
@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_full_disk(
    workers: str, small_disk: Callable[[str], Path], tmp_path: Path, static_folder: Path, bulk: Bulk
) -> None:
    """While the weights or the first part are written, or later: an error, whole parts, and it can be resumed."""
    texts = [f"{text} {os.urandom(4000).hex()}" for text in sentences(300)]
    (tmp_path / "a.txt").write_text("\n".join(texts), "utf-8")
    counts = []
    for size in ("4k", "800k"):
        out = small_disk(size) / "out"
        words = (tmp_path / "a.txt", "-m", static_folder, "-o", out, "--rows-per-part", 30, "--workers", workers)
        assert "The disk is full. The parts in" in run(*words, code=2)
        paths = out.iterdir() if out.is_dir() else ()
        assert not [path.name for path in paths if not path.name.startswith("part-")]
        counts.append(len(contents(out)))
    assert 0 == counts[0] < counts[1] < 10
    small_disk("16m")
    run(*words)
    bulk.encode(tmp_path / "a.txt", out="whole", rows_per_part=30)
    assert contents(out) == bulk.parts("whole")


# -- locale, standard input, start methods ----------------------------------------------------------------------------


@posix_only
@pytest.mark.parametrize("workers", WORKERS)
def test_a_bare_locale_and_no_standard_input(workers: str, static_folder: Path, tmp_path: Path, bulk: Bulk) -> None:
    """Names and texts beyond ASCII arrive under LC_ALL=C; another file may get the number of a closed stdin."""
    texts = [f"schöne Grüße an 東京 {n}" for n in range(50)]
    (tmp_path / "wörter.csv").write_text("\n".join(["ünï,text", *(f"é{n},{t}" for n, t in enumerate(texts))]), "utf-8")
    output = run(
        *("wörter.csv", "-m", static_folder, "-o", "äus", "--rows-per-part", 20, "--workers", workers),
        *("--prompt", "für: "),
        start=["sh", "-c", 'exec "$@" <&-', "sh"],
        env={"LC_ALL": "C"},
        cwd=tmp_path,
    )
    assert "äus: 50 rows in 3 parts" in output
    table = bulk.table("äus")
    assert table["text"].to_pylist() == texts
    settings = {"prompt": "für: ", "rows_per_part": 20}
    bulk.encode(tmp_path / "wörter.csv", out="whole", **settings)
    assert bulk.parts("äus") == bulk.parts("whole")


@posix_only
def test_output_name_is_not_utf8(static_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a dog\n", "utf-8")
    words = (tmp_path / "a.txt", "-m", static_folder, "-o", os.fsdecode(b"gr\xf6sse"))
    assert "is not UTF-8. Choose another name" in run(*words, code=2, cwd=tmp_path)


SCRIPT = """
import multiprocessing, sys
from essent.bulk import encode

def work(path, model, out):
    print(encode(path, model, out, rows_per_part=20, workers=2).rows, flush=True)

if __name__ == "__main__":
    method, daemon, *words = sys.argv[1:]
    multiprocessing.set_start_method(method)
    process = multiprocessing.Process(target=work, args=words, daemon=daemon == "daemon")
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
    """Started by every method; a daemon, as in a pool, may have no children; a script without a guard starts itself."""
    for method in METHODS:
        done = run_script(SCRIPT, method, "plain", *words[:2], words[2].with_name(method))
        assert (done.returncode, done.stdout) == (0, "60\n"), done.stderr
    done = run_script(SCRIPT, "spawn", "daemon", *words)
    assert "InputError: workers=2: no process can be started (daemonic processes" in done.stderr
    unguarded = "import sys\nfrom essent.bulk import encode\nencode(*sys.argv[1:], rows_per_part=20, workers=2)\n"
    done = run_script(unguarded, *words)
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert re.search(r"DataError: A worker process ended with code 1 while it started.*needs `if __name__ ==", last)
    assert not list(words[-1].iterdir())
