"""What never stands for a word, and what a verb's neighbours do not allow."""

from __future__ import annotations

import pytest

from essent.minimal_pairs.excluded_substitutions import ANTONYMS, EXCLUDED, SYNONYMS
from essent.minimal_pairs.neighbours import fits
from essent.minimal_pairs.substitutes import replaceable
from essent.minimal_pairs.tags import tag_words
from essent.minimal_pairs.words import split_words


def places(sentence: str) -> list[str]:
    tags = tag_words(split_words(sentence))
    return [tags[index].word.text for index in replaceable(tags)]


def stands(sentence: str, word: str, lemma: str) -> bool:
    tags = tag_words(split_words(sentence))
    return fits(tags, next(index for index, tag in enumerate(tags) if tag.word.text == word), lemma)


def test_each_line_is_a_word_and_others() -> None:
    for block in (SYNONYMS, ANTONYMS):
        lines = [line for line in block.split("\n") if line]
        words = [line.partition(":")[0] for line in lines]
        assert words == sorted(set(words))
        for line in lines:
            word, _, others = line.partition(": ")
            listed = others.split()
            assert word.isalpha()
            assert listed == sorted(set(listed))
            assert listed
            assert word not in listed
    assert ("like", "prefer") in EXCLUDED
    assert ("mad", "sane") in EXCLUDED


@pytest.mark.parametrize(
    ("sentence", "word"),
    [
        ("I found it rather funny", "found"),
        ("They found the new dog very friendly.", "found"),
        ("We laughed the whole thing off.", "laughed"),
        ("She laughed it off yesterday.", "laughed"),
        ("I am not sure what he wants", "sure"),
        ("He makes sure of it.", "sure"),
    ],
)
def test_a_part_of_a_phrase_is_left_alone(sentence: str, word: str) -> None:
    assert word not in places(sentence)


@pytest.mark.parametrize(
    ("sentence", "word"),
    [
        ("They found a friendly dog.", "found"),
        ("We found it in the garden.", "found"),
        ("I am sure that he was here.", "sure"),
        ("She laughed at it yesterday.", "laughed"),
    ],
)
def test_and_the_word_alone_is_not(sentence: str, word: str) -> None:
    assert word in places(sentence)


@pytest.mark.parametrize(
    ("sentence", "word", "lemma", "expected"),
    [
        ("I believe the old man was here.", "believe", "think", True),
        ("I believe such stories.", "believe", "think", False),
        ("I believe the old man.", "believe", "think", False),
        ("I believe the old man.", "believe", "disbelieve", True),
        ("I believe he was here.", "believe", "disbelieve", False),
        ("He was here, I believe.", "believe", "disbelieve", False),
        ("They started clapping.", "started", "end", False),
        ("They started the game.", "started", "end", True),
        ("I am sad today.", "sad", "tragic", False),
        ("That is a sad story.", "sad", "tragic", True),
        ("We acted the same.", "acted", "refrain", False),
        ("They won the game.", "won", "triumph", False),
        ("He showed us how.", "showed", "display", False),
        ("He showed a picture.", "showed", "display", True),
        ("They allow me to go.", "allow", "deny", False),
        ("That is a sad story.", "sad", "glad", False),
        ("I am sad today.", "sad", "glad", True),
        ("It is big enough.", "big", "huge", False),
        ("You can find him here.", "find", "discover", False),
        ("I am finished with it.", "finished", "complete", False),
    ],
)
def test_what_stands_beside_a_word(sentence: str, word: str, lemma: str, expected: bool) -> None:
    assert stands(sentence, word, lemma) is expected
