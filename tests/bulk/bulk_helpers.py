"""Texts and files of many rows, runs of the static encoder on them, and what they wrote."""

import json
import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from command_line import PROGRAM, environment
from essent import EssentError, StaticEncoder
from essent.bulk.parts import read_parts
from essent.bulk.run import BulkResult, encode
from waiting import LIMIT, wait_until

SUBJECTS = ("A man", "The kitten", "Two dogs", "She", "An old tree")


def sentence(number: int) -> str:
    """A text of its own for every number, of very different lengths."""
    return f"{SUBJECTS[number % 5]} climbed the tree {'in the morning ' * (number * 7 % 23)}{number}"


def sentences(count: int) -> list[str]:
    return [sentence(number) for number in range(count)]


def end_of(process: subprocess.Popen[str], code: int | None) -> str:
    """Wait until a process ends with this code, or any; the words on its standard error."""
    try:
        message = " ".join(process.communicate(timeout=LIMIT)[1].split())
    finally:
        process.kill()
    assert code in (None, process.returncode), message
    return message


class Bulk:
    """Runs of `essent.encode` in the current folder, by the static encoder where no model is given."""

    def __init__(self, static: Path) -> None:
        self.static, self.out = static, Path("out").absolute()

    def encoder(self) -> StaticEncoder:
        return StaticEncoder.load(self.static)

    def write(self, name: str, content: str | bytes | bytearray) -> Path:
        """Write a file, compressed as its name says."""
        with pa.output_stream(name) as sink:
            sink.write(content.encode() if isinstance(content, str) else content)
        return Path(name).absolute()

    def parquet(self, texts: list | int, name: str = "rows.parquet") -> Path:
        """Write a file of texts, or of so many sentences, with a number each."""
        chosen = sentences(texts) if isinstance(texts, int) else texts
        table = pa.table({"n": list(range(len(chosen))), "text": chosen})
        pq.write_table(table, name, row_group_size=100)
        return Path(name).absolute()

    def sources(self, first: int, second: int, third: int) -> list[Path]:
        """Write rows up to each number in Parquet, JSON lines and compressed CSV; every fiftieth has no text."""
        texts = [None if n % 50 == 3 else text for n, text in enumerate(sentences(third))]
        rows = [json.dumps({"n": n, "text": texts[n]}) for n in range(first, second)]
        lines = ["line,text", *(f'{n},"{texts[n] or ""}"' for n in range(second, third))]
        tables = (self.write("b.jsonl", "\n".join(rows)), self.write("c.csv.gz", "\n".join(lines)))
        return [self.parquet(texts[:first], "a.parquet"), *tables]

    def start(
        self, *words: object, program: Sequence[str] = PROGRAM, out: str = "out", parts: int = 0
    ) -> subprocess.Popen[str]:
        """Start the command line in a process of its own, and wait until it has written so many parts.

        The model's name is as it is seen from where it runs.
        """
        command = [*program, "encode", *map(str, words), "-m", os.path.relpath(self.static), "-o", out]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, encoding="utf-8", env=environment())
        self.wait_for_parts(process, parts)
        return process

    def wait_for_parts(self, process: subprocess.Popen[str], more: int) -> None:
        """Wait until a process has written so many parts more."""

        def count() -> int:
            return len(list(self.out.glob("part-*")))

        target = count() + more
        wait_until(lambda: process.poll() is not None or count() >= target)
        assert process.poll() is None, end_of(process, 0)

    def interrupt(self, process: subprocess.Popen[str]) -> None:
        """Press Ctrl-C: the process ends after the parts that were begun, and says how to go on."""
        process.send_signal(signal.SIGINT)
        assert "Run the same command to resume" in end_of(process, 130)
        assert not list(self.out.glob(".*"))

    def check_whole(self, sources: Any, rows_per_part: int) -> None:
        """Check that there are the bytes of a run that nobody killed, and nothing else."""
        self.encode(sources, out="whole", rows_per_part=rows_per_part)
        assert self.parts() == self.parts("whole")
        assert {path.name for path in self.out.iterdir()} == self.parts().keys()

    def encode(self, sources: Any, model: Any = None, *, out: str = "out", **settings: Any) -> BulkResult:
        return encode(sources, self.static if model is None else model, out, **settings)

    def refuse(self, message: str, sources: Any, model: Any = None, **settings: Any) -> str:
        """Check that a run ends with an error of this pattern, and return the error."""
        with pytest.raises(EssentError, match=message) as caught:
            self.encode(sources, model, **settings)
        return str(caught.value)

    def table(self, out: str = "out") -> pa.Table:
        """All rows of a run, in order."""
        return pa.concat_tables([pq.ParquetFile(Path(out) / name).read() for name in read_parts(Path(out))])

    def vectors(self, out: str = "out") -> np.ndarray:
        """The vectors (N,K) as float32, of the rows that have one."""
        return np.array(self.table(out)["embedding"].drop_null().to_pylist(), np.float32)

    def parts(self, out: str = "out") -> dict[str, bytes]:
        """The bytes of every part."""
        return {path.name: path.read_bytes() for path in sorted(Path(out).glob("part-*.parquet"))}
