"""WordNet's files: what is read from them, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from heros_sentences import PAPER
from tiny_wordnet import write_wordnet

from essent.minimal_pairs import WordNet, find_wordnet
from essent.minimal_pairs.substitutes import replaceable, substitutes
from essent.minimal_pairs.tags import tag_words
from essent.minimal_pairs.wordnet import ANTONYM, ENVIRONMENT, HYPERNYM
from essent.minimal_pairs.words import split_words
from essent.types import DataError


@pytest.fixture(scope="module")
def wordnet(wordnet_folder: Path) -> WordNet:
    return WordNet(wordnet_folder)


def test_senses_and_pointers(wordnet: WordNet) -> None:
    (sense,) = wordnet.senses("boost", "verb")
    assert sense.synset.words == ("boost", "hike", "hike up")
    assert (sense.rank, sense.uses) == (1, 4)
    ((_, above),) = wordnet.linked(sense.synset, HYPERNYM)
    assert above.words == ("increase",)
    ((pointer, below),) = wordnet.linked(above, ANTONYM, word="increase")
    assert below.words[pointer.target - 1] == "decrease"
    assert wordnet.senses("boost", "noun") == ()
    assert wordnet.count("buy", "verb") == 30
    assert "hike up" in wordnet
    assert "blorp" not in wordnet


def test_an_antonym_belongs_to_its_word(wordnet: WordNet) -> None:
    """Glad is opposed to sad, happy to unhappy, though both words share a synset."""
    (sense,) = wordnet.senses("glad", "adj")
    assert [other.words for _, other in wordnet.linked(sense.synset, ANTONYM, word="glad")] == [("sad",)]
    assert [other.words for _, other in wordnet.linked(sense.synset, ANTONYM, word="happy")] == [("unhappy",)]
    assert len(list(wordnet.linked(sense.synset, ANTONYM))) == 2


def test_relatives_are_all_that_a_random_word_may_not_be(wordnet: WordNet) -> None:
    assert {"happy", "glad", "unhappy", "sad", "happiness"} <= wordnet.relatives("happy")
    assert {"increase", "decrease", "lower", "hike"} <= wordnet.relatives("boost")
    assert wordnet.relatives("blorp") == {"blorp"}


def test_the_papers_words_have_listed_alternatives(wordnet: WordNet) -> None:
    """Table 2: illegitimate and legal for illegal; for boosted words in the past."""
    found = {}
    for sentence, (*_, word) in PAPER.items():
        tags = tag_words(split_words(sentence), wordnet.count)
        place = next(n for n in replaceable(tags) if tags[n].word.lower == word)
        found[word] = [[one.word for one in some] for some in substitutes(wordnet, tags, place)]
    assert found == {"illegal": [["illegitimate"], ["legal"]], "boosted": [["hiked", "increased"], ["decreased"]]}


@pytest.mark.parametrize(
    ("sentence", "word"),
    [
        ("We have a lot in common.", "common"),
        ("They help the rich and the poor.", "rich"),
        ("She is six years old.", "old"),
        ("Come here right now.", "right"),
        ("We got off three stops too early.", "stops"),
        ("I would like a cup of tea.", "like"),
        ("I can't believe it.", "believe"),
        ("He likes to show us things.", "show"),
        ("He rolled his eyes so hard.", "hard"),
    ],
)
def test_words_in_phrases_are_left_alone(sentence: str, word: str) -> None:
    tags = tag_words(split_words(sentence))
    assert word not in {tags[place].word.lower for place in replaceable(tags)}


def test_the_same_words_elsewhere_are_not() -> None:
    for sentence, word in (("This is a common bird.", "common"), ("They show signs of age.", "show")):
        tags = tag_words(split_words(sentence))
        assert word in {tags[place].word.lower for place in replaceable(tags)}


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


def test_broken_files(tmp_path: Path) -> None:
    folder = write_wordnet(tmp_path / "broken")
    (folder / "index.verb").write_text("buy v x\n", "latin-1")
    with pytest.raises(DataError, match=r"index\.verb: not a line of WordNet: 'buy v x'"):
        WordNet(folder).senses("buy", "verb")
    folder = write_wordnet(tmp_path / "cut")
    text = (folder / "data.verb").read_text("latin-1")
    (folder / "data.verb").write_text(text.replace("002 ", "zz2 "), "latin-1")
    with pytest.raises(DataError, match=r"data\.verb, byte \d+: not a synset"):
        WordNet(folder).senses("increase", "verb")
    folder = write_wordnet(tmp_path / "uncounted")
    (folder / "cntlist.rev").unlink()
    assert WordNet(folder).count("buy", "verb") == 0
