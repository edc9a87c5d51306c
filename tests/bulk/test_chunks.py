"""Long texts in pieces: every piece is a stretch of its text, and has the vector that it has alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from bulk_helpers import table_of, vectors_of

from essent import Encoder, EssentError, StaticEncoder
from essent.bulk.run import encode

TEXTS = [
    "A man plays the flute. Two dogs run! “Who is there?” she asked; nobody was.\nAn old tree",
    None,
    "The kitten climbed the tree.",
    "",
    "She drinks cold coffee in the morning. " * 12,
]


def test_sentences_as_rows(static_folder: Path, tmp_path: Path, parquet: Callable[..., Path]) -> None:
    run = encode(parquet(5, texts=TEXTS), static_folder, tmp_path / "out", chunk="sentences")
    table = table_of(tmp_path / "out")
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
    expected = StaticEncoder.load(static_folder).encode(pieces)
    np.testing.assert_array_equal(vectors[[row["chunk"] is not None for row in rows]], expected)


def test_mean_of_sentences(static_folder: Path, tmp_path: Path, parquet: Callable[..., Path]) -> None:
    """The mean of the pieces' vectors, by their length."""
    encode(parquet(5, texts=TEXTS), static_folder, tmp_path / "out", chunk="sentences", chunk_rows="mean")
    rows = table_of(tmp_path / "out").to_pylist()
    assert [row["status"] for row in rows] == ["ok", "null", "ok", "empty", "ok"]
    assert [len(row["chunks"]) for row in rows] == [5, 0, 1, 0, 12]
    pieces = [TEXTS[0][span["start"] : span["end"]] for span in rows[0]["chunks"]]
    vectors = StaticEncoder.load(static_folder).encode(pieces)
    expected = np.average(vectors, axis=0, weights=[len(piece) for piece in pieces])
    np.testing.assert_allclose(rows[0]["embedding"], expected, atol=1e-6)


@pytest.mark.parametrize("size", [5, 60])
def test_tokens(size: int, bert: Path, tmp_path: Path, parquet: Callable[..., Path]) -> None:
    """So many tokens at most, cut between words, and together the whole text."""
    encode(parquet(5, texts=TEXTS), str(bert), tmp_path / "out", chunk=f"tokens:{size}")
    rows = [row for row in table_of(tmp_path / "out").to_pylist() if row["chunk"] is not None]
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


def test_truncated_texts(bert: Path, tmp_path: Path, parquet: Callable[..., Path]) -> None:
    """They are counted, and their vector is that of the beginning; pieces are not too long."""
    long = "The old oak tree stayed there all the morning. " * 60
    run = encode(parquet(2, texts=["a dog", long]), str(bert), tmp_path / "out")
    assert run.statuses == {"ok": 1, "truncated": 1}
    assert table_of(tmp_path / "out")["embedding"].to_pylist()[1] is not None
    assert run.troubled == {"truncated": "row 2 of part-00000-000000.parquet"}
    run = encode(tmp_path / "rows.parquet", str(bert), tmp_path / "b", chunk="tokens:100", chunk_rows="mean")
    assert run.statuses == {"ok": 2}


@pytest.mark.parametrize("chunk", ["late", "late:tokens:7"])
def test_late_chunks(chunk: str, bert: Path, tmp_path: Path, parquet: Callable[..., Path]) -> None:
    """Rows and spans of chunks as without late; vectors from a pass over the whole text; nothing is truncated."""
    texts = [*TEXTS, "The old oak tree stayed there all the morning. " * 60]
    run = encode(parquet(6, texts=texts), str(bert), tmp_path / "late", chunk=chunk, normalize=True)
    plain = "sentences" if chunk == "late" else chunk.removeprefix("late:")
    encode(tmp_path / "rows.parquet", str(bert), tmp_path / "plain", chunk=plain)
    late_rows, plain_rows = (table_of(tmp_path / name).to_pylist() for name in ("late", "plain"))
    names = ("n", "text", "chunk", "chunk_start", "chunk_end", "status")
    assert [[row[name] for name in names] for row in late_rows] == [[row[name] for name in names] for row in plain_rows]
    assert set(run.statuses) == {"ok", "null", "empty"}
    encoder = Encoder(str(bert))
    for n in (0, 2, 4, 5):
        rows, text = [row for row in late_rows if row["n"] == n], texts[n]
        starts = [0, *(row["chunk_start"] for row in rows[1:])]
        chunks = [text[start:stop] for start, stop in zip(starts, [*starts[1:], None], strict=True)]
        (expected,) = encoder.encode_chunks([chunks], normalize_embeddings=True)
        np.testing.assert_allclose([row["embedding"] for row in rows], expected, atol=1e-5)
    part = (tmp_path / "late" / "part-00000-000000.parquet").read_bytes()
    encode(tmp_path / "rows.parquet", str(bert), tmp_path / "late", chunk=chunk, normalize=True, force=True)
    assert (tmp_path / "late" / "part-00000-000000.parquet").read_bytes() == part
    with pytest.raises(EssentError, match=r"chunk"):
        encode(tmp_path / "rows.parquet", str(bert), tmp_path / "late", chunk=plain, normalize=True)


def test_late_chunks_need_states(
    bert: Path, static_folder: Path, tmp_path: Path, parquet: Callable[..., Path]
) -> None:  # fmt: skip
    """A graph and a recipe with a template are refused before the model is read, a static encoder after."""
    rows = parquet(3)
    with pytest.raises(EssentError, match=r"needs an Encoder in torch.*not a graph of onnx. .* or chunk='tokens:9'"):
        encode(rows, "no model", tmp_path / "out", chunk="late:tokens:9", engine="onnx")
    with pytest.raises(EssentError, match=r"weights=last: late chunking needs .* Allowed: content, "):
        encode(rows, "no model", tmp_path / "out", chunk="late", recipe="last-token")
    with pytest.raises(EssentError, match=r"not a StaticEncoder. .* or chunk='sentences'"):
        encode(rows, static_folder, tmp_path / "out", chunk="late")
    with pytest.raises(EssentError, match=r"weights=cls: late chunking needs"):
        encode(rows, Encoder(str(bert), "cls"), tmp_path / "out", chunk="late")


def test_refused_chunks(bert: Path, tmp_path: Path, parquet: Callable[..., Path]) -> None:
    for chunk in ("words", "tokens:0", "tokens:x", "late:", "late:late", "late:words"):
        with pytest.raises(EssentError, match=r"must be 'sentences' or 'tokens:N'"):
            encode("x.txt", "no model", tmp_path / "out", chunk=chunk)
    with pytest.raises(EssentError, match=r"the model reads at most 254 tokens"):
        encode(parquet(3), str(bert), tmp_path / "out", chunk="tokens:1000")
