"""Lexical overlap: known values, a slow reference, and what it refuses."""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from essent.errors import DataError, InputError
from essent.lab.minimal_pairs.parsing import levenshtein
from essent.lab.minimal_pairs.rows import common_subsequence, lexical_overlap, words_and_marks

words = st.lists(st.sampled_from("a b c d".split()), max_size=7)


def test_known_overlaps() -> None:
    """Counted by hand, then figures of `rouge` 1.0.1: capitals, commas, repeated words, several sentences, ellipses."""
    overlap = lexical_overlap([("the old cat sleeps.", "the young cat sleeps.")])  # 3 of 4 words stay, 1 of 3 bigrams
    assert overlap == pytest.approx(  # 1 of 5 tokens (the full stop is one) is edited
        {"rouge1": 75.0, "rouge2": 100 / 3, "rougeL": 75.0, "levenshtein": 0.2, "length": 5.0, "pairs": 1.0}
    )
    cases = {
        ("You do know, don't you?", "you do Know, don't you? Yes"): (6 / 11, 2 / 9, 6 / 11),
        ("the cat and the dog saw the cat.", "the dog and the cat saw."): (1.0, 6 / 11, 0.6),
        ("I saw it. It was big... really big", "It was big. I really saw it"): (1.0, 6 / 13, 1.0),
    }
    for pair, expected in cases.items():
        rouge = [lexical_overlap([pair])[name] / 100 for name in ("rouge1", "rouge2", "rougeL")]
        assert rouge == pytest.approx(expected, abs=1e-6), pair


@given(words, words)
def test_distance_and_common_subsequence_are_the_recursions(first: list[str], second: list[str]) -> None:
    @cache
    def slow(i: int, j: int) -> int:
        if not i or not j:
            return i + j
        return min(slow(i - 1, j) + 1, slow(i, j - 1) + 1, slow(i - 1, j - 1) + (first[i - 1] != second[j - 1]))

    @cache
    def longest(i: int, j: int) -> int:
        if not i or not j:
            return 0
        if first[i - 1] == second[j - 1]:
            return longest(i - 1, j - 1) + 1
        return max(longest(i - 1, j), longest(i, j - 1))

    assert levenshtein(first, second) == slow(len(first), len(second))
    subsequence = common_subsequence(first, second)
    for side in (first, second):
        remaining = iter(side)
        assert all(word in remaining for word in subsequence)
    assert len(subsequence) == longest(len(first), len(second))


@given(st.lists(st.tuples(st.text(max_size=30), st.text(max_size=30)), min_size=1, max_size=3))
def test_any_text(pairs: list[tuple[str, str]]) -> None:
    overlap = lexical_overlap(pairs)
    assert all(0 <= overlap[name] <= 100 + 1e-9 for name in ("rouge1", "rouge2", "rougeL"))
    assert 0 <= overlap["levenshtein"] <= 1
    same = lexical_overlap([(text, text) for text, _ in pairs])
    assert same["rouge1"] == same["rougeL"] == pytest.approx(100)
    assert same["levenshtein"] == 0


def test_another_tokenizer_changes_distance_and_length_only() -> None:
    pairs = [("It is big.", "It is not big."), ("", "")]
    plain, letters = lexical_overlap(pairs), lexical_overlap(pairs, tokenize=list)
    assert letters["length"] == 6.0
    assert letters["levenshtein"] == pytest.approx(4 / 14 / 2)
    assert {name for name in plain if plain[name] != letters[name]} == {"levenshtein", "length"}
    assert words_and_marks("Don't [NAME]!") == ["don", "'", "t", "[", "name", "]", "!"]
    with pytest.raises(DataError, match="no pairs"):
        lexical_overlap([])
    with pytest.raises(InputError, match="Pair 2"):
        lexical_overlap([("a", "b"), ("a", None)])  # type: ignore[list-item]
