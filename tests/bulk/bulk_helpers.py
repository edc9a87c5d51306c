"""A static encoder and a tiny BERT on disk, rows of every kind, and a way to read what a run wrote."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from essent.bulk.parts import read_parts

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


@pytest.fixture(scope="session")
def static_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that StaticEncoder reads without torch."""
    from families import build_tokenizer
    from static_models import static_model

    folder = tmp_path_factory.mktemp("bulk") / "static"
    static_model(build_tokenizer("wordpiece").backend_tokenizer).save(str(folder))
    return folder


@pytest.fixture
def parquet(tmp_path: Path) -> Callable[..., Path]:
    """Write a Parquet file of sentences with a number each."""

    def write(rows: int, name: str = "rows.parquet", *, group: int = 100, texts: list | None = None) -> Path:
        path = tmp_path / name
        chosen = sentences(rows) if texts is None else texts
        pq.write_table(pa.table({"n": list(range(len(chosen))), "text": chosen}), path, row_group_size=group)
        return path

    return write


def table_of(folder: Path) -> pa.Table:
    """All rows of a run, in order."""
    return pa.concat_tables([pq.ParquetFile(folder / name).read() for name in read_parts(folder)])


def vectors_of(table: pa.Table) -> np.ndarray:
    """The vectors (N,K) as float32, NaN where a row has none."""
    rows = table["embedding"].to_pylist()
    width = next(len(row) for row in rows if row is not None)
    return np.array([[np.nan] * width if row is None else row for row in rows], np.float32)


def contents(folder: Path) -> dict[str, bytes]:
    """The bytes of every part."""
    return {path.name: path.read_bytes() for path in sorted(folder.glob("part-*.parquet"))}
