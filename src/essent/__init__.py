"""essent: the best sentence embeddings out of any pretrained transformer, without training.

One equation, every published recipe a row of it:

    e(s) = g( Σ_n ω_n · Σ_k α_k · h_n^(k) )

    import essent
    encoder = essent.Encoder("bert-base-uncased", "first-last | zscore").fit(texts)
    vectors = encoder.encode(texts)
"""

from __future__ import annotations

from essent._core.lazy import lazy_names

# `import essent` loads no torch
__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
