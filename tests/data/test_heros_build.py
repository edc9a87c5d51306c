"""Minimal pairs of real comments: originals with all subsets, overlap as in HEROS, the paper's words in WordNet.

`make check-data DATA=DIR RAW_MODEL=DIR` runs these; they need WordNet, and corpus/goemotions.jsonl in the folder.
"""

import os
from pathlib import Path

import pytest

from essent.lab.minimal_pairs.english import replaceable
from essent.lab.minimal_pairs.overlap import lexical_overlap
from essent.lab.minimal_pairs.parsing import Parser
from essent.lab.minimal_pairs.resources import MaskedModel, WordNet
from essent.lab.minimal_pairs.run import build
from essent.lab.minimal_pairs.words import substitutes
from essent.tasks.data import located_rows
from essent.tasks.examples import SUBSETS

pytestmark = pytest.mark.data


def test_the_papers_words_in_the_real_wordnet() -> None:
    """Table 2: for illegal and boosted synonyms and antonyms in the right form."""
    wordnet = WordNet()
    docs = Parser()(
        ["And that is why it is (or was) illegal.", "You do not know how much that boosted my self-esteem."]
    )
    words_by_relation: dict[tuple[str, str], set[str]] = {}
    for doc in docs:
        token = next(word for word in replaceable(doc) if word.lower_ in ("illegal", "boosted"))
        for substitute in substitutes(token, wordnet):
            words_by_relation.setdefault((token.lower_, substitute.relation), set()).add(substitute.word)
    assert "illegitimate" in words_by_relation["illegal", "synonym"]
    assert "legal" in words_by_relation["illegal", "antonym"]
    assert words_by_relation["boosted", "synonym"]


def test_originals_of_real_comments() -> None:
    comments = Path(os.environ["ESSENT_DATA"]) / "corpus" / "goemotions.jsonl"
    texts = [row.values["text"] for row in located_rows(comments)]
    model = os.environ.get("ESSENT_RAW_MODEL")
    assert model, "give a masked language model: make check-data DATA=DIR RAW_MODEL=DIR"
    pairs, quality = build(texts, WordNet(), MaskedModel(model), n=1000, seed=0)
    assert quality.originals == 1000  # 1,258 of 16,163 sentences are suitable
    assert len(pairs) == len(SUBSETS) * quality.originals
    assert lexical_overlap(pair[:2] for pair in pairs)["rouge1"] == pytest.approx(92.9, abs=3)
