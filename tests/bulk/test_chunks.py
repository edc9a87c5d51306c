"""Long texts in pieces: every piece is a stretch of its text, and has the vector that it has alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from bulk_helpers import Bulk, vectors_of

from essent import Encoder

TEXTS = [
    "A man plays the flute. Two dogs run! “Who is there?” she asked; nobody was.\nAn old tree",
    None,
    "The kitten climbed the tree.",
    "",
    "She drinks cold coffee in the morning. " * 12,
]


def test_sentences_as_rows(bulk: Bulk) -> None:
    run = bulk.encode(bulk.parquet(TEXTS), chunk="sentences")
    table = bulk.table()
    rows = table.to_pylist()
    assert run.rows == len(rows) == 5 + 1 + 1 + 1 + 12
    assert [row["n"] for row in rows] == [0] * 5 + [1, 2, 3] + [4] * 12
    assert [row["chunk"] for row in rows] == [*range(5), None, 0, None, *range(12)]
    pieces = [row["text"][row["chunk_start"] : row["chunk_end"]] for row in rows if row["chunk"] is not None]
    assert " / ".join(pieces[:5]) == (
        "A man plays the flute. / Two dogs run! / “Who is there?” / she asked; nobody was. / An old tree"
    )
    assert set(pieces[6:]) == {"She drinks cold coffee in the morning."}
    assert [row["status"] for row in rows if row["chunk"] is None] == ["null", "empty"]
    vectors = vectors_of(table)
    expected = bulk.encoder().encode(pieces)
    np.testing.assert_array_equal(vectors[[row["chunk"] is not None for row in rows]], expected)


@pytest.mark.parametrize("size", [5, 60])
def test_tokens(size: int, bert: Path, bulk: Bulk) -> None:
    """So many tokens at most, cut between words, and together the whole text."""
    bulk.encode(bulk.parquet(TEXTS), bert, chunk=f"tokens:{size}")
    rows = [row for row in bulk.table().to_pylist() if row["chunk"] is not None]
    encoder = Encoder(str(bert))
    for n in (0, 2, 4):
        pieces = [row["text"][row["chunk_start"] : row["chunk_end"]] for row in rows if row["n"] == n]
        assert "".join("".join(pieces).split()) == "".join(str(TEXTS[n]).split())
        lengths = [len(ids) - 2 for ids in encoder.module.ids(pieces)]
        assert max(lengths) <= size
    if size == 60:
        assert len([row for row in rows if row["n"] == 4]) > 1
        expected = encoder.encode([row["text"][row["chunk_start"] : row["chunk_end"]] for row in rows])
        np.testing.assert_allclose(np.array([row["embedding"] for row in rows]), expected, atol=1e-6)


def test_truncated_texts(bert: Path, bulk: Bulk) -> None:
    """They are counted, and their vector is that of the beginning; pieces are not too long."""
    long = "The old oak tree stayed there all the morning. " * 60
    run = bulk.encode(bulk.parquet(["a dog", long]), bert)
    assert run.statuses == {"ok": 1, "truncated": 1}
    assert bulk.table()["embedding"].to_pylist()[1] is not None
    run = bulk.encode("rows.parquet", bert, out="b", chunk="tokens:100")
    assert set(run.statuses) == {"ok"}


@pytest.mark.parametrize("plain", ["sentences", "tokens:7"])
def test_late_chunks(plain: str, bert: Path, bulk: Bulk) -> None:
    """Rows and spans of chunks as without late; vectors from a pass over the whole text; nothing is truncated."""
    texts = [*TEXTS, "The old oak tree stayed there all the morning. " * 60]
    rows, chunk = bulk.parquet(texts), f"late:{plain}"
    run = bulk.encode(rows, bert, out="late", chunk=chunk, normalize=True)
    bulk.encode(rows, bert, out="plain", chunk=plain)
    late_rows, plain_rows = (bulk.table(name).to_pylist() for name in ("late", "plain"))
    names = ("n", "text", "chunk", "chunk_start", "chunk_end", "status")
    assert [[row[name] for name in names] for row in late_rows] == [[row[name] for name in names] for row in plain_rows]
    assert set(run.statuses) == {"ok", "null", "empty"}
    encoder = Encoder(str(bert))
    for n in (0, 2, 4, 5):
        chunk_rows, text = [row for row in late_rows if row["n"] == n], texts[n]
        starts = [0, *(row["chunk_start"] for row in chunk_rows[1:])]
        chunks = [text[start:stop] for start, stop in zip(starts, [*starts[1:], None], strict=True)]
        (expected,) = encoder.encode_chunks([chunks], normalize_embeddings=True)
        np.testing.assert_allclose([row["embedding"] for row in chunk_rows], expected, atol=1e-5)
    parts = bulk.parts("late")
    bulk.encode(rows, bert, out="late", chunk=chunk, normalize=True, force=True)
    assert bulk.parts("late") == parts
    bulk.refuse(r"chunk", rows, bert, out="late", chunk=plain, normalize=True)


def test_late_chunks_need_states(bert: Path, bulk: Bulk) -> None:
    """A recipe with a template is refused before the model is read, a static encoder after."""
    rows = bulk.parquet(3)
    bulk.refuse(
        r"weights=last: late chunking needs weights of a chunk's own tokens",
        rows,
        "no model",
        chunk="late:sentences",
        recipe="last-token",
    )
    bulk.refuse(
        r"needs an Encoder in torch.*not a StaticEncoder. .* or use chunk='tokens:9'", rows, chunk="late:tokens:9"
    )
    bulk.refuse(r"weights=cls: late chunking needs", rows, Encoder(str(bert), "cls"), chunk="late:sentences")


def test_refused_chunks(bert: Path, bulk: Bulk) -> None:
    for chunk in ("words", "tokens:0", "tokens:x", "late", "late:words"):
        bulk.refuse(r"must be 'sentences' or 'tokens:N'", "x.txt", "no model", chunk=chunk)
    bulk.refuse(r"the model reads at most 254 tokens", bulk.parquet(3), bert, chunk="tokens:1000")
