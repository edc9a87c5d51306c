"""How sure it is that a synonym or an antonym is good in its place: log-odds from what can be known of it.

Logistic regressions fitted to 2,156 judgements of pairs that were built with a masked model of six layers (good:
grammatical, of the sense that the word has there, a fitting collocation), without what `seldom.py` lists now.
Each reading sorted by a fit to the other ones: areas under the curve of 0.77 (synonyms) and 0.74 (antonyms).
"""

from __future__ import annotations

import math
from typing import NamedTuple

UNSEEN = -12.0  # natural log of the probability of a word that the model has no token for
LEAST = -14.0  # improbable is improbable
SYNONYM_WEIGHT = 3.0  # of the synonym's log-probability against the antonym's: it is the harder of the two


class Evidence(NamedTuple):
    """What is known of a replacement in its place.

    Attributes:
        similarity: of its state and the replaced word's, less what any two words have in common.
        prior: log share of the sense, less the penalties of WordNet's relation to it.
        probability: its log-probability in the place; -inf without a token.
        own: that of the replaced word, or 3 below the likeliest filler where that is more.
        senses: that WordNet has of the replaced word.
        verb: whether it is one, not an adjective.
        prefix: whether it is the word with or without a prefix: unhappy.
    """

    similarity: float
    prior: float
    probability: float
    own: float
    senses: int
    verb: bool = False
    prefix: bool = False

    @property
    def synonym(self) -> float:
        """Log-odds that it is a good synonym."""
        return (
            4.9
            + 4.1 * self.similarity
            + 0.25 * self.prior
            + 0.18 * self._bounded
            + 0.43 * max(self.own, UNSEEN)
            - 0.93 * math.log(self.senses)
        )

    @property
    def antonym(self) -> float:
        """Log-odds that it is a good antonym."""
        return (
            4.2
            + 2.2 * self.similarity
            + 0.35 * self.prior
            + 0.18 * self._bounded
            + 0.23 * max(self.own, UNSEEN)
            - 0.23 * math.log(self.senses)
            + 0.93 * self.prefix
            - 0.60 * self.verb
        )

    @property
    def _bounded(self) -> float:
        return max(self.probability, LEAST) if math.isfinite(self.probability) else UNSEEN


def confidence(synonym: float, antonym: float) -> float:
    """One number for both log-odds: how probable it is that both are good, the synonym weighing more."""
    return -SYNONYM_WEIGHT * math.log1p(math.exp(-synonym)) - math.log1p(math.exp(-antonym))
