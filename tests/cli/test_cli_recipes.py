"""`essent recipes`: the list of recipes and parts, and one recipe in full."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from command_line import run
from essent import NAMED, TEMPLATES, Recipe
from essent.cli.recipes import parts, registered, shaping_in_source, shaping_steps
from essent.recipe.shaping.affine import Centre
from essent.recipe.shaping.base import shapers


def test_everything_is_listed() -> None:
    listed = json.loads(run("recipes", "--json", "-").stdout)
    assert all(Recipe.parse(row["example"]) for row in listed["recipes"])
    assert listed["templates"] == TEMPLATES
    kinds = ("weights", "reduce", "shaping", "token tables")
    assert all(part["about"] for kind in kinds for part in listed[kind].values())
    assert "ditto:HEAD" in run("recipes", "ditto").stdout
    listing = run("recipes").stdout
    for row in NAMED.values():
        assert f"{row.name}:HEAD" in listing if row.argument == "head" else row.name in listing
        assert row.paper in listing
    for text in (*TEMPLATES.values(), "zscore", "idf", "power", "random"):
        assert text in listing


@pytest.mark.parametrize("text", ["ditto:1-10 | zscore", 'template="[MASK] [red] {text}" weights=mask'])
def test_recipe_description(text: str) -> None:
    recipe = Recipe.parse(text)
    description = run("recipes", text).stdout
    for part in (str(recipe), recipe.to_json(), recipe.to_yaml().rstrip(), recipe.digest()):
        assert part in description
    written = json.loads(run("recipes", text, "--json", "-").stdout)
    assert (written.pop("text"), written.pop("digest")) == (str(recipe), recipe.digest())
    assert Recipe.from_dict(written) == recipe


@pytest.mark.parametrize("width", [80, 150])
def test_no_word_of_the_lists_is_broken(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    printed_words = set(run("recipes").stdout.split())
    described = [text for members in parts().values() for part in members.values() for text in part.values()]
    published = [text for row in NAMED.values() for text in (row.form, row.about, row.paper)]
    words = {word for text in (*described, *published) for word in text.split()}
    assert {word for word in words if not any(word in text for text in printed_words)} == set()


def test_shaping_steps_and_those_of_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read from the source as they are registered."""
    described = shaping_in_source()
    assert list(described.items()) == list(registered(shapers).items())

    class Mine(Centre):
        """Mine, first."""

        def __init__(self, share: float = 0.5) -> None:
            self.share = share

    point = SimpleNamespace(name="mine", load=lambda: Mine)
    monkeypatch.setattr("essent.cli.recipes.offered", lambda group: [point] if group == "essent.shapers" else [])
    monkeypatch.setitem(shapers._parts, "mine", Mine)
    assert shaping_steps() == {**described, "mine": {"arguments": "share=0.5", "about": "Mine, first."}}
