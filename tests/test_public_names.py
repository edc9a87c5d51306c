"""Every public name, command and recipe part is used by an example that runs: a page's block or a notebook's cell."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import shlex
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from command_line import commands
from essent import NAMED, TEMPLATES, EssentError, Recipe, evaluate, search
from essent.recipe.pooling import reductions
from essent.recipe.shaping.base import shapers
from essent.recipe.sources.layers import token_tables
from essent.recipe.weighting.base import weightings
from essent.selection.leaderboard import Leaderboard, Trial
from essent.tasks.comparison import Comparison
from test_docs import PAGES, ROOT, blocks

sys.path.insert(0, str(ROOT / "docs" / "site"))
from generated import doors, public_names

ASSIGNED = (ast.Assign, ast.AnnAssign, ast.NamedExpr)


def python_of(page: Path) -> str:
    """The Python that is run of a page: its blocks, and the cells of a notebook without their settings."""
    cells = blocks(page, r"\{code-cell\}[^\n]*")
    return "\n".join([*blocks(page, "python"), *(re.sub(r"\A---\n.*?^---\n", "", c, flags=re.M | re.S) for c in cells)])


# -- what a piece of code uses ----------------------------------------------------------------------------------------


@cache
def imported_in(module: str) -> dict[str, Any]:
    """What the names of a file stand for, those that are imported for type checkers only included."""
    source = ast.parse(inspect.getsource(importlib.import_module(module)))
    names = dict(vars(importlib.import_module(module)))
    for node in ast.walk(source):
        if isinstance(node, ast.ImportFrom) and f"{node.module}".startswith("essent"):
            names |= {a.asname or a.name: member(importlib.import_module(f"{node.module}"), a.name) for a in node.names}
    return names


def member(owner: Any, name: str) -> Any:
    """An attribute, or a module of a package."""
    if isinstance(owner, ModuleType) and not hasattr(owner, name):
        return importlib.import_module(f"{owner.__name__}.{name}")
    return getattr(owner, name, None)


def classes_in(annotation: Any, module: str) -> set[type]:
    """The classes of essent that an annotation names, inside lists, tuples and unions too."""
    if inspect.isclass(annotation) and annotation.__module__.startswith("essent"):
        return {annotation}
    text = annotation if isinstance(annotation, str) else str(annotation).replace("typing.", "")
    known = imported_in(module)
    values = [known.get(node.id) for node in ast.walk(ast.parse(text, mode="eval")) if isinstance(node, ast.Name)]
    return {value for value in values if inspect.isclass(value) and value.__module__.startswith("essent")}


def return_types(function: Any) -> set[type]:
    """The classes of what a call gives."""
    if inspect.isclass(function):
        return {function}
    function = inspect.unwrap(getattr(function, "__func__", function))
    annotation = getattr(function, "__annotations__", {}).get("return")
    return set() if annotation in (None, "None") else classes_in(annotation, function.__module__)


def attribute_types(owner: type, name: str) -> tuple[Any, set[type]]:
    """An attribute of an object of this class: the method, if it is one; else the classes of its value."""
    value = inspect.getattr_static(owner, name, None)
    if isinstance(value, property):
        return None, return_types(value.fget)
    if hasattr(value, "func") and not inspect.isroutine(value):  # functools.cached_property
        return None, return_types(value.func)
    if inspect.isroutine(value) or isinstance(value, (classmethod, staticmethod)):
        return getattr(owner, name), set()
    for base in owner.__mro__:
        if name in getattr(base, "__annotations__", {}):
            return None, classes_in(base.__annotations__[name], base.__module__)
    return None, set()


def classes_within(value: Any) -> set[type]:
    """The classes of what a constant of essent is or holds."""
    members = value.values() if isinstance(value, dict) else value if isinstance(value, (tuple, list)) else [value]
    return {type(member) for member in members if type(member).__module__.startswith("essent")}


class Reader(ast.NodeVisitor):
    """Follows names through an example: what it imports, and the classes of what essent's functions give it.

    A container counts as what it holds, so `for trial in board.trials` gives `trial` the class `Trial`.
    """

    def __init__(self) -> None:
        self.names: dict[str, Any] = {}  # imported: themselves
        self.kinds: dict[str, set[type]] = {}  # assigned: their classes
        self.used: list[Any] = []

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            if alias.name.partition(".")[0] == "essent":
                module = importlib.import_module(alias.name)
                self.names[alias.asname or "essent"] = module if alias.asname else importlib.import_module("essent")

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        if f"{node.module}".partition(".")[0] == "essent":
            for alias in node.names:
                value = member(importlib.import_module(f"{node.module}"), alias.name)
                self.names[alias.asname or alias.name] = value

    def of(self, node: ast.AST) -> tuple[Any, set[type]]:
        """The thing of essent that an expression is, or the classes of its value."""
        if isinstance(node, ast.Name):
            value = self.names.get(node.id)
            return value, self.kinds.get(node.id, set()) | classes_within(value)
        if isinstance(node, ast.Attribute):
            value, kinds = self.of(node.value)
            if inspect.isclass(value) or isinstance(value, ModuleType):
                return member(value, node.attr), set()
            attributes = [attribute_types(kind, node.attr) for kind in kinds]
            return next((f for f, _ in attributes if f is not None), None), set().union(*(k for _, k in attributes))
        if isinstance(node, ast.Call):
            called, kinds = self.of(node.func)
            return None, return_types(called) if callable(called) else kinds  # rows.items() holds what rows holds
        if isinstance(node, (ast.Subscript, ast.Starred)):
            return None, self.of(node.value)[1]
        if isinstance(node, (ast.ListComp, ast.GeneratorExp, ast.SetComp)):
            return None, self.of(node.elt)[1]
        if isinstance(node, ast.DictComp):
            return None, self.of(node.value)[1]
        if isinstance(node, (ast.List, ast.Tuple)):
            return None, set().union(*(self.of(part)[1] for part in node.elts))
        return None, set()

    def bind(self, target: ast.AST, value: ast.AST) -> None:
        for node in ast.walk(target):
            if isinstance(node, ast.Name):
                self.kinds.setdefault(node.id, set()).update(self.of(value)[1])

    def visit(self, node: ast.AST) -> None:
        for comprehension in getattr(node, "generators", ()):
            self.bind(comprehension.target, comprehension.iter)
        super().visit(node)
        if isinstance(node, ASSIGNED) and node.value is not None:
            for target in getattr(node, "targets", None) or [node.target]:
                self.bind(target, node.value)
        if isinstance(node, (ast.Name, ast.Attribute, ast.Call)) and isinstance(
            getattr(node, "ctx", None), ast.Load | None
        ):
            value, kinds = self.of(node)
            self.used.extend([value, *kinds])

    def visit_For(self, node: ast.For) -> None:
        self.bind(node.target, node.iter)
        self.generic_visit(node)

    def visit_With(self, node: ast.With) -> None:
        for item in node.items:
            if item.optional_vars is not None:
                self.bind(item.optional_vars, item.context_expr)
        self.generic_visit(node)


def used_in(code: str) -> list[Any]:
    reader = Reader()
    reader.visit(ast.parse(code))
    return [value for value in reader.used if value is not None]


# -- the tests --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def code() -> list[str]:
    return [text for page in PAGES if (text := python_of(page)).strip()]


def test_every_public_name_has_an_example(code: list[str]) -> None:
    used = {id(value) for text in code for value in used_in(text)}
    missing = []
    for door in sorted(set(doors())):
        module = importlib.import_module(door)
        missing.extend(f"{door}.{name}" for name in public_names(module) if id(getattr(module, name)) not in used)
    assert missing == [], "\n".join(missing)


def lines_of(page: Path) -> list[list[str]]:
    """The words of each command of essent that is run of a page: shell blocks, and `!essent` in notebooks."""
    cells = "".join(blocks(page, r"\{code-cell\}[^\n]*"))
    lines = [*"".join(blocks(page, "bash")).splitlines(), *re.findall(r"^!(essent .*)$", cells, flags=re.MULTILINE)]
    return [shlex.split(line, comments=True)[1:] for line in lines if line.startswith("essent ")]


def test_every_command_has_an_example() -> None:
    """All but one, whose file a person fills in: tests/lab/minimal_pairs/test_build_command.py runs it."""
    run = {" ".join(["essent", *words[:many]]) for page in PAGES for words in lines_of(page) for many in (1, 2, 3)}
    assert {name for name, _ in commands()} - run == {"essent lab minimal-pairs fit"}


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
    used = {
        re.split("[:@]", part)[0] for recipe in recipes for part in (*recipe.weights, *recipe.shaping, recipe.reduce)
    }
    used |= {re.split("[:@]", source)[0] for recipe in recipes for source, _ in recipe.layers}
    parts = {name for registry in (weightings, reductions, shapers, token_tables) for name in registry}
    assert parts - used == set()
    heads = {str(recipe).partition(":")[0] for recipe in recipes}
    missing = {name for name, row in NAMED.items() if not row.argument and Recipe.parse(name) not in recipes}
    assert missing | {name for name, row in NAMED.items() if row.argument and name not in heads} == set()
    assert set(TEMPLATES.values()) - {recipe.template for recipe in recipes} == set()


def test_examples_import_public_names() -> None:
    public = {(door, name) for door in doors() for name in public_names(importlib.import_module(door))}
    wrong = []
    for page in PAGES:
        for node in ast.walk(ast.parse(python_of(page))):
            if isinstance(node, ast.ImportFrom) and f"{node.module}".partition(".")[0] == "essent":
                names = {(node.module, alias.name) for alias in node.names} - public
                wrong.extend(f"{page.name}: {door}.{name}" for door, name in names if f"{door}.{name}" not in doors())
    assert wrong == []


def test_a_name_without_an_example_is_detected() -> None:
    used = used_in(
        "from essent import search, evaluate\nboard = search(m, d)\nfor trial in board.trials:\n    trial.recipe\n"
    )
    assert {search, Leaderboard, Trial} <= {value for value in used if callable(value)}
    assert evaluate not in used
    assert Comparison not in used
