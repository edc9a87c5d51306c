"""Typos: the list first, then one letter."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from essent.errors import MissingDependencyError
from essent.lab.minimal_pairs.check import is_near, make_typo, misspellings
from essent.lab.minimal_pairs.overlap import levenshtein
from essent.lab.minimal_pairs.parsing import UnsuitableError, attempt, is_word


def test_the_list_of_codespell() -> None:
    listed = misspellings()
    assert "recieve" in listed["receive"]
    assert len(listed) > 10_000
    assert make_typo("Receive", np.random.default_rng(0), listed)[0].lower() in listed["receive"]


def test_only_unambiguous_lines_count(tmp_path: Path) -> None:
    path = tmp_path / "dictionary.txt"
    path.write_text("teh->the\nclas->class, disabled because\nabandonned->abandoned\nfoo bar->x\n", "utf-8")
    assert misspellings(path) == {"the": ("teh",), "abandoned": ("abandonned",)}


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
    distance = levenshtein(word, typo)
    assert (distance, len(typo) - len(word)) in {
        "letter deleted": {(1, -1)},
        "letter doubled": {(1, 1)},
        "letters swapped": {(2, 0)},
    }[rule]


def test_a_listed_typo_is_near_its_word() -> None:
    """codespell lists "unuseful" for "useless"."""
    typo, rule = make_typo("useless", np.random.default_rng(0), {"useless": ("unuseful",)})
    assert (rule, typo) != ("common misspelling", "unuseful")
    assert make_typo("which", np.random.default_rng(0), {"which": ("wich",)}) == ("wich", "common misspelling")


@pytest.mark.parametrize("word", ["so", "x-ray"])
def test_words_without_a_typo(word: str) -> None:
    with pytest.raises(UnsuitableError, match="no typo"):
        make_typo(word, np.random.default_rng(0), {})


def test_slips() -> None:
    typos = {make_typo("refused", np.random.default_rng(seed), {})[0] for seed in range(400)}
    assert {"refsued", "reffused", "refusd"} <= typos
    assert not is_near("elephant", "refused")


def test_codespell_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "codespell_lib", None)
    with pytest.raises(MissingDependencyError, match=r"essent\[heros\]"):
        misspellings.__wrapped__()
