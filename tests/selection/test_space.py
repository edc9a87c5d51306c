"""What a search tries: wildcards, products, files, and what is refused."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from transformers import AutoConfig

from essent.errors import DataError, RecipeError, UnknownNameError, UnsupportedRecipeError
from essent.model.capabilities import ModelCapabilities, is_causal
from essent.model.loading import read_capabilities
from essent.recipe.recipe import Recipe
from essent.selection.space import REFERENCE, SPACES, Grid, Space, find_space
from families import DECODERS, MORE_DECODERS, Folders

ALL_DECODERS = (*DECODERS, *MORE_DECODERS)
BERT = ModelCapabilities("bert", 6, 12, mask=True)
DECODER = ModelCapabilities("gpt2", 4, 2, mask=False, causal=True)


def texts(space: Space, capabilities: ModelCapabilities = BERT) -> list[str]:
    return [str(recipe) for recipe in space.expand(capabilities)[0]]


def test_named_spaces() -> None:
    assert texts(SPACES["heads"]) == [f"ditto:{layer}-{head}" for layer in range(1, 7) for head in range(1, 13)]
    recipes = texts(SPACES["layers"])
    assert recipes[:8] == ["static", *(f"layers={n}" for n in range(6)), "mean"]
    assert {"layers=0+3", "first-last", "last2", "layers-1-2-L", "layers-0-1-2-L"} <= set(recipes)
    full, skipped = SPACES["full"].expand(BERT)
    assert (len(full), len(set(full)), skipped) == (2416, 2416, 0)
    chains = {recipe.shaping for recipe in [*full, *SPACES["shaping"].expand(BERT)[0]]}
    assert {chain[-1] for chain in chains if chain} == {"normalize"}
    assert ("whiten:64", "normalize") in chains


@pytest.mark.parametrize("name", SPACES)
def test_every_named_space_runs_on_a_decoder(name: str) -> None:
    recipes, skipped = SPACES[name].expand(DECODER)
    assert recipes
    assert not any(recipe.template and "[MASK]" in recipe.template for recipe in recipes)
    assert (skipped > 0) == (name in ("full", "decoder", "auto"))  # those with templates that need [MASK]


def test_automatic_spaces_and_reference_recipes_depend_on_the_model() -> None:
    assert texts(SPACES["auto"]) == texts(SPACES["full"])
    recipes = texts(SPACES["auto"], DECODER)
    assert recipes == texts(SPACES["decoder"], DECODER)
    assert {"prompteol", "about | centre | normalize", "template=one-word layers=L-2 weights=last"} <= set(recipes)
    with_mask = texts(SPACES["auto"], replace(DECODER, mask=True))
    assert {"about-mask", "template=T4 weights=mask | centre | normalize"} <= set(with_mask)
    plain, prompted = set(texts(REFERENCE)), set(texts(REFERENCE, DECODER))
    assert {"mean", "weights=idf", "mean | centre | normalize"} <= plain & prompted
    assert {"about | whiten | normalize", "template=one-word layers=L-2 weights=position"} <= prompted - plain
    assert not any(recipe.template for recipe in REFERENCE.expand(BERT)[0])


@pytest.mark.parametrize("family", ["bert", "roberta", "t5", "modernbert", *ALL_DECODERS])
def test_decoders_are_recognized_before_weights_are_read(family: str, folder_of: Folders) -> None:
    assert read_capabilities(folder_of(family), {}).causal is (family in ALL_DECODERS)


def test_a_bidirectional_decoder_is_an_encoder(folder_of: Folders) -> None:
    config = AutoConfig.from_pretrained(folder_of("gemma3_text"), use_bidirectional_attention=True)
    assert not is_causal(config)


def test_mask_weights_need_a_mask() -> None:
    grid = Grid(templates=(None, "T0", "one-word"), weights=("mask", "uniform"))
    recipes = [(r.template is None, r.weights[0]) for r in grid.recipes(BERT)]
    assert recipes == [(True, "uniform"), (False, "mask"), (False, "uniform"), (False, "uniform")]


def test_heads_in_products_and_layers_in_mixes() -> None:
    grid = Grid(layers=("0.5*1+0.5*L", "2+*"), weights=("idf*ditto:*",))
    recipes = list(grid.recipes(DECODER))
    assert len(recipes) == 8 * (1 + 4)
    assert recipes[0] == Recipe.parse("layers=1+L weights=idf*ditto:1-1")
    assert all(r.weights[0] == "idf" for r in recipes)


def test_a_file_of_grids_recipes_and_a_grammar(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(
        """
- layers: [L, 0+L]
  weights: [uniform, idf]
  shaping: ["", zscore | normalize]
- template: '{prefix} "{text}" {relation} [MASK] .'
  prefix: ["This sentence :", ""]
  relation: [means, is]
  weights: mask
- recipe: first-last | whiten
- recipe: ditto:1-2
""",
        "utf-8",
    )
    recipes = texts(find_space(path))
    assert len(recipes) == 2 + 8 + 4
    assert recipes[:2] == ["first-last | whiten", "ditto:1-2"]
    assert 'template="\\"{text}\\" is [MASK] ." weights=mask' in recipes
    assert find_space(path).name == "mine"


@pytest.mark.parametrize(
    ("content", "error", "message"),
    [
        ("- wieghts: [idf]", DataError, "entry 1: unknown key 'wieghts'.*weights"),
        ("- weights: [idff]", UnknownNameError, "idff.*Did you mean 'idf'"),
        ("- layers: []", DataError, "layers must be"),
        ("3", DataError, "expected a non-empty list"),
        ("- 3", DataError, "expected a non-empty list"),
        ("a: [", DataError, "own.yaml"),
        ("- template: '{text} {x} [MASK]'\n  y: [a]", RecipeError, "{x} must be a slot of it and have choices"),
    ],
)
def test_malformed_files_name_the_part(tmp_path: Path, content: str, error: type[Exception], message: str) -> None:
    path = tmp_path / "own.yaml"
    path.write_text(content, "utf-8")
    with pytest.raises(error, match=message):
        find_space(path).expand(BERT)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: find_space("head"), UnknownNameError, r"'head'.*'heads'"),
        (lambda: find_space("nowhere.yaml"), DataError, "does not exist"),
        (lambda: Grid(layers=()), RecipeError, "at least one choice in 'layers'"),
        (lambda: Space().expand(BERT), RecipeError, "contains no recipe"),
        (lambda: Space(named=("prompt",)).expand(DECODER), UnsupportedRecipeError, "no mask token"),
    ],
)
def test_refusals(make: Callable[[], object], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make()
