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
RECIPES = ["mean", "layers=1", "layers=0+2", "static", "ditto:2-3", "random"]


@pytest.mark.parametrize("family", daily(FAMILIES, "bert", "albert", "deberta-v2", "modernbert", "t5", "gpt2", "qwen3"))
def test_a_partly_loaded_folder_matches_the_whole_model(
    family: str, folder_of: Callable[[str], Path], shell_of: Shells
) -> None:
    for recipe in RECIPES:
        part, whole = Encoder(str(folder_of(family)), recipe), Encoder(shell_of(family), recipe)
        np.testing.assert_allclose(part.encode(TEXTS), whole.encode(TEXTS), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("family", [family for family in FAMILIES if family != "albert"])
@pytest.mark.parametrize(("recipe", "loaded"), [("layers=1", 1), ("ditto:2-1 layers=0", 2), ("mean", 3)])
def test_layers_above_the_highest_read_are_not_loaded(
    family: str, recipe: str, loaded: int, folder_of: Callable[[str], Path]
) -> None:
    model = Encoder(str(folder_of(family)), recipe).module.backbone.model
    path = find_layers(model)
    assert path is not None
    assert len(model.get_submodule(".".join(path))) == loaded


def test_a_static_recipe_holds_the_embeddings_only(bert: Path) -> None:
    names = [name for name, _ in Encoder(str(bert), "static").module.backbone.model.named_parameters()]
    assert names
    assert all(name.startswith("embeddings.") for name in names)


# -- sentence-transformers folders ------------------------------------------------------------------------------------


def stock(bert: Path, *after: torch.nn.Module, **settings: object) -> SentenceTransformer:
    return SentenceTransformer(modules=[Transformer(str(bert)), *after], device="cpu", **settings)


@pytest.mark.parametrize(
    ("mode", "recipe"),
    [
        ("mean", "mean"),
        ("cls", "cls"),
        ("max", "reduce=max"),
        ("lasttoken", "last-token"),
        ("weightedmean", "weights=position"),
    ],
)
@pytest.mark.parametrize("unit", [False, True])
def test_a_stock_folder_without_a_recipe_is_itself(
    mode: str, recipe: str, unit: bool, bert: Path, tmp_path: Path
) -> None:
    model = stock(bert, Pooling(32, pooling_mode=mode), *([Normalize()] if unit else []))
    model.save(str(tmp_path / "model"))
    vectors = model.encode([*TEXTS, LONG])
    for source in (str(tmp_path / "model"), tmp_path / "model", model):
        encoder = Encoder(source)
        assert encoder.recipe == Recipe.parse(recipe + " | normalize" * unit)
        np.testing.assert_allclose(encoder.encode([*TEXTS, LONG]), vectors, atol=1e-5)


def test_a_plain_transformer_without_a_recipe_is_its_mean(bert: Path) -> None:
    assert Encoder(str(bert)).recipe == Recipe.parse("mean")
    np.testing.assert_allclose(
        Encoder(str(bert)).encode(TEXTS), SentenceTransformer(str(bert), device="cpu").encode(TEXTS), atol=1e-5
    )


def test_a_recipe_replaces_the_folders_own_pooling(bert: Path, tmp_path: Path) -> None:
    stock(bert, Pooling(32, pooling_mode="cls"), Normalize()).save(str(tmp_path / "model"))
    encoder = Encoder(str(tmp_path / "model"), "first-last")
    np.testing.assert_allclose(encoder.encode(TEXTS), Encoder(str(bert), "first-last").encode(TEXTS), atol=1e-5)


def test_a_trained_layer_is_not_dropped_silently(bert: Path, tmp_path: Path) -> None:
    model = stock(bert, Pooling(32, pooling_mode="mean"), Dense(32, 8))
    model.save(str(tmp_path / "model"))
    for source in (str(tmp_path / "model"), model):
        with pytest.raises(RecipeError, match="which no recipe describes"):
            Encoder(source)
    assert Encoder(str(tmp_path / "model"), "mean").encode("a man").shape == (32,)


def test_a_pooling_of_several_modes_is_refused(bert: Path) -> None:
    with pytest.raises(RecipeError, match="which no recipe describes"):
        Encoder(stock(bert, Pooling(32, pooling_mode=("mean", "max"))))


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


def test_a_loaded_model_is_used_and_unchanged(bert: Path) -> None:
    model = stock(bert, Pooling(32, pooling_mode="mean"))
    vectors, modules = model.encode(TEXTS), list(model.modules())
    encoder = Encoder(model, "layers=1")
    np.testing.assert_allclose(encoder.encode(TEXTS), Encoder(str(bert), "layers=1").encode(TEXTS), atol=1e-6)
    np.testing.assert_array_equal(model.encode(TEXTS), vectors)
    assert all(before is after for before, after in zip(modules, model.modules(), strict=True))
    assert len(model[0].model.encoder.layer) == 3


def test_float32_on_the_cpu_whatever_the_folder_holds(bert: Path, tmp_path: Path) -> None:
    model = stock(bert, Pooling(32, pooling_mode="mean")).half()
    model.save(str(tmp_path / "half"))
    assert Encoder(str(tmp_path / "half"), "mean", device="cpu").module.backbone.static_table.dtype == torch.float32
    half = Encoder(str(tmp_path / "half"), "mean", device="cpu", model_kwargs={"dtype": torch.float16})
    assert half.module.backbone.static_table.dtype == torch.float16


# -- what cannot be loaded --------------------------------------------------------------------------------------------


def test_a_missing_folder_lists_its_neighbours(bert: Path) -> None:
    with pytest.raises(ModelError, match=r"There is no model folder .* Beside it: .*bert"):
        Encoder(str(bert.parent / "brt"), "mean")


def test_a_file_is_not_a_folder(bert: Path) -> None:
    with pytest.raises(ModelError, match="is a file; a model is a folder"):
        Encoder(str(bert / "config.json"), "mean")


@pytest.mark.parametrize("name", ["no-such-model", "nobody/no-such-model"])
def test_an_unknown_name_offline_is_a_clear_error(name: str) -> None:
    with pytest.raises(ModelError, match=rf"Cannot load the model '(sentence-transformers/)?{name}'") as caught:
        Encoder(name, "mean")
    assert "HF_HUB_OFFLINE" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_empty_folder_is_a_model_error(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="Cannot load the model"):
        Encoder(str(tmp_path), "mean")


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("modules.json", b'[{"idx": 0', r"modules\.json is damaged: it is not JSON"),
        ("modules.json", b"{}", "expected a list, found {}"),
        ("modules.json", b'["a"]', "module 0 must be an object with path and type"),
        ("model.safetensors", b"short", "Cannot load the model"),
    ],
)
def test_a_damaged_folder_is_a_model_error(file: str, content: bytes, message: str, bert: Path, tmp_path: Path) -> None:
    shutil.copytree(bert, tmp_path / "copy")
    (tmp_path / "copy" / file).write_bytes(content)
    with pytest.raises(ModelError, match=message):
        Encoder(str(tmp_path / "copy"), "mean")


def test_a_bare_transformer_has_no_tokenizer(bert: Path) -> None:
    with pytest.raises(ModelError, match="has no tokenizer"):
        Encoder(stock(bert)[0].model, "mean")


def test_an_encoder_is_refused_as_model(bert: Path) -> None:
    with pytest.raises(RecipeError, match="runs its own recipe 'ditto:2-1'; give the model that it was made from"):
        Encoder(Encoder(bert, "ditto:2-1"), "mean")
