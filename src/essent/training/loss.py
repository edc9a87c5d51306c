"""The contrastive loss as sentence-transformers' trainers call losses: `loss(features, labels)`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import nn

from essent.encoder.encoder import Encoder
from essent.encoder.pipeline.plan import Plan
from essent.training.objectives import info_nce
from essent.training.projection import ProjectionHead
from essent.training.views import Place, bare_template


class ContrastiveLoss(nn.Module):
    """InfoNCE between views of texts (`essent.training.objectives`), with or without their templates' biases.

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
