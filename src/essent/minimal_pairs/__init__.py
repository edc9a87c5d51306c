"""Minimal pairs in the manner of HEROS from any sentences: six small changes of each, by rules and public lexicons.

    from essent.minimal_pairs import MaskedModel, Resources, build, find_wordnet, misspelling_list, misspellings

    resources = Resources(find_wordnet(), MaskedModel("bert-base-uncased"), misspellings(misspelling_list()))
    rows, quality = build(texts, resources, n=1000, seed=0)

Source: Chiang et al. 2023, "Revealing the Blind Spot of Sentence Encoder Evaluation by HEROS", section 2; the authors
chose the words by hand, here WordNet offers them and a masked language model judges them.
"""

from essent.lazy import needs_torch

with needs_torch(__name__):
    from essent.minimal_pairs.build import Resources, build
    from essent.minimal_pairs.check import Finding, check_rows
    from essent.minimal_pairs.groups import CannotNegateError
    from essent.minimal_pairs.masked import MaskedModel
    from essent.minimal_pairs.negation import Negation, Style, negate
    from essent.minimal_pairs.parsed import SpacyTagger
    from essent.minimal_pairs.push import push_rows
    from essent.minimal_pairs.quality import Quality, as_dict, overlaps, sample
    from essent.minimal_pairs.rows import PairRow, write_rows
    from essent.minimal_pairs.tags import Tagger
    from essent.minimal_pairs.typos import misspelling_list, misspellings
    from essent.minimal_pairs.wordnet import WordNet, find_wordnet

__all__ = [
    "CannotNegateError",
    "Finding",
    "MaskedModel",
    "Negation",
    "PairRow",
    "Quality",
    "Resources",
    "SpacyTagger",
    "Style",
    "Tagger",
    "WordNet",
    "as_dict",
    "build",
    "check_rows",
    "find_wordnet",
    "misspelling_list",
    "misspellings",
    "negate",
    "overlaps",
    "push_rows",
    "sample",
    "write_rows",
]
