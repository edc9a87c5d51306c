"""`essent lab minimal-pairs evaluate`: how similar a sentence stays to itself after one small change."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from essent._core.lazy import check_torch, optional_import
from essent.cli import options as opt
from essent.cli.console import results, row_labels, short_name, short_names, silence_libraries
from essent.cli.files import check_output, write_json_file
from essent.cli.texts import read_files
from essent.errors import InputError
from essent.recipe.recipe import Recipe

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from essent.tasks.heros import HerosTask
    from essent.tasks.result import Result

AS_IT_IS = "as it is"


def evaluate(
    *,
    model: opt.Models,
    data: Annotated[str, Parameter(alias="-d")] = "hub",
    recipe: opt.Recipes = None,
    fit: opt.Fit = None,
    column: opt.Column = "text",
    json_file: opt.Json = None,
    report: opt.Report = None,
    batch_size: opt.BatchSize = 32,
    engine: opt.Engine = "auto",
    precision: opt.Precision = "auto",
    run: opt.Run = opt.Run(),
) -> None:
    """Compare models on minimal pairs (HEROS).

    The pairs are synonyms, typos, antonyms, random words and negations (Chiang et al. 2023). Similarity is 1 for the
    same and 0 for any other sentence: (cos − b) / (1 − b), b the mean cosine of the first half of the originals with
    the second. Below it stands its 95 % bootstrap interval.

    The file has one row per original with a column for each change, or one row per pair with the columns original,
    converted and subset.

    ```console
    $ essent lab minimal-pairs evaluate -m all-MiniLM-L6-v2 bert-base-uncased --report heros.png
    $ essent lab minimal-pairs evaluate -m ./my-model -r mean "first-last | zscore" --data heros.tsv --json heros.json
    ```

    Args:
        model: Models on the hub, or folders. With several, each row names its model.
        data: A file of minimal pairs; hub is dcml0714/Heros, hub:NAME another data set there.
        recipe: Recipes, one row each. Default: each model's own pooling.
        fit: Texts that the recipe learns from (token counts, shaping), the papers' superscript W.
        column: Column with the texts of --fit, in .jsonl, .csv, .tsv and .parquet files.
        json_file: Also write every result with its provenance; - is standard output.
        report: Also draw the heat map, one line per model and recipe, as .png.
        batch_size: Texts of about 64 tokens per batch.
        engine: What runs the model: auto runs it as its folder is, a transformer in torch; openvino and onnx make a
            graph.
        precision: Arithmetic: auto is float32 on CPUs; bfloat16 where the machine has such arithmetic.
    """
    check_output(json_file, run.force)
    check_output(report, run.force, (".png",))
    if report is not None:
        optional_import("matplotlib", "demo")
    recipes = list(dict.fromkeys(Recipe.parse(text) for text in recipe or []))
    if not recipes and fit is not None:
        raise InputError("--fit gives texts that a recipe learns from; name one with --recipe.")
    check_torch("essent lab minimal-pairs")
    from essent.engine.choice import EngineChoice
    from essent.tasks.heros import load_heros
    from essent.tasks.result import save_results

    task = load_heros(data)
    fit_texts = None if fit is None else read_files(fit, column)
    silence_libraries()
    settings = {"batch_size": batch_size, "progress": run.progress, "choice": EngineChoice(engine, precision)}
    scores: dict[tuple[str, str], Result] = {}
    for name in model:
        for text, result in _scored(name, recipes, task, fit_texts, settings, run.options):
            scores[name, text] = result.with_provenance(model=name, recipe=text)
            run.note(f"{short_name(name)}, {text}")
    results_by_label = dict(zip(_labels(list(scores)), scores.values(), strict=True))
    write_json_file(json_file, partial(save_results, scores.values()))
    if report is not None:
        _draw(results_by_label, report, task.name)
    _print(results_by_label, task, run, results(json_file))


def _scored(
    model: str,
    recipes: Sequence[Recipe],
    task: HerosTask,
    fit_texts: list[str] | None,
    settings: dict[str, Any],
    options: dict[str, Any],
) -> Iterator[tuple[str, Result]]:
    """Every recipe's result on one model; without recipes the model's own, whatever modules it has."""
    from essent.encoder.encoder import Encoder
    from essent.engine.choice import choose
    from essent.errors import RecipeError
    from essent.selection.evaluation import Bench

    if recipes:
        bench = Bench(model, recipes, **settings, options=options)
        for recipe, vectors in bench.vectors(task.texts(), fit_texts, fit_texts):
            yield str(recipe), task.score_vectors(vectors)
        return
    try:
        encoder: Any = Encoder(model, **options)
        text = str(encoder.recipe)
    except RecipeError:  # modules that no recipe describes, a trained Dense say: that is still an encoder
        from essent.model.loading import open_model

        encoder, text = open_model(model, options), AS_IT_IS
    encoder = choose(encoder, settings["choice"].engine, settings["choice"].precision)
    yield (
        text,
        task.run(lambda texts: encoder.encode(texts, batch_size=settings["batch_size"], show_progress_bar=False)),
    )


def _labels(rows: Sequence[tuple[str, str]]) -> list[str]:
    """Short names of the rows: the model, the recipe where one model has several, or both."""
    models = list(dict.fromkeys(model for model, _ in rows))
    return list(short_names(models).values()) if len(rows) == len(models) else row_labels(rows)


def _draw(results_by_label: dict[str, Result], picture: Path, name: str) -> None:
    from essent.report.heat import draw_heros

    models = list(dict.fromkeys(short_name(str(result.provenance["model"])) for result in results_by_label.values()))
    single_model = f", {models[0]}" if len(models) == 1 and list(results_by_label) != models else ""
    draw_heros(
        results_by_label, picture, title=f"{'HEROS' if name == 'heros' else f'Minimal pairs: {name}'}{single_model}"
    )


def _print(results_by_label: dict[str, Result], task: HerosTask, run: opt.Run, console: Console) -> None:
    from rich.text import Text

    from essent.tasks.heros import verdict

    console.print(_table(results_by_label))
    console.print("Synonym and typo keep the meaning, the others change it. In words:")
    for label, result in results_by_label.items():
        cosine = result.metrics["baseline"]["all"]
        base = "" if math.isnan(cosine) else f" (cosine of two different originals: {cosine:.2f})"
        console.print(Text.assemble((label, "bold"), base), soft_wrap=True)
        for sentence in verdict(result):
            console.print(Text(f"  {sentence}"), soft_wrap=True)
    run.note(f"Columns read {task.source['columns_read']}.")
    for note in dict.fromkeys(note for result in results_by_label.values() for note in result.notes):
        run.note(note)


def _table(results_by_label: dict[str, Result]) -> Table:
    """One row a model and recipe: similarity and interval of each subset."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from essent.tasks.heros import CHANGED, KEPT

    present = [s for s in (*KEPT, *CHANGED) if any(s in result.subsets for result in results_by_label.values())]
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=0)  # fits into 80 columns
    table.add_column("", overflow="fold", min_width=min(16, max(map(len, results_by_label))))
    for subset in present:
        table.add_column(Text(subset.replace(" ", "\n", 1)), justify="right", no_wrap=True)
    for label, result in results_by_label.items():
        table.add_row(Text(label), *(_cell(result.subsets.get(subset)) for subset in present))
    return table


def _cell(scores: dict[str, float] | None) -> Any:
    from rich.text import Text

    if scores is None or math.isnan(scores["similarity"]):  # a note says why
        return Text("–")
    interval = f"{scores['low']:.2f}–{scores['high']:.2f}"
    return Text.assemble(f"{scores['similarity']:.2f}", "\n", (interval, "dim"))
