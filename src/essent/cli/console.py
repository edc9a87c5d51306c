"""Where output goes, results to standard output and everything else to standard error, and how rows are labelled."""

from __future__ import annotations

import io
import logging
import os
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

_run = {"quiet": False}  # of the command that runs in this process

WIDE = 1000  # columns of an output that is not a terminal: a table in a file or pipe is not cut to 80


def results(json_file: Path | None = None) -> Console:
    """A console on standard output; on standard error where JSON goes to standard output."""
    from rich.console import Console

    error = is_stream(json_file)
    console = Console(highlight=False, stderr=error)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        return Console(highlight=False, stderr=error, width=WIDE)
    return console


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
    """One dim line on standard error, unless the run is quiet; brackets are text, not markup."""
    if not is_quiet():
        _show(message, "dim")


def show_error(message: str, prefix: str = "Error: ") -> None:
    """A red message on standard error; brackets are text, not markup."""
    _show(f"{prefix}{message}", "red")


def _show(message: str, style: str) -> None:
    from rich.console import Console
    from rich.text import Text

    Console(stderr=True, highlight=False).print(Text(message, style=style), soft_wrap=True)


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


def silence_libraries() -> None:
    """Turn off transformers' own bars and advice, unless ESSENT_DEBUG asks for logs; call before a model is loaded."""
    if "ESSENT_DEBUG" in os.environ or find_spec("transformers") is None:
        return
    from transformers.utils import logging as transformers_logging

    transformers_logging.disable_progress_bar()
    transformers_logging.set_verbosity_error()


# -- labels of rows --------------------------------------------------------------------------------------------------


def short_names(models: Sequence[str]) -> dict[str, str]:
    """Model -> its name in a row: of a folder the last names of its path; all in full where two of these are equal."""
    short = {model: short_name(model) for model in models}
    return short if len(set(short.values())) == len(short) else {model: model for model in short}


def short_name(model: str) -> str:
    """The last names of a folder's path; a hub name is unchanged."""
    path = Path(model)
    return "/".join(path.resolve().parts[-2:]) if path.is_dir() else model


def row_labels(rows: Sequence[tuple[str, str]]) -> list[str]:
    """Labels of rows (model, recipe): the recipe alone where there is one model."""
    short = short_names(list(dict.fromkeys(model for model, _ in rows)))
    return [recipe if len(short) == 1 else f"{short[model]} · {recipe}" for model, recipe in rows]
