"""Where training runs and what it computes in, on machines with and without an accelerator."""

from __future__ import annotations

import pytest

from essent.errors import InputError
from essent.training import device as devices
from essent.training.device import find_device, on_device


@pytest.mark.parametrize(
    ("name", "requested", "expected"),
    [
        ("cuda:1", None, "cuda"),  # the second process of torchrun
        ("cuda:0", "cpu", "cpu"),
        ("xpu", "xpu", "xpu"),
    ],
)
def test_machines_with_an_accelerator(
    name: str, requested: str | None, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a trainer would be given there."""
    monkeypatch.setattr(devices, "get_device_name", lambda: name)
    monkeypatch.setattr("transformers.utils.is_torch_bf16_gpu_available", lambda: True)
    assert find_device(requested) == expected
    arguments = on_device(expected, "bfloat16")
    assert arguments == {
        "use_cpu": expected == "cpu", "bf16": True, "fp16": False, "dataloader_pin_memory": expected == "cuda"
    }  # fmt: skip


def test_an_accelerator_without_bf16_refuses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("transformers.utils.is_torch_bf16_gpu_available", lambda: False)
    with pytest.raises(InputError, match="'mps' does not compute in it; take float32"):
        on_device("mps", "bfloat16")
