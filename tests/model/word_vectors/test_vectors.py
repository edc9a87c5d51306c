"""Files of word vectors: every format gives the same table; a bad file is told by name, line and what is wrong."""

from __future__ import annotations

import gzip
import re
import sys
from pathlib import Path

import numpy as np
import pytest

import essent.model.word_vectors
from essent.errors import DataError, InputError, MissingDependencyError
from essent.model.word_vectors import WordVectors, is_word_vectors, read_word_vectors

WORDS = ["the", ",", "of", "n't", "well-known", "straße", "你好", "\xa0", "a\x85b", "1.5", "#", "'s"]
MATRIX = np.random.default_rng(0).standard_normal((len(WORDS), 7)).astype(np.float32)
HEADER = f"{len(WORDS)} 7\n"


def rows(separator: str = " ", end: str = "\n", words: list[str] = WORDS) -> str:
    return "".join(
        word + separator + separator.join(repr(float(value)) for value in row) + end
        for word, row in zip(words, MATRIX, strict=True)
    )


def binary(end: bytes = b"", matrix: np.ndarray = MATRIX) -> bytes:
    packed = [w.encode() + b" " + row.astype("<f4").tobytes() + end for w, row in zip(WORDS, matrix, strict=True)]
    return HEADER.encode() + b"".join(packed)


FORMATS = {
    "GloVe": rows().encode(),
    "GloVe, no last newline": rows().rstrip("\n").encode(),
    "Windows": rows(end="\r\n").encode(),
    "tabs": rows("\t").encode(),
    "blank lines at the end": (rows() + "\n \n").encode(),
    "word2vec": (HEADER + rows()).encode(),
    "fastText .vec": (HEADER + rows(end=" \n")).encode(),
    "word2vec binary": binary(),
    "word2vec binary, newlines": binary(b"\n"),
}


