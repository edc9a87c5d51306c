"""Any static model is a backbone: what it computes by itself; word vectors, whose words are the vocabulary."""

import gzip
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from sentence_transformers.base.modules import Dense, Normalize
from tokenizers import Tokenizer

from essent.encoder.encoder import Encoder
from essent.errors import DataError, InputError, ModelError, RecipeError
from essent.model.token_rows import rows_backbone
from essent.model.word_vectors import word_model
from essent.recipe.recipe import Recipe
from families import build_tokenizer
from samples import LONG, TEXTS
from static_models import save_model2vec, static_model, table_of

EVERY = [*TEXTS, LONG, "", "   ", "[MASK] in a text [SEP]", "unknown ☃ sign"]


# -- as it is ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "unit"), [("wordpiece", False), ("bytes", True), ("metaspace", False)])
def test_a_static_model_is_itself(kind: str, unit: bool, tmp_path: Path) -> None:
    model = static_model(build_tokenizer(kind).backend_tokenizer, *([Normalize()] if unit else []))
    model.save(str(tmp_path))
    expected = model.encode(EVERY)
    assert not expected[len(TEXTS) + 1].any()
    for source in (model, str(tmp_path), tmp_path):
        encoder = Encoder(source)
        assert encoder.recipe == Recipe.parse("static" + " | normalize" * unit)
        assert encoder.max_seq_length is None
        np.testing.assert_allclose(encoder.encode(EVERY), expected, atol=1e-5)


def test_a_folder_of_model2vec(wordpiece: Tokenizer, tmp_path: Path) -> None:
    """Its recipe, and another one; tests/static/test_static_encoder.py has the vectors."""
    folder = save_model2vec(tmp_path / "potion", wordpiece, {"embeddings": table_of(wordpiece)}, normalize=True)
    assert Encoder(folder).recipe == Recipe.parse("static | normalize")
    encoder = Encoder(folder, "static reduce=max")
    np.testing.assert_array_equal(encoder.encode("the ☃ dog"), encoder.encode("the dog"))  # unknown words are dropped
    encoder.save(str(tmp_path / "saved"))
    np.testing.assert_allclose(Encoder(tmp_path / "saved").encode(EVERY), encoder.encode(EVERY), atol=1e-5)


# -- what it refuses --------------------------------------------------------------------------------------------------


def test_recipes_that_a_static_model_cannot_run(wordpiece: Tokenizer) -> None:
    model = static_model(wordpiece, Dense(12, 5))
    for recipe, reason in (
        (None, "no recipe describes"),
        ("layers=static+0", "a static model has only `static`"),
        ("layers=static weights=ditto:1-1", "a static model has no attention"),
    ):
        with pytest.raises(RecipeError, match=reason):
            Encoder(model, recipe)
    assert Encoder(model, "static").encode(TEXTS).shape == (len(TEXTS), 12)


def test_mismatched_tables_are_refused(wordpiece: Tokenizer) -> None:
    table = table_of(wordpiece)
    with pytest.raises(ModelError, match=f"the id {len(table) - 1}, and the model has vectors for the ids 0 to"):
        rows_backbone(table[:-1], wordpiece)
    with pytest.raises(ModelError, match=r"shape \(V,D\), got \(12,\)"):
        rows_backbone(table[0], wordpiece)
    table[4, 2] = np.nan
    with pytest.raises(ModelError, match=f"1 of {len(table)} token vectors .* the first at id 4"):
        rows_backbone(table, wordpiece)


# -- word vectors -----------------------------------------------------------------------------------------------------

Save = Callable[..., Path]
WORDS = """the , . a of to man dog flute plays runs well-known n't 's do does u.s. 3.5 1990s % x ... straße i co-op
ca ' 's-hertogenbosch at""".split()
MATRIX = np.random.default_rng(1).standard_normal((len(WORDS), 6)).astype(np.float32)
ROW = dict(zip(WORDS, MATRIX.astype(np.float64), strict=True))
WORDS_OF = {
    "The man doesn't run.": "the man does n't .",
    "A well-known flute, of the U.S.": "a well-known flute , of the u.s.",
    "dog dog unknownish dog": "dog dog dog",
    "3.5% of the 1990s...": "3.5 % of the 1990s ...",
    "nothing known zzz": "",
    "": "",
    "the straße x": "the straße x",
}
SENTENCES, SPLIT = list(WORDS_OF), [words.split() for words in WORDS_OF.values()]


