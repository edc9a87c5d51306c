"""Typos and lexical overlap: known values and slow references."""

import nltk
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from essent.errors import DataError, InputError
from essent.lab.minimal_pairs.overlap import common_subsequence, lexical_overlap, words_and_marks
from essent.lab.minimal_pairs.parsing import UnsuitableError, attempt, is_word, levenshtein, make_typo, misspellings


def test_misspellings() -> None:
    """codespell lists "unuseful" for "useless", which is no typo; its ambiguous lines do not count."""
    rng, listed = np.random.default_rng(0), misspellings()
    assert make_typo("Receive", rng, listed).lower() in listed["receive"]
    assert make_typo("useless", rng, {"useless": ("unuseful",)}) != "unuseful"
    assert make_typo("which", rng, {"which": ("wich",)}) == "wich"
    for word in ("so", "x-ray"):
        with pytest.raises(UnsuitableError, match="no typo"):
            make_typo(word, rng, {})
    assert all(word.isalpha() for right, wrong in listed.items() for word in (right, *wrong))


@settings(max_examples=40)
@given(st.text(alphabet="abcdefgiklmnorstuy", min_size=3, max_size=12), st.integers(0, 2**32))
def test_typo_changes_a_letter(word: str, seed: int) -> None:
    typo = attempt(make_typo, word, np.random.default_rng(seed), {})
    if not isinstance(typo, UnsuitableError):  # as of a word of one letter repeated
        assert typo[0] == word[0]
        assert not is_word(typo)
        changes = {(1, -1), (1, 1), (2, 0)}  # a letter is deleted or doubled, or two are swapped
        assert (levenshtein(word, typo), len(typo) - len(word)) in changes


# -- lexical overlap --------------------------------------------------------------------------------------------------


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
        ("c a a.", "b. a c a."): (0.8, 0.4, 0.4),  # of the subsequences "a a" and "c a"
    }
    for pair, expected in cases.items():
        rouge = [lexical_overlap([pair])[name] / 100 for name in ("rouge1", "rouge2", "rougeL")]
        assert rouge == pytest.approx(expected, abs=1e-6), pair


@settings(max_examples=40)
@given(words, words)
def test_distance_and_common_subsequence(first: list[str], second: list[str]) -> None:
    assert levenshtein(first, second) == nltk.edit_distance(first, second)
    subsequence = common_subsequence(first, second)
    for side in (first, second):
        remaining = iter(side)
        assert all(word in remaining for word in subsequence)
    insertions_and_deletions = nltk.edit_distance(first, second, substitution_cost=2)
    assert 2 * len(subsequence) == len(first) + len(second) - insertions_and_deletions


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
