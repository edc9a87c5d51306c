"""The loss as a function of vectors: the papers' equation, value and gradients."""

from __future__ import annotations

import pytest
import torch
from train_reference import loss_of

from essent.errors import InputError
from essent.training.loss import info_nce


def vectors(count: int, rows: int, width: int, seed: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(rows, width, generator=generator, dtype=torch.float64) for _ in range(count)]


def gradients(loss: torch.Tensor, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    return list(torch.autograd.grad(loss, inputs))


@pytest.mark.parametrize(("hard", "rows", "temperature"), [(False, 1, 0.05), (True, 5, 0.05), (False, 4, 1.0)])
def test_value_and_gradients(hard: bool, rows: int, temperature: float) -> None:
    exact = [part.requires_grad_() for part in vectors(3 if hard else 2, rows, 6, seed=rows)]
    expected = loss_of(*[list(part) for part in exact], temperature=temperature)
    single = [part.detach().float().requires_grad_() for part in exact]
    loss = info_nce(*single, temperature=temperature)
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5, abs=1e-6)
    for ours, theirs in zip(gradients(loss, single), gradients(expected, exact), strict=True):
        torch.testing.assert_close(ours.double(), theirs, rtol=1e-4, atol=1e-5)


def test_half_precision_and_zero_rows() -> None:
    anchors, positives = (part.bfloat16() for part in vectors(2, 4, 8, seed=0))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        half_loss = info_nce(anchors, positives)
    assert half_loss.dtype == torch.float32
    assert half_loss.item() == pytest.approx(info_nce(anchors.float(), positives.float()).item(), rel=1e-6)
    zero = torch.zeros(2, 3, requires_grad=True)
    loss = info_nce(zero, torch.randn(2, 3))
    assert loss.item() == pytest.approx(0.6931472)  # every cosine 0: two equal candidates
    assert torch.isfinite(gradients(loss, [zero])[0]).all()


def test_refusals() -> None:
    with pytest.raises(InputError, match=r"positives must have the anchors' shape \(2, 3\)"):
        info_nce(torch.ones(2, 3), torch.ones(3, 3))
    with pytest.raises(InputError, match="at least one row"):
        info_nce(torch.ones(0, 3), torch.ones(0, 3))
