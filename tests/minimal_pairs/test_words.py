"""Words and their places, sentence ends, capitals, a and an."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from essent.minimal_pairs.words import (
    Edit,
    apply_edits,
    article,
    count_words,
    like_case,
    replace_word,
    split_sentences,
    split_words,
)


def test_clitics_are_words_of_their_own() -> None:
    found = [word.lower for word in split_words("I can't, cannot and won’t: it's Jackie's well-known 3.5 [NAME]…")]
    wanted = "i ca n't , can not and wo n't : it 's jackie 's well-known 3.5 [name] …"
    assert found == wanted.split()


@given(st.text(max_size=80))
def test_places_are_those_of_the_text(text: str) -> None:
    words = split_words(text)
    assert all(text[word.start : word.end] == word.text for word in words)
    assert all(first.end <= second.start for first, second in pairwise(words))
    assert "".join(word.text for word in words) == "".join(text.split())


@given(st.text(max_size=200))
def test_sentences_lose_nothing_but_blanks(text: str) -> None:
    found = split_sentences(text)
    assert all(found)
    assert sum(len("".join(one.split())) for one in found) >= len("".join(text.split())) - text.count('"') - text.count(
        "'"
    ) - text.count(")") - text.count("]")


def test_sentence_ends() -> None:
    assert split_sentences("It works! Mr. Smith knows. e.g. this one. (Really?) Yes\nA new line") == [
        "It works!",
        "Mr. Smith knows. e.g. this one.",
        "(Really?",
        "Yes",
        "A new line",
    ]
    assert split_sentences(" \n ") == []
    assert count_words("A 7 year-old , - !") == 3


def test_a_quoted_field_of_a_csv_file_and_emphasis() -> None:
    assert split_sentences('"She called it ""art"". *Really.* It was ***so*** good."') == [
        'She called it "art".',
        "Really.",
        "It was so good.",
    ]
    assert split_sentences('"art"" is not a field') == ['"art"" is not a field']
    assert split_sentences("2 * 3 * 4 and a*b*c") == ["2 * 3 * 4 and a*b*c"]


def test_edits_in_any_order() -> None:
    assert apply_edits("abc", [Edit(0, 1, "x"), Edit(3, 3, "!"), Edit(1, 2, "")]) == "xc!"


@pytest.mark.parametrize(
    ("word", "wanted"),
    [
        *(
            (word, "an")
            for word in "apple hour honest uncle unusual umbrella only unimportant unidentified heir".split()
        ),
        *((word, "a") for word in "book house one once user union useful European uniform usual".split()),
    ],
)
def test_articles(word: str, wanted: str) -> None:
    assert article(word) == wanted


def test_a_replaced_word_keeps_capitals_and_mends_its_article() -> None:
    sentence = "An old man saw a car. Happy people!"
    words = split_words(sentence)
    assert replace_word(sentence, words, 1, "young") == "A young man saw a car. Happy people!"
    assert replace_word(sentence, words, 5, "apple") == "An old man saw an apple. Happy people!"
    assert replace_word(sentence, words, 7, "sad") == "An old man saw a car. Sad people!"
    assert like_case("good", "BAD") == "GOOD"
    assert like_case("good", "I") == "Good"
