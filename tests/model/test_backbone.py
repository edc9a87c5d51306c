"""States of the whole model, from as little of it as the recipe reads; the masked-LM head as a function of states."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer
from transformers import AutoModelForMaskedLM

from essent.encoder.encoder import Encoder
from essent.errors import ModelError, UnsupportedRecipeError
from essent.model.backbone import Backbone, number_of_layers
from essent.model.loading import open_model
from essent.model.mlm_head import MaskedLMHead, expected_rows, load_masked
from essent.recipe.tokens import Frame, pad
from essent.recipe.types import RequiredOutputs
from families import FAMILIES, MASKED, RELATIVE
from reference import Reference
from samples import TEXTS, daily

Shells = Callable[[str], SentenceTransformer]
References = Callable[[str], Reference]


@pytest.mark.parametrize("family", daily(FAMILIES, "bert", "albert", "deberta-v2", "modernbert", "t5", "gpt2", "llama"))
def test_layers_match_the_whole_model(family: str, shell_of: Shells, reference_of: References) -> None:
    """hidden_states[k] of the whole model with output_hidden_states, also below a final norm, also when cut at k."""
    reference, shell = reference_of(family), shell_of(family)
    ids = list(reference.sentence("Two dogs run through the green field", None).ids)
    oracle = reference.run(ids)[0]
    for cut, layers in ((3, {0}), (3, {0, 1, 2}), (3, {3}), (3, {0, 1, 2, 3}), (2, {2}), (2, {0, 1, 2}), (0, {0})):
        backbone = Backbone(shell[0].model, shell.tokenizer, shell.max_seq_length)
        backbone.cut(cut)
        tokens = pad([ids, ids[:2]], Frame((), ()), backbone.pad_id)
        with torch.inference_mode():
            hidden = backbone.states(tokens, RequiredOutputs(frozenset(layers))).hidden
        assert set(hidden) == layers
        for layer, states in hidden.items():
            scale = max(1.0, np.abs(oracle[layer]).max())
            np.testing.assert_allclose(states[0].numpy(), oracle[layer], atol=1e-5 * scale)


@pytest.mark.parametrize("family", daily(FAMILIES, "bert", "albert", "deberta-v2", "gpt2"))
def test_encoders_sharing_a_model_are_independent(family: str, folder_of: Callable[[str], Path]) -> None:
    """As each from its folder, loaded no deeper than it reads; no hook on a layer fires for another encoder."""
    shell = SentenceTransformer(str(folder_of(family)), device="cpu")
    recipes = ["layers=1+2", "ditto:2-2", "layers=0+1+2+L", "layers=2", "static", "random"]
    alone = [Encoder(str(folder_of(family)), recipe).encode(TEXTS) for recipe in recipes]
    encoders = [Encoder(shell, recipe) for recipe in recipes]
    for _ in range(2):
        for encoder, vectors in zip(encoders, alone, strict=True):
            np.testing.assert_allclose(encoder.encode(TEXTS), vectors, atol=1e-5)


@pytest.mark.parametrize("family", daily(FAMILIES, "bert", "llama"))
def test_the_callers_model_is_unchanged(family: str, folder_of: Callable[[str], Path]) -> None:
    shell = SentenceTransformer(str(folder_of(family)), device="cpu", model_kwargs={"attn_implementation": "eager"})
    model = shell[0].model
    features = shell.tokenizer(["a man is playing"], return_tensors="pt", return_token_type_ids=False)

    def everything() -> list[torch.Tensor]:
        with torch.no_grad():
            output = model(**features, output_hidden_states=True, output_attentions=True)
        return [output.last_hidden_state, *output.hidden_states, *output.attentions]

    shell.tokenizer.pad_token = shell.tokenizer.pad_token or shell.tokenizer.eos_token  # stock decoders cannot pad
    texts = [text for text in TEXTS if text]
    settings, vectors, states = model.config.to_dict(), shell.encode(texts), everything()
    for recipe in ("ditto:2-3", "layers=0+1", "static", "mean"):
        Encoder(shell, recipe).encode(TEXTS)
    assert model.config.to_dict() == settings
    assert model.config._attn_implementation == "eager"
    assert number_of_layers(model) == 3
    np.testing.assert_array_equal(shell.encode(texts), vectors)
    for before, after in zip(states, everything(), strict=True):
        torch.testing.assert_close(before, after)


# -- the masked-LM head -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", daily(MASKED, "bert", "distilbert", "deberta-v2", "modernbert"))
def test_the_head_gives_the_logits_of_the_masked_language_model(family: str, folder_of: Callable[[str], Path]) -> None:
    whole = load_masked(str(folder_of(family)))
    head = MaskedLMHead(whole)
    ids = torch.tensor([[5, 6, 7, 8, 9, 10]])
    with torch.inference_mode():
        logits = whole(input_ids=ids).logits[0]
        states = whole.base_model(input_ids=ids).last_hidden_state[0]
        torch.testing.assert_close(head(states), logits, atol=0, rtol=0)
        probabilities, best = head.most_probable(states, 7)
        again, _ = head.most_probable(states[:0], 7)
    expected = logits.double().softmax(dim=-1).sort(dim=-1, descending=True)
    torch.testing.assert_close(probabilities.double(), expected.values[:, :7], atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(logits.gather(1, best), logits.gather(1, expected.indices[:, :7]))
    assert again.shape == (0, 7)
    assert whole.get_output_embeddings().weight is whole.get_input_embeddings().weight


def test_top_k_beyond_the_vocabulary_is_the_whole_vocabulary(bert: Path) -> None:
    module = Encoder(str(bert), "template=bert layers=topk:100000 weights=mask").module
    backbone = module.backbone
    states = torch.randn(1, 2, 32)
    at = torch.tensor([[False, True]])
    assert backbone.mlm_head is not None
    with torch.no_grad():
        expected_embedding = expected_rows(states, at, 100_000, backbone.mlm_head, backbone.static_table)
        shares = backbone.mlm_head(states[0, 1:]).softmax(dim=-1)
    torch.testing.assert_close(expected_embedding[0, 1], (shares @ backbone.static_table)[0])
    assert (expected_embedding[0, 0] == 0).all()


# -- refusals ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def headless(bert: Path, tmp_path: Path) -> str:
    """The transformer alone, as sentence encoders are saved."""
    AutoModelForMaskedLM.from_pretrained(bert).base_model.save_pretrained(tmp_path / "headless")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(bert / name, tmp_path / "headless" / name)
    return str(tmp_path / "headless")


def test_a_model_saved_without_its_head_is_refused(headless: str, bert: Path, folder_of: Callable[[str], Path]) -> None:
    refused = "it has no masked-LM head: it was saved or loaded without one"
    with pytest.raises(UnsupportedRecipeError, match=refused):
        Encoder(headless, "prompt-topk")
    with pytest.raises(UnsupportedRecipeError, match=refused):
        Encoder(SentenceTransformer(str(bert), device="cpu"), "prompt-topk")
    for source in (headless, str(folder_of("gpt2"))):
        with pytest.raises(ModelError, match="has no masked-LM head"):
            open_model(source, {}, with_mlm_head=True)
    (Path(headless) / "model.safetensors").unlink()
    with pytest.raises(UnsupportedRecipeError, match=refused):
        Encoder(headless, "prompt-topk")


def test_a_head_without_weights_is_refused(bert: Path, tmp_path: Path) -> None:
    """transformers would draw the missing weights at random."""
    folder = tmp_path / "no weights"
    shutil.copytree(bert, folder)
    weights = load_file(folder / "model.safetensors")
    remaining = {name: value for name, value in weights.items() if not name.startswith("cls.predictions.transform")}
    assert 0 < len(remaining) < len(weights)
    save_file(remaining, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match=r"has no masked-LM head.*Missing: cls\.predictions\.transform"):
        Encoder(str(folder), "prompt-topk")
    Encoder(str(folder), "prompt")  # needs no head


# -- wherever recipes run ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", daily(MASKED, "modernbert"))
def test_the_head_is_saved_with_the_folder(family: str, folder_of: Callable[[str], Path], tmp_path: Path) -> None:
    name = "prompt-topk" if family in RELATIVE else "prompt-topk-denoised"
    encoder = Encoder(str(folder_of(family)), f"{name} | zscore").fit(TEXTS)
    expected = encoder.encode(TEXTS)
    encoder.save(str(tmp_path), create_model_card=False)
    assert json.loads((tmp_path / "config.json").read_text())["architectures"][0].endswith("ForMaskedLM")
    loaded = Encoder(str(tmp_path))
    np.testing.assert_allclose(loaded.encode(TEXTS), expected, atol=1e-6)
