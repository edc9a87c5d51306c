"""Measure speed and accuracy of a graph or another precision on this machine; torch is imported only to compare."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from essent._core.arguments import check_size
from essent._core.machine import BFLOAT16, has_bfloat16
from essent._core.texts import check_texts
from essent.engine.choice import computing_in
from essent.errors import InputError
from essent.tasks.sample import sample_texts

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

    from essent.engine.numpy_encoder import NumpyEncoder

MIN_TEXTS = 16  # fewer run too briefly to time, and have too few similarities to rank
ALONE = 20  # texts encoded one by one per round
CONSTANT = 1e-6  # smaller differences of similarities are rounding
MIN_RANKED, MAX_RANKED = 300, 512  # texts: all their pairs are ranked, 45,000 to 131,000
RANKED = ((0.999, "unchanged"), (0.98, "nearly unchanged"))  # by minimum Spearman
MIN_SPEEDUP = 1.2  # to recommend another precision
MIN_TEXTS_OF_TRIAL, TRIAL_TEXTS = 2000, 64  # fewer texts are not worth a trial; the trial runs on a sample


# -- loss -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Loss:
    """The accuracy of a graph: cosines of its vectors with torch's float32 vectors of the same texts.

    `spearman` compares the similarities of all pairs of the first 512 texts; 1 is the same order. `unseen` is whether
    none of the texts was used for calibration.

    Example:
        >>> from essent.engine import Loss
        >>> loss = Loss(texts=400, mean_cosine=0.9998, lowest_cosine=0.9991, spearman=0.9995, unseen=True)
        >>> print(loss)  # as in `compile(encoder, precision="bfloat16").loss`
        The ranking of similarities is unchanged: Spearman 0.9995 over 400 texts; lowest cosine with torch's float32
        vectors 0.99910
    """

    texts: int
    mean_cosine: float
    lowest_cosine: float
    spearman: float
    unseen: bool

    def __str__(self) -> str:
        change = next((name for minimum, name in RANKED if self.spearman >= minimum), "changed")
        warning = "" if self.unseen else " (some of the calibration; the loss on other texts may be larger)"
        return (
            f"The ranking of similarities is {change}: Spearman {self.spearman:.4f} over "
            f"{self.texts:,} texts{warning}; lowest cosine with torch's float32 vectors {self.lowest_cosine:.5f}"
        )


def texts_to_judge(texts: Sequence[str], calibration: Sequence[str]) -> list[str]:
    """Select 300 to 512 distinct texts not used for calibration: the user's, plus essent's sample if these are few."""
    used = set(calibration)
    unseen, samples = ([text for text in dict.fromkeys(t) if text not in used] for t in (texts, sample_texts()))
    if len(unseen) >= MIN_RANKED:
        return unseen[:MAX_RANKED]
    return list(dict.fromkeys([*unseen, *samples]))


def loss_of(exact: np.ndarray, rounded: np.ndarray, unseen: bool) -> Loss:
    """Compare the vectors (N,K) of a graph with the exact vectors of the same texts."""
    from scipy.stats import spearmanr

    row_cosines = cosines(exact, rounded)
    similarities = [_similarities(vectors[:MAX_RANKED]) for vectors in (exact, rounded)]
    is_constant = [np.ptp(values) < CONSTANT for values in similarities]  # all texts alike: nothing to rank
    spearman = float(all(is_constant)) if any(is_constant) else float(spearmanr(*similarities).statistic)
    return Loss(len(exact), float(row_cosines.mean()), float(row_cosines.min()), spearman, unseen)


def measure_loss(model: SentenceTransformer, compiled: NumpyEncoder, texts: Sequence[str]) -> Loss:
    """Compare a graph's vectors with the model's; see `texts_to_judge` for the texts."""
    return loss_of(_vectors_of(model, texts), _vectors_of(compiled, texts), True)


def _vectors_of(model: SentenceTransformer | NumpyEncoder, texts: Sequence[str]) -> np.ndarray:
    return np.asarray(model.encode(list(texts), show_progress_bar=False), np.float32)


def _similarities(vectors: np.ndarray) -> np.ndarray:
    """Compute the cosines of all pairs of vectors (N,K), each pair once: (N·(N-1)/2,)."""
    exact = vectors.astype(np.float64)  # float32 products would rank their rounding
    units = exact / np.maximum(np.linalg.norm(exact, axis=1, keepdims=True), 1e-30)
    return np.asarray((units @ units.T)[np.triu_indices(len(units), 1)])


def cosines(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Compute the cosine of each row of (N,K) with the same row of the other, 1 if both are zeros: (N,)."""
    lengths = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    same = ~a.any(axis=1) & ~b.any(axis=1)  # a text without tokens, in a table of token vectors
    return np.where(same, 1.0, np.einsum("nk,nk->n", a, b) / np.maximum(lengths, 1e-30))


