"""`essent evaluate`: scores of recipes × tasks, as a table and a report."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from essent.cli import options as opt
from essent.cli.console import is_quiet, prepare_torch, results, show_lines, show_note
from essent.cli.files import check_output, check_report, expand_groups, read_files, write_json_file, write_page
from essent.errors import InputError
from essent.tasks.result import load_results, results_table, save_results

if TYPE_CHECKING:
    from essent.selection.results import Evaluation
    from essent.tasks.result import Result


def evaluate(
    files: Annotated[list[Path] | None, Parameter(name="RESULTS")] = None,
    /,
    *,
    model: opt.AnyModels = None,
    recipe: opt.Recipes = None,
    as_is: bool = False,
    data: opt.Data = None,
    data_folder: opt.Folder = None,
    columns: opt.Columns = None,
    fit: opt.Fit = None,
    json_file: opt.Json = None,
    report: opt.Report = None,
    batch_size: opt.BatchSize = 32,
    precision: opt.Precision = "auto",
    run: opt.Run = opt.Run(),
) -> None:
    """Score recipes on labelled data.

    Tasks are scored pairs, duplicates, triplets, classes, clusters, retrieval or geometry. The table shows scores ×100
    with ± half of their 95 % interval. Above it, each row is compared with the first, on the same pairs, texts or
    queries. Recipes that learn something (idf, shaping) are fitted on each task's own texts, as in the papers, unless
    --fit names other texts.

    ```console
    $ essent evaluate -m bert-base-uncased -r mean "first-last | zscore" ditto:1-10 -d stsb
    $ essent evaluate -m ./my-model -r mean -d stsb sickr my-pairs.csv --data-folder data --json results.json
    $ essent evaluate -m ./model-a ./model-b -d reviews.csv --columns text=body,label=category
    $ essent evaluate -m ./my-model -r mean first-last -d my-classes.csv --report page.html
    $ essent evaluate results.json minimal-pairs.json --report page.html
    ```

    Args:
        files: Files that evaluate and lab minimal-pairs evaluate wrote with --json, for the report.
        model: Models on the hub, or folders. Several are compared; each row names its model.
        recipe: Recipes, one row each; they share forward passes. Default: eight that every model runs; several models
            are compared as they are.
        as_is: Add a row for the unchanged model, with its own pooling, Dense layers and prompts. Without --recipe, it
            is the only row.
        data: Tasks (stsb, trec, agnews, geometry:stsb), groups (sts7, transfer7, clustering6, classification12) or
            files (pairs.csv, classification:FILE, clustering:FILE). Default: sts7.
        data_folder: Folder of the named tasks: DIR/sts/NAME.jsonl. Default: the hub.
        fit: Texts to fit the recipes on (token counts, shaping), the papers' superscript W.
        json_file: Write the results with their provenance as JSON; - is standard output.
        report: Write a page (.html, .md) or a picture (.png).
        batch_size: Texts of about 64 tokens per batch.
        precision: Number format of the computation; auto is float32 on CPUs, bfloat16 needs hardware support.
    """
    if files and report is None:
        raise InputError(f"{files[0]}: result files are for a report. Add --report FILE, or name models with --model.")
    check_output(json_file, run.force)
    check_report(report, run.force)
    earlier = [result for file in dict.fromkeys(files or []) for result in load_results(file)]
    if model is None:
        if report is None or not files or recipe or data or as_is:
            raise InputError("Pass a model with --model, or only result files and --report.")
        write_page(earlier, report)
        return
    as_is |= len(set(model)) > 1 and not recipe
    if as_is and not recipe and fit is not None:
        raise InputError("--fit needs a recipe to fit, but models as they are run none. Add one with --recipe.")
    named_columns = opt.parse_columns(columns)
    prepare_torch("essent evaluate")
    from essent.selection.evaluation import default_recipes
    from essent.selection.evaluation import evaluate as run_evaluation
    from essent.selection.results import Evaluation
    from essent.tasks.catalogue import STS7
    from essent.tasks.locate import load_task

    tasks = [load_task(name, data_folder, columns=named_columns) for name in expand_groups(data) or STS7]
    fit_texts = None if fit is None else read_files(fit, named_columns.get("text", "text"))
    settings: dict[str, Any] = {"precision": precision, "batch_size": batch_size, **run.options}
    settings["progress"] = not is_quiet()
    runs = [run_evaluation(model, [], tasks, **settings)] if as_is else []
    settings |= {"fit_texts": fit_texts, "frequency_texts": fit_texts}
    if recipe or not as_is:
        runs.append(run_evaluation(model, recipe or default_recipes(model[0]), tasks, **settings))
    evaluation = Evaluation.of((r for scored in runs for row in scored.values() for r in row), runs[0].tasks)
    every_result = [result for row in evaluation.values() for result in row]
    _show(evaluation, every_result, json_file)
    if report is not None:
        write_page([*earlier, *every_result], report, comparisons=evaluation.summary())


def _show(evaluation: Evaluation, every_result: list[Result], json_file: Path | None) -> None:
    """Print the comparisons and the table, and write the results as JSON if a file is named."""
    write_json_file(json_file, partial(save_results, every_result))
    show_lines(evaluation.summary(), json_file)
    results(json_file).print(results_table(evaluation).render())
    for note in evaluation.notes():
        show_note(note)
