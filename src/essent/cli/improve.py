"""`essent improve`: from a model and texts to the best encoder that a budget buys."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from essent.arithmetic import PASSES
from essent.cli import options as opt
from essent.cli.console import results
from essent.cli.settings import with_help, with_options
from essent.cli.texts import read_files
from essent.improvement import GOALS, Settings

JUDGED, HOW = "How it is judged", "What it may cost"


@with_help({JUDGED: "data test"})
@with_options(
    Settings,
    {"": HOW, "match_score": JUDGED, **dict.fromkeys(("seed", "batch_size", "precision"), opt.RUN)},
    metavars={"budget": "TIME", "goal": "|".join(GOALS), "match_score": "NUMBER", "precision": "|".join(PASSES)},
)
@with_options(opt.Run, into="run")
def improve(
    model: opt.Model,
    texts: Annotated[list[Path], opt.texts("Texts like those to be encoded: 50 or more, better thousands.")],
    output: Annotated[Path, opt.output("DIR", "The folder to write: encoder, static, graph, report.html.")],
    data: opt.Data = None,
    test: opt.Tasks = None,
    data_folder: opt.DataFolder = None,
    column: opt.Column = "text",
    *,
    settings: Settings,
    run: opt.Run,
) -> None:
    """Make the best encoder that a budget buys: recipes, training, recipes again, a static table, a graph.

    Every step is measured before the next is paid for, on --data or without labels on the texts, and what does not gain
    is not kept. It says first what it will try. Ctrl-C stops it, and the same command goes on; --force begins anew.

    \b
    [dim]$[/] essent improve -m bert-base-uncased --texts corpus.jsonl --budget 60m -o better
    [dim]$[/] essent improve -m ./my-model --texts corpus.jsonl --data dev.csv --test test.csv --goal speed -o better

    Args:
        data: judgements to choose on, of any kind, as in search. Default: none, everything is chosen without labels.
        test: tasks on which the results are measured, and nothing is chosen.
    """
    found = read_files(texts, column)
    run.calm()
    from essent.improvement import improve as make

    made = make(
        model,
        found,
        data or (),
        output=output,
        test=test or (),
        folder=data_folder,
        settings=settings,
        options=run.options,
        progress=run.progress,
        force=run.force,
        note=run.note,
    )
    console = results()
    for line in made.in_words():
        console.print(line, markup=False, soft_wrap=True)
    for note in made.notes:
        run.note(note)
