"""What a graph or another precision gains on this machine, and what it loses; no torch until something is compared."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from essent._core.arithmetic import BFLOAT16, has_bfloat16
from essent._core.texts import check_texts
from essent.engine.choice import computing_in
from essent.errors import InputError
from essent.tasks.sample import sample_texts

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


MIN_TEXTS = 16  # fewer take too little time to measure, and rank too few similarities
ALONE = 20  # texts that are encoded one by one in a round
CONSTANT = 1e-6  # similarities that differ by no more are rounding
FEWEST_RANKED, MOST_RANKED = 300, 512  # texts: all their pairs are ranked, 45,000 to 131,000
RANKED = ((0.999, "as before"), (0.98, "nearly as before"))  # from which Spearman on
WORTH = 1.2  # times as fast, from which another precision is worth a word
ENOUGH = 2000  # texts from which it is worth trying
TRIED = 64  # texts of the sample


# -- what is lost -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Loss:
    """What a graph costs, on some texts: cosines with the float32 vectors of the same texts.

    `spearman` compares the similarities of all pairs of the first 512 texts, 1 for the same order; `unseen` says
    whether the texts are others than the calibration's.
    """

    texts: int
    mean_cosine: float
    lowest_cosine: float
    spearman: float
    unseen: bool

    def __str__(self) -> str:
        how = next((words for least, words in RANKED if self.spearman >= least), "otherwise than before")
        warning = "" if self.unseen else ", with which it was calibrated, so that others may lose more"
        return (
            f"Similarities are ranked {how}: Spearman {self.spearman:.4f} over {self.texts:,} texts{warning}; "
            f"lowest cosine with torch's float32 vectors {self.lowest_cosine:.5f}"
        )


def texts_to_judge(texts: Sequence[str], calibration: Sequence[str]) -> list[str]:
    """Distinct texts that did not calibrate, 300 to 512: the user's own, and essent's sample where these are few."""
    used = set(calibration)
    own = [text for text in dict.fromkeys(texts) if text not in used][:MOST_RANKED]
    if len(own) >= FEWEST_RANKED:
        return own
    return [*own, *(text for text in sample_texts() if text not in used.union(own))]


def loss_of(exact: np.ndarray, rounded: np.ndarray, unseen: bool) -> Loss:
    """How far the vectors (N,K) of a graph are from the exact ones of the same texts."""
    from scipy.stats import spearmanr

    row_cosines = cosines(exact, rounded)
    ranked = [_similarities(vectors[:MOST_RANKED]) for vectors in (exact, rounded)]
    constant = [np.ptp(similarities) < CONSTANT for similarities in ranked]  # all texts alike: nothing to rank
    alike = float(all(constant)) if any(constant) else float(spearmanr(*ranked).statistic)
    return Loss(len(exact), float(row_cosines.mean()), float(row_cosines.min()), alike, unseen)


def measure_loss(model: SentenceTransformer, compiled: SentenceTransformer, texts: Sequence[str]) -> Loss:
    """How far a graph's vectors are from the model's own; see `texts_to_judge` for the texts."""
    return loss_of(_vectors_of(model, texts), _vectors_of(compiled, texts), True)


def _vectors_of(model: SentenceTransformer, texts: Sequence[str]) -> np.ndarray:
    return np.asarray(model.encode(list(texts), show_progress_bar=False), np.float32)


def _similarities(vectors: np.ndarray) -> np.ndarray:
    """Cosines of all pairs of the vectors (N,K), each pair once: (N·(N-1)/2,)."""
    exact = vectors.astype(np.float64)  # float32 products would rank their rounding
    units = exact / np.maximum(np.linalg.norm(exact, axis=1, keepdims=True), 1e-30)
    return np.asarray((units @ units.T)[np.triu_indices(len(units), 1)])


def cosines(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Cosine of each row of (N,K) with the same row of the other, 1 where both are zeros: (N,)."""
    lengths = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    same = ~a.any(axis=1) & ~b.any(axis=1)  # a text without tokens, in a table of token vectors
    return np.where(same, 1.0, np.einsum("nk,nk->n", a, b) / np.maximum(lengths, 1e-30))


# -- what is gained ---------------------------------------------------------------------------------------------------


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
    if len(distinct) < MIN_TEXTS:
        raise InputError(
            f"{len(distinct)} different texts are too few to compare speeds on; give at least {MIN_TEXTS}."
        )
    return distinct


def compare(
    compiled: SentenceTransformer,
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
        compiled: the graph, a CompiledEncoder.
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
    exact, own = _vectors_of(model, distinct), _vectors_of(compiled, distinct)
    queries = sorted(distinct, key=len)[:: max(1, len(distinct) // ALONE)][:ALONE]
    queries = (queries * ALONE)[:ALONE]

    def one_by_one(part: SentenceTransformer) -> None:
        for text in queries:
            _vectors_of(part, [text])

    together = _ratio(model, compiled, lambda part: _vectors_of(part, distinct), rounds)
    loss = loss_of(exact, own, set(distinct).isdisjoint(calibration))
    return Gain(len(distinct), together, _ratio(model, compiled, one_by_one, rounds), loss)


def _ratio(
    slow: SentenceTransformer, fast: SentenceTransformer, run: Callable[[SentenceTransformer], Any], rounds: int
) -> Ratio:
    seconds: tuple[list[float], list[float]] = ([], [])
    parts = (slow, fast)
    for number in range(-1, rounds):  # the first is not counted: engines compile at first use
        for side in (0, 1) if number % 2 else (1, 0):
            began = time.perf_counter()
            run(parts[side])
            if number >= 0:
                seconds[side].append(time.perf_counter() - began)
    return Ratio(tuple(seconds[0]), tuple(seconds[1]))


# -- what bfloat16 would give -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Offer:
    """What bfloat16 would give on this machine.

    Attributes:
        ratio: how many times as fast it is, the median of three interleaved rounds.
        loss: what it costs.
    """

    ratio: float
    loss: Loss

    def __str__(self) -> str:
        return f"--precision bfloat16 is {self.ratio:.1f} times as fast here. {self.loss}"


def offer_bfloat16(model: Any, texts: Sequence[str]) -> Offer | None:
    """What bfloat16 would give, tried on some of the texts; None where it is not worth it.

    Tried only where the CPU has such arithmetic, the model is a transformer in float32, and there are 2,000 texts or
    more, so that the trial costs little beside them.
    """
    if len(texts) < ENOUGH or not hasattr(model, "module"):  # a static encoder runs without torch
        return None
    backbone = model.module.backbone
    if model.device.type != "cpu" or not has_bfloat16("cpu") or backbone.precision == BFLOAT16:
        return None
    if model.module.plan.is_static or {str(p.dtype) for p in backbone.parameters()} != {"torch.float32"}:
        return None
    distinct = sorted(dict.fromkeys(texts), key=len)
    sample = distinct[:: max(1, len(distinct) // TRIED)][:TRIED]
    rounded_model = computing_in(model, BFLOAT16)
    exact, rounded = _vectors_of(model, sample), _vectors_of(rounded_model, sample)
    ratio = _ratio(model, rounded_model, lambda part: _vectors_of(part, sample), 3).median
    if ratio < WORTH:
        return None
    return Offer(ratio, loss_of(exact, rounded, True))
