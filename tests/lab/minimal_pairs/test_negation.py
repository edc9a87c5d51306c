"""Negation on a parse: lists of sentences, what is refused, and what is no statement."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from essent.lab.minimal_pairs.english import negate, statement
from essent.lab.minimal_pairs.parsing import Parser, UnsuitableError, apply_edits, attempt, word_lists


def rows_of(name: str) -> list[list[str]]:
    return [line.split("\t") for line in (Path(__file__).parent / name).read_text("utf-8").splitlines()]


def test_main_verbs(parser: Parser) -> None:
    expected = dict(rows_of("negations.tsv"))
    negations = {doc.user_data["text"]: negate(statement(doc)) for doc in parser(list(expected))}
    assert {original: negation.text for original, negation in negations.items()} == expected
    assert {original: apply_edits(original, negation.edits) for original, negation in negations.items()} == expected
    assert len(expected) >= 200


def test_negation_of_words(parser: Parser) -> None:
    """Sentence, word (none: the main verb), its negation or why there is none."""
    rows = rows_of("refused.tsv")
    for doc, (sentence, word, expected, reason) in zip(parser([row[0] for row in rows]), rows, strict=True):
        token = next(token for token in doc if token.lower_ == word) if word else attempt(statement, doc)
        negation = token if isinstance(token, UnsuitableError) else attempt(negate, token)
        if reason:
            assert isinstance(negation, UnsuitableError), sentence
            assert reason in str(negation), sentence
        else:
            assert negation.text == expected, sentence


@pytest.mark.parametrize(
    "sentence", ["I want to help you, but I have no time.", "We walk home and never talk about it."]
)
def test_a_negation_in_another_clause_is_no_matter(sentence: str, parser: Parser) -> None:
    assert negate(statement(parser([sentence])[0])).text != sentence


WORDS = sorted(
    {*word_lists()["negative"], *word_lists()["polarity"], "I", "do", "not", "is", "run", "dog", "can't", "."}
)


@settings(max_examples=40, deadline=None)
@given(st.one_of(st.text(max_size=60), st.lists(st.sampled_from(WORDS), max_size=9).map(" ".join)))
def test_any_text_is_negated_or_refused(parser: Parser, text: str) -> None:
    """No other error, and a negation is never the sentence itself."""
    (doc,) = parser([text])
    for token in doc:
        try:
            negation = negate(token)
        except UnsuitableError:
            continue
        assert negation.text != text
        assert apply_edits(text, negation.edits) == negation.text
