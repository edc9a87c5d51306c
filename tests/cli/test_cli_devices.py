"""`essent lab pretrain` and `essent train` on CPUs with and without bfloat16, device and precision named or not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from command_line import run
from essent._core.arithmetic import has_bfloat16
from essent.errors import InputError
from essent.training import device as devices
from essent.training.device import find_device, on_device

CPUS = {"with bf16": {"avx2": True, "avx512_bf16": True}, "without": {"avx2": True, "avx512_bf16": False}}
DEVICES: dict[str, tuple[object, ...]] = {"no device": (), "cpu": ("--device", "cpu")}
ASKED = [  # each device and each precision once, and every pair of them with `make test-all`
    pytest.param(device, precision, marks=() if (device == "cpu") == (precision == "bfloat16") else pytest.mark.slow)
    for device in DEVICES
    for precision in (None, "bfloat16")
]
ASKED += [pytest.param(device, "float32", marks=pytest.mark.slow) for device in DEVICES]


@pytest.fixture(params=CPUS)
def cpu(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The CPU's flags, as torch would report them; every run below computes on the CPU that is there."""
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: CPUS[request.param])
    monkeypatch.setattr(devices, "get_device_name", lambda: "cpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    return str(request.param)


@pytest.fixture
def many(tmp_path: Path) -> Path:
    path = tmp_path / "many.txt"
    path.write_text("".join(f"The {i % 7} dogs see {i} cats.\n" for i in range(40)), "utf-8")
    return path


def about(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / "training.json").read_text("utf-8")))


@pytest.mark.parametrize(("device", "precision"), ASKED)
def test_pretrain(cpu: str, device: str, precision: str | None, tiny: str, many: Path, tmp_path: Path) -> None:
    given = [*DEVICES[device], *(("--precision", precision) if precision else ())]
    small = ["--max-steps", 1, "--batch-size", 2, "--max-seq-length", 16, "-q"]
    run("lab", "pretrain", "-t", many, "-m", tiny, "-o", tmp_path / "model", *small, *given)
    found = about(tmp_path / "model")
    assert found["device"] == "cpu"
    assert found["precision"] == (precision or ("bfloat16" if cpu == "with bf16" else "float32"))
    assert 0 < found["held_out_loss"] < 20


@pytest.mark.parametrize(("device", "precision"), ASKED)
def test_train(cpu: str, device: str, precision: str | None, tiny: str, many: Path, tmp_path: Path) -> None:
    given = [*DEVICES[device], *(("--precision", precision) if precision else ())]
    small = ["--max-steps", 1, "--batch-size", 4, "-q"]
    run("train", "-m", tiny, "--texts", many, "-o", tmp_path / "model", *small, *given)
    found = about(tmp_path / "model")
    assert found["steps"] == 1
    assert found["settings"]["precision"] == (precision or "float32")


@pytest.mark.parametrize("device", DEVICES)
def test_half_precision_needs_a_gpu(cpu: str, device: str, tiny: str, many: Path, tmp_path: Path) -> None:
    arguments = ["--texts", many, "-m", tiny, "-o", tmp_path / "model", "--max-steps", 1, "--batch-size", 4]
    error = run("train", *arguments, "--precision", "float16", *DEVICES[device], code=2).stderr
    assert "'float16' needs a GPU" in error
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize("asked", ["cuda", "cuda:1", "mps", "tpu"])
def test_a_device_that_is_not_there(asked: str, tiny: str, many: Path, tmp_path: Path, cpu: str) -> None:
    for command in (["lab", "pretrain", "-t", many, "--max-steps", 1], ["train", "--texts", many]):
        error = run(*command, "-m", tiny, "-o", tmp_path / "model", "--device", asked, code=2).stderr
        assert f"device={asked!r}: on this machine training runs on 'cpu'." in error
        assert not (tmp_path / "model").exists()


@pytest.mark.parametrize(
    ("name", "native", "asked", "expected"),
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
    name: str, native: bool, asked: str | None, expected: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a trainer would be given there. Their CPUs have bf16, which says nothing about the accelerator."""
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: CPUS["with bf16"])
    monkeypatch.setattr(devices, "get_device_name", lambda: name)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=True: native or including_emulation)
    monkeypatch.setattr("transformers.utils.is_torch_bf16_gpu_available", lambda: True)
    device = find_device(asked)
    precision = "bfloat16" if has_bfloat16(device) else "float32"
    assert (device, precision) == expected
    given = on_device(device, precision)
    assert given["use_cpu"] is (device == "cpu")
    assert given["bf16"] is (precision == "bfloat16")
    assert given["dataloader_pin_memory"] is (device == "cuda")
    assert on_device(device, "bfloat16")["bf16"]  # whoever asks for it gets it, imitated or not


def test_an_accelerator_without_bf16_refuses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("transformers.utils.is_torch_bf16_gpu_available", lambda: False)
    with pytest.raises(InputError, match="'mps' does not compute in it; take float32"):
        on_device("mps", "bfloat16")


@pytest.mark.parametrize(
    ("found", "expected"), [({"avx2": True}, False), ({"avx512_bf16": True}, True), ({"bf16": True}, True), ({}, False)]
)
def test_bf16_where_the_processor_has_it(found: dict, expected: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: found)
    assert has_bfloat16("cpu") is expected
