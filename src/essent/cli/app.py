"""The program `essent`: its commands, error messages and exit codes."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence
from typing import Annotated, Any

from cyclopts import App, CycloptsError, Parameter

from essent.cli.check import PROBLEMS, check
from essent.cli.console import open_streams, set_quiet, show_error
from essent.cli.encode import encode
from essent.cli.evaluate import evaluate
from essent.cli.lab.explain import bias, mask, pair
from essent.cli.lab.masked import pretrain, templates
from essent.cli.lab.minimal_pairs import build
from essent.cli.lab.minimal_pairs import evaluate as evaluate_pairs
from essent.cli.lab.reproduce import reproduce
from essent.cli.options import ALWAYS
from essent.cli.recipes import demo, recipes
from essent.cli.save import save
from essent.cli.search import search
from essent.cli.serve import serve
from essent.cli.train import distill, improve, train
from essent.errors import DamagedError, EssentError, VerificationError
from essent.version import __version__

DONE, DAMAGED, WRONG_INPUT, INTERRUPTED, UNREAD = 0, 1, 2, 130, 1
HELP = """Better sentence embeddings out of the model you already have, and the measurement that shows it.

A recipe describes how a text becomes a vector, e(s) = g( Σₙ ωₙ · Σₖ αₖ · hₙ⁽ᵏ⁾ ): a template, layers, token weights and
a shaping chain. `essent recipes` lists the published recipes and the parts to build others from; `essent demo`
compares some of them, offline.
"""
EPILOGUE = f"""Exit codes: 0 success · 1 a folder is damaged or its vectors differ from the saved ones · 2 wrong input
· {PROBLEMS} `essent check` found problems · 130 interrupted. Results go to standard output or the named file,
messages to standard error. Every command accepts --quiet (-q) and --debug (or ESSENT_DEBUG=1).
"""


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
app.meta.suppress_keyboard_interrupt = False
for number, command in enumerate(
    (recipes, evaluate, search, improve, train, distill, encode, save, check, demo, serve)
):
    app.command(command, sort_key=number, help_epilogue="")  # type: ignore[call-overload]  # of different signatures
app.register_install_completion_command()

lab = App(name="lab", help="Research: minimal pairs, published tables, pretraining.", help_epilogue="", sort_key=99)
pairs_app = App(name="minimal-pairs", help="Minimal pairs: which changes of a sentence change its vector?")
explain_app = App(name="explain", default_command=pair)
for group, members in (
    (explain_app, (mask, bias)),
    (pairs_app, (evaluate_pairs, build)),
    (lab, (pairs_app, reproduce, explain_app, pretrain, templates)),
):
    for member in members:
        group.command(member)
app.command(lab)


@app.meta.default
def start(
    *words: Annotated[str, Parameter(show=False, allow_leading_hyphen=True)],
    quiet: Annotated[bool, Parameter(alias="-q", group=ALWAYS)] = False,
    debug: Annotated[bool, Parameter(group=ALWAYS)] = False,
) -> Any:
    """Run a command with the options that all commands share.

    Args:
        words: The command and its own options.
        quiet: Hide notes and progress bars.
        debug: Show tracebacks and library logs.
    """
    set_quiet(quiet)
    if debug:
        os.environ["ESSENT_DEBUG"] = "1"
    if "ESSENT_DEBUG" in os.environ:
        logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s", datefmt="%H:%M:%S")
    return app(words, exit_on_error=False, print_error=False, result_action="return_value")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit code; errors become one line on standard error.

    Raises:
        Exception: an unexpected error, which is a bug; with ESSENT_DEBUG, any error of a command.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    open_streams()
    try:
        code: Any = app.meta(words, exit_on_error=False, print_error=False, result_action="return_value")
        sys.stdout.flush()
    except BrokenPipeError:  # the reader of standard output, such as head, has exited
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return UNREAD
    except CycloptsError as error:
        show_error(f"{error} See {' '.join(['essent', *(error.command_chain or ())])} --help.")
        return WRONG_INPUT
    except EssentError as error:
        if "ESSENT_DEBUG" in os.environ:
            raise
        show_error(str(error))
        return DAMAGED if isinstance(error, (DamagedError, VerificationError)) else WRONG_INPUT
    except OSError as error:  # an unreadable file, a full disk
        if "ESSENT_DEBUG" in os.environ or error.errno is None:
            raise
        show_error(f"{f'{error.filename}: ' if error.filename else ''}{error.strerror}.")
        return WRONG_INPUT
    except KeyboardInterrupt as interrupt:
        show_error(str(interrupt) or "Interrupted", prefix="")
        return INTERRUPTED
    return code if isinstance(code, int) else DONE
