"""WordNet by NLTK: what is read, and what is said where there is none."""

from __future__ import annotations

from pathlib import Path

import nltk.data
import pytest

from essent.minimal_pairs import English, Parser, WordNet
from essent.minimal_pairs.substitutes import Substitutes
from essent.minimal_pairs.wordnet import spelled
from essent.types import DataError


@pytest.fixture(scope="module")
def wordnet(wordnet_folder: Path) -> WordNet:
    return WordNet(wordnet_folder)


def test_senses_and_counts(wordnet: WordNet) -> None:
    ((uses, sense),) = wordnet.senses("boost", "verb")
    assert (uses, spelled(sense)) == (4, "boost")
    hike, up = sense.synset().lemmas()[1:]
    assert (spelled(hike), spelled(up)) == ("hike", "hike up")
    assert wordnet.rank(hike, "verb") == 1
    assert wordnet.senses("boost", "noun") == []
    assert wordnet.count("buy", "verb") == 30
    assert "hike up" in wordnet
    assert "blorp" not in wordnet


def test_only_the_word_itself(wordnet: WordNet) -> None:
    """NLTK finds boost for boosts; what is asked for is a lemma."""
    assert wordnet.senses("boosts", "verb") == []


def test_a_rare_sense_comes_after_the_usual_one(wordnet: WordNet) -> None:
    (often, slope), (seldom, house) = wordnet.senses("bank", "noun")
    assert (often, seldom) == (5, 3)
    assert [wordnet.rank(one, "noun") for one in (slope, house)] == [1, 2]


def test_relatives_are_all_that_a_random_word_may_not_be(wordnet: WordNet) -> None:
    assert {"happy", "glad", "unhappy", "sad", "happiness"} <= wordnet.relatives("happy")
    assert {"increase", "decrease", "lower", "hike"} <= wordnet.relatives("boost")
    assert wordnet.relatives("blorp") == {"blorp"}


def test_where_it_is_looked_for(wordnet_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nltk.data, "path", [str(tmp_path)])
    with pytest.raises(DataError, match=r"python -m nltk\.downloader wordnet"):
        WordNet()
    with pytest.raises(DataError, match="nowhere"):
        WordNet(tmp_path / "nowhere")
    assert "boost" in WordNet(wordnet_folder)


@pytest.mark.parametrize(
    ("sentence", "word", "wanted"),
    [
        ("She stopped the old car.", "stopped", ["halted", "started"]),
        ("She stopped the car and had to start it again.", "stopped", []),  # not "started the car and had to start it"
        ("We hate noise and detest crowds.", "hate", []),  # not "detest noise and detest crowds"
    ],
)
def test_what_the_sentence_says_already_is_not_offered(
    sentence: str, word: str, wanted: list[str], wordnet: WordNet, parser: Parser
) -> None:
    (doc,) = parser([sentence])
    token = next(one for one in doc if one.lower_ == word)
    assert [one.word for one in Substitutes(wordnet, English()).of(token)] == wanted
