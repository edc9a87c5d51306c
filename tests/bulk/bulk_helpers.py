"""A static encoder and a tiny BERT on disk, rows of every kind, and a way to read what a run wrote."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from essent import EssentError, StaticEncoder
from essent.bulk.parts import read_parts
from essent.bulk.run import BulkResult, encode

SUBJECTS = ("A man", "The kitten", "Two dogs", "She", "An old tree")
ENDS = (
    "plays the flute.",
    "climbed the tree",
    "run through the green field, chasing a red ball",
    "drinks cold coffee!",
)


def sentence(number: int) -> str:
    """A text of its own for every number, of very different lengths."""
    words = f"{SUBJECTS[number % 5]} {ENDS[number // 5 % 4]}"
    return f"{words} {'in the morning ' * (number * 7 % 23)}{number}"


def sentences(count: int) -> list[str]:
    return [sentence(number) for number in range(count)]


def write_sources(folder: Path, ends: tuple[int, int, int]) -> list[str]:
    """Rows up to each end in a Parquet file, in JSON lines and in a compressed CSV file; every fiftieth has no text."""
    first, second, third = ends
    texts = [None if n % 50 == 3 else sentence(n) for n in range(third)]
    pq.write_table(pa.table({"n": range(first), "text": texts[:first]}), folder / "a.parquet", row_group_size=300)
    rows = [json.dumps({"n": n, "text": texts[n]}) for n in range(first, second)]
    (folder / "b.jsonl").write_text("\n".join(rows), "utf-8")
    lines = ["line,text", *(f'{n},"{texts[n] or ""}"' for n in range(second, third))]
    (folder / "c.csv.gz").write_bytes(gzip.compress("\n".join(lines).encode(), mtime=0))
    return [str(folder / name) for name in ("a.parquet", "b.jsonl", "c.csv.gz")]


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

    def encode(self, sources: Any, model: Any = None, *, out: str = "out", **settings: Any) -> BulkResult:
        return encode(sources, self.static if model is None else model, out, **settings)

    def refuse(self, message: str, sources: Any, model: Any = None, **settings: Any) -> str:
        """Check that a run ends with an error of this pattern, and return the error."""
        with pytest.raises(EssentError, match=message) as caught:
            self.encode(sources, model, **settings)
        return str(caught.value)

    def table(self, out: str | Path = "out") -> pa.Table:
        return table_of(Path(out))

    def vectors(self, out: str = "out") -> np.ndarray:
        """The vectors (N,K) as float32, of the rows that have one."""
        return np.array(self.table(out)["embedding"].drop_null().to_pylist(), np.float32)

    def parts(self, out: str = "out") -> dict[str, bytes]:
        return contents(Path(out))


@pytest.fixture
def bulk(tmp_path: Path, static_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Bulk:
    """Runs in a folder of the test, which is the current one."""
    monkeypatch.chdir(tmp_path)
    return Bulk(static_folder)


def table_of(folder: Path) -> pa.Table:
    """All rows of a run, in order."""
    return pa.concat_tables([pq.ParquetFile(folder / name).read() for name in read_parts(folder)])


def contents(folder: Path) -> dict[str, bytes]:
    """The bytes of every part."""
    return {path.name: path.read_bytes() for path in sorted(folder.glob("part-*.parquet"))}
