"""Static encoders: one vector a token or word, none of its context. `distillation` makes them."""

from essent.static.encoder import StaticEncoder

__all__ = ["StaticEncoder"]
