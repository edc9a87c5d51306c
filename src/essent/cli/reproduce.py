"""`essent reproduce`: a published table run again beside its figures."""

from __future__ import annotations

from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from essent.atomic import write_json
from essent.cli import options as opt
from essent.cli import several
from essent.cli.console import results, show_note
from essent.cli.files import check_output, write_json_file
from essent.cli.settings import with_help, with_options
from essent.cli.texts import read_files
from essent.types import InputError

if TYPE_CHECKING:
    from collections.abc import Callable

    from essent.lab.reproduce import Table


@with_help()
@with_options(opt.Run, into="run")
def reproduce(
    table: Annotated[
        str | None, typer.Argument(metavar="[TABLE]", help="Name of a table, such as ditto-6; --list shows all.")
    ] = None,
    list_tables: Annotated[bool, typer.Option("--list")] = False,
    model: Annotated[
        list[str] | None,
        typer.Option("--model", "-m", metavar="[ROLE=]NAMES|DIRS", callback=several.models),
    ] = None,
    data_folder: opt.DataFolder = None,
    texts: opt.Texts = None,
    contexts: opt.Folder = None,
    only_rows: opt.Patterns = None,
    only_columns: opt.Patterns = None,
    only_tasks: opt.Patterns = None,
    seeds: opt.AnyCount = None,
    column: opt.Column = "text",
    json_file: Annotated[Path | None, opt.json_file("Also write every cell.")] = None,
    cache: opt.Cache = None,
    batch_size: opt.BatchSize = 32,
    *,
    run: opt.Run,
) -> None:
    """Run a published table again: each figure beside the paper's, with difference and 95 % interval.

    What cannot be run (no data, no checkpoint, a recipe that the model does not allow) stays empty and is named below.

    \b
    [dim]$[/] essent reproduce --list
    [dim]$[/] essent reproduce ditto-6 --model bert-base-uncased --data-folder data
    [dim]$[/] essent reproduce stankevicius-A1 -m bert-base-uncased --only-columns RE --data-folder data -t wiki.txt

    Args:
        list_tables: list the tables and exit.
        model: what to run in place of the paper's model; without ROLE for the table's main one. Several for more roles,
            or as checkpoints of one. Default: the paper's models, from the hub.
        texts: texts in place of the corpus on which the paper counted, fitted or measured.
        contexts: token averages that essent distill --contexts wrote, for Avg. Default: averaged over --texts.
        only_rows: only these rows, e.g. "avg.*,idf^T".
        only_columns: only these columns, e.g. "RE,T0".
        only_tasks: only these tasks, e.g. "sts*,cr"; means are taken over these alone.
        seeds: the most seeds of random embeddings that are run.
    """
    from essent.lab.reproduce import find_table, render, run_table, settings_of, summary, to_dict
    from essent.lab.reproduce import only_tasks as with_tasks

    if list_tables:
        _list()
        return
    if table is None:
        raise InputError("Name a table, e.g. ditto-6; essent reproduce --list shows all.")
    found = find_table(table)
    if only_tasks:
        found = with_tasks(found, _chosen(only_tasks, _tasks(found)))
    check_output(json_file, run.force)
    keep_row = _chosen(only_rows, [cell.row for cell in found.cells()])
    keep_column = _chosen(only_columns, list(found.columns))
    given = None if texts is None else read_files(texts, column)
    run.calm()
    done = run_table(
        found,
        _models(model, found),
        data=data_folder,
        corpus=given,
        contexts=contexts,
        rows=keep_row,
        columns=keep_column,
        most_seeds=seeds,
        batch_size=batch_size,
        progress=run.progress,
        cache=cache,
        report=run.note,
        **run.options,
    )
    write_json_file(json_file, partial(write_json, value=to_dict(done)))
    console = results(json_file)
    console.print(f"{found.name}: {found.caption}. Above measured ± 95 %, below published (difference).", markup=False)
    for role, names in done.models.items():
        console.print(f"Run on {', '.join(names)} where the paper has {found.models[role]}.", markup=False)
    console.print(render(done))
    console.print(summary(done), markup=False)
    for line in settings_of(done):
        if not run.quiet or line.startswith("Not run"):
            show_note(line)
    if all(cell.score is None for cell in done.cells):
        raise InputError("No cell could be run; the reasons are listed above.")


def _list() -> None:
    from rich.table import Table
    from rich.text import Text

    from essent.lab.reproduce import tables

    shown = Table("table", "what it shows", "models", box=None)
    for table in tables().values():
        shown.add_row(Text(table.name), Text(table.caption), Text(", ".join(table.roles)))
    results().print(shown)


def _tasks(table: Table) -> list[str]:
    return [name for cell in table.cells() for name in cell.settings.get("tasks", ())]


def _models(given: list[str] | None, table: Table) -> dict[str, list[str]] | None:
    """ "sbert=DIR" and "DIR" to role -> models."""
    if not given:
        return None
    models: dict[str, list[str]] = {}
    for item in given:
        role, sign, name = item.partition("=")
        if not sign or role not in table.roles:
            if sign and not Path(item).exists():
                raise InputError(f"{table.name} has no model {role!r}; it has {', '.join(table.roles)}.")
            role, name = table.roles[0], item
        models.setdefault(role, []).append(name)
    return models


def _chosen(patterns: list[str] | None, names: list[str]) -> Callable[[str], bool]:
    """Which names some pattern fits, all without patterns; brackets stand for themselves."""
    wanted = [pattern.replace("[", "[[]") for pattern in patterns or ["*"]]

    def chosen(name: str) -> bool:
        return any(fnmatchcase(name, pattern) for pattern in wanted)

    if not any(map(chosen, names)):
        known = ", ".join(dict.fromkeys(names))
        raise InputError(f"Nothing is called {','.join(patterns or [])!r} here. There is: {known}.")
    return chosen
