"""How many tokens of other texts a corpus has: measured on texts that are there, estimated for those to come."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from essent.recipe.tokens.ids import text_ids
from essent.static.regress import flat_ids

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

logger = logging.getLogger(__name__)

MANY_NEW = 0.02  # share of the tokens of further texts that the corpus lacks, from which on this is said


def coverage_of(tokenizer: PreTrainedTokenizerBase, count: np.ndarray, texts: Sequence[str]) -> float:
    """The share of the texts' tokens, each place counted, that a corpus has; NaN for texts without tokens.

    Args:
        count: of each token of the vocabulary in the corpus (V,).
    """
    ids = flat_ids(text_ids(tokenizer, list(texts)))
    return float((count[ids] > 0).mean()) if len(ids) else float("nan")


def share_of_new(sequences: Sequence[Sequence[int]]) -> float:
    """The share of the tokens of further texts that these texts lack: their tokens found once among all (Good 1953).

    Right for texts of one kind in random order; too low for texts of another kind.
    """
    ids = flat_ids(sequences)
    return float((np.bincount(ids) == 1).sum() / len(ids)) if len(ids) else float("nan")


def warn_of_new(sequences: Sequence[Sequence[int]], rule: str) -> None:
    """Say it where a corpus is small; `rule` is what rows of tokens never seen come from."""
    if (share := share_of_new(sequences)) > MANY_NEW:
        logger.warning(
            "The corpus is small: it lacks about %.0f %% of the tokens of further texts of the same kind, and more of "
            "texts of another kind. Their rows come from the rule unseen=%s. Add texts like those to be encoded.",
            100 * share,
            rule,
        )
