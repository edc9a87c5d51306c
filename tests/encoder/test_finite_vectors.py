"""Vectors with NaN or infinite numbers are an error that names the text and the cause, wherever vectors leave."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Transformer
from sentence_transformers.sentence_transformer.modules import Pooling

import essent
from essent._core.texts import require_finite
from essent.encoder.encoder import Encoder
from essent.errors import EssentError, NotFiniteError

TEXTS = ["a man plays a flute", "dogs run", "how far is the moon"]
ROWS = [{"sentence1": text, "sentence2": f"{text} again", "score": index} for index, text in enumerate(TEXTS)]


def change_tensor(folder: str, name: str, change: Callable[[np.ndarray], None]) -> None:
    tensors = load_file(f"{folder}/model.safetensors")
    change(next(array for key, array in tensors.items() if key.endswith(name)))
    save_file(tensors, f"{folder}/model.safetensors", {"format": "pt"})


@pytest.fixture
def broken(bert: Path, tmp_path: Path) -> str:
    """A model with NaN in a weight that every text goes through."""
    folder = str(shutil.copytree(bert, tmp_path / "copy"))
    change_tensor(folder, "layer.1.output.dense.weight", lambda weight: weight.fill(np.nan))
    return folder


def evaluate_as_it_is(folder: str) -> None:
    modules = [Transformer(folder), Pooling(32, "mean"), Dense(32, 8)]
    SentenceTransformer(modules=modules, device="cpu").save(f"{folder}-dense")
    essent.evaluate(f"{folder}-dense", [], [ROWS])


CONSUMERS: dict[str, Callable[[str], object]] = {
    "fit": lambda model: Encoder(model, "mean | zscore").fit(TEXTS),
    "save": lambda model: Encoder(model).save(f"{model}-saved"),
    "evaluate as it is": evaluate_as_it_is,
}


@pytest.mark.parametrize("consumer", CONSUMERS)
def test_non_finite_vectors_are_an_error(consumer: str, broken: str) -> None:
    with pytest.raises(EssentError, match=r"The\s+vector\s+of\s+'(a|A)\s+man.*is\s+not\s+finite\s+\(text\s+0"):
        CONSUMERS[consumer](broken)
    assert not Path(f"{broken}-saved").exists()


def test_the_error_names_the_text_and_the_weights(bert: Path, broken: str, tmp_path: Path) -> None:
    message = r"vector of 'a man.* \(text 0 of 3\), nor are those of 2 more.*the weights .*layer\.1\.output"
    with pytest.raises(NotFiniteError, match=message):
        Encoder(broken).encode(TEXTS)
    word = Encoder(broken, "static").module.ids(["flute"])[0][1]
    change_tensor(broken, "word_embeddings.weight", lambda table: table[word].fill(np.inf))
    with pytest.raises(NotFiniteError, match=r"of 'the flute' is not finite \(text 1 of 3\): NaN.*word_embeddings"):
        Encoder(broken, "static").encode(["dogs run", "the flute", "the moon"])
    intact = Path(shutil.copytree(bert, tmp_path / "intact"))
    path = intact / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"layer_norm_eps": float("nan")}))
    with pytest.raises(NotFiniteError, match=r"config\.json may have such a number \(layer_norm_eps\)"):
        Encoder(str(intact)).encode(TEXTS)


@pytest.mark.parametrize("kind", [np.asarray, torch.from_numpy])
def test_large_numbers_are_finite(kind: Callable) -> None:
    """Their sum is not."""
    vectors = kind(np.full((2, 3), 3e38, np.float32))
    assert require_finite(vectors, ["a", "b"]) is vectors
