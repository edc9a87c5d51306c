"""Attention of short texts by whole matrices: the same as transformers' sdpa, and only where nothing learns."""

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
from transformers.integrations.sdpa_attention import sdpa_attention_forward

import essent
from essent import Encoder
from essent.errors import UnsupportedRecipeError
from essent.model import attention
from essent.model.attention import SHORT, SHORT_ATTENTION, AttentionRecorder, recorder_in_use
from essent.selection.space import Grid, Space
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


def test_hybrids_have_no_heads(folder_of: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """Refused before the weights are read, skipped by spaces; without known `layer_types` refused in the pass."""
    folder = str(folder_of("lfm2"))
    space = Space((Grid(weights=("uniform", "ditto:*")),))
    board = essent.search(folder, TASK, space, baselines=["mean"], device="cpu")
    assert [str(trial.recipe) for trial in board.trials] == ["mean"]
    with monkeypatch.context() as patch:
        patch.setattr("essent.model.capabilities.NO_ATTENTION", frozenset())
        with pytest.raises(UnsupportedRecipeError, match=r"layers of this model call attention \d times"):
            Encoder(folder, "ditto:2-1", device="cpu").encode(["a man"])
    monkeypatch.setattr("essent.model.loading._open", None)
    with pytest.raises(UnsupportedRecipeError, match="some layers of this model have no attention"):
        Encoder(folder, "ditto:2-1", device="cpu")
