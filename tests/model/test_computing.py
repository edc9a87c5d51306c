"""Linear layers of a pass by oneDNN: the same numbers and gradients as torch's own, and only where they are faster."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from essent.encoder.encoder import Encoder
from essent.model import computing
from essent.model.computing import OneDNNLinear, onednn_is_faster
from families import Folders
from samples import TEXTS

NEEDED = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="torch without oneDNN")
NUMBERS = torch.randn(28, 48, generator=torch.Generator().manual_seed(1))
INPUTS = {
    "text": NUMBERS[None, :5],
    "batch": NUMBERS.view(4, 7, 48),
    "transposed": NUMBERS.view(7, 4, 48).transpose(0, 1),
    "rows": NUMBERS,
    "no rows": NUMBERS[:0],
    "one vector": NUMBERS[0],
}


@pytest.fixture(params=[True, False], ids=["bias", "no bias"])
def layer(request: pytest.FixtureRequest) -> nn.Linear:
    torch.manual_seed(0)
    return nn.Linear(48, 33, bias=request.param)


@pytest.fixture
def processor(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, object]]:
    """The capabilities that torch reports."""
    capabilities: dict[str, object] = {"cpu_name": "AMD EPYC", "avx512_f": True}
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities, raising=False)
    onednn_is_faster.cache_clear()
    yield capabilities
    onednn_is_faster.cache_clear()


@NEEDED
@pytest.mark.parametrize("inputs", INPUTS.values(), ids=INPUTS)
def test_layer_and_gradients_equal_torch_s(layer: nn.Linear, inputs: torch.Tensor) -> None:
    inputs = inputs.detach().requires_grad_()
    variables = [inputs, *layer.parameters()]
    results = []
    for context in (OneDNNLinear(), nullcontext()):
        with context:
            outputs = layer(inputs)
            outputs /= 8  # as Longformer does
        gradients = torch.autograd.grad(outputs.square().sum(), variables, create_graph=True)
        penalty = sum(gradient.square().sum() for gradient in gradients)
        results.append([outputs, *gradients, *torch.autograd.grad(penalty, variables)])
    torch.testing.assert_close(*results, atol=1e-4, rtol=1e-4)


@NEEDED
@pytest.mark.parametrize(("frozen", "saved"), [("weight", (33, 48)), ("inputs", (28, 48))])
def test_only_what_a_gradient_needs_is_saved(frozen: str, saved: tuple[int, ...], layer: nn.Linear) -> None:
    inputs, shapes = INPUTS["batch"].detach().requires_grad_(frozen == "weight"), []
    layer.requires_grad_(frozen == "inputs")
    with OneDNNLinear(), torch.autograd.graph.saved_tensors_hooks(lambda t: shapes.append(t.shape) or t, lambda t: t):
        outputs = layer(inputs)
    assert shapes == [saved]
    outputs.sum().backward()
    assert (inputs.grad is None) == (frozen == "inputs")
    assert all((parameter.grad is None) == (frozen == "weight") for parameter in layer.parameters())


@NEEDED
@pytest.mark.parametrize("mode", [torch.no_grad, torch.enable_grad])
def test_tangents_pass(mode: Callable[[], AbstractContextManager[None]], layer: nn.Linear) -> None:
    tangents = NUMBERS.flip(0)
    with mode(), OneDNNLinear():
        outputs, derivatives = torch.func.jvp(layer, (NUMBERS,), (tangents,))
    torch.testing.assert_close(outputs, layer(NUMBERS))
    torch.testing.assert_close(derivatives, tangents @ layer.weight.T)


def test_only_plain_float32_layers_on_the_cpu_are_replaced(layer: nn.Linear, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(computing, "onednn_linear", None)  # a call would fail
    inputs = INPUTS["batch"]
    with OneDNNLinear():
        with pytest.raises(RuntimeError, match="28x47 and 48x33"):
            layer(INPUTS["rows"][:, :47])
        bias, layer.bias = layer.bias, nn.Parameter(torch.ones(1))  # for all outputs
        assert layer(inputs).shape == (4, 7, 33)
        layer.bias = bias
        for dtype in (torch.float64, torch.bfloat16):
            assert layer.to(dtype)(inputs.to(dtype)).dtype is dtype
        assert layer.to("meta")(inputs.to("meta")).is_meta
        torch.export.export(nn.Linear(48, 33), (inputs,))


@NEEDED
@pytest.mark.slow
def test_memory_does_not_grow_with_the_number_of_shapes() -> None:
    """By default, products of 300 numbers of rows take 200 MB."""
    code = """
