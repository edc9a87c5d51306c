"""Names to parts, and errors that say the nearest one."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from essent._core.registry import Registry, did_you_mean, format_spec, parse_argument, split_spec
from essent.errors import RecipeError, UnknownNameError
from essent.recipe.pooling import reductions
from essent.recipe.shaping.base import shapers
from essent.recipe.sources.layers import token_tables
from essent.recipe.weighting.base import weightings

REGISTRIES = [weightings, reductions, shapers, token_tables]


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


@pytest.mark.parametrize(
    ("spec", "name", "positional", "keyword"),
    [
        ("idf", "idf", [], {}),
        (" ditto:1-10 ", "ditto", ["1-10"], {}),
        ("random:300,7", "random", [300, 7], {}),
        ("sif:a=1e-3", "sif", [], {"a": 0.001}),
        ("shape:3,colour=blue", "shape", [3], {"colour": "blue"}),
    ],
)
def test_a_spec_is_a_name_and_its_arguments(spec: str, name: str, positional: list, keyword: dict) -> None:
    assert split_spec(spec) == (name, positional, keyword)


@pytest.mark.parametrize(
    ("text", "value"), [("2", 2), ("-3", -3), ("1e-3", 0.001), ("0.5", 0.5), ("1-10", "1-10"), ("red", "red")]
)
def test_numbers_become_numbers(text: str, value: object) -> None:
    assert parse_argument(text) == value
    assert type(parse_argument(text)) is type(value)


@pytest.mark.parametrize("spec", ["abtt:", "abtt: ", "shape:colour=red,3"])
def test_the_error_quotes_a_malformed_spec(spec: str) -> None:
    with pytest.raises(RecipeError, match=spec.strip()):
        split_spec(spec)


def test_create_builds_the_part(shapes: Registry) -> None:
    assert shapes.create("shape:3,blue") == Shape(3, "blue")
    assert shapes.create("shape:colour=blue") == Shape(2, "blue")


@pytest.mark.parametrize("spec", ["shape:1,2,3", "shape:weight=2"])
def test_wrong_arguments_show_the_signature(shapes: Registry, spec: str) -> None:
    with pytest.raises(RecipeError, match=r"Arguments of 'shape': size.*2, colour"):
        shapes.create(spec)


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


@pytest.mark.parametrize("registry", REGISTRIES, ids=lambda registry: registry.kind)
def test_every_part_is_documented_and_knows_its_name(registry: Registry) -> None:
    assert list(registry) == sorted(registry)
    for name in registry:
        assert name in registry
        assert registry[name].name == name
        assert (registry[name].__doc__ or "").strip(), f"{registry.kind} {name} has no docstring"
