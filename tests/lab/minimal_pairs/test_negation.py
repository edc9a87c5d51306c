"""Negation on a parse: the paper's examples, a list of sentences, what is refused, and what is no statement."""

from __future__ import annotations

from pathlib import Path

import pytest
from heros_sentences import PAPER
from hypothesis import given, settings
from hypothesis import strategies as st

from essent.lab.minimal_pairs.edits import apply_edits, word_lists
from essent.lab.minimal_pairs.english import English
from essent.lab.minimal_pairs.language import Parser, UnsuitableError

ROWS = [line.split("\t") for line in (Path(__file__).parent / "negations.tsv").read_text("utf-8").splitlines()]
REFUSED = {
    "Is it cold?": "a question",
    "How do I change the HEAD": "a question or a clause of none",
    "How do I do not change the HEAD": "a question or a clause of none",
    "Why this library works with older versions": "a question or a clause of none",
    "Who knows.": "a question or a clause of none",
    "Because it never rains.": "a question or a clause of none",
    '"This decision is clearly wrong," the chairman said yesterday.': "who says it stands behind the statement",
    "Changing the HEAD of a branch": "no main verb",
    "Man playing a guitar on stage": "no main verb",
    "The Old Man Reads Many Books Every Day": "a title",
    "What a day!": "no main verb",
    "": "no words",
    "The old house near the river.": "no main verb",
    "Was a good day.": "no subject of the main verb",
    "Never have I said that.": "negated at the beginning",
    "It is not bad at all.": "'at all' wants its negation",
    "Nobody likes you.": "negated by 'nobody'",
    "I have no idea.": "negated by 'no'",
    "Not one of them has called us.": "negated by 'not'",
    "I have yet to see a good one.": "'either' or 'yet' at the verb",
    "I don't know anyone here.": "'anyone' wants its negation",
    "It ain't so.": "an idiom that takes no 'not': ain't, had better, would rather, gotta",
    "They say nothing about it.": "negated by 'nothing'",
    "He is not only rich but also kind.": "'only' does not go with 'not'",
    "You had better leave now.": "an idiom that takes no 'not': ain't, had better, would rather, gotta",
    "She already likes the new house.": "'already' does not go with 'not'",
    "I am not sure if they are there.": "'sure if' wants its negation",
    "I didn't even notice your name.": "'even' wants its negation",
    "I finally found my keys.": "'finally' does not go with 'not'",
    "You'll find a few down South, too.": "'too' does not go with 'not'",
    "It works very well, I'm sure.": "who says it stands behind the statement",
    "The thing is they were ready to act.": "'be' before a clause without 'that', or 'there is' with 'some' or 'few'",
    "There are quite a few towers in town.": "'be' before a clause without 'that', or 'there is' with 'some' or 'few'",
}
NEGATED = ("I want to help you, but I have no time.", "We walk home and never talk about it.")


def negated(parser: Parser, sentence: str, word: str | None = None) -> str:
    language, (doc,) = English(), parser([sentence])
    if word is None:
        return language.negate(language.statement(doc)).text
    return language.negate(next(token for token in doc if token.lower_ == word)).text


@pytest.mark.parametrize("original", PAPER)
def test_the_papers_examples(original: str, parser: Parser) -> None:
    """Table 2, both Negation columns."""
    main, place, word = PAPER[original]
    assert negated(parser, original) == main
    assert negated(parser, original, word) == place


def test_the_list(parser: Parser) -> None:
    language = English()
    docs = parser([original for original, _ in ROWS])
    found = {doc.user_data["text"]: language.negate(language.statement(doc)) for doc in docs}
    assert {original: one.text for original, one in found.items()} == dict(ROWS)
    assert {original: apply_edits(original, one.edits) for original, one in found.items()} == dict(ROWS)
    assert len(ROWS) >= 200


@pytest.mark.parametrize(("sentence", "reason"), REFUSED.items(), ids=[name or "empty" for name in REFUSED])
def test_what_is_refused(sentence: str, reason: str, parser: Parser) -> None:
    with pytest.raises(UnsuitableError) as caught:
        negated(parser, sentence)
    assert str(caught.value) == reason


