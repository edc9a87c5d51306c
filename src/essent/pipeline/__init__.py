"""A recipe on a model: plan, module, static pooling, one pass for many recipes, kept vectors and states."""

from essent.lazy import needs_torch

with needs_torch(__name__):
    from essent.pipeline.cache import PooledCache
    from essent.pipeline.digests import digest_of, digest_of_backbone, key_of
    from essent.pipeline.kept import kept_vectors
    from essent.pipeline.kept_states import KeptStates, StatesStore
    from essent.pipeline.module import RecipeModule
    from essent.pipeline.plan import Plan
    from essent.pipeline.shared_pass import as_module, count_frames, pool_texts
    from essent.pipeline.static_pooler import PORTION

__all__ = [
    "PORTION",
    "KeptStates",
    "Plan",
    "PooledCache",
    "RecipeModule",
    "StatesStore",
    "as_module",
    "count_frames",
    "digest_of",
    "digest_of_backbone",
    "kept_vectors",
    "key_of",
    "pool_texts",
]
