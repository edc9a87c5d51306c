"""Minimal pairs of real comments: 1,000 originals with all subsets, overlap as in HEROS, the paper's words in WordNet.

`make check-data DATA=DIR RAW_MODEL=DIR` runs these; they need WordNet, and corpus/goemotions.jsonl in the folder.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from essent.minimal_pairs.tags import tag_words
from essent.minimal_pairs.words import split_words

from essent.minimal_pairs import (
    MaskedModel,
    Resources,
    build,
    check_rows,
    find_wordnet,
    misspelling_list,
    misspellings,
    overlaps,
)
from essent.minimal_pairs.substitutes import replaceable, substitutes
from essent.tasks.data import read_rows
from essent.tasks.heros import SUBSETS, MinimalPair

pytestmark = pytest.mark.data


def test_the_papers_words_in_the_real_wordnet() -> None:
    """Table 2: for illegal and boosted synonyms and antonyms in the right form."""
    wordnet = find_wordnet()
    found = {}
    for sentence in (
        "And that is why it is (or was) illegal.",
        "You do not know how much that boosted my self-esteem.",
    ):
        tags = tag_words(split_words(sentence), wordnet.count)
        place = next(n for n in replaceable(tags) if tags[n].word.lower in ("illegal", "boosted"))
        found[tags[place].lemma] = [{one.word for one in some} for some in substitutes(wordnet, tags, place)]
    assert "illegitimate" in found["illegal"][0]
    assert "legal" in found["illegal"][1]
    assert found["boost"][0]
    assert "decreased" in found["boost"][1]


def test_a_thousand_originals() -> None:
    texts = [row["text"] for row in read_rows(Path(os.environ["ESSENT_DATA"]) / "corpus" / "goemotions.jsonl")]
    model = os.environ.get("ESSENT_RAW_MODEL")
    assert model, "give a masked language model: make check-data DATA=DIR RAW_MODEL=DIR"
    resources = Resources(find_wordnet(), MaskedModel(model), misspellings(misspelling_list()))
    rows, quality = build(texts, resources, n=1000, seed=0)
    assert quality.originals == 1000
    assert len(rows) == len(SUBSETS) * quality.originals
    pairs = [MinimalPair(row.original, row.converted, row.subset) for row in rows]
    assert check_rows(pairs) == []
    assert overlaps(rows)["all"]["rouge1"] == pytest.approx(92.9, abs=3)
