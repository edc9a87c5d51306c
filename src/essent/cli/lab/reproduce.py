"""`essent lab reproduce`: published tables, measured again."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from essent.cli import options as opt
from essent.cli.console import prepare_torch, results, show_error, show_lines, show_note, wants_progress
from essent.cli.files import read_files
from essent.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable

    from essent.lab.reproduce.published import Table


def reproduce(
    table: Annotated[str | None, Parameter(name="TABLE")] = None,
    /,
    *,
    model: opt.AnyModels = None,
    data_folder: opt.Folder = None,
    texts: opt.AnyTexts = None,
    only_rows: list[str] | None = None,
    only_columns: list[str] | None = None,
    only_tasks: list[str] | None = None,
    seeds: int | None = None,
    column: opt.Column = "text",
    run: opt.Run = opt.Run(),
) -> None:
    """Reproduce a published table.

    Each score is shown with its 95 % interval, the paper's score and the difference. Without TABLE, all tables are
    listed. Cells that cannot be run (no data, no checkpoint, a recipe that the model cannot run) stay empty, and the
    reasons are printed.

    ```console
    $ essent lab reproduce
    $ essent lab reproduce ditto-6 --model bert-base-uncased --data-folder data
    $ essent lab reproduce stankevicius-A1 -m bert-base-uncased --only-columns RE --data-folder data -t wiki.txt
    ```

    Args:
        table: Name of a table, such as ditto-6.
        model: Models that replace the paper's, each MODEL (for the table's main model) or ROLE=MODEL. Several for more
            roles, or as checkpoints of one role. Default: the paper's models, from the hub.
        data_folder: Folder of the named tasks: DIR/sts/NAME.jsonl. Default: the hub.
        texts: Texts that replace the paper's corpus for counts, fits and measures.
        only_rows: Only these rows, e.g. "avg.*" "idf^T".
        only_columns: Only these columns, e.g. RE T0.
        only_tasks: Only these tasks, e.g. "sts*" cr; means are over these tasks, and are not compared.
        seeds: Maximum number of seeds of random embeddings.
        column: Column with the texts, in .jsonl, .csv, .tsv and .parquet files.
    """
    if table is None:
        _list()
        return
    prepare_torch("essent lab reproduce")
    from essent.lab.reproduce.published import find_table
    from essent.lab.reproduce.published import only_tasks as with_tasks
    from essent.lab.reproduce.results import render, settings_of, summary
    from essent.lab.reproduce.run import run_table

    published = find_table(table)
    if only_tasks:
        tasks = [name for cell in published.cells() for name in cell.settings.get("tasks", ())]
        published = with_tasks(published, _matcher(only_tasks, tasks))
    done = run_table(
        published,
        _models(model, published),
        data=data_folder,
        corpus=read_files(texts or [], column),
        rows=_matcher(only_rows, [cell.row for cell in published.cells()]),
        columns=_matcher(only_columns, list(published.columns)),
        most_seeds=seeds,
        progress=wants_progress(),
        report=show_note,
        **run.options,
    )
    head = f"{published.name}: {published.caption}. First line: measured ± 95 %; second line: published (difference)."
    show_lines([head])
    results().print(render(done))
    show_lines([summary(done)])
    for line in settings_of(done):
        if line.startswith("Not run"):  # even when the run is quiet
            show_error(line, prefix="")
        else:
            show_note(line)
    if all(cell.score is None for cell in done.cells):
        raise InputError("No cell could be run. The reasons are listed above.")


def _list() -> None:
    from rich.markup import escape
    from rich.table import Table

    from essent.lab.reproduce.published import tables

    listing = Table("table", "contents", "models", box=None)
    for table in tables().values():
        listing.add_row(*map(escape, (table.name, table.caption, ", ".join(table.roles))))
    results().print(listing)


def _models(arguments: list[str] | None, table: Table) -> dict[str, list[str]] | None:
    """Parse "sbert=DIR" and "DIR" to role -> models."""
    if not arguments:
        return None
    models: dict[str, list[str]] = {}
    for argument in arguments:
        role, sign, name = argument.partition("=")
        if not sign or role not in table.roles:
            if sign and not Path(argument).exists():
                raise InputError(f"{table.name} has no model {role!r}. Its models: {', '.join(table.roles)}.")
            role, name = table.roles[0], argument
        models.setdefault(role, []).append(name)
    return models


def _matcher(patterns: list[str] | None, names: list[str]) -> Callable[[str], bool]:
    """Return a test whether a name matches any of the patterns; brackets are literal. Without patterns, all match."""
    globs = [pattern.replace("[", "[[]") for pattern in patterns or ["*"]]
    matching = {name for name in names if any(fnmatchcase(name, pattern) for pattern in globs)}
    if not matching:
        allowed = ", ".join(dict.fromkeys(names))
        raise InputError(f"{' '.join(patterns or [])!r} matches nothing. Known: {allowed}.")
    return matching.__contains__
