"""States of the whole model, from as little of it as the recipe reads; the masked-LM head as a function of states."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from transformers import AutoModel, AutoTokenizer

from essent.encoder.encoder import Encoder
from essent.errors import ModelError, UnsupportedRecipeError
from essent.model.loading import open_model
from essent.model.mlm_head import MaskedLMHead, load_masked
from essent.recipe.named import TEMPLATES
from essent.recipe.recipe import Recipe
from families import FAMILIES, MASKED, RELATIVE, Folders
from reference import References
from samples import TEXTS, daily


@pytest.mark.parametrize("family", daily(FAMILIES, "bert", "albert", "deberta-v2", "modernbert", "t5", "gpt2", "llama"))
def test_layers_match_the_whole_model(family: str, folder_of: Folders, reference_of: References) -> None:
    """Of encoders that share a model and of each from its folder, loaded no deeper than it reads."""
    shell, reference = SentenceTransformer(str(folder_of(family)), device="cpu"), reference_of(family)
    sentences = [reference.sentence(text, None) for text in TEXTS]
    recipes = ["layers=1+2", "ditto:2-2", "layers=0+1+2+L", "layers=2", "layers=0", "mean", "static", "random"]
    sharing = [Encoder(shell, recipe) for recipe in recipes]
    for encoder in [*sharing, *sharing, *(Encoder(folder_of(family), recipe) for recipe in recipes)]:
        expected = np.array([reference.vector(sentence, encoder.recipe) for sentence in sentences])
        np.testing.assert_allclose(encoder.encode(TEXTS), expected, atol=1e-5 * max(1.0, np.abs(expected).max()))


@pytest.mark.parametrize("family", daily(FAMILIES, "bert", "llama"))
def test_the_callers_model_is_unchanged(family: str, folder_of: Folders) -> None:
    shell = SentenceTransformer(str(folder_of(family)), device="cpu", model_kwargs={"attn_implementation": "eager"})
    model = shell[0].model

    def everything() -> tuple[torch.Tensor, ...]:
        features = shell.tokenizer(["a man is playing"], return_tensors="pt", return_token_type_ids=False)
        with torch.no_grad():
            return model(**features, output_hidden_states=True, output_attentions=True).to_tuple()

    settings, before = model.config.to_dict(), everything()
    for recipe in ("ditto:2-3", "layers=0+1", "static", "mean"):
        Encoder(shell, recipe).encode(TEXTS)
    assert model.config.to_dict() == settings
    assert model.config._attn_implementation == "eager"
    torch.testing.assert_close(everything(), before)


# -- the masked-LM head -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", daily(MASKED, "bert", "distilbert", "deberta-v2", "modernbert"))
def test_the_head_predicts_as_the_masked_language_model(family: str, folder_of: Folders) -> None:
    whole = load_masked(str(folder_of(family)))
    with torch.inference_mode():
        output = whole(input_ids=torch.tensor([[5, 6, 7, 8, 9, 10]]), output_hidden_states=True)
        probabilities, tokens = MaskedLMHead(whole).most_probable(output.hidden_states[-1][0], 7)
    expected = output.logits[0].double().softmax(dim=-1).topk(7)
    torch.testing.assert_close(probabilities.double(), expected.values, atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(tokens, expected.indices)


def test_top_k_beyond_the_vocabulary_is_the_whole_vocabulary(bert: Path, reference_of: References) -> None:
    reference, recipe = reference_of("bert"), Recipe.parse("template=bert layers=topk:100000 weights=mask")
    sentences = [reference.sentence(text, TEMPLATES["bert"]) for text in TEXTS]
    expected = [reference.vector(sentence, recipe) for sentence in sentences]
    np.testing.assert_allclose(Encoder(bert, recipe).encode(TEXTS), expected, atol=1e-5)


# -- refusals ----------------------------------------------------------------------------------------------------------


def test_a_model_saved_without_its_head_is_refused(bert: Path, folder_of: Folders, tmp_path: Path) -> None:
    """The transformer alone, as sentence encoders are saved."""
    for part in (AutoModel.from_pretrained(bert), AutoTokenizer.from_pretrained(bert)):
        part.save_pretrained(tmp_path)
    refused = "it has no masked-LM head: it was saved or loaded without one"
    with pytest.raises(UnsupportedRecipeError, match=refused):
        Encoder(tmp_path, "prompt-topk")
    with pytest.raises(UnsupportedRecipeError, match=refused):
        Encoder(SentenceTransformer(str(bert), device="cpu"), "prompt-topk")
    for source in (tmp_path, folder_of("gpt2")):
        with pytest.raises(ModelError, match="has no masked-LM head"):
            open_model(source, {}, with_mlm_head=True)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(UnsupportedRecipeError, match=refused):
        Encoder(tmp_path, "prompt-topk")


# -- wherever recipes run ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", daily(MASKED, "modernbert"))
def test_the_head_is_saved_with_the_folder(family: str, folder_of: Folders, tmp_path: Path) -> None:
    name = "prompt-topk" if family in RELATIVE else "prompt-topk-denoised"
    encoder = Encoder(str(folder_of(family)), f"{name} | zscore").fit(TEXTS)
    expected = encoder.encode(TEXTS)
    encoder.save(str(tmp_path), create_model_card=False)
    assert json.loads((tmp_path / "config.json").read_text())["architectures"][0].endswith("ForMaskedLM")
    np.testing.assert_allclose(Encoder(tmp_path).encode(TEXTS), expected, atol=1e-6)
