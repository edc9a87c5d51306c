"""`essent save`: a model with its recipe as one folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from essent.cli import options as opt
from essent.cli.calibrating import Calibrating
from essent.cli.fitting import fit_on
from essent.cli.settings import with_help, with_options
from essent.cli.verify import show_verification
from essent.folders import LAYOUTS, check_layout
from essent.types import DataError


@with_help()
@with_options(opt.Learning, into="learning")
@with_options(Calibrating, {"": "Calibrated similarity"}, into="calibrating")
@with_options(opt.Run, into="run")
def save(
    model: opt.Model,
    output: Annotated[Path, opt.output("DIR", "The folder to write.")],
    recipe: opt.Recipe = None,
    *,
    learning: opt.Learning,
    calibrating: Calibrating,
    layout: Annotated[str, typer.Option(metavar="|".join(LAYOUTS))] = "stock",
    max_seq_length: opt.MaxSeqLength = None,
    batch_size: opt.BatchSize = 32,
    run: opt.Run,
) -> None:
    """Save a model with its recipe as a folder, wherever possible one that plain sentence-transformers loads.

    A recipe that learns something (idf, shaping) needs --fit. A folder that essent saved has its own recipe: without -r
    it is saved again, with another layout or calibrated similarities. What was written is loaded again and checked, in
    every way it promises; if plain sentence-transformers cannot load it, the reason is printed.

    \b
    [dim]$[/] essent save -m bert-base-uncased -r "first-last | whiten:256" --fit corpus.txt -o my-model
    [dim]$[/] essent save -m bert-base-uncased -r mean --calibrate corpus.txt --judged-pairs duplicates.csv -o my-model
    [dim]$[/] essent save -m my-model --layout legacy -o for-servers

    Args:
        layout: stock, or legacy with class paths and flags that servers such as vLLM and TEI parse.
    """
    from essent.recipe import Recipe

    check_layout(layout)
    check_folder(output, run.force)
    parsed = None if recipe is None else Recipe.parse(recipe)
    texts = learning.read()
    calibrate = calibrating.read(learning.column)
    from essent.encoder import Encoder
    from essent.verification import verify

    run.calm()
    encoder = Encoder(model, parsed, **run.options)
    if max_seq_length is not None:
        encoder.max_seq_length = max_seq_length
    fit_on(encoder, learning, texts, run, batch_size)
    calibrate(encoder, run, batch_size)
    encoder.save(str(output), layout=layout)
    report = verify(str(output))
    if not run.quiet:
        show_verification(report, str(output))


def check_folder(output: Path, force: bool) -> None:
    """Refuse a place for a folder before anything is loaded."""
    if output.is_file():
        raise DataError(f"{output} is a file; what is saved there is a folder.")
    if output.is_dir() and any(output.iterdir()) and not force:
        raise DataError(f"The folder {output} exists and is not empty. --force writes into it.")
