"""WordNet by NLTK: what is read, and what is said where there is none."""

from __future__ import annotations

from pathlib import Path

import nltk.data
import pytest
from tiny_wordnet import write_wordnet

from essent.errors import DataError
from essent.lab.minimal_pairs.parsing import Parser
from essent.lab.minimal_pairs.wordnet import WordNet, spelled
from essent.lab.minimal_pairs.words import substitutes


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


def test_a_sense_counts_once(wordnet: WordNet) -> None:
    """NLTK finds bounds twice: as it is, and as a form of bound, in one synset."""
    assert [uses for uses, _ in wordnet.senses("bounds", "noun")] == [2]


def test_relatives(wordnet: WordNet) -> None:
    assert {"happy", "glad", "unhappy", "sad", "happiness"} <= wordnet.relatives("happy")
    assert {"increase", "decrease", "lower", "hike"} <= wordnet.relatives("boost")
    assert wordnet.relatives("blorp") == {"blorp"}


def test_an_antonym_belongs_to_its_word(wordnet: WordNet) -> None:
    """Glad is opposed to sad, happy to unhappy, though both words share a synset."""
    ((_, glad),) = wordnet.senses("glad", "adj")  # written glad(p)
    opposed = {spelled(lemma): [spelled(antonym) for antonym in lemma.antonyms()] for lemma in glad.synset().lemmas()}
    assert opposed == {"happy": ["unhappy"], "glad": ["sad"]}


def test_where_it_is_looked_for(wordnet_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nltk.data, "path", [str(tmp_path)])
    with pytest.raises(DataError, match=r"python -m nltk\.downloader wordnet"):
        WordNet()
    with pytest.raises(DataError, match="nowhere"):
        WordNet(tmp_path / "nowhere")
    assert "boost" in WordNet(wordnet_folder)


def test_named_folder_is_read(wordnet_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nltk.data, "path", [str(wordnet_folder)])
    with pytest.raises(DataError, match="empty"):
        WordNet(tmp_path / "empty")
    changed = write_wordnet(tmp_path / "other")
    counts = changed / "corpora" / "wordnet" / "cntlist.rev"
    counts.write_text(counts.read_text("latin-1").replace("buy%2:00:00:: 1 30", "buy%2:00:00:: 1 31"), "latin-1")
    assert WordNet(changed).count("buy", "verb") == 31
    assert WordNet().count("buy", "verb") == 30


def test_a_part_of_wordnet_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nltk.data, "path", [])
    folder = write_wordnet(tmp_path / "part")
    (folder / "corpora" / "wordnet" / "lexnames").unlink()
    with pytest.raises(DataError, match=r"no whole WordNet.*lexnames"):
        WordNet(folder)


@pytest.mark.parametrize(
    ("sentence", "word", "expected"),
    [
        ("She stopped the old car.", "stopped", ["halted", "started"]),
        ("She stopped the car and had to start it again.", "stopped", []),  # not "started the car and had to start it"
        ("We hate noise and detest crowds.", "hate", []),  # not "detest noise and detest crowds"
    ],
)
def test_substitutes_avoid_words_of_the_sentence(
    sentence: str, word: str, expected: list[str], wordnet: WordNet, parser: Parser
) -> None:
    (doc,) = parser([sentence])
    token = next(candidate for candidate in doc if candidate.lower_ == word)
    assert [candidate.word for candidate in substitutes(token, wordnet)] == expected
