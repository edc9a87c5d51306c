"""Model inspection: a pair of sentences, token importance, heads, mask predictions, biases of token embeddings."""

from essent._core.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
