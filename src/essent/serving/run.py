"""Run the server: prepare and verify models, start the engine, open the port, stop gracefully.

The libraries of HTTP are imported after a check that they are installed.
"""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from pathlib import Path

from essent._core.folders.contents import is_exported_folder
from essent._core.lazy import check_torch, optional_import
from essent._core.machine import cores
from essent.engine.choice import EngineChoice
from essent.errors import EngineError, InputError, MissingDependencyError, ModelError
from essent.serving.prepared import Prepared, named
from essent.serving.prepared import prepare as prepare_here
from essent.serving.settings import Settings
from essent.serving.worker import ignore_stop_signals
from essent.static.encoder import open_encoder

logger = logging.getLogger(__name__)
STOPPING = (signal.SIGTERM, signal.SIGINT)
LIBRARIES = ("fastapi", "uvicorn", "prometheus_client", "orjson")


def serve(
    models: Sequence[str],
    settings: Settings | None = None,
    *,
    pairs: Path | None = None,
    note: Callable[[str], None] = logger.info,
) -> None:
    """Serve models until a signal stops the process; return when every request is answered.

    Args:
        models: what essent loads, each `MODEL` or `NAME=MODEL`.
        pairs: scored pairs (JSON Lines with sentence1, sentence2 and score from 0 to 5), from which `/compare`
            computes typical cosines.
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
            prepared.append(prepare(model, settings.engine, folder / str(index), settings.precision))
        asyncio.run(_serve(prepared, settings, pairs, note))
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


def prepare(model: str, engine: str, folder: Path, precision: str = "auto") -> Prepared:
    """Run `essent.serving.prepared.prepare` in a process, whose end frees the memory of its imports and model.

    Raises:
        EssentError: raised by `prepare`, or the process died.
    """
    folder.mkdir(exist_ok=True)
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(1, context, _initialize_process)
    try:
        with _delayed_signals():
            future = pool.submit(prepare_here, model, engine, folder, precision)
        return future.result()
    except BrokenProcessPool:
        reason = "The error is printed above; if there is none, most often it lacked memory."
        raise EngineError(f"The process that prepares {model!r} ended unexpectedly. {reason}") from None
    except OSError as error:
        raise ModelError(f"{model!r} cannot be loaded: {error}") from error
    except KeyboardInterrupt:
        for process in multiprocessing.active_children():
            process.kill()
        raise
    finally:
        pool.shutdown()


def _initialize_process() -> None:
    ignore_stop_signals()
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s")
    logging.getLogger("transformers").setLevel(logging.ERROR)
    os.environ.setdefault("TQDM_DISABLE", "1")


@contextmanager
def _delayed_signals() -> Iterator[None]:
    """Delay stop signals until the end of the block: a process that is half started cannot be killed."""
    received: list[int] = []
    handlers = {kind: signal.signal(kind, lambda number, _: received.append(number)) for kind in STOPPING}
    try:
        yield
    finally:
        for kind, handler in handlers.items():
            signal.signal(kind, handler)
    if received:
        raise KeyboardInterrupt


async def _serve(prepared: list[Prepared], settings: Settings, pairs: Path | None, note: Callable[[str], None]) -> None:
    from essent.serving.app import Server, create_app, sweep
    from essent.serving.service import Service

    service = Service(prepared, settings, *settings.divide(cores()), pairs)
    names = "; ".join(f"{model.name} ({model.description.engine})" for model in prepared)
    server = Server(create_app(service), settings, lambda address: note(f"Ready: {address} serves {names}."))
    sweeping = asyncio.create_task(sweep(server.server_state.connections))
    try:
        await service.start()
        for kind in STOPPING:
            signal.signal(kind, signal.SIG_IGN)  # uvicorn handles them while it serves, and raises them afterwards
        await server.serve()
    except SystemExit:
        address = f"{settings.host}:{settings.port}"
        raise InputError(f"The server cannot listen on {address}. Choose a free port.") from None
    finally:
        sweeping.cancel()
        await service.stop()
    note(f"Stopped. Requests answered after the signal: {server.answered:,}; left unfinished: {server.unfinished:,}.")
