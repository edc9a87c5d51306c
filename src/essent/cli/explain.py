"""`essent explain`: what a model predicts at a template's mask, and how its token embeddings are biased."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from essent.atomic import write_json
from essent.cli import options as opt
from essent.cli.console import results
from essent.cli.files import check_output, write_json_file
from essent.cli.settings import with_help, with_options
from essent.cli.texts import read_files
from essent.types import InputError, optional_import

app = typer.Typer(
    help="Look into a model: what it predicts at a mask, how its token embeddings are biased.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    add_completion=False,  # the program's own is for all commands
    context_settings={"help_option_names": ["-h", "--help"]},
)


@with_help()
@with_options(opt.Run, into="run", by_hand=("quiet",))
def mask(
    model: opt.Model,
    text: Annotated[list[str] | None, typer.Argument(metavar="[TEXT]...", help="Texts to look at.")] = None,
    texts: Annotated[list[Path] | None, opt.texts("Texts from files, as in essent encode.")] = None,
    top: opt.Count = 10,
    template: Annotated[str, typer.Option(metavar="NAME|TEXT")] = "bert",
    denoised: bool = False,
    json_file: Annotated[Path | None, opt.json_file("Also write the predictions.")] = None,
    column: opt.Column = "text",
    batch_size: opt.BatchSize = 32,
    *,
    run: opt.Run,
) -> None:
    """Show the most probable tokens at a template's [MASK], by the model's own masked-LM head (PromptBERT, Table 7).

    Probabilities are of the whole vocabulary. A model that was saved without its head, as sentence encoders are, is
    refused.

    \b
    [dim]$[/] essent explain mask -m bert-base-uncased "i am sad." "the man is playing the guitar." --denoised
    [dim]$[/] essent explain mask -m ./my-mlm -t texts.txt --template T1 --top 5 --json predictions.json

    Args:
        top: tokens to show.
        template: T0 … T4, bert, roberta, or a text with {text} and [MASK].
        denoised: also show the predictions after template denoising (PromptBERT 4.3, Table 7).
    """
    if not text and texts is None:
        raise InputError('Give texts: essent explain mask "a text", or --texts FILE.')
    check_output(json_file, run.force)
    given = [*(text or []), *read_files(texts or [], column)]
    from essent.lab.explain import mask_predictions

    run.calm()
    found = mask_predictions(
        model, given, template=template, top=top, denoised=denoised, batch_size=batch_size, **run.options
    )
    results(json_file).print(found.table())
    write_json_file(json_file, partial(write_json, value={"model": model, **found.to_dict()}, indent=None))


@with_help({opt.INPUTS: "texts"})
@with_options(opt.Run, into="run")
def bias(
    model: opt.Model,
    output: Annotated[Path, opt.output("DIR", "Folder for the picture (PNG, SVG), the numbers and a table.")],
    texts: opt.Texts = None,
    data: opt.Data = None,
    data_folder: opt.DataFolder = None,
    column: opt.Column = "text",
    seed: int = 0,
    batch_size: opt.BatchSize = 32,
    *,
    run: opt.Run,
) -> None:
    """Draw the token embeddings by frequency, sub-word and case, and measure how anisotropic tokens and sentences are.

    PromptBERT's Figures 1 and 2 (two principal components) and Tables 1 and 2. A masked-LM head that is not tied to the
    word embeddings has a row of panels of its own.

    \b
    [dim]$[/] essent explain bias -m bert-base-cased --texts wikipedia.txt --data stsb --output bias

    Args:
        texts: texts to count tokens in and to measure sentences on. Default: the vocabulary's order, no sentences.
        data: scored pairs whose Spearman correlation stands beside the anisotropy, e.g. stsb,sickr.
        seed: seed by which texts are drawn where there are many.
    """
    from essent.lab.explain import BIAS_FILES, token_bias, write_bias

    optional_import("matplotlib", "demo")
    if output.is_file():
        raise InputError(f"{output} is a file; the output is a folder.")
    for name in BIAS_FILES:
        check_output(output / name, run.force)
    given = None if texts is None else read_files(texts, column)
    run.calm()
    found = token_bias(
        model,
        given,
        tasks=data or [],
        data=None if data_folder is None else str(data_folder),
        seed=seed,
        batch_size=batch_size,
        progress=run.progress,
        **run.options,
    )
    write_bias(found, output)
    for table in found.tables():
        results().print(table)
    run.note(f"{output}: {', '.join(BIAS_FILES)}.")
