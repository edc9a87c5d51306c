"""Names to parts, and errors that say the nearest one."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from essent._core.registry import Registry, format_spec, split_spec
from essent.errors import RecipeError

SHAPES: Registry = Registry("shape", "essent.tests")


@SHAPES.register("shape")
@dataclass(frozen=True)
class Shape:
    """A part for the tests."""

    size: int = 2
    colour: str = "red"


@given(st.integers(0, 9), st.sampled_from(["red", "blue"]))
def test_a_spec_is_read_back(size: int, colour: str) -> None:
    spec = format_spec("shape", {"size": size, "colour": colour}, {"size": 2, "colour": "red"})
    assert SHAPES.create(spec) == Shape(size, colour)


def test_numbers_are_converted() -> None:
    assert split_spec(" shape:-3,1-10,0.5,a=1e-3") == ("shape", [-3, "1-10", 0.5], {"a": 0.001})


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
