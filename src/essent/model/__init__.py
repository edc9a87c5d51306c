"""A pretrained transformer: loading, what it offers to recipes, its states, templates, masked-LM head, token tables."""

from essent._core.lazy import needs_torch

with needs_torch(__name__):
    import sentence_transformers  # noqa: F401  every file here needs it
