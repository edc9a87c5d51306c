"""Pooled vectors of one recipe's module by a cache: what another fit has computed is not computed again."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, MutableMapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch.utils.weak import WeakIdKeyDictionary

from essent.model import Backbone
from essent.pipeline.cache import PooledCache, digest_of_backbone, key_of
from essent.pipeline.module import RecipeModule


class DigestOnce:
    """`digest_of_backbone`, which reads every weight again only where torch has counted a change of one.

    Backbones that are cut from one model share its tensors, so they are known by these and not by themselves.
    """

    def __init__(self) -> None:
        self._seen: MutableMapping[torch.Tensor, dict[Hashable, _Seen]] = WeakIdKeyDictionary()

    def __call__(self, backbone: Backbone) -> str:
        tensors = [*backbone.parameters(), *backbone.buffers()]
        if any(tensor.is_inference() for tensor in tensors):
            return digest_of_backbone(backbone)  # torch counts no changes of such
        versions = [tensor._version for tensor in tensors]
        shared: Any = backbone.model.get_input_embeddings().weight
        known = self._seen.setdefault(shared, {})
        seen = known.get((backbone.top, backbone.max_seq_length))
        if seen is None or not seen.is_of(backbone, tensors, versions):
            places = [weakref.ref(tensor) for tensor in tensors]
            seen = _Seen(weakref.ref(backbone.tokenizer), places, versions, digest_of_backbone(backbone))
            known[backbone.top, backbone.max_seq_length] = seen
        return seen.digest


@dataclass(frozen=True)
class _Seen:
    tokenizer: weakref.ref[Any]
    tensors: list[weakref.ref[torch.Tensor]]
    versions: list[int]
    digest: str

    def is_of(self, backbone: Backbone, tensors: list[torch.Tensor], versions: list[int]) -> bool:
        same = len(tensors) == len(self.tensors) and all(a is b() for a, b in zip(tensors, self.tensors, strict=True))
        return same and versions == self.versions and self.tokenizer() is backbone.tokenizer


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
