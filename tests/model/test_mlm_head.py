"""The masked-LM head as a function of states: the family's own, refused where there is none, saved where it is read."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer
from transformers import AutoModelForMaskedLM

import essent
from essent import Encoder, Recipe
from essent.encoder.pipeline.digests import digest_of
from essent.errors import EngineError, ModelError, RecipeError, UnsupportedRecipeError
from essent.model.loading import open_model, read_capabilities
from essent.model.mlm_head import MaskedLMHead, expected_rows, load_masked
from essent.selection.evaluation import evaluate
from essent.selection.run import search
from essent.selection.space import Grid, Space
from essent.tasks.examples import Pair
from essent.tasks.pairs import PairTask
from families import CORPUS, FAMILIES, MASKED, RELATIVE, WITHOUT_MASK
from samples import daily

TEXTS = [*CORPUS[:6], "dogs", ""]
PAIRS = PairTask("pairs", tuple(Pair(a, b, float(n)) for n, (a, b) in enumerate(pairwise(TEXTS))))


@pytest.mark.parametrize("family", MASKED)
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
    assert isinstance(whole.base_model, type(load_masked(str(folder_of(family))).base_model)), (
        "the model is not changed"
    )


def test_the_head_shares_its_output_matrix_with_the_word_embeddings(bert: Path) -> None:
    backbone = Encoder(str(bert), "prompt-topk").module.backbone
    assert backbone.mlm_head is not None
    assert backbone.mlm_head.model.get_output_embeddings().weight is backbone.static_table


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


def test_half_precision_runs(bert: Path) -> None:
    exact = Encoder(str(bert), "prompt-topk").encode(TEXTS)
    half = Encoder(str(bert), "prompt-topk", model_kwargs={"dtype": torch.bfloat16})
    assert half.module.backbone.static_table.dtype == torch.bfloat16
    vectors = half.encode(TEXTS, convert_to_tensor=True).float().numpy()
    cosines = (exact * vectors).sum(1) / np.linalg.norm(exact, axis=1) / np.linalg.norm(vectors, axis=1)
    assert cosines.min() > 0.99


# -- refusals ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
def test_configurations_tell_models_with_a_head(family: str, folder_of: Callable[[str], Path]) -> None:
    assert read_capabilities(str(folder_of(family)), {}).mlm_head == (family not in WITHOUT_MASK)


@pytest.fixture
def headless(bert: Path, tmp_path: Path) -> str:
    """The transformer alone, as sentence encoders are saved."""
    AutoModelForMaskedLM.from_pretrained(bert).base_model.save_pretrained(tmp_path / "headless")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(bert / name, tmp_path / "headless" / name)
    return str(tmp_path / "headless")


def test_a_model_saved_without_its_head_is_refused(headless: str, bert: Path) -> None:
    refused = "it has no masked-LM head: it was saved or loaded without one"
    with pytest.raises(UnsupportedRecipeError, match=refused):
        Encoder(headless, "prompt-topk")
    with pytest.raises(UnsupportedRecipeError, match=refused):
        Encoder(SentenceTransformer(str(bert), device="cpu"), "prompt-topk")
    with pytest.raises(ModelError, match="has no masked-LM head"):
        open_model(headless, {}, with_mlm_head=True)
    board = search(headless, PAIRS, Space((Grid(templates=("bert",), layers=("L", "topk:5"), weights=("mask",)),)))
    assert any("1 recipes of the space" in note for note in board.notes)
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


def test_a_model_without_masked_language_models_is_refused(folder_of: Callable[[str], Path]) -> None:
    with pytest.raises(ModelError, match="has no masked-LM head"):
        load_masked(str(folder_of("gpt2")))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("layers=topk:200", "needs weights=mask, not weights=uniform"),
        ("template=T0 layers=topk:200 weights=idf", "needs weights=mask, not weights=idf"),
        ("template=T0 layers=topk weights=mask", "needs the number of tokens: topk:200"),
        ("template=T0 layers=topk:0 weights=mask", "needs the number of tokens"),
        ("template=T0 layers=topk:-3 weights=mask", "needs the number of tokens"),
        ("template=T0 layers=topk:2.5 weights=mask", "needs the number of tokens"),
    ],
)
def test_malformed_recipes(text: str, reason: str) -> None:
    with pytest.raises(RecipeError, match=reason):
        Recipe.parse(text)


# -- wherever recipes run ----------------------------------------------------------------------------------------------


def test_evaluation_and_search_match_the_encoder(bert: Path, tmp_path: Path) -> None:
    texts = ["prompt-topk", "prompt-topk-denoised", "prompt", "template=bert layers=topk:9 weights=mask | zscore"]
    scores = {text: row[0].main_score for text, row in evaluate(str(bert), texts, [PAIRS]).items()}
    board = search(str(bert), PAIRS, Space(named=tuple(texts)), work=tmp_path / "work", baselines=("mean",))
    assert board.provenance["passes"] == 2
    for text in scores:
        assert board.find(text).scores["spearman"] == pytest.approx(scores[text], abs=1e-6)
        encoder = Encoder(str(bert), text).fit(PAIRS.texts())
        assert PAIRS.run(encoder).main_score == pytest.approx(scores[text], abs=1e-6)
    again = search(str(bert), PAIRS, Space(named=tuple(texts)), work=tmp_path / "work", baselines=("mean",))
    assert again.provenance["encoded"] == 0


def test_cached_vectors_depend_on_the_head(bert: Path) -> None:
    backbone = Encoder(str(bert), "prompt-topk").module.backbone
    before = digest_of(backbone)
    assert backbone.mlm_head is not None
    with torch.no_grad():
        backbone.mlm_head.model.cls.predictions.bias.add_(0.1)
    assert digest_of(backbone) != before


@pytest.mark.parametrize("family", daily(MASKED, "bert", "distilbert", "modernbert", "xlm-roberta"))
def test_the_head_is_saved_with_the_folder(family: str, folder_of: Callable[[str], Path], tmp_path: Path) -> None:
    name = "prompt-topk" if family in RELATIVE else "prompt-topk-denoised"
    encoder = Encoder(str(folder_of(family)), f"{name} | zscore").fit(TEXTS)
    expected = encoder.encode(TEXTS)
    encoder.save(str(tmp_path), create_model_card=False)
    assert json.loads((tmp_path / "config.json").read_text())["architectures"][0].endswith("ForMaskedLM")
    loaded = Encoder(str(tmp_path))
    np.testing.assert_allclose(loaded.encode(TEXTS), expected, atol=1e-6)
    report = essent.verify(str(tmp_path))
    assert not report.portable
    assert report.reason == f"layers={encoder.recipe.layers[0][0]} runs the model's masked-LM head"


def test_only_recipes_reading_the_head_save_it(bert: Path, tmp_path: Path) -> None:
    shell = open_model(str(bert), {}, with_mlm_head=True)
    Encoder(shell, "prompt-denoised").save(str(tmp_path), create_model_card=False)
    assert not any(name.startswith("cls.") for name in load_file(tmp_path / "model.safetensors"))


def test_the_head_has_no_graph(bert: Path) -> None:
    with pytest.raises(EngineError, match=r"layers=topk:200 runs the masked-LM head at the masks alone"):
        essent.compile(Encoder(str(bert), "prompt-topk"), "onnx")


def test_gradients_reach_the_transformer_and_the_head(bert: Path) -> None:
    encoder = Encoder(str(bert), "prompt-topk").train()
    vectors = encoder(encoder.preprocess(TEXTS[:2]))["sentence_embedding"]
    vectors.sum().backward()
    head, model = encoder.module.backbone.mlm_head, encoder.module.backbone.model
    assert head is not None
    assert head.model.cls.predictions.transform.dense.weight.grad.abs().sum() > 0
    assert model.encoder.layer[0].attention.self.query.weight.grad.abs().sum() > 0
