"""Static recipes: what folds into one table and who reads its folder; the fast path equals padded batches."""

import copy
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from tokenizers import Tokenizer

import essent.encoder.encoder
import essent.encoder.plan
from essent import verify
from essent.encoder.encoder import Encoder
from essent.encoder.plan import static_pooler_of
from essent.encoder.stock_modules import folded, quantised, rounded
from essent.errors import InputError, RecipeError
from essent.recipe.recipe import Recipe
from essent.recipe.tokens import count_tokens
from families import CORPUS
from odd_texts import ODD
from samples import LONG, TEXTS
from static_models import static_model

Shells = Callable[[str], SentenceTransformer]

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


# -- the fast path ----------------------------------------------------------------------------------------------------

STATIC = [
    "static weights=tfidf*content",
    "static weights=sif*idf",
    "static weights=remove:5",
    "layers=0.75*static+-0.5*random:32,1 weights=sif",
]


def padded(encoder: Encoder, texts: Sequence[str], shape: bool = False) -> torch.Tensor:
    """Vectors by one padded batch."""
    with torch.inference_mode():
        return encoder(encoder.module.pad(encoder.module.ids(texts)), shape=shape)["sentence_embedding"]


def assert_bags_equal_padded(encoder: Encoder, texts: Sequence[str]) -> None:
    pooler = static_pooler_of(encoder.module.plan, encoder.module.backbone)
    assert pooler is not None
    with torch.inference_mode():
        vectors = pooler.pool(pooler.ids(texts), encoder.module.stats)
    torch.testing.assert_close(vectors, padded(encoder, texts), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("recipe", STATIC)
@pytest.mark.parametrize("family", ["bert", "roberta", "t5", "gpt2"])
def test_bags_equal_padded_batches(family: str, recipe: str, shell_of: Shells) -> None:
    encoder = Encoder(shell_of(family), recipe).fit(TEXTS)
    assert_bags_equal_padded(encoder, [*TEXTS, *ODD[:10], LONG, ", .", "the the"])


@pytest.mark.parametrize(("recipe", "side"), [("static weights=content", "left"), ("static weights=sif", "right")])
def test_a_length_limit_cuts_bags_too(recipe: str, side: str, shell: SentenceTransformer) -> None:
    encoder = Encoder(shell, recipe).fit(TEXTS)
    encoder.module.backbone.tokenizer = copy.copy(encoder.tokenizer)
    encoder.module.backbone.tokenizer.truncation_side = side
    for encoder.module.backbone.max_seq_length in (1, 2, 7):
        assert_bags_equal_padded(encoder, TEXTS)


def test_tables_of_half_precision(bert: Path) -> None:
    encoder = Encoder(str(bert), "static weights=idf", device="cpu").fit(TEXTS)
    for kind in (torch.float64, torch.bfloat16, torch.float16):
        assert_bags_equal_padded(encoder.to(kind), TEXTS)


def test_unsupported_recipes_have_no_static_pooler(shell: SentenceTransformer) -> None:
    for recipe in (
        "layers=static+L",
        "static weights=cls*idf",
        "static reduce=max",
        "template='A {text} .' layers=static",
    ):
        module = Encoder(shell, recipe).module
        assert static_pooler_of(module.plan, module.backbone) is None


def test_encode_takes_the_fast_path(shell: SentenceTransformer, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = Encoder(shell, "static weights=idf | zscore", prompts={"query": "how : "}).fit(TEXTS * 2)
    monkeypatch.setattr(essent.encoder.encoder, "PORTION", 3)
    expected = padded(encoder, TEXTS, shape=True).numpy()
    monkeypatch.setattr(encoder.module, "forward", None)  # nothing is padded
    texts = [*TEXTS, *TEXTS[::-1]]
    with_progress = encoder.encode(texts, show_progress_bar=True)
    np.testing.assert_allclose(with_progress, [*expected, *expected[::-1]], atol=1e-5)
    np.testing.assert_allclose(encoder.encode("dogs", prompt_name="query"), encoder.encode("how : dogs"), atol=1e-6)
    assert encoder.encode([]).shape[0] == 0
    followed = Encoder(shell, "static")
    followed.append(torch.nn.Identity())
    assert followed.encode(TEXTS).shape == (len(TEXTS), 32)


@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_counts_match_whole_texts(family: str, shell_of: Shells, monkeypatch: pytest.MonkeyPatch) -> None:
    """The frame's tokens stand in every text, also where the user wrote one of them."""
    module = Encoder(shell_of(family), "static weights=idf").module
    texts = [*TEXTS, *TEXTS[:2], *ODD[:10], "[CLS] [SEP] the", ""]
    monkeypatch.setattr(essent.encoder.plan, "PORTION", 5)
    counts = module.plan.count(texts, module.backbone)
    expected = count_tokens(module.ids, texts, len(module.backbone.vocabulary))
    assert counts.texts == expected.texts
    np.testing.assert_array_equal(counts.count, expected.count)
    np.testing.assert_array_equal(counts.document_frequency, expected.document_frequency)
