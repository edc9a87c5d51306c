"""Many recipes in few forward passes: recipes with the same template share one pass over the texts.

The pass computes the union of the layers and heads that the recipes read; each recipe then pools its own vectors.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from functools import reduce

import numpy as np
import torch

from essent._core.display import text_progress
from essent._core.texts import distinct_texts, require_finite
from essent.encoder.pipeline.plan import Plan, static_pooler_of
from essent.model.backbone import Backbone
from essent.recipe.tokens.ids import Frame, batches, framed_ids, pad, portions
from essent.recipe.types import CorpusStats, RequiredOutputs


def count_frames(backbone: Backbone, plans: Sequence[Plan], texts: Sequence[str]) -> dict[Frame, CorpusStats]:
    """Count the tokens of the texts for every frame of a plan that reads counts."""
    # the last plan of each frame counts: static ones need no padding
    counting = sorted((plan for plan in plans if plan.reads_stats), key=operator.attrgetter("is_static"))
    return {frame: plan.count(texts, backbone) for frame, plan in {plan.frame: plan for plan in counting}.items()}


@torch.inference_mode()
def pool_texts(
    backbone: Backbone,
    plans: Sequence[Plan],
    texts: Sequence[str],
    stats: dict[Frame, CorpusStats],
    *,
    batch_size: int = 32,
    progress: bool = False,
) -> list[np.ndarray]:
    """Compute the pooled vectors (N,K) of every plan before shaping, with one pass per template.

    Each distinct text is computed once.

    Args:
        stats: token counts by frame, see `count_frames`.

    Raises:
        NotFiniteError: a vector has NaN or infinite numbers; the message names the text.
    """
    distinct, inverse = distinct_texts(texts)
    pooled = [np.zeros((len(distinct), plan.width), np.float32) for plan in plans]
    groups: dict[Frame, list[int]] = {}
    for index, plan in enumerate(plans):
        for frame in plan.frames:
            groups.setdefault(frame, []).append(index)
    backbone.eval()
    device = backbone.static_table.device
    with text_progress(len(distinct) * len(groups), progress) as update:
        for frame, members in groups.items():
            poolers = {i: pooler for i in members if (pooler := static_pooler_of(plans[i], backbone)) is not None}
            members = [i for i in members if i not in poolers]
            required = reduce(operator.or_, (plans[i].required for i in members), RequiredOutputs())
            for start, portion in portions(distinct):
                if poolers:
                    ids = next(iter(poolers.values())).ids(portion)
                    for index, pooler in poolers.items():
                        vectors = pooler.pool(ids, stats.get(frame))
                        pooled[index][start : start + len(portion)] = vectors.float().cpu().numpy()
                if not members:
                    update(len(portion))
                    continue
                sequences = framed_ids(backbone.tokenizer, frame, list(portion), backbone.max_seq_length)
                for chosen in batches([len(s) for s in sequences], batch_size):
                    tokens = pad([sequences[i] for i in chosen], frame, backbone.pad_id).to(device)
                    states = backbone.states(tokens, required)
                    for index in members:
                        vectors, _, _ = plans[index].pool(tokens, states, backbone, stats.get(frame))
                        pooled[index][start + chosen] += vectors.float().cpu().numpy() * plans[index].frames[frame]
                    update(len(chosen))
    return [require_finite(vectors, distinct, backbone.named_parameters())[inverse] for vectors in pooled]