# -- speed ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ratio:
    """The speed of a graph relative to torch: in each round, torch's time divided by the graph's.

    Attributes:
        torch, graph: seconds of each round.
    """

    torch: tuple[float, ...]
    graph: tuple[float, ...]

    @property
    def by_round(self) -> list[float]:
        """The relative speed of each round."""
        return [slow / fast for slow, fast in zip(self.torch, self.graph, strict=True)]

    @property
    def median(self) -> float:
        """The median relative speed."""
        return statistics.median(self.by_round)

    def __str__(self) -> str:
        low, high = min(self.by_round), max(self.by_round)
        clear = "" if low > 1 or high < 1 else "; no clear difference"
        return f"{self.median:.2f} times as fast ({low:.2f} to {high:.2f} in {len(self.torch)} rounds{clear})"


@dataclass(frozen=True)
class Gain:
    """The result of `compare`: speed and accuracy of a graph on this machine.

    Attributes:
        texts: number of texts.
        together: relative speed for all texts in one call.
        alone: relative speed for twenty texts in twenty calls, like queries.
        loss: accuracy of the vectors, compared with torch's.

    Example:
        >>> import essent
        >>> from essent.engine import compare
        >>> encoder = essent.Encoder("sentence-transformers/all-MiniLM-L6-v2", "static")
        >>> texts = [f"Number {number} is on the list." for number in range(20)]
        >>> gain = compare(essent.compile(encoder), encoder, texts, rounds=1)
        >>> print(gain)
        All 20 texts at once: ... times as fast ...
        One text at a time: ... times as fast ...
        The ranking of similarities is unchanged: Spearman 1.0000 over 20 texts; ...
    """

    texts: int
    together: Ratio
    alone: Ratio
    loss: Loss

    def __str__(self) -> str:
        rate = [self.texts / statistics.median(seconds) for seconds in (self.together.graph, self.together.torch)]
        query = [1000 * statistics.median(seconds) / ALONE for seconds in (self.alone.graph, self.alone.torch)]
        return (
            f"All {self.texts:,} texts at once: {self.together}, {rate[0]:,.0f} texts per second instead of "
            f"{rate[1]:,.0f}.\nOne text at a time: {self.alone}, {query[0]:.1f} ms instead of {query[1]:.1f}.\n"
            f"{self.loss}."
        )


def texts_to_compare(texts: Iterable[str]) -> list[str]:
    """Return the distinct texts, and check that they are enough to time.

    Raises:
        InputError: too few texts.
    """
    distinct = list(dict.fromkeys(check_texts(texts)))
    if len(distinct) < MIN_TEXTS:
        raise InputError(f"{len(distinct)} distinct texts are too few to compare speeds. Give at least {MIN_TEXTS}.")
    return distinct


