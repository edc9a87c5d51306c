"""Compute vectors for many clients at once: validate, tokenize, queue and run their texts, and count metrics."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias, TypeVar

import numpy as np
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics

from essent._core.texts import distinct_texts
from essent.engine.compiled import largest_difference
from essent.engine.numpy_encoder import unit_length
from essent.errors import VerificationError
from essent.serving.engine import Engine
from essent.serving.prepared import Prepared
from essent.serving.run import Settings
from essent.serving.schedule import Schedule
from essent.serving.schemas import RequestError, overloaded

T = TypeVar("T")
NameOf: TypeAlias = Callable[[int], str]  # from a text's index to its name in the request, for errors
BUDGET = {"engine": 1024, "static": 2048}  # tokens of a batch, with an engine and without one
FEW = 4000  # characters to tokenize, or tokens to average; more are processed in a thread
PORTION = 100_000  # characters that a thread tokenizes at a time
MAX_WAITING = 64  # requests that wait for the threads
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


@dataclass
class Embedded:
    """The vectors of a request's texts.

    Attributes:
        vectors: (N,K) float32.
        tokens: number of tokens that the model read, including special tokens.
        truncated: indices of the truncated texts.
    """

    vectors: np.ndarray
    tokens: int
    truncated: list[int]


class Service:
    """The models of a server, the queue before the engine, and the engine.

    Args:
        models: the models, from `prepare`.
        settings: limits and timeouts.
        engine_threads, tokenizing_threads: see `Settings.divide`.
    """

    def __init__(
        self, models: list[Prepared], settings: Settings, engine_threads: int, tokenizing_threads: int
    ) -> None:
        self.settings = settings
        self.models = {model.name: model for model in models}
        self.created = int(time.time())
        self._waiting = 0
        self._pool = ThreadPoolExecutor(tokenizing_threads, thread_name_prefix="tokenizing")
        sources = {model.name: model.source for model in models if model.static is None}
        self.schedule = Schedule(BUDGET["engine" if sources else "static"], settings.max_queue_tokens)
        self.engine = Engine(sources, engine_threads, self.schedule, settings, self.check)
        disable_created_metrics()
        self.registry = registry = CollectorRegistry()
        self.requests = Counter(
            "essent_requests", "Requests by path and status.", ["path", "status"], registry=registry
        )
        self.seconds = Histogram("essent_request_seconds", "Seconds of a request.", buckets=SECONDS, registry=registry)
        self.tokens = Counter("essent_tokens", "Tokens that models have read.", ["model"], registry=registry)
        for name, text, value in (
            ("essent_queue_tokens", "Tokens that wait.", lambda: self.schedule.tokens),
            ("essent_engine_ready", "1 while requests are served.", lambda: self.healthy),
            ("essent_engine_restarts", "Restarts of the engine.", lambda: self.engine.restarts),
        ):
            Gauge(name, text, registry=registry).set_function(value)

    async def start(self) -> None:
        """Start the engine; every model has reproduced its golden vectors when this returns.

        Raises:
            EssentError: the engine did not start, or a model returns other vectors.
        """
        await (self.engine.start() if self.engine.sources else self.check())

    async def stop(self) -> None:
        """End the engine and the threads."""
        await self.engine.stop()
        self._pool.shutdown(wait=False, cancel_futures=True)

    @property
    def healthy(self) -> bool:
        """Whether requests are served."""
        return self.engine.state == "ready"

    async def check(self) -> None:
        """Compute golden texts together, and each alone, since a batch of one text may give another vector.

        Raises:
            VerificationError: a model does not reproduce its golden vectors.
        """
        for model in self.models.values():
            texts, reading, limit = model.golden_texts, model.reading, model.reading.max_seq_length
            sequences = model.ids(texts)
            if limit is not None:
                sequences = reading.truncate(texts, sequences, limit, reading.cuts_start)
            batches = [sequences, *([ids] for ids in sequences)]
            together, *alone = [await self.compute(model, batch, checking=True) for batch in batches]
            difference = max(largest_difference(vectors, model.golden) for vectors in (together, np.concatenate(alone)))
            allowed = model.description.golden_vectors["allowed_difference"]
            if not difference <= allowed:
                message = f"{model.name} does not reproduce its golden vectors: the difference is {difference:.1e}"
                raise VerificationError(f"{message}, above {allowed:.0e}.")

    # -- requests ---------------------------------------------------------------------------------------------------

    def find(self, name: str | None, prompt_name: str | None = None) -> tuple[Prepared, str]:
        """Return a model, by default the first one, and one of its prompts, by default its default prompt.

        Raises:
            RequestError: no such model or prompt.
        """
        model = next(iter(self.models.values())) if name is None else self.models.get(name)
        if model is None:
            message = f"Model not found; this server has {', '.join(map(repr, self.models))}."
            raise RequestError(404, message, "model_not_found", "model")
        prompts = model.description.prompts
        if prompt_name is not None and prompt_name not in prompts:
            names = ", ".join(map(repr, prompts)) or "none"
            message = f"Prompt not found; {model.name} has {names}."
            raise RequestError(400, message, param="prompt_name")
        return model, prompts.get(prompt_name or model.description.default_prompt or "", "")

    def check_texts(self, texts: list[str], name_of: NameOf) -> None:
        """Raise an error for an empty list, an empty text, or too many texts.

        Raises:
            RequestError: names the field.
        """
        field = name_of(len(texts) - 1).partition("[")[0]
        if len(texts) > (limit := self.settings.max_inputs):
            message = f"{field} has {len(texts):,} texts; a request may have at most {limit:,}."
            raise RequestError(400, message, "too_many_inputs", field)
        if not texts or "" in texts:
            name = name_of(texts.index("")) if texts else field
            raise RequestError(400, f"{name} has no text. Leave empty texts out.", "empty_input", field)

    async def embed(
        self, model: Prepared, texts: list[str], prompt: str = "", *, name_of: NameOf = "input[{}]".format,
        truncate: bool | None = None, dimensions: int | None = None, unit: bool = False,
    ) -> Embedded:  # fmt: skip
        """Return the vectors of a request's texts, equal to those of the encoder's `encode`; see also `check_texts`.

        Args:
            prompt: text before every text.
            name_of: the name of a text in the request, for errors.
            truncate: whether to truncate long texts; None is the server's setting.
            dimensions: number of dimensions to return; None returns all.
            unit: whether to scale the vectors to length 1.

        Raises:
            RequestError: texts too long, too many dimensions, overloaded, timed out, or no engine.
        """
        if dimensions is not None and dimensions > (available := model.description.dimensions):
            message = f"dimensions={dimensions}: the vectors of {model.name} have {available} dimensions."
            raise RequestError(400, message, param="dimensions")
        truncate = self.settings.truncate if truncate is None else truncate
        distinct, inverse = distinct_texts([prompt + text for text in texts])
        sequences = [ids for portion in await self.in_portions(model.ids, distinct) for ids in portion]
        counts = np.fromiter(map(len, sequences), np.int64, len(sequences))
        tokens, reading, limit = counts, model.reading, model.reading.max_seq_length
        field = name_of(len(texts) - 1).partition("[")[0]
        if limit is not None and int(counts.max()) > limit:
            if not truncate:
                too_long = np.flatnonzero(counts > limit)
                name = name_of(int(np.argmax(inverse == too_long[0])))
                message = (
                    f"{name} has {counts[too_long[0]]:,} tokens, but {model.name} reads at most {limit:,}: "
                    "split it, or let the server's owner allow truncation (--truncate)."
                )
                raise RequestError(400, message, "context_length_exceeded", name.partition("[")[0])
            tokens = np.minimum(counts, limit)
            sequences = reading.truncate(distinct, sequences, limit, reading.cuts_start)
        if (total := int(tokens.sum())) > (allowed := self.settings.max_request_tokens):
            message = f"The request has {total:,} tokens; at most {allowed:,} are allowed. Send it in parts."
            raise RequestError(400, message, "max_tokens_per_request", field)
        vectors = await self.compute(model, sequences)
        if not np.isfinite(vectors).all():
            raise RequestError(500, "The model returned a vector that is not finite.", "not_finite")
        truncated, tokens = np.flatnonzero((tokens < counts)[inverse]).tolist(), tokens[inverse]
        self.tokens.labels(model.name).inc(total)
        vectors = vectors[inverse, :dimensions]
        return Embedded(unit_length(vectors) if unit else vectors, int(tokens.sum()), truncated)

    async def compute(self, model: Prepared, sequences: list[np.ndarray], checking: bool = False) -> np.ndarray:
        """Return the vectors (N,K) of framed ids; arguments: see `Engine.run`."""
        if model.static is None:
            return await self.engine.run(model.name, sequences, checking)
        ragged = np.concatenate(sequences), np.fromiter(map(len, sequences), np.int64, len(sequences))
        if len(ragged[0]) < FEW:
            vectors = model.static.means(ragged)
        else:
            vectors = await asyncio.get_running_loop().run_in_executor(self._pool, model.static.means, ragged)
        return vectors[:, : model.description.dimensions]

    async def in_portions(self, tokenize: Callable[[list[str]], T], texts: list[str]) -> list[T]:
        """Tokenize few texts at once, and many in a thread, in portions, so that other requests are not delayed.

        Raises:
            RequestError: too many requests wait for the threads.
        """
        if sum(map(len, texts)) <= FEW:
            return [tokenize(texts)]
        if self._waiting >= MAX_WAITING:
            raise overloaded(1.0, "Too many requests are being tokenized.")
        buckets = np.cumsum([len(text) for text in texts]) // PORTION
        bounds = [0, *(np.flatnonzero(np.diff(buckets)) + 1).tolist(), len(texts)]
        self._waiting += 1
        try:
            loop = asyncio.get_running_loop()
            return [
                await loop.run_in_executor(self._pool, tokenize, texts[first:last]) for first, last in pairwise(bounds)
            ]
        finally:
            self._waiting -= 1
