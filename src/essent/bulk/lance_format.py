"""The parts as one data set of Lance, which LanceDB opens as a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from essent.atomic import replacing_folder
from essent.bulk.parts import Part
from essent.bulk.places import EXTRA
from essent.types import optional_import

TABLE = "vectors"


def write_lance(folder: Path, parts: Mapping[str, Part], *, renewed: bool) -> Path:
    """Write `vectors.lance` from the parts in their order, whole or not at all.

    Args:
        renewed: whether parts were written by this run.

    Raises:
        MissingDependencyError: Lance is not installed.
    """
    lance = optional_import("lance", "lance")
    place = folder / f"{TABLE}.lance"
    rows = sum(part.rows for part in parts.values())
    if place.is_dir() and not renewed and lance.dataset(str(place)).count_rows() == rows:
        return place
    schema = optional_import("pyarrow.parquet", EXTRA).read_schema(folder / min(parts)) if parts else None
    if schema is None:
        return place
    arrow = optional_import("pyarrow", EXTRA)
    schema = schema.remove_metadata()
    with replacing_folder(place) as temporary:
        reader = arrow.RecordBatchReader.from_batches(schema, _batches(folder, sorted(parts)))
        lance.write_dataset(reader, str(temporary), schema=schema, mode="overwrite")
    return place


def _batches(folder: Path, names: list[str]) -> Iterator[Any]:
    parquet = optional_import("pyarrow.parquet", EXTRA)
    for name in names:
        with parquet.ParquetFile(folder / name) as file:
            yield from file.iter_batches(batch_size=8192)
