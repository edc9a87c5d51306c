"""`essent improve`: the best encoder within a time budget."""

from __future__ import annotations

from typing import Literal

from essent.cli import options as opt
from essent.cli.console import prepare_torch, show_lines, show_note, wants_progress
from essent.cli.texts import expand_groups, read_files


def improve(
    *,
    model: opt.Model,
    texts: opt.Texts,
    output: opt.Output,
    data: opt.Data = None,
    test: opt.Labels = None,
    data_folder: opt.Folder = None,
    column: opt.Column = "text",
    budget: str = "30m",
    goal: Literal["quality", "speed", "size"] = "quality",
    run: opt.Run = opt.Run(),
) -> None:
    """Make the best encoder within a time budget.

    The steps are a search of recipes, training, another search, a static table and a graph. Every step is measured on
    --data, or without labels on the texts, before the next step starts; a step without a gain is dropped. The plan is
    printed first. Ctrl-C stops the run and the same command resumes it; --force starts over.

    ```console
    $ essent improve -m bert-base-uncased --texts corpus.jsonl --budget 60m -o better
    $ essent improve -m ./my-model --texts corpus.jsonl --data dev.csv --test test.csv --goal speed -o better
    ```

    Args:
        model: A model on the hub, or a folder.
        texts: Texts like those that you will encode: at least 50, better thousands.
        output: The folder to write: encoder, static, graph, report.html.
        data: Labelled data of any kind to choose on, as in search. Default: choose without labels.
        test: Tasks on which the results are measured; the choice never reads them.
        data_folder: Folder of the named tasks: DIR/sts/NAME.jsonl. Default: the hub.
        column: Column with the texts, in .jsonl, .csv, .tsv and .parquet files.
        budget: Maximum total time, such as 90s, 30m or 1.5h.
        goal: Which result to recommend: quality (the encoder), speed or size (the static table or the graph, if it
            retains most of the quality).
    """
    prepare_torch("essent improve")
    from essent.improvement.run import improve as run_improvement

    corpus = read_files(texts, column)
    improved = run_improvement(
        model,
        corpus,
        expand_groups(data),
        output=output,
        test=expand_groups(test),
        folder=data_folder,
        budget=budget,
        goal=goal,
        options=run.options,
        progress=wants_progress(),
        force=run.force,
        note=show_note,
    )
    show_lines(improved.summary())
    for note in improved.notes:
        show_note(note)
