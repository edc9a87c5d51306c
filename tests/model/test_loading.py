"""From a folder, or a loaded model, to a backbone: only as deep as the recipe reads; stock poolings taken over."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Normalize, Transformer
from sentence_transformers.sentence_transformer.modules import Pooling

from essent.encoder.encoder import Encoder
from essent.errors import ModelError, RecipeError
from essent.model.backbone import find_layers
from essent.recipe.recipe import Recipe
from families import FAMILIES
from samples import LONG, TEXTS, daily

Shells = Callable[[str], SentenceTransformer]


@pytest.mark.parametrize(
    "family", daily([name for name in FAMILIES if name != "albert"], "deberta-v2", "modernbert", "t5", "qwen3")
)
def test_layers_above_the_highest_read_are_not_loaded(
    family: str, folder_of: Callable[[str], Path], shell_of: Shells
) -> None:
    path = find_layers(shell_of(family)[0].model)
    assert path is not None
    for source in (folder_of(family), shell_of(family)):
        model = Encoder(source, "ditto:2-1 layers=0").module.backbone.model
        assert len(model.get_submodule(".".join(path))) == 2


# -- sentence-transformers folders ------------------------------------------------------------------------------------


def stock(bert: Path, *after: torch.nn.Module, **settings: object) -> SentenceTransformer:
    return SentenceTransformer(modules=[Transformer(str(bert)), *after], device="cpu", **settings)


@pytest.mark.parametrize(
    ("mode", "recipe", "unit"),
    [
        ("mean", "mean", False),
        ("cls", "cls", True),
        ("max", "reduce=max", False),
        ("lasttoken", "last-token", True),
        ("weightedmean", "weights=position", False),
    ],
)
def test_a_stock_folder_without_a_recipe_is_itself(
    mode: str, recipe: str, unit: bool, bert: Path, tmp_path: Path
) -> None:
    model = stock(bert, Pooling(32, pooling_mode=mode), *([Normalize()] if unit else []))
    model.save(str(tmp_path / "model"))
    vectors = model.encode([*TEXTS, LONG])
    for source in (tmp_path / "model", model):
        encoder = Encoder(source)
        assert encoder.recipe == Recipe.parse(recipe + " | normalize" * unit)
        np.testing.assert_allclose(encoder.encode([*TEXTS, LONG]), vectors, atol=1e-5)


def test_a_trained_layer_is_not_dropped_silently(bert: Path, tmp_path: Path) -> None:
    model = stock(bert, Pooling(32, pooling_mode="mean"), Dense(32, 8))
    model.save(str(tmp_path / "model"))
    for source in (str(tmp_path / "model"), model):
        with pytest.raises(RecipeError, match="which no recipe describes"):
            Encoder(source)
    with pytest.raises(RecipeError, match="which no recipe describes"):
        Encoder(stock(bert, Pooling(32, pooling_mode=("mean", "max"))))
    own, plain = Encoder(str(tmp_path / "model"), "first-last"), Encoder(str(bert), "first-last")
    np.testing.assert_allclose(own.encode(TEXTS), plain.encode(TEXTS), atol=1e-5)
    assert Encoder(str(bert)).recipe == Recipe()


def test_settings_of_the_folder_come_along(bert: Path, tmp_path: Path) -> None:
    settings = {"prompts": {"query": "how : "}, "similarity_fn_name": "dot", "truncate_dim": 16}
    model = stock(bert, Pooling(32, pooling_mode="mean"), **settings)
    model.max_seq_length = 12
    model.save(str(tmp_path / "model"))
    encoder = Encoder(str(tmp_path / "model"), "mean")
    assert encoder.prompts["query"] == "how : "
    assert encoder.similarity_fn_name == "dot"
    assert encoder.max_seq_length == 12
    assert len(encoder.module.ids([LONG])[0]) == 12
    assert Encoder(str(tmp_path / "model"), "mean", similarity_fn_name="cosine").similarity_fn_name == "cosine"


# -- what cannot be loaded --------------------------------------------------------------------------------------------


def test_what_is_no_model_is_refused(bert: Path, tmp_path: Path) -> None:
    for source, message in (
        (str(bert.parent / "brt"), r"There is no model folder .*brt"),
        (str(bert / "config.json"), "is a file; a model is a folder"),
        (str(tmp_path), "Cannot load the model"),
        (stock(bert)[0].model, "has no tokenizer"),
        ("no-such-model", "Cannot load the model 'sentence-transformers/no-such-model'.*HF_HUB_OFFLINE"),
        ("nobody/no-such-model", "Cannot load the model 'nobody/no-such-model'.*HF_HUB_OFFLINE"),
    ):
        with pytest.raises(ModelError, match=message):
            Encoder(source, "mean")
    with pytest.raises(RecipeError, match="runs its own recipe 'ditto:2-1'; give the model that it was made from"):
        Encoder(Encoder(bert, "ditto:2-1"), "mean")


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("modules.json", b'[{"idx": 0', r"modules\.json is damaged: it is not JSON"),
        ("modules.json", b"{}", "expected a list, found {}"),
        ("modules.json", b'["a"]', "it must list objects with path and type"),
        ("model.safetensors", b"short", "Cannot load the model"),
    ],
)
def test_a_damaged_folder_is_a_model_error(file: str, content: bytes, message: str, bert: Path, tmp_path: Path) -> None:
    shutil.copytree(bert, tmp_path / "copy")
    (tmp_path / "copy" / file).write_bytes(content)
    with pytest.raises(ModelError, match=message):
        Encoder(str(tmp_path / "copy"), "mean")
