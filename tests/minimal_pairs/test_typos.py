"""Typos: the list first, then one letter."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from essent.minimal_pairs import English, misspelling_list, misspellings
from essent.minimal_pairs.typos import is_typo, make_typo
from essent.tasks.overlap import levenshtein
from essent.types import MissingDependencyError

ENGLISH = English()


def test_the_list_of_codespell() -> None:
    listed = misspellings(misspelling_list())
    assert "recieve" in listed["receive"]
    assert len(listed) > 10_000
    assert make_typo("Receive", np.random.default_rng(0), listed, ENGLISH)[0].lower() in listed["receive"]


def test_only_unambiguous_lines_count(tmp_path: Path) -> None:
    path = tmp_path / "dictionary.txt"
    path.write_text("teh->the\nclas->class, disabled because\nabandonned->abandoned\nfoo bar->x\n", "utf-8")
    assert misspellings(path) == {"the": ("teh",), "abandoned": ("abandonned",)}


@given(st.text(alphabet="abcdefgiklmnorstuy", min_size=3, max_size=12), st.integers(0, 2**32))
def test_one_letter_is_changed(word: str, seed: int) -> None:
    found = make_typo(word, np.random.default_rng(seed), {}, ENGLISH)
    assert found == make_typo(word, np.random.default_rng(seed), {}, ENGLISH)
    if found is None:  # a word of one letter repeated, say
        return
    typo, rule = found
    assert typo != word
    assert typo[0] == word[0]
    assert not ENGLISH.is_word(typo)
    assert is_typo(typo, word, {}, ENGLISH)
    distance = levenshtein(word, typo)
    assert (distance, len(typo) - len(word)) in {
        "letter deleted": {(1, -1)},
        "letter replaced": {(1, 0)},
        "letter doubled": {(1, 1)},
        "letters swapped": {(2, 0)},
    }[rule]


def test_a_listed_typo_is_near_its_word() -> None:
    """codespell lists "unuseful" for "useless"."""
    typo, rule = make_typo("useless", np.random.default_rng(0), {"useless": ("unuseful",)}, ENGLISH)
    assert (rule, typo) != ("common misspelling", "unuseful")
    assert make_typo("which", np.random.default_rng(0), {"which": ("wich",)}, ENGLISH) == ("wich", "common misspelling")


def test_what_has_no_typo() -> None:
    rng = np.random.default_rng(0)
    assert make_typo("so", rng, {}, ENGLISH) is None
    assert make_typo("x-ray", rng, {}, ENGLISH) is None


def test_a_letter_slips_to_a_key_beside_it_or_a_vowel_of_like_sound() -> None:
    """ "ryfused" is nobody's typo of "refused"; "rwfused" and "rifused" are."""
    typos = {make_typo("refused", np.random.default_rng(seed), {}, ENGLISH)[0] for seed in range(400)}
    assert "ryfused" not in typos
    assert {"rwfused", "refsued", "reffused", "refusd"} <= typos
    wanted = {"ryfused": False, "rwfused": True, "rifused": True, "refuzed": True, "refusde": True, "elephant": False}
    assert {typo: is_typo(typo, "refused", {}, ENGLISH) for typo in wanted} == wanted
    assert is_typo("unuseful", "useless", {"useless": ("unuseful",)}, ENGLISH)


def test_codespell_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingDependencyError, match=r"essent\[heros\]"):
        misspelling_list()
