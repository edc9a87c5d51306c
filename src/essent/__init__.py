"""essent: the best sentence embeddings out of any pretrained transformer, without training.

One equation, every published recipe a row of it:

    e(s) = g( Σ_n ω_n · Σ_k α_k · h_n^(k) )

    import essent
    encoder = essent.Encoder("bert-base-uncased", "first-last | zscore").fit(texts)
    vectors = encoder.encode(texts)
"""

from __future__ import annotations

from typing import Any

import lazy_loader

from essent._core.lazy import needs_torch

# the names stand in __init__.pyi; `import essent` loads no torch
_load, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> Any:
    with needs_torch(f"essent.{name}"):
        return _load(name)
