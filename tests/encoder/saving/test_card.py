"""A saved encoder's card names its recipe, and its example loads it."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

import essent
from essent import Encoder
from families import CORPUS


@pytest.mark.parametrize(
    ("recipe", "loads_with"), [("first-last | normalize", SentenceTransformer), ("ditto:1-2 | zscore", Encoder)]
)
def test_the_card_has_recipe_and_usage(bert: Path, tmp_path: Path, recipe: str, loads_with: type) -> None:
    encoder = Encoder(str(bert), recipe, device="cpu").fit(CORPUS)
    encoder.save(str(tmp_path))
    card = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert f"## Recipe\n\n`{recipe}`" in card
    assert "- essent\n" in card.split("---")[1]
    assert "trained." not in card
    assert f"Encoder({recipe!r}" in card
    imported, loaded = re.findall(r"^from (\w+) import (\w+)$", card, re.MULTILINE)[0]
    assert loaded == loads_with.__name__
    assert imported == loads_with.__module__.split(".")[0]
    assert ("trust_remote_code=True" in card) is (loads_with is Encoder)
    assert np.allclose(loads_with(str(tmp_path)).encode(CORPUS), encoder.encode(CORPUS), atol=1e-5)


def test_create_model_card_false(bert: Path, tmp_path: Path) -> None:
    Encoder(str(bert), "mean", device="cpu").save(str(tmp_path), create_model_card=False)
    assert not (tmp_path / "README.md").exists()
    assert essent.verify(str(tmp_path)).passed
