"""A recipe on a model: plan, module, static pooling without padding, one pass for many recipes, kept vectors."""

from essent.lazy import needs_torch

with needs_torch(__name__):
    from essent.pipeline.cache import PooledCache, digest_of, digest_of_backbone, key_of
    from essent.pipeline.kept import kept_vectors
    from essent.pipeline.module import RecipeModule
    from essent.pipeline.plan import Plan
    from essent.pipeline.shared_pass import as_module, count_frames, pool_texts
    from essent.pipeline.static_pooler import PORTION

__all__ = [
    "PORTION",
    "Plan",
    "PooledCache",
    "RecipeModule",
    "as_module",
    "count_frames",
    "digest_of",
    "digest_of_backbone",
    "kept_vectors",
    "key_of",
    "pool_texts",
]
