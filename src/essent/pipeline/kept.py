"""Pooled vectors of one recipe's module by a cache: what another fit has computed is not computed again."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from torch import nn

from essent.model import Backbone
from essent.pipeline.cache import PooledCache, digest_of_backbone, key_of
from essent.pipeline.module import RecipeModule


class DigestOnce:
    """`digest_of_backbone`, which reads every weight again only where torch has counted a change of one."""

    def __init__(self) -> None:
        self._seen: weakref.WeakKeyDictionary[nn.Module, tuple[object, str]] = weakref.WeakKeyDictionary()

    def __call__(self, backbone: Backbone) -> str:
        if any(tensor.is_inference() for tensor in backbone.state_dict().values()):
            return digest_of_backbone(backbone)  # torch counts no changes of such
        state = (
            backbone.top,
            backbone.max_seq_length,
            id(backbone.tokenizer),
            [(name, t.data_ptr(), t._version, t.dtype, t.shape) for name, t in backbone.state_dict().items()],
        )
        seen = self._seen.get(backbone.model)
        if seen is None or seen[0] != state:
            self._seen[backbone.model] = seen = (state, digest_of_backbone(backbone))
        return seen[1]


_digest = DigestOnce()


def kept_vectors(
    module: RecipeModule, cache: PooledCache, texts: list[str], compute: Callable[[list[str]], torch.Tensor]
) -> torch.Tensor:
    """Pooled vectors (N,K) of the texts before shaping, float32 on the CPU.

    Args:
        compute: gives those of texts that the cache lacks.
    """
    recipe = replace(module.recipe, shaping=())
    stats = module.stats if module.plan.reads_stats else None
    key = key_of(_digest(module.backbone) + module.plan.rows_digest, recipe.digest(), stats)

    def run(missing: list[str]) -> list[np.ndarray]:
        return [compute(missing).cpu().numpy()]

    return torch.from_numpy(cache.vectors([key], [module.plan.width(module.backbone)], texts, run)[0])
