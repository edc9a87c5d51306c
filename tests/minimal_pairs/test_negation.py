"""Negation: the paper's examples, a list of sentences, what is skipped, and the way back."""

from __future__ import annotations

from pathlib import Path

import pytest
from heros_sentences import PAPER
from hypothesis import given
from hypothesis import strategies as st

from essent.minimal_pairs import CannotNegateError, Style, negate
from essent.minimal_pairs.function_words import TABLE
from essent.minimal_pairs.negation import negate_at
from essent.minimal_pairs.tags import tag_words
from essent.minimal_pairs.words import apply_edits, split_words

ROWS = [line.split("\t") for line in (Path(__file__).parent / "negations.tsv").read_text("utf-8").splitlines()]
SKIPPED = {
    "Is it cold?": "a question",
    "You like it, don't you?": "a question",
    "Who knows.": "a question",
    "What a day!": "no main verb",
    "": "no words",
    "...": "no main verb",
    "The old house near the river.": "no main verb",
    "Was a good day.": "no subject before the verb",
    "I never said that.": "negated by 'never'",
    "Nobody likes you.": "negated by 'nobody'",
    "I have no idea.": "negated by 'no'",
    "I want to help you, but I have no time.": None,
    "Not one of them has called us.": "negated by 'not'",
    "I have yet to see a good one.": "'either' or 'yet' at the verb",
    "I don't know anyone here.": "'anyone' wants its negation",
    "It ain't so.": "ain't",
    "Thanks for the news, hope you win.": "no main verb",
    "Russia want a new treaty.": "no agreement of subject and verb",
    "Its a bit odd that he came.": "a missing apostrophe",
    "I hope so, but nobody.": "negated by 'nobody'",
    "They say nothing about it.": "negated by 'nothing'",
    "We walk home and never talk about it.": None,
    "Is just fine by me.": "no subject before the verb",
    "Because it never rains.": "a subordinate clause without an end",
    "If you read the book she wrote.": "a subordinate clause without an end",
    "You gotta see the lake.": "'gotta' takes no 'not'",
    "He is not only rich but also kind.": "not only",
    "Glad I bought the car before it rained.": "a fragment before the main verb",
    "So sad they have to leave this place.": "a fragment before the main verb",
    'My father used to say: "Be careful."': None,
}


def negated_word(sentence: str, word: str) -> str:
    tags = tag_words(split_words(sentence))
    place = next(n for n, tag in enumerate(tags) if tag.word.lower == word)
    return negate_at(sentence, tags, place).text


@pytest.mark.parametrize("original", PAPER)
def test_the_papers_examples(original: str) -> None:
    """Table 2, both Negation columns."""
    main, place, word = PAPER[original]
    assert negate(original).text == main
    assert negated_word(original, word) == place


def test_the_list_and_back() -> None:
    """The negation is the one written down, and negating it, with nothing but its style kept, gives the original."""
    found = {original: negate(original) for original, _ in ROWS}
    wanted = dict(ROWS)
    assert {original: negation.text for original, negation in found.items()} == wanted
    assert {original: apply_edits(original, negation.edits) for original, negation in found.items()} == wanted
    back = {negate(negation.text, negation.back).text: negation.text for negation in found.values()}
    assert back == wanted


def test_the_list_is_long_and_its_sentences_differ() -> None:
    assert len(ROWS) >= 150
    assert len({original for original, _ in ROWS}) == len(ROWS)


@pytest.mark.parametrize(("sentence", "reason"), SKIPPED.items(), ids=[name or "empty" for name in SKIPPED])
def test_what_is_skipped(sentence: str, reason: str | None) -> None:
    if reason is None:
        assert negate(sentence).text != sentence
        return
    with pytest.raises(CannotNegateError) as caught:
        negate(sentence)
    assert str(caught.value) == reason


def test_the_paper_keeps_the_auxiliary_and_a_style_may_drop_it() -> None:
    assert negate("She does not like it.").text == "She does like it."
    assert negate("She does not like it.", Style(drop_do=True)).text == "She likes it."
    assert negate("They can come.", Style("n't")).text == "They can't come."
    assert negate("They can come.").text == "They cannot come."
    assert negate("They can come.", Style(" not")).text == "They can not come."
    assert negate("We will see.", Style("n’t")).text == "We won’t see."


@pytest.mark.parametrize(
    ("sentence", "word", "wanted"),
    [
        ("It is a good idea.", "good", "It is not a good idea."),
        ("I read a good book.", "good", "I read a not good book."),
        ("I read an old book.", "old", "I read a not old book."),
        ("He was very happy.", "happy", "He was not very happy."),
        ("He isn't happy today.", "happy", "He is happy today."),
        ("She said that he was not happy.", "happy", "She said that he was happy."),
        ("It would be safe there.", "safe", "It would not be safe there."),
        ("He has been a good friend.", "good", "He has not been a good friend."),
        ("It is highly illegal.", "illegal", "It is not highly illegal."),
        ("I want to buy a car.", "buy", "I want not to buy a car."),
        ("I decided not to buy it.", "buy", "I decided to buy it."),
        ("He says that she sells flowers.", "sells", "He says that she does not sell flowers."),
        ("I think he should have called.", "called", "I think he should not have called."),
        ("They like singing songs.", "singing", "They like not singing songs."),
        ("It made you remember the war.", "remember", "It made you not remember the war."),
        ("I was a little sad about it.", "sad", "I was not a little sad about it."),
        ("Actually that specific part is old.", "specific", "Actually that not specific part is old."),
    ],
)
def test_negation_at_a_word(sentence: str, word: str, wanted: str) -> None:
    assert negated_word(sentence, word) == wanted


@pytest.mark.parametrize(
    ("sentence", "wanted"),
    [
        ("The glass used in this wine is old.", "The glass used in this wine is not old."),
        ("Some shows get canceled before they end.", "Some shows do not get canceled before they end."),
        ("The man who made it fall is here.", "The man who made it fall is not here."),
    ],
)
def test_what_only_looks_like_the_main_verb(sentence: str, wanted: str) -> None:
    assert negate(sentence).text == wanted


@given(st.one_of(st.text(max_size=60), st.lists(st.sampled_from(sorted(TABLE)), max_size=9).map(" ".join)))
def test_any_text_is_negated_or_refused(text: str) -> None:
    """No other error, and a negation is never the sentence itself."""
    try:
        found = negate(text)
    except CannotNegateError:
        return
    assert found.text != text
    assert apply_edits(text, found.edits) == found.text
