"""`essent recipes`: the published recipes, and the parts to build others from."""

from __future__ import annotations

import inspect
import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from essent.cli.console import results
from essent.recipe import NAMED, TEMPLATES, NamedRecipe

if TYPE_CHECKING:
    from rich.table import Table

    from essent.recipe import Recipe

FIELDS = {
    "template": ("t", "text with one {text} and any number of [MASK], or the name of one below; by default none"),
    "layers": ("h, α", "sources, mixed: L (last), 0 (embedding output), L-1, 0+L, 0.3*0+0.7*L, static, topk:200 …"),
    "weights": ("ω", "token weights, multiplied: idf, ditto:1-10, idf*content; by default uniform"),
    "reduce": ("Σ", "how the weighted tokens become one vector; by default their sum"),
    "| step": ("g", "shaping, a chain: | zscore, | whiten:256 | normalize; by default none"),
}


def recipes(
    name: Annotated[
        str | None, typer.Argument(metavar="[RECIPE]", help="Show one recipe in full, e.g. 'ditto:1-10 | zscore'.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="For machines: everything as JSON.")] = False,
) -> None:
    """List the published recipes and every part a recipe is made of, or show one recipe in full.

    \b
    [dim]$[/] essent recipes
    [dim]$[/] essent recipes "ditto:1-10 | zscore"
    """
    if name is not None:
        _show_one(name, as_json)
    elif as_json:
        _print_json(_everything())
    else:
        _show_all()


def text_form(row: NamedRecipe) -> str:
    """How the recipe is written: `mean`, `ditto:HEAD`."""
    return f"{row.name}:{row.argument.upper()}" if row.argument else row.name


def parts() -> dict[str, dict[str, tuple[str, str]]]:
    """Every registered part by kind: {kind: {name: (arguments with their defaults, what it does)}}."""
    from essent.pooling import reductions
    from essent.shaping import shapers
    from essent.sources import token_tables
    from essent.weighting import weightings

    kinds: dict[str, Any] = {
        "weights": weightings,
        "reduce": reductions,
        "shaping": shapers,
        "token tables": token_tables,
    }
    return {
        kind: {name: (_arguments(registry[name]), _summary(registry[name])) for name in registry}
        for kind, registry in kinds.items()
    }


def _arguments(part: type) -> str:
    shown = []
    for parameter in inspect.signature(part).parameters.values():
        has_default = parameter.default not in (inspect.Parameter.empty, "")
        shown.append(f"{parameter.name}={parameter.default}" if has_default else parameter.name)
    return ", ".join(shown)


def _summary(part: type) -> str:
    """The docstring's first paragraph on one line."""
    return " ".join((inspect.getdoc(part) or "").split("\n\n")[0].split())


# -- all of them ------------------------------------------------------------------------------------------------------


def _everything() -> dict[str, Any]:
    listed = [
        {
            "name": row.name,
            "form": text_form(row),
            "fields": row.text.format(row.argument.upper()) if row.argument else row.text,
            "argument": row.argument or None,
            "example": f"{row.name}:{row.example}" if row.argument else row.name,
            "paper": row.paper,
            "section": row.section,
            "about": row.about,
        }
        for row in NAMED.values()
    ]
    described = {
        kind: {name: {"arguments": arguments, "about": about} for name, (arguments, about) in members.items()}
        for kind, members in parts().items()
    }
    return {"recipes": listed, "templates": TEMPLATES, **described}


def _show_all() -> None:
    from rich.text import Text

    console = results()
    table = _table("Published recipes", "recipe", "the same in fields", "what it does", "paper", "where")
    for row in NAMED.values():
        fields = row.text.format(row.argument.upper()) if row.argument else row.text
        table.add_row(*map(Text, (text_form(row), fields, row.about, row.paper, row.section)))
    console.print(table)
    table = _table("Fields of a recipe, e(s) = g( Σₙ ωₙ · Σₖ αₖ · hₙ⁽ᵏ⁾ )", "field", "part", "values")
    for field, (symbol, about) in FIELDS.items():
        table.add_row(*map(Text, (field, symbol, about)))
    console.print(table)
    for kind, members in parts().items():
        table = _table(f"Parts: {kind}", "name", "arguments", "what it does")
        for part, (arguments, about) in members.items():
            table.add_row(*map(Text, (part, arguments, about)))
        console.print(table)
    table = _table("Templates, byte for byte", "name", "text")
    for template, text in TEMPLATES.items():
        table.add_row(Text(template), Text(text))
    console.print(table)
    console.print('Write one as NAME, NAME field=value, or field=value … | step, e.g. "mean layers=3 | whiten:256".')
    console.print("essent recipes NAME shows the fields of one.")


def _table(title: str, *columns: str) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(title, style="bold"), title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for position, column in enumerate(columns):
        table.add_column(column, style="" if position else "cyan", no_wrap=not position, overflow="fold")
    return table


# -- one of them ------------------------------------------------------------------------------------------------------


def _show_one(name: str, as_json: bool) -> None:
    from essent.recipe import Recipe

    row = NAMED.get(name.strip())
    recipe = Recipe.parse(f"{row.name}:{row.example}" if row is not None and row.argument else name)
    if as_json:
        _print_json({"text": str(recipe), "digest": recipe.digest(), **recipe.to_dict()})
        return
    _show_recipe(recipe, row or NAMED.get(str(recipe).partition(" ")[0].partition(":")[0]))


def _show_recipe(recipe: Recipe, row: NamedRecipe | None) -> None:
    from rich.text import Text

    console = results()
    console.print(Text(str(recipe), style="bold cyan"), soft_wrap=True)
    if row is not None:
        console.print(Text(f"{row.about} — {row.paper}, {row.section}"), soft_wrap=True)
        if row.argument:
            console.print(Text(f"Written {text_form(row)}, e.g. {row.name}:{row.example}."), soft_wrap=True)
    table = _table("Fields", "field", "part", "value")
    for (field, (symbol, _)), value in zip(FIELDS.items(), _values(recipe), strict=True):
        table.add_row(field, symbol, Text(value or "none"))
    console.print(table)
    for title, text in (("JSON", recipe.to_json()), ("YAML", recipe.to_yaml())):
        console.print(Text(title, style="bold"))
        console.print(Text(text.rstrip() + "\n"), soft_wrap=True)
    console.print(Text(f"Digest {recipe.digest()}"))


def _values(recipe: Recipe) -> tuple[str, ...]:
    """The fields as they are written."""
    from essent.sources import format_mix

    weights, shaping = "*".join(recipe.weights), " | ".join(recipe.shaping)
    return recipe.template or "", format_mix(recipe.layers), weights, recipe.reduce, shaping


def _print_json(value: Any) -> None:
    typer.echo(json.dumps(value, ensure_ascii=False, indent=2))
