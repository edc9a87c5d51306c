"""`essent serve`: an embeddings server for OpenAI's, TEI's and essent's own clients."""

from __future__ import annotations

import logging
from typing import Annotated

from cyclopts import Parameter

from essent.cli.console import show_note
from essent.serving.settings import Settings

ENVIRONMENT = "ESSENT_"  # prefix: ESSENT_MAX_INPUTS stands for --max-inputs


def serve(
    models: Annotated[list[str], Parameter(name="MODELS", env_var=ENVIRONMENT + "MODEL")],
    /,
    *,
    settings: Annotated[Settings, Parameter(name="*")] = Settings(),
) -> None:
    """Serve embeddings over HTTP.

    Clients of OpenAI and of text-embeddings-inference work unchanged. The server starts when every model has given its
    golden vectors (of a few fixed texts, saved with the encoder or computed when it is loaded), and its engine gives
    them again after every restart. Texts that are too long are refused, or cut where --truncate allows it, which every
    answer then says. Queries overtake large requests. Every option has an environment variable: --max-inputs is
    ESSENT_MAX_INPUTS.

    ```console
    $ essent serve all-MiniLM-L6-v2
    $ essent serve ./my-encoder --truncate
    $ essent serve ./my-encoder small=./my-static --port 9000 --api-key-file keys.txt
    ```

    Args:
        models: Folders or models on the hub, each MODEL or NAME=MODEL; requests choose among several by name.
    """
    from essent.serving.run import serve as run_server
    from essent.tasks.sample import sample_pairs_path

    if not logging.root.handlers:  # --debug has set up the logs of everything
        logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s")
        logging.getLogger("essent.serving").setLevel(logging.INFO)
    run_server(models, settings, pairs=sample_pairs_path(), note=show_note)
