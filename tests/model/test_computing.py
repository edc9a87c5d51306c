"""Linear layers of a pass by oneDNN: the same numbers and gradients as torch's own, and only where they are faster."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from essent.encoder.encoder import Encoder
from essent.model import computing
from essent.model.computing import OneDNNLinear, onednn_is_faster
from samples import TEXTS

NEEDED = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="torch without oneDNN")
INPUTS = {
    "text": torch.randn(1, 5, 48),
    "batch": torch.randn(4, 7, 48),
    "transposed": torch.randn(7, 4, 48).transpose(0, 1),
    "rows": torch.randn(9, 48),
    "no rows": torch.empty(0, 48),
    "one vector": torch.randn(48),
}


@pytest.fixture(params=[True, False], ids=["bias", "no bias"])
def layer(request: pytest.FixtureRequest) -> nn.Linear:
    torch.manual_seed(0)
    return nn.Linear(48, 33, bias=request.param)


@pytest.fixture
def processor(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, object]]:
    """The capabilities that torch reports."""
    capabilities: dict[str, object] = {"cpu_name": "AMD EPYC"}
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities, raising=False)
    onednn_is_faster.cache_clear()
    yield capabilities
    onednn_is_faster.cache_clear()


@NEEDED
@pytest.mark.parametrize("inputs", INPUTS.values(), ids=INPUTS)
def test_layer_and_gradients_equal_torch_s(layer: nn.Linear, inputs: torch.Tensor) -> None:
    inputs = inputs.detach().requires_grad_()
    with OneDNNLinear():
        outputs = layer(inputs)
    expected = layer(inputs)
    torch.testing.assert_close(outputs, expected, atol=1e-5, rtol=1e-5)
    variables, gradient = [inputs, *layer.parameters()], torch.randn_like(expected)
    gradients = [torch.autograd.grad(result, variables, gradient) for result in (outputs, expected)]
    torch.testing.assert_close(*gradients, atol=1e-5, rtol=1e-5)


@NEEDED
def test_frozen_weights_get_no_gradient(layer: nn.Linear) -> None:
    layer.requires_grad_(False)
    inputs = INPUTS["batch"].detach().requires_grad_()
    with OneDNNLinear():
        layer(inputs).sum().backward()
    assert inputs.grad is not None
    assert all(parameter.grad is None for parameter in layer.parameters())


def test_only_plain_float32_on_the_cpu_is_replaced(layer: nn.Linear, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(computing, "_product", None)  # a call would fail
    inputs = INPUTS["batch"]
    with OneDNNLinear():
        for other in (torch.float64, torch.bfloat16):
            assert layer.to(other)(inputs.to(other)).dtype is other
        assert layer.to("meta")(inputs.to("meta")).is_meta
        torch.export.export(nn.Linear(48, 33), (inputs,))


@NEEDED
def test_which_passes_use_it(processor: dict[str, object]) -> None:
    assert isinstance(computing.computing("float32", "cpu", nn.Identity()), OneDNNLinear)
    assert isinstance(computing.computing("auto", "cpu", nn.Identity()), OneDNNLinear)
    assert isinstance(computing.computing("bfloat16", "cpu", nn.Identity()), torch.autocast)
    assert isinstance(computing.computing("auto", "cuda", nn.Identity()), nullcontext)
    with torch.autocast("cpu", torch.bfloat16):  # of a trainer
        assert isinstance(computing.computing("auto", "cpu", nn.Identity()), nullcontext)


@pytest.mark.parametrize("name", ["Intel(R) Xeon(R) Processor", None])
def test_other_processors_keep_torch_s_products(name: str | None, processor: dict[str, object]) -> None:
    processor.update(cpu_name=name)
    assert isinstance(computing.computing("float32", "cpu", nn.Identity()), nullcontext)


@NEEDED
@pytest.mark.parametrize(("family", "linear"), [("bert", 6), ("gpt2", 4)])  # linear layers per layer
def test_vectors_of_an_encoder(
    family: str,
    linear: int,
    folder_of: Callable[[str], Path],
    processor: dict[str, object],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    encoder, products = Encoder(folder_of(family), "ditto:2-3"), []
    product = computing._product
    monkeypatch.setattr(computing, "_product", lambda *parts: products.append(parts) or product(*parts))
    vectors = encoder.encode(TEXTS)
    assert len(products) % (3 * linear) == 0 < len(products)
    processor.update(cpu_name="another")
    onednn_is_faster.cache_clear()
    np.testing.assert_allclose(vectors, encoder.encode(TEXTS), atol=1e-5)


@NEEDED
def test_gradients_with_checkpointing(bert: Path, processor: dict[str, object]) -> None:
    """The backward pass computes states again, by torch's products, so the forward pass must not use others."""
    gradients = []
    for enabled in (False, True):
        encoder = Encoder(bert, "mean")
        model = encoder.module.backbone.model
        if enabled:
            enable = getattr(model, "activation_checkpointing_enable", None) or model.gradient_checkpointing_enable
            enable({"use_reentrant": False})
        model.train().requires_grad_()
        for module in model.modules():
            if isinstance(module, nn.Dropout):
                module.p = 0.0
        encoder.module(encoder.module.preprocess(TEXTS))["sentence_embedding"].square().sum().backward()
        gradients.append([parameter.grad for parameter in model.parameters() if parameter.grad is not None])
    assert len(gradients[0]) > 40
    torch.testing.assert_close(*gradients, atol=1e-4, rtol=1e-4)
