"""Minimal pairs as in HEROS, from any sentences: six small changes of each, by rules and public lexicons.

Example:
    >>> from essent.lab.minimal_pairs import MaskedModel, WordNet, build
    >>> pairs, quality = build(texts, WordNet(), MaskedModel("bert-base-uncased"), n=1000, seed=0)

Source: Chiang et al. 2023, "Revealing the Blind Spot of Sentence Encoder Evaluation by HEROS", section 2. The authors
chose the words by hand; here they come from WordNet and are scored by a masked language model.
"""

from essent._core.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
