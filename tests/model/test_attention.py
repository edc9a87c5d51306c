"""Attention of short texts equals transformers' sdpa; value vectors and attention outputs equal hooks in float64."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from torch import nn
from transformers import PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward

import essent
from essent import Encoder
from essent.errors import UnsupportedRecipeError
from essent.model import attention
from essent.model.attention import SHORT, SHORT_ATTENTION, AttentionRecorder, recorder_in_use
from essent.recipe.layers import resolve
from essent.selection.space import Grid, Space
from families import Folders
from reference import Reference
from samples import TEXTS, daily
from selection_samples import TASK

LONG = " ".join(["two dogs run along the river"] * 20)


def attention_inputs(length: int, heads: int = 3) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Query, key and value (B,H,T,d) of two texts, the second one shorter, and their mask (B,1,T,T)."""
    generator = torch.Generator().manual_seed(length)
    query, key, value = torch.randn(3, 2, heads, length, 8, generator=generator)
    mask = torch.ones(2, 1, length, length, dtype=torch.bool)
    mask[1, :, :, length // 2 + 1 :] = False
    return query, key, value, mask


def recorded(
    heads: list[int], tensors: list[torch.Tensor], mask: torch.Tensor, **options: float
) -> tuple[torch.Tensor, dict[tuple[int, int], torch.Tensor]]:
    """What attention gives, and the diagonals that it notes of some heads of the first layer."""
    padding = torch.zeros(mask.shape[0], mask.shape[-1], dtype=torch.bool)
    recorder = AttentionRecorder(frozenset((1, head) for head in heads), padding)
    restore = recorder_in_use.set(recorder)
    try:
        with torch.inference_mode():
            return attention.diagonal_attention(nn.Identity(), *tensors, mask, **options)[0], recorder.diagonals
    finally:
        recorder_in_use.reset(restore)


@pytest.mark.parametrize(
    ("length", "heads"), [(1, [2]), (9, []), (SHORT, [1, 2, 3]), (SHORT + 1, [2]), (2 * SHORT + 1, [1, 2, 3])]
)
def test_it_is_sdpa_and_notes_the_diagonal(length: int, heads: list[int]) -> None:
    query, key, value, mask = attention_inputs(length)
    output, diagonals = recorded(heads, [query, key, value], mask, scaling=0.3)
    same, _ = sdpa_attention_forward(nn.Identity(), query, key, value, mask, scaling=0.3)
    torch.testing.assert_close(output, same, atol=1e-5, rtol=0)
    scores = (query.double() @ key.double().transpose(2, 3) * 0.3).masked_fill(~mask, -torch.inf)
    exact = scores.softmax(-1).diagonal(dim1=2, dim2=3)
    assert sorted(diagonals) == [(1, head) for head in heads]
    for head in heads:
        torch.testing.assert_close(diagonals[1, head].double(), exact[:, head - 1], atol=1e-5, rtol=0)


@pytest.mark.parametrize("mask_kind", ["none", "causal", "bias", "float", "left"])
def test_masks_and_biases_of_all_kinds(mask_kind: str) -> None:
    query, key, value, mask = attention_inputs(7)
    bias = torch.randn(1, 3, 7, 7, generator=torch.Generator().manual_seed(0))
    added = torch.zeros(2, 1, 7, 7).masked_fill(~mask, torch.finfo(torch.float32).min)
    options = {
        "none": {"attention_mask": None, "is_causal": False},
        "causal": {"attention_mask": None, "is_causal": True},
        "left": {"attention_mask": mask.flip(-1)},
        "bias": {"attention_mask": mask, "position_bias": bias},
        "float": {"attention_mask": added},
    }[mask_kind]
    with torch.inference_mode():
        output, _ = attention.attention(nn.Identity(), query, key, value, **options)
    same, _ = sdpa_attention_forward(nn.Identity(), query, key, value, **options)
    torch.testing.assert_close(output, same, atol=1e-5, rtol=0)


def test_training_uses_sdpa(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gradients and dropout are sdpa's."""
    monkeypatch.setattr(attention, "_probabilities", None)
    query, key, value, mask = attention_inputs(7)
    output, _ = attention.attention(nn.Identity(), query.requires_grad_(), key, value, mask)
    output.sum().backward()
    assert query.grad is not None
    with torch.no_grad():
        attention.attention(nn.Identity(), query, key, value, mask, dropout=0.5)
        with pytest.raises(TypeError):
            attention.attention(nn.Identity(), query, key, value, mask)
    monkeypatch.undo()  # and what sdpa refuses (the oldest one nothing) is refused for texts of any length
    refuses = "softcap" in inspect.getsource(sdpa_attention_forward)
    with torch.inference_mode(), pytest.raises(ValueError, match="softcap") if refuses else nullcontext():
        attention.attention(nn.Identity(), query, key, value, mask, softcap=50.0)


def test_fully_masked_rows_are_zero() -> None:
    query, key, _, mask = attention_inputs(7)
    mask[1, :, 3] = False
    for mask_form in (mask, torch.zeros(2, 1, 7, 7).masked_fill(~mask, -torch.inf)):
        output = attention.probabilities(query, key, mask_form)
        assert bool((output[1, :, 3] == 0).all())
        torch.testing.assert_close(output.sum(-1)[0], torch.ones(3, 7))


def test_diagonals_of_half_precision_are_float32() -> None:
    *tensors, mask = attention_inputs(7)
    halves = [tensor.bfloat16() for tensor in tensors]
    output, diagonals = recorded([1, 2, 3], halves, mask)
    assert output.dtype == torch.bfloat16
    exact = attention.probabilities(halves[0].float(), halves[1].float(), mask).diagonal(dim1=2, dim2=3)
    for head in (1, 2, 3):
        torch.testing.assert_close(diagonals[1, head], exact[:, head - 1])


def test_a_plain_pass_is_a_single_graph() -> None:
    query, key, value, mask = attention_inputs(7)
    compiled = torch.compile(attention.attention, backend="eager", fullgraph=True)
    output, _ = compiled(nn.Identity(), query, key, value, mask)
    torch.testing.assert_close(output, sdpa_attention_forward(nn.Identity(), query, key, value, mask)[0])


@pytest.mark.parametrize(("family", "used"), [("bert", True), ("llama", False), ("mpnet", False)])
def test_families_using_the_interface(family: str, used: bool, folder_of: Callable[[str], Path]) -> None:
    """An encoder's in every pass, a decoder's where a head is read; texts of all lengths are as they were."""
    stock = SentenceTransformer(str(folder_of(family)), device="cpu")
    texts = ["a man", "two dogs run along the river", LONG, ""]
    stock.tokenizer.pad_token = stock.tokenizer.pad_token or stock.tokenizer.eos_token
    vectors = stock.encode(texts)
    encoder = Encoder(str(folder_of(family)), "mean", device="cpu")
    np.testing.assert_allclose(encoder.encode(texts), vectors, atol=1e-5)
    config = encoder.module.backbone.model.config
    assert (config._attn_implementation == SHORT_ATTENTION) == used


# -- value vectors and attention outputs ------------------------------------------------------------------------------

References = Callable[[str], Reference]
FAMILIES = ("bert", "gpt2", "llama", "gemma3_text", "distilbert", "albert", "t5", "modernbert")
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


def plain_states(model: PreTrainedModel, family: str, ids: list[int]) -> dict[tuple[int, str], np.ndarray]:
    """States (T,·) of one text by layer and kind: hooks on the modules, eager attention, float64."""
    calls: dict[str, list[np.ndarray]] = {"value": [], "attention": [], "attention-out": []}
    value_path, output_path = MODULES[family]
    handles = []

    def note_value(module: torch.nn.Module, inputs: tuple[torch.Tensor, ...], output: torch.Tensor) -> None:
        fused = family in ("gpt2", "modernbert")
        calls["value"].append((output.chunk(3, dim=-1)[2] if fused else output)[0].numpy())

    def note_output(module: torch.nn.Module, inputs: tuple[torch.Tensor, ...], output: torch.Tensor) -> None:
        calls["attention"].append(inputs[0][0].numpy())
        calls["attention-out"].append(output[0].numpy())

    for layer in range(1 if family == "albert" else 3):
        handles.append(model.get_submodule(value_path.format(layer)).register_forward_hook(note_value))
        handles.append(model.get_submodule(output_path.format(layer)).register_forward_hook(note_output))
    with torch.no_grad():
        model(input_ids=torch.tensor([ids]))
    for handle in handles:
        handle.remove()
    return {(layer + 1, kind): states for kind, rows in calls.items() for layer, states in enumerate(rows)}


def assert_same(actual: np.ndarray, expected: np.ndarray) -> None:
    np.testing.assert_allclose(actual, expected, atol=1e-5 * max(1.0, np.abs(expected).max()))


@pytest.mark.parametrize("family", daily(FAMILIES, "bert", "gpt2", "llama"))
def test_states_equal_a_plain_script(family: str, folder_of: Folders, reference_of: References) -> None:
    """Mean over the tokens, alone, in a batch, and padded on the left."""
    folder, model = folder_of(family), reference_of(family).model
    for source in SOURCES:
        encoder = Encoder(str(folder), f"layers={source}", device="cpu")
        key = resolve(source, 3).key
        plain = [plain_states(model, family, ids or [0])[key].mean(axis=0) for ids in encoder.module.ids(TEXTS)]
        nonempty_rows = [row for row, ids in enumerate(encoder.module.ids(TEXTS)) if ids]
        expected = np.stack(plain)[nonempty_rows]
        texts = [TEXTS[row] for row in nonempty_rows]
        assert_same(encoder.encode(texts), expected)
        assert_same(np.stack([encoder.encode(text) for text in texts]), expected)
        features = encoder.module.pad(encoder.module.ids(texts), "left")
        with torch.inference_mode():
            assert_same(encoder.module(features)["sentence_embedding"].numpy(), expected)
        assert encoder.get_embedding_dimension() == expected.shape[1]


def test_grouped_values_occur_once(folder_of: Folders) -> None:
    encoder = Encoder(str(folder_of("llama")), "layers=value:2", device="cpu")
    assert encoder.get_embedding_dimension() == 16  # 2 kv heads of 8 dimensions, shared by 4 heads
    with pytest.raises(UnsupportedRecipeError, match="value:2 has 16, attention:2 has 32"):
        Encoder(str(folder_of("llama")), "layers=value:2+attention:2", device="cpu")


@pytest.mark.parametrize("family", ["bert", "llama"])
def test_mixes_weights_and_templates(family: str, folder_of: Folders, reference_of: References) -> None:
    """Layers and attention in one mix; with a template, the prefix cache is not used."""
    folder, model = folder_of(family), reference_of(family).model
    recipe = "template=about layers=0.5*attention:L-out+2*attention:1-out+-1*L weights=last"
    encoder = Encoder(str(folder), recipe, device="cpu")
    for text, vector in zip(TEXTS, encoder.encode(TEXTS), strict=True):
        ids = encoder.module.ids([text])[0]
        states = plain_states(model, family, ids)
        with torch.no_grad():
            last = model(input_ids=torch.tensor([ids])).last_hidden_state[0].numpy()
        mixed = 0.5 * states[3, "attention-out"] + 2 * states[1, "attention-out"] - last
        assert_same(vector, mixed[-1])


def test_training_reaches_the_weights(bert: Path) -> None:
    encoder = Encoder(str(bert), "layers=attention:1-out", device="cpu")
    features = encoder.module.preprocess(TEXTS[:2])
    encoder.module(features)["sentence_embedding"].sum().backward()
    block = encoder.module.backbone.model.encoder.layer[0].attention
    assert block.output.dense.weight.grad.abs().sum() > 0
    assert block.self.value.weight.grad.abs().sum() > 0


def test_saved_folders_load_in_sentence_transformers(bert: Path, tmp_path: Path) -> None:
    encoder = Encoder(str(bert), "layers=0.5*attention:2-out+0.5*1 weights=ditto:1-2 | centre", device="cpu").fit(TEXTS)
    expected = encoder.encode(TEXTS)
    encoder.save(str(tmp_path / "saved"))
    assert_same(Encoder(str(tmp_path / "saved"), device="cpu").encode(TEXTS), expected)
    stock = SentenceTransformer(str(tmp_path / "saved"), device="cpu", trust_remote_code=True)
    assert_same(stock.encode(TEXTS), expected)


# -- bad input ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("family", "recipe", "message"),
    [
        *(("bert", f"layers={source}", "k of 1 to 3") for source in ("value:0", "attention:4", "attention:L-3-out")),
        ("mpnet", "layers=value:1", "transformers' mpnet has no attention interface"),
        ("deberta-v2", "layers=value:1", "transformers' deberta-v2 has no attention interface"),
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


def test_hybrids_have_no_heads(folder_of: Folders, monkeypatch: pytest.MonkeyPatch) -> None:
    """Skipped by spaces; a family whose `layer_types` are unknown is refused in its pass."""
    space = Space((Grid(weights=("uniform", "ditto:*")),))
    board = essent.search(str(folder_of("lfm2")), TASK, space, baselines=["mean"], device="cpu")
    assert [str(trial.recipe) for trial in board.trials] == ["mean"]
    monkeypatch.setattr("essent.model.capabilities.NO_ATTENTION", frozenset())
    with pytest.raises(UnsupportedRecipeError, match="3 layers of this model call attention 1 times"):
        Encoder(str(folder_of("lfm2")), "layers=value:3", device="cpu")
