"""Where output goes, results to standard output and everything else to standard error, and how rows are labelled."""

from __future__ import annotations

import io
import logging
import os
import sys
from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from essent._core.lazy import check_torch

if TYPE_CHECKING:
    from rich.console import Console

_run = {"quiet": False}  # of the command that runs in this process

WIDE = 1000  # columns of an output that is not a terminal: a table in a file or pipe is not cut to 80


def results(json_file: Path | None = None) -> Console:
    """A console on standard output; on standard error where JSON goes to standard output."""
    from rich.console import Console

    console = Console(highlight=False, emoji=False, stderr=is_stream(json_file))
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = WIDE
    return console


def show_lines(lines: Iterable[str], json_file: Path | None = None) -> None:
    """Print results in words, as they are."""
    console = results(json_file)
    for line in lines:
        console.print(line, markup=False, soft_wrap=True)


def is_stream(path: Path | None) -> bool:
    """Whether a file is "-", standard input or output."""
    return path is not None and str(path) == "-"


def open_streams() -> None:
    """Let standard output and error take every character: a Windows pipe or file has a code page without "ω" and "✓".

    Files and pipes get UTF-8, which is what essent reads. A terminal, and whoever set PYTHONIOENCODING, keep their
    encoding; what it lacks is shown as "?".
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # not where somebody else has put an object of their own
            if not stream.isatty() and "PYTHONIOENCODING" not in os.environ:
                stream.reconfigure(encoding="utf-8", errors="replace")
            elif stream.errors == "strict":
                stream.reconfigure(errors="replace")


def show_note(message: str) -> None:
    """One dim line on standard error, unless the run is quiet."""
    if not is_quiet():
        show_error(message, prefix="", style="dim")


def show_error(message: str, prefix: str = "Error: ", style: str = "red") -> None:
    """A message on standard error; brackets are text, not markup."""
    from rich.console import Console

    Console(stderr=True, highlight=False, emoji=False).print(
        f"{prefix}{message}", style=style, markup=False, soft_wrap=True
    )


def set_quiet(quiet: bool) -> None:
    """Show notes and progress bars, or none."""
    _run["quiet"] = quiet


def is_quiet() -> bool:
    """Whether the user wants no notes and no progress bars."""
    return _run["quiet"]


def wants_progress() -> bool:
    """Whether a progress bar makes sense: somebody looks at standard error."""
    return not is_quiet() and sys.stderr.isatty()


def show_logs() -> None:
    """Show what every library reports."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s", datefmt="%H:%M:%S")


def prepare_torch(command: str) -> None:
    """Look for what runs models, before anything is read, and turn off its own bars and advice.

    Raises:
        MissingDependencyError: names the command and the library.
    """
    check_torch(command)
    silence_libraries()


def silence_libraries() -> None:
    """Turn off transformers' own bars and advice, unless ESSENT_DEBUG asks for logs; call before a model is loaded."""
    if "ESSENT_DEBUG" in os.environ or find_spec("transformers") is None:
        return
    from transformers.utils import logging as transformers_logging

    transformers_logging.disable_progress_bar()
    transformers_logging.set_verbosity_error()


def row_labels(rows: Sequence[tuple[str, str]]) -> list[str]:
    """Labels of rows (model, recipe): the recipe alone where there is one model."""
    from essent.report.parts import names_of

    models = names_of(rows).models
    return [recipe if len(models) == 1 else f"{models[model]} · {recipe}" for model, recipe in rows]