import psutil, torch
from essent.model.computing import OneDNNLinear, onednn_is_faster
torch.cpu.get_capabilities = lambda: {"cpu_name": "AMD", "avx512_f": True}
assert onednn_is_faster()
layer, process = torch.nn.Linear(384, 384), psutil.Process()
with torch.inference_mode(), OneDNNLinear():
    for rows in range(50, 350):
        layer(torch.ones(rows, 384))
        if rows == 60:
            before = process.memory_info().rss
print((process.memory_info().rss - before) / 2**20)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert float(done.stdout) < 100, done.stderr


@NEEDED
def test_which_passes_use_it(processor: dict[str, object], monkeypatch: pytest.MonkeyPatch) -> None:
    def context(precision: str = "auto", device: str = "cpu") -> type:
        return type(computing.computing(precision, device, nn.Identity()))

    assert context("float32") is OneDNNLinear
    assert context("auto") is OneDNNLinear
    assert context("bfloat16") is torch.autocast
    assert context(device="cuda") is nullcontext
    with monkeypatch.context() as patch:
        patch.setattr(torch.jit, "is_tracing", lambda: True)
        assert context() is nullcontext
    with torch.autocast("cpu", torch.bfloat16):  # of a trainer
        assert context() is nullcontext
    for changes in ({"cpu_name": "Intel(R) Xeon(R) Processor"}, {"cpu_name": None}, {"avx512_f": False}):
        processor.update({"cpu_name": "AMD EPYC", "avx512_f": True} | changes)
        onednn_is_faster.cache_clear()
        assert context() is nullcontext


@NEEDED
@pytest.mark.parametrize(("family", "linear"), [("bert", 6), ("gpt2", 4)])  # linear layers per layer
def test_vectors_of_an_encoder(
    family: str, linear: int, folder_of: Folders, processor: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder, products = Encoder(folder_of(family), "ditto:2-3"), []
    assert onednn_is_faster()
    product = computing.onednn_linear
    monkeypatch.setattr(computing, "onednn_linear", lambda *parts: products.append(parts) or product(*parts))
    vectors = encoder.encode(TEXTS)
    assert len(products) % (3 * linear) == 0 < len(products)
    processor.update(cpu_name="another")
    onednn_is_faster.cache_clear()
    np.testing.assert_allclose(vectors, encoder.encode(TEXTS), atol=1e-5)


@NEEDED
def test_gradients_with_checkpointing(bert: Path, processor: dict[str, object]) -> None:
    """The backward pass computes states again, by torch's products, so the forward pass must not use others."""
    gradients, dropout = [], {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    for enabled in (False, True):
        encoder = Encoder(bert, "mean", config_kwargs=dropout)
        model = encoder.module.backbone.model
        if enabled:
            enable = getattr(model, "activation_checkpointing_enable", None) or model.gradient_checkpointing_enable
            enable({"use_reentrant": False})
        model.train().requires_grad_()
        encoder(encoder.preprocess(TEXTS))["sentence_embedding"].square().sum().backward()
        gradients.append([parameter.grad for parameter in model.parameters() if parameter.grad is not None])
    assert len(gradients[0]) > 40
    torch.testing.assert_close(*gradients, atol=1e-4, rtol=1e-4)
