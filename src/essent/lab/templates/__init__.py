"""Search for templates: those of a grammar, or those that a T5 generates (PromptBERT 4.2)."""

from essent._core.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
