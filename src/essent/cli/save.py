"""`essent save`: a model with its recipe as one folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from essent.cli import options as opt
from essent.cli.fitting import is_ready, note_unused
from essent.cli.settings import with_options
from essent.cli.verify import show_verification
from essent.folders import LAYOUTS, check_layout
from essent.types import DataError, NotFittedError


@with_options(opt.Learning, into="learning")
@with_options(opt.Run, into="run")
def save(
    model: opt.Model,
    recipe: Annotated[str, opt.recipe("What the folder will compute.")],
    output: Annotated[Path, opt.output("DIR", "The folder to write.")],
    *,
    learning: opt.Learning,
    layout: Annotated[
        str,
        typer.Option(
            metavar="|".join(LAYOUTS), help="legacy: class paths and flags that servers such as vLLM and TEI parse."
        ),
    ] = "stock",
    max_seq_length: opt.MaxSeqLength = None,
    batch_size: opt.BatchSize = 32,
    run: opt.Run,
) -> None:
    """Save a model with its recipe as a folder, wherever possible one that plain sentence-transformers loads.

    A recipe that learns something (idf, shaping) needs --fit. The folder is loaded again and checked at the end, in
    every way it promises; if plain sentence-transformers cannot load it, the reason is printed.

    \b
    [dim]$[/] essent save -m bert-base-uncased -r "first-last | whiten:256" --fit corpus.txt -o my-model
    """
    from essent.recipe import Recipe

    check_folder(output, layout, run.force)
    parsed = Recipe.parse(recipe)
    fit_texts, counted = learning.read()
    from essent.encoder import Encoder
    from essent.verification import verify

    run.calm()
    encoder = Encoder(model, parsed, **run.options)
    if max_seq_length is not None:
        encoder.max_seq_length = max_seq_length
    if not run.quiet:
        note_unused(encoder, learning.fit, learning.frequencies)
    if fit_texts is not None:
        encoder.fit(fit_texts, frequency_texts=counted, batch_size=batch_size, show_progress_bar=run.progress)
    elif not is_ready(encoder):
        raise NotFittedError(f"The recipe {str(parsed)!r} learns from texts: give them with --fit FILE.")
    encoder.save(str(output), layout=layout)
    report = verify(str(output))
    if not run.quiet:
        show_verification(report, str(output))


def check_folder(output: Path, layout: str, force: bool) -> None:
    """Refuse a place or layout before anything is loaded."""
    check_layout(layout)
    if output.is_file():
        raise DataError(f"{output} is a file; a model is saved as a folder.")
    if output.is_dir() and any(output.iterdir()) and not force:
        raise DataError(f"The folder {output} exists and is not empty. --force writes into it.")
