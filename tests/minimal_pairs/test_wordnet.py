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


def test_frames_of_verbs_and_places_of_adjectives(wordnet: WordNet) -> None:
    (sense,) = wordnet.senses("start", "verb")
    assert sense.synset.frames_of("start") == {8, 28}
    assert sense.synset.frames_of("begin") == {8}
    (sense,) = wordnet.senses("glad", "adj")
    assert sense.synset.places == {"glad": "p"}
    assert sense.synset.words == ("happy", "glad")


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


@pytest.mark.parametrize(
    ("sentence", "word", "wanted"),
    [
        ("She stopped the old car.", "stopped", (["halted"], ["started"])),
        ("She stopped the car and began to walk home.", "stopped", (["halted"], [])),  # not "started and began"
        ("We hate noise and we hate crowds.", "hate", ([], ["love"])),  # not "detest noise and hate crowds"
    ],
)
def test_what_the_sentence_says_already_is_not_offered(
    sentence: str, word: str, wanted: tuple[list[str], list[str]], wordnet: WordNet, parser: Parser
) -> None:
    (doc,) = parser([sentence])
    token = next(one for one in doc if one.lower_ == word)
    found = Substitutes(wordnet, English()).of(token)
    assert tuple([one.word for one in some] for some in found) == wanted
