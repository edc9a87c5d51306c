"""Long texts in pieces: every piece is a stretch of its text, and has the vector that it has alone."""

from pathlib import Path

import numpy as np
import pytest
from bulk_helpers import Bulk

from essent import Encoder

TEXTS = [
    "A man plays the flute. Two dogs run! “Who is there?” she asked; nobody was.\nAn old tree",
    None,
    "The kitten climbed the tree.",
    "",
    "She drinks cold coffee in the morning. " * 12,
]


def chunks_of(rows: list[dict]) -> list[str]:
    return [row["text"][row["chunk_start"] : row["chunk_end"]] for row in rows if row["chunk"] is not None]


def test_sentences_as_rows(bulk: Bulk) -> None:
    run = bulk.encode(bulk.parquet(TEXTS), chunk="sentences")
    rows = bulk.table().to_pylist()
    assert run.rows == len(rows) == 5 + 1 + 1 + 1 + 12
    assert [row["n"] for row in rows] == [0] * 5 + [1, 2, 3] + [4] * 12
    assert [row["chunk"] for row in rows] == [*range(5), None, 0, None, *range(12)]
    chunks = chunks_of(rows)
    assert " / ".join(chunks[:5]) == (
        "A man plays the flute. / Two dogs run! / “Who is there?” / she asked; nobody was. / An old tree"
    )
    assert set(chunks[6:]) == {"She drinks cold coffee in the morning."}
    assert [row["status"] for row in rows if row["chunk"] is None] == ["null", "empty"]
    np.testing.assert_array_equal(bulk.vectors(), bulk.encoder().encode(chunks))


@pytest.mark.parametrize("size", [5, 60])
def test_tokens(size: int, bert: Path, bulk: Bulk) -> None:
    """So many tokens at most, cut between words, and together the whole text."""
    bulk.encode(bulk.parquet(TEXTS), bert, chunk=f"tokens:{size}")
    rows, encoder = bulk.table().to_pylist(), Encoder(bert)
    for n in (0, 2, 4):
        chunks = chunks_of([row for row in rows if row["n"] == n])
        assert "".join("".join(chunks).split()) == "".join(str(TEXTS[n]).split())
        assert max(len(ids) - 2 for ids in encoder.module.ids(chunks)) <= size
    assert len(chunks) > 1
    np.testing.assert_allclose(bulk.vectors(), encoder.encode(chunks_of(rows)), atol=1e-6)


def test_truncated_texts(bert: Path, bulk: Bulk) -> None:
    """They are counted, and their vector is that of the beginning; pieces are not too long, and may not be."""
    long = "The old oak tree stayed there all the morning. " * 60
    run = bulk.encode(bulk.parquet(["a dog", long]), bert)
    assert run.statuses == {"ok": 1, "truncated": 1}
    assert bulk.table()["embedding"].to_pylist()[1] is not None
    run = bulk.encode("rows.parquet", bert, out="b", chunk="tokens:100")
    assert set(run.statuses) == {"ok"}
    bulk.refuse("the model reads at most 254 tokens", "rows.parquet", bert, out="c", chunk="tokens:1000")


@pytest.mark.parametrize("plain", ["sentences", "tokens:7"])
def test_late_chunks(plain: str, bert: Path, bulk: Bulk) -> None:
    """Rows and spans of chunks as without late; vectors from a pass over the whole text; nothing is truncated."""
    texts = [*TEXTS, "The old oak tree stayed there all the morning. " * 60]
    rows = bulk.parquet(texts)
    run = bulk.encode(rows, bert, out="late", chunk=f"late:{plain}", normalize=True)
    bulk.encode(rows, bert, out="plain", chunk=plain)
    late_rows = bulk.table("late").to_pylist()
    names = ["n", "text", "chunk", "chunk_start", "chunk_end", "status"]
    assert bulk.table("late").select(names).equals(bulk.table("plain").select(names))
    assert set(run.statuses) == {"ok", "null", "empty"}
    encoder = Encoder(bert)
    for n in (0, 2, 4, 5):
        chunk_rows, text = [row for row in late_rows if row["n"] == n], texts[n]
        starts = [0, *(row["chunk_start"] for row in chunk_rows[1:])]
        chunks = [text[start:stop] for start, stop in zip(starts, [*starts[1:], None], strict=True)]
        (expected,) = encoder.encode_chunks([chunks], normalize_embeddings=True)
        np.testing.assert_allclose([row["embedding"] for row in chunk_rows], expected, atol=1e-5)


def test_late_chunks_need_states(bert: Path, bulk: Bulk) -> None:
    rows = bulk.parquet(3)
    message = r"needs an Encoder in torch.*not a StaticEncoder. .* or use chunk='tokens:9'"
    bulk.refuse(message, rows, chunk="late:tokens:9")
    bulk.refuse("weights=cls: late chunking needs", rows, Encoder(bert, "cls"), chunk="late:sentences")
