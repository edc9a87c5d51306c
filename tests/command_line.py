"""The command line in this process: `essent.cli.main` with streams of its own, as in a pipe."""

import io
import json
import os
import shlex
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cyclopts import App

from essent.cli.app import app, main

TEXTS = ["A man is playing a large flute.", "", "How far is the moon from the earth?", "Two dogs run. [MASK] [red]"]
PROGRAM = [sys.executable, "-m", "essent"]  # for a process of its own


def environment(**more: str) -> dict[str, str]:
    """The variables of a process that finds the modules that this one finds."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **more}


@dataclass(frozen=True)
class Output:
    """What a command line wrote, and how it ended."""

    exit_code: int
    stdout: str
    stderr: str

    @property
    def output(self) -> str:
        return self.stdout + self.stderr


def run(*arguments: object, code: int | None = 0, stdin: bytes = b"") -> Output:
    """Run a command line, one string or its words; `code` is the expected exit code, None any."""
    words = shlex.split(str(arguments[0])) if len(arguments) == 1 else [str(argument) for argument in arguments]
    streams = [io.TextIOWrapper(io.BytesIO(sent), "utf-8", newline="\n") for sent in (stdin, b"", b"")]
    with pytest.MonkeyPatch.context() as patched:
        for name, stream in zip(("stdin", "stdout", "stderr"), streams, strict=True):
            patched.setattr(sys, name, stream)
        try:
            exit_code = main(words)
        except SystemExit as end:
            exit_code = int(end.code or 0)
    for stream in streams:
        stream.flush()
    written = Output(exit_code, *(stream.buffer.getvalue().decode("utf-8") for stream in streams[1:]))  # type: ignore[attr-defined]
    assert code in (None, exit_code), written.output
    return written


def error(*arguments: object, code: int = 2) -> str:
    """The words on standard error of a command line that fails."""
    return " ".join(run(*arguments, code=code).stderr.split())


def write_rows(path: Path, rows: Iterable[object]) -> Path:
    """A file of JSON lines."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return path


def write_pairs(path: Path, seed: int = 0) -> Path:
    """A file of 80 scored pairs."""
    words = "the quick brown fox jumps over a lazy dog while rain falls on green hills of home".split()
    draw = np.random.default_rng(seed)
    texts = [" ".join(draw.choice(words, 3 + n % 6, replace=False)) for n in range(160)]
    rows = ({"sentence1": texts[2 * n], "sentence2": texts[2 * n + 1], "score": n % 7 + n / 80} for n in range(80))
    return write_rows(path, rows)


def read_json(path: Path) -> Any:
    return json.loads(path.read_text("utf-8"))


def commands(program: App = app, path: str = "essent") -> Iterator[tuple[str, App]]:
    """Every command by its words, without those that only group others."""
    for name in program:
        if not name.startswith("-"):
            command = program[name]
            if command.default_command is not None:
                yield f"{path} {name}", command
            yield from commands(command, f"{path} {name}")
