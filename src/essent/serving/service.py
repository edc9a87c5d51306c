"""Texts to vectors for many clients at once: tokenized, let in or refused, queued, run, put together again."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import numpy as np

from essent._core.texts import distinct_texts
from essent.errors import VerificationError
from essent.recipe.tokens.by_word import cut
from essent.serving.engine import Engine
from essent.serving.metrics import Metrics
from essent.serving.prepared import Prepared
from essent.serving.schedule import Schedule
from essent.serving.schemas import RequestError, overloaded, unhealthy
from essent.serving.settings import Settings
from essent.serving.worker import Source
from essent.static.encoder import StaticEncoder

T = TypeVar("T")
Where: TypeAlias = Callable[[int], str]  # what a request calls its text of this index, for errors
BUDGET = 1024, 2048  # tokens of a batch: of an engine, and where none runs
FEW_LETTERS = 4000  # are tokenized at once; more in a thread, in portions of
PORTION_LETTERS = 100_000
MOST_WAITING = 64  # requests whose texts are in portions
BANDS = (("unrelated", 0.0, 1.0), ("alike in part", 2.0, 3.5), ("same meaning", 4.0, 5.0))  # scores of pairs


class Model:
    """A model that is served: what is known of it, and the encoder itself where that is static.

    Attributes:
        number: of the model in the engine; -1 for a static encoder, which runs in this process.
        static: the encoder; it cuts no text, so that lengths are known before anything is cut.
    """

    def __init__(self, prepared: Prepared, number: int, created: int) -> None:
        self.prepared, self.name, self.number, self.created = prepared, prepared.name, number, created
        self.reading = prepared.reading
        self.static: StaticEncoder | None = None
        if prepared.engine == "static":
            self.static = StaticEncoder(replace(StaticEncoder.load(prepared.folder).table, limit=None))

    def prompt(self, name: str | None) -> str:
        """The text of a prompt, or of the model's default prompt.

        Raises:
            RequestError: no such prompt.
        """
        prompts = self.prepared.prompts
        if name is not None and name not in prompts:
            names = ", ".join(map(repr, prompts)) or "none"
            message = f"There is no prompt of that name; {self.name} has {names}."
            raise RequestError(400, message, param="prompt_name")
        chosen = self.prepared.prompt_name if name is None else name
        return prompts.get(chosen, "") if chosen else ""

    def static_vectors(self, ids: np.ndarray, lengths: np.ndarray, cuts_start: bool | None = None) -> np.ndarray:
        """Vectors (N,D) float32 of a static encoder's ids, one text after the other, cut to the most tokens."""
        assert self.static is not None  # noqa: S101
        if (limit := self.reading.max_seq_length) is not None:
            ids, lengths = cut(ids, lengths, limit, self.reading.cuts_start if cuts_start is None else cuts_start)
        return self.static.means((ids, lengths))


@dataclass
class Embedded:
    """Vectors of a request's texts, and what was done for them.

    Attributes:
        vectors: (N,K) float32.
        tokens: how many of each text the model read, special tokens included.
        truncated: indices of the texts that were cut.
        tokenizing, waiting, running: seconds.
    """

    vectors: np.ndarray
    tokens: np.ndarray
    truncated: list[int]
    tokenizing: float
    waiting: float
    running: float


