"""From a folder or a loaded model to a backbone as deep as the recipe reads; a checkpoint must have all weights."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Normalize, Transformer
from sentence_transformers.sentence_transformer.modules import Pooling
from transformers import AutoModel

from essent.encoder.encoder import Encoder
from essent.errors import DamagedError, ModelError, RecipeError
from essent.lab.templates.search import Generator
from essent.model.backbone import find_layers
from essent.model.loading import load, open_model
from essent.model.mlm_head import load_masked
from essent.recipe.recipe import Recipe
from families import FAMILIES, Folders
from samples import LONG, TEXTS, daily
from selection_samples import Shells


@pytest.mark.parametrize(
    "family", daily([name for name in FAMILIES if name != "albert"], "deberta-v2", "modernbert", "t5", "qwen3")
)
def test_layers_above_the_highest_read_are_not_loaded(family: str, folder_of: Folders, shell_of: Shells) -> None:
    path = find_layers(shell_of(family)[0].model)
    assert path is not None
    for source in (folder_of(family), shell_of(family)):
        model = Encoder(source, "ditto:2-1 layers=0").module.backbone.model
        assert len(model.get_submodule(".".join(path))) == 2


@pytest.fixture
def copy(bert: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(bert, tmp_path / "copy"))


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
    settings = {"prompts": {"query": "how : "}, "similarity_fn_name": "dot", "truncate_dim": 16}
    model = stock(bert, Pooling(32, pooling_mode=mode), *([Normalize()] if unit else []), **settings)
    model.max_seq_length = 12
    model.save(str(tmp_path / "model"))
    vectors = model.encode([*TEXTS, LONG])
    for source in (tmp_path / "model", model):
        encoder = Encoder(source)
        assert encoder.recipe == Recipe.parse(recipe + " | normalize" * unit)
        assert (encoder.prompts["query"], encoder.similarity_fn_name, encoder.max_seq_length) == ("how : ", "dot", 12)
        np.testing.assert_allclose(encoder.encode([*TEXTS, LONG]), vectors, atol=1e-5)
        assert Encoder(source, similarity_fn_name="cosine").similarity_fn_name == "cosine"


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


# -- what cannot be loaded --------------------------------------------------------------------------------------------


def test_what_is_no_model_is_refused(bert: Path, tmp_path: Path) -> None:
    for source, message in (
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
        ("modules.json", b"{}", "expected a list, found {}"),
        ("modules.json", b"[1]", "it must list objects with path and type"),
        ("model.safetensors", b"short", "Cannot load the model"),
    ],
)
def test_a_damaged_folder_is_a_model_error(file: str, content: bytes, message: str, copy: Path) -> None:
    (copy / file).write_bytes(content)
    with pytest.raises(ModelError, match=message):
        Encoder(copy, "mean")


# -- weights: what a checkpoint lacks is an error ---------------------------------------------------------------------

Tensors = dict[str, Any]
LAYER_1 = "encoder.layer.1."


def changed(folder: Path, change: Callable[[Tensors], Tensors], file: str = "model.safetensors") -> Path:
    """The folder with other tensors."""
    save_file(change(load_file(folder / file)), folder / file, {"format": "pt"})
    return folder


def without(*parts: str) -> Callable[[Tensors], Tensors]:
    return lambda tensors: {key: array for key, array in tensors.items() if not any(part in key for part in parts)}


def renamed(before: str, after: str) -> Callable[[Tensors], Tensors]:
    return lambda tensors: {key.replace(before, after): array for key, array in tensors.items()}


# -- what is read and missing -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", daily(FAMILIES, "bert", "albert", "gpt2"))
def test_no_weight_is_random(family: str, folder_of: Folders, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(folder_of(family), tmp_path / "copy"))
    tensors = load_file(folder / "model.safetensors")
    layers = [
        key for key, array in tensors.items() if array.ndim == 2 and any(part.isdigit() for part in key.split("."))
    ]
    changed(folder, without(max(layers)))
    with pytest.raises(DamagedError, match="would be random numbers") as caught:
        Encoder(str(folder), "mean")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (renamed("bert.", "model.bert."), r"50 more.* other names in the checkpoint \(model\.bert\.embeddings\.word"),
        (without("position_embeddings"), r"lack embeddings\.position_embeddings\.weight, which.*is incomplete"),
        (without(LAYER_1), r"lack encoder\.layer\.1\..*the folder is incomplete"),
    ],
)
def test_the_error_names_the_missing_weights_and_the_cause(change: Callable, message: str, copy: Path) -> None:
    changed(copy, change)
    with pytest.raises(DamagedError, match=message):
        Encoder(str(copy), "mean")


LOADERS: dict[str, Callable[[Path], object]] = {
    "encoder": Encoder,
    "search with the head": lambda folder: open_model(folder, {}, with_mlm_head=True),
    "evaluation": lambda folder: load(folder, [Recipe.parse("layers=1"), Recipe.parse("mean")], {}),
    "head": lambda folder: load_masked(str(folder)),
}


@pytest.mark.parametrize("loader", LOADERS)
def test_every_loader_refuses_a_missing_weight(loader: str, copy: Path) -> None:
    missing = r"lack (bert\.)?encoder\.layer\.1\.output\.dense\.weight.* and 1 more, which.*the folder is incomplete"
    with pytest.raises(DamagedError, match=missing):
        LOADERS[loader](changed(copy, without(f"{LAYER_1}output")))


# -- what may be missing ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "recipe"),
    [
        (without("pooler", "cls."), "mean"),  # no recipe reads them
        (without(LAYER_1, "encoder.layer.2."), "layers=1"),
        (without("encoder.", "LayerNorm", "position_embeddings"), "static"),
        (renamed("bert.", ""), "mean"),  # saved as the transformer alone
        (renamed("LayerNorm.weight", "LayerNorm.gamma"), "mean"),  # names of 2018
    ],
    ids=["pooler", "layers", "static", "prefix", "gamma"],
)
def test_unread_weights_may_be_missing(change: Callable, recipe: str, bert: Path, copy: Path) -> None:
    changed(copy, change)
    np.testing.assert_array_equal(Encoder(str(copy), recipe).encode(TEXTS), Encoder(str(bert), recipe).encode(TEXTS))


def test_a_head_without_a_weight_is_refused(copy: Path) -> None:
    changed(copy, without("cls.predictions.transform"))
    with pytest.raises(ModelError, match=r"has no masked-LM head.*Missing: cls\.predictions\.transform"):
        Encoder(copy, "prompt-topk")
    Encoder(copy, "prompt")  # needs no head


def test_a_generator_without_a_weight_is_refused(t5: str, tmp_path: Path) -> None:
    folder = changed(Path(shutil.copytree(t5, tmp_path / "t5")), without("decoder.block.1.layer.1"))
    with pytest.raises(DamagedError, match=r"decoder\.block\.1\.layer\.1"):
        Generator(str(folder))


@pytest.mark.parametrize("kind", ["shards", "pickle"])
def test_weights_in_other_files_are_whole(kind: str, bert: Path, copy: Path) -> None:
    model = AutoModel.from_pretrained(bert)
    (copy / "model.safetensors").unlink()

    def write(tensors: Tensors) -> None:
        if kind == "shards":
            model.save_pretrained(copy, state_dict=tensors, max_shard_size="20KB")
        else:
            torch.save(tensors, copy / "pytorch_model.bin")

    options = {"trust_remote_code": kind == "pickle"}
    write(model.state_dict())
    np.testing.assert_array_equal(Encoder(copy, "mean", **options).encode(TEXTS), Encoder(bert, "mean").encode(TEXTS))
    write(without("word_embeddings")(model.state_dict()))
    with pytest.raises(DamagedError, match="would be random numbers"):
        Encoder(copy, "mean", **options)


# -- numbers that the weights contradict ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ({"num_hidden_layers": 4}, r"lack encoder\.layer\.3\..*the folder is incomplete, or its config\.json"),
        ({"hidden_size": 64}, r"has the shape \[\d+, 32\], and config.json requires \[\d+, 64"),
        ({"intermediate_size": 50}, r"has the shape \[48, 32\], and config.json requires \[50"),
        ({"num_attention_heads": 0}, "Cannot load the model"),
        ({"num_attention_heads": 5}, r"hidden size \(32\) is not a multiple of the number of attention heads \(5\)"),
    ],
)
def test_config_contradicting_the_weights(numbers: dict, message: str, copy: Path) -> None:
    path = copy / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | numbers))
    for opened in (Encoder, lambda folder: open_model(folder, {})):
        with pytest.raises(DamagedError, match=message):
            opened(copy)


def test_a_token_without_a_row_is_named(copy: Path) -> None:
    path = copy / "tokenizer.json"
    tokenizer = json.loads(path.read_text())
    tokenizer["model"]["vocab"]["the"] = 10**6
    path.write_text(json.dumps(tokenizer))
    with pytest.raises(DamagedError, match="'the' has the id 1000000, and the model has vectors for the ids 0 to 2"):
        Encoder(str(copy), "static")
