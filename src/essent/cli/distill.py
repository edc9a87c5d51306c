"""`essent distill`: a static encoder of a model, from one pass over a corpus."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from essent.atomic import remove_leftovers
from essent.cli import options as opt
from essent.cli.console import results
from essent.cli.save import check_folder
from essent.cli.settings import with_help, with_options
from essent.cli.texts import listed, read_corpus, read_judged
from essent.cli.verify import show_verification
from essent.static import Choice, TableSettings
from essent.types import InputError

if TYPE_CHECKING:
    from essent.static import Kept, Material, Trial
    from essent.tasks import JudgedTask

TABLE, SEARCH = "Table", "Search and scores"
STATE = "distill.safetensors"


@with_help({opt.INPUTS: "column duplicates", TABLE: "recipe contexts", SEARCH: "validate test"})
@with_options(Choice, {"": TABLE}, into="choice", metavars={"layers": "MIX", "weights": "WEIGHTS", "shaping": "CHAIN"})
@with_options(
    TableSettings,
    {"": TABLE},
    into="table",
    metavars={"dtype": "float32|float16|int8", "unseen": "alone|static|zero|mean"},
)
@with_options(opt.Run, into="run")
def distill(
    model: opt.Model,
    texts: Annotated[
        list[Path], opt.texts("Texts like those to be encoded: one a line, or .jsonl, .csv, .tsv or .parquet.")
    ],
    output: Annotated[Path, opt.output("DIR", "The folder to write.")],
    recipe: opt.Recipe = None,
    column: opt.Names = None,
    duplicates: bool = False,
    *,
    choice: Choice,
    table: TableSettings,
    contexts: opt.Folder = None,
    validate: opt.Tasks = None,
    test: opt.Tasks = None,
    data_folder: opt.DataFolder = None,
    batch_size: opt.BatchSize = 32,
    precision: opt.Precision = "auto",
    run: opt.Run,
) -> None:
    """Make a static encoder of a model: one table of token vectors, as fast as tokenising.

    Every token's states are averaged over its places in the corpus, then fitted to the model's own sentence vectors by
    least squares. The folder loads with essent, sentence-transformers (StaticEmbedding) and model2vec. A run that is
    killed goes on where it was when it is started again.

    \b
    [dim]$[/] essent distill -m all-MiniLM-L6-v2 -t texts.txt -o minilm-static
    [dim]$[/] essent distill -m bert-base-uncased -t a.jsonl,b.jsonl -o static --validate stsb.dev --test stsb,sickr

    Args:
        recipe: recipe of the vectors that are fitted. Default: the model's own.
        column: columns that hold texts. Default: text, or both sentences of pairs.
        duplicates: count a text as often as it occurs.
        contexts: folder in which the averages are kept too, for recipes with layers=avg:DIR.
        validate: choose layers, weights, ridge and shaping on these judgements of any kind, e.g. stsb.dev.
        test: tasks on which the static encoder is compared with the model.
    """
    check_folder(_beside_state(output), run.force)
    if contexts is not None:
        check_folder(contexts, run.force or (output / STATE).is_file())  # a killed run may have written it
    if validate is not None and choice != Choice():
        raise InputError("--validate chooses layers, weights, ridge and shaping: give either it or these.")
    given = read_corpus(texts, column, duplicates)
    from essent.tasks import load_task

    asked = [load_task(name, data_folder) for name in test or []]
    if other := next((task.name for task in asked if not task.has_main), None):
        raise InputError(f"--test: {other} has no single main score to compare; essent evaluate shows its numbers.")
    judge = None if validate is None else read_judged(validate, data_folder, run.quiet)
    from essent.encoder import Encoder
    from essent.static import Settings, check_choice, collect, compare, make_encoder
    from essent.verification import verify

    check_choice(choice, table.dtype, table.dimensions)
    run.calm()
    settings = Settings(
        unseen=table.unseen,
        state=output / STATE,
        renew=run.force,
        batch_size=batch_size,
        precision=opt.Computing(precision=precision).choice().precision,
        progress=not run.quiet,
        note=run.note,
    )
    run.note(f"{len(given)} texts of {listed(texts)}, {'each as often as it occurs' if duplicates else 'each once'}")
    material, _ = collect(
        model,
        given,
        layers=None if judge is not None or contexts is not None else [choice.layers],
        words=table.words,
        expressions=table.expressions,
        teacher=recipe,
        dimensions=table.dimensions,
        settings=settings,
        options=run.options,
    )
    if contexts is not None:
        material.contexts.save(contexts)
    if judge is not None:
        choice = _search(material, judge, run)
    made = make_encoder(material, choice, dimensions=table.dimensions, dtype=table.dtype, progress=run.progress)
    made.encoder.save(str(output))
    (output / STATE).unlink(missing_ok=True)
    report = verify(str(output))
    if not run.quiet:
        for line in made.in_words():
            run.note(line)
        show_verification(report, str(output))
    if asked:
        whole = Encoder(model, recipe, **run.options)
        _compare(compare(made, partial(whole.encode, batch_size=batch_size), asked))


def _beside_state(output: Path) -> Path:
    """A folder that a killed run left, perhaps while it saved the encoder, counts as an empty one."""
    remove_leftovers(output / STATE)
    return output / "none" if (output / STATE).is_file() else output


def _search(material: Material, judge: JudgedTask, run: opt.Run) -> Choice:
    from essent.static import find_choice

    def report(trial: Trial) -> None:
        run.note(f"{trial.score:6.2f}  {trial.choice}")

    trials = find_choice(material, judge, report=report)
    run.note(f"Best of {len(trials)} on {judge.name}: {trials[0].score:.2f}  {trials[0].choice}")
    return trials[0].choice


def _compare(kept: Sequence[Kept]) -> None:
    """A table of both scores, task by task."""
    from rich.table import Table

    table = Table("task", "model", "static", "kept", "tokens found in the corpus", box=None)
    for row in kept:
        table.add_row(
            row.task, f"{row.model:.2f}", f"{row.static:.2f}", f"{row.share:.1f} %", f"{100 * row.coverage:.1f} %"
        )
    table.add_row("average", "", "", f"{sum(row.share for row in kept) / len(kept):.1f} %", "")
    results().print(table)
