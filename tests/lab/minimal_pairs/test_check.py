"""The checks of finished pairs: each finds its kind, and good pairs pass."""

from __future__ import annotations

import pytest
from heros_sentences import PAPER

from essent.lab.minimal_pairs.check import check_rows
from essent.lab.minimal_pairs.language import Parser
from essent.tasks.examples import MinimalPair
from essent.tasks.heros import load_heros
from essent.tasks.sample import sample_minimal_pairs_path

ASKED = "How do I change the HEAD?"
SAID = "He runs an old shop."
FOUND = {
    (SAID, SAID, "Synonym"): "the two sentences are equal",
    (SAID, "He runs a big store.", "Synonym"): "more than one word differs",
    (SAID, "He runs an old little shop.", "Antonym"): "more than one word differs",
    (SAID, "He runs a old shop.", "Random MLM"): "only an article differs",
    (SAID, "He runs an old Shop.", "Synonym"): "only marks or capitals differ",
    (SAID, "He runs an young shop.", "Antonym"): "ungrammatical: a or an before the wrong sound",
    (SAID, "He runs an elephant shop.", "Typo"): "the typo is another word",
    (SAID, "He does run an old shop.", "Negation (Main)"): "no negation is put or taken",
    (SAID, "He doesn't not run an old shop.", "Negation (Main)"): "more than one negation differs",
    (SAID, "He does not own an old shop.", "Negation (Main)"): "more than the negation differs",
    (SAID, "He does not run an old house.", "Negation (Antonym)"): "more than the negation differs",
    ("It is not so.", "It is is so.", "Negation (Main)"): "more than the negation differs",
    ("I change the HEAD.", "How do I do not change the HEAD.", "Negation (Main)"): "more than the negation differs",
    (ASKED, "How do I do not change the HEAD?", "Negation (Main)"): "not a statement: a question",
    (ASKED[:-1], "How do I not change the HEAD", "Negation (Main)"): "not a statement: a question or a clause of none",
    ("Changing the HEAD", "Not changing the HEAD", "Negation (Main)"): "not a statement: no main verb",
    ("They refused it.", "They rejected it.", "Typo"): "the typo is another word",
    ("They are here.", "They not are are here.", "Negation (Main)"): "more than the negation differs",
    ("The cat sat down.", "The the sat down.", "Random MLM"): "ungrammatical: a doubled word",
}
GOOD = [
    (SAID, "He runs a young shop.", "Antonym"),
    ('He runs "an old" shop.', 'He runs "a young" shop.', "Antonym"),
    (SAID, "He runs an odl shop.", "Typo"),
    (SAID, "He does not run an old shop.", "Negation (Main)"),
    (SAID, "He runs a not old shop.", "Negation (Antonym)"),
    ("He does the dishes.", "He does not do the dishes.", "Negation (Main)"),
    ("She had a dog.", "She did not have a dog.", "Negation (Main)"),
    ("They won't come.", "They will come.", "Negation (Main)"),
    ("He must’ve left.", "He must not have left.", "Negation (Main)"),
    ("They can’t come.", "They can come.", "Negation (Antonym)"),
]


def problem_of(pair: tuple[str, str, str], parser: Parser) -> str | None:
    return next((one.problem for one in check_rows([MinimalPair(*pair)], parser)), None)


@pytest.mark.parametrize(("pair", "problem"), FOUND.items(), ids=[" ".join(pair[1:]) for pair in FOUND])
def test_each_kind_is_found(pair: tuple[str, str, str], problem: str, parser: Parser) -> None:
    assert problem_of(pair, parser) == problem


@pytest.mark.parametrize("pair", GOOD, ids=[pair[1] for pair in GOOD])
def test_good_pairs_pass(pair: tuple[str, str, str], parser: Parser) -> None:
    assert problem_of(pair, parser) is None


def test_the_papers_negations_pass(parser: Parser) -> None:
    for original, (main, place, _) in PAPER.items():
        assert problem_of((original, main, "Negation (Main)"), parser) is None
        assert problem_of((original, place, "Negation (Antonym)"), parser) is None


def test_pairs_written_by_hand_pass_but_for_a_few(parser: Parser) -> None:
    """The 120 pairs of the demonstration; numbers begin at 1."""
    found = check_rows(load_heros(sample_minimal_pairs_path()).pairs, parser)
    assert len(found) <= 6, [(one.pair, one.problem) for one in found]
    (one,) = check_rows([MinimalPair("He ran.", "He jumped.", "Synonym"), MinimalPair("a", "a", "Synonym")], parser)
    assert (one.number, one.problem) == (2, "the two sentences are equal")
