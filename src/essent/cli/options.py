"""The words of the command line: an option has one name, one letter and one meaning in every command.

What is read
    `--model`, `-m`: a model on the hub or a folder. `--recipe`, `-r`: how it is read.
    `--texts`, `-t`: files of texts that a command works on, whatever for: to encode, count, search, train or measure.
    `--data`, `-d`: a data set by its name or file: tasks, scored pairs, minimal pairs. `--data-folder`: the folder in
    which named data sets stand. `--column`: which column of a file has the texts.
    `--fit`, `--frequencies`: other texts that a recipe learns from. `--pairs`: training pairs.
    `--calibrate`: texts like those to come, on which numbers are set right: similarities (`save`), or int8 (`export`).
    `--judged-pairs`, `--match-score`: judgements for that, and the score from which on a pair counts as a match.
    `--ask`, `--ask-file`: how many pairs a user is asked to judge, and the file for that.
    `--validate`: scored pairs on which the best of several is kept. `--test`: data on which it is reported.

How it runs
    `--max-seq-length`, `--batch-size`, `--truncate-dim`, `--prompt`, `--device`, `--revision`, `--trust-remote-code`:
    as sentence-transformers and transformers call them. `--engine`: what runs the model, `auto`, `torch`, `openvino`
    or `onnx`. `--precision`: what is computed in, `auto`, `float32`, `bfloat16`, `float16` or `int8`, which are the
    names that `--dtype`, how numbers are stored, has too; `f32`, `bf16` and `f16` are short for them.
    `--seed`: a seed. `--seeds`: how many of them.

What comes out
    `--output`, `-o`: the file or folder that a command is for. `--json`: all results as JSON in a file or, with `-`, on
    standard output, which then has nothing else. `--picture`: a drawing. `--cache`: vectors that any run may use.
    `--work`: what the same command goes on from when it was killed. `--resume`: go on from a training's checkpoint.
    `--force`, `-f`: replace what is there. `--quiet`, `-q`: no notes. `--verbose`, `-v`: also those of the libraries.

Three more letters: `--criterion`, `-c` and `--space`, `-s` of searches; `--originals`, `-n` of `heros build`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from essent.cli import several
from essent.cli.console import calm_libraries, show_note, wants_progress
from essent.cli.texts import read_files
from essent.recipe import NAMED

if TYPE_CHECKING:
    from essent.engine import EngineChoice

INPUTS, RUN = "Texts", "Model and run"
SPACES = ("heads", "layers", "weights", "shaping", "full")  # of `essent.selection`, which takes seconds to import


def option(text: str, panel: str | None, *names: str, **how: Any) -> Any:
    """An option with its help."""
    return typer.Option(*names, help=text, rich_help_panel=panel, **how)


def texts(text: str = "", panel: str | None = INPUTS) -> Any:
    """`--texts` with its help."""
    how = {"metavar": "FILES|-", "callback": several.files, "show_default": False}
    return option(text, panel, "--texts", "-t", **how)


def recipe(text: str = "Recipe of the vectors. By default what the model's own folder says, else mean.") -> Any:
    """`--recipe` with its help."""
    return option(text, None, "--recipe", "-r", metavar="RECIPE", autocompletion=recipe_names)


def recipes(text: str = "") -> Any:
    """`--recipe` where it takes several."""
    how = {"metavar": "RECIPES", "callback": several.recipes, "autocompletion": recipe_names}
    return option(text, None, "--recipe", "-r", **how)


def output(metavar: str, text: str) -> Any:
    """`--output` with its help."""
    return option(text, None, "--output", "-o", metavar=metavar)


def json_file(text: str, panel: str | None = None) -> Any:
    """`--json` with its help."""
    return option(f"{text} - is standard output.", panel, "--json", metavar="FILE|-")


def recipe_names(incomplete: str) -> list[str]:
    """Published recipes that complete what was typed, behind its last comma."""
    before, comma, last = incomplete.rpartition(",")
    names = (f"{row.name}:" if row.argument else row.name for row in NAMED.values())
    return [f"{before}{comma}{name}" for name in names if name.startswith(last.strip())]


def space_names(incomplete: str) -> list[str]:
    """Search spaces that complete what was typed."""
    return [name for name in SPACES if name.startswith(incomplete)]


# Kinds of values, for options whose help stands in the command's docstring (`with_help`).
File = Annotated[Path | None, typer.Option(metavar="FILE")]
Folder = Annotated[Path | None, typer.Option(metavar="DIR")]
Files = Annotated[list[Path] | None, typer.Option(metavar="FILES", callback=several.files)]
Names = Annotated[list[str] | None, typer.Option(metavar="NAMES", callback=several.names)]
Numbers = Annotated[list[str] | None, typer.Option(metavar="NUMBERS", callback=several.names)]
Patterns = Annotated[list[str] | None, typer.Option(metavar="PATTERNS", callback=several.names)]
Tasks = Annotated[list[str] | None, typer.Option(metavar="TASKS|FILES", callback=several.tasks)]
Count = Annotated[int, typer.Option(min=1)]
AnyCount = Annotated[int | None, typer.Option(min=1, metavar="N")]
# Options whose help says what the command does with them.
DATA = typer.Option("--data", "-d", metavar="TASKS|FILES", callback=several.tasks)
Data = Annotated[list[str] | None, DATA]
Texts = Annotated[list[Path] | None, texts()]
AnyModel = Annotated[str | None, typer.Option("--model", "-m", metavar="NAME|DIR")]
Recipe = Annotated[str | None, recipe()]
Recipes = Annotated[list[str] | None, recipes()]

# Options that are the same everywhere.
Model = Annotated[str, option("A model on the hub, or a folder.", RUN, "--model", "-m", metavar="NAME|DIR")]
SEVERAL_MODELS = "Models on the hub, or folders. With several, each row names its model."
Models = Annotated[
    list[str], option(SEVERAL_MODELS, RUN, "--model", "-m", metavar="NAMES|DIRS", callback=several.models)
]
Column = Annotated[
    str, option("Column with the texts, in .jsonl, .csv, .tsv and .parquet files.", INPUTS, metavar="NAME")
]
LEARNED_FROM = "Texts that the recipe learns from (token counts, shaping), the papers' superscript W."
Fit = Annotated[list[Path] | None, option(LEARNED_FROM, INPUTS, "--fit", metavar="FILES", callback=several.files)]
COUNTED = "Other texts for the token counts of idf, tf-idf and sif alone (idf with superscript W)."
Frequencies = Annotated[
    list[Path] | None, option(COUNTED, INPUTS, "--frequencies", metavar="FILES", callback=several.files)
]
BatchSize = Annotated[int, option("Texts of about 64 tokens in a batch.", RUN, min=1)]
Device = Annotated[str | None, option("cpu, cuda, cuda:1, mps … By default the best there is.", RUN, metavar="DEVICE")]
Revision = Annotated[str | None, option("Branch, tag or commit of a model on the hub.", RUN, metavar="COMMIT")]
Trust = Annotated[bool, option("Run Python code from the model's folder.", RUN, "--trust-remote-code")]
MaxSeqLength = Annotated[
    int | None, option("The most tokens of a text, its template counted. Default: the model's limit.", RUN, min=1)
]
NAMED_TASKS = "Folder of the named tasks: DIR/sts/NAME.jsonl or SentEval's layout. Default: the hub."
DataFolder = Annotated[Path | None, option(NAMED_TASKS, None, metavar="DIR")]
KEPT = "Folder in which vectors are kept; later runs encode only new texts."
Cache = Annotated[Path | None, option(KEPT, RUN, metavar="DIR")]
Force = Annotated[bool, option("Replace the output if it exists.", None, "--force", "-f")]
Resume = Annotated[bool, option("Go on from the last checkpoint in the output folder.", None, "--resume")]
Quiet = Annotated[bool, option("Show no notes and no progress bar.", None, "--quiet", "-q")]
ALSO_OF_LIBRARIES = "Also show the notes and bars of transformers and the other libraries."
Verbose = Annotated[bool, option(ALSO_OF_LIBRARIES, None, "--verbose", "-v")]


ENGINES = "What runs the model: auto runs it as its folder is, a transformer in torch; openvino and onnx make a graph."
EngineName = Annotated[str, option(ENGINES, RUN, "--engine", metavar="auto|torch|openvino|onnx")]
PRECISIONS = "What is computed in: auto is float32 on CPUs; bfloat16 where the machine has such arithmetic."
Precision = Annotated[str, option(PRECISIONS, RUN, "--precision", metavar="auto|float32|bfloat16")]


def model_options(device: str | None, revision: str | None, trust_remote_code: bool) -> dict[str, Any]:
    """Keyword arguments for Encoder and evaluate: those that were given."""
    given = {"device": device, "revision": revision, "trust_remote_code": trust_remote_code or None}
    return {name: value for name, value in given.items() if value is not None}


@dataclass(frozen=True)
class Run:
    """What nearly every command on a model takes last: `@with_options(opt.Run, into="run")`."""

    device: Device = None
    revision: Revision = None
    trust_remote_code: Trust = False
    force: Force = False
    quiet: Quiet = False
    verbose: Verbose = False

    def calm(self) -> None:
        """Turn off the notes of libraries unless they are wanted; call before a model is loaded."""
        calm_libraries(self.verbose)

    def note(self, message: str) -> None:
        """Show a note on standard error, unless there are to be none."""
        if not self.quiet:
            show_note(message)

    @property
    def options(self) -> dict[str, Any]:
        """Keyword arguments for Encoder and evaluate: those that were given."""
        return model_options(self.device, self.revision, self.trust_remote_code)

    @property
    def progress(self) -> bool:
        """Whether to show a progress bar."""
        return wants_progress(self.quiet)


@dataclass(frozen=True)
class Computing:
    """What runs a model, and what it computes in: `@with_options(opt.Computing, into="computing")`."""

    engine: EngineName = "auto"
    precision: Precision = "auto"

    def choice(self) -> EngineChoice:
        """Both, checked."""
        from essent.engine import EngineChoice

        return EngineChoice(self.engine, self.precision)


@dataclass(frozen=True)
class Learning:
    """What a recipe learns from: `@with_options(opt.Learning, into="learning")`."""

    fit: Fit = None
    frequencies: Frequencies = None
    column: Column = "text"

    def read(self) -> tuple[list[str] | None, list[str] | None]:
        """The texts to fit on, and those to count tokens in."""
        fit, counted = self.fit, self.frequencies
        return (
            None if fit is None else read_files(fit, self.column),
            None if counted is None else read_files(counted, self.column),
        )
