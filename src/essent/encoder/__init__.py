"""An Encoder is a SentenceTransformer that runs a recipe; EncoderTransformer is one in scikit-learn's pipelines."""

from essent.encoder.encoder import Encoder
from essent.encoder.estimator import EncoderTransformer

__all__ = [
    "Encoder",
    "EncoderTransformer",
]
