"""The contrastive loss: views of a text, and InfoNCE between them.

    ℓ_i = − log [ exp(cos(e_i, e'_i)/τ) / Σ_j ( exp(cos(e_i, e'_j)/τ) + exp(cos(e_i, n_j)/τ) ) ]

e_i is text i under one view, e'_i its positive under the same or another view, n_j the hard negative of text j where
there are any. With denoising e_i = h_i − ĥ_i: the template's own vector is taken off first.

The collator tokenises each column once and sets it into the frame of each view. The loss then runs the model with the
view's plan, and once more on the templates alone where their bias is taken off: one row for each distinct length.

Source: SimCSE (Gao et al. 2021, eq. 1 and 5); PromptBERT (Jiang et al. 2022, 4.3, eq. 4, Table 8).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from sentence_transformers.base.sampler import DefaultBatchSampler
from sentence_transformers.sentence_transformer.data_collator import SentenceTransformerDataCollator
from torch import nn
from torch.nn import functional

from essent.encoder.encoder import Encoder
from essent.encoder.pipeline.plan import Plan
from essent.encoder.saving.save import SavableModule
from essent.encoder.saving.static_table import NoStockModulesError
from essent.encoder.saving.stock_modules import stock_modules
from essent.errors import InputError, RecipeError
from essent.model.backbone import Backbone
from essent.model.capabilities import capabilities_of
from essent.recipe.tokens.ids import Frame, content_of, pad, text_ids
from essent.recipe.types import Tokens
from essent.training.continuous import replace_module
from essent.training.projection import ProjectionHead, projection_heads
from essent.training.settings import Settings

ColumnView = tuple[int, int]  # column of the data, view


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
    candidates = positives if negatives is None else torch.cat([positives, negatives])  # (B,D) or (2B,D)
    with torch.autocast(anchors.device.type, enabled=False):  # cosines of 16 bits have three digits
        exact = torch.promote_types(anchors.dtype, torch.float32)
        units = functional.normalize(anchors.to(exact), dim=1)  # (B,D)
        cosines = units @ functional.normalize(candidates.to(exact), dim=1).T  # (B,B) or (B,2B)
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
    frame_index = torch.arange(len(frame), device=lengths.device).expand(len(lengths), -1)  # (U,F)
    positions = torch.where(frame_index >= len(frame.before), frame_index + lengths.unsqueeze(1), frame_index)
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "positions": positions}


def places_of(columns: int, views: int) -> tuple[ColumnView, ...]:
    """Which column is read under which view: a text twice, or an anchor under the first and all others under the last.

    Args:
        columns: 1 (texts), 2 (pairs) or 3 (with hard negatives).
        views: 1 or 2.
    """
    last = views - 1
    return ((0, 0), *((column, last) for column in range(1, columns))) if columns > 1 else ((0, 0), (0, last))


@dataclass(kw_only=True)
class ViewCollator(SentenceTransformerDataCollator):
    """Rows of texts to the features of each place: `view0_input_ids`, `view0_attention_mask`, `view1_…`."""

    backbone: Backbone
    frames: Sequence[Frame]
    places: Sequence[ColumnView]
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
            tokens = pad(sequences, frame, self.backbone.pad_id)
            batch[f"view{number}_input_ids"] = tokens.ids
            batch[f"view{number}_attention_mask"] = tokens.attention_mask.long()
        return batch

    def _ids(self, texts: list[str], frame: Frame) -> list[list[int]]:
        longest = self.backbone.max_seq_length
        room = self.max_seq_length if longest is None else max(min(self.max_seq_length, longest - len(frame)), 0)
        return [ids[:room] for ids in text_ids(self.backbone.tokenizer, frame.prepare(texts), frame.plain_text)]


class ShuffledBatches(DefaultBatchSampler):
    """Batches in an order that depends on seed and epoch alone, so that a resumed run sees the same ones."""

    def __iter__(self) -> Iterator[list[int]]:
        order = torch.randperm(len(self.sampler), generator=torch.Generator().manual_seed(self.seed + self.epoch))  # type: ignore[arg-type]
        for start in range(0, len(order), self.batch_size):
            yield order[start : start + self.batch_size].tolist()


# -- the loss of a batch ----------------------------------------------------------------------------------------------


class ContrastiveLoss(nn.Module):
    """InfoNCE between views of texts, with or without their templates' biases.

    The bias ĥ of a template is computed once a step for each distinct number of tokens among the texts under it, with
    dropout and with its gradient, as in PromptBERT's code: the template's own reading is trained too.

    Args:
        model: an Encoder whose first module is a `ViewedModule`.
        plans: one a view, each the [MASK] of a template or a recipe without one, not denoised.
        column_views: which column of the data is read under which view, in the order of `features`.
        projection_head: between the vectors and the loss.
        denoised: take the bias of each view's template off.
        temperature: τ.
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
        self.model: Any = model  # a trainer may put a wrapped model in its place
        self.plans = list(plans)
        self.tables = nn.ModuleList(plans)  # their buffers move with the loss
        self.places = tuple(column_views)
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
        views, head = [view for _, view in self.places], self.projection_head
        states = [self._vectors(part, view) for part, view in zip(features, views, strict=True)]
        if not self.denoised:
            return [head(vectors) for vectors in states]
        pairs = zip(states, self._biases(features, views), strict=True)
        if head.before_denoising:
            return [head(h) - head(bias) for h, bias in pairs]
        return [head(h - bias) for h, bias in pairs]

    def _vectors(self, features: dict[str, Any], view: int) -> torch.Tensor:
        vectors: torch.Tensor = self.model(dict(features), plan=self.plans[view])["sentence_embedding"]
        return vectors  # (B,D)

    def _biases(self, features: Sequence[dict[str, Any]], views: Sequence[int]) -> list[torch.Tensor]:
        """ĥ of every row of every part: one pass a view, one row a distinct length."""
        biases: dict[int, torch.Tensor] = {}
        for view in dict.fromkeys(views):
            members = [index for index, own in enumerate(views) if own == view]
            frame = self.plans[view].frame
            words = torch.stack([features[index]["attention_mask"].sum(dim=1) for index in members]) - len(
                frame
            )  # (M,B)
            lengths, inverse = words.unique(return_inverse=True)  # (U,), (M,B)
            biases |= zip(members, self._vectors(bare_template(frame, lengths), view)[inverse], strict=True)  # (M,B,D)
        return [biases[index] for index in range(len(views))]


