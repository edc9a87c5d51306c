"""Minimal pairs as in HEROS, from any sentences: six small changes of each, by rules and public lexicons.

Example:
    >>> from essent.lab.minimal_pairs import MaskedModel, Parser, Resources, WordNet, build
    >>> resources = Resources(Parser(), WordNet(), MaskedModel("bert-base-uncased"))
    >>> rows, quality = build(texts, resources, n=1000, seed=0)

Source: Chiang et al. 2023, "Revealing the Blind Spot of Sentence Encoder Evaluation by HEROS", section 2. The authors
chose the words by hand; here they come from WordNet and are scored by a masked language model.
"""

from essent._core.lazy import needs_torch

with needs_torch(__name__):
    from essent.lab.minimal_pairs.build import build
    from essent.lab.minimal_pairs.check import Finding, check_rows
    from essent.lab.minimal_pairs.english import negate, statement
    from essent.lab.minimal_pairs.parsing import Parser
    from essent.lab.minimal_pairs.resources import MaskedModel, Resources, WordNet, misspellings
    from essent.lab.minimal_pairs.rows import PairRow, Quality, lexical_overlap, overlaps, sample, write_rows

__all__ = [
    "Finding",
    "MaskedModel",
    "PairRow",
    "Parser",
    "Quality",
    "Resources",
    "WordNet",
    "build",
    "check_rows",
    "lexical_overlap",
    "misspellings",
    "negate",
    "overlaps",
    "sample",
    "statement",
    "write_rows",
]
