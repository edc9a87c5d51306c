"""`essent serve`: an embeddings server for clients of OpenAI, TEI and essent."""

from __future__ import annotations

import logging
from typing import Annotated

from cyclopts import Parameter

from essent.cli.console import show_note
from essent.serving.run import Settings


def serve(
    models: Annotated[list[str], Parameter(name="MODELS")],
    /,
    *,
    settings: Annotated[Settings, Parameter(name="*")] = Settings(),
) -> None:
    """Serve embeddings over HTTP.

    Clients of OpenAI's embeddings, and of /embed of text-embeddings-inference (TEI), work unchanged. Texts that are too
    long are rejected or, with --truncate, truncated and reported in the response. Short requests do not wait for large
    ones.

    Before the server starts, every model must reproduce its golden vectors: the vectors of a few fixed texts, stored
    with the encoder or computed when it is loaded. They are checked again whenever an engine restarts.

    ```console
    $ essent serve all-MiniLM-L6-v2
    $ essent serve ./my-encoder --truncate
    $ essent serve ./my-encoder small=./my-static --port 9000 --api-key-file keys.txt
    ```

    Args:
        models: Models on the hub, or folders. NAME=MODEL gives a model the name that requests use.
    """
    from essent.serving.run import serve as run_server

    if not logging.root.handlers:  # --debug has configured logging
        logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s")
        logging.getLogger("essent.serving").setLevel(logging.INFO)
    run_server(models, settings, note=show_note)
