"""Word vectors as a static model: the mean of the words that the file has, weighted and shaped like any other."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from essent.encoder.encoder import Encoder
from essent.errors import InputError, RecipeError
from essent.model.word_vectors import WordVectors, read_word_vectors, word_model

WORDS = """the , . a of to man dog flute plays runs well-known n't 's do does u.s. 3.5 1990s % x ... straße i co-op
ca ' 's-hertogenbosch at""".split()
VECTORS = WordVectors(WORDS, np.random.default_rng(1).standard_normal((len(WORDS), 6)).astype(np.float32))
ROW = dict(zip(WORDS, VECTORS.matrix.astype(np.float64), strict=True))
WORDS_OF = {
    "The man doesn't run.": "the man does n't .",
    "A well-known flute, of the U.S.": "a well-known flute , of the u.s.",
    "dog dog unknownish dog": "dog dog dog",
    "3.5% of the 1990s...": "3.5 % of the 1990s ...",
    "nothing known zzz": "",
    "": "",
    "the straße x": "the straße x",
}
TEXTS, SPLIT = list(WORDS_OF), [words.split() for words in WORDS_OF.values()]


@pytest.fixture(scope="module")
def glove(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("words") / "glove.txt"
    lines = [" ".join([word, *map(repr, map(float, row))]) for word, row in zip(WORDS, VECTORS.matrix, strict=True)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def mean(words: list[str]) -> np.ndarray:
    """The mean of the words' vectors."""
    return sum((ROW[word] for word in words), np.zeros(6)) / max(len(words), 1)


def test_the_mean_of_known_words(glove: Path) -> None:
    model = word_model(glove)
    expected = np.stack([mean(words) for words in SPLIT])
    np.testing.assert_allclose(Encoder(model).encode(TEXTS), expected, atol=1e-6)
    np.testing.assert_allclose(model.encode(TEXTS), expected, atol=1e-6)  # sentence-transformers itself
    np.testing.assert_array_equal(word_model(read_word_vectors(glove)).encode(TEXTS), model.encode(TEXTS))
    b2s_5 = Encoder(word_model(glove, drop_most_frequent=5), "static")
    rare_words = [[word for word in words if word not in WORDS[:5]] for words in SPLIT]
    np.testing.assert_allclose(b2s_5.encode(TEXTS), [mean(words) for words in rare_words], atol=1e-6)


def test_unknown_words_leave_mean_and_counts(glove: Path) -> None:
    """SIF divides by the number of known words."""
    encoder = Encoder(word_model(glove), "static weights=sif:0.1").fit(TEXTS)
    counts = {word: sum(text.count(word) for text in SPLIT) for word in WORDS}
    total = sum(counts.values())
    weight = {word: 0.1 / (0.1 + count / total) for word, count in counts.items()}
    expected = [sum((weight[w] * ROW[w] for w in words), np.zeros(6)) / max(len(words), 1) for words in SPLIT]
    np.testing.assert_allclose(encoder.encode(TEXTS), expected, atol=1e-6)
    # single letters of unknown words are no words, whatever the file has
    np.testing.assert_array_equal(encoder.encode("xax ax xa xx"), np.zeros(6))


def test_capitals(tmp_path: Path) -> None:
    """A file with capitals keeps them; lowered, the most frequent spelling's vector stays."""
    cased = WordVectors(["The", "man", "the", "Man", "ΟΔΟΣ"], VECTORS.matrix[:5])
    texts = ["The man", "the Man", "THE MAN", "οδοσ ΟΔΟΣ"]
    rows = dict(zip(cased.words, cased.matrix, strict=True))
    first, second, zero = (rows["The"] + rows["man"]) / 2, (rows["the"] + rows["Man"]) / 2, np.zeros(6)
    np.testing.assert_allclose(word_model(cased).encode(texts), [first, second, zero, rows["ΟΔΟΣ"]], atol=1e-6)
    lowered = word_model(cased, lowercase=True).encode(texts)
    np.testing.assert_allclose(lowered, [first, first, first, rows["ΟΔΟΣ"]], atol=1e-6)
    np.testing.assert_array_equal(word_model(cased, lowercase=True, drop_most_frequent=1).encode("the"), zero)


