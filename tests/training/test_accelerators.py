"""Where training runs and what it computes in, on machines with and without an accelerator."""

from __future__ import annotations

import pytest
import torch

from essent._core.arithmetic import has_bfloat16
from essent.errors import InputError
from essent.training import device as devices
from essent.training.device import find_device, on_device


@pytest.mark.parametrize(
    ("name", "native", "requested", "expected"),
    [
        ("cuda:1", True, None, ("cuda", "bfloat16")),  # the second process of torchrun
        ("cuda:0", False, None, ("cuda", "float32")),  # a GPU that imitates bf16
        ("cuda:0", True, "cpu", ("cpu", "bfloat16")),
        ("mps", True, None, ("mps", "float32")),
        ("mps", True, "mps", ("mps", "float32")),
        ("xpu", True, None, ("xpu", "float32")),
        ("mps", True, "cpu", ("cpu", "bfloat16")),
    ],
)
def test_machines_with_an_accelerator(
    name: str, native: bool, requested: str | None, expected: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a trainer would be given there. Their CPUs have bf16, which says nothing about the accelerator."""
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx2": True, "avx512_bf16": True})
    monkeypatch.setattr(devices, "get_device_name", lambda: name)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=True: native or including_emulation)
    monkeypatch.setattr("transformers.utils.is_torch_bf16_gpu_available", lambda: True)
    device = find_device(requested)
    precision = "bfloat16" if has_bfloat16(device) else "float32"
    assert (device, precision) == expected
    arguments = on_device(device, precision)
    assert arguments["use_cpu"] is (device == "cpu")
    assert arguments["bf16"] is (precision == "bfloat16")
    assert arguments["dataloader_pin_memory"] is (device == "cuda")
    assert on_device(device, "bfloat16")["bf16"]  # whoever asks for it gets it, imitated or not


def test_an_accelerator_without_bf16_refuses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("transformers.utils.is_torch_bf16_gpu_available", lambda: False)
    with pytest.raises(InputError, match="'mps' does not compute in it; take float32"):
        on_device("mps", "bfloat16")


@pytest.mark.parametrize(
    ("capabilities", "expected"),
    [({"avx2": True}, False), ({"avx512_bf16": True}, True), ({"bf16": True}, True), ({}, False)],
)
def test_bf16_where_the_processor_has_it(capabilities: dict, expected: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities)
    assert has_bfloat16("cpu") is expected
