"""A static encoder in the HTTP process: it has no model to run, only rows to add up, and needs no engine beside it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from essent.recipe.tokens.by_word import Ragged, cut
from essent.static.encoder import StaticEncoder


class StaticModel:
    """Texts to vectors in two steps, so that lengths are known before anything is computed or cut.

    Several threads may use it at once.

    Args:
        encoder: as it was loaded; texts are cut here, where it is counted.
    """

    def __init__(self, encoder: StaticEncoder) -> None:
        self.limit, self._left = encoder.table.limit, encoder.table.cuts_left
        self._encoder = StaticEncoder(replace(encoder.table, limit=None))

    def read(self, texts: list[str]) -> Ragged:
        """Ids of all texts, one after the other, and the number (N,) of each, not cut."""
        return self._encoder.ids(texts)

    def vectors(self, found: Ragged, left: bool | None = None) -> np.ndarray:
        """Vectors (N,D) float32 of what `read` gave, cut to the limit."""
        ids, lengths = found
        if self.limit is not None:
            ids, lengths = cut(ids, lengths, self.limit, self._left if left is None else left)
        return self._encoder.means((ids, lengths))
