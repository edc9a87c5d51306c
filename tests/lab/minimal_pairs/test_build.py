"""Building: every subset obeys its rule, filters say why, one seed gives one result, missing things are left out."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import pytest
from minimal_pairs_data import PAPER, SENTENCES, UNSUITABLE

from essent.errors import DataError, InputError
from essent.lab.minimal_pairs.parsing import Parser, UnsuitableError
from essent.lab.minimal_pairs.resources import Resources
from essent.lab.minimal_pairs.rows import PairRow, write_rows
from essent.lab.minimal_pairs.run import build, filter_sentences
from essent.lab.minimal_pairs.words import Choice
from essent.tasks.examples import SUBSETS, MinimalPair
from essent.tasks.heros import load_heros


def pairs_of(rows: list[PairRow]) -> list[MinimalPair]:
    return [MinimalPair(row.original, row.converted, row.subset) for row in rows]


def test_all_six_subsets(resources: Resources, lenient: None, tmp_path: Path) -> None:
    written = []
    for number, (texts, seed) in enumerate([(SENTENCES * 2, 0), (SENTENCES, 0), (SENTENCES, 1)]):
        rows, quality = build(texts, resources, seed=seed)
        write_rows(rows, tmp_path / f"{number}.jsonl")
        written.append((tmp_path / f"{number}.jsonl").read_bytes())
    assert written[0] == written[1] != written[2]
    assert list(load_heros(tmp_path / "2.jsonl").pairs) == pairs_of(rows)
    originals = {row.original for row in rows}
    assert quality.originals == len(originals) >= 10
    assert {(row.original, row.subset) for row in rows} == {(text, subset) for text in originals for subset in SUBSETS}
    for row in (row for row in rows if row.replacement):
        assert row.original[row.start : row.end] == row.word
        before, after = row.original.split(), row.converted.split()
        changed = [words for words in zip(before, after, strict=True) if words[0] != words[1]]
        assert row.replacement.lower() in changed[-1][1].lower()
        assert [{*words} for words in changed[:-1]] in ([], [{"a", "an"}])  # one word and its article


def test_the_papers_examples(resources: Resources, lenient: None) -> None:
    """Table 2: both negations to the letter; Synonym and Antonym are listed alternatives in the right form."""
    rows = {(row.original, row.subset): row for row in build(PAPER, resources)[0]}
    listed = {"illegal": ({"illegitimate"}, {"legal"}), "boosted": ({"hiked", "increased"}, {"decreased"})}
    for original, (main, word_negation, word) in PAPER.items():
        assert rows[original, "Negation (Main)"].converted == main
        assert rows[original, "Negation (Antonym)"].converted == word_negation
        assert rows[original, "Typo"].word == rows[original, "Random MLM"].word == word
        for subset, alternatives in zip(("Synonym", "Antonym"), listed[word], strict=True):
            row = rows[original, subset]
            assert (row.word, row.converted) == (word, original.replace(word, row.replacement))
            assert row.replacement in alternatives


def test_filters_say_why(parser: Parser) -> None:
    outcomes = filter_sentences([*UNSUITABLE], parser, {"definately"})
    for (sentence, (reason,)), outcome in zip(UNSUITABLE.items(), outcomes, strict=True):
        assert isinstance(outcome, UnsuitableError), sentence
        assert reason in str(outcome), sentence


def test_the_report_counts_every_sentence(resources: Resources, lenient: None) -> None:
    repeated = f'"{SENTENCES[2]}"'  # another sentence but for marks
    _, quality = build([*SENTENCES, *UNSUITABLE, *UNSUITABLE, repeated], resources)
    assert quality.seen == quality.sentences == len(SENTENCES) + len(UNSUITABLE) + 1
    assert quality.fallen["equal to another sentence except for marks, capitals or a name"] == 1
    assert quality.seen - sum(quality.fallen.values()) == quality.originals


def test_surest_originals_come_first(resources: Resources, lenient: None) -> None:
    originals, good = {}, {}
    for n, seed in ((2, 0), (6, 0), (6, 1)):
        rows, quality = build(SENTENCES, resources, n=n, seed=seed)
        originals[n, seed] = list(dict.fromkeys(row.original for row in rows))
        good[n] = quality.good
        assert quality.seen - sum(quality.fallen.values()) >= quality.originals == n
    assert originals[6, 0][:2] == originals[2, 0]
    assert originals[6, 0] == originals[6, 1]
    assert 1 > math.prod(good[2].values()) > math.prod(good[6].values()) > 0


def test_looking_stops(resources: Resources, lenient: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[build.__module__], "CHUNK", 4)
    rows, quality = build(SENTENCES, resources, n=1, look_at=5, progress=True)
    assert len({row.original for row in rows}) == 1
    assert quality.seen == 8 < len(SENTENCES)
    *_, everything = build(SENTENCES, resources, n=1000, look_at=1)
    assert everything.seen == len(SENTENCES)


def test_quotation_marks_pauses_plurals_and_names(parser: Parser) -> None:
    unchanged = (
        'He said "Go home now, my old friends."',
        '"Go home" was what he said to the old man',
        "The old survivors went to the market to buy bread",
    )
    expected = {
        **{sentence: sentence for sentence in unchanged},
        '"He told the old man to go home!" ': "He told the old man to go home!",
        "He went to the old market… to buy bread...": "He went to the old market… to buy bread.",
        # Appendix A.1
        "I think that [NAME] is a better singer than [NAME].": "I think that Jackie is a better singer than Robin.",
    }
    outcomes = filter_sentences([*expected], parser, lexicon={"survivor"})
    assert [outcome.text for outcome in outcomes if isinstance(outcome, Choice)] == [*expected.values()]


def test_build_refusals(resources: Resources) -> None:
    for name in ("n", "look_at"):
        with pytest.raises(InputError, match=f"{name}=0: must be a whole number of at least 1"):
            build(SENTENCES, resources, **{name: 0})
    with pytest.raises(DataError, match="no sentences"):
        build(["", "\n"], resources)
