"""The command line: parse, call, print. One file per command; heavy libraries are imported when a command runs."""

from essent.cli.app import app, main

__all__ = ["app", "main"]
