"""Attention of texts of all lengths equals a float64 reference; value vectors and attention outputs equal hooks."""

import copy
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from torch import nn
from transformers.integrations.sdpa_attention import sdpa_attention_forward

import essent
from essent import Encoder
from essent.errors import UnsupportedRecipeError
from essent.model import attention
from essent.model.attention import SHORT, SHORT_ATTENTION
from essent.recipe.layers import resolve
from essent.selection.space import Grid, Space
from families import Folders
from reference import Reference, References
from samples import TEXTS, daily
from selection_samples import TASK


@pytest.mark.parametrize(("family", "used"), [("bert", True), ("llama", False), ("mpnet", False)])
def test_texts_of_all_lengths(family: str, used: bool, folder_of: Folders, reference_of: References) -> None:
    """An encoder uses the interface in every pass, a decoder where heads are read: one head, or all of a layer."""
    texts = ["the" + " the" * (tokens - 3) for tokens in (3, 9, SHORT, SHORT + 1, 2 * SHORT, 2 * SHORT + 1)]
    for recipe in ("mean", "ditto:2-3", "weights=ditto:1-1*ditto:1-2*ditto:1-3*ditto:1-4"):
        encoder, reference = Encoder(folder_of(family), recipe, device="cpu"), reference_of(family)
        expected = np.array([reference.vector(reference.sentence(text, None), encoder.recipe) for text in texts])
        scale = np.abs(expected).max(axis=1, keepdims=True)
        for vectors in (encoder.encode(texts), np.stack([encoder.encode(text) for text in texts])):
            np.testing.assert_allclose(vectors / scale, expected / scale, atol=1e-5)
        if recipe == "mean":
            config = encoder.module.backbone.model.config
            assert (config._attn_implementation == SHORT_ATTENTION) == used


def attention_inputs() -> tuple[torch.Tensor, ...]:
    """Query, key and value (B,H,T,d) of two texts, the second one shorter, and their mask (B,1,T,T)."""
    query, key, value = torch.randn(3, 2, 3, 7, 8, generator=torch.Generator().manual_seed(7))
    mask = torch.ones(2, 1, 7, 7, dtype=torch.bool)
    mask[1, :, :, 4:] = False
    return query, key, value, mask


def test_masks_of_numbers_are_added() -> None:
    query, key, value, mask = attention_inputs()
    numbers = torch.zeros(2, 1, 7, 7).masked_fill(~mask, torch.finfo(torch.float32).min)
    with torch.inference_mode():
        output, _ = attention.attention(nn.Identity(), query, key, value, numbers)
    same, _ = sdpa_attention_forward(nn.Identity(), query, key, value, numbers)
    torch.testing.assert_close(output, same, atol=1e-5, rtol=0)


def test_sdpa_runs_what_needs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gradients, dropout and capped scores are sdpa's."""
    monkeypatch.setattr(attention, "_probabilities", None)
    query, key, value, mask = attention_inputs()
    output, _ = attention.attention(nn.Identity(), query.requires_grad_(), key, value, mask)
    output.sum().backward()
    assert query.grad is not None
    with torch.no_grad():
        attention.attention(nn.Identity(), query, key, value, mask, dropout=0.5)
        with suppress(ValueError):  # recent versions of sdpa refuse it
            attention.attention(nn.Identity(), query, key, value, mask, softcap=50.0)
        with pytest.raises(TypeError):
            attention.attention(nn.Identity(), query, key, value, mask)


def test_fully_masked_rows_are_zero() -> None:
    query, key, value, mask = attention_inputs()
    mask[1, :, 3] = False
    for mask_form in (mask, torch.zeros(2, 1, 7, 7).masked_fill(~mask, -torch.inf)):
        with torch.inference_mode():
            output, _ = attention.attention(nn.Identity(), query, key, value, mask_form)  # (B,T,heads,d)
        assert not output[1, 3].any()
        assert output[0].all()


def test_probabilities_of_half_precision_are_float32() -> None:
    query, key, _, mask = attention_inputs()
    query, key = query.bfloat16(), key.bfloat16()
    exact = attention.probabilities(query.float(), key.float(), mask)
    torch.testing.assert_close(attention.probabilities(query, key, mask), exact)


def test_a_plain_pass_is_a_single_graph() -> None:
    query, key, value, mask = attention_inputs()
    compiled = torch.compile(attention.attention, backend="eager", fullgraph=True)
    output, _ = compiled(nn.Identity(), query, key, value, mask)
    torch.testing.assert_close(output, sdpa_attention_forward(nn.Identity(), query, key, value, mask)[0])


# -- value vectors and attention outputs ------------------------------------------------------------------------------

MODULES = {  # family -> paths of the value projection and W_O in the layer's attention
    "bert": ("encoder.layer.{}.attention.self.value", "encoder.layer.{}.attention.output.dense"),
    "gpt2": ("h.{}.attn.c_attn", "h.{}.attn.c_proj"),
    "llama": ("layers.{}.self_attn.v_proj", "layers.{}.self_attn.o_proj"),
    "gemma3_text": ("layers.{}.self_attn.v_proj", "layers.{}.self_attn.o_proj"),
    "distilbert": ("transformer.layer.{}.attention.v_lin", "transformer.layer.{}.attention.out_lin"),
    "t5": ("encoder.block.{}.layer.0.SelfAttention.v", "encoder.block.{}.layer.0.SelfAttention.o"),
    "modernbert": ("layers.{}.attn.Wqkv", "layers.{}.attn.Wo"),
    "albert": (
        "encoder.albert_layer_groups.0.albert_layers.0.attention.value",
        "encoder.albert_layer_groups.0.albert_layers.0.attention.dense",
    ),
}
SOURCES = ("value:1", "value:L", "attention:2", "attention:L-out", "attention:L-1-out")