def compare(
    compiled: NumpyEncoder,
    model: SentenceTransformer,
    texts: Iterable[str],
    *,
    rounds: int = 5,
    calibration: Sequence[str] = (),
) -> Gain:
    """Compare a graph with its model in torch on the CPU: time and vectors.

    Each round runs both, alternating which runs first, so that other load on the machine affects both equally. One
    round before them is not counted.

    Args:
        compiled: the graph, a CompiledEncoder.
        model: the model that was compiled, on the CPU; it uses torch's threads (`torch.set_num_threads`).
        texts: like those that will be encoded; duplicates are removed.
        rounds: number of timed rounds.
        calibration: texts that int8 was calibrated on.

    Raises:
        InputError: fewer than 16 distinct texts, fewer than one round, or a model on another device.

    Example:
        >>> import essent
        >>> from essent.engine import compare
        >>> encoder = essent.Encoder("sentence-transformers/all-MiniLM-L6-v2", "static")
        >>> texts = [f"Number {number} is on the list." for number in range(20)]
        >>> gain = compare(essent.compile(encoder), encoder, texts, rounds=1)
        >>> gain.texts, round(gain.loss.spearman, 2)
        (20, 1.0)
    """
    distinct = texts_to_compare(texts)
    check_size(rounds, "rounds")
    if model.device.type != "cpu":
        raise InputError(
            f"The model is on {model.device}, but a graph runs on the CPU. Load the model with device='cpu'."
        )
    loss = loss_of(_vectors_of(model, distinct), _vectors_of(compiled, distinct), set(distinct).isdisjoint(calibration))
    queries = sorted(distinct, key=len)[:: max(1, len(distinct) // ALONE)][:ALONE]
    queries = (queries * ALONE)[:ALONE]

    def encode_queries(encoder: SentenceTransformer | NumpyEncoder) -> None:
        for text in queries:
            _vectors_of(encoder, [text])

    together = _ratio(model, compiled, lambda encoder: _vectors_of(encoder, distinct), rounds)
    return Gain(len(distinct), together, _ratio(model, compiled, encode_queries, rounds), loss)


def _ratio(model: Any, graph: Any, run: Callable[[Any], Any], rounds: int) -> Ratio:
    """Time both encoders, alternating which runs first."""
    seconds: tuple[list[float], list[float]] = ([], [])
    encoders = (model, graph)
    for number in range(-1, rounds):  # the first is not counted: engines compile at first use
        for side in (0, 1) if number % 2 else (1, 0):
            start = time.perf_counter()
            run(encoders[side])
            if number >= 0:
                seconds[side].append(time.perf_counter() - start)
    return Ratio(tuple(seconds[0]), tuple(seconds[1]))


# -- bfloat16 ---------------------------------------------------------------------------------------------------------


def offer_bfloat16(model: Any, texts: Sequence[str]) -> str:
    """Try bfloat16 on some of the texts; describe its speed and accuracy if it is at least 1.2 times as fast.

    The trial runs only if the CPU has bfloat16 arithmetic, the model is a transformer in float32, and there are at
    least 2,000 texts, so that the trial takes little time compared with encoding them.
    """
    if len(texts) < MIN_TEXTS_OF_TRIAL or not hasattr(model, "module"):  # a static encoder runs without torch
        return ""
    backbone = model.module.backbone
    if model.device.type != "cpu" or not has_bfloat16("cpu") or backbone.precision == BFLOAT16:
        return ""
    if model.module.plan.is_static or {str(p.dtype) for p in backbone.parameters()} != {"torch.float32"}:
        return ""
    distinct = sorted(dict.fromkeys(texts), key=len)
    sample = distinct[:: max(1, len(distinct) // TRIAL_TEXTS)][:TRIAL_TEXTS]
    rounded_model = computing_in(model, BFLOAT16)
    loss = loss_of(_vectors_of(model, sample), _vectors_of(rounded_model, sample), True)
    speed = _ratio(model, rounded_model, lambda encoder: _vectors_of(encoder, sample), 3).median
    return f"--precision bfloat16 is {speed:.1f} times as fast here. {loss}" if speed >= MIN_SPEEDUP else ""
