"""What a graph gains on this machine, and what it loses: interleaved rounds of it and of the model in torch."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from sentence_transformers import SentenceTransformer

from essent._core.texts import check_texts
from essent.engine.compiled import CompiledEncoder
from essent.engine.loss import Loss, loss_of
from essent.errors import InputError

FEWEST = 16  # texts: fewer take too little time to measure, and rank too few similarities
ALONE = 20  # texts that are encoded one by one in a round


@dataclass(frozen=True)
class Ratio:
    """How many times as fast, by rounds: each divides torch's time by the graph's of the same round.

    Attributes:
        torch, graph: seconds of each round.
    """

    torch: tuple[float, ...]
    graph: tuple[float, ...]

    @property
    def by_round(self) -> list[float]:
        """How many times as fast the graph was, round by round."""
        return [slow / fast for slow, fast in zip(self.torch, self.graph, strict=True)]

    @property
    def median(self) -> float:
        """The median over the rounds."""
        return statistics.median(self.by_round)

    def __str__(self) -> str:
        low, high = min(self.by_round), max(self.by_round)
        clear = "" if low > 1 or high < 1 else "; no difference is shown"
        return f"{self.median:.2f} times as fast ({low:.2f} to {high:.2f} in {len(self.torch)} rounds{clear})"


@dataclass(frozen=True)
class Gain:
    """What `compare` found.

    Attributes:
        texts: how many.
        together: all texts in one call.
        alone: twenty texts in as many calls, as queries come.
        loss: of the vectors against torch's.
    """

    texts: int
    together: Ratio
    alone: Ratio
    loss: Loss

    def __str__(self) -> str:
        rate = [self.texts / statistics.median(seconds) for seconds in (self.together.graph, self.together.torch)]
        query = [1000 * statistics.median(seconds) / ALONE for seconds in (self.alone.graph, self.alone.torch)]
        return (
            f"All {self.texts:,} texts at once: {self.together}, {rate[0]:,.0f} texts a second instead of "
            f"{rate[1]:,.0f}.\nOne text at a time: {self.alone}, {query[0]:.1f} ms instead of {query[1]:.1f}.\n"
            f"{self.loss}."
        )


def texts_to_compare(texts: Iterable[str]) -> list[str]:
    """Distinct texts, enough to time.

    Raises:
        InputError: too few.
    """
    distinct = list(dict.fromkeys(check_texts(texts)))
    if len(distinct) < FEWEST:
        raise InputError(f"{len(distinct)} different texts are too few to compare speeds on; give at least {FEWEST}.")
    return distinct


def compare(
    compiled: CompiledEncoder,
    model: SentenceTransformer,
    texts: Iterable[str],
    *,
    rounds: int = 5,
    calibration: Sequence[str] = (),
) -> Gain:
    """Time a graph against its model in torch on the CPU, and compare their vectors.

    Each round runs both, in turns the one or the other first, so that what else the machine does meets both alike. One
    round before them is not counted.

    Args:
        model: what was compiled, on the CPU; its threads are torch's (`torch.set_num_threads`).
        texts: like those that will be encoded; each distinct one is taken once.
        calibration: texts that int8 was calibrated on.

    Raises:
        InputError: fewer than 16 different texts, or no round; a model on another device.
    """
    distinct = texts_to_compare(texts)
    if rounds < 1:
        raise InputError(f"rounds={rounds}: at least one is needed.")
    if model.device.type != "cpu":
        raise InputError(f"The model is on {model.device}; a graph runs on the CPU. Compare with device='cpu'.")
    exact, own = (np.asarray(part.encode(distinct, show_progress_bar=False)) for part in (model, compiled))
    queries = sorted(distinct, key=len)[:: max(1, len(distinct) // ALONE)][:ALONE]
    queries = (queries * ALONE)[:ALONE]

    def together(part: SentenceTransformer) -> None:
        part.encode(distinct, show_progress_bar=False)

    def alone(part: SentenceTransformer) -> None:
        for text in queries:
            part.encode([text], show_progress_bar=False)

    return Gain(
        len(distinct),
        _ratio(model, compiled, together, rounds),
        _ratio(model, compiled, alone, rounds),
        loss_of(exact, own, set(distinct).isdisjoint(calibration)),
    )


def _ratio(
    model: SentenceTransformer, compiled: CompiledEncoder, run: Callable[[SentenceTransformer], None], rounds: int
) -> Ratio:
    seconds: tuple[list[float], list[float]] = ([], [])
    parts = (model, compiled)
    for number in range(-1, rounds):  # the first is not counted: engines compile at first use
        for side in (0, 1) if number % 2 else (1, 0):
            began = time.perf_counter()
            with torch.inference_mode():
                run(parts[side])
            if number >= 0:
                seconds[side].append(time.perf_counter() - began)
    return Ratio(tuple(seconds[0]), tuple(seconds[1]))
