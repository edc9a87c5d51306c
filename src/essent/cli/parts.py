"""The parts that recipes are made of: their names, arguments and first sentences, without torch and scikit-learn.

Weightings, reductions and token tables are registered by modules that import quickly. The steps of shaping are
scikit-learn classes, whose import takes seconds: what a list of them needs is read from their source. Other packages'
steps have to be imported; where there are any, all steps come from the registry.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from essent._core.registry import offered

Described = dict[str, tuple[str, str]]  # name -> (arguments with their defaults, what it does)
NOTHING = inspect.Parameter.empty


def parts() -> dict[str, Described]:
    """Every part by its kind."""
    from essent.recipe.pooling import reductions
    from essent.recipe.sources.layers import token_tables
    from essent.recipe.weighting.base import weightings

    return {
        "weights": registered(weightings),
        "reduce": registered(reductions),
        "shaping": shaping_steps(),
        "token tables": registered(token_tables),
    }


def shaping_steps() -> Described:
    """The steps of shaping, essent's and those of other packages."""
    if offered("essent.shapers"):
        from essent.recipe.shaping.base import shapers

        return registered(shapers)
    return in_source("essent.recipe.shaping")


def registered(registry: Any) -> Described:
    """The parts of a registry."""
    found: Described = {}
    for name in registry:
        taken = inspect.signature(registry[name]).parameters.values()
        found[name] = (_arguments([(p.name, p.default) for p in taken]), _summary(inspect.getdoc(registry[name])))
    return found


def in_source(package: str) -> Described:
    """The classes below `@….register("name")` in a package, as `registered` describes them; imports none of it.

    Their arguments are those of their own `__init__`, with defaults that are written out.
    """
    spec = find_spec(package)
    folders = spec.submodule_search_locations if spec is not None else None
    trees = [ast.parse(file.read_text("utf-8")) for folder in folders or () for file in Path(folder).glob("*.py")]
    classes = [node for tree in trees for node in tree.body if isinstance(node, ast.ClassDef)]
    found = {
        name: (_arguments(list(_taken(part))), _summary(ast.get_docstring(part)))
        for part in classes
        for name in _names(part)
    }
    return dict(sorted(found.items()))


def _names(part: ast.ClassDef) -> Iterator[str]:
    for decorator in part.decorator_list:
        match decorator:
            case ast.Call(func=ast.Attribute(attr="register"), args=[ast.Constant(value=str(name))]):
                yield name


def _taken(part: ast.ClassDef) -> Iterator[tuple[str, Any]]:
    """The arguments of a class and their defaults."""
    for node in part.body:
        if isinstance(node, ast.FunctionDef) and node.name == "__init__":
            names = [argument.arg for argument in node.args.args[1:]]
            defaults = [ast.literal_eval(default) for default in node.args.defaults]
            yield from zip(names, [NOTHING] * (len(names) - len(defaults)) + defaults, strict=True)


def _arguments(taken: list[tuple[str, Any]]) -> str:
    return ", ".join(name if default in (NOTHING, "") else f"{name}={default}" for name, default in taken)


def _summary(docstring: str | None) -> str:
    """The first paragraph on one line."""
    return " ".join((docstring or "").split("\n\n")[0].split())
