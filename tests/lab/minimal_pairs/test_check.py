"""The checks of finished pairs: each finds its kind, and good pairs pass."""

from __future__ import annotations

from pathlib import Path

from heros_sentences import PAPER

from essent.lab.minimal_pairs.check import check_rows
from essent.lab.minimal_pairs.parsing import Parser
from essent.tasks.examples import MinimalPair
from essent.tasks.heros import load_heros
from essent.tasks.sample import sample_minimal_pairs_path


def test_check_finds_every_kind(parser: Parser) -> None:
    """Original, changed, subset, and the problem or nothing; then the paper's negations."""
    lines = (Path(__file__).parent / "checks.tsv").read_text("utf-8").splitlines()
    expected = {MinimalPair(*pair): problem for *pair, problem in (line.split("\t") for line in lines)}
    for original, (main, word, _) in PAPER.items():
        expected[MinimalPair(original, main, "Negation (Main)")] = ""
        expected[MinimalPair(original, word, "Negation (Antonym)")] = ""
    problems = {finding.pair: finding.problem for finding in check_rows(expected, parser)}
    assert {pair: problems.get(pair, "") for pair in expected} == expected


def test_check_of_handwritten_pairs(parser: Parser) -> None:
    """The 120 pairs of the demonstration; numbers begin at 1."""
    findings = check_rows(load_heros(sample_minimal_pairs_path()).pairs, parser)
    assert len(findings) <= 6, [(finding.pair, finding.problem) for finding in findings]
    (finding,) = check_rows([MinimalPair("He ran.", "He jumped.", "Synonym"), MinimalPair("a", "a", "Synonym")], parser)
    assert (finding.number, finding.problem) == (2, "the two sentences are equal")
