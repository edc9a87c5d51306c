"""`essent evaluate`: recipes × tasks as one table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from essent.cli import options as opt
from essent.cli import several
from essent.cli.console import calm_libraries, results, show_note, wants_progress
from essent.cli.files import check_output, write_json_file
from essent.cli.labels import row_labels
from essent.cli.texts import read_files
from essent.types import InputError

if TYPE_CHECKING:
    from essent.evaluation import ByRecipe
    from essent.tasks import Result, Task

# What every model runs and papers compare with; no attention head, no [MASK].
DEFAULT_RECIPES = (
    "cls",
    "mean",
    "last2",
    "first-last",
    "static",
    "static-remove-biases",
    "first-last | zscore",
    "first-last-idf-zscore",
)
STATIC_RECIPES = (
    "static",
    "static weights=remove",
    "static weights=idf",
    "static weights=sif | abtt:1",
    "static | zscore",
    "static weights=idf | zscore",
)


def evaluate(
    model: opt.Models,
    recipe: Annotated[
        list[str] | None,
        opt.recipes("One row each: they share the forward passes. Default: eight that every model runs."),
    ] = None,
    as_is: Annotated[
        bool,
        typer.Option(
            "--as-is",
            help="Adds a row for the unchanged model, with its own pooling, Dense layers and prompts; without -r it is "
            "the only one.",
        ),
    ] = False,
    data: Annotated[
        list[str] | None,
        opt.data(
            "Tasks (stsb, trec, agnews, geometry:stsb), groups (sts7, transfer7, clustering6, classification12) "
            "or files (pairs.csv, classification:FILE, clustering:FILE). Default: sts7."
        ),
    ] = None,
    data_folder: opt.DataFolder = None,
    metric: Annotated[
        str,
        typer.Option(
            metavar="main|METRIC", help="The metric that the table shows: each task's main one, or for example pearson."
        ),
    ] = "main",
    average: Annotated[
        str,
        typer.Option(
            metavar="all|mean|wmean",
            help="How a task's subsets are combined: all pairs as one set, or the mean of the subsets.",
        ),
    ] = "all",
    shots: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NUMBERS",
            help="A second table for labelled texts: accuracy with so many labels of each class, as in 8,16,64.",
            callback=several.names,
        ),
    ] = None,
    fit: opt.Fit = None,
    frequencies: opt.Frequencies = None,
    column: opt.Column = "text",
    json_file: Annotated[Path | None, opt.json_file("Also write every result with its provenance.")] = None,
    cache: opt.Cache = None,
    max_seq_length: opt.MaxSeqLength = None,
    batch_size: opt.BatchSize = 32,
    device: opt.Device = None,
    revision: opt.Revision = None,
    trust_remote_code: opt.Trust = False,
    force: opt.Force = False,
    quiet: opt.Quiet = False,
    verbose: opt.Verbose = False,
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
    """
    from essent.tasks import STS7, few_labels_tables, load_task, results_table

    results_table({}, metric=metric, average=average)  # an unknown score is refused before anything is loaded
    if json_file is not None:
        check_output(json_file, force)
    if as_is and not recipe and (fit is not None or frequencies is not None):
        raise InputError(
            "--fit and --frequencies give the texts that a recipe learns from; --as-is runs no recipe. Add one with -r."
        )
    found = [load_task(name, data_folder) for name in data or STS7]
    fit_texts = None if fit is None else read_files(fit, column)
    frequency_texts = None if frequencies is None else read_files(frequencies, column)
    from essent.evaluation import ByRecipe
    from essent.evaluation import evaluate as run_evaluation
    from essent.hub import reach_model

    calm_libraries(verbose)
    options = opt.model_options(device, revision, trust_remote_code)
    for name in model[1:]:  # before the first one has run for an hour
        reach_model(name, options)
    given: dict[str, Any] = {"max_seq_length": max_seq_length, "report": None if quiet else _show_result, **options}
    given["shots"] = _whole_numbers(shots)
    fitted: dict[str, Any] = {"fit_texts": fit_texts, "frequency_texts": frequency_texts, "batch_size": batch_size}
    fitted |= {"cache": cache, "progress": wants_progress(quiet)}
    scores: dict[tuple[str, str], list[Result]] = {}
    tasks: Sequence[Task] = ()
    for name in model:
        if model[1:] and not quiet:
            show_note(f"{name}:")
        runs = [run_evaluation(name, [], found, **given)] if as_is else []
        if recipe or not as_is:
            runs.append(run_evaluation(name, recipe or _default_recipes(name), found, **given, **fitted))
        tasks = runs[0].tasks
        scores |= {(name, text): results_of for run in runs for text, results_of in run.items()}
    if json_file is not None:
        _write_results(scores.values(), json_file)
    labelled = ByRecipe(dict(zip(row_labels(list(scores)), scores.values(), strict=True)), tasks)
    console = results(json_file)
    for table in (results_table(labelled, metric=metric, average=average), *few_labels_tables(labelled)):
        console.print(table.render())
    for line in compared_in_words(labelled, metric):
        console.print(line, markup=False, soft_wrap=True)
    if not quiet:
        _show_notes(labelled)


