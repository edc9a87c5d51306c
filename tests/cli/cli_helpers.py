"""What the tests of the command line share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import typer
from click.testing import Result

from essent.cli import app

TEXTS = ["A man is playing a large flute.", "", "How far is the moon from the earth?", "Two dogs run. [MASK] [red]"]
Run = Callable[..., Result]


def commands(command: Any = None, path: str = "essent") -> Iterator[tuple[str, Any]]:
    """Every command of the app by its path."""
    command = command or typer.main.get_command(app)
    for name, below in getattr(command, "commands", {}).items():
        yield from commands(below, f"{path} {name}")
    if not hasattr(command, "commands"):
        yield path, command
