"""Static encoders without torch: the same vectors as `Encoder` of the same folder, or an error that says why not."""

import copy
import json
import pickle
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file
from safetensors.torch import save_file as save_tensors
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Normalize
from sentence_transformers.sentence_transformer.modules import Pooling, WordEmbeddings
from tokenizers import Tokenizer

import essent.static.encoder
from essent import StaticEncoder
from essent.encoder.encoder import Encoder
from essent.errors import InputError, ModelError
from essent.model.word_vectors import word_model
from essent.recipe.tokens import unknown_token
from essent.static.distillation import encoder_of
from families import build_tokenizer
from odd_texts import ODD
from samples import LONG, TEXTS
from static_models import static_model, table_of

EVERY = [*TEXTS, LONG, *ODD, "unknown ☃ sign", "☃", TEXTS[0], TEXTS[3]]
KNOWN = [text for text in EVERY if text.isprintable()]  # sentence-transformers reads no lone surrogates


def assert_same(folder: Path, limit: float = 1e-6) -> StaticEncoder:
    """As Encoder has them: all at once, in another order, in other portions, alone."""
    light, expected = StaticEncoder.load(folder), Encoder(folder).encode(EVERY)
    vectors = light.encode(EVERY)
    assert vectors.dtype == np.float32
    assert vectors.shape == (len(EVERY), light.dimensions)
    np.testing.assert_allclose(vectors, expected, atol=limit, rtol=limit)
    np.testing.assert_array_equal(light.encode(EVERY[::-1]), vectors[::-1])
    for index in (0, 2, 8, -1):
        np.testing.assert_array_equal(light.encode(EVERY[index]), vectors[index])
    return light


@pytest.fixture
def folder(static_folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(static_folder, tmp_path / "model"))


# -- the same vectors -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "unit", "side"),
    [
        ("wordpiece", False, "left"),
        ("wordpiece", False, "right"),
        ("bytes", True, None),
        ("metaspace", False, None),
    ],
)
def test_static_embeddings_of_sentence_transformers(kind: str, unit: bool, side: str | None, tmp_path: Path) -> None:
    """Of every kind of tokenizer, also with a limit and padding in the tokenizer."""
    tokenizer = build_tokenizer(kind).backend_tokenizer
    if side is not None:
        tokenizer.enable_truncation(5, direction=side)
        tokenizer.enable_padding(length=9)
    static_model(tokenizer, *([Normalize()] if unit else [])).save(str(tmp_path))
    assert_same(tmp_path)


@pytest.mark.parametrize("dtype", ["float16", "int8"])
def test_folders_of_distill(dtype: str, wordpiece: Tokenizer, tmp_path: Path) -> None:
    encoder_of(table_of(wordpiece), build_tokenizer("wordpiece"), dtype).save(str(tmp_path))
    light = assert_same(tmp_path)
    assert repr(light) == f"StaticEncoder({wordpiece.get_vocab_size()} rows of {dtype}, dimensions=12, normalized)"


@pytest.mark.parametrize("recipe", ["static weights=idf*remove | normalize", "static | whiten:4 | centre"])
def test_recipes_fold_into_a_table(recipe: str, wordpiece: Tokenizer, tmp_path: Path) -> None:
    """Also what they make of a text without tokens, which is no mean of rows."""
    Encoder(static_model(wordpiece), recipe).fit([text for text in EVERY if text]).save(str(tmp_path))
    light = assert_same(tmp_path, 1e-5)
    assert light.encode("").any() == ("centre" in recipe)


@pytest.mark.parametrize(("kind", "unit"), [("float32", False), ("int8", True)])
def test_folders_of_model2vec(kind: str, unit: bool, wordpiece: Tokenizer, tmp_path: Path) -> None:
    """A token's vector is embeddings[mapping[id]]·weights[id], unknown tokens count in no mean; in float64.

    Its 8 bits have no scale: model2vec takes the steps as numbers.
    """
    size, generator = wordpiece.get_vocab_size(), np.random.default_rng(3)
    rows = (generator.standard_normal((7, 9)) * 9).astype(kind)
    mapping, weights = generator.integers(0, 7, size), generator.random(size).astype(np.float32)
    model = pytest.importorskip("model2vec").StaticModel(
        rows, wordpiece, {"model_type": "model2vec"}, normalize=unit, weights=weights, token_mapping=mapping
    )
    model.save_pretrained(tmp_path)
    (tmp_path / "modules.json").unlink()  # with it sentence-transformers reads the folder, and counts unknown tokens
    light = assert_same(tmp_path)
    assert light.table.rows.dtype == kind
    table = rows.astype(float)[mapping] * weights[:, None]
    unknown = wordpiece.token_to_id(unknown_token(wordpiece))
    for text in filter(str.isascii, EVERY):
        ids = [i for i in wordpiece.encode(text, add_special_tokens=False).ids if i != unknown]
        expected = table[ids].mean(axis=0) if ids else np.zeros(9)
        if unit:
            expected /= max(np.linalg.norm(expected), 1e-30)
        for encoder in (light, model):
            np.testing.assert_allclose(encoder.encode(text), expected, atol=1e-6, rtol=1e-6)


