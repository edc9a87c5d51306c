"""An Encoder is a SentenceTransformer that runs a recipe; EncoderTransformer is one in scikit-learn's pipelines."""

from essent.lazy import needs_torch

with needs_torch(__name__):
    from essent.encoder.as_it_is import open_as_it_is as open_as_it_is
    from essent.encoder.calibrated import CalibratedTransformer as CalibratedTransformer
    from essent.encoder.encoder import Encoder
    from essent.encoder.estimator import EncoderTransformer

__all__ = [
    "Encoder",
    "EncoderTransformer",
]
