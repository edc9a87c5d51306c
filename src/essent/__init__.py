"""essent: the best sentence embeddings out of any pretrained transformer, without training.

One equation, every published recipe a row of it:

    e(s) = g( Σ_n ω_n · Σ_k α_k · h_n^(k) )

    import essent
    encoder = essent.Encoder("bert-base-uncased", "first-last | zscore").fit(texts)
    vectors = encoder.encode(texts)
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from essent.version import __version__

if TYPE_CHECKING:
    from essent.encoder import Encoder, EncoderTransformer
    from essent.engine import compile, load
    from essent.evaluation import evaluate
    from essent.recipe import NAMED, TEMPLATES, Recipe
    from essent.selection import search
    from essent.static import StaticEncoder
    from essent.types import EssentError
    from essent.verification import verify

_WHERE = {
    "Encoder": "essent.encoder",
    "EncoderTransformer": "essent.encoder",
    "EssentError": "essent.types",
    "NAMED": "essent.recipe",
    "Recipe": "essent.recipe",
    "StaticEncoder": "essent.static",
    "TEMPLATES": "essent.recipe",
    "compile": "essent.engine",
    "evaluate": "essent.evaluation",
    "load": "essent.engine",
    "search": "essent.selection",
    "verify": "essent.verification",
}

__all__ = [
    "NAMED",
    "TEMPLATES",
    "Encoder",
    "EncoderTransformer",
    "EssentError",
    "Recipe",
    "StaticEncoder",
    "__version__",
    "compile",
    "evaluate",
    "load",
    "search",
    "verify",
]


def __getattr__(name: str) -> Any:
    """Import the public names when they are first used: `import essent` loads no torch."""
    if name not in _WHERE:
        raise AttributeError(f"module 'essent' has no attribute {name!r}; it has {', '.join(__all__)}.")
    return getattr(importlib.import_module(_WHERE[name]), name)


def __dir__() -> list[str]:
    return __all__
