"""Words and their places, sentence ends, capitals, a and an."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from essent.lab.minimal_pairs.edits import Edit, apply_edits, like_case, read_table, word_lists
from essent.lab.minimal_pairs.english import English, article
from essent.lab.minimal_pairs.language import Parser


@settings(deadline=None)
@given(st.text(max_size=200))
def test_sentences_lose_nothing_but_blanks_stars_and_doubled_quotes(parser: Parser, text: str) -> None:
    found = list(parser.split([text]))
    assert all(found)
    kept = text.replace('""', '"').replace("*", "")
    assert "".join("".join(found).split()) == "".join(kept.split())


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


def test_a_replaced_word_keeps_capitals_and_mends_its_article(parser: Parser) -> None:
    language, (doc,) = English(), parser(["An old man saw a car near happy people."])
    assert language.replace(doc[1], "young") == "A young man saw a car near happy people."
    assert language.replace(doc[5], "apple") == "An old man saw an apple near happy people."
    assert like_case("good", "BAD") == "GOOD"
    assert like_case("good", "I") == "Good"


def test_every_row_of_the_tables_has_a_source() -> None:
    for name, least in (("words.tsv", 200), ("excluded.tsv", 600), ("judgements.tsv", 500)):
        rows = read_table(name)
        assert len(rows) >= least
        assert all(row["source"] for row in rows)
        assert len({tuple(row.values()) for row in rows}) == len(rows)
    assert {"never", "nobody"} <= word_lists()["negative"]