def test_a_vocabulary_of_any_words(tmp_path: Path) -> None:
    """None of the words that stand for a text while its frame is made."""
    vectors = WordVectors(["%", "flute", "dog"], VECTORS.matrix[:3])
    encoder = Encoder(word_model(vectors), "static weights=idf").fit(["flute dog", "dog"])
    np.testing.assert_allclose(encoder.encode("flute dog"), VECTORS.matrix[1], atol=1e-6)
    sentence = Encoder(word_model(vectors), "static template='dog {text} % flute'")
    expected = (2 * VECTORS.matrix[1] + VECTORS.matrix[2] + VECTORS.matrix[0]) / 4
    np.testing.assert_allclose(sentence.encode("flute"), expected, atol=1e-6)


def test_splitting(glove: Path) -> None:
    tokenizer = word_model(glove)[0].tokenizer

    def words(text: str) -> list[str]:
        return [token.removeprefix("▁") for token in tokenizer.encode(text).tokens]

    assert words("don’t can't I'MAN 's") == ["do", "n't", "ca", "n't", "i", "'", "man", "'s"]
    assert words("co-op well-known man-dog the-") == ["co-op", "well-known", "the"]
    assert words("the...man, 3.5% of 3.5x 1990s") == ["the", "...", "man", ",", "3.5", "%", "of", ".", "1990s"]
    assert words("▁the  the\u3000a\tx") == ["the", "the", "a", "x"]
    spaces = word_model(glove, split="spaces")[0].tokenizer
    assert spaces.encode("The man, dog . 's").tokens == ["▁the", "▁dog", "▁.", "▁'s"]
    plain = word_model(WordVectors(["don't", "don", "well-known", "t"], VECTORS.matrix[:4]))[0].tokenizer
    assert plain.encode("Don’t don't don well-known").tokens == ["▁don't", "▁don't", "▁don", "▁well-known"]


def test_an_encoder_takes_a_file_for_a_model(glove: Path, tmp_path: Path) -> None:
    encoder = Encoder(str(glove), "static weights=idf | zscore").fit(TEXTS)
    expected = Encoder(word_model(glove), "static weights=idf | zscore").fit(TEXTS).encode(TEXTS)
    np.testing.assert_array_equal(encoder.encode(TEXTS), expected)
    (tmp_path / "notes.txt").write_text("Just some notes.")
    with pytest.raises(OSError, match=r"notes\.txt.* is a file; a model is a folder .*a file of word vectors"):
        Encoder(tmp_path / "notes.txt", "static")
    with pytest.raises(RecipeError, match="a static model has only `static`"):
        Encoder(glove, "mean")


def test_arguments() -> None:
    vectors = WordVectors(["a", "b", "c"], np.arange(6, dtype=np.float32).reshape(3, 2))
    table = word_model(vectors, limit=2)[0].embedding.weight.detach().numpy()
    np.testing.assert_array_equal(table, vectors.matrix[:2])
    for options, message in [
        ({"split": "letters"}, "must be one of words, spaces"),
        ({"drop_most_frequent": 3}, "excludes all 3 words"),
        ({"drop_most_frequent": -1}, "drop_most_frequent=-1"),
        ({"drop_most_frequent": 1.5}, "whole number"),
    ]:
        with pytest.raises(InputError, match=message):
            word_model(vectors, **options)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="need vectors of shape"):
        word_model(WordVectors(["a"], vectors.matrix))
    with pytest.raises(InputError, match="excludes all"):
        word_model(WordVectors(["The", "the"], VECTORS.matrix[:2]), lowercase=True, drop_most_frequent=1)
