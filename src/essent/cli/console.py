"""Output: results to standard output, everything else to standard error."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from essent._core.lazy import check_torch

if TYPE_CHECKING:
    from rich.console import Console

_run = {"quiet": False}  # state of the command that runs in this process


def results(json_file: Path | None = None) -> Console:
    """Return a console on standard output, or on standard error if JSON goes to standard output."""
    from rich.console import Console

    console = Console(highlight=False, emoji=False, stderr=is_stream(json_file))
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = 1000  # rich would fold tables of a file or pipe at 80 columns
    return console


def show_lines(lines: Iterable[str], json_file: Path | None = None) -> None:
    """Print lines of results, without markup."""
    console = results(json_file)
    for line in lines:
        console.print(line, markup=False, soft_wrap=True)


def is_stream(path: Path | None) -> bool:
    """Return whether a file is "-", standard input or output."""
    return path is not None and str(path) == "-"


def open_streams() -> None:
    """Make standard output and error accept every character: code pages of Windows pipes lack "ω" and "✓".

    Files and pipes are written as UTF-8. A terminal keeps its encoding, and shows characters that it lacks as "?".
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # false for a replacement of the stream, such as pytest's
            stream.reconfigure(encoding=stream.encoding if stream.isatty() else "utf-8", errors="replace")


def show_note(message: str) -> None:
    """Print a dim line on standard error, unless the run is quiet."""
    if not is_quiet():
        show_error(message, prefix="", style="dim")


def show_error(message: str, prefix: str = "Error: ", style: str = "red") -> None:
    """Print a message on standard error; brackets are text, not markup."""
    from rich.console import Console

    Console(stderr=True, highlight=False, emoji=False).print(
        f"{prefix}{message}", style=style, markup=False, soft_wrap=True
    )


def set_quiet(quiet: bool) -> None:
    """Show or hide notes and progress bars."""
    _run["quiet"] = quiet


def is_quiet() -> bool:
    """Return whether notes and progress bars are hidden."""
    return _run["quiet"]


def wants_progress() -> bool:
    """Return whether to show progress bars: standard error is a terminal and the run is not quiet."""
    return not is_quiet() and sys.stderr.isatty()


def prepare_torch(command: str) -> None:
    """Check that torch is installed, before anything is read, and turn off libraries' progress bars and warnings.

    Raises:
        MissingDependencyError: torch is not installed.
    """
    check_torch(command)
    silence_libraries()


def silence_libraries() -> None:
    """Turn off transformers' progress bars and warnings, unless ESSENT_DEBUG is set; call before loading a model."""
    if "ESSENT_DEBUG" in os.environ or find_spec("transformers") is None:
        return
    from transformers.utils import logging as transformers_logging

    transformers_logging.disable_progress_bar()
    transformers_logging.set_verbosity_error()
