"""`essent serve`: an embeddings server for OpenAI's, TEI's and essent's own clients."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from essent.cli import several
from essent.cli.console import show_logs, show_note
from essent.cli.settings import described, with_options
from essent.serving import Settings

ENVIRONMENT = "ESSENT_"
EXPLORER = "Page and collections"
PANELS = {
    "": "Limits",
    **dict.fromkeys(("host", "port", "api_key_file", "cors"), "Address and access"),
    **dict.fromkeys(("engine", "precision", "threads", "truncate"), "Models"),
    **dict.fromkeys(("column", "max_texts", "no_page"), EXPLORER),
}
METAVARS = {"column": "NAME", "cors": "ORIGIN", "api_key_file": "FILE", "engine": "auto|torch|openvino|onnx"}
METAVARS |= {"precision": "auto|float32|bfloat16"}


@with_options(Settings, PANELS, metavars=METAVARS, by_hand=("texts",), environment=ENVIRONMENT)
def serve(
    models: Annotated[
        list[str],
        typer.Argument(
            metavar="MODEL...",
            envvar=ENVIRONMENT + "MODEL",
            help="A folder or a model on the hub, or NAME=MODEL; requests choose among several by name.",
        ),
    ],
    texts: Annotated[
        list[Path] | None,
        typer.Option(
            "--texts",
            "-t",
            metavar="FILES|DIRS",
            envvar=ENVIRONMENT + "TEXTS",
            callback=several.files,
            help=described(Settings)["texts"],
            rich_help_panel=EXPLORER,
        ),
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Also show what the libraries report.")] = False,
    *,
    settings: Settings,
) -> None:
    """Serve embeddings over HTTP, to clients of OpenAI, of text-embeddings-inference, and to any other.

    The server starts when every model has given its golden vectors (of a few fixed texts, saved with the encoder or
    computed when it is loaded), and its engine gives them again whenever it is started anew. Texts that are too long
    are refused, or cut where --truncate allows it, which every answer then says. Queries overtake large requests.
    Every option has an environment variable: --max-inputs is ESSENT_MAX_INPUTS.

    \b
    [dim]$[/] essent serve all-MiniLM-L6-v2
    [dim]$[/] essent serve ./my-encoder --texts faq.txt
    [dim]$[/] essent serve ./my-encoder small=./my-static --port 9000 --api-key-file keys.txt
    """
    import logging

    from essent.demo import pairs_path
    from essent.serving import serve as run

    if verbose:
        show_logs()
    else:
        logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s")
        logging.getLogger("essent.serving").setLevel(logging.INFO)
    settings = replace(settings, texts=texts)
    run(models, settings, pairs=pairs_path(), progress=True, note=show_note)
