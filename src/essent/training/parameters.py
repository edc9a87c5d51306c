"""The parameters that training adds to a model: projection heads, low-rank adapters (LoRA), free words of a template.

A projection head maps the pooled vectors for the loss and is dropped afterwards: SimCSE 3 ("MLP during training only");
PromptBERT's code for the supervised model: BERT's prediction-head transform, which maps h and ĥ separately, before the
subtraction. The whitening head is essent's own.

LoRA trains two small matrices per linear layer instead of its weight W, which becomes W + (16 / rank) B A. peft adds
the adapters and computes with them. Saved encoders have them merged into their weights; a checkpoint also contains the
adapters themselves, so that a resumed run starts from the same numbers.

For a continuous template, every token of the template, except [MASK] and the special tokens around a text, becomes a
new token "[V1]", "[V2]" and so on. Its row of the embedding table is initialized with a copy of the original token's
row. The template is then literally "[V1][V2]{tokens}[V3]" on a model with a few more rows, so all code for models also
runs, saves and loads it.

Source: Hu et al. 2022, with α, dropout and the choice of layers of PromptEOL's code (Jiang et al. 2023); PromptBERT
(Jiang et al. 2022), 4.2 and App. B; OptiPrompt (Zhong et al. 2021).
"""

from __future__ import annotations

import contextlib
import copy
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain, count, islice, product
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from tokenizers import AddedToken
from torch import nn
from transformers.activations import ACT2FN

from essent._core.folders.contents import open_weights
from essent._core.lazy import optional_import
from essent._core.registry import Registry
from essent.encoder.encoder import Encoder
from essent.encoder.module import RecipeModule
from essent.errors import InputError, UnsupportedRecipeError
from essent.model.backbone import Backbone
from essent.model.template import make_frame
from essent.recipe.named import MASK, TOKENS_SLOT
from essent.recipe.recipe import Recipe
from essent.recipe.shaping.affine import Whiten

# Keys of the transform's linear map and LayerNorm in checkpoints of masked language models.
TRANSFORMS = (
    ("cls.predictions.transform.dense", "cls.predictions.transform.LayerNorm"),  # BERT
    ("lm_head.dense", "lm_head.layer_norm"),  # RoBERTa, XLM-R, MPNet
    ("vocab_transform", "vocab_layer_norm"),  # DistilBERT
)
ALPHA, DROPOUT = 16, 0.05
ADAPTER = "default"  # peft's name of an adapter without a name


# -- projection heads -------------------------------------------------------------------------------------------------


class ProjectionHead(nn.Module):
    """A map from vectors (B,D) to vectors (B,D) that only the loss reads. `weights`: the model's safetensors files."""

    name: ClassVar[str]
    before_denoising: ClassVar[bool] = False  # head(h) − head(ĥ) instead of head(h − ĥ)
    fitted_on: ClassVar[int] = 0  # number of texts that it is fitted on before training
    origin: str = ""  # where its initial weights are from

    def __init__(self, dimensions: int, config: Any, generator: torch.Generator, weights: Sequence[Path]) -> None:
        super().__init__()

    def fit(self, vectors: np.ndarray) -> None:
        """Fit the head to vectors (N,D) that the model computes before training."""


projection_heads: Registry[ProjectionHead] = Registry("projection head", "essent.projection_heads")


@projection_heads.register("none")
class NoProjection(ProjectionHead):
    """No head: the vectors unchanged."""

    def forward(self, vectors: torch.Tensor) -> torch.Tensor:
        """Return vectors (B,D) unchanged."""
        return vectors


@projection_heads.register("dense-tanh")
class DenseTanh(ProjectionHead):
    """tanh(W e + b), as BERT's pooler (SimCSE 3; PromptBERT's unsupervised models)."""

    def __init__(self, dimensions: int, config: Any, generator: torch.Generator, weights: Sequence[Path]) -> None:
        super().__init__(dimensions, config, generator, weights)
        self.dense = _linear(dimensions, config, generator)
        self.origin = "initialized"

    def forward(self, vectors: torch.Tensor) -> torch.Tensor:
        """Map vectors (B,D) by a dense layer and tanh."""
        return torch.tanh(self.dense(vectors))  # (B,D)


