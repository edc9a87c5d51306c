"""The server from its start to its end: models prepared and verified, engine warm, HTTP open, a graceful stop.

What HTTP needs is imported when its libraries are known to be there.
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
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from essent._core.lazy import check_torch, optional_import
from essent._core.machine import cores
from essent.errors import DamagedError, EngineError, InputError
from essent.serving.prepared import Prepared, named, prepare_in_process, served_static
from essent.serving.settings import Settings

if TYPE_CHECKING:
    from essent.serving.connections import Server
    from essent.serving.service import Service

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
    """Serve models until the process is told to stop; returns when every request is answered.

    Args:
        models: what essent loads, each `MODEL` or `NAME=MODEL`.
        pairs: scored pairs (JSON Lines with sentence1, sentence2 and score from 0 to 5), from which `/compare` knows
            what is typical.
        note: is told what happens.

    Raises:
        InputError: no model, two of one name, or an option's value.
        EssentError: a model cannot be loaded, or does not give its golden vectors.
        MissingDependencyError: the extra `serve` is not installed, or torch, which all but static encoders need.
    """
    settings = settings or Settings()
    for library in LIBRARIES:
        optional_import(library, "serve")
    keys = settings.keys()
    sources = [named(model) for model in models]
    if not sources or len(dict(sources)) < len(sources):
        names = ", ".join(name for name, _ in sources) or "none"
        raise InputError(f"Expected models with different names, NAME=MODEL; got {names}.")
    for _, source in sources:
        if _runs_in_engine(source, settings):
            check_torch(f"Serving {source!r}")
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # its threads would compete with the engine's
    for kind in STOPPING:
        signal.signal(kind, _leave)
    folder = Path(tempfile.mkdtemp(prefix="essent-serve-"))
    try:
        prepared = []
        for index, model in enumerate(models):
            note(f"Loading {model}: it is verified, and converted where its engine runs graphs. This can take minutes.")
            prepared.append(prepare(model, settings.engine, folder / str(index), settings.precision))
        asyncio.run(_serve(prepared, settings, keys, pairs, note))
    except KeyboardInterrupt:
        note("Stopped before it had started.")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _runs_in_engine(source: str, settings: Settings) -> bool:
    """Whether a model is anything but a static encoder; of a damaged folder `prepare` says more."""
    try:
        return (settings.engine, settings.precision) != ("auto", "auto") or served_static(source) is None
    except DamagedError:
        return False


def _leave(number: int, frame: Any) -> None:
    """What a signal to stop does while models are prepared; uvicorn has its own way while requests are served."""
    raise KeyboardInterrupt


@contextmanager
def _signals_wait() -> Iterator[None]:
    """A signal to stop waits for the end of this block: a process that is half started cannot be ended."""
    came: list[int] = []
    before = {kind: signal.signal(kind, lambda number, _: came.append(number)) for kind in STOPPING}
    try:
        yield
    finally:
        for kind, handler in before.items():
            signal.signal(kind, handler)
    if came:
        raise KeyboardInterrupt


def prepare(model: str, engine: str, folder: Path, precision: str = "auto") -> Prepared:
    """`essent.serving.prepared.prepare` in a process of its own: what it imports and loads goes with it.

    Raises:
        EssentError: what it raised, or that the process died.
    """
    folder.mkdir(exist_ok=True)
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    arguments = (theirs, model, engine, str(folder), precision)
    process = context.Process(target=prepare_in_process, args=arguments, daemon=True)
    try:
        with _signals_wait():
            process.start()
        theirs.close()
        prepared, error = ours.recv()
    except EOFError:
        process.join()
        killed = process.exitcode == -9  # by SIGKILL, a name that Windows lacks
        why = "the system killed it, probably for lack of memory" if killed else f"exit code {process.exitcode}"
        raise EngineError(f"The process that prepares {model!r} ended: {why}.") from None
    except KeyboardInterrupt:  # it would go on for minutes, and then have nobody to give its result to
        if process.pid is not None:
            process.kill()
        raise
    finally:
        ours.close()
        if process.pid is not None:
            process.join()
    if error is not None:
        raise error
    return prepared  # type: ignore[no-any-return]


async def _serve(
    prepared: list[Prepared],
    settings: Settings,
    keys: tuple[str, ...],
    pairs: Path | None,
    note: Callable[[str], None],
) -> None:
    from essent.serving.app import create_app
    from essent.serving.connections import Server
    from essent.serving.routes import explorer_page
    from essent.serving.service import Service

    service = Service(prepared, settings, *settings.divide(cores()), pairs)
    app = create_app(service, keys, None if settings.no_page else explorer_page())
    try:
        await service.start()
        await _run(Server(app, settings), service, note)
    finally:
        await service.stop()


async def _run(server: Server, service: Service, note: Callable[[str], None]) -> None:
    """Serve until a signal says stop."""
    from essent.serving.connections import sweep

    for kind in STOPPING:
        signal.signal(kind, signal.SIG_IGN)  # uvicorn obeys them while it serves, and raises them again afterwards
    sweeping = asyncio.create_task(sweep(server.server_state.connections))
    serving = asyncio.create_task(server.serve())
    while not server.started and not serving.done():
        await asyncio.sleep(0.02)
    if server.started:
        models = "; ".join(f"{model.name} ({model.prepared.engine})" for model in service.models.values())
        for host, port, *_ in (
            listener.getsockname() for listening in server.servers for listener in listening.sockets
        ):
            note(f"Ready: http://{host}:{port} serves {models}.")
    try:
        await serving
    except SystemExit:
        raise InputError(
            f"The server cannot listen on {service.settings.host}:{service.settings.port}. Choose a free port."
        ) from None
    finally:
        sweeping.cancel()
        with suppress(asyncio.CancelledError):
            await sweeping
    note(f"Stopped. Requests answered after the signal: {server.answered:,}; left unfinished: {server.unfinished:,}.")
