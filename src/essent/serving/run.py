"""Run the server: prepare and verify models, start the engine, open the port, stop gracefully.

A model is prepared in a process of its own, which alone imports torch and transformers, unless the model is a saved
graph. The HTTP process needs neither, and an engine that runs a graph restarts in a second or two. The libraries of
HTTP are imported after a check that they are installed.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from essent._core.folders.contents import is_exported_folder
from essent._core.lazy import check_torch, optional_import
from essent._core.machine import cores
from essent.engine.choice import EngineChoice
from essent.errors import InputError, MissingDependencyError
from essent.serving.prepared import STOPPING, Prepared, named, prepare_in_process
from essent.serving.settings import Settings
from essent.static.encoder import open_encoder

logger = logging.getLogger(__name__)
LIBRARIES = ("fastapi", "uvicorn", "prometheus_client", "orjson")


def serve(
    models: Sequence[str],
    settings: Settings | None = None,
    *,
    note: Callable[[str], None] = logger.info,
) -> None:
    """Serve models until a signal stops the process; return when every request is answered.

    Args:
        models: what essent loads, each `MODEL` or `NAME=MODEL`.
        note: called with messages about the progress.

    Raises:
        InputError: no model, two models with the same name, or an invalid setting.
        EssentError: a model cannot be loaded, or does not reproduce its golden vectors.
        MissingDependencyError: the extra `serve` is not installed, or torch, which all but static encoders and saved
            graphs need.
    """
    settings = settings or Settings()
    for library in LIBRARIES:
        optional_import(library, "serve")
    settings.read_keys()  # raises before the models are loaded
    sources = [named(model) for model in models]
    if not sources or len(dict(sources)) < len(sources):
        names = ", ".join(name for name, _ in sources) or "none"
        raise InputError(f"Expected models with different names, NAME=MODEL; got {names}.")
    _check_installed([source for _, source in sources], EngineChoice(settings.engine, settings.precision))
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # its threads would compete with the engine's
    for kind in STOPPING:
        signal.signal(kind, signal.default_int_handler)  # raises KeyboardInterrupt until uvicorn handles the signals
    folder = Path(tempfile.mkdtemp(prefix="essent-serve-"))
    try:
        prepared = []
        for index, model in enumerate(models):
            note(f"Loading {model}: it is verified, and compiled if its engine runs graphs. This can take minutes.")
            prepared.append(prepare_in_process(model, settings.engine, folder / str(index), settings.precision))
        asyncio.run(_serve(prepared, settings, note))
    except KeyboardInterrupt:
        note("Stopped before it had started.")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _check_installed(models: Sequence[str], choice: EngineChoice) -> None:
    """Raise MissingDependencyError if one of the models needs torch, which is not installed, before any is prepared."""
    try:
        check_torch("A model")
    except MissingDependencyError:
        for model in models:
            if not is_exported_folder(model):
                open_encoder(model, choice)  # a static encoder, or the error


async def _serve(prepared: list[Prepared], settings: Settings, note: Callable[[str], None]) -> None:
    from essent.serving.app import Server, create_app
    from essent.serving.service import Service

    service = Service(prepared, settings, *settings.divide(cores()))
    names = "; ".join(f"{model.name} ({model.description.engine})" for model in prepared)
    server = Server(create_app(service), settings, lambda address: note(f"Ready: {address} serves {names}."))
    try:
        await service.start()
        for kind in STOPPING:
            signal.signal(kind, signal.SIG_IGN)  # uvicorn handles them while it serves, and raises them afterwards
        await server.serve()
    except SystemExit:
        address = f"{settings.host}:{settings.port}"
        raise InputError(f"The server cannot listen on {address}. Choose a free port.") from None
    finally:
        await service.stop()
    note(f"Stopped. Requests answered after the signal: {server.answered:,}; left unfinished: {server.unfinished:,}.")
