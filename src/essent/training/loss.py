"""The contrastive loss: views of a text, heads that only the loss sees, InfoNCE between them.

    ℓ_i = − log [ exp(cos(e_i, e'_i)/τ) / Σ_j ( exp(cos(e_i, e'_j)/τ) + exp(cos(e_i, n_j)/τ) ) ]

e_i is text i under one view, e'_i its positive under the same or another view, n_j the hard negative of text j where
there are any. With denoising e_i = h_i − ĥ_i: the template's own vector is taken off first.

The collator tokenises each column once and sets it into the frame of each view. The loss then runs the model with the
view's plan, and once more on the templates alone where their bias is taken off: one row for each distinct length.

Source: SimCSE (Gao et al. 2021, eq. 1 and 5); PromptBERT (Jiang et al. 2022, 4.3, eq. 4, Table 8). Heads: SimCSE 3
("MLP during training only"); PromptBERT's code for the supervised model: BERT's prediction-head transform, which maps h
and ĥ
each, before they are subtracted. The whitening is ours.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from sentence_transformers.base.sampler import DefaultBatchSampler
from sentence_transformers.sentence_transformer.data_collator import SentenceTransformerDataCollator
from sentence_transformers.util import load_file_path
from torch import nn
from torch.nn import functional
from transformers.activations import ACT2FN

from essent._core.registry import Registry
from essent.encoder.encoder import Encoder
from essent.encoder.pipeline.plan import Plan
from essent.encoder.saving.save import SavableModule
from essent.errors import InputError, RecipeError
from essent.model.backbone import Backbone
from essent.recipe.shaping.whiten import Whiten
from essent.recipe.tokens.ids import Frame, content_of, pad, text_ids
from essent.recipe.types import Tokens

Place = tuple[int, int]  # column of the data, view
# Where masked language models keep the transform: keys of its linear map and of its LayerNorm.
TRANSFORMS = (
    ("cls.predictions.transform.dense", "cls.predictions.transform.LayerNorm"),  # BERT
    ("lm_head.dense", "lm_head.layer_norm"),  # RoBERTa, XLM-R, MPNet
    ("vocab_transform", "vocab_layer_norm"),  # DistilBERT
)


def info_nce(
    anchors: torch.Tensor, positives: torch.Tensor, negatives: torch.Tensor | None = None, *, temperature: float = 0.05
) -> torch.Tensor:
    """InfoNCE over the negatives of a batch: the mean of ℓ_i, a scalar.

    Args:
        anchors: (B,D). A zero vector has cosine 0 with everything.
        positives: (B,D), row i that of anchor i; the other rows are its negatives.
        negatives: (B,D) hard negatives, each a negative of every anchor.
        temperature: τ.

    Raises:
        InputError: other shapes.
    """
    for name, vectors in (("positives", positives), ("negatives", negatives)):
        if vectors is not None and vectors.shape != anchors.shape:
            raise InputError(f"{name} must have the anchors' shape {tuple(anchors.shape)}, not {tuple(vectors.shape)}.")
    if anchors.ndim != 2 or not len(anchors):
        raise InputError(f"anchors must be (B,D) with at least one row, not {tuple(anchors.shape)}.")
    others = positives if negatives is None else torch.cat([positives, negatives])  # (B,D) or (2B,D)
    with torch.autocast(anchors.device.type, enabled=False):  # cosines of 16 bits have three digits
        exact = torch.promote_types(anchors.dtype, torch.float32)
        units = functional.normalize(anchors.to(exact), dim=1)  # (B,D)
        cosines = units @ functional.normalize(others.to(exact), dim=1).T  # (B,B) or (B,2B)
        return functional.cross_entropy(cosines / temperature, torch.arange(len(anchors), device=anchors.device))


# -- views ------------------------------------------------------------------------------------------------------------


class ViewedModule(SavableModule):
    """A recipe's module that also runs other plans on its backbone: one a view.

    Everything goes through the model's own `forward`, so that a trainer may wrap the model (DistributedDataParallel).
    """

    forward_kwargs: set[str] = {"shape", "plan"}  # noqa: RUF012

    def forward(
        self, features: dict[str, Any], shape: bool = True, plan: Plan | None = None, **kwargs: Any
    ) -> dict[str, Any]:
        """Features to `sentence_embedding` (B,K), by `plan` where one is given.

        Args:
            features: as of `RecipeModule.forward`; `positions` (B,T), counted from 0, when they are not the places.
        """
        if plan is None:
            return super().forward(features, shape=shape, **kwargs)
        attention_mask = features["attention_mask"].bool()
        tokens = Tokens(features["input_ids"], attention_mask, content_of(attention_mask, plan.frame))
        states = self.backbone.states(tokens, plan.required, features.get("positions"))
        vectors, _, _ = plan.pool(tokens, states, self.backbone, None)
        return {**features, "sentence_embedding": vectors}


def bare_template(frame: Frame, lengths: torch.Tensor) -> dict[str, torch.Tensor]:
    """Features of a template with an empty slot, one row a length (U): ids, mask, positions, all (U,F).

    The positions after the slot are shifted by the length of the missing text (PromptBERT 4.3).
    """
    ids = torch.tensor([*frame.before, *frame.after], device=lengths.device).expand(len(lengths), -1)  # (U,F)
    place = torch.arange(len(frame), device=lengths.device).expand(len(lengths), -1)  # (U,F)
    positions = torch.where(place >= len(frame.before), place + lengths.unsqueeze(1), place)
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "positions": positions}


def places_of(columns: int, views: int) -> tuple[Place, ...]:
    """Which column is read under which view: a text twice, or an anchor under the first and all others under the last.

    Args:
        columns: 1 (texts), 2 (pairs) or 3 (with hard negatives).
        views: 1 or 2.
    """
    last = views - 1
    return ((0, 0), *((column, last) for column in range(1, columns))) if columns > 1 else ((0, 0), (0, last))


@dataclass
class ViewCollator(SentenceTransformerDataCollator):
    """Rows of texts to the features of each place: `view0_input_ids`, `view0_attention_mask`, `view1_…`."""

    backbone: Backbone | None = None
    frames: Sequence[Frame] = ()
    places: Sequence[Place] = ()
    max_seq_length: int = 32

    def __call__(self, features: list[dict[str, Any]]) -> dict[str, Any]:
        """One batch of rows, columns in the order of the data."""
        columns = [[str(row[name]) for row in features] for name in features[0]]
        known: dict[tuple[int, bool, bool], list[list[int]]] = {}
        batch: dict[str, Any] = {}
        for number, (column, view) in enumerate(self.places):
            frame = self.frames[view]
            key = (column, frame.space, frame.dot_rule)  # all that the ids of a text depend on
            if key not in known:
                known[key] = self._ids(columns[column], frame)
            sequences = [[*frame.before, *ids, *frame.after] for ids in known[key]]
            tokens = pad(sequences, frame, self._backbone.pad_id)
            batch[f"view{number}_input_ids"] = tokens.ids
            batch[f"view{number}_attention_mask"] = tokens.attention_mask.long()
        return batch

    @property
    def _backbone(self) -> Backbone:
        assert self.backbone is not None  # noqa: S101  a dataclass after one with defaults cannot require it
        return self.backbone

    def _ids(self, texts: list[str], frame: Frame) -> list[list[int]]:
        longest = self._backbone.max_seq_length
        room = self.max_seq_length if longest is None else max(min(self.max_seq_length, longest - len(frame)), 0)
        return [ids[:room] for ids in text_ids(self._backbone.tokenizer, frame.prepare(texts), frame.plain_text)]


class ShuffledBatches(DefaultBatchSampler):
    """Batches in an order that depends on seed and epoch alone, so that a resumed run sees the same ones."""

    def __iter__(self) -> Iterator[list[int]]:
        order = torch.randperm(len(self.sampler), generator=torch.Generator().manual_seed(self.seed + self.epoch))  # type: ignore[arg-type]
        for start in range(0, len(order), self.batch_size):
            yield order[start : start + self.batch_size].tolist()


# -- heads ------------------------------------------------------------------------------------------------------------


class ProjectionHead(nn.Module):
    """Maps vectors (B,D) to vectors (B,D) that only the loss sees."""

    name: ClassVar[str]
    before_denoising: ClassVar[bool] = False  # head(h) − head(ĥ) instead of head(h − ĥ)
    fitted_on: ClassVar[int] = 0  # how many of the texts it is fitted on, before training
    origin: str = ""  # where its weights began

    def fit(self, vectors: np.ndarray) -> None:
        """Learn from vectors (N,D) of texts by the model before training."""

    def stock(self) -> list[nn.Module]:
        """The same as modules of sentence-transformers.

        Raises:
            RecipeError: it has none that compute exactly this.
        """
        raise RecipeError(
            f"keep_projection_head: sentence-transformers has no module that computes the head {self.name!r} exactly; "
            "take projection_head='dense-tanh', or let it be dropped."
        )


projection_heads: Registry[ProjectionHead] = Registry("projection head", "essent.projection_heads")


@projection_heads.register("none")
class NoProjection(ProjectionHead):
    """No head: the vectors unchanged."""

    def __init__(self, dimensions: int, config: Any, generator: torch.Generator, checkpoint: str) -> None:
        super().__init__()

    def forward(self, vectors: torch.Tensor) -> torch.Tensor:
        """Give vectors (B,D) back unchanged."""
        return vectors

    def stock(self) -> list[nn.Module]:
        """No modules: there is nothing to save."""
        return []


@projection_heads.register("dense-tanh")
class DenseTanh(ProjectionHead):
    """tanh(W e + b), as BERT's pooler (SimCSE 3; PromptBERT's unsupervised models)."""

    def __init__(self, dimensions: int, config: Any, generator: torch.Generator, checkpoint: str) -> None:
        super().__init__()
        self.dense = _linear(dimensions, config, generator)
        self.origin = "initialised"

    def forward(self, vectors: torch.Tensor) -> torch.Tensor:
        """Map vectors (B,D) by a dense layer and tanh."""
        return torch.tanh(self.dense(vectors))  # (B,D)

    def stock(self) -> list[nn.Module]:
        """The head as a stock Dense module."""
        from sentence_transformers.base.modules import Dense

        size = self.dense.in_features
        dense = Dense(size, size, activation_function=nn.Tanh())
        dense.linear.load_state_dict(self.dense.state_dict())
        return [dense]


@projection_heads.register("whiten")
class WhiteningHead(ProjectionHead):
    """(e − μ) W, the whitening of the texts' vectors before training; it does not change afterwards.

    Vectors of a pretrained model lie in a narrow cone, and most of what a contrastive step then does is to spread them.
    Whitened ones are spread, so that the steps go into what texts have in common.
    """

    fitted_on = 3000

    def __init__(self, dimensions: int, config: Any, generator: torch.Generator, checkpoint: str) -> None:
        super().__init__()
        self.centre: torch.Tensor
        self.matrix: torch.Tensor
        self.texts: torch.Tensor
        self.register_buffer("centre", torch.zeros(dimensions))
        self.register_buffer("matrix", torch.eye(dimensions))
        self.register_buffer("texts", torch.tensor(0))  # that it is fitted on; a checkpoint keeps it
        self.origin = "fitted on the texts"

    def fit(self, vectors: np.ndarray) -> None:
        """Take the mean and the whitening of vectors (N,D)."""
        shaper = Whiten().fit(np.asarray(vectors, np.float64))
        self.centre.copy_(torch.from_numpy(shaper.mean_))
        self.matrix.copy_(torch.from_numpy(shaper.matrix_))
        self.texts.fill_(len(vectors))

    def forward(self, vectors: torch.Tensor) -> torch.Tensor:
        """Whiten vectors (B,D).

        Raises:
            InputError: nothing has been fitted, so that the head would change nothing.
        """
        if not int(self.texts):
            raise InputError(
                "The head 'whiten' is not fitted: call loss.projection_head.fit(encoder.encode(texts)) first, "
                "as essent.training.train does."
            )
        return (vectors.to(self.matrix.dtype) - self.centre) @ self.matrix  # (B,D)

    def stock(self) -> list[nn.Module]:
        """The whitening as a stock Dense module without an activation."""
        from sentence_transformers.base.modules import Dense

        size = len(self.centre)
        dense = Dense(size, size, activation_function=nn.Identity())
        with torch.no_grad():
            dense.linear.weight.copy_(self.matrix.T)
            assert dense.linear.bias is not None  # noqa: S101  Dense has one by default
            dense.linear.bias.copy_(-self.centre @ self.matrix)
        return [dense]


@projection_heads.register("prediction-transform")
class PredictionTransform(ProjectionHead):
    """LayerNorm(activation(W e + b)): what a masked language model does before it predicts words.

    Its weights are the checkpoint's own where they are there; otherwise they are initialised, and `origin` says so.
    """

    before_denoising = True

    def __init__(self, dimensions: int, config: Any, generator: torch.Generator, checkpoint: str) -> None:
        super().__init__()
        self.dense = _linear(dimensions, config, generator)
        activation = getattr(config, "hidden_act", None) or getattr(config, "activation", None) or "gelu"
        self.activation = ACT2FN[activation]
        self.norm = nn.LayerNorm(dimensions, eps=float(getattr(config, "layer_norm_eps", 1e-12)))
        found = _own_transform(checkpoint, dimensions)
        if found:
            self.load_state_dict(found)
        self.origin = "taken from the checkpoint" if found else "initialised: the checkpoint has no prediction head"

    def forward(self, vectors: torch.Tensor) -> torch.Tensor:
        """Map vectors (B,D) by the masked-LM head's transformation."""
        normed: torch.Tensor = self.norm(self.activation(self.dense(vectors)))  # (B,D)
        return normed


