"""`essent encode`: vectors of texts in a file, or of any number of texts in a folder of parts."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Group, Parameter
from cyclopts.validators import Number

from essent.cli import options as opt
from essent.cli.console import is_quiet, show_note, silence_libraries
from essent.cli.files import STANDARD_INPUT, check_output, listed, read_files, write_vectors
from essent.cli.save import learns, needs_texts, note_unused
from essent.errors import InputError
from essent.recipe.recipe import Recipe

if TYPE_CHECKING:
    from essent.bulk.run import BulkResult

PARTS = Group("Only for a folder of parts", sort_key=4)


@Parameter(name="*", group=PARTS)
@dataclass(frozen=True)
class PartOptions:
    """Options of a run in parts."""

    id: list[str] | None = None
    """Columns of the input to write next to the vectors. Default: all."""
    chunk: str | None = None
    """One row per chunk of a text: sentences or tokens:N; late:sentences or late:tokens:N encode chunks in context."""
    dtype: Literal["float32", "float16", "int8", "ubinary"] = "float32"
    """Number format of the vectors; int8 adds a column `scale`, ubinary is one bit per dimension."""
    rows_per_part: opt.Count = 32_768
    """Approximate number of rows per part; a killed run loses only its current part."""
    workers: int | None = None
    """Number of processes, which share the cores. Default: 1; on a cluster, one per GPU or node."""
    ray: str | None = None
    """Compute on a Ray cluster: its address, auto for the running cluster, local for this machine alone."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class EncodeOptions(opt.Run):
    """Options of both outputs, a file and a folder of parts."""

    model: opt.Model
    """A model on the hub, or a folder."""
    output: opt.Output
    """A file .npy (float32, one row per text), or a folder for parts."""
    recipe: opt.Recipe = None
    """Recipe of the vectors. Default: the recipe or pooling of the model's folder, otherwise mean."""
    column: opt.Column = "text"
    """Column with the texts, in .jsonl, .csv, .tsv and .parquet files."""
    fit: opt.Fit = None
    """Texts to fit the recipe on (token counts, shaping), the papers' superscript W. Default: the input.
    Not for a folder of parts."""
    prompt: Annotated[str | None, Parameter(group=opt.INPUTS)] = None
    """Prompt to prepend to every text, e.g. "query: "."""
    normalize: bool = False
    """Scale every vector to length 1."""
    truncate_dim: Annotated[int | None, Parameter(validator=Number(gte=1))] = None
    """Write only the first dimensions."""
    batch_size: opt.BatchSize = 32
    """Texts of about 64 tokens per batch."""
    precision: opt.Precision = "auto"
    """Number format of the computation; auto is float32 on CPUs, bfloat16 needs hardware support."""


def encode(
    sources: Annotated[list[str] | None, opt.Stream, Parameter(name="SOURCES")] = None,
    /,
    *,
    options: EncodeOptions,
    parts: PartOptions = PartOptions(),
) -> None:
    """Encode texts to a file or a folder of parts.

    A file (.npy) contains one vector per text and is written at the end.

    A folder of Parquet parts is for any number of rows. The input may be Parquet, Arrow, JSON lines, CSV, TSV and text
    files, compressed or not, folders, patterns and addresses such as s3://bucket/*.parquet. The parts contain all
    columns and a status per row. Run the same command to resume an interrupted run; the result has the same bytes. If
    the folder has parts of another model, recipe, prompt or source, the command stops with an error.

    For a file, recipes that learn something (idf, shaping) are fitted on the input, unless --fit names other texts. For
    a folder of parts, use an encoder that `essent save --fit` has fitted.

    ```console
    $ essent encode texts.txt -m bert-base-uncased -r "first-last | zscore" -o vectors.npy
    $ cut -f2 table.tsv | essent encode -m intfloat/e5-small-v2 --prompt "query: " -o vectors.npy
    $ essent encode "data/*.parquet" --column body -m my-encoder -o vectors --dtype float16 --workers 4
    $ essent encode "/shared/*.parquet" -m /shared/my-encoder -o /shared/vectors --ray auto
    ```

    Args:
        sources: Files: one text per line, or .jsonl, .csv, .tsv, .parquet with --column. Default: - (standard input).
    """
    if not options.output.suffix:
        _encode_parts(sources, options, parts)
        return
    if changed := opt.changes(parts):
        name = next(iter(changed)).replace("_", "-")
        raise InputError(f"--{name} is for a folder of parts, but {options.output} is a file. Name a folder.")
    _encode_file([Path(source) for source in sources or [STANDARD_INPUT]], options)


