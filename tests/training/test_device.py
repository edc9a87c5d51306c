"""Dropout on a CPU against the equation: x · mask / (1 - p), with masks that are drawn quickly; memory that stays."""

from __future__ import annotations

import json
import math
import platform
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.nn import functional

from essent.training.device import STEPS, QuickDropout, keep_mask, quick_dropout

P = 0.1
KEPT = 1 - round(P * STEPS) / STEPS


@pytest.mark.parametrize("p", [0.001, 0.1, 0.5, 0.9])
def test_the_share_kept_and_neighbours_are_independent(p: float) -> None:
    torch.manual_seed(0)
    kept = keep_mask((1_000_003,), p).double()
    allowed = 5 * math.sqrt(p * (1 - p) / len(kept))
    assert abs(kept.mean() - (1 - p)) < allowed
    for apart in (1, 2, 3, 4):  # four elements come from one random number
        both = (kept[:-apart] * kept[apart:]).mean()
        assert abs(both - (1 - p) ** 2) < 3 * allowed


def test_values_and_gradients_of_dropout() -> None:
    given = torch.randn(7, 5, 3, requires_grad=True)
    torch.manual_seed(1)
    kept = keep_mask(given.shape, P)
    torch.manual_seed(1)
    with QuickDropout():
        found = torch.nn.Dropout(P)(given)
        found.sum().backward()
    assert 0 < kept.sum() < kept.numel()
    torch.testing.assert_close(found, given * kept / KEPT)
    torch.testing.assert_close(given.grad, kept / KEPT)


@pytest.mark.parametrize(("kind", "causal"), [(None, False), (None, True), (torch.bool, False), (torch.float32, False)])
def test_attention_against_the_equation(kind: torch.dtype | None, causal: bool) -> None:
    torch.manual_seed(2)
    query, key, value = (torch.randn(2, 3, 6, 8, requires_grad=True) for _ in range(3))
    seen = torch.ones(2, 1, 6, 6, dtype=torch.bool)
    seen[1, ..., 4:] = False
    seen[0, :, 2] = False  # a row that attends to nothing is 0
    mask = seen if kind is torch.bool else torch.zeros(seen.shape).masked_fill(~seen, -torch.inf)
    torch.manual_seed(3)
    kept = keep_mask((2, 3, 6, 6), P)
    torch.manual_seed(3)
    with QuickDropout():
        found = functional.scaled_dot_product_attention(
            query, key, value, None if kind is None else mask, dropout_p=P, is_causal=causal
        )
    scores = query.double() @ key.double().mT / math.sqrt(8)
    if kind is not None:
        scores = scores.masked_fill(~seen, -torch.inf)
    if causal:
        scores = scores.masked_fill(torch.ones(6, 6).triu(1).bool(), -torch.inf)
    expected = (scores.softmax(-1).nan_to_num(0.0) * kept / KEPT) @ value.double()
    torch.testing.assert_close(found.double(), expected, atol=1e-6, rtol=1e-5)


def test_what_has_no_dropout_is_left_to_torch() -> None:
    given = torch.randn(4, 4)
    with QuickDropout():
        assert functional.dropout(given, P, training=False) is given
        assert torch.equal(functional.dropout(given, 1.0), torch.zeros(4, 4))
        with pytest.raises(ValueError, match="between 0 and 1"):
            functional.dropout(given, 1.5)
        for p in (1e-6, 1 - 1e-6):  # finer than the steps of the masks
            assert functional.dropout(given, p).shape == given.shape
        assert functional.dropout(torch.tensor(2.0), P).shape == ()
    plain = torch.nn.Linear(2, 2)
    assert not isinstance(quick_dropout("cuda", plain), QuickDropout)
    assert isinstance(quick_dropout("cpu", plain), QuickDropout)


def test_gradients_with_checkpointing_are_those_without(bert: Path) -> None:
    """What is computed again in the backward pass must have the masks of the forward pass."""
    from transformers import AutoModel

    model = AutoModel.from_pretrained(bert).train()
    ids = torch.randint(5, 40, (2, 9))
    enable = getattr(model, "activation_checkpointing_enable", None) or model.gradient_checkpointing_enable
    enable({"use_reentrant": False})
    torch.manual_seed(0)
    with quick_dropout("cpu", model) as mode:
        assert not isinstance(mode, QuickDropout)
        model(ids).last_hidden_state.square().sum().backward()
    torch.manual_seed(0)
    plain = AutoModel.from_pretrained(bert).train()
    torch.manual_seed(0)
    plain(ids).last_hidden_state.square().sum().backward()
    pairs = zip(model.parameters(), plain.parameters(), strict=True)
    for mine, other in ((one.grad, two.grad) for one, two in pairs if two.grad is not None):
        torch.testing.assert_close(mine, other)


def test_training_draws_no_slow_masks(bert: Path, tmp_path: Path) -> None:
    """The trainer of contrastive training uses them."""
    from training_helpers import SMALL, TEXTS

    from essent.training.run import train

    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        train(str(bert), TEXTS, "simcse-unsup", output=tmp_path / "out", max_steps=1, **SMALL)
    names = {event.key for event in profile.key_averages()}
    assert "aten::random_" in names
    assert "aten::bernoulli_" not in names


# Blocks of 30 MB, which every glibc may keep, and 90 MB together, more than it keeps by itself.
SCRIPT = """
import ctypes, json, resource
from essent.training.device import retained_memory

library = ctypes.CDLL(None)
library.malloc.restype, library.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
library.free.argtypes = [ctypes.c_void_p]

def faults():
    "Pages that the system had to give for a step."
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    blocks = [library.malloc(30_000_000) for _ in range(3)]
    for block in blocks:
        ctypes.memset(block, 1, 30_000_000)
    for block in blocks:
        library.free(block)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

found = {}
try:
    with retained_memory():
        found["first"], found["kept"] = faults(), faults()
        raise ValueError
except ValueError:
    found["after"] = faults(), faults()
print(json.dumps(found))
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library keeps what it keeps")
def test_freed_memory_is_kept_in_the_block_and_not_after_it_nor_after_an_error() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    assert found["kept"] < found["first"] / 10
    assert min(found["after"]) > found["first"] / 2
