"""Options that several commands take, defined once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from essent.cli import several

INPUTS, RECIPE, RUN = "Texts", "Recipe", "Model and run"
FOUND, JUDGED, OUTPUT = "What is searched", "How it is judged", "Output"  # of searches

Model = Annotated[
    str,
    typer.Option("--model", "-m", metavar="NAME|DIR", help="A model on the hub, or a folder.", rich_help_panel=RUN),
]
Models = Annotated[
    list[str],
    typer.Option(
        "--model",
        "-m",
        metavar="NAMES|DIRS",
        help="Models on the hub, or folders. Of several each row names its own.",
        rich_help_panel=RUN,
        callback=several.models,
    ),
]
Column = Annotated[
    str,
    typer.Option(
        metavar="NAME", help="Column with the texts, in .jsonl, .csv, .tsv and .parquet files.", rich_help_panel=INPUTS
    ),
]
Fit = Annotated[
    list[Path] | None,
    typer.Option(
        "--fit",
        metavar="FILES",
        help="Texts that the recipe learns from (token counts, shaping), the papers' superscript W.",
        rich_help_panel=INPUTS,
        callback=several.files,
    ),
]
Frequencies = Annotated[
    list[Path] | None,
    typer.Option(
        "--frequencies",
        metavar="FILES",
        help="Other texts for the token counts of idf, tf-idf and sif alone (idf with superscript W).",
        rich_help_panel=INPUTS,
        callback=several.files,
    ),
]
BatchSize = Annotated[int, typer.Option(min=1, help="Texts of about 64 tokens in a batch.", rich_help_panel=RUN)]
Device = Annotated[
    str | None,
    typer.Option(metavar="DEVICE", help="cpu, cuda, cuda:1, mps … By default the best there is.", rich_help_panel=RUN),
]
Revision = Annotated[
    str | None, typer.Option(metavar="COMMIT", help="Branch, tag or commit of a hub model.", rich_help_panel=RUN)
]
Trust = Annotated[
    bool,
    typer.Option("--trust-remote-code", help="Run Python code that the model brings along.", rich_help_panel=RUN),
]
MaxSeqLength = Annotated[
    int | None,
    typer.Option(min=1, help="Most tokens of a text, template included. Default: the model's.", rich_help_panel=RUN),
]
CHOSEN_ON = typer.Option(
    "--data",
    "-d",
    metavar="TASKS|FILES",
    help="Scored pairs to choose on: tasks such as stsb.dev, or files; the pairs of several are put together.",
    rich_help_panel=FOUND,
    callback=several.tasks,
)
Criteria = Annotated[
    list[str] | None,
    typer.Option(
        "--criterion",
        "-c",
        metavar="NAMES",
        help="What ranks the recipes; of several the first, all are shown. "
        "Default: spearman with labels, the best label-free one without.",
        rich_help_panel=JUDGED,
        callback=several.criteria,
    ),
]
Baselines = Annotated[
    list[str] | None,
    typer.Option(
        metavar="RECIPES",
        help="Compare the winner with these. Default: mean and first-last.",
        rich_help_panel=JUDGED,
        callback=several.recipes,
    ),
]
Checks = Annotated[
    list[str] | None,
    typer.Option(
        metavar="TASKS|FILES",
        help="Report the winner on these scored pairs, not chosen on them.",
        rich_help_panel=JUDGED,
        callback=several.tasks,
    ),
]
DataFolder = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Local data of named tasks. Default: the hub.", rich_help_panel=JUDGED),
]
Top = Annotated[int, typer.Option(min=1, help="Rows to show.", rich_help_panel=OUTPUT)]
SaveWinner = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Save the best recipe, fitted on the data, as a folder.", rich_help_panel=OUTPUT),
]
SaveAnyway = Annotated[
    bool,
    typer.Option(
        "--save-anyway",
        help="Save the recipe ranked first, also where it is not shown to be better than the baselines.",
        rich_help_panel=OUTPUT,
    ),
]
Trials = Annotated[
    Path | None, typer.Option("--json", metavar="OUT", help="Write every trial.", rich_help_panel=OUTPUT)
]
Work = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR", help="Keep what is computed here; the same command resumes there.", rich_help_panel=OUTPUT
    ),
]
Memory = Annotated[float, typer.Option(metavar="GIB", help="For hidden states and vectors.", rich_help_panel=RUN)]
Seed = Annotated[int, typer.Option(help="Of resampling and label-free criteria.", rich_help_panel=RUN)]
Force = Annotated[bool, typer.Option("--force", "-f", help="Replace the output if it exists.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No notes, no progress bar.")]


def model_options(device: str | None, revision: str | None, trust_remote_code: bool) -> dict[str, Any]:
    """Keyword arguments for Encoder and evaluate: those that were given."""
    given = {"device": device, "revision": revision, "trust_remote_code": trust_remote_code or None}
    return {name: value for name, value in given.items() if value is not None}