# -- to a file --------------------------------------------------------------------------------------------------------


def _encode_file(sources: Sequence[Path], options: EncodeOptions) -> None:
    output = options.output
    if output.suffix != ".npy":
        raise InputError(
            f"{output}: a file of vectors ends in .npy. For vectors with the input's columns, name a folder without a "
            f"suffix (-o {output.with_suffix('')}), whose parts are Parquet files."
        )
    check_output(output, options.force)
    recipe = None if options.recipe is None else Recipe.parse(options.recipe)
    texts = read_files(sources, options.column)
    fit_texts = None if options.fit is None else read_files(options.fit, options.column)
    from essent.static.encoder import open_encoder

    encoder = open_encoder(
        options.model, options.precision, recipe, options=options.options, learns=options.fit is not None,
        before_torch=silence_libraries,
    )  # fmt: skip
    start = time.monotonic()
    fits = needs_texts(encoder) if fit_texts is None else learns(encoder)  # without --fit, a saved fit is used
    empty = sum(not text.strip() for text in texts)  # an empty cell of a CSV file is an empty text
    show_note(f"Encoding {len(texts):,} texts{f', {empty:,} of them empty' if empty else ''}.")
    note_unused(encoder, options.fit)
    _note_prompt(encoder, options.prompt)
    if fits and options.fit is None:
        show_note(f"{encoder.recipe} is fitted on the input ({listed(sources)}); use --fit FILE for other texts.")
    elif fits:
        show_note(f"{encoder.recipe} is fitted on {listed(options.fit or [])}.")
    fit_arguments: dict[str, Any] = {
        "prompt": options.prompt,
        "batch_size": options.batch_size,
        "show_progress_bar": not is_quiet(),
    }
    encode_arguments: dict[str, Any] = {
        **fit_arguments,
        "normalize_embeddings": options.normalize,
        "truncate_dim": options.truncate_dim,
    }
    if fits and fit_texts is None:
        vectors = encoder.fit_encode(texts, **encode_arguments)
    else:
        if fits:
            encoder.fit(fit_texts, **fit_arguments)
        vectors = encoder.encode(texts, **encode_arguments)
    write_vectors(output, vectors)
    seconds = time.monotonic() - start
    computed = getattr(encoder, "recipe", encoder)
    show_note(f"{output}: {len(vectors)} × {vectors.shape[1]} float32, {computed}, {seconds:.1f} s")


def _note_prompt(encoder: Any, prompt: str | None) -> None:
    """Print the default prompt of a model, if it has one and --prompt is not used."""
    from essent.tasks.base import prompt_note

    default = getattr(encoder, "default_prompt_name", None)
    if prompt is None and default is not None:
        for note in prompt_note({"texts": encoder.prompts.get(default, "")}):
            show_note(f"{note} Use --prompt for another.")


# -- to a folder of parts ---------------------------------------------------------------------------------------------


def _encode_parts(sources: Sequence[str] | None, options: EncodeOptions, parts: PartOptions) -> None:
    if not sources or STANDARD_INPUT in sources:
        raise InputError("A folder of parts needs files, folders, patterns or addresses, not standard input.")
    from essent.bulk.run import encode as encode_parts

    shared = ("recipe", "precision", "prompt", "normalize", "truncate_dim", "batch_size", "column")
    command = "essent save -m MODEL -r RECIPE --fit FILE -o FOLDER"
    opt.refuse({"--fit": options.fit}, f"is for a .npy file. For a folder of parts, save a fitted encoder: {command}")
    silence_libraries()
    result = encode_parts(
        sources,
        options.model,
        options.output,
        force=options.force,
        progress=not is_quiet(),
        options=options.options,
        **{name: getattr(options, name) for name in shared},
        **opt.changes(parts),
    )
    _note_result(result)


def _note_result(result: BulkResult) -> None:
    from essent.bulk.models import STATUSES

    new = result.rows - result.resumed
    speed = f", {new / max(result.seconds, 1e-9):,.0f} rows per second" if new else ""
    before = f", {result.resumed:,} of them by earlier runs" if result.resumed else ""
    parts = f"{result.parts:,} part{'s' * (result.parts != 1)}"
    show_note(f"{result.folder}: {result.rows:,} rows in {parts}{before}, {result.seconds:,.1f} s{speed}")
    for status, count in result.statuses.items():
        if status != "ok":
            show_note(f"{count:,} row{'s' * (count > 1)}: {status} ({STATUSES[status]})")
