"""Texts that the tests of the core share, and how their products are sampled."""

from collections.abc import Container, Iterable
from typing import Any

import pytest

TEXTS = [
    "A man is playing a large flute.",
    "dogs",
    "",
    "How far is the moon from the earth?",
    "She doesn't like cold coffee; however, she drinks it every morning!",
    "Two dogs run through the green field, chasing a red ball",
    "unbelievably 12 kittens: Ünïcödé 你好 and so on.",
    "The stock market fell sharply on Monday",
]
LONG = "The old oak tree stayed there all the morning and the kitten climbed it. " * 14  # 200 tokens or so
HEADS = ("1-1", "2-3", "3-4")  # tiny models have 3 layers of 4 heads


def daily(every: Iterable[Any], *names: Any) -> list[Any]:
    """All values for a test, of which `make test` takes the named ones and `make test-all` the others too."""
    chosen: Container[Any] = names
    return [pytest.param(value, marks=() if value in chosen else pytest.mark.slow) for value in every]
