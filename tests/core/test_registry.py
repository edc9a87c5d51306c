"""Names to parts, and errors that say the nearest one."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from essent._core.registry import Registry
from essent.errors import RecipeError

SHAPES: Registry = Registry("shape", "essent.tests")


@SHAPES.register("shape")
@dataclass(frozen=True)
class Shape:
    """A part for the tests."""

    size: int = 2
    colour: str = "red"


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("shape:", "'shape:' ends in ':'"),
        ("shape: ", "'shape: ' ends in ':'"),
        ("shape:colour=red,3", "'shape:colour=red,3': the positional argument '3' follows"),
        ("shape:weight=2", r"Arguments of 'shape': size.*2, colour"),
        ("shpae", r"Unknown shape 'shpae'\. Did you mean 'shape'\?"),
        ("zzzzzz", r"Unknown shape 'zzzzzz'\. Known: shape\."),
    ],
)
def test_a_wrong_spec_is_quoted(spec: str, message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        SHAPES.create(spec)


def test_a_name_is_registered_once() -> None:
    SHAPES.register("shape")(Shape)  # the same class again: a module imported twice
    with pytest.raises(ValueError, match="taken by Shape"):
        SHAPES.register("shape")(type("Other", (), {}))
