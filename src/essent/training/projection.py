"""Projection heads between the pooled vector and the loss: used in training, dropped afterwards.

Source: SimCSE 3 ("MLP during training only"); PromptBERT's code for the supervised model: BERT's prediction-head
transform, which maps h and ĥ separately, before the subtraction. The whitening head is essent's own.
"""

from __future__ import annotations

from itertools import product
from typing import Any, ClassVar

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from sentence_transformers.util import load_file_path
from torch import nn
from transformers.activations import ACT2FN

from essent._core.registry import Registry
from essent.errors import InputError
from essent.recipe.shaping.affine import Whiten

# Keys of the transform's linear map and LayerNorm in checkpoints of masked language models.
TRANSFORMS = (
    ("cls.predictions.transform.dense", "cls.predictions.transform.LayerNorm"),  # BERT
    ("lm_head.dense", "lm_head.layer_norm"),  # RoBERTa, XLM-R, MPNet
    ("vocab_transform", "vocab_layer_norm"),  # DistilBERT
)


class ProjectionHead(nn.Module):
    """A map from vectors (B,D) to vectors (B,D) that only the loss reads."""

    name: ClassVar[str]
    before_denoising: ClassVar[bool] = False  # head(h) − head(ĥ) instead of head(h − ĥ)
    fitted_on: ClassVar[int] = 0  # number of texts that it is fitted on before training
    origin: str = ""  # where its initial weights are from

    def __init__(self, dimensions: int, config: Any, generator: torch.Generator, checkpoint: str) -> None:
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

    def __init__(self, dimensions: int, config: Any, generator: torch.Generator, checkpoint: str) -> None:
        super().__init__(dimensions, config, generator, checkpoint)
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

    def __init__(self, dimensions: int, config: Any, generator: torch.Generator, checkpoint: str) -> None:
        super().__init__(dimensions, config, generator, checkpoint)
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

    def __init__(self, dimensions: int, config: Any, generator: torch.Generator, checkpoint: str) -> None:
        super().__init__(dimensions, config, generator, checkpoint)
        self.dense = _linear(dimensions, config, generator)
        activation = getattr(config, "hidden_act", None) or getattr(config, "activation", None) or "gelu"
        self.activation = ACT2FN[activation]
        self.norm = nn.LayerNorm(dimensions, eps=float(getattr(config, "layer_norm_eps", 1e-12)))
        transform = _own_transform(checkpoint, dimensions)
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


def _own_transform(checkpoint: str, dimensions: int) -> dict[str, torch.Tensor]:
    """Read the prediction head's transform from a folder or hub repository; {} if there is none of shape (D,D)."""
    try:
        path = load_file_path(checkpoint, "model.safetensors") if checkpoint else None
        if path is None:
            return {}
        with safe_open(path, framework="pt") as file:
            for dense, norm in TRANSFORMS:
                prefixes = product((("dense", dense), ("norm", norm)), ("weight", "bias"))
                names = {f"{part}.{kind}": f"{prefix}.{kind}" for (part, prefix), kind in prefixes}
                if set(names.values()) <= set(file.keys()):
                    transform = {name: file.get_tensor(key).float() for name, key in names.items()}
                    return transform if transform["dense.weight"].shape == (dimensions, dimensions) else {}
    except (OSError, ValueError, SafetensorError):
        pass  # no such repository or no network: the head is initialized at random, as `origin` reports
    return {}