@projection_heads.register("whiten")
class WhiteningHead(ProjectionHead):
    """(e − μ) W: whitens the model's vectors before training and stays fixed afterwards.

    Vectors of a pretrained model lie in a narrow cone, so the first contrastive steps mostly spread them. Whitened
    vectors are already spread, and the steps improve similarity instead.
    """

    fitted_on = 3000

    def __init__(self, dimensions: int, config: Any, generator: torch.Generator, weights: Sequence[Path]) -> None:
        super().__init__(dimensions, config, generator, weights)
        self.centre = nn.Buffer(torch.zeros(dimensions))
        self.matrix = nn.Buffer(torch.eye(dimensions))
        self.texts = nn.Buffer(torch.tensor(0))  # number of texts of the fit; saved in checkpoints
        self.origin = "fitted on the texts"

    def fit(self, vectors: np.ndarray) -> None:
        """Compute the mean and the whitening matrix of vectors (N,D)."""
        shaper = Whiten().fit(np.asarray(vectors, np.float64))
        self.centre.copy_(torch.from_numpy(shaper.mean_))
        self.matrix.copy_(torch.from_numpy(shaper.matrix_))
        self.texts.fill_(len(vectors))

    def forward(self, vectors: torch.Tensor) -> torch.Tensor:
        """Whiten vectors (B,D).

        Raises:
            InputError: the head is not fitted, so it would change nothing.
        """
        if not int(self.texts):
            raise InputError(
                "The head 'whiten' is not fitted. Call loss.projection_head.fit(encoder.encode(texts)) first, as "
                "essent.training.train does."
            )
        return (vectors.to(self.matrix.dtype) - self.centre) @ self.matrix  # (B,D)


@projection_heads.register("prediction-transform")
class PredictionTransform(ProjectionHead):
    """LayerNorm(activation(W e + b)), the step of a masked language model before it predicts words.

    The weights are the checkpoint's own if it has them; otherwise they are initialized at random (see `origin`).
    """

    before_denoising = True

    def __init__(self, dimensions: int, config: Any, generator: torch.Generator, weights: Sequence[Path]) -> None:
        super().__init__(dimensions, config, generator, weights)
        self.dense = _linear(dimensions, config, generator)
        activation = getattr(config, "hidden_act", None) or getattr(config, "activation", None) or "gelu"
        self.activation = ACT2FN[activation]
        self.norm = nn.LayerNorm(dimensions, eps=float(getattr(config, "layer_norm_eps", 1e-12)))
        transform = _own_transform(weights, dimensions)
        if transform:
            self.load_state_dict(transform)
        self.origin = "taken from the checkpoint" if transform else "initialized: the checkpoint has no prediction head"

    def forward(self, vectors: torch.Tensor) -> torch.Tensor:
        """Map vectors (B,D) by the masked-LM head's transform."""
        normed: torch.Tensor = self.norm(self.activation(self.dense(vectors)))  # (B,D)
        return normed


def _linear(dimensions: int, config: Any, generator: torch.Generator) -> nn.Linear:
    """Create a linear map (D,D), weights N(0, σ²) with the model's `initializer_range` (default 0.02) as σ, bias 0."""
    linear = nn.Linear(dimensions, dimensions)
    deviation = float(getattr(config, "initializer_range", None) or 0.02)
    with torch.no_grad():
        linear.weight.normal_(0.0, deviation, generator=generator)
        linear.bias.zero_()
    return linear


def _own_transform(weights: Sequence[Path], dimensions: int) -> dict[str, torch.Tensor]:
    """Read the prediction head's transform from safetensors files; {} if there is none of shape (D,D)."""
    tensors: dict[str, torch.Tensor] = {}
    for path in weights:
        with open_weights(path, "pt") as file:
            own = [key for key in file.keys() if key.startswith(tuple(chain(*TRANSFORMS)))]  # noqa: SIM118
            tensors |= {key: file.get_tensor(key).float() for key in own}
    for dense, norm in TRANSFORMS:
        prefixes = product((("dense", dense), ("norm", norm)), ("weight", "bias"))
        names = {f"{part}.{kind}": f"{prefix}.{kind}" for (part, prefix), kind in prefixes}
        if set(names.values()) <= set(tensors) and tensors[f"{dense}.weight"].shape == (dimensions, dimensions):
            return {name: tensors[key] for name, key in names.items()}
    return {}


# -- adapters ----------------------------------------------------------------------------------------------------------


def add_adapters(encoder: Encoder, rank: int, seed: int) -> None:
    """Add an adapter to every linear layer of an encoder's model, in place, and freeze all other weights.

    Raises:
        MissingDependencyError: the extra `lora` is not installed.
    """
    peft = optional_import("peft", "lora")
    config = peft.LoraConfig(r=rank, lora_alpha=ALPHA, lora_dropout=DROPOUT, target_modules="all-linear")
    with torch.random.fork_rng(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "fan_in_fan_out is set to False")  # for GPT-2's layers; peft then sets it
        torch.manual_seed(seed)
        peft.inject_adapter_in_model(config, encoder.module.backbone.model, ADAPTER)


def adapter_weights(model: nn.Module) -> dict[str, torch.Tensor]:
    """Return the matrices A and B of all adapters by their names in the model; {} without adapters."""
    return {name: tensor.contiguous() for name, tensor in model.state_dict().items() if ".lora_" in name}


