"""Static encoders: one vector per token or word, independent of context; `StaticEncoder` needs no torch."""

from essent._core.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
