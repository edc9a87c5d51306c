"""Which devices have bfloat16 arithmetic, by what torch reports of them."""

import pytest
import torch

from essent._core.machine import has_bfloat16


def test_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, expected in (("avx2", False), ("avx512_bf16", True), ("bf16", True)):
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda name=name: {name: True}, raising=False)
        assert has_bfloat16("cpu") is expected, name


@pytest.mark.parametrize("native", [True, False])
def test_accelerators(native: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU that emulates bfloat16 does not count, nor does the CPU beside another accelerator."""
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": True}, raising=False)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=True: native or including_emulation)
    assert has_bfloat16("cuda") is native
    assert not has_bfloat16("mps")
