"""Which devices have bfloat16 arithmetic, by what torch reports of them."""

from __future__ import annotations

import pytest
import torch

from essent._core.machine import has_bfloat16


@pytest.mark.parametrize(
    ("capabilities", "expected"),
    [({"avx2": True}, False), ({"avx512_bf16": True}, True), ({"bf16": True}, True), ({}, False)],
)
def test_cpus(capabilities: dict[str, bool], expected: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities, raising=False)
    assert has_bfloat16("cpu") is expected


@pytest.mark.parametrize("native", [True, False])
def test_accelerators(native: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU that emulates bfloat16 does not count, nor does the CPU beside another accelerator."""
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": True}, raising=False)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=True: native or including_emulation)
    assert has_bfloat16("cuda") is native
    assert not has_bfloat16("mps")
