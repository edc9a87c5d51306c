"""Decoders whose tokens see later tokens, because their checkpoint or `config_kwargs` says so."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from transformers import AutoConfig, AutoModel, AutoTokenizer

import essent
from essent import Encoder
from essent.model.loading import read_capabilities
from families import DECODERS, MORE_DECODERS
from samples import TEXTS, daily

OFF = {"config_kwargs": {"is_causal": False}}
WRITTEN = [text for text in TEXTS if text]


@pytest.fixture
def asking(folder_of: Callable[[str], Path], tmp_path: Path) -> Callable[..., Path]:
    """Family -> a copy of its folder whose config.json asks for attention in both directions."""

    def build(family: str, **setting: bool) -> Path:
        folder = tmp_path / family
        shutil.copytree(folder_of(family), folder)
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**config, **(setting or {"is_causal": False})}))
        return folder

    return build


def by_script(folder: Path, texts: list[str]) -> np.ndarray:
    """The mean of each text's last states, one text at a time, under a mask (1,1,T,T) made by hand."""
    tokenizer, config = AutoTokenizer.from_pretrained(folder), AutoConfig.from_pretrained(folder)
    model = AutoModel.from_pretrained(folder, config=config, attn_implementation="eager").eval()
    window = getattr(config, "sliding_window", None)
    kinds = getattr(config, "layer_types", None) or [None]
    means = []
    for text in texts:
        ids = torch.tensor([tokenizer(text)["input_ids"]])
        distance = torch.arange(ids.shape[1])[:, None] - torch.arange(ids.shape[1])
        full = torch.zeros(1, 1, *distance.shape)
        near = full if window is None else full.masked_fill(distance.abs() > window, torch.finfo().min)
        mask = near if kinds == [None] else {"full_attention": full, "sliding_attention": near}
        mask = full if set(kinds) == {"full_attention"} else mask
        with torch.no_grad():
            positions = torch.arange(ids.shape[1])[None]
            states = model(input_ids=ids, attention_mask=mask, position_ids=positions).last_hidden_state
        means.append(states.mean(dim=1))
    return torch.cat(means).numpy()


@pytest.mark.parametrize("family", daily([*DECODERS, *MORE_DECODERS], "gpt2", "gemma3_text"))
def test_a_bidirectional_checkpoint_is_respected(family: str, asking: Callable[..., Path]) -> None:
    folder = asking(family)
    short = [text for text in WRITTEN if len(text) < 30]
    encoder = Encoder(folder, "mean")
    for batch_size in (1, 7):
        vectors = encoder.encode(short, batch_size=batch_size)
        np.testing.assert_allclose(vectors, by_script(folder, short), atol=1e-5)


@pytest.mark.parametrize("family", daily(["gpt2", "gemma3_text"], "gemma3_text"))
def test_the_option_equals_a_bidirectional_checkpoint(
    family: str, folder_of: Callable[[str], Path], asking: Callable[..., Path], tmp_path: Path
) -> None:
    """The first token sees the last; also behind a prompt, whose prefix is not computed once; also when saved."""
    first = Encoder(folder_of(family), "cls", **OFF)
    assert not first.module.backbone.cache_argument
    changed = first.encode(["the moon is large", "the moon is green"])
    assert np.abs(changed[0] - changed[1]).max() > 1e-3
    causal = Encoder(folder_of(family), "cls").encode(["the moon is large", "the moon is green"])
    np.testing.assert_allclose(causal[0], causal[1], atol=1e-6)
    folder = asking(family)
    for recipe in ("mean layers=1+L", "prompteol"):
        encoder = Encoder(folder_of(family), recipe, **OFF)
        vectors = encoder.encode(TEXTS)
        assert not encoder.module.backbone.prefixes
        np.testing.assert_allclose(vectors, Encoder(folder, recipe).encode(TEXTS), atol=1e-6)
    encoder.save(str(tmp_path / "own"))
    np.testing.assert_allclose(Encoder(tmp_path / "own").encode(TEXTS), vectors, atol=1e-5)


@pytest.mark.slow  # a conversion of its own
def test_stock_modules_and_graphs_keep_it(folder_of: Callable[[str], Path], tmp_path: Path) -> None:
    encoder = Encoder(folder_of("llama"), "mean", **OFF)
    vectors = encoder.encode(WRITTEN)
    encoder.save(str(tmp_path / "stock"))
    np.testing.assert_allclose(SentenceTransformer(str(tmp_path / "stock")).encode(WRITTEN), vectors, atol=1e-5)
    graph = essent.compile(encoder, "openvino", threads=1)
    np.testing.assert_allclose(graph.encode(WRITTEN), vectors, atol=1e-5)
    assert not read_capabilities(folder_of("llama"), OFF).causal
    Encoder(folder_of("llama"), "mean").save(str(tmp_path / "causal"))
    np.testing.assert_allclose(Encoder(tmp_path / "causal", **OFF).encode(WRITTEN), vectors, atol=1e-5)


def test_gemmas_own_setting_is_respected(asking: Callable[..., Path], tmp_path: Path) -> None:
    encoder = Encoder(asking("gemma3_text", use_bidirectional_attention=True), "cls")
    vectors = encoder.encode(["the moon is large", "the moon is green"])
    assert np.abs(vectors[0] - vectors[1]).max() > 1e-3
    assert not encoder.module.backbone.cache_argument
    encoder.save(str(tmp_path / "own"))  # its window, halved at loading, must not be halved twice
    long = " ".join(WRITTEN)
    np.testing.assert_allclose(Encoder(tmp_path / "own").encode([long]), encoder.encode([long]), atol=1e-5)


def test_encoders_are_unchanged(folder_of: Callable[[str], Path]) -> None:
    for recipe in ("mean", "prompt-topk"):
        plain, off = Encoder(folder_of("bert"), recipe), Encoder(folder_of("bert"), recipe, **OFF)
        np.testing.assert_array_equal(off.encode(WRITTEN), plain.encode(WRITTEN))
