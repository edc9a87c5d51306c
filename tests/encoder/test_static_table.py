"""Static recipes as one table: what folds, what does not, and who reads the folder."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from tokenizers import Tokenizer

from essent import verify
from essent.encoder.encoder import Encoder
from essent.encoder.stock_modules import folded, quantised, rounded
from essent.errors import InputError, RecipeError
from essent.recipe.recipe import Recipe
from families import CORPUS
from samples import LONG, TEXTS
from static_models import static_model

KNOWN = [text for text in [*TEXTS, LONG] if text]  # an empty text has no mean
FOLDS = [
    "static",
    "static weights=sif | whiten:4 | centre | normalize",
    "static weights=remove*idf*content | normalize",
    "layers=random:6 | zscore",
]
DOES_NOT = [
    "static weights=idf",
    "static weights=idf | zscore | normalize",
    "static weights=remove*sif | centre",
    "static weights=sif*sif",
    "static weights=position",
    "static reduce=max",
    "static | quantile",
]


@pytest.fixture(scope="module")
def model(wordpiece: Tokenizer) -> SentenceTransformer:
    return static_model(wordpiece)


def fitted(model: SentenceTransformer, recipe: str) -> Encoder:
    return Encoder(model, recipe).fit([*CORPUS[:8], *KNOWN])


@pytest.mark.parametrize("recipe", FOLDS)
def test_a_folder_is_a_static_embedding_and_loads_as_the_recipe(
    recipe: str, model: SentenceTransformer, wordpiece: Tokenizer, tmp_path: Path
) -> None:
    encoder = fitted(model, recipe)
    expected = encoder.encode(KNOWN)
    table, unit = folded(encoder.module) or pytest.fail("not a mean of rows")
    ids = [wordpiece.encode(text, add_special_tokens=False).ids for text in KNOWN]
    means = np.array([table[own].astype(np.float64).mean(axis=0) for own in ids])
    means = means / np.linalg.norm(means, axis=1, keepdims=True) if unit else means
    np.testing.assert_allclose(expected, means, atol=1e-5)
    encoder.save(str(tmp_path / "saved"))
    stock = SentenceTransformer(str(tmp_path / "saved"), device="cpu")
    assert [type(module).__name__ for module in stock] == ["StaticEmbedding", "Normalize"][: 1 + recipe.endswith("ize")]
    np.testing.assert_allclose(stock.encode(KNOWN), expected, atol=1e-5)
    again = Encoder(str(tmp_path / "saved"))
    assert again.recipe == Recipe.parse(recipe)
    np.testing.assert_allclose(again.encode([*KNOWN, ""]), encoder.encode([*KNOWN, ""]), atol=1e-5)
    fresh = Encoder(model, recipe).fit(KNOWN)
    np.testing.assert_allclose(again.fit(KNOWN).encode(KNOWN), fresh.encode(KNOWN), atol=1e-5)
    assert verify(str(tmp_path / "saved")).passed


@pytest.mark.parametrize("recipe", DOES_NOT)
def test_recipes_beyond_row_means_are_saved_with_the_transformer(
    recipe: str, model: SentenceTransformer, tmp_path: Path
) -> None:
    encoder = fitted(model, recipe)
    assert folded(encoder.module) is None
    encoder.save(str(tmp_path / "saved"))
    np.testing.assert_allclose(Encoder(str(tmp_path / "saved")).encode(KNOWN), encoder.encode(KNOWN), atol=1e-5)
    assert verify(str(tmp_path / "saved")).passed


def test_what_folds_and_where_new_recipes_run(model: SentenceTransformer, bert: Path, tmp_path: Path) -> None:
    fitted(model, "static | normalize").save(str(tmp_path / "bare"))
    again, whole = (Encoder(source, "static weights=idf").fit(KNOWN) for source in (str(tmp_path / "bare"), model))
    np.testing.assert_allclose(again.encode(KNOWN), whole.encode(KNOWN), atol=1e-5)
    fitted(model, "static weights=sif").save(str(tmp_path / "folded"))
    with pytest.raises(RecipeError, match="saved by essent with its own recipe"):
        Encoder(str(tmp_path / "folded"), "static")
    short = Encoder(model, "static | normalize")
    short.max_seq_length = 4
    short.save(str(tmp_path / "short"))
    assert verify(str(tmp_path / "short")).passed
    assert Encoder(str(tmp_path / "short")).max_seq_length == 4
    assert folded(Encoder(str(bert), "static").module) is None  # special tokens count in the mean


# -- fewer bits -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "error"), [("float32", 0.0), ("float16", 5e-4), ("int8", 4e-3)])
def test_stored_in_fewer_bits(
    kind: str, error: float, model: SentenceTransformer, wordpiece: Tokenizer, tmp_path: Path
) -> None:
    table = np.random.default_rng(1).standard_normal((50, 12)) * np.logspace(-3, 3, 50)[:, None]
    table = table.astype(np.float32)
    table[7] = 0.0
    near = rounded(table, kind)
    assert (np.abs(near - table).max(axis=1) <= error * np.abs(table).max(axis=1) + 1e-7).all()
    np.testing.assert_array_equal(rounded(near, kind), near)  # stored again it is the same

    table[7, 1] = -65504.0
    assert quantised(table, "float16")["embeddings"][7, 1] == -65504.0
    table[2, 0] = -65505.0
    with pytest.raises(InputError, match=r"Row 2 of the table contains 65505, .* as float32"):
        quantised(table, "float16")

    encoder = Encoder(copy.deepcopy(model), "static | normalize")
    config = encoder.module.backbone.model.config
    weight = encoder.module.backbone.model.embeddings.weight
    with torch.no_grad():
        weight.copy_(torch.from_numpy(rounded(weight.numpy(), kind)))
    config.stored = kind
    encoder.save(str(tmp_path / "saved"))
    size = (tmp_path / "saved" / "model.safetensors").stat().st_size
    assert size < wordpiece.get_vocab_size() * (12 * np.dtype(kind).itemsize + 4) + 500
    assert json.loads((tmp_path / "saved" / "config.json").read_text())["embedding_dtype"] == kind
    assert verify(str(tmp_path / "saved")).passed
    np.testing.assert_allclose(Encoder(str(tmp_path / "saved")).encode(KNOWN), encoder.encode(KNOWN), atol=1e-6)
