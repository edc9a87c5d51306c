"""Building: every subset obeys its rule, filters say why, one seed gives one result, missing things are left out."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
from heros_sentences import PAPER, SENTENCES, UNSUITABLE
from hypothesis import given, settings
from hypothesis import strategies as st

from essent.errors import DataError, InputError
from essent.lab.minimal_pairs.build import (
    PairRow,
    Resources,
    Suitable,
    as_dict,
    build,
    filter_sentences,
    overlaps,
    sample,
    write_rows,
)
from essent.lab.minimal_pairs.check import check_rows
from essent.lab.minimal_pairs.masked import Slot
from essent.lab.minimal_pairs.parsing import Parser, UnsuitableError
from essent.tasks.examples import SUBSETS, MinimalPair
from essent.tasks.heros import load_heros

WRONG = frozenset({"definately"})


def pairs_of(rows: list[PairRow]) -> list[MinimalPair]:
    return [MinimalPair(row.original, row.converted, row.subset) for row in rows]


def test_all_six_subsets(resources: Resources, lenient: None, tmp_path: Path) -> None:
    rows, quality = build(SENTENCES, resources)
    originals = {row.original for row in rows}
    assert quality.originals == len(originals) >= 10
    assert {(row.original, row.subset) for row in rows} == {
        (original, subset) for original in originals for subset in SUBSETS
    }
    assert check_rows(pairs_of(rows), resources.parser, resources.misspellings) == []
    for row in rows:
        assert row.converted.startswith(row.original[: max(row.start - 3, 0)])  # an article before it may differ
        if row.replacement:
            assert row.original[row.start : row.end] == row.word
            assert row.replacement.lower() in row.converted.lower()
    write_rows(rows, tmp_path / "pairs.jsonl")
    assert list(load_heros(tmp_path / "pairs.jsonl").pairs) == pairs_of(rows)


def test_the_papers_examples(resources: Resources, lenient: None) -> None:
    """Table 2: both negations to the letter; Synonym and Antonym are listed alternatives in the right form."""
    rows, _ = build(PAPER, resources)
    rows_by_subset = {(row.original, row.subset): row for row in rows}
    listed = {"illegal": ({"illegitimate"}, {"legal"}), "boosted": ({"hiked", "increased"}, {"decreased"})}
    for original, (main, word_negation, word) in PAPER.items():
        assert rows_by_subset[original, "Negation (Main)"].converted == main
        assert rows_by_subset[original, "Negation (Antonym)"].converted == word_negation
        for subset, alternatives in zip(("Synonym", "Antonym"), listed[word], strict=True):
            row = rows_by_subset[original, subset]
            assert row.word == word
            assert row.replacement in alternatives
            assert row.converted == original.replace(word, row.replacement)
        assert rows_by_subset[original, "Typo"].word == rows_by_subset[original, "Random MLM"].word == word


def test_build_is_reproducible(resources: Resources, lenient: None, tmp_path: Path) -> None:
    written = []
    for number, (texts, seed) in enumerate([(SENTENCES, 0), (SENTENCES * 2, 0), (SENTENCES, 1)]):
        rows, _ = build(texts, resources, n=6, seed=seed)
        assert len({row.original for row in rows}) == 6
        write_rows(rows, tmp_path / f"{number}.jsonl")
        written.append((tmp_path / f"{number}.jsonl").read_bytes())
    assert written[0] == written[1] != written[2]


def test_build_without_wordnet_or_model(resources: Resources) -> None:
    for less in (Resources(resources.parser), replace(resources, wordnet=None), replace(resources, model=None)):
        rows, _ = build(SENTENCES, less)
        assert {row.subset for row in rows} == {"Typo", "Negation (Main)", "Negation (Antonym)"}
        assert check_rows(pairs_of(rows), resources.parser, resources.misspellings) == []


@pytest.mark.parametrize(
    ("sentence", "expected"), UNSUITABLE.items(), ids=[reason for _, reason in UNSUITABLE.values()]
)
def test_filters_say_why(sentence: str, expected: tuple[str, str], parser: Parser) -> None:
    (unsuitable,) = filter_sentences([sentence], parser, WRONG)
    assert isinstance(unsuitable, UnsuitableError)
    assert (unsuitable.filter, expected[1] in unsuitable.reason) == (expected[0], True), unsuitable.reason


def test_the_report_counts_every_sentence(resources: Resources, lenient: None) -> None:
    rows, quality = build([*SENTENCES, *UNSUITABLE, *UNSUITABLE], resources)
    assert quality.seen == quality.sentences == len(SENTENCES) + len(UNSUITABLE)
    fallen = sum(sum(reasons.values()) for reasons in quality.fallen.values())
    assert list(quality.left.values())[-1] == quality.seen - fallen == quality.originals
    plain = as_dict(quality, rows)
    assert plain["pairs"] == dict.fromkeys(SUBSETS, quality.originals)
    assert plain["overlap"]["the paper's HEROS"]["rouge1"] == 92.9
    assert 80 < overlaps(rows)["all"]["rouge1"] < 100
    assert {subset: len(sampled) for subset, sampled in sample(rows, 2).items()} == dict.fromkeys(SUBSETS, 2)
    assert as_dict(*reversed(build(["Nothing."], resources)))["overlap"] == {}


def test_repeated_sentences_count_once(resources: Resources, lenient: None) -> None:
    rows, quality = build([SENTENCES[2], f'"{SENTENCES[2]}"', SENTENCES[0], SENTENCES[1]], resources, n=1)
    assert len(rows) == len(SUBSETS) * quality.originals == len(SUBSETS)
    assert sum(quality.fallen["repeated"].values()) == 1
    assert sum(quality.fallen["wanted"].values()) == quality.seen - 2
    assert quality.left["wanted"] == 1


@pytest.mark.parametrize(
    ("sentence", "text"),
    [
        ('He said "Go home now, my old friends."', 'He said "Go home now, my old friends."'),
        ('"He told the old man to go home!" ', "He told the old man to go home!"),
        ('"Go home" was what he said to the old man', '"Go home" was what he said to the old man'),
        ("He went to the old market… to buy bread...", "He went to the old market… to buy bread."),
        ("The old survivors went to the market to buy bread", None),
    ],
)
def test_quotation_marks_pauses_and_plurals(sentence: str, text: str | None, parser: Parser) -> None:
    (suitable,) = filter_sentences([sentence], parser, lexicon={"survivor"})
    assert isinstance(suitable, Suitable), suitable
    assert suitable.text == (text or sentence)


def test_names_become_neutral(parser: Parser) -> None:
    """Appendix A.1."""
    (suitable,) = filter_sentences(["I think that [NAME] is a very good singer."], parser)
    assert isinstance(suitable, Suitable)
    assert suitable.text.count("Jackie") == 1
    (suitable,) = filter_sentences(["I think that [NAME] is a better singer than [NAME]."], parser)
    assert isinstance(suitable, Suitable)
    assert suitable.text == "I think that Jackie is a better singer than Robin."


def test_random_words_are_likely(resources: Resources) -> None:
    """A random word of one percent beside a very likely first one."""
    chooser = resources.chooser()
    assert chooser is not None
    (doc,) = resources.parser(["I love the way that she sings in the morning."])
    slot = Slot({}, {"love": -0.01, "buy": math.log(0.02), "sell": math.log(0.002)})
    assert chooser._unrelated(doc[1], slot) == ["buy"]


def test_build_refusals(resources: Resources) -> None:
    with pytest.raises(InputError, match="at least 1"):
        build(SENTENCES, resources, n=0)
    with pytest.raises(DataError, match="no sentences"):
        build(["", "\n"], resources)


WORDS = sorted({word for sentence in SENTENCES for word in sentence.split()})


@settings(max_examples=15, deadline=None)
@given(
    st.lists(st.one_of(st.text(max_size=120), st.lists(st.sampled_from(WORDS), max_size=14).map(" ".join)), max_size=4)
)
def test_build_on_any_text(resources: Resources, texts: list[str]) -> None:
    for partial in (replace(resources, model=None), Resources(resources.parser)):
        rows, quality = build([*texts, SENTENCES[0]], partial)
        assert check_rows(pairs_of(rows), resources.parser, resources.misspellings) == []
        assert {row.original for row in rows} >= {SENTENCES[0]}
        assert quality.originals * 3 == len(rows)
