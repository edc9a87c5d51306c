"""Building: every subset obeys its rule, filters say why, one seed gives one result, missing things are left out."""

import math
import re
import sys
from pathlib import Path

import pytest
from minimal_pairs_data import PAPER, SENTENCES, UNSUITABLE

from essent.errors import DataError, InputError
from essent.lab.minimal_pairs.parsing import Parser, UnsuitableError
from essent.lab.minimal_pairs.resources import MaskedModel, WordNet
from essent.lab.minimal_pairs.run import build, filter_sentences, write_pairs
from essent.lab.minimal_pairs.words import Choice
from essent.tasks.examples import SUBSETS
from essent.tasks.heros import load_heros

Sources = tuple[WordNet, MaskedModel]


@pytest.fixture
def sources(wordnet: WordNet, model: MaskedModel, lenient: None) -> Sources:
    return wordnet, model


def test_all_six_subsets(sources: Sources, tmp_path: Path) -> None:
    """The same with repeated and unsuitable sentences, which the report counts; others with another seed."""
    pairs, quality = build(SENTENCES, *sources)
    write_pairs(pairs, tmp_path / "pairs.jsonl")
    assert list(load_heros(tmp_path / "pairs.jsonl").pairs) == pairs
    assert build(SENTENCES, *sources, seed=1)[0] != pairs
    repeated = f'"{SENTENCES[2]}"'  # another sentence but for marks
    again, counts = build([*SENTENCES, *UNSUITABLE, *UNSUITABLE, *SENTENCES, repeated], *sources)
    assert again == pairs
    assert counts.seen == len(SENTENCES) + len(UNSUITABLE) + 1
    assert counts.fallen["equal to another sentence except for marks, capitals or a name"] == 1
    assert counts.seen - sum(counts.fallen.values()) == counts.originals
    originals = {pair.original for pair in pairs}
    assert quality.originals == len(originals) >= 10
    assert {(pair.original, pair.subset) for pair in pairs} == {(t, subset) for t in originals for subset in SUBSETS}
    for original, changed in ((pair.original, pair.changed) for pair in pairs if "Negation" not in pair.subset):
        words = [{*both} for both in zip(original.split(), changed.split(), strict=True) if both[0] != both[1]]
        assert words, original
        assert words[:-1] in ([], [{"a", "an"}])  # one word and its article


def test_the_papers_examples(sources: Sources) -> None:
    """Table 2: both negations to the letter; Synonym and Antonym are listed alternatives in the right form."""
    changed = {(pair.original, pair.subset): pair.changed for pair in build(PAPER, *sources)[0]}
    listed = {"illegal": ({"illegitimate"}, {"legal"}), "boosted": ({"hiked", "increased"}, {"decreased"})}
    for original, (main, word_negation, word) in PAPER.items():
        assert changed[original, "Negation (Main)"] == main
        assert changed[original, "Negation (Antonym)"] == word_negation
        for subset in ("Typo", "Random MLM"):
            assert re.fullmatch(re.escape(original).replace(word, r"\w+"), changed[original, subset])
        for subset, alternatives in zip(("Synonym", "Antonym"), listed[word], strict=True):
            assert changed[original, subset] in {original.replace(word, other) for other in alternatives}


def test_filters_say_why(parser: Parser) -> None:
    outcomes = filter_sentences([*UNSUITABLE], parser, {"definately"})
    for (sentence, reason), outcome in zip(UNSUITABLE.items(), outcomes, strict=True):
        assert isinstance(outcome, UnsuitableError), sentence
        assert reason in str(outcome), sentence


def test_surest_originals_come_first(sources: Sources) -> None:
    originals, good = [], []
    for n, seed in ((2, 0), (6, 0), (6, 1)):
        pairs, quality = build(SENTENCES, *sources, n=n, seed=seed)
        originals.append(list(dict.fromkeys(pair.original for pair in pairs)))
        good.append(math.prod(quality.good.values()))
        assert quality.seen - sum(quality.fallen.values()) >= quality.originals == n
    assert originals[1][:2] == originals[0]
    assert originals[1] == originals[2]
    assert 1 > good[0] > good[1] > 0


def test_looking_stops(sources: Sources, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[build.__module__], "CHUNK", 4)
    monkeypatch.setattr(sys.modules[build.__module__], "LOOK_AT", 5)
    pairs, quality = build(SENTENCES, *sources, n=1, progress=True)
    assert len({pair.original for pair in pairs}) == 1
    assert quality.seen == 8 < len(SENTENCES)
    assert build(SENTENCES, *sources, n=1000)[1].seen == len(SENTENCES)


def test_quotation_marks_pauses_plurals_and_names(parser: Parser) -> None:
    unchanged = [
        'He said "Go home now, my old friends."',
        '"Go home" was what he said to the old man',
        "The old survivors went to the market to buy bread",
    ]
    expected = {
        '"He told the old man to go home!" ': "He told the old man to go home!",
        "He went to the old market… to buy bread...": "He went to the old market… to buy bread.",
        # Appendix A.1
        "I think that [NAME] is a better singer than [NAME].": "I think that Jackie is a better singer than Robin.",
    }
    outcomes = filter_sentences([*unchanged, *expected], parser, lexicon={"survivor"})
    assert [outcome.text for outcome in outcomes if isinstance(outcome, Choice)] == [*unchanged, *expected.values()]


def test_build_refusals() -> None:
    with pytest.raises(InputError, match="n=0: must be a whole number of at least 1"):
        build(SENTENCES, n=0)
    with pytest.raises(DataError, match="no sentences"):
        build(["", "\n"])