def test_word_vectors(tmp_path: Path) -> None:
    """Words that the file lacks give no token at all."""
    rows = [f"{word} {n} {n * n} {-n}" for n, word in enumerate(["the", "man", "flute", "is", "in", "a"], 1)]
    (tmp_path / "glove.txt").write_text("\n".join(rows), "utf-8")
    word_model(tmp_path / "glove.txt").save(str(tmp_path / "words"))
    light = assert_same(tmp_path / "words", 1e-5)
    assert not light.encode("nowhere").any()


@pytest.mark.parametrize("similarity", [None, "cosine", "dot", "euclidean", "manhattan"])
def test_it_answers_as_sentence_transformers_does(similarity: str | None, folder: Path) -> None:
    """The same methods and arguments on the same folder; arrays where sentence-transformers gives tensors."""
    prompts = {"prompts": {"query": "how : ", "document": None}, "default_prompt_name": "query"}
    path = folder / "config_sentence_transformers.json"
    settings = {"similarity_fn_name": similarity, "truncate_dim": 7, **prompts}
    path.write_text(json.dumps(json.loads(path.read_text("utf-8")) | settings), "utf-8")
    light, stock = StaticEncoder.load(folder), SentenceTransformer(str(folder), device="cpu")
    for name in ("prompts", "default_prompt_name", "similarity_fn_name"):
        assert getattr(light, name) == getattr(stock, name)
    assert light.dimensions == light.get_embedding_dimension() == stock.get_embedding_dimension() == 7
    assert light.get_sentence_embedding_dimension() == 7
    for method, settings in (
        ("encode", {}),
        ("encode", {"prompt": ""}),
        ("encode_query", {"prompt": "the "}),
        ("encode_document", {}),
        ("encode_query", {"prompt_name": "document"}),
        ("encode", {"truncate_dim": 99, "normalize_embeddings": True}),
        ("encode", {"truncate_dim": 3, "normalize_embeddings": True, "batch_size": 2}),
    ):
        for texts in (KNOWN, KNOWN[0], []):
            actual, expected = (getattr(model, method)(texts, **settings) for model in (light, stock))
            assert actual.shape == expected.shape
            np.testing.assert_allclose(actual, expected, atol=1e-6)
    vectors = light.encode(KNOWN)
    for first, second in ((vectors, vectors[:3]), (vectors[0], vectors), (vectors[1], vectors[2])):
        actual = light.similarity(first, second)
        assert actual.dtype == np.float32
        np.testing.assert_allclose(actual, stock.similarity(first, second).numpy(), atol=2e-6)
    pairs = stock.similarity_pairwise(vectors, vectors[::-1].copy()).numpy()
    np.testing.assert_allclose(light.similarity_pairwise(vectors, vectors[::-1]), pairs, atol=2e-6)


def test_vectors_that_cannot_be_compared(folder: Path) -> None:
    light, vectors = StaticEncoder.load(folder), np.ones((2, 3))
    for other in (["a cat"], [[[1.0, 2.0, 3.0]]], np.ones((2, 3), complex), np.ones((2, 4))):
        for compare in (light.similarity, light.similarity_pairwise):
            with pytest.raises(InputError, match=r"Expected vectors|Cannot compare"):
                compare(vectors, other)


