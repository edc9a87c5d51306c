"""Large models: dtype by device, device maps, quantized weights."""

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from torch import nn
from transformers import AutoModel, AutoTokenizer, BitsAndBytesConfig, PreTrainedModel
from transformers.core_model_loading import ConversionOps
from transformers.quantizers import HfQuantizer, register_quantizer
from transformers.utils.quantization_config import QuantizationConfigMixin

from essent import Encoder
from essent.encoder.module import digest_of_backbone
from essent.errors import EngineError, MissingDependencyError, ModelError
from essent.model.loading import with_default_dtype
from essent.training.run import open_encoder
from families import Folders
from samples import TEXTS, daily

pytest.importorskip("accelerate")  # of the extra `train`
pytestmark = [
    pytest.mark.filterwarnings("ignore:The following device_map keys do not match"),  # of layers that are not loaded
    pytest.mark.filterwarnings("ignore:Attempting to save a model with offloaded modules"),
]


@pytest.fixture(scope="module")
def decoder(folder_of: Folders, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a tiny Llama in bfloat16, in several files, with a head as large models are saved."""
    base, folder = folder_of("llama"), tmp_path_factory.mktemp("large")
    transformers.LlamaForCausalLM.from_pretrained(base, dtype=torch.bfloat16).save_pretrained(
        folder, max_shard_size="20KB"
    )
    AutoTokenizer.from_pretrained(base).save_pretrained(folder)
    assert len(list(folder.glob("*.safetensors"))) > 2
    return folder


@pytest.fixture
def offloaded(tmp_path: Path) -> dict[str, Any]:
    """Options by which the layers above the first are on disk."""
    devices = {"embed_tokens": "cpu", "norm": "cpu", "rotary_emb": "cpu", "layers.0": "cpu", "layers.1": "disk"}
    settings = {"device_map": {**devices, "layers.2": "disk"}, "offload_folder": str(tmp_path / "offload")}
    return {"model_kwargs": settings}


# -- dtype ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "dtype"),
    [
        ({}, torch.float32),
        ({"device": "cuda:1"}, None),  # None: transformers reads the checkpoint's
        ({"device": "cuda", "model_kwargs": {"device_map": "auto"}}, torch.float32),  # there is no GPU here
        ({"model_kwargs": {"device_map": "cuda"}}, None),
        ({"device": "cpu", "model_kwargs": {"device_map": {"": 0}}}, None),
        ({"device": "cuda", "model_kwargs": {"device_map": {"": "cpu"}}}, torch.float32),
        ({"model_kwargs": {"device_map": {"layers": 0, "norm": "cpu"}}}, None),
    ],
)
def test_float32_on_a_cpu_and_the_checkpoints_dtype_elsewhere(options: dict[str, Any], dtype: object) -> None:
    assert with_default_dtype(options).get("dtype") == dtype


def test_the_dtype_of_loaded_and_saved_models(decoder: Path, tmp_path: Path) -> None:
    def dtype(model: Path, recipe: str | None = "mean", **options: Any) -> torch.dtype:
        return Encoder(model, recipe, device="cpu", **options).module.backbone.static_table.dtype

    assert dtype(decoder) == torch.float32
    assert dtype(decoder, model_kwargs={"dtype": "bfloat16"}) == torch.bfloat16
    half = {"model_kwargs": {"torch_dtype": torch.bfloat16}}  # transformers' former name
    assert dtype(decoder, **half) == torch.bfloat16
    assert open_encoder(decoder, "cpu").module.backbone.static_table.dtype == torch.float32
    for recipe in ("mean", "prompteol"):  # stock modules; essent's code
        Encoder(decoder, recipe, device="cpu", **half).save(str(tmp_path / recipe))
        assert dtype(tmp_path / recipe, None) == torch.float32
        assert dtype(tmp_path / recipe, None, model_kwargs={"dtype": "auto"}) == torch.bfloat16


# -- device maps ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("recipe", daily(["mean", "layers=1", "prompteol"], "mean", "layers=1"))
def test_weights_on_disk_give_the_same_vectors(
    recipe: str, decoder: Path, offloaded: dict[str, Any], tmp_path: Path
) -> None:
    """accelerate replaces `forward` of each module; that of a truncated model must run the truncated model."""
    expected, encoder = Encoder(decoder, recipe, device="cpu"), Encoder(decoder, recipe, **offloaded)
    on_disk = [weight.is_meta for weight in encoder.module.backbone.model.parameters()]
    assert any(on_disk) == (recipe != "layers=1")
    assert digest_of_backbone(encoder.module.backbone) == digest_of_backbone(expected.module.backbone)
    encoder.save(str(tmp_path / "saved"))
    for same in (encoder, copy.deepcopy(encoder), Encoder(tmp_path / "saved")):
        np.testing.assert_allclose(same.encode(TEXTS), expected.encode(TEXTS), atol=1e-6)


def test_offloaded_weights_are_refused_in_float32(decoder: Path, offloaded: dict[str, Any]) -> None:
    half = {"model_kwargs": {**offloaded["model_kwargs"], "dtype": "bfloat16"}}
    with pytest.raises(EngineError, match=r"weights are offloaded by device_map. Use precision='auto'"):
        Encoder(decoder, "mean", **half).module.backbone.compute_in("float32")
    offloaded["model_kwargs"]["device_map"]["embed_tokens"] = "disk"
    with pytest.raises(ModelError, match="device_map offloads the input embeddings"):
        Encoder(decoder, "mean", **offloaded)


# -- quantized weights ------------------------------------------------------------------------------------------------


class Int8Linear(nn.Module):
    """A linear layer with weights in int8 and one scale."""

    def __init__(self, columns: int, rows: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(rows, columns, dtype=torch.int8), requires_grad=False)
        self.scale = nn.Parameter(torch.empty(()), requires_grad=False)

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        return states @ (self.weight.to(states.dtype) * self.scale.to(states.dtype)).T


class ToInt8(ConversionOps):
    def convert(self, input_dict: dict[str, Any], **_: Any) -> dict[str, torch.Tensor]:
        converted = {}
        for name, values in input_dict.items():
            weight = values[0] if isinstance(values, list) else values
            scale = weight.float().abs().max() / 127
            converted |= {name: (weight.float() / scale).round().to(torch.int8), name[:-6] + "scale": scale}
        return converted


@register_quantizer("test-int8")
class Int8Quantizer(HfQuantizer):
    def _process_model_before_weight_loading(self, model: PreTrainedModel, **_: Any) -> None:
        for name, module in list(model.named_modules()):
            if isinstance(module, nn.Linear):
                with torch.device("meta"):
                    model.set_submodule(name, Int8Linear(module.in_features, module.out_features))

    def param_needs_quantization(self, model: PreTrainedModel, param_name: str, **_: Any) -> bool:
        return isinstance(model.get_submodule(param_name.rpartition(".")[0]), Int8Linear)

    def get_quantize_ops(self) -> ToInt8:
        return ToInt8()

    is_serializable = is_trainable = False


INT8 = QuantizationConfigMixin("test-int8")


@pytest.mark.parametrize(("recipe", "layer"), [("mean", -1), ("layers=1", 1)])
def test_quantized_weights(recipe: str, layer: int, decoder: Path) -> None:
    encoder = Encoder(decoder, recipe, device="cpu", model_kwargs={"quantization_config": INT8})
    exact = Encoder(decoder, recipe, device="cpu")
    layers = [module for module in encoder.modules() if isinstance(module, Int8Linear)]
    assert {layer.weight.dtype for layer in layers} == {torch.int8}
    vectors = encoder.encode(TEXTS)
    plain = AutoModel.from_pretrained(decoder, quantization_config=INT8, dtype=torch.float32)
    inputs = encoder.tokenizer(TEXTS[0], return_tensors="pt")
    expected = plain(**inputs, output_hidden_states=True).hidden_states[layer].mean(dim=1)  # (1,D)
    np.testing.assert_allclose(vectors[:1], expected.detach(), atol=1e-5)
    assert not np.allclose(vectors, exact.encode(TEXTS), atol=1e-5)
    np.testing.assert_allclose(copy.deepcopy(encoder).encode(TEXTS), vectors, atol=1e-6)
    assert digest_of_backbone(encoder.module.backbone) != digest_of_backbone(exact.module.backbone)
    with pytest.raises(EngineError, match=r"weights are quantized. Use precision='auto'"):
        encoder.module.backbone.compute_in("float32")


def test_a_missing_quantization_library_is_named(decoder: Path) -> None:
    if transformers.utils.is_bitsandbytes_available():
        pytest.skip("bitsandbytes is installed")
    settings = {"quantization_config": BitsAndBytesConfig(load_in_4bit=True)}
    with pytest.raises(MissingDependencyError, match=r"requires bitsandbytes: `pip install -U bitsandbytes"):
        Encoder(decoder, "mean", model_kwargs=settings)
