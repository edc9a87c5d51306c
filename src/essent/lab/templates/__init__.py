"""Search for templates: slot by slot in a grammar (PromptBERT 4.2), or among candidates that a T5 generates."""

from essent._core.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
