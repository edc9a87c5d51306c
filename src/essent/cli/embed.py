"""`essent embed`: any number of texts in, a folder of Parquet parts out; killed and gone on with."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from essent.bulk import STATUSES, BulkSettings
from essent.cli import options as opt
from essent.cli import several
from essent.cli.console import calm_libraries, show_note
from essent.cli.settings import with_options
from essent.cli.texts import read_files

if TYPE_CHECKING:
    from essent.bulk import BulkResult

TEXTS, PARTS = "Texts", "What is written"
PANELS = {
    "column": TEXTS,
    "id": TEXTS,
    "where": TEXTS,
    "prompt": TEXTS,
    "prompt_name": TEXTS,
    "chunk": TEXTS,
    "chunk_rows": TEXTS,
    "strict": TEXTS,
    "batch_size": opt.RUN,
    "max_seq_length": opt.RUN,
    "": PARTS,
}
METAVARS = {
    "prompt": "TEXT",
    "where": "CONDITION",
    "dtype": "float32|float16|int8",
    "vectors": "list|fixed",
    "chunk": "sentences|tokens:N",
    "chunk_rows": "rows|mean",
}


@with_options(BulkSettings, PANELS, metavars=METAVARS, by_hand=("id",), preset=True)
@with_options(opt.Run, into="run", by_hand=("device", "revision", "trust_remote_code"))
def embed(
    sources: Annotated[
        list[str],
        typer.Argument(metavar="SOURCE…", help="Files, folders, patterns, or addresses such as s3://bucket/*.parquet."),
    ],
    model: opt.Model,
    output: Annotated[Path, opt.output("DIR", "The folder of the parts.")],
    recipe: Annotated[str | None, opt.recipe()] = None,
    *,
    settings: dict[str, Any],
    id: Annotated[
        list[str] | None,
        typer.Option(
            "--id",
            metavar="NAMES",
            help="Keep these columns of the input alone; by default all are kept.",
            rich_help_panel=TEXTS,
            callback=several.names,
        ),
    ] = None,
    fit: opt.Fit = None,
    fit_sample: Annotated[
        int,
        typer.Option(
            min=1, help="Texts of the sources that a recipe learns from without --fit.", rich_help_panel=TEXTS
        ),
    ] = 10_000,
    format: Annotated[
        str, typer.Option(metavar="parquet|lance", help="lance: also a data set of Lance.", rich_help_panel=PARTS)
    ] = "parquet",
    engine: opt.EngineName = "auto",
    precision: opt.Precision = "auto",
    workers: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Processes, which share the cores; by default 1, and on a cluster one a GPU or node.",
            rich_help_panel=opt.RUN,
        ),
    ] = None,
    ray: Annotated[
        str | None,
        typer.Option(
            metavar="[ADDRESS]",
            help="Compute on a Ray cluster: by default the one that this machine belongs to; local: this machine.",
            rich_help_panel=opt.RUN,
        ),
    ] = None,
    memory: Annotated[
        float | None,
        typer.Option(metavar="GIB", min=0, help="Memory that all processes may use, about.", rich_help_panel=opt.RUN),
    ] = None,
    device: opt.Device = None,
    revision: opt.Revision = None,
    trust_remote_code: opt.Trust = False,
    run: opt.Run,
) -> None:
    """Embed any number of texts into a folder of Parquet parts: other columns are kept, and a status for every row.

    Reads Parquet, Arrow, JSON lines, CSV, TSV and text, compressed or not. A run that is killed, at any moment, loses
    the part it was computing; the same command goes on from there, and gives the same bytes. Parts that another model,
    recipe, prompt or changed source would not have given are refused, with what differs. A row without a text
    has no vector, and its status says why. A recipe that learns something learns it once, before the first part.

    \b
    [dim]$[/] essent embed texts.txt -m all-MiniLM-L6-v2 -o vectors
    [dim]$[/] essent embed "data/*.parquet" --column body -m my-encoder -o vectors --dtype float16 --workers 4
    [dim]$[/] essent embed "/shared/*.parquet" -m /shared/my-encoder -o /shared/vectors --ray
    """
    from essent.bulk import embed as run_bulk

    chosen = dict(settings)
    if id:
        chosen["id"] = tuple(id)
    texts = None if fit is None else read_files(fit, chosen.get("column", "text"))
    run.calm()
    if not run.verbose:
        calm_libraries()
    found = run_bulk(
        sources,
        model,
        output,
        recipe=recipe,
        engine=engine,
        precision=precision,
        fit=texts,
        fit_sample=fit_sample,
        workers=workers,
        ray=ray,
        memory=None if memory is None else int(memory * 2**30),
        force=run.force,
        progress=not run.quiet,
        format=format,
        options=opt.model_options(device, revision, trust_remote_code),
        **chosen,
    )
    if not run.quiet:
        for line in summary(found):
            show_note(line)


def summary(found: BulkResult) -> Sequence[str]:
    """What was done, in lines."""
    new = found.rows - found.resumed
    speed = f", {new / max(found.seconds, 1e-9):,.0f} rows a second" if new else ""
    before = f", {found.resumed:,} of them by earlier runs" if found.resumed else ""
    parts = f"{found.parts:,} part{'s' if found.parts != 1 else ''}"
    lines = [f"{found.folder}: {found.rows:,} rows in {parts}{before}, {found.seconds:,.1f} s{speed}"]
    for status, count in found.statuses.items():
        if status != "ok":
            where = (found.troubled or {}).get(status)
            lines.append(
                f"{count:,} row{'s' if count > 1 else ''}: {status} ({STATUSES[status]}); the first is {where}"
            )
    if found.loss is not None:
        lines.append(loss_text(found.loss))
    return lines


def loss_text(loss: Any) -> str:
    """What a smaller number format costs, as it is said of graphs."""
    return (
        f"cosine with float32 {loss['mean_cosine']:.4f} on average, {loss['lowest_cosine']:.4f} at the lowest; "
        f"similarities of neighbouring rows ranked alike to {loss['spearman']:.4f} (Spearman), and off by "
        f"{loss['largest_error']:.4f} at most; {loss['texts']:,} texts"
    )
