"""Vectors with NaN or infinite numbers are an error that names the text and the cause, wherever vectors leave."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Transformer
from sentence_transformers.sentence_transformer.modules import Pooling

import essent
from essent._core.texts import require_finite
from essent.encoder.encoder import Encoder
from essent.errors import EssentError, NotFiniteError

TEXTS = ["a man plays a flute", "dogs run", "how far is the moon"]
ROWS = [{"sentence1": text, "sentence2": f"{text} again", "score": index} for index, text in enumerate(TEXTS)]


def with_tensor(folder: Path, name: str, change: Callable[[np.ndarray], None]) -> Path:
    from safetensors.numpy import load_file, save_file

    tensors = {key: array.copy() for key, array in load_file(folder / "model.safetensors").items()}
    change(next(array for key, array in tensors.items() if key.endswith(name)))
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    return folder


def first_number(array: np.ndarray) -> None:
    array.flat[0] = np.nan


@pytest.fixture
def copy(bert: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(bert, tmp_path / "copy"))


@pytest.fixture
def broken(copy: Path) -> str:
    """A model with NaN in a weight that every text goes through."""
    return str(with_tensor(copy, "layer.1.output.dense.weight", first_number))


def as_it_is(folder: str) -> str:
    modules = [Transformer(folder), Pooling(32, "mean"), Dense(32, 8)]
    SentenceTransformer(modules=modules, device="cpu").save(f"{folder}-dense")
    return f"{folder}-dense"


CONSUMERS: dict[str, Callable[[str], object]] = {
    "encode": lambda model: Encoder(model).encode(TEXTS),
    "fit": lambda model: Encoder(model, "mean | zscore").fit(TEXTS),
    "save": lambda model: Encoder(model).save(f"{model}-saved"),
    "evaluate as it is": lambda model: essent.evaluate(as_it_is(model), [], [ROWS]),
}


@pytest.mark.parametrize("consumer", CONSUMERS)
def test_non_finite_vectors_are_an_error(consumer: str, broken: str) -> None:
    with pytest.raises(EssentError, match=r"The\s+vector\s+of\s+'(a|A)\s+man.*is\s+not\s+finite\s+\(text\s+0"):
        CONSUMERS[consumer](broken)
    assert not Path(f"{broken}-saved").exists()


def test_the_error_names_the_text_and_the_weights(broken: str, copy: Path, bert: Path, tmp_path: Path) -> None:
    with pytest.raises(
        NotFiniteError, match=r"\(text 0 of 3\), nor are those of 2 more.*the weights .*layer\.1\.output"
    ):
        Encoder(broken).encode(TEXTS)
    word = Encoder(str(copy), "static").module.ids(["flute"])[0][1]
    copy = with_tensor(copy, "word_embeddings.weight", lambda table: table.__setitem__(word, np.inf))
    with pytest.raises(NotFiniteError, match=r"of 'the flute' is not finite \(text 1 of 3\): NaN.*word_embeddings"):
        Encoder(str(copy), "static").encode(["dogs run", "the flute", "the moon"])
    intact = Path(shutil.copytree(bert, tmp_path / "intact"))
    config = json.loads((intact / "config.json").read_text()) | {"layer_norm_eps": float("nan")}
    (intact / "config.json").write_text(json.dumps(config))
    with pytest.raises(NotFiniteError, match=r"config\.json may have such a number \(layer_norm_eps\)"):
        Encoder(str(intact)).encode(TEXTS)


@pytest.mark.parametrize("kind", [np.asarray, torch.from_numpy])
def test_large_numbers_are_finite(kind: Callable) -> None:
    """Their sum is not."""
    vectors = kind(np.full((2, 3), 3e38, np.float32))
    assert require_finite(vectors, ["a", "b"]) is vectors