@pytest.mark.parametrize(("block", "packed", "mark"), [(64, False, b"\xef\xbb\xbf"), (1 << 24, True, b"")])
@pytest.mark.parametrize("name", FORMATS)
def test_every_format_gives_the_same_table(
    name: str, mark: bytes, block: int, packed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Gzipped or not, in blocks of any size, with a byte order mark or without."""
    monkeypatch.setattr(essent.model.word_vectors, "BLOCK", block)  # rows that end in the next block
    path = tmp_path / "any.name"
    path.write_bytes(gzip.compress(mark + FORMATS[name]) if packed else mark + FORMATS[name])
    read_vectors = read_word_vectors(path)
    assert read_vectors.words == WORDS
    assert len(read_vectors) == len(WORDS)
    np.testing.assert_array_equal(read_vectors.matrix, MATRIX)
    assert read_vectors.matrix.dtype == np.float32
    assert is_word_vectors(path)
    part = read_word_vectors(str(path), limit=5)
    assert part.words == WORDS[:5]
    np.testing.assert_array_equal(part.matrix, MATRIX[:5])
    assert read_word_vectors(path, limit=1000).words == WORDS


def test_words_with_spaces_and_a_single_dimension(tmp_path: Path) -> None:
    """GloVe 840B has ". . ." and "at name@domain.com"."""
    words = [*WORDS[:-2], ". . .", "at name@domain.com"]
    (tmp_path / "glove").write_text(rows(words=words), encoding="utf-8")
    assert read_word_vectors(tmp_path / "glove").words == words
    (tmp_path / "glove").write_text("a 1\nb -2.5e-1\n", encoding="utf-8")
    np.testing.assert_array_equal(read_word_vectors(tmp_path / "glove").matrix, [[1], [-0.25]])


def test_encodings(tmp_path: Path) -> None:
    for number, start in enumerate(("", "2 3\n")):
        path = tmp_path / f"latin{number}"
        path.write_bytes((start + "für 1 2 3\nà 4 5 6\n").encode("latin-1"))
        assert read_word_vectors(path, encoding="latin-1").words == ["für", "à"]
        with pytest.raises(DataError, match=rf"latin{number}, line {number + 1}: b'f\\xfcr' is not utf-8 .*latin-1"):
            read_word_vectors(path)


def lines(*texts: str) -> str:
    return "\n".join(texts) + "\n"


BAD: dict[str, tuple[str, str]] = {
    "mark only": ("\ufeff\n", "the file is empty"),
    "header only": ("2 3\n", "there is no row after the header"),
    "prose": ("This is a text.\nAnd more.\n", "line 1: 'This is a text.' is neither a header"),
    "fewer words": (lines("3 2", "a 1 2", "b 3 4"), "line 1: the header announces 3 words, the file has 2"),
    "more words": (lines("1 2", "a 1 2", "b 3 4"), "line 1: the header announces 1 words, the file has 2"),
    "short row": (lines("a 1 2", "b 3", "c 5 6"), "line 2: 'b 3' must be a word and 2 numbers, as in line 1"),
    "long row, no number": (lines("a 1 2", "b c d", "c 5 6"), "line 2: 'b c d' must be a word and 2 numbers"),
    "empty line": (lines("a 1 2", "", "c 5 6"), "line 2: '' must be a word and 2 numbers"),
    "no word": (lines("a 1 2", " 3 4", "c 5 6"), "line 2: there is no word before the numbers"),
    "nan": (lines("2 2", "a 1 2", "b 3 nan"), "line 3: the vector of 'b' has NaN"),
    "overflow": (lines("a 1 2", "b 3 1e99"), "line 2: the vector of 'b' has NaN or infinite"),
    "header of 5000 digits": (lines("1" * 5000 + " 3", "a 1 2 3"), "111' is neither a header"),
    "twice": (lines("2 2", "a 1 2", "a 3 4"), "line 3: 'a' is already in line 2. Use duplicates='first'"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_text_files(name: str, tmp_path: Path) -> None:
    content, message = BAD[name]
    path = tmp_path / "bad.vec"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(DataError, match=r"bad\.vec.*" + re.escape(message)):
        read_word_vectors(path)


def test_bad_binary_files(tmp_path: Path) -> None:
    path, pair = tmp_path / "bad.bin", MATRIX[:2, :2]
    matrix = MATRIX.copy()
    matrix[4, 2] = np.nan
    twice = b"2 2\na " + pair[0].tobytes() + b"a " + pair[1].tobytes()
    for data, message in (
        (binary()[:-1], "announces 12 words of 7 dimensions, but the file ends within word"),
        (binary() + b"more 1234", "9 bytes follow the 12 words"),
        (binary(matrix=matrix), r"bad\.bin, word 5: the vector of 'well-known' has NaN"),
        (twice, "word 2: 'a' is already in word 1"),
        (b"1 2\n " + pair[0].tobytes(), "word 1: there is no word"),
        (gzip.compress(binary())[:-30], "cannot be unpacked"),
    ):
        path.write_bytes(data)
        with pytest.raises(DataError, match=message):
            read_word_vectors(path)
    path.write_bytes(twice)
    np.testing.assert_array_equal(read_word_vectors(path, duplicates="first").matrix, pair[:1])


def test_arguments_and_missing_files(tmp_path: Path) -> None:
    path = tmp_path / "glove.txt"
    path.write_text(rows(), encoding="utf-8")
    with pytest.raises(DataError, match="There is no file"):
        read_word_vectors(tmp_path / "other.txt")
    for options, message in (({"limit": 2.0}, "limit=2.0"), ({"duplicates": "last"}, "must be one of refuse, first")):
        with pytest.raises(InputError, match=message):
            read_word_vectors(path, **options)  # type: ignore[arg-type]
    assert not is_word_vectors(tmp_path / "other.txt")
    (tmp_path / "notes.txt").write_text("Some notes, 1 2 3.")
    assert not is_word_vectors(tmp_path / "notes.txt")


# -- gensim -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def fasttext(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, WordVectors]:
    """A fastText .bin as gensim writes it, and what it should give."""
    models = pytest.importorskip("gensim.models.fasttext")
    texts = [["a", "man", "plays", "the", "flute"], ["the", "dog", "runs"], ["the", "man", "runs"]] * 4
    model = models.FastText(texts, vector_size=6, min_count=1, epochs=2, bucket=50, workers=1, seed=1)
    path = tmp_path_factory.mktemp("fasttext") / "cc.en.bin"
    models.save_facebook_model(model, str(path))
    words = list(model.wv.index_to_key)
    return path, WordVectors(words, np.stack([model.wv.get_vector(word) for word in words]))


def test_fasttext_binaries(fasttext: tuple[Path, WordVectors], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, expected = fasttext
    read_vectors = read_word_vectors(path)
    assert read_vectors.words == expected.words
    np.testing.assert_allclose(read_vectors.matrix, expected.matrix, atol=1e-6)
    assert is_word_vectors(path)
    assert read_word_vectors(path, limit=4).words == expected.words[:4]
    (tmp_path / "cut.bin").write_bytes(path.read_bytes()[:300])
    with pytest.raises(DataError, match="gensim cannot read"):
        read_word_vectors(tmp_path / "cut.bin")
    monkeypatch.setitem(sys.modules, "gensim.models.fasttext", None)
    with pytest.raises(MissingDependencyError, match=r"essent\[words\]"):
        read_word_vectors(path)