def _whole_numbers(given: list[str] | None) -> list[int]:
    try:
        return [int(number) for number in given or ()]
    except ValueError:
        raise InputError(f"--shots takes whole numbers such as 8,16,64, not {', '.join(given or ())}.") from None


def compared_in_words(found: ByRecipe, metric: str = "main") -> Iterator[str]:
    """A heading, and a sentence for each recipe against that of the first row: of all tasks, or of one after another.

    By the metric where all of the tasks can be compared by it, otherwise by the main score. Empty where there is one
    row, or nothing to compare by.
    """
    tasks = found.compared
    if len(found) < 2 or not tasks:
        return
    score = metric if all(metric in found.scores_of(task) for task in tasks) else ""
    together = found.has_one_score or bool(score)
    for task in [None] if together else tasks:
        by = score or found.scores_of(task or tasks[0])[0]
        where = f"on {task or tasks[0]}" if task or len(tasks) == 1 else f"on average over {', '.join(tasks)}"
        yield f"Compared with {next(iter(found))} {where}: difference of {by} ×100 and its 95 % interval, paired."
        yield from (f"  {comparison.in_words()}" for comparison in found.comparisons(task=task, score=score))


def _default_recipes(model: str) -> list[str]:
    """A first look at a model; what essent saved or exported is scored unchanged."""
    from essent.folders import is_essent_folder, is_exported_folder
    from essent.model import is_static

    if is_exported_folder(model) or is_essent_folder(model, {}):
        return []
    here = Path(model).exists()  # a name on the hub is asked for when it is loaded, with its options
    return list(STATIC_RECIPES if here and (Path(model).is_file() or is_static(model, {})) else DEFAULT_RECIPES)


def _show_result(recipe: str, result: Result) -> None:
    if result.main is None:
        shown = "  ".join(f"{name} {scores['all']:.3f}" for name, scores in result.metrics.items() if "all" in scores)
        show_note(f"{result.task:<12} {shown}  {recipe}")
    else:
        show_note(f"{result.task:<12} {result.main_score:6.2f}  {recipe}")


def _show_notes(scores: dict[str, list[Result]]) -> None:
    """What a reader of the numbers needs, each sentence once; with its recipes unless it holds for all."""
    notes: dict[str, list[str]] = {}
    protocols = {
        r.task: r.provenance["protocol"] for found in scores.values() for r in found if "protocol" in r.provenance
    }
    for task, protocol in protocols.items():
        show_note(f"{task}: {protocol}.")
    for recipe, found in scores.items():
        for note in dict.fromkeys(f"{r.task}: {note}" for r in found for note in r.notes):
            notes.setdefault(note, []).append(recipe)
    for note, recipes in notes.items():
        show_note(note if len(recipes) == len(scores) else f"{note} ({'; '.join(recipes)})")


def _write_results(scores: Iterable[list[Result]], path: Path) -> None:
    from essent.tasks import save_results

    write_json_file(path, partial(save_results, [result for found in scores for result in found]))
