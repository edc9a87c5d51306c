"""Pooled vectors of one recipe's module by a cache: what another fit has computed is not computed again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch

from essent.encoder.pipeline.cache import PooledCache
from essent.encoder.pipeline.digests import digest_of_backbone, key_of
from essent.encoder.pipeline.kept_states import KeptStates
from essent.encoder.pipeline.module import RecipeModule


def kept_vectors(
    module: RecipeModule,
    cache: PooledCache,
    states: KeptStates | None,
    texts: list[str],
    batch_size: int,
    compute: Callable[[list[str]], torch.Tensor],
) -> torch.Tensor:
    """Pooled vectors (N,K) of the texts before shaping, float32 on the CPU.

    Args:
        states: what to pool those from that the cache lacks, where it has them.
        compute: gives the others.
    """
    recipe = replace(module.recipe, shaping=())
    stats = module.stats if module.plan.reads_stats else None
    key = key_of(digest_of_backbone(module.backbone) + module.plan.rows_digest, recipe.digest(), stats)

    def run(missing: list[str]) -> list[np.ndarray]:
        found = compute(missing) if states is None else states.pool(module, missing, batch_size, compute)
        return [found.cpu().numpy()]

    return torch.from_numpy(cache.vectors([key], [module.plan.width(module.backbone)], texts, run)[0])
