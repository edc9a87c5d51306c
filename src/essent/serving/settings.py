"""What `essent serve` may be told: the options of the command, and their environment variables."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from essent._core.arithmetic import PASSES, precision_of
from essent.engine.choice import ENGINES
from essent.errors import InputError

POSITIVE = (
    "max_inputs", "max_request_tokens", "max_queue_tokens", "max_body_mb", "max_connections", "timeout",
    "batch_timeout", "quiet_timeout",
)  # fmt: skip


@dataclass(frozen=True)
class Settings:
    """How a server listens, what it refuses, and how it runs its models.

    Attributes:
        host: The address to listen on; 0.0.0.0 is every address of the machine.
        port: The port to listen on; 0 takes a free one.
        engine: What runs the models: auto, openvino, onnx or torch. auto takes OpenVINO where it is installed, and
            torch on a GPU or where a recipe has no graph. Static encoders and exported graphs run as they are.
        precision: What is computed in: auto, which is float32 on a CPU, float32 or bfloat16, which graphs compute in
            where the machine has such arithmetic.
        threads: Threads of the engine; by default the machine's cores, or a container's share of them.
        api_key_file: A file with one key a line; requests must then send one of them as a bearer token.
        cors: Web pages that may call the server from a browser, such as https://example.org; none by default.
        truncate: Whether texts that are too long are cut, which every answer then says, and not refused.
        max_inputs: The most texts in a request.
        max_request_tokens: The most tokens in a request, over all its texts.
        max_queue_tokens: The most tokens that wait; requests beyond are refused with 429.
        max_body_mb: The most megabytes in the body of a request.
        max_connections: The most connections at a time.
        timeout: Seconds after which a request is answered, whatever has become of it.
        batch_timeout: Seconds that one batch may take before the engine is restarted.
        quiet_timeout: Seconds without a sign of life after which the engine is restarted.
        log_requests: Whether every request is logged, without its texts.
        no_page: Whether browsers get no page at `/`.
    """

    host: str = "127.0.0.1"
    port: int = 8080
    engine: str = "auto"
    precision: str = "auto"
    threads: int | None = None
    api_key_file: Path | None = None
    cors: list[str] | None = None
    truncate: bool = False
    max_inputs: int = 2048
    max_request_tokens: int = 300_000
    max_queue_tokens: int = 1_000_000
    max_body_mb: float = 16.0
    max_connections: int = 1024
    timeout: float = 60.0
    batch_timeout: float = 30.0
    quiet_timeout: float = 4.0
    log_requests: bool = False
    no_page: bool = False

    def __post_init__(self) -> None:
        if self.engine not in ENGINES:
            raise InputError(f"engine={self.engine!r}: choose one of {', '.join(ENGINES)}.")
        object.__setattr__(self, "precision", precision_of(self.precision, PASSES))
        if not 0 <= self.port <= 65535:
            raise InputError(f"port={self.port}: must be between 0 and 65535.")
        for name in POSITIVE:
            if not getattr(self, name) > 0:
                raise InputError(f"{name}={getattr(self, name)}: must be above 0.")
        if self.threads is not None and self.threads < 1:
            raise InputError(f"threads={self.threads}: must be at least 1.")
        for origin in self.cors or ():
            if origin != "*" and not origin.startswith(("http://", "https://")):
                raise InputError(f"cors={origin!r}: an origin begins with http:// or https://, or is * for every page.")

    def keys(self) -> tuple[str, ...]:
        """The keys of the file, if any.

        Raises:
            InputError: the file cannot be read or has no key.
        """
        if self.api_key_file is None:
            return ()
        try:
            lines = self.api_key_file.read_text("utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"The file of API keys {str(self.api_key_file)!r} cannot be read: {error}.") from error
        keys = tuple(line.strip() for line in lines if line.strip() and not line.startswith("#"))
        if not keys:
            raise InputError(f"The file {str(self.api_key_file)!r} has no API key: write one key a line.")
        return keys

    def divide(self, cores: int) -> tuple[int, int]:
        """Threads of the engine and of tokenising.

        The engine gets all cores but what HTTP and tokenising need on machines that have some to spare. On few cores
        the three take turns: HTTP and tokenising wait for the engine most of the time.
        """
        few = cores <= 4
        return self.threads or (cores if few else cores - max(1, cores // 8)), 1 if few else 2
