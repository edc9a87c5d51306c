"""The command line: parse, call, print. One file a command; heavy libraries are imported when a command runs."""

from essent.cli.main import app

__all__ = [
    "app",
]