def written(words: list[str], separator: str = " ", end: str = "\n") -> str:
    """The lines of words with the first rows of the matrix."""
    rows = [[word, *map(str, row.tolist())] for word, row in zip(words, MATRIX, strict=False)]
    return "".join(separator.join(row) + end for row in rows)


@pytest.fixture
def save(tmp_path: Path) -> Save:
    def write(words: list[str] = WORDS) -> Path:
        (tmp_path / "vectors.txt").write_text(written(words), encoding="utf-8")
        return tmp_path / "vectors.txt"

    return write


def mean(words: list[str]) -> np.ndarray:
    """The mean of the words' vectors."""
    return sum((ROW[word] for word in words), np.zeros(6)) / max(len(words), 1)


def test_the_mean_of_known_words(save: Save) -> None:
    model = word_model(save())
    expected = np.stack([mean(words) for words in SPLIT])
    np.testing.assert_allclose(Encoder(model).encode(SENTENCES), expected, atol=1e-6)
    np.testing.assert_allclose(model.encode(SENTENCES), expected, atol=1e-6)  # sentence-transformers itself
    b2s_5 = Encoder(word_model(save(), drop_most_frequent=5), "static")
    rare_words = [[word for word in words if word not in WORDS[:5]] for words in SPLIT]
    np.testing.assert_allclose(b2s_5.encode(SENTENCES), [mean(words) for words in rare_words], atol=1e-6)


def test_unknown_words_leave_mean_and_counts(save: Save) -> None:
    """SIF divides by the number of known words."""
    encoder = Encoder(word_model(save()), "static weights=sif:0.1").fit(SENTENCES)
    known = [word for words in SPLIT for word in words]
    weighted = {word: 0.1 / (0.1 + known.count(word) / len(known)) * row for word, row in ROW.items()}
    expected = [sum((weighted[word] for word in words), np.zeros(6)) / max(len(words), 1) for words in SPLIT]
    np.testing.assert_allclose(encoder.encode(SENTENCES), expected, atol=1e-6)
    # single letters of unknown words are no words, whatever the file has
    np.testing.assert_array_equal(encoder.encode("xax ax xa xx"), np.zeros(6))


def test_capitals(save: Save) -> None:
    """A file with capitals keeps them; lowered, the most frequent spelling's vector stays."""
    cased = save(["The", "man", "the", "Man", "ΟΔΟΣ"])
    texts = ["The man", "the Man", "THE MAN", "οδοσ ΟΔΟΣ"]
    first, second, zero = MATRIX[:2].mean(axis=0), MATRIX[2:4].mean(axis=0), np.zeros(6)
    np.testing.assert_allclose(word_model(cased).encode(texts), [first, second, zero, MATRIX[4]], atol=1e-6)
    lowered = word_model(cased, lowercase=True).encode(texts)
    np.testing.assert_allclose(lowered, [first, first, first, MATRIX[4]], atol=1e-6)
    np.testing.assert_array_equal(word_model(cased, lowercase=True, drop_most_frequent=1).encode("the"), zero)
    with pytest.raises(InputError, match="excludes all 2 words"):
        word_model(save(["The", "the"]), lowercase=True, drop_most_frequent=1)


def test_a_vocabulary_of_any_words(save: Save) -> None:
    """None of the words that stand for a text while its frame is made."""
    model = word_model(save(["%", "flute", "dog"]))
    encoder = Encoder(model, "static weights=idf").fit(["flute dog", "dog"])
    np.testing.assert_allclose(encoder.encode("flute dog"), MATRIX[1], atol=1e-6)
    sentence = Encoder(model, "static template='dog {text} % flute'")
    expected = (2 * MATRIX[1] + MATRIX[2] + MATRIX[0]) / 4
    np.testing.assert_allclose(sentence.encode("flute"), expected, atol=1e-6)


def test_splitting(save: Save) -> None:
    tokenizer = word_model(save())[0].tokenizer

    def words(text: str) -> list[str]:
        return [token.removeprefix("▁") for token in tokenizer.encode(text).tokens]

    assert words("don’t can't I'MAN 's") == ["do", "n't", "ca", "n't", "i", "'", "man", "'s"]
    assert words("co-op well-known man-dog the-") == ["co-op", "well-known", "the"]
    assert words("the...man, 3.5% of 3.5x 1990s") == ["the", "...", "man", ",", "3.5", "%", "of", ".", "1990s"]
    assert words("▁the  the\u3000a\tx") == ["the", "the", "a", "x"]
    plain = word_model(save(["don't", "don", "well-known", "t"]))[0].tokenizer
    assert plain.encode("Don’t don't don well-known").tokens == ["▁don't", "▁don't", "▁don", "▁well-known"]


