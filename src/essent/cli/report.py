"""`essent report`: files of results as one page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from essent.cli import options as opt
from essent.cli.console import show_note
from essent.cli.files import check_output

if TYPE_CHECKING:
    from essent.selection import Leaderboard
    from essent.tasks import Result


def report(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="RESULTS…",
            help="What essent evaluate, essent heros evaluate and essent search wrote with --json.",
            show_default=False,
        ),
    ],
    output: Annotated[Path, opt.output("FILE", "A .html, .md or .png file; the suffix tells the format.")],
    title: Annotated[str | None, typer.Option(metavar="TEXT", help="Heading of the report.")] = None,
    force: opt.Force = False,
    quiet: opt.Quiet = False,
) -> None:
    """Say which is best and by how much, then why: tables that sort, bars with intervals, layer curves, heat maps.

    The page is one file that needs no network: style, script and figures are inside. Rows are named by model and
    recipe. Markdown has the tables, a picture the figures.

    \b
    [dim]$[/] essent report sts.json heros.json search.json --output report.html
    [dim]$[/] essent report results/*.json -o report.md --title "Models of spring"
    """
    from essent.report import TITLE, WRITERS, check_library, read_results, write_report

    check_output(output, force, tuple(WRITERS))
    check_library(output.suffix)
    results: list[Result] = []
    searches: list[Leaderboard] = []
    for file in dict.fromkeys(files):
        found = read_results(file)
        if isinstance(found, list):
            results.extend(found)
        else:
            searches.append(found)
    write_report(results, output, title=TITLE if title is None else title, searches=searches)
    if not quiet:
        show_note(f"Wrote {output}.")
