"""Texts to vectors for many clients at once: tokenised, let in or refused, queued, run, put together again."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar

import numpy as np

from essent._core.texts import distinct_texts
from essent.errors import VerificationError
from essent.serving.dispatch import Dispatcher
from essent.serving.engine import Engine
from essent.serving.errors import RequestError, overloaded, unhealthy
from essent.serving.machine import Threads
from essent.serving.model import Model
from essent.serving.prepared import Prepared
from essent.serving.schedule import Schedule
from essent.serving.settings import Settings
from essent.serving.static import StaticModel
from essent.serving.worker import Source

logger = logging.getLogger(__name__)
T = TypeVar("T")
Where: TypeAlias = Callable[[int], str]  # what a request calls its text of this place, for errors
BUDGET = {"openvino": 1024, "onnx": 1024, "torch": 1024}  # tokens of a batch
FEW_LETTERS = 4000  # are tokenised at once; more in a thread, in portions of
PORTION_LETTERS = 100_000
MOST_WAITING = 64  # requests whose texts are in portions


@dataclass
class Embedded:
    """Vectors of a request's texts, and what was done for them.

    Attributes:
        vectors: (N,K) float32, as `encode` gives them.
        tokens: how many of each text the model read, special tokens included.
        truncated: places of the texts that were cut.
        tokenising, waiting, running: seconds.
    """

    vectors: np.ndarray
    tokens: np.ndarray
    truncated: list[int] = field(default_factory=list)
    tokenising: float = 0.0
    waiting: float = 0.0
    running: float = 0.0


class Service:
    """All models of a server, the queue before the engine, and the engine.

    Args:
        models: what `prepare` found.
        settings: limits and timeouts.
        threads: of engine and tokenising.
    """

    def __init__(self, models: list[Prepared], settings: Settings, threads: Threads) -> None:
        self.settings = settings
        running = [model for model in models if model.engine != "static"]
        started = int(time.time())
        self.models = {
            model.name: Model(model, running.index(model) if model in running else -1, started) for model in models
        }
        self.first = next(iter(self.models.values()))
        self.threads = threads
        budget = min((BUDGET[model.engine] for model in running), default=2048)
        self.schedule = Schedule(budget, settings.max_queue_tokens)
        self.dispatcher = Dispatcher(self.schedule, settings.timeout)
        self._waiting = 0
        self._pool = ThreadPoolExecutor(threads.tokenising, thread_name_prefix="tokenising")
        self.stopping = False
        self.engine = self.dispatcher.engine = self._engine(running) if running else None

    def _engine(self, running: list[Prepared]) -> Engine:
        sources = [
            Source(
                model.engine,
                model.place,
                model.precision,
                model.reading.pad_id,
                model.dimensions,
                model.reading.max_seq_length,
            )
            for model in running
        ]
        return Engine(
            sources, self.threads.engine, self.check, self.dispatcher.pump, self.settings.batch_timeout,
            self.settings.quiet_timeout,
        )  # fmt: skip

    async def start(self) -> None:
        """Start the engine; every model has given its golden vectors when this returns.

        Raises:
            EssentError: one did not; says which.
        """
        if self.engine is not None:
            await self.engine.start()
        for model in self.models.values():
            if model.static is not None:
                await self._check_model(model)

    async def stop(self) -> None:
        """End the engine and the threads."""
        self.stopping = True
        if self.engine is not None:
            await self.engine.stop()
        self._pool.shutdown(wait=False, cancel_futures=True)

    @property
    def healthy(self) -> bool:
        """Whether requests are served now."""
        return not self.stopping and (self.engine is None or self.engine.state == "ready")

    # -- golden vectors ---------------------------------------------------------------------------------------------

    async def check(self) -> None:
        """Run the golden texts of every model in the engine, by the way that requests take.

        Raises:
            VerificationError: a model does not give its golden vectors.
        """
        for model in self.models.values():
            if model.static is None:
                await self._check_model(model)

    async def _check_model(self, model: Model) -> None:
        """Together, and each text alone; they are longer and shorter than each other."""
        texts, golden = model.about.golden_texts, model.about.golden
        scale = max(float(np.linalg.norm(golden, axis=1).max(initial=0.0)), 1.0)
        for chosen in [slice(None), *(slice(place, place + 1) for place in range(len(texts)))]:
            found = await self._embed(model, texts[chosen], checking=True)
            difference = float(np.abs(found.vectors - golden[chosen]).max(initial=0.0)) / scale
            if not difference <= model.about.tolerance:
                raise VerificationError(
                    f"{model.name} does not give its golden vectors in the engine {model.about.engine}: they differ by "
                    f"{difference:.1e}, allowed is {model.about.tolerance:.0e}."
                )

    # -- requests ---------------------------------------------------------------------------------------------------

    async def embed(
        self,
        model: Model,
        texts: list[str],
        *,
        prompt_name: str | None = None,
        truncate: bool | None = None,
        left: bool | None = None,
        where: Where = "input[{}]".format,
    ) -> Embedded:
        """Vectors of the texts, as the encoder's own `encode` gives them.

        Args:
            prompt_name: a prompt of the model; by default its own default.
            truncate: whether texts that are too long are cut; by default what the server's owner chose.
            left: whether their beginning is cut; by default as the tokenizer does.
            where: what the request calls the text of a place, which an error names.

        Raises:
            RequestError: too long, too many, overloaded, or the engine is not there.
        """
        prompt = model.prompt(prompt_name)
        cut = self.settings.truncate if truncate is None else truncate
        return await self._embed(model, [prompt + text for text in texts] if prompt else texts, cut, left, where=where)

    async def _embed(
        self,
        model: Model,
        texts: list[str],
        truncate: bool = False,
        left: bool | None = None,
        checking: bool = False,
        where: Where = "input[{}]".format,
    ) -> Embedded:
        if not checking:
            self._require_health(model)
        start = time.monotonic()
        distinct, inverse = distinct_texts(texts)

        def said(place: int) -> str:
            return where(int(np.argmax(inverse == place)))  # the first text of the request that is this one

        if model.static is not None:
            found = await self._run_static(model, model.static, distinct, truncate, left, said)
        else:
            read = await self.in_portions(model.reading.ids, distinct)
            ids = [one for part in read for one in part]
            tokens, cut = self._measured(model, model.reading.counts(ids), truncate, said)
            sequences = model.reading.framed(ids, left)
            tokenised = time.monotonic()
            vectors, waited = await self.dispatcher.run(model.number, sequences, checking)
            found = Embedded(vectors, tokens, cut, tokenised - start, waited, time.monotonic() - tokenised - waited)
        if not np.isfinite(found.vectors).all():
            raise RequestError(500, "The model gave a vector that is not finite.", code="not_finite")
        if len(distinct) != len(texts):
            found.vectors, found.tokens = found.vectors[inverse], found.tokens[inverse]
            shortened = set(found.truncated)
            found.truncated = [place for place, row in enumerate(inverse.tolist()) if row in shortened]
        return found

    async def run_ids(self, model: Model, sequences: list[np.ndarray]) -> np.ndarray:
        """Vectors (N,K) of ids in their frame, as one request.

        Raises:
            RequestError: see `embed`.
        """
        self._require_health(model)
        return (await self.dispatcher.run(model.number, sequences))[0]

    def _require_health(self, model: Model) -> None:
        if self.stopping:
            raise unhealthy("The server is stopping.", 1.0)
        if model.static is None and not self.healthy:
            raise unhealthy("The engine is being restarted; the same request may succeed in a few seconds.")

    def _measured(self, model: Model, counts: list[int], truncate: bool, said: Where) -> tuple[np.ndarray, list[int]]:
        """Tokens (N,) that are read, and the places of texts that are too long.

        Raises:
            RequestError: one is too long and may not be cut, or there are too many tokens in all.
        """
        limit = model.reading.max_seq_length
        tokens = np.asarray(counts, np.int64)
        cut: list[int] = []
        if limit is not None and len(tokens) and int(tokens.max()) > limit:
            cut = np.flatnonzero(tokens > limit).tolist()
            if not truncate:
                raise RequestError(
                    400,
                    f"{said(cut[0])} has {int(tokens[cut[0]]):,} tokens, and {model.name} reads at most {limit:,} in a "
                    f"text; {len(cut)} of the {len(tokens)} different texts of this request are too long. Split them, "
                    "or let the server's owner allow truncation (--truncate).",
                    param=said(cut[0]).partition("[")[0], code="context_length_exceeded",
                )  # fmt: skip
            tokens = np.minimum(tokens, limit)
        if (total := int(tokens.sum())) > self.settings.max_request_tokens:
            raise RequestError(
                400,
                f"The request has {total:,} tokens, and this server takes at most "
                f"{self.settings.max_request_tokens:,} in one. Send it in parts.",
                param="input", code="max_tokens_per_request",
            )  # fmt: skip
        return tokens, cut

    async def in_portions(self, work: Callable[[list[str]], T], texts: list[str]) -> list[T]:
        """Do something with few letters at once, and with many in a thread, part by part, so that others get a turn.

        Raises:
            RequestError: too many requests do so.
        """
        letters = sum(map(len, texts))
        if letters <= FEW_LETTERS:
            return [work(texts)]
        if self._waiting >= MOST_WAITING:
            raise overloaded(1.0, "Too many requests are being tokenised.")
        self._waiting += 1
        try:
            loop, found = asyncio.get_running_loop(), []
            for part in _parts(texts):
                found.append(await loop.run_in_executor(self._pool, work, part))
            return found
        finally:
            self._waiting -= 1

    async def _run_static(
        self, model: Model, static: StaticModel, texts: list[str], truncate: bool, left: bool | None, said: Where
    ) -> Embedded:
        start = time.monotonic()
        limit = model.reading.max_seq_length
        read = await self.in_portions(static.read, texts)
        counts = [int(length) for _, lengths in read for length in lengths]
        tokens, cut = self._measured(model, counts, truncate, said)
        tokenised = time.monotonic()
        loop = asyncio.get_running_loop()
        parts = []
        for found in read:
            if (len(read) == 1 and limit is None) or len(found[0]) < FEW_LETTERS:
                parts.append(static.vectors(found, left))
            else:
                parts.append(await loop.run_in_executor(self._pool, static.vectors, found, left))
        vectors = np.concatenate(parts)[:, : model.about.dimensions]
        return Embedded(vectors, tokens, cut, tokenised - start, 0.0, time.monotonic() - tokenised)

    def find(self, name: str | None) -> Model:
        """The model of that name; the first one without a name.

        Raises:
            RequestError: there is none.
        """
        if name is None:
            return self.first
        if name not in self.models:
            raise RequestError(
                404, f"There is no such model here; this server has {', '.join(map(repr, self.models))}.",
                param="model", code="model_not_found",
            )  # fmt: skip
        return self.models[name]


def _parts(texts: list[str]) -> list[list[str]]:
    """Texts in portions of so many letters, a longer text alone."""
    found: list[list[str]] = [[]]
    letters = 0
    for text in texts:
        if found[-1] and letters + len(text) > PORTION_LETTERS:
            found.append([])
            letters = 0
        found[-1].append(text)
        letters += len(text)
    return found