def make_loss(encoder: Encoder, settings: Settings, columns: int = 1, *, checkpoint: str = "") -> ContrastiveLoss:
    """The loss of a run, for a trainer of your own; the encoder takes on the recipe that will predict.

    The head `whiten` must then be fitted: `loss.projection_head.fit(encoder.encode(texts))`.

    Args:
        encoder: changed in place, as training changes it.
        columns: of the data: 1 (texts), 2 (pairs), 3 (with hard negatives).
        checkpoint: where the prediction head's weights may be found.

    Raises:
        UnsupportedRecipeError: the model cannot run the templates, or has no room for them.
        RecipeError: weights that count tokens, `keep_projection_head` for a head or a recipe that has no stock modules.
    """
    backbone = encoder.module.backbone
    settings.check(capabilities_of(backbone))
    generator = torch.Generator().manual_seed(settings.seed)
    head = projection_heads[settings.projection_head](backbone.dimensions, backbone.model.config, generator, checkpoint)
    module = ViewedModule(backbone, settings.predicts)
    if module.plan.reads_stats:
        raise RecipeError(
            f"{str(settings.predicts)!r} counts tokens, which nothing does in training; train with weights that do not "
            "(mean, cls …), and take these afterwards."
        )
    plans = [Plan(recipe, backbone) for recipe in settings.views]
    replace_module(encoder, module)
    if settings.keep_projection_head:  # refused before anything is trained
        head.stock()
        try:
            stock_modules(encoder.module)
        except NoStockModulesError as error:
            raise RecipeError(
                f"keep_projection_head saves stock modules, and {str(encoder.recipe)!r} has none: {error}."
            ) from None
    return ContrastiveLoss(
        encoder,
        plans,
        places_of(columns, len(settings.views)),
        head,
        denoised=settings.row.denoised,
        temperature=settings.temperature,
    )


def make_collator(encoder: Encoder, loss: ContrastiveLoss, max_seq_length: int = 32) -> ViewCollator:
    """What makes the batches of such a loss: give it to the trainer as `data_collator`."""
    return ViewCollator(
        encoder.preprocess,
        backbone=encoder.module.backbone,
        frames=[plan.frame for plan in loss.plans],
        places=loss.places,
        max_seq_length=max_seq_length,
    )