class Service:
    """All models of a server, the queue before the engine, and the engine.

    Args:
        prepared: the models, as `prepare` gives them.
        settings: limits and timeouts.
        engine_threads, tokenizing_threads: see `Settings.divide`.
        pairs: scored pairs, see `essent.serving.run.serve`.

    Attributes:
        typical: of each model, the cosines that are typical of pairs of texts, for `/compare`.
    """

    def __init__(
        self, prepared: list[Prepared], settings: Settings, engine_threads: int, tokenizing_threads: int,
        pairs: Path | None = None,
    ) -> None:  # fmt: skip
        self.settings, self.pairs, self.stopping = settings, pairs, False
        self.typical: dict[str, list[dict[str, Any]]] = {}
        run = [model for model in prepared if model.engine != "static"]
        numbers = {model.name: number for number, model in enumerate(run)}
        started = int(time.time())
        self.models = {model.name: Model(model, numbers.get(model.name, -1), started) for model in prepared}
        self.first = next(iter(self.models.values()))
        self.tokenizing_threads = tokenizing_threads
        self._waiting = 0
        self._pool = ThreadPoolExecutor(tokenizing_threads, thread_name_prefix="tokenizing")
        self.schedule = Schedule(BUDGET[not run], settings.max_queue_tokens)
        self.engine: Engine | None = None
        self.metrics = Metrics({
            "te_queue_size": ("Requests that wait.", lambda: len(self.schedule)),
            "essent_queue_tokens": ("Tokens that wait.", lambda: self.schedule.tokens),
            "essent_engine_ready": ("1 while requests are served.", lambda: self.healthy),
            "essent_engine_restarts": ("Restarts of the engine.", lambda: self.engine.restarts if self.engine else 0),
        })  # fmt: skip
        if run:
            sources = [
                Source(m.engine, m.folder, m.precision, m.reading.pad_id, m.dimensions, m.reading.max_seq_length)
                for m in run
            ]
            self.engine = Engine(sources, engine_threads, self.schedule, settings, self.check, self.metrics.batch)

    async def start(self) -> None:
        """Start the engine; every model has given its golden vectors and typical cosines when this returns.

        Raises:
            EssentError: one did not; says which.
        """
        if self.engine is not None:
            await self.engine.start()
        await self.check(static=True)

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

    async def check(self, static: bool = False) -> None:
        """Run golden texts by the way that requests take: together, and each alone, as their lengths differ.

        At the first start also the pairs, before the engine counts as ready and the timeouts of requests hold.

        Args:
            static: whether static encoders are checked, or the models of the engine.

        Raises:
            VerificationError: a model does not give its golden vectors.
        """
        for model in self.models.values():
            if (model.static is not None) != static:
                continue
            texts, golden = model.prepared.golden_texts, model.prepared.golden
            scale = max(float(np.linalg.norm(golden, axis=1).max(initial=0.0)), 1.0)
            for rows in [slice(None), *(slice(row, row + 1) for row in range(len(texts)))]:
                vectors = (await self.run(model, texts[rows], checking=True)).vectors
                difference = float(np.abs(vectors - golden[rows]).max(initial=0.0)) / scale
                if not difference <= model.prepared.tolerance:
                    raise VerificationError(
                        f"{model.name} does not reproduce its golden vectors in the engine {model.prepared.engine}: "
                        f"they differ by {difference:.1e}, allowed is {model.prepared.tolerance:.0e}."
                    )
            if self.pairs is not None and model.name not in self.typical:
                self.typical[model.name] = await self._typical(model, self.pairs)

    async def _typical(self, model: Model, path: Path) -> list[dict[str, Any]]:
        """Cosines of pairs that people judged unrelated, alike in part, and of the same meaning."""
        rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
        prompt = model.prompt(None)
        texts = [prompt + row[side] for row in rows for side in ("sentence1", "sentence2")]
        unit = unit_rows((await self.run(model, texts, truncate=True, checking=True)).vectors)
        cosines, scores = np.einsum("nk,nk->n", unit[0::2], unit[1::2]), np.array([row["score"] for row in rows])
        typical = []
        for band, lowest, highest in BANDS:
            inside = cosines[(scores >= lowest) & (scores <= highest)]
            if len(inside):
                low, median, high = np.quantile(inside.astype(np.float64), (0.05, 0.5, 0.95)).round(4).tolist()
                typical.append({"pairs": band, "count": len(inside), "low": low, "median": median, "high": high})
        return typical

    # -- requests ---------------------------------------------------------------------------------------------------

    def find(self, name: str | None) -> Model:
        """The model of that name; the first one without a name.

        Raises:
            RequestError: there is none.
        """
        model = self.first if name is None else self.models.get(name)
        if model is None:
            message = f"There is no such model here; this server has {', '.join(map(repr, self.models))}."
            raise RequestError(404, message, "model_not_found", "model")
        return model

    def check_texts(self, texts: list[str], field: str, where: Where | None = None) -> None:
        """Refuse no text, an empty one, or too many.

        Args:
            field: of the request, which an error names.
            where: what the request calls the text of an index, by default `field[index]`.

        Raises:
            RequestError: says which.
        """
        if not texts:
            raise RequestError(
                400, f"{field} has no text: Expected a string or a list of strings.", "empty_input", field
            )
        if len(texts) > (most := self.settings.max_inputs):
            message = f"{field} has {len(texts):,} texts; this server takes at most {most:,} in a request."
            raise RequestError(400, message, "too_many_inputs", field)
        if "" in texts:
            index = texts.index("")
            name = where(index) if where else f"{field}[{index}]"
            raise RequestError(400, f"{name} is an empty text. Leave empty texts out.", "empty_input", field)

    async def embed(
        self, model: Model, texts: list[str], field: str = "input", where: Where | None = None,
        prompt_name: str | None = None, truncate: bool | None = None, cuts_start: bool | None = None,
        dimensions: int | None = None, unit: bool = False,
    ) -> Embedded:  # fmt: skip
        """Vectors of the texts, as the encoder's own `encode` gives them.

        Args:
            field, where: see `check_texts`.
            prompt_name: a prompt of the model; by default its own default.
            truncate: whether texts that are too long are cut; by default what the server's owner chose.
            cuts_start: whether their beginning is cut; by default as the tokenizer does.
            dimensions: how many of the first dimensions are wanted.
            unit: whether the vectors are scaled to length 1.

        Raises:
            RequestError: no text, too long, too many, overloaded, or the engine is not there.
        """
        self.check_texts(texts, field, where)
        if dimensions is not None and dimensions > model.prepared.dimensions:
            message = (
                f"dimensions={dimensions}: the vectors of {model.name} have {model.prepared.dimensions} dimensions."
            )
            raise RequestError(400, message, param="dimensions")
        prompt = model.prompt(prompt_name)
        self.require_health(model)
        embedded = await self.run(
            model, [prompt + text for text in texts] if prompt else texts,
            self.settings.truncate if truncate is None else truncate, cuts_start, where or f"{field}[{{}}]".format,
        )  # fmt: skip
        self.metrics.embedded(model.name, embedded)
        embedded.vectors = embedded.vectors[:, :dimensions]
        if unit:
            embedded.vectors = unit_rows(embedded.vectors)
        return embedded

    def require_health(self, model: Model) -> None:
        """Refuse what cannot be run now.

        Raises:
            RequestError: the server stops, or the engine is not there.
        """
        if self.stopping:
            raise unhealthy("The server is stopping.", 1.0)
        if model.static is None and not self.healthy:
            raise unhealthy("The engine is being restarted; the same request may succeed in a few seconds.")

    async def run(
        self, model: Model, texts: list[str], truncate: bool = False, cuts_start: bool | None = None,
        where: Where = "input[{}]".format, checking: bool = False,
    ) -> Embedded:  # fmt: skip
        """Vectors of texts with their prompts, each text once; see `Engine.run` for `checking`.

        Raises:
            RequestError: see `embed`.
        """
        start = time.monotonic()
        distinct, inverse = distinct_texts(texts)
        if model.static is not None:
            portions = await self.in_portions(model.static.ids, distinct)
            counts = np.concatenate([lengths for _, lengths in portions])
        else:
            ids = [ids for portion in await self.in_portions(model.reading.ids, distinct) for ids in portion]
            counts = np.array([len(text_ids) + len(model.reading.frame) for text_ids in ids])
        tokens = self._measured(model, counts, truncate, lambda row: where(int(np.argmax(inverse == row))))
        tokenized = time.monotonic()
        waited = 0.0
        if model.static is not None:
            vectors = await self._static_vectors(model, portions, cuts_start)
        elif self.engine is not None:
            vectors, waited = await self.engine.run(model.number, model.reading.framed(ids, cuts_start), checking)
        if not np.isfinite(vectors).all():
            raise RequestError(500, "The model gave a vector that is not finite.", "not_finite")
        running = time.monotonic() - tokenized - waited
        truncated = np.flatnonzero((tokens < counts)[inverse]).tolist()
        if len(distinct) != len(texts):
            vectors, tokens = vectors[inverse], tokens[inverse]
        return Embedded(vectors, tokens, truncated, tokenized - start, waited, running)

    def _measured(self, model: Model, counts: np.ndarray, truncate: bool, where: Where) -> np.ndarray:
        """Tokens (N,) that are read of each text.

        Raises:
            RequestError: one is too long and may not be cut, or there are too many tokens in all.
        """
        tokens, limit = counts, model.reading.max_seq_length
        if limit is not None and int(counts.max()) > limit:
            too_long = np.flatnonzero(counts > limit).tolist()
            if not truncate:
                name = where(too_long[0])
                message = (
                    f"{name} has {int(counts[too_long[0]]):,} tokens, and {model.name} reads at most {limit:,} in a "
                    f"text; {len(too_long)} of the {len(counts)} different texts of this request are too long. Split "
                    "them, or let the server's owner allow truncation (--truncate)."
                )
                raise RequestError(400, message, "context_length_exceeded", name.partition("[")[0])
            tokens = np.minimum(counts, limit)
        if (total := int(tokens.sum())) > (most := self.settings.max_request_tokens):
            message = f"The request has {total:,} tokens; this server takes at most {most:,} in one. Send it in parts."
            raise RequestError(400, message, "max_tokens_per_request", "input")
        return tokens

    async def in_portions(self, work: Callable[[list[str]], T], texts: list[str]) -> list[T]:
        """Do something with few letters at once, and with many in a thread, part by part, so that others get a turn.

        Raises:
            RequestError: too many requests do so.
        """
        if sum(map(len, texts)) <= FEW_LETTERS:
            return [work(texts)]
        if self._waiting >= MOST_WAITING:
            raise overloaded(1.0, "Too many requests are being tokenized.")
        self._waiting += 1
        try:
            loop = asyncio.get_running_loop()
            return [await loop.run_in_executor(self._pool, work, portion) for portion in _portions(texts)]
        finally:
            self._waiting -= 1

    async def vectors_of_ids(self, model: Model, sequences: list[np.ndarray]) -> np.ndarray:
        """Vectors (N,D) of ids in their frames, outside the counts of requests.

        Raises:
            RequestError: see `require_health`.
        """
        self.require_health(model)
        if self.engine is None or model.static is not None:
            return model.static_vectors(np.concatenate(sequences), np.array(list(map(len, sequences))))
        return (await self.engine.run(model.number, sequences))[0]

    async def _static_vectors(
        self, model: Model, portions: list[tuple[np.ndarray, np.ndarray]], cuts_start: bool | None
    ) -> np.ndarray:
        """Vectors (N,K) of ids that `in_portions` gave: of few at once, of many in a thread."""
        limit, loop, vectors = model.reading.max_seq_length, asyncio.get_running_loop(), []
        for ids, lengths in portions:
            if (len(portions) == 1 and limit is None) or len(ids) < FEW_LETTERS:
                vectors.append(model.static_vectors(ids, lengths, cuts_start))
            else:
                vectors.append(await loop.run_in_executor(self._pool, model.static_vectors, ids, lengths, cuts_start))
        return np.concatenate(vectors)[:, : model.prepared.dimensions]


def _portions(texts: list[str]) -> list[list[str]]:
    """Texts in portions of so many letters, a longer text alone."""
    portions: list[list[str]] = [[]]
    letters = 0
    for text in texts:
        if portions[-1] and letters + len(text) > PORTION_LETTERS:
            portions.append([])
            letters = 0
        portions[-1].append(text)
        letters += len(text)
    return portions


def unit_rows(vectors: np.ndarray) -> np.ndarray:
    """Vectors (N,K) float32 at length 1; zeros stay zeros."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.ascontiguousarray(vectors / np.maximum(lengths, 1e-12), np.float32)