def test_an_encoder_takes_a_file_for_a_model(save: Save, tmp_path: Path) -> None:
    expected = Encoder(word_model(save()), "static").encode(SENTENCES)
    np.testing.assert_array_equal(Encoder(save(), "static").encode(SENTENCES), expected)
    (tmp_path / "notes.txt").write_text("Just some notes.")
    with pytest.raises(ModelError, match=r"notes\.txt.* is a file; a model is a folder .*a text file of word vectors"):
        Encoder(tmp_path / "notes.txt", "static")


# -- files ------------------------------------------------------------------------------------------------------------

ODD_WORDS = ["the", "of", "straße", "你好", "\xa0", "a\x85b", "1.5", "#", ". . .", "at name@domain.com"]  # GloVe 840B
FORMATS = {
    "glove.txt": written(ODD_WORDS).encode(),
    "glove.txt.gz": gzip.compress(written(ODD_WORDS).encode()),
    "windows": b"\xef\xbb\xbf" + written(ODD_WORDS, end="\r\n").rstrip().encode(),
    "tabs": (written(ODD_WORDS, "\t") + "\n \n").encode(),
    "word2vec.txt": (f"{len(ODD_WORDS)} 6\n" + written(ODD_WORDS)).encode(),
    "fasttext.vec": (f"{len(ODD_WORDS)} 6\n" + written(ODD_WORDS, end=" \n")).encode(),
}


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_gives_the_same_table(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(FORMATS[name])
    for limit in (None, 5, 1000):
        (table,) = word_model(tmp_path / name, limit=limit)
        assert table.tokenizer.get_vocab() == {f"▁{word}": row for row, word in enumerate(ODD_WORDS[:limit])}
        np.testing.assert_array_equal(table.embedding.weight.detach(), MATRIX[: len(ODD_WORDS)][:limit])


def test_the_first_row_of_a_repeated_word_and_a_single_dimension(tmp_path: Path) -> None:
    (tmp_path / "glove").write_text("a 1\nb -2.5e-1\na 3\n", encoding="utf-8")
    (table,) = word_model(tmp_path / "glove")
    assert table.tokenizer.get_vocab() == {"▁a": 0, "▁b": 1}
    assert table.embedding.weight.tolist() == [[1], [-0.25]]


BAD: dict[str, tuple[bytes, str]] = {
    "header only": (b"2 3\n", "there is no word in the file"),
    "prose": (b"This is a text.\nAnd more.\n", "line 1: 'This is a text.' must be a word and 3 finite numbers"),
    "fewer words": (b"3 2\na 1 2\nb 3 4", "the header announces 3 words, the file has 2"),
    "short row": (b"a 1 2\nb 3\nc 5 6", "line 2: 'b 3' must be a word and 2 finite numbers"),
    "long row, no number": (b"a 1 2\nb c d\nc 5 6", "line 2: 'b c d' must be a word and 2 finite numbers"),
    "no word": (b"a 1 2\n 3 4\nc 5 6", "line 2: ' 3 4' must be a word and 2 finite numbers"),
    "nan": (b"2 2\na 1 2\nb 3 nan", "line 3: 'b 3 nan' must be a word and 2 finite numbers"),
    "overflow": (b"a 1 2\nb 3 1e99", "line 2: 'b 3 1e99' must be"),
    "latin-1": ("für 1 2 3".encode("latin-1"), "cannot be read ('utf-8' codec"),
    "word2vec's binary": (
        b"2 6\nthe " + MATRIX[0].tobytes() + b"of " + MATRIX[1].tobytes(),
        "Convert other files with",
    ),
    "fastText's .bin": ((793712314).to_bytes(4, "little") + b"\x0c\x00\x00\x00", "load_word2vec_format(file, binary"),
    "truncated.gz": (gzip.compress(written(WORDS).encode())[:-30], "cannot be read"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_files(name: str, tmp_path: Path) -> None:
    content, message = BAD[name]
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(DataError, match=re.escape(str(path)) + ".*" + re.escape(message)):
        word_model(path)


def test_arguments(save: Save) -> None:
    for options, message in (
        ({"drop_most_frequent": -1}, "drop_most_frequent=-1"),
        ({"limit": 2.0}, "limit=2.0"),
    ):
        with pytest.raises(InputError, match=message):
            word_model(save(), **options)  # type: ignore[arg-type]
