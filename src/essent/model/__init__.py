"""Pretrained models: loading, capabilities, hidden states, templates, masked-LM heads and token tables."""

from essent._core.lazy import needs_torch

with needs_torch(__name__):
    import sentence_transformers  # noqa: F401  every file here needs it
