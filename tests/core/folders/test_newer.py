"""Folders of newer versions: keys and classes that nobody here knows, and modules that no recipe describes."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hostile import edit
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sentence_transformer.modules import (
    CNN,
    BoW,
    Dense,
    Dropout,
    LayerNorm,
    Normalize,
    Pooling,
    Router,
    WeightedLayerPooling,
    WordEmbeddings,
    WordWeights,
)
from sentence_transformers.sentence_transformer.modules.tokenizer import WhitespaceTokenizer
from torch import nn

from essent import Encoder
from essent.encoder.encoder import open_as_it_is
from essent.errors import RecipeError

TEXTS = ["A man is playing a large flute.", "dogs", "How far is the moon from the earth?"]
WORDS = sorted({word for text in TEXTS for word in text.rstrip(".?").split()})


@pytest.mark.parametrize(
    ("file", "keys"),
    [
        ("2_Normalize/config.json", {"new_flag": True}),
        ("config_sentence_transformers.json", {"new_flag": True}),
        ("config.json", {"new_flag": {"more": [1, 2]}, "auto_map": {"AutoModel": "modeling.Model"}}),
        ("tokenizer_config.json", {"new_flag": True}),
        ("special_tokens_map.json", {"new_flag": True}),
        ("sentence_bert_config.json", {"processor_kwargs": {"new_flag": "x", "mask_token": "</s>"}}),
        ("sentence_bert_config.json", {"unpad_inputs": None, "processing_kwargs": {"text": {"padding": True}}}),
    ],
)
def test_a_harmless_key_changes_nothing(file: str, keys: dict, bert: Path, tmp_path: Path) -> None:
    SentenceTransformer(modules=[Transformer(str(bert)), Pooling(32), Normalize()]).save(str(tmp_path))
    before = Encoder(tmp_path).encode(TEXTS)
    edit(tmp_path / file, **keys)
    np.testing.assert_array_equal(Encoder(tmp_path).encode(TEXTS), before)


def rows(tokenizer: object) -> WordEmbeddings:
    return WordEmbeddings(tokenizer, np.random.default_rng(0).normal(size=(len(tokenizer.get_vocab()), 8)))


# Name: modules, most of them after a transformer, and how an Encoder opens them: their recipe, or words of its refusal.
KINDS: dict[str, tuple[Callable[[Transformer], list[nn.Module]], str]] = {
    "dropout": (lambda model: [model, Pooling(32), Dropout(0.5)], "mean"),
    "dense": (lambda model: [model, Pooling(32), Dense(32, 8)], "has the module Dense"),
    "layer norm": (lambda model: [model, Pooling(32), LayerNorm(32)], "has the module LayerNorm"),
    "word weights": (lambda model: [model, WordWeights(["a"] * 1000, {"a": 2.0}), Pooling(32)], "module WordWeights"),
    "layers": (lambda model: [model, WeightedLayerPooling(32, 3, 1), Pooling(32)], "module WeightedLayerPooling"),
    "bag of words": (lambda _: [BoW(WORDS)], "starts with BoW"),
    "words": (lambda _: [rows(WhitespaceTokenizer(WORDS)), Pooling(8)], "starts with WordEmbeddings"),
    "cnn": (lambda model: [rows(model.tokenizer), CNN(8, 4), Pooling(12)], "starts with WordEmbeddings"),
    "router": (lambda model: [Router.for_query_document([model, Pooling(32)], [model, Pooling(32, "cls")])], "Router"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_modules_without_a_recipe_open_unchanged(kind: str, bert: Path, tmp_path: Path) -> None:
    build, message = KINDS[kind]
    transformer = Transformer(str(bert), config_kwargs={"output_hidden_states": kind == "layers"})
    model = SentenceTransformer(modules=build(transformer), device="cpu").eval()
    model.save(str(tmp_path / "model"))
    expected = model.encode(TEXTS)
    opened = open_as_it_is(str(tmp_path / "model"), {"device": "cpu"})
    np.testing.assert_allclose(opened.encode(TEXTS), expected, atol=1e-6)
    if kind == "dropout":
        assert str(Encoder(tmp_path / "model").recipe) == message
        return
    with pytest.raises(RecipeError, match=message) as caught:
        Encoder(tmp_path / "model")
    assert "trust" not in str(caught.value)
