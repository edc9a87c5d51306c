"""Dropout on a CPU against the equation: x · mask / (1 - p), with masks that are drawn quickly; memory that stays."""

import contextlib
import ctypes
import math
import platform
import resource
from pathlib import Path

import pytest
import torch
from torch.nn import functional
from training_helpers import SMALL, TEXTS
from transformers import AutoModel

from essent.errors import InputError
from essent.training import device as devices
from essent.training.device import (
    STEPS,
    QuickDropout,
    find_device,
    keep_mask,
    on_device,
    quick_dropout,
    retained_memory,
)
from essent.training.run import train

P = 0.1
KEEP_SHARE = 1 - round(P * STEPS) / STEPS


@pytest.mark.parametrize("p", [0.001, 0.1, 0.9])
def test_mask_share_and_independence(p: float) -> None:
    torch.manual_seed(0)
    mask = keep_mask((1_000_003,), p).double()
    allowed = 5 * math.sqrt(p * (1 - p) / len(mask))
    assert abs(mask.mean() - (1 - p)) < allowed
    for apart in (1, 2, 3, 4):  # four elements come from one random number
        both = (mask[:-apart] * mask[apart:]).mean()
        assert abs(both - (1 - p) ** 2) < 3 * allowed


def test_values_and_gradients_of_dropout() -> None:
    inputs = torch.randn(7, 5, 3, requires_grad=True)
    torch.manual_seed(1)
    mask = keep_mask(inputs.shape, P)
    torch.manual_seed(1)
    with QuickDropout():
        dropped = torch.nn.Dropout(P)(inputs)
        dropped.sum().backward()
    assert 0 < mask.sum() < mask.numel()
    torch.testing.assert_close(dropped, inputs * mask / KEEP_SHARE)
    torch.testing.assert_close(inputs.grad, mask / KEEP_SHARE)


@pytest.mark.parametrize(("kind", "causal"), [(None, True), (torch.bool, False), (torch.float32, False)])
def test_attention_against_the_equation(kind: torch.dtype | None, causal: bool) -> None:
    torch.manual_seed(2)
    query, key, value = (torch.randn(2, 3, 6, 8, requires_grad=True) for _ in range(3))
    visible = torch.ones(2, 1, 6, 6, dtype=torch.bool)
    if kind is not None:
        visible[1, ..., 4:] = False
        visible[0, :, 2] = False  # a row that attends to nothing is 0
    mask = visible if kind is torch.bool else torch.zeros(visible.shape).masked_fill(~visible, -torch.inf)
    torch.manual_seed(3)
    dropout_mask = keep_mask((2, 3, 6, 6), P)
    torch.manual_seed(3)
    with QuickDropout():
        attended = functional.scaled_dot_product_attention(
            query, key, value, None if kind is None else mask, dropout_p=P, is_causal=causal
        )
    visible = visible & (torch.ones(6, 6).tril().bool() | (not causal))
    scores = (query.double() @ key.double().mT / math.sqrt(8)).masked_fill(~visible, -torch.inf)
    expected = (scores.softmax(-1).nan_to_num(0.0) * dropout_mask / KEEP_SHARE) @ value.double()
    torch.testing.assert_close(attended.double(), expected, atol=1e-6, rtol=1e-5)


def test_dropout_falls_back_to_torch() -> None:
    inputs = torch.randn(4, 4)
    with QuickDropout():
        assert functional.dropout(inputs, P, training=False) is inputs
        assert torch.equal(functional.dropout(inputs, 1.0), torch.zeros(4, 4))
        with pytest.raises(ValueError, match="between 0 and 1"):
            functional.dropout(inputs, 1.5)
        assert functional.dropout(inputs, 1e-6).shape == inputs.shape  # finer than the steps of the masks
    plain = torch.nn.Linear(2, 2)
    assert not isinstance(quick_dropout("cuda", plain), QuickDropout)
    assert isinstance(quick_dropout("cpu", plain), QuickDropout)


def test_gradients_with_checkpointing(bert: Path) -> None:
    """What is computed again in the backward pass must have the masks of the forward pass."""
    model = AutoModel.from_pretrained(bert).train()
    ids = torch.randint(5, 40, (2, 9))
    enable = getattr(model, "activation_checkpointing_enable", None) or model.gradient_checkpointing_enable
    enable({"use_reentrant": False})
    plain = AutoModel.from_pretrained(bert).train()
    with quick_dropout("cpu", model) as mode:
        assert not isinstance(mode, QuickDropout)
        for twin in (model, plain):
            torch.manual_seed(0)
            twin(ids).last_hidden_state.square().sum().backward()
    for weight, plain_weight in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(weight.grad, plain_weight.grad)


@pytest.mark.slow
def test_training_draws_no_slow_masks(bert: Path, tmp_path: Path) -> None:
    """The trainer of contrastive training uses them."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        train(str(bert), TEXTS, "simcse-unsup", output=tmp_path / "out", max_steps=1, **SMALL)
    names = {event.key for event in profile.key_averages()}
    assert "aten::random_" in names
    assert "aten::bernoulli_" not in names


@pytest.mark.slow
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library keeps what it keeps")
def test_freed_memory_is_retained_in_the_block() -> None:
    """Blocks of 30 MB, which every glibc may keep, and 90 MB together, more than it keeps by itself."""
    library = ctypes.CDLL(None)
    library.malloc.restype, library.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    library.free.argtypes = [ctypes.c_void_p]

    def resident() -> float:
        """MB of this process in memory. Counts of page faults would depend on the size of the system's pages."""
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 1e6

    def step() -> float:
        blocks = [library.malloc(30_000_000) for _ in range(3)]
        for block in blocks:
            ctypes.memset(block, 1, 30_000_000)
        used = resident()
        for block in blocks:
            library.free(block)
        return used

    library.malloc_trim(0)
    before = resident()
    with contextlib.suppress(ValueError), retained_memory():
        used = step()
        assert used > before + 80
        assert resident() > used - 10
        assert used - 10 < step() < used + 10
        raise ValueError
    assert resident() < before + 10


# -- machines with an accelerator -------------------------------------------------------------------------------------


def test_machines_with_an_accelerator(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a trainer would be given in the second process of torchrun."""
    monkeypatch.setattr(devices, "get_device_name", lambda: "cuda:1")
    assert (find_device(None), find_device("cpu")) == ("cuda", "cpu")
    monkeypatch.setattr("transformers.utils.is_torch_bf16_gpu_available", lambda: True)
    assert on_device("cuda", "bfloat16") == {"use_cpu": False, "bf16": True, "dataloader_pin_memory": True}
    monkeypatch.setattr("transformers.utils.is_torch_bf16_gpu_available", lambda: False)
    with pytest.raises(InputError, match="is not supported on the device 'mps'"):
        on_device("mps", "bfloat16")
