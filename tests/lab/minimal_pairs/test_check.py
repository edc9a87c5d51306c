"""The checks of finished pairs: each finds its kind, and good pairs pass."""

from __future__ import annotations

from pathlib import Path

from heros_sentences import PAPER

from essent.lab.minimal_pairs.check import check_rows
from essent.lab.minimal_pairs.parsing import Parser
from essent.tasks.examples import MinimalPair
from essent.tasks.heros import load_heros
from essent.tasks.sample import sample_minimal_pairs_path


def test_each_kind_is_found_and_good_pairs_pass(parser: Parser) -> None:
    """Original, changed, subset, and the problem or nothing; then the paper's negations."""
    lines = (Path(__file__).parent / "checks.tsv").read_text("utf-8").splitlines()
    wanted = {MinimalPair(*pair): problem for *pair, problem in (line.split("\t") for line in lines)}
    for original, (main, word, _) in PAPER.items():
        wanted[MinimalPair(original, main, "Negation (Main)")] = ""
        wanted[MinimalPair(original, word, "Negation (Antonym)")] = ""
    problems = {finding.pair: finding.problem for finding in check_rows(wanted, parser)}
    assert {pair: problems.get(pair, "") for pair in wanted} == wanted


def test_pairs_written_by_hand_pass_but_for_a_few(parser: Parser) -> None:
    """The 120 pairs of the demonstration; numbers begin at 1."""
    found = check_rows(load_heros(sample_minimal_pairs_path()).pairs, parser)
    assert len(found) <= 6, [(one.pair, one.problem) for one in found]
    (one,) = check_rows([MinimalPair("He ran.", "He jumped.", "Synonym"), MinimalPair("a", "a", "Synonym")], parser)
    assert (one.number, one.problem) == (2, "the two sentences are equal")
