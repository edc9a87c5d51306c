"""`essent evaluate`: recipes × tasks as one table."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from essent.cli import options as opt
from essent.cli import several
from essent.cli.console import results, show_note
from essent.cli.files import check_output, write_json_file
from essent.cli.labels import row_labels
from essent.cli.settings import with_help, with_options
from essent.types import InputError

if TYPE_CHECKING:
    from essent.tasks import Result, Task


@with_help()
@with_options(opt.Learning, into="learning")
@with_options(opt.Computing, into="computing")
@with_options(opt.Run, into="run")
def evaluate(
    model: opt.Models,
    recipe: opt.Recipes = None,
    as_is: bool = False,
    data: opt.Data = None,
    data_folder: opt.DataFolder = None,
    metric: Annotated[str, typer.Option(metavar="main|METRIC")] = "main",
    average: Annotated[str, typer.Option(metavar="all|mean|wmean")] = "all",
    shots: opt.Numbers = None,
    *,
    learning: opt.Learning,
    json_file: Annotated[Path | None, opt.json_file("Also write every result with its provenance.")] = None,
    cache: opt.Cache = None,
    max_seq_length: opt.MaxSeqLength = None,
    batch_size: opt.BatchSize = 32,
    computing: opt.Computing,
    run: opt.Run,
) -> None:
    """Score recipes on judged data: scored pairs, duplicates, triplets, labelled texts, clusters, retrieval, geometry.

    The table shows scores ×100 with ± half of their 95 % interval; below it each recipe is compared with the first,
    on the same pairs, texts or queries.

    What a recipe learns (idf, shaping) it learns anew from each task's own texts, as in the papers, unless --fit or
    --frequencies name others.

    \b
    [dim]$[/] essent evaluate -m bert-base-uncased -r mean -r "first-last | zscore" -r ditto:1-10
    [dim]$[/] essent evaluate -m ./my-model -r mean -d stsb,sickr,my-pairs.csv --data-folder data --json results.json
    [dim]$[/] essent evaluate -m ./my-model -r mean -d transfer7,agnews,clustering:my-texts.csv --data-folder data
    [dim]$[/] essent evaluate -m ./my-model -r mean,first-last -d my-classes.csv --shots 8,16,64

    Args:
        recipe: one row each: they share the forward passes. Default: eight that every model runs.
        as_is: adds a row for the unchanged model, with its own pooling, Dense layers and prompts; without -r it is the
            only one.
        data: tasks (stsb, trec, agnews, geometry:stsb), groups (sts7, transfer7, clustering6, classification12) or
            files (pairs.csv, classification:FILE, clustering:FILE). Default: sts7.
        metric: the metric that the table shows: each task's main one, or for example pearson.
        average: how a task's subsets are combined: all pairs as one set, or the mean of the subsets.
        shots: a second table for labelled texts: accuracy with so many labels of each class, as in 8,16,64.
    """
    from essent.tasks import STS7, few_labels_tables, load_task, results_table, save_results

    results_table({}, metric=metric, average=average)  # an unknown score is refused before anything is loaded
    check_output(json_file, run.force)
    choice = computing.choice()
    if as_is and not recipe and (learning.fit is not None or learning.frequencies is not None):
        raise InputError(
            "--fit and --frequencies give the texts that a recipe learns from; --as-is runs no recipe. Add one with -r."
        )
    found = [load_task(name, data_folder) for name in data or STS7]
    fit_texts, frequency_texts = learning.read()
    from essent.evaluation import ByRecipe, default_recipes, offer_for
    from essent.evaluation import evaluate as run_evaluation
    from essent.hub import reach_model

    run.calm()
    for name in model[1:]:  # before the first one has run for an hour
        reach_model(name, run.options)
    given: dict[str, Any] = {"max_seq_length": max_seq_length, "report": None if run.quiet else _show_result}
    given |= {"shots": several.numbers("--shots", shots, int), **run.options}
    given |= {"engine": choice.engine, "precision": choice.precision}
    fitted: dict[str, Any] = {"fit_texts": fit_texts, "frequency_texts": frequency_texts, "batch_size": batch_size}
    fitted |= {"cache": cache, "progress": run.progress}
    scores: dict[tuple[str, str], list[Result]] = {}
    tasks: Sequence[Task] = ()
    for name in model:
        if model[1:]:
            run.note(f"{name}:")
        runs = [run_evaluation(name, [], found, **given)] if as_is else []
        if recipe or not as_is:
            runs.append(run_evaluation(name, recipe or default_recipes(name), found, **given, **fitted))
        tasks = runs[0].tasks
        scores |= {(name, text): results_of for one in runs for text, results_of in one.items()}
    if choice.is_default and recipe and not run.quiet:
        offer = offer_for(model[0], recipe[0], found[0], run.options)
        if offer is not None:
            run.note(f"{offer}.")
    write_json_file(json_file, partial(save_results, [result for of_one in scores.values() for result in of_one]))
    labelled = ByRecipe(dict(zip(row_labels(list(scores)), scores.values(), strict=True)), tasks)
    console = results(json_file)
    for table in (results_table(labelled, metric=metric, average=average), *few_labels_tables(labelled)):
        console.print(table.render())
    for line in labelled.in_words(metric):
        console.print(line, markup=False, soft_wrap=True)
    for note in labelled.notes():
        run.note(note)


def _show_result(recipe: str, result: Result) -> None:
    if result.main is None:
        shown = "  ".join(f"{name} {scores['all']:.3f}" for name, scores in result.metrics.items() if "all" in scores)
        show_note(f"{result.task:<12} {shown}  {recipe}")
    else:
        show_note(f"{result.task:<12} {result.main_score:6.2f}  {recipe}")