@pytest.mark.parametrize("sentence", NEGATED)
def test_a_negation_in_another_clause_is_no_matter(sentence: str, parser: Parser) -> None:
    assert negated(parser, sentence) != sentence


@pytest.mark.parametrize(
    ("sentence", "word", "wanted"),
    [
        ("It is a good idea.", "good", "It is not a good idea."),
        ("I saw a good film.", "good", "I did not see a good film."),
        ("She says that he lives in a small town.", "small", "She says that he does not live in a small town."),
        ("They looked happy.", "happy", "They did not look happy."),
        ("He was very happy.", "happy", "He was not very happy."),
        ("He isn't happy today.", "happy", "He is happy today."),
        ("She said that he was not happy.", "happy", "She said that he was happy."),
        ("It would be safe there.", "safe", "It would not be safe there."),
        ("He has been a good friend.", "good", "He has not been a good friend."),
        ("It is highly illegal.", "illegal", "It is not highly illegal."),
        ("I decided to buy a car.", "buy", "I decided not to buy a car."),
        ("I decided not to buy it.", "buy", "I decided to buy it."),
        ("He says that she sells flowers.", "sells", "He says that she does not sell flowers."),
        ("I think he should have called.", "called", "I think he should not have called."),
        ("They like singing songs.", "singing", "They like not singing songs."),
        ("It made you remember the war.", "remember", "It made you not remember the war."),
        ("I was a little sad about it.", "sad", "I was not a little sad about it."),
        ("I'm going to find a job.", "find", "I'm not going to find a job."),
        ("I want to buy a car.", "buy", "I do not want to buy a car."),
        ("She was able to open the door.", "open", "She was not able to open the door."),
        ("He has to write a long letter.", "long", "He does not have to write a long letter."),
        ("That is my favorite song.", "favorite", "That is not my favorite song."),
        ("They are the worst players.", "worst", "They are not the worst players."),
        ("He has never eaten cold soup.", "eaten", "He has eaten cold soup."),
    ],
)
def test_negation_at_a_word(sentence: str, word: str, wanted: str, parser: Parser) -> None:
    assert negated(parser, sentence, word) == wanted


@pytest.mark.parametrize(
    ("sentence", "word", "reason"),
    [
        ("Actually that specific part is old.", "specific", "no 'not' at a verb reaches"),
        ("He met this wonderful person.", "wonderful", "no 'not' at a verb reaches"),
        ("He likes the new song.", "new", "no 'not' at a verb reaches"),
        ("They cannot go without facing him.", "facing", "negated by 'without'"),
        ("We need another goal to show for it.", "show", "no 'not' of its own"),
    ],
)
def test_a_word_that_takes_no_not(sentence: str, word: str, reason: str, parser: Parser) -> None:
    with pytest.raises(UnsuitableError, match=reason):
        negated(parser, sentence, word)


@pytest.mark.parametrize(
    ("sentence", "wanted"),
    [
        ("The glass used in this wine is old.", "The glass used in this wine is not old."),
        ("Some shows get canceled before they end.", "Some shows do not get canceled before they end."),
        ("The man who made it fall is here.", "The man who made it fall is not here."),
        ("That must’ve been rough.", "That must not have been rough."),
    ],
)
def test_what_only_looks_like_the_main_verb(sentence: str, wanted: str, parser: Parser) -> None:
    assert negated(parser, sentence) == wanted


WORDS = sorted(
    {*word_lists()["negative"], *word_lists()["polarity"], "I", "do", "not", "is", "run", "dog", "can't", "."}
)


@settings(max_examples=40, deadline=None)
@given(st.one_of(st.text(max_size=60), st.lists(st.sampled_from(WORDS), max_size=9).map(" ".join)))
def test_any_text_is_negated_or_refused(parser: Parser, text: str) -> None:
    """No other error, and a negation is never the sentence itself."""
    language, (doc,) = English(), parser([text])
    for token in doc:
        try:
            found = language.negate(token)
        except UnsuitableError:
            continue
        assert found.text != text
        assert apply_edits(text, found.edits) == found.text
