"""`essent encode`: texts in, a file of vectors out."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from essent.cli import options as opt
from essent.cli.console import calm_libraries, show_logs, show_note
from essent.cli.files import WRITERS, check_output, check_writer, write_vectors
from essent.cli.fitting import is_ready, learns, note_unused
from essent.cli.table import TextTable, check_columns, read_table
from essent.cli.texts import STANDARD_INPUT, listed, read_files
from essent.engine import EngineChoice, check_graph, choose, computing_in, offer_bfloat16
from essent.lazy import check_torch
from essent.tasks import prompt_note
from essent.types import DataError, InputError


def encode(
    model: opt.Model,
    output: Annotated[
        Path,
        opt.output("FILE", ".npy (float32, one row a text), .parquet or .jsonl (the input's columns and embedding)."),
    ],
    recipe: Annotated[str | None, opt.recipe()] = None,
    texts: Annotated[
        list[Path] | None,
        opt.texts(
            "One text a line, or .jsonl, .csv, .tsv, .parquet with --column; several in their order. "
            "Default: -, standard input."
        ),
    ] = None,
    column: opt.Column = "text",
    strict: Annotated[
        bool,
        typer.Option("--strict", help="Stop at a row without a text (null).", rich_help_panel=opt.INPUTS),
    ] = False,
    fit: opt.Fit = None,
    frequencies: opt.Frequencies = None,
    prompt: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Text that is put before every text.", rich_help_panel=opt.INPUTS)
    ] = None,
    normalize: Annotated[bool, typer.Option("--normalize", help="Scale every vector to length 1.")] = False,
    truncate_dim: Annotated[int | None, typer.Option(min=1, help="Keep the first dimensions only.")] = None,
    max_seq_length: opt.MaxSeqLength = None,
    batch_size: opt.BatchSize = 32,
    engine: opt.EngineName = "auto",
    precision: opt.Precision = "auto",
    device: opt.Device = None,
    revision: opt.Revision = None,
    trust_remote_code: opt.Trust = False,
    force: opt.Force = False,
    quiet: opt.Quiet = False,
    verbose: opt.Verbose = False,
) -> None:
    """Embed texts, one vector a line of input.

    Other columns of the input are kept in .parquet and .jsonl files. A row without a text (null) has no vector: null
    there, NaN in a .npy file; they are counted, or refused with --strict. A recipe that learns something (idf,
    shaping) learns it from the input itself, unless --fit names other texts. The output appears when it is complete: an
    interrupted run leaves no half file.

    \b
    [dim]$[/] essent encode -m bert-base-uncased -r "first-last | zscore" -t texts.txt -o vectors.npy
    [dim]$[/] cut -f2 table.tsv | essent encode -m intfloat/e5-small-v2 --prompt "query: " -o vectors.parquet
    """
    check_output(output, force, tuple(WRITERS))
    check_writer(output)
    choice = opt.Computing(engine, precision).choice()
    sources = texts or [Path(STANDARD_INPUT)]
    table = _read(sources, column, output, strict)
    fit_texts = None if fit is None else read_files(fit, column)
    counted = None if frequencies is None else read_files(frequencies, column)
    options = opt.model_options(device, revision, trust_remote_code)
    asked = fit is not None or frequencies is not None  # else what was saved fitted stays
    if max_seq_length is not None:
        options["max_seq_length"] = max_seq_length
    encoder = _load(model, recipe, options, asked, verbose, choice)
    start = time.monotonic()
    fits = learns(encoder) and (asked or not is_ready(encoder))
    if not quiet:
        _note_rows(table, output)
        note_unused(encoder, fit, frequencies)
        _note_prompt(encoder, prompt)
    if fits and not quiet:
        show_note(_fit_note(str(encoder.recipe), fit, sources))
    reading: dict[str, Any] = {"prompt": prompt, "batch_size": batch_size, "show_progress_bar": not quiet}
    finishing: dict[str, Any] = {"normalize_embeddings": normalize, "truncate_dim": truncate_dim}
    if fits and fit_texts is None and not choice.makes_graph:
        vectors = encoder.fit_encode(table.texts, frequency_texts=counted, **reading, **finishing)
    else:
        if fits:
            encoder.fit(table.texts if fit_texts is None else fit_texts, frequency_texts=counted, **reading)
        if choice.makes_graph:
            encoder = choose(encoder, choice.engine, choice.precision, texts=table.texts)
        vectors = encoder.encode(table.texts, **reading, **finishing)
    write_vectors(output, table, vectors)
    if not quiet:
        seconds = time.monotonic() - start
        if choice.is_default and (offer := offer_bfloat16(encoder, table.texts)) is not None:
            show_note(f"{offer}.")
        show_note(f"{output}: {len(vectors)} × {vectors.shape[1]} float32, {_what(encoder)}, {seconds:.1f} s")


def _read(sources: Sequence[Path], column: str, output: Path, strict: bool) -> TextTable:
    """The input, refused where the output cannot hold it.

    Raises:
        DataError: see `read_table` and `check_columns`; with `strict` a row without a text.
    """
    table = read_table(sources, column)
    check_columns(output, table)
    if strict and table.places:
        raise DataError(f"{table.places[0]}: {column!r} is null, one of {len(table.places)} such rows (--strict).")
    return table


def _note_rows(table: TextTable, output: Path) -> None:
    """Say what is encoded, and what has no vector or is not kept."""
    empty = sum(not text.strip() for text in table.texts)  # an empty cell of a CSV file is an empty text
    also = f", {empty:,} of them empty" if empty else ""
    show_note(f"{len(table.texts):,} texts are encoded{also}.")
    if table.places:
        shown = "NaN" if output.suffix.lower() == ".npy" else "null"
        counted = f"{len(table.places):,} of {len(table.all_texts):,} rows"
        show_note(
            f"{counted} have no text ({table.column!r} is null), the first {table.places[0]}: "
            f"their vectors are {shown}."
        )
    if table.others and output.suffix.lower() == ".npy":
        names = ", ".join(map(repr, table.others))
        show_note(f"A .npy file has vectors alone: {names} of the input are not kept; .parquet and .jsonl keep them.")


def _load(
    model: str, recipe: str | None, options: dict[str, Any], learning: bool, verbose: bool, choice: EngineChoice
) -> Any:
    """A StaticEncoder, the graph of a folder that `essent export` wrote, or else an Encoder.

    Args:
        options: those given that only an Encoder takes; with them or with a recipe it is always an Encoder.
        learning: whether texts are given that the recipe may learn from, which only an Encoder does.
        choice: what it computes in; a graph is made later, of what is fitted.
    """
    from essent.folders import is_exported_folder
    from essent.recipe import Recipe
    from essent.static import static_of

    parsed = None if recipe is None else Recipe.parse(recipe)  # before the slow imports
    if verbose:
        show_logs()
    exported = is_exported_folder(model) and parsed is None
    if exported and options:
        raise InputError(f"{model!r} is an exported graph, which takes no {' or '.join(options)}.")
    learning = learning or not choice.is_default
    if not (exported or parsed or options or learning) and (static := static_of(model)) is not None:
        return static
    check_torch(f"Encoding with {model!r}" if exported or parsed is None else f"The recipe {recipe!r}")
    from essent.encoder import Encoder

    calm_libraries(verbose)
    if exported:
        from essent.engine import load

        return check_graph(load(model), choice)
    longest = options.pop("max_seq_length", None)
    encoder = Encoder(model, parsed, **options)
    if longest is not None:
        encoder.max_seq_length = longest
    return encoder if choice.makes_graph else computing_in(encoder, choice.precision, shared=False)


def _what(encoder: Any) -> str:
    """What the encoder computes: its recipe, or which static encoder it is."""
    return str(getattr(encoder, "recipe", encoder))


def _note_prompt(encoder: Any, prompt: str | None) -> None:
    """Say which prompt a model puts before texts where none was chosen."""
    default = getattr(encoder, "default_prompt_name", None)
    if prompt is None and default is not None:
        for note in prompt_note({"texts": encoder.prompts.get(default, "")}):
            show_note(f"{note} --prompt chooses another.")


def _fit_note(recipe: str, fit: Sequence[Path] | None, inputs: Sequence[Path]) -> str:
    """What is learned from where, in one line."""
    if fit is not None:
        return f"{recipe} is fitted on {listed(fit)}."
    return f"{recipe} is fitted on the input itself ({listed(inputs)}); --fit FILE takes other texts."