def test_the_progress_bar_is_optional(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    light = StaticEncoder.load(folder)
    light.encode(EVERY)
    assert capsys.readouterr().err == ""
    np.testing.assert_array_equal(light.encode(EVERY, show_progress_bar=True), light.encode(EVERY))
    assert "Batches" in capsys.readouterr().err


# -- how it computes --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "limit"), [("MAX_TEXTS", 3), ("MAX_CHARACTERS", 40), ("FEW_TEXTS", 0)])
def test_portions_and_sums_without_scipy_have_the_same_bits(
    name: str, limit: int, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A few texts are summed without scipy, many with it."""
    light, texts = StaticEncoder.load(folder), [*EVERY, "the", "the moon " * 300]
    expected = light.encode(texts)
    np.testing.assert_array_equal([light.encode([text])[0] for text in texts], expected)
    monkeypatch.setattr(essent.static.encoder, name, limit)
    np.testing.assert_array_equal(light.encode(texts), expected)
    np.testing.assert_array_equal(light.encode(texts[-3:]), expected[-3:])


def test_threads_and_copies_share_no_mutable_state(folder: Path) -> None:
    light, fresh = StaticEncoder.load(folder), StaticEncoder.load(folder)
    expected = light.encode(EVERY)
    with ThreadPoolExecutor(8) as pool:
        for vectors in pool.map(fresh.encode, [EVERY] * 32):
            np.testing.assert_array_equal(vectors, expected)
    for duplicate in (copy.deepcopy(light), pickle.loads(pickle.dumps(light))):  # noqa: S301
        np.testing.assert_array_equal(duplicate.encode(EVERY), expected)


# -- bad input --------------------------------------------------------------------------------------------------------


def test_unsupported_models_are_refused(wordpiece: Tokenizer, bert: Path, tmp_path: Path) -> None:
    tokenizer = build_tokenizer("wordpiece")
    words = [WordEmbeddings(tokenizer, table_of(wordpiece)), Pooling(12, "mean")]
    for kinds, model in (
        ("WordEmbeddings and Pooling", SentenceTransformer(modules=words, device="cpu")),
        ("StaticEmbedding and Dense", static_model(wordpiece, Dense(12, 5))),
        ("RecipeModule", Encoder(static_model(wordpiece), "static weights=tfidf | quantile").fit(TEXTS)),
    ):
        model.save(str(tmp_path / kinds))
        with pytest.raises(ModelError, match=rf"is a model of {kinds}\. .* Load other models with essent\.Encoder"):
            StaticEncoder.load(tmp_path / kinds)
    with pytest.raises(ModelError, match=r"not a static encoder: it has no modules\.json, and its config\.json"):
        StaticEncoder.load(bert)
    with pytest.raises(ModelError, match=r"No such folder: '.*nowhere'"):
        StaticEncoder.load(tmp_path / "nowhere")
    static_model(wordpiece, Normalize("token_embeddings")).save(str(tmp_path / "tokens"))
    with pytest.raises(ModelError, match=r"Normalize works on .*token_embeddings"):
        StaticEncoder.load(tmp_path / "tokens")


ROWS = 300  # at least as many as the tests' tokenizer has ids
TABLE = np.ones((ROWS, 3), np.float32)
WEIGHTS, STATE = "model.safetensors", "essent/state.safetensors"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (WEIGHTS, None, r"without model\.safetensors in"),
        ("tokenizer.json", None, "Cannot read the tokenizer"),
        (WEIGHTS, "abc", r"Cannot read .*model\.safetensors without torch"),
        ("modules.json", "[{", r"modules\.json is damaged: it is not JSON"),
        ("config_sentence_transformers.json", '{"truncate_dim": 0}', "'truncate_dim' must be a whole number above 0"),
        (WEIGHTS, {"matrix": TABLE}, "no table of token vectors, named embedding.weight or embeddings"),
        (WEIGHTS, {"embeddings": TABLE[0]}, r"shape \(V,D\), got \(3,\)"),
        (WEIGHTS, {"embeddings": TABLE, "weights": TABLE}, r"weights must have the shape \(V,\), got \(300, 3\)"),
        (WEIGHTS, {"embeddings": TABLE[:5]}, "ids up to [0-9]+, but the table only 5 rows"),
        (WEIGHTS, {"embeddings": TABLE, "mapping": np.arange(5)}, "ids up to [0-9]+, .* 5 entries of mapping"),
        (WEIGHTS, {"embeddings": TABLE[:9], "mapping": np.arange(ROWS)}, "contains rows 0 to 299: must be 0 to 8"),
        (WEIGHTS, {"embedding.weight": np.where(np.arange(ROWS)[:, None] == 4, np.nan, TABLE)}, "first in row 4"),
        (STATE, {"empty": TABLE[:1]}, r"must be \(12,\) floats like the others, got \(1, 3\) float32"),
        (STATE, {"empty": np.full(12, np.nan)}, "text without tokens contains NaN or infinite values"),
    ],
)
def test_damaged_folders_are_refused(name: str, content: Any, message: str, folder: Path) -> None:
    path = next(folder.rglob(name), folder / name)
    if isinstance(content, dict):
        path.parent.mkdir(exist_ok=True)
        save_file(content, path)
    elif content:
        path.write_text(content, "utf-8")
    else:
        path.unlink()
    with pytest.raises(ModelError, match=message):
        StaticEncoder.load(folder)


def test_dtypes_unknown_to_numpy_are_refused(folder: Path) -> None:
    path = next(folder.rglob("model.safetensors"))
    save_tensors({"embedding.weight": torch.ones(ROWS, 3, dtype=torch.bfloat16)}, path)
    if "ml_dtypes" in sys.modules:  # another test has loaded onnx, which teaches NumPy the type
        assert StaticEncoder.load(folder).encode(["dogs"]).shape == (1, 3)
    else:
        with pytest.raises(ModelError, match=r"Cannot read .* without torch: .* Try essent\.Encoder"):
            StaticEncoder.load(folder)
    assert Encoder(folder).encode(["dogs"]).shape == (1, 3)
