"""`essent`: the commands, and what they do with errors."""

from __future__ import annotations

import errno
import inspect
from collections.abc import Callable
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from essent.cli import explain, heros, heros_build, heros_judge
from essent.cli.console import open_streams, show_error
from essent.cli.demo import demo
from essent.cli.distill import distill
from essent.cli.doctor import doctor
from essent.cli.embed import embed
from essent.cli.encode import encode
from essent.cli.evaluate import evaluate
from essent.cli.export import export
from essent.cli.improve import improve
from essent.cli.pretrain import pretrain
from essent.cli.recipes import recipes
from essent.cli.report import report
from essent.cli.reproduce import reproduce
from essent.cli.save import save
from essent.cli.search import search
from essent.cli.search_templates import search_templates
from essent.cli.serve import serve
from essent.cli.several import Command
from essent.cli.train import train
from essent.cli.verify import verify
from essent.lazy import check_torch
from essent.types import DamagedError, EssentError, VerificationError
from essent.version import __version__

FAILED_CHECK, FAILED, INTERRUPTED = 1, 2, 130


class Commands(TyperGroup):
    """Turns what essent raises on purpose into one line on stderr and an exit code."""

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


COMMANDS = (
    recipes,
    encode,
    embed,
    evaluate,
    search,
    distill,
    train,
    improve,
    report,
    reproduce,
    save,
    verify,
    doctor,
    export,
    serve,
    pretrain,
    demo,
)
LIGHT = (recipes, encode, embed, report, verify, serve)  # they need no torch, or not for every model


def _add(group: typer.Typer, command: Callable[..., None], name: str | None = None) -> None:
    kind = Command if command in LIGHT else ModelCommand
    group.command(name or command.__name__, cls=kind, help=_help_of(command))(command)


for command in COMMANDS:
    _add(app, command)
_add(app, search_templates, "search-templates")
_add(explain.app, explain.mask)
_add(explain.app, explain.bias)
app.add_typer(explain.app, name="explain")
_add(heros.app, heros.evaluate)
_add(heros.app, heros_build.build)
_add(heros.app, heros_build.check)
_add(heros.app, heros_judge.judge)
_add(heros.app, heros_judge.fit)
app.add_typer(heros.app, name="heros")
