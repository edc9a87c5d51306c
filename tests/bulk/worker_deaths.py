"""Runs of `essent.encode` with two workers, one of which dies, or the process that started them, or both.

python worker_deaths.py FOLDER KILLS SEED start|work     at a random audit event of its start, or of its work

After each death, no process may be left, and another run goes on: it must give the bytes of one that nobody killed.
The runs are forked from this process, which has imported everything, and adopts what they leave.
"""

from __future__ import annotations

import ctypes
import json
import os
import random
import shutil
import signal
import sys
import time
from pathlib import Path

from essent import EssentError, bulk
from essent.bulk import run, work  # noqa: F401  before the fork

ROWS_PER_PART = 20
HANGS_AFTER = 300.0  # seconds
ADOPT = 36  # PR_SET_CHILD_SUBREAPER
VICTIMS = (["worker"], ["worker"], ["parent"], ["worker", "parent"])
FAILED = 3


def encode(root: Path, out: Path, workers: int) -> int:
    """A run in a forked process; how it ended."""
    number = os.fork()
    if number == 0:
        try:
            sources = json.loads((root / "sources.json").read_text("utf-8"))
            bulk.encode(sources, root / "static", out, workers=workers, rows_per_part=ROWS_PER_PART)
        except EssentError as error:
            (root / "error.txt").write_text(str(error), "utf-8")
            os._exit(FAILED)
        except BaseException:
            sys.excepthook(*sys.exc_info())
            os._exit(1)
        os._exit(0)
    ended: dict[int, int] = {}
    until = time.monotonic() + HANGS_AFTER
    while True:  # all of them: of a killed process also its workers, which must end by themselves
        try:
            process, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return os.waitstatus_to_exitcode(ended[number])
        if process:
            ended[process] = status
        elif time.monotonic() > until:
            raise SystemExit(f"hangs: {'the run' if number not in ended else 'a process that a killed run left'}")
        else:
            time.sleep(0.005)


def contents(folder: Path) -> dict[str, bytes | None]:
    """Every file of a folder, hidden ones too; None for a folder in it."""
    paths = folder.iterdir() if folder.is_dir() else ()
    return {path.name: None if path.is_dir() else path.read_bytes() for path in paths}


def main(root: Path, kills: int, seed: int, moment: str) -> None:
    ctypes.CDLL(None).prctl(ADOPT, 1, 0, 0, 0)
    chance = random.Random(seed)  # noqa: S311
    temporary = root / "tmp"
    temporary.mkdir()
    os.environ["TMPDIR"] = str(temporary)

    def attempt(at: int, since: str | None, victims: list[str], out: Path) -> int:
        shutil.rmtree(root / "claims", ignore_errors=True)
        (root / "claims").mkdir()
        plan = {"at": at, "since": since, "victims": victims, "folder": str(root / "claims")}
        os.environ["DYING"] = json.dumps(plan)
        return encode(root, out, 2)

    assert attempt(0, None, [], root / "whole") == 0
    whole, out = contents(root / "whole"), root / "out"
    events = int((root / "claims" / "counted").read_text("utf-8"))
    killed, died_with_parts = 0, 0
    for _ in range(3 * kills):  # a worker that has little to do, as the other is quicker, may not get so far
        if killed == kills:
            break
        victims = chance.choice(VICTIMS)
        if moment == "start":
            at, since = chance.randint(1, events), None
        else:  # a first part has hundreds of events, of imports, and a later one about thirty
            at, since = chance.choice([(chance.randint(1, 500), "os.mkdir"), (chance.randint(1, 60), "os.rename")])
        status = attempt(at, since, victims, out)
        assert status in (0, FAILED, -signal.SIGKILL), status
        parts = contents(out)
        if status == FAILED:
            assert victims == ["worker"]
            message = (root / "error.txt").read_text("utf-8")
            assert "A worker process was killed by signal 9" in message, message
            assert " while it started" not in message or moment == "start", message
            assert parts.items() <= whole.items(), sorted(parts)
        killed += status != 0
        died_with_parts += status != 0 and not parts.keys().isdisjoint(whole)
        os.environ["DYING"] = json.dumps({"at": -1, "since": None, "victims": [], "folder": None})
        assert encode(root, out, 1 + killed % 10 // 9) == 0  # every tenth time with workers
        assert contents(out) == whole, sorted(contents(out))
        assert not list(temporary.iterdir()), list(temporary.iterdir())
        shutil.rmtree(out)
    print(json.dumps({"killed": killed, "with parts": died_with_parts, "events": events}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
