"""The sentences that ship with essent: small, offline, and written by hand for this package.

Two JSON Lines files lie next to this module:

* ``sample_pairs.jsonl``: 160 sentence pairs with a similarity score from 0 (unrelated) to 5 (equivalent), in the manner
  of the SemEval STS tasks, 40 in each of the subsets ``everyday``, ``news``, ``questions`` and ``science``.  Keys:
  ``sentence1``, ``sentence2``, ``score``, ``subset``.  Many pairs are meant to be hard: paraphrases that share few
  words, and near-copies that mean something else.
* ``sample_minimal_pairs.jsonl``: 120 minimal pairs in the manner of HEROS (20 originals, each in the six subsets
  ``Synonym``, ``Antonym``, ``Random MLM``, ``Typo``, ``Negation (Main)`` and ``Negation (Antonym)``).  Keys:
  ``original``, ``converted``, ``subset``.  The fillers of ``Random MLM`` were chosen by hand, not by a model.

The sentences were written from scratch, none copied from a data set.  The scores are one author's judgement, not an
average over annotators, and 160 pairs are few.  A first draft had so many near-copies with low scores that word overlap
predicted the score backwards; about a quarter of the pairs were then exchanged for ordinary ones, with
all-MiniLM-L6-v2 in view, so that model's figure on this set is not an independent one.  Use the set to try things out
and to see that a recipe does something; use the real benchmarks for any number you want to report.
"""

from __future__ import annotations

import json
from pathlib import Path

__all__ = ["sample_minimal_pairs_path", "sample_pairs_path"]


def sample_pairs_path() -> Path:
    """Path of ``sample_pairs.jsonl``, the scored sentence pairs."""
    return Path(__file__).with_name("sample_pairs.jsonl")


def sample_minimal_pairs_path() -> Path:
    """Path of ``sample_minimal_pairs.jsonl``, the minimal pairs."""
    return Path(__file__).with_name("sample_minimal_pairs.jsonl")


def sample_texts() -> list[str]:
    """The 320 sentences of the scored pairs."""
    rows = [json.loads(line) for line in sample_pairs_path().read_text("utf-8").splitlines()]
    return [row[side] for row in rows for side in ("sentence1", "sentence2")]
