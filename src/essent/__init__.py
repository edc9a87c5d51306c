"""essent: the best sentence embeddings out of any pretrained transformer, without training.

One equation, every published recipe a row of it:

    e(s) = g( Σ_n ω_n · Σ_k α_k · h_n^(k) )

    import essent
    encoder = essent.Encoder("bert-base-uncased", "first-last | zscore").fit(texts)
    vectors = encoder.encode(texts)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from essent._core.lazy import lazy_door
from essent.version import __version__

if TYPE_CHECKING:
    from essent.bulk import embed
    from essent.encoder import Encoder, EncoderTransformer
    from essent.engine import compile, load
    from essent.errors import EssentError
    from essent.improvement import improve
    from essent.recipe import NAMED, TEMPLATES, Recipe
    from essent.selection import evaluate, search
    from essent.static import StaticEncoder, distill
    from essent.training import train
    from essent.verification.golden import verify

_WHERE = {
    "Encoder": "essent.encoder",
    "EncoderTransformer": "essent.encoder",
    "EssentError": "essent.errors",
    "NAMED": "essent.recipe",
    "Recipe": "essent.recipe",
    "StaticEncoder": "essent.static",
    "TEMPLATES": "essent.recipe",
    "__version__": "essent.version",
    "compile": "essent.engine",
    "distill": "essent.static",
    "embed": "essent.bulk",
    "evaluate": "essent.selection",
    "improve": "essent.improvement",
    "load": "essent.engine",
    "search": "essent.selection",
    "train": "essent.training",
    "verify": "essent.verification.golden",
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
    "distill",
    "embed",
    "evaluate",
    "improve",
    "load",
    "search",
    "train",
    "verify",
]

# `import essent` loads no torch
__getattr__, __dir__ = lazy_door(__name__, _WHERE)
