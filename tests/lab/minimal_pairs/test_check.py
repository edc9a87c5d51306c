"""Typos, the list first, then one letter; and the checks of finished pairs: each finds its kind, good pairs pass."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from heros_sentences import PAPER
from hypothesis import given
from hypothesis import strategies as st

from essent.errors import MissingDependencyError
from essent.lab.minimal_pairs.check import check_rows, is_near, make_typo
from essent.lab.minimal_pairs.parsing import Parser, UnsuitableError, attempt, is_word, levenshtein
from essent.lab.minimal_pairs.resources import misspellings
from essent.tasks.examples import MinimalPair
from essent.tasks.heros import load_heros
from essent.tasks.sample import sample_minimal_pairs_path


def test_check_finds_every_kind(parser: Parser) -> None:
    """Original, changed, subset, and the problem or nothing; the paper's negations; the demonstration's 120 pairs."""
    lines = (Path(__file__).parent / "checks.tsv").read_text("utf-8").splitlines()
    expected = {MinimalPair(*pair): problem for *pair, problem in (line.split("\t") for line in lines)}
    for original, (main, word, _) in PAPER.items():
        expected[MinimalPair(original, main, "Negation (Main)")] = ""
        expected[MinimalPair(original, word, "Negation (Antonym)")] = ""
    problems = {finding.pair: finding.problem for finding in check_rows(expected, parser)}
    assert {pair: problems.get(pair, "") for pair in expected} == expected
    pairs = load_heros(sample_minimal_pairs_path()).pairs
    assert len(check_rows(pairs, parser)) <= 6
    (finding,) = check_rows([MinimalPair("He ran.", "He jumped.", "Synonym"), MinimalPair("a", "a", "Synonym")], parser)
    assert (finding.number, finding.problem) == (2, "the two sentences are equal")  # numbers begin at 1


def test_misspellings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """codespell lists "unuseful" for "useless", which is no typo; a list's ambiguous lines do not count."""
    listed = misspellings()
    assert make_typo("Receive", np.random.default_rng(0), listed)[0].lower() in listed["receive"]
    assert make_typo("useless", np.random.default_rng(0), {"useless": ("unuseful",)})[1] != "common misspelling"
    assert make_typo("which", np.random.default_rng(0), {"which": ("wich",)}) == ("wich", "common misspelling")
    path = tmp_path / "dictionary.txt"
    path.write_text("teh->the\nclas->class, disabled because\nabandonned->abandoned\nfoo bar->x\n", "utf-8")
    assert misspellings(path) == {"the": ("teh",), "abandoned": ("abandonned",)}
    monkeypatch.setitem(sys.modules, "codespell_lib", None)
    with pytest.raises(MissingDependencyError, match=r"essent\[heros\]"):
        misspellings.__wrapped__()


@given(st.text(alphabet="abcdefgiklmnorstuy", min_size=3, max_size=12), st.integers(0, 2**32))
def test_typo_changes_a_letter(word: str, seed: int) -> None:
    slip = attempt(make_typo, word, np.random.default_rng(seed), {})
    if isinstance(slip, UnsuitableError):  # a word of one letter repeated, say
        return
    typo, rule = slip
    assert (typo, rule) == make_typo(word, np.random.default_rng(seed), {})
    assert typo != word
    assert typo[0] == word[0]
    assert not is_word(typo)
    assert is_near(typo, word)
    expected = {"letter deleted": (1, -1), "letter doubled": (1, 1), "letters swapped": (2, 0)}
    assert (levenshtein(word, typo), len(typo) - len(word)) == expected[rule]


def test_slips() -> None:
    typos = {make_typo("refused", np.random.default_rng(seed), {})[0] for seed in range(400)}
    assert {"refsued", "reffused", "refusd"} <= typos
    for word in ("so", "x-ray"):
        with pytest.raises(UnsuitableError, match="no typo"):
            make_typo(word, np.random.default_rng(0), {})
