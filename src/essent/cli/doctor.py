"""`essent doctor`: what is wrong with a model, and what mends it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from essent.atomic import write_text
from essent.cli import options as opt
from essent.cli.console import is_stream, results
from essent.cli.files import check_output, write_json_file
from essent.cli.settings import with_help, with_options
from essent.cli.texts import read_files

FAULTS = 3  # exit code: neither a damaged folder (1) nor wrong input (2)


@with_help()
@with_options(opt.Run, into="run")
def doctor(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="A folder, a name on the hub, or a graph of essent export.")
    ],
    texts: Annotated[
        list[Path] | None, opt.texts("Texts like those to be encoded. Default: 320 English sentences of essent's own.")
    ] = None,
    column: opt.Column = "text",
    skip: opt.Names = None,
    json_file: Annotated[Path | None, opt.json_file("Also write what was found.")] = None,
    *,
    run: opt.Run,
) -> None:
    """Say what is wrong with an encoder or its folder, and the command or line that mends it.

    Looks at how it reads the texts (what is cut off, unknown tokens, prompts), at the space of its vectors (typical
    cosine, dead and dominating dimensions, length, negation), at the folder (pooling, card, golden vectors, other
    servers) and at this machine (float16, speed). Faults are marked ✗, advice ·.

    Exit code 3 where a fault was found, 0 where none was; 1 and 2 are errors, as in every command.

    \b
    [dim]$[/] essent doctor all-MiniLM-L6-v2 --texts texts.txt
    [dim]$[/] essent doctor ./my-model --json - --skip negation,speed

    Args:
        skip: checks to leave out, by the names that stand before what was found.
    """
    check_output(json_file, run.force)
    given = None if texts is None else read_files(texts, column)
    from essent.doctor import diagnose

    run.calm()
    found = diagnose(model, given, skip=skip or (), **run.options)
    content = json.dumps(found.to_dict(), ensure_ascii=False, indent=1)
    write_json_file(json_file, lambda path: write_text(path, content + "\n"))
    if not (run.quiet or is_stream(json_file)):
        console = results()
        console.print(model, style="bold", markup=False, soft_wrap=True)
        for line in found.in_words():
            console.print(line, markup=False, soft_wrap=True)
    if not found.healthy:
        raise typer.Exit(FAULTS)
