"""`essent`: the commands, and what they do with errors."""

from __future__ import annotations

import errno
import inspect
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from essent.cli.console import open_streams, show_error
from essent.cli.several import Command
from essent.lazy import check_torch
from essent.types import DamagedError, EssentError, VerificationError
from essent.version import __version__

FAILED_CHECK, FAILED, INTERRUPTED = 1, 2, 130
COMMANDS = (  # as help lists them; each is the function of that name in a module of that name
    *("recipes", "encode", "embed", "evaluate", "search", "distill", "train", "improve", "report", "reproduce"),
    *("save", "verify", "doctor", "export", "serve", "pretrain", "demo", "search-templates"),
)
GROUPS = {  # commands of commands; the app is in the module of their name
    "explain": ("explain.mask", "explain.bias"),
    "heros": ("heros.evaluate", "heros_build.build", "heros_build.check", "heros_judge.judge", "heros_judge.fit"),
}
LIGHT = ("recipes", "encode", "embed", "report", "verify", "serve")  # they need no torch, or not for every model


class Lazy(Mapping[str, Any]):
    """The commands by name. The modules of one are imported when it is asked for; a run needs one, and help all."""

    def __iter__(self) -> Iterator[str]:
        return iter((*COMMANDS, *GROUPS))

    def __len__(self) -> int:
        return len(COMMANDS) + len(GROUPS)

    def __getitem__(self, name: str) -> Any:
        return _group(name) if name in GROUPS else _command(name)


class Commands(TyperGroup):
    """Turns what essent raises on purpose into one line on stderr and an exit code."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands: Any = Lazy()  # typer collected none

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help, which names the commands: their options are not built for it."""
        commands, self.commands = self.commands, {name: _listed(name) for name in self.commands}
        try:
            super().format_help(ctx, formatter)
        finally:
            self.commands = commands

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run the command line; help is written before any command is invoked."""
        open_streams()
        return super().main(*args, **kwargs)

    def invoke(self, ctx: Any) -> Any:
        """Run the command; with --debug errors keep their traceback."""
        debug = bool(ctx.params.get("debug"))
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:
            show_error(str(error) or "Interrupted", prefix="")
            raise typer.Exit(INTERRUPTED) from None
        except EssentError as error:
            if debug:
                raise
            show_error(str(error))
            damaged = isinstance(error, (DamagedError, VerificationError))
            raise typer.Exit(FAILED_CHECK if damaged else FAILED) from None
        except OSError as error:  # a file that may not be read or written, a full disk
            if debug or error.errno in (None, errno.EPIPE):
                raise
            place = f"{error.filename}: " if error.filename else ""
            show_error(f"{place}{error.strerror}.")
            raise typer.Exit(FAILED) from None


class ModelCommand(Command):
    """A command that always runs a model: where torch is not installed it says so before it reads anything."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        check_torch(ctx.command_path)
        return super().invoke(ctx)


app = typer.Typer(
    name="essent",
    cls=Commands,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"essent {__version__}")
        raise typer.Exit


ABOUT = """Sentence embeddings out of any pretrained transformer, without training.

A recipe says how a text becomes a vector, e(s) = g( Σₙ ωₙ · Σₖ αₖ · hₙ⁽ᵏ⁾ ): a template, layers, token weights and a \
shaping chain. [cyan]essent recipes[/] lists the published ones and the parts to build others from; \
[cyan]essent demo[/] shows what they do, offline, in about half a minute.
"""


@app.callback(
    help=ABOUT,
    epilog="Exit codes: 0 done · 1 a model's folder is damaged or fails its check · 2 wrong input (says what was "
    "expected) · 3 a fault that essent doctor found · 130 interrupted. Results go to standard output or the named "
    "file, everything else to standard error. An option that takes one value and is given twice is wrong input.",
)
def essent(
    debug: Annotated[
        bool, typer.Option("--debug", envvar="ESSENT_DEBUG", help="Show the traceback of errors.")
    ] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Sentence embeddings out of any pretrained transformer, without training."""


def _help_of(command: Callable[..., None]) -> str:
    """The docstring with each paragraph on one line, so that the terminal wraps it; examples keep their lines."""
    paragraphs = (inspect.getdoc(command) or "").partition("\n\nArgs:\n")[0].split("\n\n")
    return "\n\n".join(text if text.startswith("\b") else " ".join(text.split()) for text in paragraphs)


@cache
def _command(name: str) -> Any:
    """A command of its own."""
    if name not in COMMANDS:
        raise KeyError(name)
    one = typer.Typer(rich_markup_mode="rich", add_completion=False, pretty_exceptions_enable=False)
    _add(one, _place(name), name, Command if name in LIGHT else ModelCommand)
    return typer.main.get_command(one)


@cache
def _group(name: str) -> Any:
    """Commands of one name: `essent heros build`."""
    group = import_module(f"essent.cli.{name}").app
    for place in GROUPS[name]:
        _add(group, place, place.rpartition(".")[2], ModelCommand)
    made = typer.main.get_command(group)
    made.name = name  # by which help lists it
    return made


def _listed(name: str) -> TyperCommand:
    """A command as the list of commands shows it: a name and a help text."""
    if name in GROUPS:
        return TyperCommand(name, help=import_module(f"essent.cli.{name}").app.info.help)
    return TyperCommand(name, help=_help_of(_function(_place(name))))


def _add(group: typer.Typer, place: str, name: str, kind: type[Command]) -> None:
    """The function at "module.function" as a command."""
    command = _function(place)
    group.command(name, cls=kind, help=_help_of(command))(command)


def _place(name: str) -> str:
    """Where the function of a command of its own is, as "module.function"."""
    return ".".join([name.replace("-", "_")] * 2)


def _function(place: str) -> Callable[..., None]:
    """The function at "module.function"; its module is imported."""
    module, _, function = place.partition(".")
    found: Callable[..., None] = getattr(import_module(f"essent.cli.{module}"), function)
    return found
