"""How vectors are stored, and who reads them."""

from __future__ import annotations

from collections.abc import Iterable

import datasets
import duckdb
import numpy as np
import pandas as pd
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from bulk_helpers import Bulk, sentences
from sentence_transformers.util.quantization import quantize_embeddings

TEXTS = [None if number % 10 == 4 else text for number, text in enumerate(sentences(300))]
HAS_TEXT = [text is not None for text in TEXTS]


@pytest.mark.parametrize(
    ("dtype", "kind"),
    [("float32", pa.float32()), ("float16", pa.float16()), ("int8", pa.int8()), ("ubinary", pa.uint8())],
)
def test_numbers(dtype: str, kind: pa.DataType, bulk: Bulk) -> None:
    bulk.encode(bulk.parquet(TEXTS), dtype=dtype, rows_per_part=90)
    table, stored = bulk.table(), bulk.vectors()
    assert table.schema.field("embedding").type.value_type == kind
    assert table["embedding"].is_valid().to_pylist() == HAS_TEXT
    whole = bulk.encoder().encode([text for text in TEXTS if text is not None])
    if dtype == "ubinary":
        np.testing.assert_array_equal(stored, quantize_embeddings(whole, "ubinary"))
    elif dtype == "int8":
        assert table["scale"].is_valid().to_pylist() == HAS_TEXT
        near = stored * np.array(table["scale"].drop_null())[:, None]
        assert np.abs(near - whole).max() <= np.abs(whole).max() / 254 * 1.01
    else:
        np.testing.assert_allclose(stored, whole, rtol=0 if dtype == "float32" else 1e-3, atol=1e-6)


def test_float16_overflow(bulk: Bulk) -> None:
    encoder = bulk.encoder()
    object.__setattr__(encoder.table, "rows", encoder.table.rows * 1e6)
    bulk.refuse("float16 ends at 65504: use float32 or normalize", bulk.parquet(9), encoder, dtype="float16")


def test_a_vector_of_zeros_is_none(bulk: Bulk) -> None:
    """What the model knows nothing of has no vector, and neither have numbers that are not finite."""
    encoder = bulk.encoder()
    ids = encoder.ids(["dogs", "kitten"])[0]
    rows = encoder.table.rows.copy()
    rows[ids[0]], rows[ids[-1]] = 0, np.inf
    object.__setattr__(encoder.table, "rows", rows)
    bulk.encode(bulk.parquet(["dogs", "kitten", "tree"]), encoder)
    table = bulk.table()
    assert table["status"].to_pylist() == ["zero", "not finite", "ok"]
    assert table["embedding"].is_null().to_pylist() == [True, True, False]


@pytest.mark.parametrize("dtype", ["float16", "int8"])
def test_readable_by_others(dtype: str, bulk: Bulk) -> None:
    """DuckDB, Polars, pandas and datasets, all parts in one step, in the order of the rows."""
    out = bulk.out
    bulk.encode(bulk.parquet(TEXTS), dtype=dtype, rows_per_part=90)
    expected = bulk.table()["embedding"].to_pylist()

    def same(vectors_read: Iterable) -> None:
        assert [None if row is None else list(row) for row in vectors_read] == expected

    same(row[0] for row in duckdb.read_parquet(f"{out}/*.parquet").select("embedding").fetchall())
    same(polars.read_parquet(f"{out}/*.parquet")["embedding"].to_list())
    frame = pd.read_parquet(out)
    assert frame["n"].tolist() == list(range(300))
    same(frame["embedding"])
    files = [str(path) for path in sorted(out.glob("*.parquet"))]
    same(datasets.Dataset.from_parquet(files, cache_dir="cache")["embedding"])
    assert pq.read_table(out).num_rows == 300