def _linear(dimensions: int, config: Any, generator: torch.Generator) -> nn.Linear:
    """A linear map (D,D), N(0, 0.02²) or whatever the model initialises with, bias 0."""
    linear = nn.Linear(dimensions, dimensions)
    deviation = float(getattr(config, "initializer_range", None) or 0.02)
    with torch.no_grad():
        linear.weight.normal_(0.0, deviation, generator=generator)
        linear.bias.zero_()
    return linear


def _own_transform(checkpoint: str, dimensions: int) -> dict[str, torch.Tensor]:
    """The prediction head's transform in a folder or hub repository, {} where there is none of (D,D)."""
    try:
        path = load_file_path(checkpoint, "model.safetensors") if checkpoint else None
        if path is None:
            return {}
        with safe_open(path, framework="pt") as file:
            keys = set(file.keys())
            for dense, norm in TRANSFORMS:
                names = {
                    f"{part}.{kind}": f"{prefix}.{kind}"
                    for part, prefix in (("dense", dense), ("norm", norm))
                    for kind in ("weight", "bias")
                }
                if set(names.values()) <= keys:
                    found = {name: file.get_tensor(key).float() for name, key in names.items()}
                    return found if found["dense.weight"].shape == (dimensions, dimensions) else {}
    except (OSError, ValueError, SafetensorError):
        return {}  # no such repository, no network: the head is initialised, and says so
    return {}


