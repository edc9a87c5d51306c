"""The contrastive loss: views of a text, and InfoNCE between them.

    ℓ_i = − log [ exp(cos(e_i, e'_i)/τ) / Σ_j ( exp(cos(e_i, e'_j)/τ) + exp(cos(e_i, n_j)/τ) ) ]

e_i is text i under one view, e'_i its positive under the same or another view, n_j the hard negative of text j, if
any. With denoising e_i = h_i − ĥ_i: the template's own vector is subtracted first.

The collator tokenizes each column once and puts it into the frame of each view. The loss then runs the model with the
view's plan and, with denoising, once more on the templates alone: one row per distinct length.

Source: SimCSE (Gao et al. 2021, eq. 1 and 5); PromptBERT (Jiang et al. 2022, 4.3, eq. 4, Table 8).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from sentence_transformers.base.sampler import DefaultBatchSampler
from sentence_transformers.sentence_transformer.data_collator import SentenceTransformerDataCollator
from torch import nn
from torch.nn import functional

from essent.encoder.encoder import Encoder
from essent.encoder.module import RecipeModule
from essent.encoder.plan import Plan
from essent.errors import RecipeError
from essent.model.backbone import Backbone
from essent.model.capabilities import capabilities_of, check_recipe
from essent.recipe.tokens import Frame, content_of, framed_ids, pad
from essent.recipe.types import Tokens
from essent.training.parameters import ProjectionHead, projection_heads, replace_module
from essent.training.settings import Settings

ColumnView = tuple[int, int]  # column of the data, view


def info_nce(
    anchors: torch.Tensor, positives: torch.Tensor, negatives: torch.Tensor | None = None, *, temperature: float = 0.05
) -> torch.Tensor:
    """Compute the InfoNCE loss with in-batch negatives: the mean of ℓ_i, a scalar.

    Args:
        anchors: (B,D). A zero vector has cosine 0 with every vector.
        positives: (B,D). Row i is the positive of anchor i; the other rows are its negatives.
        negatives: (B,D) hard negatives, each a negative of every anchor.
        temperature: τ.

    Example:
        >>> import torch
        >>> from essent.training import info_nce
        >>> anchors = torch.eye(4)
        >>> round(info_nce(anchors, anchors).item(), 2), round(info_nce(anchors, anchors.roll(1, dims=0)).item(), 2)
        (0.0, 20.0)
    """
    candidates = positives if negatives is None else torch.cat([positives, negatives])  # (B,D) or (2B,D)
    with torch.autocast(anchors.device.type, enabled=False):  # 16-bit cosines have only three digits
        exact = torch.promote_types(anchors.dtype, torch.float32)
        units = functional.normalize(anchors.to(exact), dim=1)  # (B,D)
        cosines = units @ functional.normalize(candidates.to(exact), dim=1).T  # (B,B) or (B,2B)
        return functional.cross_entropy(cosines / temperature, torch.arange(len(anchors), device=anchors.device))


# -- views ------------------------------------------------------------------------------------------------------------


class ViewedModule(RecipeModule):
    """A recipe's module that also runs other plans on its backbone: one per view.

    All plans run through the model's own `forward`, so a trainer may wrap the model (DistributedDataParallel).
    """

    forward_kwargs: set[str] = {"shape", "plan"}  # noqa: RUF012

    def forward(
        self, features: dict[str, Any], shape: bool = True, plan: Plan | None = None, **kwargs: Any
    ) -> dict[str, Any]:
        """Add `sentence_embedding` (B,K) to features, computed by `plan` if there is one.

        Args:
            features: as in `RecipeModule.forward`; `positions` (B,T) from 0 if they differ from the token indices.
        """
        if plan is None:
            return super().forward(features, shape=shape, **kwargs)
        attention_mask = features["attention_mask"].bool()
        tokens = Tokens(features["input_ids"], attention_mask, content_of(attention_mask, plan.frame))
        states = self.backbone.states(tokens, plan.required, features.get("positions"))
        vectors, _, _ = plan.pool(tokens, states, self.backbone, None)
        return {**features, "sentence_embedding": vectors}


def bare_template(frame: Frame, lengths: torch.Tensor) -> dict[str, torch.Tensor]:
    """Return features of a template with an empty slot, one row per length (U): ids, mask, positions, all (U,F).

    The positions after the slot are shifted by the length of the missing text (PromptBERT 4.3).
    """
    ids = torch.tensor([*frame.before, *frame.after], device=lengths.device).expand(len(lengths), -1)  # (U,F)
    frame_index = torch.arange(len(frame), device=lengths.device).expand(len(lengths), -1)  # (U,F)
    positions = torch.where(frame_index >= len(frame.before), frame_index + lengths.unsqueeze(1), frame_index)
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "positions": positions}


@dataclass(kw_only=True)
class ViewCollator(SentenceTransformerDataCollator):
    """Collator from rows of texts to features of each view: `view0_input_ids`, `view0_attention_mask`, `view1_…`."""

    backbone: Backbone
    frames: Sequence[Frame]
    column_views: Sequence[ColumnView]
    max_seq_length: int = 32

    def __call__(self, features: list[dict[str, Any]]) -> dict[str, Any]:
        """Return the features of a batch of rows, whose columns are in the order of the data."""
        columns = [[str(row[name]) for row in features] for name in features[0]]
        batch: dict[str, Any] = {}
        for number, (column, view) in enumerate(self.column_views):
            frame = self.frames[view]
            limit = self.max_seq_length * (1 if frame.between is None else 2) + len(frame)
            limit = min(limit, self.backbone.max_seq_length or limit)
            ids = framed_ids(self.backbone.tokenizer, frame, columns[column], limit)
            tokens = pad(ids, frame, self.backbone.pad_id)
            batch[f"view{number}_input_ids"] = tokens.ids
            batch[f"view{number}_attention_mask"] = tokens.attention_mask.long()
        return batch


class ShuffledBatches(DefaultBatchSampler):
    """Batch sampler whose order depends only on seed and epoch, so a resumed run has the same batches."""

    def __iter__(self) -> Iterator[list[int]]:
        order = torch.randperm(len(self.sampler), generator=torch.Generator().manual_seed(self.seed + self.epoch))  # type: ignore[arg-type]
        for start in range(0, len(order), self.batch_size):
            yield order[start : start + self.batch_size].tolist()


# -- the loss of a batch ----------------------------------------------------------------------------------------------


class ContrastiveLoss(nn.Module):
    """InfoNCE between views of texts, with or without subtracting the bias of their templates.

    The bias ĥ of a template is computed once per step for each distinct number of tokens of its texts, with dropout
    and with its gradient, as in PromptBERT's code: the vector of the bare template is trained too.

    Args:
        model: an Encoder whose first module is a `ViewedModule`.
        plans: one per view, not denoised: for the [MASK] of a template, or for a recipe without template.
        column_views: which column of the data is read under which view, in the order of `features`.
        projection_head: module between the vectors and the loss.
        denoised: subtract the bias of each view's template.
        temperature: τ.

    Example:
        >>> from essent import Encoder
        >>> from essent.training import make_collator, make_loss, resolve_settings
        >>> encoder = Encoder("my-mlm", "mean")
        >>> loss = make_loss(encoder, resolve_settings("simcse-unsup", "bert", {}))
        >>> batch = make_collator(encoder, loss)([{"text": "Two dogs run."}, {"text": "A man plays a flute."}])
        >>> views = [{name[6:]: batch[name] for name in batch if name.startswith(view)} for view in ("view0", "view1")]
        >>> loss(views).shape
        torch.Size([])
    """

    def __init__(
        self,
        model: Encoder,
        plans: Sequence[Plan],
        column_views: Sequence[ColumnView],
        projection_head: ProjectionHead,
        *,
        denoised: bool = False,
        temperature: float = 0.05,
    ) -> None:
        super().__init__()
        self.model: Any = model  # a trainer may replace it by a wrapper
        self.plans: Any = nn.ModuleList(plans)  # their buffers move with the loss
        self.column_views = tuple(column_views)
        self.projection_head = projection_head
        self.denoised = denoised
        self.temperature = temperature

    def forward(self, features: Iterable[dict[str, Any]], labels: torch.Tensor | None = None) -> torch.Tensor:
        """Compute the loss of a batch, a scalar.

        Args:
            features: `input_ids` and `attention_mask` (B,T) of the anchors, the positives and, if any, hard negatives.
            labels: ignored; the trainer passes them.
        """
        return info_nce(*self.embed(list(features)), temperature=self.temperature)

    def embed(self, features: Sequence[dict[str, Any]]) -> list[torch.Tensor]:
        """Compute the vectors that the loss compares: (B,D) for each item of `features`."""
        views, head = [view for _, view in self.column_views], self.projection_head
        states = [self._vectors(part, view) for part, view in zip(features, views, strict=True)]
        if not self.denoised:
            return [head(vectors) for vectors in states]
        pairs = zip(states, self._biases(features, views), strict=True)
        if head.before_denoising:
            return [head(h) - head(bias) for h, bias in pairs]
        return [head(h - bias) for h, bias in pairs]

    def _vectors(self, features: dict[str, Any], view: int) -> Any:
        return self.model(dict(features), plan=self.plans[view])["sentence_embedding"]  # (B,D)

    def _biases(self, features: Sequence[dict[str, Any]], views: Sequence[int]) -> list[torch.Tensor]:
        """Compute ĥ for every row of every part: one pass per view, one row per distinct length."""
        biases: dict[int, torch.Tensor] = {}
        for view in dict.fromkeys(views):
            members = [index for index, own in enumerate(views) if own == view]
            frame = self.plans[view].frame
            counts = torch.stack([features[index]["attention_mask"].sum(dim=1) for index in members])  # (M,B)
            lengths, inverse = (counts - len(frame)).unique(return_inverse=True)  # (U,), (M,B)
            biases |= zip(members, self._vectors(bare_template(frame, lengths), view)[inverse], strict=True)  # (M,B,D)
        return [biases[index] for index in range(len(views))]


def make_loss(
    encoder: Encoder, settings: Settings, columns: int = 1, *, weights: Sequence[Path] = ()
) -> ContrastiveLoss:
    """Create the loss of a run, for a trainer of your own, and set the encoder's recipe for prediction.

    The head `whiten` must then be fitted: `loss.projection_head.fit(encoder.encode(texts))`.

    Args:
        encoder: the encoder to train; it is changed in place.
        settings: the settings of the run, from `resolve_settings`.
        columns: number of text columns in the data: 1 (texts), 2 (pairs), 3 (with hard negatives).
        weights: the model's safetensors files, from which the prediction transform reads its weights.

    Raises:
        UnsupportedRecipeError: the model cannot run the templates, or has no room for them.
        RecipeError: weights that count tokens.

    Example:
        >>> from essent import Encoder
        >>> from essent.training import make_loss, resolve_settings
        >>> encoder = Encoder("my-mlm", "mean")
        >>> loss = make_loss(encoder, resolve_settings("promptbert-unsup", "bert", {"projection_head": "none"}))
        >>> len(loss.plans), loss.denoised, loss.temperature
        (2, True, 0.05)
    """
    backbone = encoder.module.backbone
    for recipe in (settings.predicts, *settings.views):
        if settings.row.denoised:
            recipe = replace(recipe, layers=(("L-bias", 1.0),))
        check_recipe(recipe, capabilities_of(backbone))
    generator = torch.Generator().manual_seed(settings.seed)
    head = projection_heads[settings.projection_head](backbone.dimensions, backbone.model.config, generator, weights)
    module = ViewedModule(backbone, settings.predicts)
    if module.plan.reads_stats:
        raise RecipeError(
            f"Cannot train with the recipe {str(settings.predicts)!r}: its weights need token counts. Train with "
            "another recipe (mean, cls …) and set these weights afterwards."
        )
    plans = [Plan(recipe, backbone) for recipe in settings.views]
    replace_module(encoder, module)
    last = len(plans) - 1  # a text is read under both views; of pairs, the anchor under the first, others the last
    column_views = [(0, 0), *((column, last) for column in (range(1, columns) if columns > 1 else (0,)))]
    denoised, temperature = settings.row.denoised, settings.temperature
    return ContrastiveLoss(encoder, plans, column_views, head, denoised=denoised, temperature=temperature)


def make_collator(encoder: Encoder, loss: ContrastiveLoss, max_seq_length: int = 32) -> ViewCollator:
    """Create the data collator for a contrastive loss; pass it to the trainer as `data_collator`.

    Args:
        encoder: the encoder whose tokenizer is used.
        loss: the loss, from `make_loss`.
        max_seq_length: maximum number of tokens per text, special tokens and template not counted.

    Example:
        >>> from essent import Encoder
        >>> from essent.training import make_collator, make_loss, resolve_settings
        >>> encoder = Encoder("my-mlm", "mean")
        >>> collator = make_collator(encoder, make_loss(encoder, resolve_settings("promptbert-unsup", "bert", {})))
        >>> sorted(collator([{"text": "Two dogs run."}, {"text": "A man plays a flute."}]))
        ['view0_attention_mask', 'view0_input_ids', 'view1_attention_mask', 'view1_input_ids']
    """
    return ViewCollator(
        encoder.preprocess,
        backbone=encoder.module.backbone,
        frames=[plan.frame for plan in loss.plans],
        column_views=loss.column_views,
        max_seq_length=max_seq_length,
    )
