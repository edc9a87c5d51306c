"""`essent lab minimal-pairs evaluate`: how similar a sentence stays to itself after one small change."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from essent.cli import options as opt
from essent.cli.console import prepare_torch, results, show_lines, show_note
from essent.cli.files import check_output, check_report, write_json_file, write_page
from essent.cli.texts import read_files
from essent.errors import InputError
from essent.recipe.recipe import Recipe

if TYPE_CHECKING:
    from rich.table import Table

    from essent.tasks.result import Result


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
        report: Also write a page or a picture: .html, .md or .png.
        batch_size: Texts of about 64 tokens per batch.
        engine: What runs the model: auto runs it as its folder is, a transformer in torch; openvino and onnx make a
            graph.
        precision: Arithmetic: auto is float32 on CPUs; bfloat16 where the machine has such arithmetic.
    """
    check_output(json_file, run.force)
    check_report(report, run.force)
    for text in recipe or []:  # an unknown one is refused before data are read
        Recipe.parse(text)
    if not recipe and fit is not None:
        raise InputError("--fit gives texts that a recipe learns from; name one with --recipe.")
    prepare_torch("essent lab minimal-pairs")
    from essent.cli.evaluate import score_models
    from essent.tasks.heros import load_heros, verdict
    from essent.tasks.result import save_results

    task = load_heros(data)
    fit_texts = None if fit is None else read_files(fit, column)
    settings = {"engine": engine, "precision": precision, "report": _show_recipe, **run.options}
    fitted = {"fit_texts": fit_texts, "frequency_texts": fit_texts, "batch_size": batch_size}
    scores = score_models(list(dict.fromkeys(model)), recipe or [], [task], not recipe, settings, fitted)
    results_by_label = {label: result for label, (result,) in scores.items()}
    write_json_file(json_file, partial(save_results, results_by_label.values()))
    if report is not None:
        write_page(list(results_by_label.values()), [], report)
    console = results(json_file)
    console.print(similarity_table(results_by_label))
    console.print("Synonym and typo keep the meaning, the others change it. In words:")
    for label, result in results_by_label.items():
        cosine = result.metrics["baseline"]["all"]
        base = "" if math.isnan(cosine) else f" (cosine of two different originals: {cosine:.2f})"
        show_lines([f"{label}{base}", *(f"  {sentence}" for sentence in verdict(result))], json_file)
    show_note(f"Columns read {task.source['columns_read']}.")
    for note in scores.notes():
        show_note(note)


def _show_recipe(recipe: str, result: Result) -> None:
    from essent.report.parts import short_name

    show_note(f"{short_name(result.provenance['model'])}, {recipe}")


def similarity_table(results_by_label: Mapping[str, Result]) -> Table:
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
