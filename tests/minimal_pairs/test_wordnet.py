"""WordNet's files: what is read from them, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from tiny_wordnet import write_wordnet

from essent.minimal_pairs import English, Parser, WordNet, find_wordnet
from essent.minimal_pairs.substitutes import Substitutes
from essent.minimal_pairs.wordnet import ANTONYM, ENVIRONMENT, HYPERNYM
from essent.types import DataError


@pytest.fixture(scope="module")
def wordnet(wordnet_folder: Path) -> WordNet:
    return WordNet(wordnet_folder)


def test_senses_and_pointers(wordnet: WordNet) -> None:
    ((uses, synset),) = wordnet.senses("boost", "verb")
    assert (uses, synset.words) == (4, ("boost", "hike", "hike up"))
    assert wordnet.rank("hike", synset) == 1
    ((_, above),) = wordnet.linked(synset, HYPERNYM)
    assert above.words == ("increase",)
    assert [word for word, _ in wordnet.linked(above, ANTONYM, word="increase")] == ["decrease"]
    assert wordnet.senses("boost", "noun") == []
    assert wordnet.count("buy", "verb") == 30
    assert "hike up" in wordnet
    assert "blorp" not in wordnet


def test_frames_of_verbs(wordnet: WordNet) -> None:
    ((_, synset),) = wordnet.senses("start", "verb")
    assert synset.frames_of("start") == {8, 28}
    assert synset.frames_of("begin") == {8}


def test_an_antonym_belongs_to_its_word(wordnet: WordNet) -> None:
    """Glad is opposed to sad, happy to unhappy, though both words share a synset."""
    ((_, synset),) = wordnet.senses("glad", "adj")
    assert synset.words == ("happy", "glad")  # written glad(p)
    assert [word for word, _ in wordnet.linked(synset, ANTONYM, word="glad")] == ["sad"]
    assert [word for word, _ in wordnet.linked(synset, ANTONYM, word="happy")] == ["unhappy"]
    assert len(list(wordnet.linked(synset, ANTONYM))) == 2


def test_relatives_are_all_that_a_random_word_may_not_be(wordnet: WordNet) -> None:
    assert {"happy", "glad", "unhappy", "sad", "happiness"} <= wordnet.relatives("happy")
    assert {"increase", "decrease", "lower", "hike"} <= wordnet.relatives("boost")
    assert wordnet.relatives("blorp") == {"blorp"}


def test_where_it_is_looked_for(wordnet_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("essent.minimal_pairs.wordnet.PLACES", (str(tmp_path / "nowhere"),))
    monkeypatch.delenv(ENVIRONMENT, raising=False)
    with pytest.raises(DataError, match="apt-get install wordnet-base"):
        find_wordnet()
    monkeypatch.setattr("essent.minimal_pairs.wordnet.PLACES", (str(wordnet_folder),))
    assert find_wordnet().folder == wordnet_folder
    monkeypatch.setenv(ENVIRONMENT, str(tmp_path))
    with pytest.raises(DataError, match=r"no WordNet: index\.noun"):
        find_wordnet()


def test_without_counts(tmp_path: Path) -> None:
    folder = write_wordnet(tmp_path / "uncounted")
    (folder / "cntlist.rev").unlink()
    assert WordNet(folder).count("buy", "verb") == 0


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
