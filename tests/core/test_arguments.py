"""Arguments that many functions share: each entry refuses a wrong one by name, before a model is loaded for it."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import essent
from essent import Encoder, StaticEncoder
from essent.errors import InputError

TEXTS = ["a cat sat", "the dog ran"]
PAIRS = [("a cat", "the dog", 1.0), ("a dog", "the cat", 2.0), ("the moon", "a cat", 0.5)]


@pytest.fixture(scope="module")
def encoder(bert: Path) -> Encoder:
    return Encoder(bert, "static")


@pytest.fixture
def without_weights(bert: Path, tmp_path: Path) -> Path:
    return shutil.copytree(bert, tmp_path / "model", ignore=shutil.ignore_patterns("*.safetensors"))


MODELS: dict[str, Callable[[Any], object]] = {
    "Encoder": Encoder,
    "Encoder with a recipe": lambda model: Encoder(model, "mean"),
    "StaticEncoder.load": StaticEncoder.load,
    "load": essent.load,
    "evaluate": lambda model: essent.evaluate(model, ["mean"], [PAIRS]),
    "search": lambda model: essent.search(model, PAIRS),
    "encode": lambda model: essent.encode("texts.txt", model, "vectors"),
    "encode, sources": lambda sources: essent.encode(sources, "model", "vectors"),
    "encode, output": lambda output: essent.encode("texts.txt", "model", output),
    "verify": essent.verify,
}


@pytest.mark.parametrize("entry", MODELS)
def test_invalid_names_are_refused_everywhere(entry: str) -> None:
    for name, message in ((None, "is NoneType"), (b"model", "is bytes")):
        with pytest.raises(InputError, match=message):
            MODELS[entry](name)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"device": "gpu"}, "device='gpu' cannot be used here .* This machine has"),
        ({"truncate_dim": 0}, "truncate_dim=0: must be a whole number of at least 1"),
        ({"prompts": "query: "}, "prompts='query: ': must be a dict"),
        ({"prompts": {"query": 5}}, "prompts=.*must be a dict from names to texts"),
        ({"similarity_fn_name": "cos"}, "similarity_fn_name='cos': must be one of cosine"),
        ({"model_kwargs": "bfloat16"}, "model_kwargs='bfloat16': must be a dict"),
        ({"model_kwargs": {"dtype": "bf16"}}, "dtype='bf16' must be 'auto', or a type such as 'float32'"),
        ({"devise": "cpu"}, "Unknown option 'devise'. Did you mean 'device'"),
    ],
)
def test_options_are_checked_before_weights_are_read(without_weights: Path, options: Any, message: str) -> None:
    """The folder, which has no weights, is not blamed."""
    with pytest.raises(InputError, match=message):
        Encoder(without_weights, "mean", **options)
    with pytest.raises(InputError, match=message):
        essent.evaluate(str(without_weights), ["mean"], [PAIRS], **options)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"batch_size": "32"}, "batch_size='32': must be a whole number of at least 1"),
        ({"truncate_dim": 2.5}, r"truncate_dim=2\.5"),
        ({"prompt": 5}, "prompt=5: must be a str"),
        ({"prompt_name": "passage"}, "prompt_name='passage': must be one of 'query', 'document'"),
        ({"device": ["cpu", "gpu"]}, "device='gpu'"),
    ],
)
def test_encode_checks_its_arguments(encoder: Encoder, static_folder: Path, arguments: Any, message: str) -> None:
    before = encoder.encode(TEXTS)
    for model in (encoder,) if "device" in arguments else (encoder, StaticEncoder.load(static_folder)):
        with pytest.raises(InputError, match=message):
            model.encode(TEXTS, **arguments)
    assert np.array_equal(encoder.encode(TEXTS), before)  # a refused device took no weights along


def test_sizes_are_checked_before_weights_are_read(encoder: Encoder, without_weights: Path) -> None:
    model, size = str(without_weights), 2.5
    for act in (
        lambda: encoder.fit_encode(TEXTS, batch_size=size),
        lambda: encoder.encode_chunks([TEXTS], batch_size=size),
        lambda: essent.evaluate(model, ["mean"], [PAIRS], batch_size=size),
        lambda: essent.evaluate(model, ["mean"], [PAIRS], max_seq_length=size),
        lambda: essent.search(model, PAIRS, batch_size=size),
        lambda: essent.encode("texts.txt", model, "vectors", workers=size),
    ):
        with pytest.raises(InputError, match=r"(batch_size|max_seq_length|workers)=2\.5: must be a whole number"):
            act()
