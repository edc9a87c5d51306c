"""`essent verify`: a saved folder against its digests and its golden vectors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from essent.cli import options as opt
from essent.cli.console import calm_libraries, results

if TYPE_CHECKING:
    from essent.verification import Verification


def verify(
    path: Annotated[str, typer.Argument(metavar="PATH", help="A folder (or hub name) that essent saved or exported.")],
    untrusted: Annotated[
        bool, typer.Option("--untrusted", help="Check the files only, and load nothing from the folder.")
    ] = False,
    verbose: opt.Verbose = False,
) -> None:
    """Check that a saved model is what was saved.

    Compares every file with the SHA-256 that was saved with it. Then loads the folder in every way that it promises
    (with essent; with plain sentence-transformers where it is portable) and compares with the golden vectors in it.
    Exit code 1 when a file has changed, asks for more than to be read, or a difference is larger than 1e-5.
    """
    from essent.verification import verify as run_verify

    calm_libraries(verbose)
    show_verification(run_verify(path, untrusted=untrusted), path)


def show_verification(report: Verification, path: str) -> None:
    """Print what was found, line by line."""
    from rich.text import Text

    console = results()
    console.print(Text(f"{path}: {report.recipe}", style="bold"), soft_wrap=True)
    for line in report.in_words():
        console.print(line, markup=False, soft_wrap=True)
