"""Every command and recipe part is used by an example that runs: a page's block or a notebook's cell."""

import ast
import importlib
import re
import shlex
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from check_readme import ROOT, blocks
from command_line import commands
from essent import NAMED, TEMPLATES, EssentError, Recipe
from essent.recipe.layers import token_tables
from essent.recipe.pooling import reductions
from essent.recipe.shaping.base import shapers
from essent.recipe.weighting.base import weightings
from test_docs import PAGES

sys.path.insert(0, str(ROOT / "docs" / "site"))
from generated import doors, public_names


def python_of(page: Path) -> str:
    """The Python that is run of a page: its blocks, and the cells of a notebook without their settings."""
    cells = blocks(page, r"\{code-cell\}[^\n]*")
    return "\n".join([*blocks(page, "python"), *(re.sub(r"\A---\n.*?^---\n", "", c, flags=re.M | re.S) for c in cells)])


def lines_of(page: Path) -> list[list[str]]:
    """The words of each command of essent that is run of a page: shell blocks, and `!essent` in notebooks."""
    cells = "".join(blocks(page, r"\{code-cell\}[^\n]*"))
    lines = [*"".join(blocks(page, "bash")).splitlines(), *re.findall(r"^!(essent .*)$", cells, flags=re.MULTILINE)]
    return [shlex.split(line, comments=True)[1:] for line in lines if line.startswith("essent ")]


def test_every_command_has_an_example() -> None:
    run = {" ".join(["essent", *words[:many]]) for page in PAGES for words in lines_of(page) for many in (1, 2, 3)}
    assert not {name for name, _ in commands()} - run


def recipes_in(page: Path) -> Iterator[Recipe]:
    """Whatever in the strings of a page's code, and in the arguments of its commands, is a recipe."""
    strings = [node.value for node in ast.walk(ast.parse(python_of(page))) if isinstance(node, ast.Constant)]
    arguments = {word for words in lines_of(page) for word in words}
    for text in arguments.union(value for value in strings if isinstance(value, str)):
        for part in text.split(","):
            with suppress(EssentError):
                yield Recipe.parse(part)


def test_every_recipe_part_has_an_example() -> None:
    recipes = {recipe for page in PAGES for recipe in recipes_in(page)}
    parts = [(*r.weights, *r.shaping, r.reduce, *(source for source, _ in r.layers)) for r in recipes]
    used = {re.split("[:@]", part)[0] for recipe_parts in parts for part in recipe_parts}
    assert {name for registry in (weightings, reductions, shapers, token_tables) for name in registry} <= used
    heads = {str(recipe).partition(":")[0] for recipe in recipes}
    for name, row in NAMED.items():
        assert name in heads if row.argument else Recipe.parse(name) in recipes, name
    assert set(TEMPLATES.values()) <= {template for recipe in recipes for template, _ in recipe.terms}


def test_examples_import_public_names() -> None:
    public = {(door, name) for door in doors() for name in public_names(importlib.import_module(door))}
    wrong = []
    for page in PAGES:
        for node in ast.walk(ast.parse(python_of(page))):
            if isinstance(node, ast.ImportFrom) and f"{node.module}".partition(".")[0] == "essent":
                names = {(node.module, alias.name) for alias in node.names} - public
                wrong.extend(f"{page.name}: {door}.{name}" for door, name in names if f"{door}.{name}" not in doors())
    assert wrong == []
