"""Pooled vectors of one recipe's module by a cache: what another fit has computed is not computed again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch

from essent.pipeline.cache import PooledCache, digest_of_backbone, key_of
from essent.pipeline.module import RecipeModule


def kept_vectors(
    module: RecipeModule, cache: PooledCache, texts: list[str], compute: Callable[[list[str]], torch.Tensor]
) -> torch.Tensor:
    """Pooled vectors (N,K) of the texts before shaping, float32 on the CPU.

    Every weight is read for the key, each time: torch's counts of changes miss those through `.data`.

    Args:
        compute: gives those of texts that the cache lacks.
    """
    recipe = replace(module.recipe, shaping=())
    stats = module.stats if module.plan.reads_stats else None
    key = key_of(digest_of_backbone(module.backbone) + module.plan.rows_digest, recipe.digest(), stats)

    def run(missing: list[str]) -> list[np.ndarray]:
        return [compute(missing).cpu().numpy()]

    return torch.from_numpy(cache.vectors([key], [module.plan.width(module.backbone)], texts, run)[0])
