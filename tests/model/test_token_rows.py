"""Any static model is a backbone: what it computes by itself, and recipes on it against float64 loops."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Normalize
from sentence_transformers.sentence_transformer.modules import Pooling, WordEmbeddings
from sentence_transformers.sentence_transformer.modules.tokenizer import WhitespaceTokenizer
from tokenizers import Tokenizer
from transformers import AutoTokenizer

from essent.encoder.encoder import Encoder
from essent.errors import ModelError, RecipeError, UnsupportedRecipeError
from essent.model.token_rows import rows_backbone
from essent.recipe.recipe import Recipe
from essent.recipe.tokens import count_tokens, text_ids, unknown_token
from families import build_tokenizer
from samples import LONG, TEXTS
from static_models import save_model2vec, static_model, table_of

WITHOUT_TOKENS = ["", "   "]
EVERY = [*TEXTS, LONG, *WITHOUT_TOKENS, "[MASK] in a text [SEP]", "unknown ☃ sign"]


@pytest.fixture(scope="module", params=["wordpiece", "bytes", "metaspace"])
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    return build_tokenizer(request.param).backend_tokenizer


# -- as it is ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("unit", [False, True])
def test_a_static_model_is_itself(unit: bool, tokenizer: Tokenizer, tmp_path: Path) -> None:
    model = static_model(tokenizer, *([Normalize()] if unit else []))
    model.save(str(tmp_path / "model"))
    expected = model.encode(EVERY)
    assert not expected[len(TEXTS) + 1].any()
    for source in (model, str(tmp_path / "model"), tmp_path / "model"):
        encoder = Encoder(source)
        assert encoder.recipe == Recipe.parse("static" + " | normalize" * unit)
        assert encoder.max_seq_length is None
        np.testing.assert_allclose(encoder.encode(EVERY), expected, atol=1e-5)


def test_a_folder_of_model2vec(wordpiece: Tokenizer, tmp_path: Path) -> None:
    """Its recipe, and another one; tests/static/test_static_encoder.py has the vectors."""
    folder = save_model2vec(tmp_path / "potion", wordpiece, {"embeddings": table_of(wordpiece)}, normalize=True)
    assert Encoder(folder).recipe == Recipe.parse("static | normalize")
    encoder = Encoder(folder, "static reduce=max")
    encoder.save(str(tmp_path / "saved"))
    np.testing.assert_allclose(Encoder(tmp_path / "saved").encode(EVERY), encoder.encode(EVERY), atol=1e-5)


# -- recipes on it ----------------------------------------------------------------------------------------------------


def test_recipes_match_the_formulas(tokenizer: Tokenizer) -> None:
    model, table = static_model(tokenizer), table_of(tokenizer).astype(np.float64)
    texts = [text for text in TEXTS if text]
    ids = [tokenizer.encode(text, add_special_tokens=False).ids for text in texts]
    frequency = Counter(i for ids_of_text in ids for i in set(ids_of_text))
    count = Counter(i for ids_of_text in ids for i in ids_of_text)
    total = sum(count.values())
    idf, sif = [], []
    for ids_of_text in ids:
        weights = [np.log(len(texts) / frequency[i]) for i in ids_of_text]
        idf.append(np.average(table[ids_of_text], axis=0, weights=weights))
        sif.append(np.mean([1e-3 / (1e-3 + count[i] / total) * table[i] for i in ids_of_text], axis=0))
    np.testing.assert_allclose(Encoder(model, "static weights=idf").fit(texts).encode(texts), idf, atol=1e-5)
    centred = Encoder(model, "static weights=sif | centre").fit(texts).encode(texts)
    np.testing.assert_allclose(centred, np.array(sif) - np.mean(sif, axis=0), atol=1e-5)


# -- what it refuses --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("recipe", "reason"),
    [
        ("layers=static+0", "a static model has only `static`"),
        ("layers=static weights=ditto:1-1", "a static model has no attention"),
    ],
)
def test_layers_and_heads_are_refused(recipe: str, reason: str, wordpiece: Tokenizer) -> None:
    with pytest.raises(UnsupportedRecipeError, match=reason):
        Encoder(static_model(wordpiece), recipe)


def test_a_trained_layer_behind_the_table_has_no_recipe(wordpiece: Tokenizer) -> None:
    model = static_model(wordpiece, Dense(12, 5))
    with pytest.raises(RecipeError, match="no recipe describes"):
        Encoder(model)
    assert Encoder(model, "static").encode(TEXTS).shape == (len(TEXTS), 12)
    words = WordEmbeddings(WhitespaceTokenizer(["a", "b"]), np.eye(2, dtype=np.float32))
    with pytest.raises(UnsupportedRecipeError, match="This model starts with WordEmbeddings; a recipe needs"):
        Encoder(SentenceTransformer(modules=[words, Pooling(2, "mean")], device="cpu"), "static")


def test_mismatched_tables_are_refused(wordpiece: Tokenizer) -> None:
    table = table_of(wordpiece)
    with pytest.raises(ModelError, match=f"the id {len(table) - 1}, and the model has vectors for the ids 0 to"):
        rows_backbone(table[:-1], wordpiece)
    with pytest.raises(ModelError, match=r"shape \(V,D\), got \(12,\)"):
        rows_backbone(table[0], wordpiece)
    table[4, 2] = np.nan
    with pytest.raises(ModelError, match=f"1 of {len(table)} token vectors .* the first at id 4"):
        rows_backbone(table, wordpiece)


# -- tokens -----------------------------------------------------------------------------------------------------------


def test_dropped_ids_count_nowhere(wordpiece: Tokenizer, tmp_path: Path) -> None:
    unknown = wordpiece.token_to_id(unknown_token(wordpiece))
    backbone = rows_backbone(table_of(wordpiece), wordpiece, dropped=[unknown])
    texts = ["the ☃ dog", "☃", "the dog"]
    assert text_ids(backbone.tokenizer, texts)[0] == text_ids(backbone.tokenizer, texts)[2]
    stats = count_tokens(
        lambda ids_of_text: text_ids(backbone.tokenizer, list(ids_of_text)), texts, len(backbone.vocabulary)
    )
    assert stats.count[unknown] == 0
    backbone.tokenizer.save_pretrained(tmp_path)  # and after a round trip through files
    again = AutoTokenizer.from_pretrained(tmp_path)
    assert text_ids(again, texts) == text_ids(backbone.tokenizer, texts)
