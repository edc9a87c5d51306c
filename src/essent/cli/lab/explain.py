"""`essent lab explain`: one pair of sentences, predictions at a template's mask, and biases of token embeddings."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from essent._core.atomic import write_json
from essent._core.lazy import optional_import
from essent.cli import options as opt
from essent.cli.console import prepare_torch, results, show_lines, show_note
from essent.cli.files import check_output, read_files, write_json_file
from essent.errors import NotFittedError
from essent.recipe.recipe import Recipe

PICTURES = (".png", ".svg", ".pdf")


def pair(
    first: Annotated[str, Parameter(name="FIRST")],
    second: Annotated[str, Parameter(name="SECOND")],
    /,
    *,
    model: opt.Model,
    recipe: opt.Recipe = None,
    output: Annotated[Path | None, Parameter(alias="-o")] = None,
    run: opt.Run = opt.Run(),
) -> None:
    """Explain the similarity of two sentences.

    Prints their cosine, the calibrated similarity if the model has one, and what each token gives to the cosine: the
    cosine minus the cosine without the token.

    ```console
    $ essent lab explain "The film was good." "The film was not good." -m all-MiniLM-L6-v2 -r mean -o pair.png
    ```

    Args:
        first: A sentence.
        second: Another sentence.
        model: A model on the hub, or a folder.
        recipe: Recipe of the vectors. Default: the model's own pooling.
        output: Also draw a picture: .png, .svg or .pdf.
    """
    parsed = None if recipe is None else Recipe.parse(recipe)
    check_output(output, run.force, PICTURES)
    if output is not None:
        optional_import("matplotlib", "demo")
    prepare_torch("essent lab explain")
    from essent.lab.explain.pair import draw_pair, explain_pair

    try:
        explanation = explain_pair(model, first, second, parsed, **run.options)
    except NotFittedError:
        raise NotFittedError(f"The recipe {recipe!r} is not fitted. Fit it first: essent save --fit FILE.") from None
    show_lines([explanation.headline()])
    if explanation.calibration:
        show_lines([f"calibrated: {explanation.calibration}"])
    if any(explanation.tokens):
        results().print(explanation.table())
    for note in explanation.notes:
        show_note(note)
    if output is not None:
        draw_pair(explanation, output)
        show_note(f"Wrote {output}.")


def mask(
    text: Annotated[list[str], Parameter(name="TEXT")],
    /,
    *,
    model: opt.Model,
    template: str = "bert",
    top: opt.Count = 10,
    denoised: bool = False,
    json_file: opt.Json = None,
    batch_size: opt.BatchSize = 32,
    run: opt.Run = opt.Run(),
) -> None:
    """Show the most probable tokens at a template's [MASK].

    The model's own masked-LM head predicts them (PromptBERT, Table 7), with probabilities over the whole vocabulary.
    Models that were saved without this head, such as sentence encoders, raise an error.

    ```console
    $ essent lab explain mask "i am sad." "the man is playing the guitar." -m bert-base-uncased --denoised
    $ essent lab explain mask "dogs" -m ./my-mlm --template T1 --top 5 --json predictions.json
    ```

    Args:
        text: Texts to put into the template.
        model: A model on the hub, or a folder.
        template: T0 to T4, bert, roberta, or a text with {text} and [MASK].
        top: Number of tokens to show per text.
        denoised: Also show the predictions after template denoising (PromptBERT 4.3, Table 7).
        json_file: Also write the predictions as JSON; - is standard output.
        batch_size: Texts per batch.
    """
    check_output(json_file, run.force)
    prepare_torch("essent lab explain")
    from essent.lab.explain.predictions import mask_predictions

    predictions = mask_predictions(
        model, text, template=template, top=top, denoised=denoised, batch_size=batch_size, **run.options
    )
    results(json_file).print(predictions.table())
    write_json_file(json_file, partial(write_json, value={"model": model, **predictions.to_dict()}, indent=None))


def bias(
    *,
    model: opt.Model,
    output: opt.Output,
    texts: opt.AnyTexts = None,
    column: opt.Column = "text",
    run: opt.Run = opt.Run(),
) -> None:
    """Draw the biases of token embeddings.

    The biases by frequency, sub-word and case are those of PromptBERT, Figures 1 and 2 (two principal components) and
    Table 2. A masked-LM head that is not tied to the word embeddings gets its own row of panels.

    ```console
    $ essent lab explain bias -m bert-base-cased --texts wikipedia.txt --output bias.png
    ```

    Args:
        model: A model on the hub, or a folder.
        output: The picture: .png, .svg or .pdf.
        texts: Texts for token counts. Default: rank tokens by the vocabulary's order.
        column: Column with the texts, in .jsonl, .csv, .tsv and .parquet files.
    """
    check_output(output, run.force, PICTURES)
    prepare_torch("essent lab explain")
    optional_import("matplotlib", "demo")
    from essent.lab.explain.bias import draw_bias, token_bias

    report = token_bias(model, None if texts is None else read_files(texts, column), **run.options)
    draw_bias(report, output)
    results().print(report.table())
    show_note(f"Wrote {output}.")
