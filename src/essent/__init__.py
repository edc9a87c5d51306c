"""essent: the best sentence embeddings out of any pretrained transformer, without training.

One equation covers every published recipe:

    e(s) = g( Σ_n ω_n · Σ_k α_k · h_n^(k) )

Example:
    >>> import essent
    >>> texts = ["A man is playing a flute.", "How far is the moon?", "The cat sleeps."]
    >>> encoder = essent.Encoder("sentence-transformers/all-MiniLM-L6-v2", "first-last | zscore").fit(texts)
    >>> encoder.encode(texts).shape
    (3, 384)
"""

from __future__ import annotations

from essent._core.lazy import lazy_names

# `import essent` loads no torch
__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
