"""The settings of the server, and its run: prepare and verify models, start the engine, open the port, stop gracefully.

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
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from essent._core.folders.contents import is_exported_folder
from essent._core.lazy import check_torch, optional_import
from essent._core.machine import cores, precision_of
from essent.errors import InputError, MissingDependencyError

if TYPE_CHECKING:
    from essent.serving.prepared import Prepared

logger = logging.getLogger(__name__)
STOPPING = (signal.SIGTERM, signal.SIGINT)
LIBRARIES = ("fastapi", "uvicorn", "prometheus_client", "orjson")
ENGINES = ("auto", "torch", "openvino", "onnx")
POSITIVE = (
    "max_inputs", "max_request_tokens", "max_queue_tokens", "max_body_mb", "max_connections", "timeout",
    "batch_timeout", "quiet_timeout",
)  # fmt: skip


@dataclass(frozen=True)
class Settings:
    """Address, limits and engine of a server.

    Attributes:
        host: Address to listen on; 0.0.0.0 means every address of the machine.
        port: Port to listen on; 0 selects a free port.
        engine: Engine of the models: auto, openvino, onnx or torch. auto uses OpenVINO if it is installed, and torch
            on a GPU or if a recipe has no graph. Static encoders and exported graphs run as they are.
        precision: Number format of the computation: auto (float32 on a CPU), float32 or bfloat16, which graphs use if
            the machine supports it.
        threads: Threads of the engine; by default the machine's cores, or a container's share of them.
        api_key_file: File with one API key per line; requests must then send one of them as a bearer token.
        truncate: Truncate texts that are too long instead of rejecting them; the response lists them.
        max_inputs: Maximum texts per request.
        max_request_tokens: Maximum tokens per request, over all its texts.
        max_queue_tokens: Maximum tokens in the queue; further requests are rejected with 429.
        max_body_mb: Maximum megabytes of a request's body.
        max_connections: Maximum simultaneous connections.
        timeout: Seconds after which an unfinished request is answered with an error.
        batch_timeout: Seconds that one batch may take before the engine is restarted.
        quiet_timeout: Seconds without a heartbeat after which the engine is restarted.
    """

    host: str = "127.0.0.1"
    port: int = 8080
    engine: str = "auto"
    precision: str = "auto"
    threads: int | None = None
    api_key_file: Path | None = None
    truncate: bool = False
    max_inputs: int = 2048
    max_request_tokens: int = 300_000
    max_queue_tokens: int = 1_000_000
    max_body_mb: float = 16.0
    max_connections: int = 1024
    timeout: float = 60.0
    batch_timeout: float = 30.0
    quiet_timeout: float = 4.0

    def __post_init__(self) -> None:
        if self.engine not in ENGINES:
            raise InputError(f"engine={self.engine!r}; allowed: {', '.join(ENGINES)}.")
        object.__setattr__(self, "precision", precision_of(self.precision))
        if not 0 <= self.port <= 65535:
            raise InputError(f"port={self.port}: must be between 0 and 65535.")
        for name in POSITIVE:
            if not getattr(self, name) > 0:
                raise InputError(f"{name}={getattr(self, name)}: must be above 0.")
        if self.threads is not None and self.threads < 1:
            raise InputError(f"threads={self.threads}: must be at least 1.")

    def read_keys(self) -> tuple[str, ...]:
        """Read the API keys, if there is a file.

        Raises:
            InputError: the file cannot be read or has no key.
        """
        if self.api_key_file is None:
            return ()
        try:
            lines = self.api_key_file.read_text("utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"Cannot read the API key file {str(self.api_key_file)!r}: {error}.") from error
        keys = tuple(line.strip() for line in lines if line.strip() and not line.startswith("#"))
        if not keys:
            raise InputError(f"The file {str(self.api_key_file)!r} has no API key. Write one key per line.")
        return keys

    def divide(self, cores: int) -> tuple[int, int]:
        """Return the number of threads of the engine and of tokenizing.

        Of more than 4 cores, an eighth is left for HTTP and tokenizing. Up to 4 cores are shared with the engine,
        because HTTP and tokenizing wait for it most of the time.
        """
        few = cores <= 4
        return self.threads or (cores if few else cores - max(1, cores // 8)), 1 if few else 2


def serve(
    models: Sequence[str],
    settings: Settings,
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
    for library in LIBRARIES:
        optional_import(library, "serve")
    from essent.serving.prepared import named, prepare_in_process

    settings.read_keys()  # raises before the models are loaded
    sources = [named(model) for model in models]
    if not sources or len(dict(sources)) < len(sources):
        names = ", ".join(name for name, _ in sources) or "none"
        raise InputError(f"Expected models with different names, NAME=MODEL; got {names}.")
    _check_installed([source for _, source in sources], settings.precision)
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


def _check_installed(models: Sequence[str], precision: str) -> None:
    """Raise MissingDependencyError if one of the models needs torch, which is not installed, before any is prepared."""
    from essent.static.encoder import open_encoder

    try:
        check_torch("A model")
    except MissingDependencyError:
        for model in models:
            if not is_exported_folder(model):
                open_encoder(model, precision)  # a static encoder, or the error


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
