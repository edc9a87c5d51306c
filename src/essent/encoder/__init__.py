"""Encoder, a SentenceTransformer that runs a recipe, and EncoderTransformer, its scikit-learn transformer."""

from essent._core.lazy import needs_torch

with needs_torch(__name__):
    from essent.encoder.encoder import Encoder
    from essent.encoder.estimator import EncoderTransformer

__all__ = [
    "Encoder",
    "EncoderTransformer",
]