# -- the loss of a batch ----------------------------------------------------------------------------------------------


class ContrastiveLoss(nn.Module):
    """InfoNCE between views of texts, with or without their templates' biases.

    The bias ĥ of a template is computed once a step for each distinct number of tokens among the texts under it, with
    dropout and with its gradient, as in PromptBERT's code: the template's own reading is trained too.

    Args:
        model: an Encoder whose first module is a `ViewedModule`.
        plans: one a view, each the [MASK] of a template or a recipe without one, not denoised.
        places: which column of the data is read under which view, in the order of `features`.
        projection_head: between the vectors and the loss.
        denoised: take the bias of each view's template off.
        temperature: τ.
    """

    def __init__(
        self,
        model: Encoder,
        plans: Sequence[Plan],
        places: Sequence[Place],
        projection_head: ProjectionHead,
        *,
        denoised: bool = False,
        temperature: float = 0.05,
    ) -> None:
        super().__init__()
        self.model: Any = model  # a trainer may put a wrapped model in its place
        self.plans = list(plans)
        self.tables = nn.ModuleList(plans)  # their buffers move with the loss
        self.places = tuple(places)
        self.projection_head = projection_head
        self.denoised = denoised
        self.temperature = temperature

    def forward(self, features: Iterable[dict[str, Any]], labels: torch.Tensor | None = None) -> torch.Tensor:
        """The loss of a batch, a scalar.

        Args:
            features: `input_ids` and `attention_mask` (B,T) of the anchors, the positives and, if any, hard negatives.
            labels: not read; the trainer's convention.
        """
        vectors = self.embed(list(features))
        return info_nce(*vectors, temperature=self.temperature)

    def embed(self, features: Sequence[dict[str, Any]]) -> list[torch.Tensor]:
        """What the loss compares, (B,D) for each of the places."""
        views = [view for _, view in self.places]
        states = [self._vectors(part, view) for part, view in zip(features, views, strict=True)]
        if not self.denoised:
            return [self.projection_head(vectors) for vectors in states]
        biases = self._biases(features, views)
        if self.projection_head.before_denoising:
            return [
                self.projection_head(h) - self.projection_head(bias) for h, bias in zip(states, biases, strict=True)
            ]
        return [self.projection_head(h - bias) for h, bias in zip(states, biases, strict=True)]

    def _vectors(self, features: dict[str, Any], view: int) -> torch.Tensor:
        output = self.model(dict(features), plan=self.plans[view])
        vectors: torch.Tensor = output["sentence_embedding"]
        return vectors  # (B,D)

    def _biases(self, features: Sequence[dict[str, Any]], views: Sequence[int]) -> list[torch.Tensor]:
        """ĥ of every row of every part: one pass a view, one row a distinct length."""
        found: list[torch.Tensor] = [torch.empty(0)] * len(views)
        for view in dict.fromkeys(views):
            members = [place for place, own in enumerate(views) if own == view]
            frame = self.plans[view].frame
            words = [features[place]["attention_mask"].sum(dim=1) - len(frame) for place in members]  # (B,) each
            lengths, inverse = torch.cat(words).unique(return_inverse=True)  # (U,), (B·members,)
            bias = self._vectors(bare_template(frame, lengths), view)[inverse]  # (B·members,D)
            for place, part in zip(members, bias.split([len(w) for w in words]), strict=True):
                found[place] = part
        return found
