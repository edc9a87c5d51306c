"""Sentences, their parses and edits, the forms of words, a and an, and the tables."""

from __future__ import annotations

import sys

import pytest
import spacy
from heros_sentences import PAPER
from hypothesis import given, settings
from hypothesis import strategies as st

from essent.errors import MissingDependencyError, ModelError
from essent.lab.minimal_pairs import parsing
from essent.lab.minimal_pairs.english import negate, part_of_speech, replace_word, replaceable, statement
from essent.lab.minimal_pairs.parsing import (
    Edit,
    Parser,
    apply_edits,
    article,
    inflect,
    is_word,
    lemmas,
    like_case,
    read_table,
    spellings,
    word_lists,
)


@settings(deadline=None)
@given(st.text(max_size=200))
def test_split_preserves_the_text(parser: Parser, text: str) -> None:
    sentences = list(parser.split([text]))
    assert all(sentences)
    cleaned = text.replace('""', '"').replace("*", "")
    assert "".join("".join(sentences).split()) == "".join(cleaned.split())


def test_sentence_ends(parser: Parser) -> None:
    assert list(parser.split(["It works! Mr. Smith knows. Wow... Really? Yes\nA new line", " \n "])) == [
        "It works!",
        "Mr. Smith knows.",
        "Wow...",
        "Really?",
        "Yes",
        "A new line",
    ]
    assert list(parser.split(['She called it ""art"". *Really.*'])) == ['She called it "art".', "Really."]


def test_edits_in_any_order() -> None:
    assert apply_edits("abc", [Edit(0, 1, "x"), Edit(3, 3, "!"), Edit(1, 2, "")]) == "xc!"


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        *(
            (word, "an")
            for word in "apple hour honest uncle unusual umbrella only unimportant unidentified heir".split()
        ),
        *((word, "a") for word in "book house one once user union useful European uniform usual".split()),
    ],
)
def test_articles(word: str, expected: str) -> None:
    assert article(word) == expected


def test_a_replaced_word_keeps_capitals_and_mends_its_article(parser: Parser) -> None:
    (doc,) = parser(["An old man saw a car near happy people."])
    assert replace_word(doc[1], "young") == "A young man saw a car near happy people."
    assert replace_word(doc[5], "apple") == "An old man saw an apple near happy people."
    assert like_case("good", "BAD") == "GOOD"
    assert like_case("good", "I") == "Good"


def test_every_row_of_the_tables_has_a_source() -> None:
    for name, least in (("words.tsv", 200), ("excluded.tsv", 600), ("judgements.tsv", 500)):
        rows = read_table(name)
        assert len(rows) >= least
        assert all(row["source"] for row in rows)
        assert len({tuple(row.values()) for row in rows}) == len(rows)
    assert {"never", "nobody"} <= word_lists()["negative"]


def test_lemmas_and_negations_round_trip(parser: Parser) -> None:
    """A word's own lemma gives the word back, and a negated sentence has the same main verb."""
    for doc in parser(list(PAPER)):
        (negated,) = parser([negate(statement(doc)).text])
        assert statement(negated).lemma_ == statement(doc).lemma_
        assert replaceable(doc)
        for token in replaceable(doc):
            (lemma, *_) = lemmas(token.lower_, token.tag_)
            assert part_of_speech(token) in ("verb", "adj")
            assert inflect(lemma, token.tag_) == token.lower_ in spellings(lemma)
            assert replace_word(token, token.lower_) == doc.user_data["text"]
            assert is_word(token.lower_)
    assert not is_word("blorpz")


def test_parser_refusals(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ModelError, match="Install it with: python -m spacy download en_nowhere"):
        Parser("en_nowhere")
    with pytest.raises(ModelError, match="has no tagger: English needs one such as en_core_web_sm"):
        Parser(spacy.blank("en"))
    monkeypatch.setattr(parsing, "PIPELINES", ("en_core_web_nowhere",))
    with pytest.raises(ModelError, match="python -m spacy download en_core_web_nowhere"):
        Parser()
    monkeypatch.setitem(sys.modules, "spacy", None)
    with pytest.raises(MissingDependencyError, match=r"essent\[heros\]"):
        Parser()


def test_typographic_apostrophes(parser: Parser) -> None:
    (doc,) = parser(["I don’t think it’s bad."])
    assert negate(statement(doc)).text == "I do think it’s bad."


def test_the_forms_of_the_table_are_used() -> None:
    """LemmInflect lacks some of them, and lists others second."""
    for row in read_table("forms.tsv"):
        assert inflect(row["lemma"], row["tag"]) == row["form"]


def test_lemmas_of_verbs_are_right_after_parsing(parser: Parser) -> None:
    """spaCy's small model takes these for hat and rid."""
    docs = parser(["He hates the cold house.", "A man rides a horse."])
    assert [token.lemma_ for doc in docs for token in doc if token.tag_ == "VBZ"] == ["hate", "ride"]
