"""The program `essent`: its commands, error messages and exit codes."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Annotated, Any

from cyclopts import App, CycloptsError, Parameter
from cyclopts.config import Env

from essent.cli.check import PROBLEMS, check
from essent.cli.console import open_streams, set_quiet, show_error, show_logs
from essent.cli.demo import demo
from essent.cli.distill import distill
from essent.cli.encode import encode
from essent.cli.evaluate import evaluate
from essent.cli.improve import improve
from essent.cli.lab.explain import bias, mask
from essent.cli.lab.minimal_pairs import evaluate as evaluate_pairs
from essent.cli.lab.minimal_pairs_build import build, fit, sheet
from essent.cli.lab.minimal_pairs_build import check as check_pairs
from essent.cli.lab.pretrain import pretrain
from essent.cli.lab.reproduce import reproduce
from essent.cli.lab.templates import templates
from essent.cli.options import ALWAYS
from essent.cli.recipes import recipes
from essent.cli.save import save
from essent.cli.search import search
from essent.cli.serve import ENVIRONMENT, serve
from essent.cli.train import train
from essent.errors import DamagedError, EssentError, VerificationError
from essent.version import __version__

DONE, DAMAGED, WRONG_INPUT, INTERRUPTED, UNREAD = 0, 1, 2, 130, 1
HELP = """Sentence embeddings from any pretrained transformer, without training.

A recipe describes how a text becomes a vector, e(s) = g( Σₙ ωₙ · Σₖ αₖ · hₙ⁽ᵏ⁾ ): a template, layers, token weights and
a shaping chain. `essent recipes` lists the published recipes and the parts to build others from; `essent demo`
compares sixteen of them, offline, in about half a minute.
"""
EPILOGUE = f"""Exit codes: 0 success · 1 a folder is damaged or its vectors differ from the saved ones · 2 wrong input
· {PROBLEMS} `essent check` found problems · 130 interrupted. Results go to standard output or the named file,
messages to standard error. Every command accepts --quiet (-q) and --debug (or ESSENT_DEBUG=1).
"""
COMMANDS = (recipes, evaluate, search, improve, train, distill, encode, save, check, demo)


def _default_text(value: Any) -> str | None:
    return None if value in (None, False, "") else str(value)


app = App(
    name="essent",
    help=HELP,
    help_epilogue=EPILOGUE,
    help_format="markdown",
    version=f"essent {__version__}",
    suppress_keyboard_interrupt=False,
    default_parameter=Parameter(
        negative=(), consume_multiple=(1, None), show_default=_default_text, json_dict=False, json_list=False
    ),
)
for number, command in enumerate(COMMANDS):
    app.command(command, sort_key=number, help_epilogue="")  # type: ignore[call-overload]  # of different signatures
app.command(serve, sort_key=len(COMMANDS), help_epilogue="", config=Env(ENVIRONMENT, command=False))
lab = App(name="lab", help="Research: minimal pairs, published tables, pretraining.", help_epilogue="", sort_key=99)
pairs_app = App(name="minimal-pairs", help="Minimal pairs: which changes of a sentence change its vector?")
explain_app = App(name="explain", help="Inspect a model: predictions at a mask, biases of its token embeddings.")
explain_app.command(mask)
explain_app.command(bias)
pairs_app.command(evaluate_pairs)
pairs_app.command(build)
pairs_app.command(check_pairs)
pairs_app.command(sheet)
pairs_app.command(fit)
lab.command(pairs_app)
lab.command(reproduce)
lab.command(explain_app)
lab.command(pretrain)
lab.command(templates)
app.command(lab)
app.register_install_completion_command()
app.meta.suppress_keyboard_interrupt = False


@app.meta.default
def start(
    *words: Annotated[str, Parameter(show=False, allow_leading_hyphen=True)],
    quiet: Annotated[bool, Parameter(alias="-q", group=ALWAYS)] = False,
    debug: Annotated[bool, Parameter(group=ALWAYS)] = False,
) -> Any:
    """Run a command with the options that all commands share.

    Args:
        words: The command and its own options.
        quiet: Show no notes and no progress bars.
        debug: Show tracebacks and library logs.
    """
    set_quiet(quiet)
    if debug:
        os.environ["ESSENT_DEBUG"] = "1"
    if "ESSENT_DEBUG" in os.environ:
        show_logs()
    return app(words, exit_on_error=False, print_error=False, result_action="return_value")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit code; errors become one line on standard error."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    open_streams()
    try:
        code: Any = app.meta(words, exit_on_error=False, print_error=False, result_action="return_value")
        sys.stdout.flush()
    except BrokenPipeError:  # the reader of standard output, such as head, has exited
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return UNREAD
    except Exception as error:
        if "ESSENT_DEBUG" in os.environ and not isinstance(error, CycloptsError):
            raise
        return _exit_code(error)
    except KeyboardInterrupt as interrupt:
        show_error(str(interrupt) or "Interrupted", prefix="")
        return INTERRUPTED
    return code if isinstance(code, int) else DONE


def _exit_code(error: Exception) -> int:
    """Print an expected error in one line and return its exit code.

    Raises:
        Exception: the error itself, if it is a bug.
    """
    if isinstance(error, (EssentError, CycloptsError)):
        show_error(str(error))
    elif isinstance(error, OSError) and error.errno is not None:  # an unreadable file, a full disk
        show_error(f"{f'{error.filename}: ' if error.filename else ''}{error.strerror}.")
    else:
        raise error
    return DAMAGED if isinstance(error, (DamagedError, VerificationError)) else WRONG_INPUT
