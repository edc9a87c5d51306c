"""Typos: the list first, then one letter."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from essent.minimal_pairs import misspelling_list, misspellings
from essent.minimal_pairs.inflection import readings
from essent.minimal_pairs.typos import make_typo
from essent.tasks.overlap import levenshtein
from essent.types import MissingDependencyError


def test_the_list_of_codespell() -> None:
    listed = misspellings(misspelling_list())
    assert "recieve" in listed["receive"]
    assert len(listed) > 10_000
    assert make_typo("Receive", np.random.default_rng(0), listed)[0].lower() in listed["receive"]


def test_only_unambiguous_lines_count(tmp_path: Path) -> None:
    path = tmp_path / "dictionary.txt"
    path.write_text("teh->the\nclas->class, disabled because\nabandonned->abandoned\nfoo bar->x\n", "utf-8")
    assert misspellings(path) == {"the": ("teh",), "abandoned": ("abandonned",)}


@given(st.text(alphabet="abcdefgiklmnorstuy", min_size=3, max_size=12), st.integers(0, 2**32))
def test_one_letter_is_changed(word: str, seed: int) -> None:
    found = make_typo(word, np.random.default_rng(seed), {})
    assert found == make_typo(word, np.random.default_rng(seed), {})
    if found is None:  # a word of one letter repeated, say
        return
    typo, rule = found
    assert typo != word
    assert typo[0] == word[0] or rule == "letters swapped"
    assert not readings(typo)
    distance = levenshtein(word, typo)
    assert (distance, len(typo) - len(word)) in {
        "letter deleted": {(1, -1)},
        "letter replaced": {(1, 0)},
        "letters swapped": {(2, 0)},
    }[rule]


def test_a_listed_typo_is_near_its_word() -> None:
    """codespell lists "unuseful" for "useless"."""
    typo, rule = make_typo("useless", np.random.default_rng(0), {"useless": ("unuseful",)})
    assert (rule, typo) != ("common misspelling", "unuseful")
    assert make_typo("which", np.random.default_rng(0), {"which": ("wich",)}) == ("wich", "common misspelling")


def test_what_has_no_typo() -> None:
    rng = np.random.default_rng(0)
    assert make_typo("so", rng, {}) is None
    assert make_typo("x-ray", rng, {}) is None
    assert make_typo("naïve", rng, {}) is None


def test_codespell_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingDependencyError, match=r"essent\[heros\]"):
        misspelling_list()
