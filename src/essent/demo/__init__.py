"""The demo data that ships with essent: small, offline, and written by hand for this package.

Two JSON Lines files, the first in `essent.tasks`, the other next to this module:

* ``sample_pairs.jsonl``: 160 sentence pairs with a similarity score from 0 (unrelated) to 5 (equivalent), in the manner
  of the SemEval STS tasks, 40 in each of the subsets ``everyday``, ``news``, ``questions`` and ``science``.  Keys:
  ``sentence1``, ``sentence2``, ``score``, ``subset``.  Many pairs are meant to be hard: paraphrases that share few
  words, and near-copies that mean something else.
* ``minimal_pairs.jsonl``: 120 minimal pairs in the manner of HEROS (20 originals, each in the six subsets
  ``Synonym``, ``Antonym``, ``Random MLM``, ``Typo``, ``Negation (Main)`` and ``Negation (Antonym)``).  Keys:
  ``original``, ``converted``, ``subset``.  The fillers of ``Random MLM`` were chosen by hand, not by a model.

The sentences were written from scratch, none copied from a data set.  The scores are one author's judgement, not an
average over annotators, and 160 pairs are few.  A first draft had so many near-copies with low scores that word overlap
predicted the score backwards; about a quarter of the pairs were then exchanged for ordinary ones, with
all-MiniLM-L6-v2 in view, so that model's figure on this set is not an independent one.  Use the set to try things out
and to see that a recipe does something; use the real benchmarks for any number you want to report.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from essent.lazy import lazy_door

if TYPE_CHECKING:
    from essent.demo.files import minimal_pairs_path, pairs_path

_WHERE = {
    "minimal_pairs_path": "essent.demo.files",
    "pairs_path": "essent.demo.files",
}

__all__ = [
    "minimal_pairs_path",
    "pairs_path",
]

__getattr__, __dir__ = lazy_door(__name__, _WHERE)
