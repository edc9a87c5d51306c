"""Sample data of essent: a small offline data set, written by hand for this package.

The package contains two JSON Lines files:

* ``sample_pairs.jsonl``: 160 sentence pairs with a similarity score from 0 (unrelated) to 5 (equivalent), in the manner
  of the SemEval STS tasks, 40 in each of the subsets ``everyday``, ``news``, ``questions`` and ``science``. Keys:
  ``sentence1``, ``sentence2``, ``score``, ``subset``. Many pairs are hard: paraphrases with few common words, and
  near-copies of different meaning.
* ``sample_minimal_pairs.jsonl``: 120 minimal pairs in the manner of HEROS (20 originals, each in the six subsets
  ``Synonym``, ``Antonym``, ``Random MLM``, ``Typo``, ``Negation (Main)`` and ``Negation (Antonym)``). Keys:
  ``original``, ``converted``, ``subset``. The fillers of ``Random MLM`` were chosen by hand, not by a model.

No sentence is copied from another data set. The scores are labels of one author, not an average over annotators, and
160 pairs are few. A first draft had so many near-copies with low scores that word overlap was negatively correlated
with the score; about a quarter of the pairs were then replaced by ordinary ones, checked with all-MiniLM-L6-v2, so
the score of this model on the set is not independent. Use the data to try out recipes; report scores on real
benchmarks.
"""

from __future__ import annotations

from pathlib import Path

from essent.tasks.data import read_texts

__all__ = ["sample_minimal_pairs_path", "sample_pairs_path"]


def sample_pairs_path() -> Path:
    """Return the path of ``sample_pairs.jsonl``, the scored sentence pairs.

    Example:
        >>> from essent.tasks import load_pairs
        >>> from essent.tasks.sample import sample_pairs_path
        >>> len(load_pairs(sample_pairs_path()))
        160
    """
    return Path(__file__).with_name("sample_pairs.jsonl")


def sample_minimal_pairs_path() -> Path:
    """Return the path of ``sample_minimal_pairs.jsonl``, the minimal pairs.

    Example:
        >>> from essent.tasks import load_heros
        >>> from essent.tasks.sample import sample_minimal_pairs_path
        >>> len(load_heros(sample_minimal_pairs_path()))
        120
    """
    return Path(__file__).with_name("sample_minimal_pairs.jsonl")


def sample_texts() -> list[str]:
    """Return the 320 sentences of the scored pairs."""
    return read_texts(sample_pairs_path())