def plain_states(reference: Reference, ids: list[int]) -> dict[tuple[int, str], np.ndarray]:
    """States (T,·) of one text by layer and kind: hooks on the modules, eager attention, float64."""
    calls: dict[str, list[np.ndarray]] = {"value": [], "attention": [], "attention-out": []}
    model, (value_path, output_path) = copy.deepcopy(reference.model), MODULES[reference.family]

    def note_value(module: torch.nn.Module, inputs: tuple[torch.Tensor, ...], output: torch.Tensor) -> None:
        fused = reference.family in ("gpt2", "modernbert")
        calls["value"].append((output.chunk(3, dim=-1)[2] if fused else output)[0].numpy())

    def note_output(module: torch.nn.Module, inputs: tuple[torch.Tensor, ...], output: torch.Tensor) -> None:
        calls["attention"].append(inputs[0][0].numpy())
        calls["attention-out"].append(output[0].numpy())

    for layer in range(1 if reference.family == "albert" else 3):
        model.get_submodule(value_path.format(layer)).register_forward_hook(note_value)
        model.get_submodule(output_path.format(layer)).register_forward_hook(note_output)
    with torch.no_grad():
        model(input_ids=torch.tensor([ids]))
    return {(layer + 1, kind): states for kind, rows in calls.items() for layer, states in enumerate(rows)}


def assert_same(actual: np.ndarray, expected: np.ndarray) -> None:
    np.testing.assert_allclose(actual, expected, atol=1e-5 * max(1.0, np.abs(expected).max()))


@pytest.mark.parametrize("family", daily(MODULES, "bert", "gpt2", "llama"))
def test_states_equal_a_plain_script(family: str, folder_of: Folders, reference_of: References) -> None:
    """Mean over the tokens, alone, in a batch, and padded on the left."""
    texts = [text for text in TEXTS if text]
    for source in SOURCES:
        encoder = Encoder(str(folder_of(family)), f"layers={source}", device="cpu")
        ids, key = encoder.module.ids(texts), resolve(source, 3).key
        expected = np.stack([plain_states(reference_of(family), own)[key].mean(axis=0) for own in ids])
        assert_same(encoder.encode(texts), expected)
        assert_same(np.stack([encoder.encode(text) for text in texts]), expected)
        with torch.inference_mode():
            assert_same(encoder.module(encoder.module.pad(ids, "left"))["sentence_embedding"].numpy(), expected)
        assert encoder.get_embedding_dimension() == expected.shape[1]


@pytest.mark.parametrize("family", ["bert", "llama"])
def test_mixes_weights_and_templates(family: str, folder_of: Folders, reference_of: References, tmp_path: Path) -> None:
    """Layers and attention in one mix, also saved; with a template, the prefix cache is not used."""
    recipe = "template=about layers=0.5*attention:L-out+2*attention:1-out+-1*L weights=last"
    encoder = Encoder(str(folder_of(family)), recipe, device="cpu")
    vectors = encoder.encode(TEXTS)
    for ids, vector in zip(encoder.module.ids(TEXTS), vectors, strict=True):
        states, layers = plain_states(reference_of(family), ids), reference_of(family).run(ids)[0]
        mixed = 0.5 * states[3, "attention-out"] + 2 * states[1, "attention-out"] - layers[-1]
        assert_same(vector, mixed[-1])
    encoder.save(str(tmp_path))
    for loaded in (Encoder(tmp_path, device="cpu"), SentenceTransformer(str(tmp_path), trust_remote_code=True)):
        assert_same(loaded.encode(TEXTS), vectors)


def test_training_reaches_the_weights(bert: Path) -> None:
    encoder = Encoder(str(bert), "layers=attention:1-out", device="cpu")
    encoder(encoder.preprocess(TEXTS[:2]))["sentence_embedding"].sum().backward()
    block = encoder.module.backbone.model.encoder.layer[0].attention
    assert block.output.dense.weight.grad.abs().sum() > 0
    assert block.self.value.weight.grad.abs().sum() > 0


# -- bad input ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("family", "recipe", "message"),
    [
        *(("bert", f"layers={source}", "k of 1 to 3") for source in ("value:0", "attention:4", "attention:L-3-out")),
        ("mpnet", "layers=value:1", "transformers' mpnet has no attention interface"),
        ("lfm2", "layers=value:3", "some layers of this model have no attention"),
        ("lfm2", "ditto:2-1", "some layers of this model have no attention"),
    ],
)
def test_refused_before_the_weights_are_read(
    family: str, recipe: str, message: str, folder_of: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = str(folder_of(family))
    monkeypatch.setattr("essent.model.loading._open", None)
    with pytest.raises(UnsupportedRecipeError, match=message):
        Encoder(folder, recipe, device="cpu")


def test_grouped_values_have_another_width(folder_of: Folders) -> None:
    with pytest.raises(UnsupportedRecipeError, match="value:2 has 16, attention:2 has 32"):
        Encoder(str(folder_of("llama")), "layers=value:2+attention:2", device="cpu")


def test_hybrids_have_no_heads(folder_of: Folders, monkeypatch: pytest.MonkeyPatch) -> None:
    """Skipped by spaces; a family whose `layer_types` are unknown is refused in its pass."""
    space = Space((Grid(weights=("uniform", "ditto:*")),))
    board = essent.search(str(folder_of("lfm2")), TASK, space, baselines=["mean"], device="cpu")
    assert [str(trial.recipe) for trial in board.trials] == ["mean"]
    monkeypatch.setattr("essent.model.capabilities.NO_ATTENTION", frozenset())
    with pytest.raises(UnsupportedRecipeError, match="3 layers of this model call attention 1 times"):
        Encoder(str(folder_of("lfm2")), "layers=value:3", device="cpu")
