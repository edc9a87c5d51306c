"""Names to parts, and errors that say the nearest one."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from essent._core.registry import Registry, did_you_mean, format_spec, split_spec
from essent.errors import RecipeError, UnknownNameError


@dataclass(frozen=True)
class Shape:
    """A part for the tests."""

    size: int = 2
    colour: str = "red"


@pytest.fixture
def shapes() -> Registry:
    registry: Registry = Registry("shape", "essent.tests")
    registry.register("shape")(Shape)
    return registry


def test_a_spec_is_a_name_and_its_arguments() -> None:
    assert split_spec(" ditto:1-10 ") == ("ditto", ["1-10"], {})
    assert split_spec("shape:-3,colour=blue") == ("shape", [-3], {"colour": "blue"})
    assert split_spec("shape:0.5,a=1e-3") == ("shape", [0.5], {"a": 0.001})


@pytest.mark.parametrize("spec", ["abtt:", "abtt: ", "shape:colour=red,3"])
def test_the_error_quotes_a_malformed_spec(spec: str) -> None:
    with pytest.raises(RecipeError, match=spec.strip()):
        split_spec(spec)


def test_create_builds_the_part(shapes: Registry) -> None:
    assert shapes.create("shape:3,blue") == Shape(3, "blue")
    assert shapes.create("shape:colour=blue") == Shape(2, "blue")


def test_wrong_arguments_show_the_signature(shapes: Registry) -> None:
    with pytest.raises(RecipeError, match=r"Arguments of 'shape': size.*2, colour"):
        shapes.create("shape:weight=2")


def test_an_unknown_name_suggests_the_nearest(shapes: Registry) -> None:
    with pytest.raises(UnknownNameError, match=r"Unknown shape 'shpae'\. Did you mean 'shape'\?"):
        shapes.create("shpae")
    assert "Known: shape." in did_you_mean("zzzzzz", ["shape"])


def test_a_name_is_registered_once(shapes: Registry) -> None:
    shapes.register("shape")(Shape)  # the same class again: a module imported twice
    with pytest.raises(ValueError, match="taken by Shape"):
        shapes.register("shape")(type("Other", (), {}))


@given(st.integers(0, 9), st.sampled_from(["red", "blue"]))
def test_format_spec_is_read_back(size: int, colour: str) -> None:
    registry: Registry = Registry("shape", "essent.tests")
    registry.register("shape")(Shape)
    spec = format_spec("shape", {"size": size, "colour": colour}, {"size": 2, "colour": "red"})
    assert registry.create(spec) == Shape(size, colour)
