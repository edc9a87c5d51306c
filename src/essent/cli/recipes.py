"""`essent recipes`: the published recipes and the parts to build others from, without torch and scikit-learn.

Weightings, reductions and token tables are registered by modules that import quickly. Shaping steps are scikit-learn
classes, whose import needs seconds, so their names and arguments are read from their source. Steps of other packages
must be imported; if there are any, all steps come from the registry.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from essent._core.atomic import write_json
from essent._core.registry import offered
from essent.cli import options as opt
from essent.cli.console import results
from essent.cli.files import write_json_file
from essent.recipe.named import NAMED, TEMPLATES

if TYPE_CHECKING:
    from rich.console import Console

    from essent.recipe.recipe import Recipe


Described = dict[str, tuple[str, str]]  # name -> (arguments with their defaults, what it does)
NOTHING = inspect.Parameter.empty


def parts() -> dict[str, Described]:
    """Return all parts by kind."""
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
    """Return the shaping steps of essent and of other packages."""
    if offered("essent.shapers"):
        from essent.recipe.shaping.base import shapers

        return registered(shapers)
    return parts_in_source("essent.recipe.shaping")


def registered(registry: Any) -> Described:
    """Describe the parts of a registry."""
    described: Described = {}
    for name in registry:
        parameters = inspect.signature(registry[name]).parameters.values()
        described[name] = _described([(p.name, p.default) for p in parameters], inspect.getdoc(registry[name]))
    return described


def parts_in_source(package: str) -> Described:
    """Describe the classes decorated with `@….register("name")` in a package, like `registered`, without importing it.

    The arguments are those of their own `__init__`, with literal defaults.
    """
    spec = find_spec(package)
    folders = spec.submodule_search_locations if spec is not None else None
    trees = [ast.parse(file.read_text("utf-8")) for folder in folders or () for file in Path(folder).glob("*.py")]
    described: Described = {}
    for part in (node for tree in trees for node in tree.body if isinstance(node, ast.ClassDef)):
        parameters: list[tuple[str, Any]] = []
        for node in part.body:
            if isinstance(node, ast.FunctionDef) and node.name == "__init__":
                names = [argument.arg for argument in node.args.args[1:]]
                defaults = [ast.literal_eval(default) for default in node.args.defaults]
                parameters = list(zip(names, [NOTHING] * (len(names) - len(defaults)) + defaults, strict=True))
        for decorator in part.decorator_list:
            match decorator:
                case ast.Call(func=ast.Attribute(attr="register"), args=[ast.Constant(value=str(name))]):
                    described[name] = _described(parameters, ast.get_docstring(part))
    return dict(sorted(described.items()))


def _described(parameters: list[tuple[str, Any]], docstring: str | None) -> tuple[str, str]:
    """Return the arguments with their defaults, and the first paragraph of the docstring on one line."""
    arguments = (name if default in (NOTHING, "") else f"{name}={default}" for name, default in parameters)
    return ", ".join(arguments), " ".join((docstring or "").split("\n\n")[0].split())


NARROW = 120  # columns of a terminal
FIELDS = {
    "template": ("t", "text with one {text} and any number of [MASK], or a name from the table below; default: none"),
    "layers": ("h, α", "sources, mixed: L (last), 0 (embedding output), L-1, 0+L, 0.3*0+0.7*L, static, topk:200 …"),
    "weights": ("ω", "token weights, multiplied: idf, ditto:1-10, idf*content; default: uniform"),
    "reduce": ("Σ", "reduction of the weighted tokens to one vector; default: sum"),
    "| step": ("g", "shaping, a chain: | zscore, | whiten:256 | normalize; default: none"),
}


def recipes(
    recipe: Annotated[str | None, Parameter(name="RECIPE")] = None,
    /,
    *,
    json_file: opt.Json = None,
) -> None:
    """List the published recipes and all parts, or show one recipe.

    ```console
    $ essent recipes
    $ essent recipes "ditto:1-10 | zscore"
    $ essent recipes --json -
    ```

    Args:
        recipe: Show the fields of this recipe, e.g. "ditto:1-10 | zscore".
        json_file: Also write the list or the recipe as JSON; - is standard output.
    """
    console = results(json_file)
    if recipe is None:
        known = parts()
        _show_all(known, console)
        described = _describe_all(known)
    else:
        parsed = _show_recipe(recipe, console)
        described = {"text": str(parsed), "digest": parsed.digest(), **parsed.to_dict()}
    write_json_file(json_file, partial(write_json, value=described))


# -- all of them ------------------------------------------------------------------------------------------------------


def _describe_all(known: Mapping[str, Described]) -> dict[str, Any]:
    columns = ("name", "form", "fields", "paper", "section", "about")
    listed = [
        {name: getattr(row, name) for name in columns} | {"argument": row.argument or None, "example": row.instance}
        for row in NAMED.values()
    ]
    described = {
        kind: {name: {"arguments": arguments, "about": summary} for name, (arguments, summary) in members.items()}
        for kind, members in known.items()
    }
    return {"recipes": listed, "templates": TEMPLATES, **described}


def _show_all(known: Mapping[str, Described], console: Console) -> None:
    published = [(row.form, row.about, row.fields, f"{row.paper}, {row.section}") for row in NAMED.values()]
    _show_table(console, "Published recipes", ("recipe", "what it does", "its fields", "paper"), published)
    fields = [(f"{field:<10}{symbol}", summary) for field, (symbol, summary) in FIELDS.items()]
    _show_table(console, "Fields of a recipe, e(s) = g( Σₙ ωₙ · Σₖ αₖ · hₙ⁽ᵏ⁾ )", ("field", "values"), fields)
    for kind, members in known.items():
        described = [(part, summary, arguments) for part, (arguments, summary) in members.items()]
        _show_table(console, f"Parts: {kind}", ("name", "what it does", "arguments"), described)
    _show_table(console, "Templates, byte for byte", ("name", "text"), list(TEMPLATES.items()))
    console.print(
        'Write recipes as NAME, NAME field=value, or field=value … | step, e.g. "mean layers=3 | whiten:256".'
    )
    console.print("essent recipes NAME shows the fields of a recipe.")


def _show_table(console: Console, title: str, columns: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
    """Print a table; on a narrow terminal, later columns move below the second, so that no word breaks."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    if console.width < NARROW and len(columns) > 2:
        columns = (columns[0], ", ".join(columns[1:]))
        rows = [(row[0], "\n".join(filter(None, row[1:]))) for row in rows]
    table = Table(title=Text(title, style="bold"), title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for number, column in enumerate(columns):
        table.add_column(column, style="" if number else "cyan", no_wrap=not number, overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    console.print(table)


# -- one of them ------------------------------------------------------------------------------------------------------


def _show_recipe(name: str, console: Console) -> Recipe:
    from essent.recipe.recipe import Recipe
    from essent.recipe.sources.layers import format_mix

    row = NAMED.get(name.strip())
    recipe = Recipe.parse(name if row is None else row.instance)
    row = row or NAMED.get(str(recipe).partition(" ")[0].partition(":")[0])
    show = partial(console.print, markup=False, soft_wrap=True)
    show(str(recipe), style="bold cyan")
    if row is not None:
        show(f"{row.about} — {row.paper}, {row.section}")
        if row.argument:
            show(f"Form: {row.form}, e.g. {row.instance}")
    weights, shaping = "*".join(recipe.weights), " | ".join(recipe.shaping)
    values = (recipe.template, format_mix(recipe.layers), weights, recipe.reduce, shaping)
    named = zip(FIELDS.items(), values, strict=True)
    rows = [(f"{field:<10}{symbol}", value or "none") for (field, (symbol, _)), value in named]
    _show_table(console, "Fields", ("field", "value"), rows)
    for title, text in (("JSON", recipe.to_json()), ("YAML", recipe.to_yaml())):
        show(title, style="bold")
        show(text.rstrip() + "\n")
    show(f"Digest {recipe.digest()}")
    return recipe
