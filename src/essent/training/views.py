"""Views of a text in training: the frames around it, the batches of them, the pass over one of them.

The collator tokenises each column once and sets it into the frame of each view. The loss then runs the model with the
view's plan, and once more on the templates alone where their bias is taken off: one row for each distinct length.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from sentence_transformers.base.sampler import DefaultBatchSampler
from sentence_transformers.sentence_transformer.data_collator import SentenceTransformerDataCollator

from essent.encoder.pipeline.plan import Plan
from essent.encoder.saving.save import SavableModule
from essent.model.backbone import Backbone
from essent.recipe.tokens.ids import Frame, content_of, pad, text_ids
from essent.recipe.types import Tokens

Place = tuple[int, int]  # column of the data, view


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