@torch.no_grad()
def merge_adapters(encoder: Encoder) -> dict[str, Any]:
    """Replace each layer that has an adapter by its linear layer with the weight W + (16 / rank) B A, in place.

    Returns:
        Name -> (the replaced layer, its W), from which `merged` restores the adapters.
    """
    model: Any = encoder.module.backbone.model
    adapted = [(name, layer) for name, layer in model.named_modules() if hasattr(layer, "lora_A")]
    layers = {name: (layer, layer.get_base_layer().weight.data) for name, layer in adapted}
    for name, (layer, weight) in layers.items():
        linear = layer.get_base_layer()
        linear.weight.data = weight + layer.get_delta_weight(ADAPTER).to(weight.dtype)
        model.set_submodule(name, linear)
    encoder.module.backbone.forget_states()
    return layers


@contextlib.contextmanager
def merged(encoder: Encoder) -> Iterator[None]:
    """Merge the adapters in this block; afterwards the layers have the same bits as before."""
    layers = merge_adapters(encoder)
    try:
        yield
    finally:
        for name, (layer, weight) in layers.items():
            layer.get_base_layer().weight.data = weight
            encoder.module.backbone.model.set_submodule(name, layer)
        encoder.module.backbone.forget_states()


# -- continuous templates ---------------------------------------------------------------------------------------------


def free_template(encoder: Encoder, templates: Sequence[str]) -> str:
    """Give an encoder, in place, a new token and embedding row for each word of a template; freeze all other weights.

    Returns:
        The template for a recipe, "[V1][V2]{tokens}[V3][MASK][V4]".

    Raises:
        InputError: no template, or more than one.
        UnsupportedRecipeError: no words in the template, or a tokenizer that splits the new tokens.
    """
    if len(templates) != 1:
        raise InputError(
            f"Continuous templates are trained one at a time, got {len(templates)}. Use objective='same-template' or "
            "'same-template-denoised'."
        )
    (template,) = templates
    old = encoder.module.backbone
    frame, own = make_frame(old.tokenizer, template), make_frame(old.tokenizer, None)
    special = set(old.tokenizer.all_special_ids)
    inner = (frame.before[len(own.before) :], frame.after[: len(frame.after) - len(own.after)])
    words = [index for part in inner for index in part if index not in special]
    if not words:
        raise UnsupportedRecipeError(f"The template {template!r} contains no words to train as free vectors.")
    tokenizer = copy.deepcopy(old.tokenizer)
    vocabulary = tokenizer.get_vocab()
    names = list(islice((name for number in count(1) if (name := f"[V{number}]") not in vocabulary), len(words)))
    tokenizer.add_tokens([AddedToken(name, special=True, normalized=False) for name in names], special_tokens=True)
    rows = [int(tokenizer.convert_tokens_to_ids(name)) for name in names]  # type: ignore[arg-type]
    specials = {index: str(tokenizer.convert_ids_to_tokens(index)) for index in special}
    specials[tokenizer.mask_token_id], unused_names = MASK, iter(names)
    written = ["".join(specials.get(index) or next(unused_names) for index in part) for part in inner]
    free = f"{written[0]}{' ' * frame.space}{TOKENS_SLOT}{written[1]}"
    actual, began_as = make_frame(tokenizer, free), dict(zip(rows, words, strict=True))
    before, after = (tuple(began_as.get(index, index) for index in part) for part in (actual.before, actual.after))
    if replace(actual, before=before, after=after, template=frame.template) != frame:
        raise UnsupportedRecipeError(
            f"The tokenizer does not keep the new tokens for the words of {template!r} whole: got {actual}, expected "
            f"{frame}."
        )
    # The table grows if its padding has no rows for the new tokens.
    model: Any = old.model
    size = max(model.get_input_embeddings().weight.shape[0], max(rows) + 1)
    weight = model.resize_token_embeddings(size, mean_resizing=False).weight
    with torch.no_grad():
        weight[rows] = weight[words]
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    # The table's other rows have a gradient of exactly 0, so Adam without weight decay changes no bit of them.
    is_free = torch.zeros(len(weight), 1, dtype=torch.bool)
    is_free[rows] = True
    weight.requires_grad_(True)
    weight.register_hook(lambda gradient: gradient * is_free.to(gradient.device))
    backbone = Backbone(model, tokenizer, old.max_seq_length, old.last)
    replace_module(encoder, RecipeModule(backbone, Recipe(template=free, weights=("mask",))))
    return free


def replace_module(encoder: Encoder, module: RecipeModule) -> None:
    """Replace the encoder's recipe module."""
    encoder._modules[next(iter(encoder._modules))] = module
    encoder._sign()
