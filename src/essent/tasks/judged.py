"""What kinds of judgement share: one vector a text gives evidence, evidence gives scores, of all units or of a draw.

    vectors (N,D) ─ evidence (E,) ─ score, of every unit of judgement or of some of them

Evidence is whatever a score needs and vectors are too large for: the cosines of pairs, the class that a probe gives a
text, the gain of each query. A search keeps it for every recipe; intervals, tests and cross-validation read nothing
else.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from essent.tasks.base import Task, unit_rows
from essent.tasks.resampling import BLOCK_VALUES, RESAMPLES, draws, interval

if TYPE_CHECKING:
    from typing_extensions import Self

Scorer = Callable[[np.ndarray], np.ndarray]  # counts of units (B,U) -> scores (R,B)


class JudgedTask(Task):
    """A data set of U units of judgement: scored pairs, duplicates, triplets, labelled texts, clusters, queries.

    Class attributes: `kind` (as in "duplicates:FILE"), `unit` (what is resampled, in the plural), `score_names` (what
    it can be scored by; the first is the main score; ×100, larger is better).
    """

    kind: ClassVar[str]
    unit: ClassVar[str]
    notes: tuple[str, ...]

    @property
    @abstractmethod
    def score_names(self) -> tuple[str, ...]:
        """What a search can rank by; the first is the main score."""

    @property
    @abstractmethod
    def units(self) -> int:
        """U, how many units are judged."""

    def compared(self) -> np.ndarray | None:
        """Positions in `texts()` (E,2) of the pairs whose cosines are the evidence; None where it takes vectors."""
        return None

    @abstractmethod
    def digest(self) -> str:
        """SHA-256 of texts and judgements: the same for the same rows from whatever file or hub."""

    @abstractmethod
    def items(self) -> list[tuple[str, ...]]:
        """The texts of each unit that is judged: what two data sets have in common is told by them."""

    def read_items(self) -> list[tuple[str, ...]]:
        """The texts of all units whose judgement is read, also where it is only learned from."""
        return self.items()

    def strata(self) -> np.ndarray | None:
        """A number for each unit (U,), of which every fold should have its share; None: none."""
        return None

    @abstractmethod
    def without(self, left_out: np.ndarray) -> Self:
        """The task without some of its units (U,) bool."""

    def scored_by(self, score: str) -> Self:
        """The task, made to give a score that it can give on demand; "accuracy@8" of labelled texts."""
        return self

    def for_choice(self) -> Self:
        """What of the task recipes may be chosen on: all but a test part."""
        return self

    @abstractmethod
    def evidence(self, vectors: np.ndarray, rows: Sequence[int]) -> np.ndarray:
        """What is kept of one recipe, (E,) float64; vectors (M,D) as in `_measure`, or float32, to be left alone."""

    @property
    @abstractmethod
    def evidence_size(self) -> int:
        """E."""

    def working_bytes(self, dimensions: int) -> int:
        """About what `evidence` of vectors with so many dimensions takes in memory, beside them."""
        return 32 * len(self.texts()) * dimensions  # eight float32 copies

    @abstractmethod
    def scorer(self, evidence: np.ndarray, score: str) -> Scorer:
        """A function from counts of the units (B,U) to scores (R,B) of recipes whose evidence is (R,E)."""

    def scores(self, evidence: np.ndarray, score: str = "") -> np.ndarray:
        """Scores ×100 (R,) from the evidence (R,E) of some recipes; NaN where it is undefined."""
        return self.scorer(evidence, score or self.score_names[0])(np.ones((1, self.units)))[:, 0]

    def paired(self, evidence: np.ndarray, score: str) -> tuple[np.ndarray, Callable[[np.ndarray], np.ndarray]] | None:
        """Values (R,U) that two recipes may exchange unit by unit, and the score (B,) of such values (B,U).

        None: this score has no test by exchange.
        """
        return None


class TwoTextTask(JudgedTask):
    """Judgements of P pairs of texts, whose evidence is their cosines: `pairs` of (first, second, judgement …)."""

    unit: ClassVar[str] = "pairs"
    pairs: tuple[Any, ...]

    def __len__(self) -> int:
        return len(self.pairs)

    def texts(self) -> list[str]:
        """All first texts, then all second ones: 2P texts, duplicates kept.

        What is fitted on a task (idf, shaping) is fitted on these: on distinct texts a task moves by up to 1.2 points.
        """
        return [pair[0] for pair in self.pairs] + [pair[1] for pair in self.pairs]

    @property
    def units(self) -> int:
        """How many pairs there are."""
        return len(self.pairs)

    evidence_size = units

    def compared(self) -> np.ndarray:
        """Each pair's places in `texts()`, (P,2)."""
        return np.asarray(np.arange(2 * len(self)).reshape(2, -1).T)

    def items(self) -> list[tuple[str, ...]]:
        """The two texts of each pair."""
        return [tuple(pair[:2]) for pair in self.pairs]

    def without(self, left_out: np.ndarray) -> Self:
        """The task without some of its pairs."""
        kept = tuple(pair for pair, gone in zip(self.pairs, left_out, strict=True) if not gone)
        return replace(self, pairs=kept)  # type: ignore[type-var]

    def evidence(self, vectors: np.ndarray, rows: Sequence[int]) -> np.ndarray:
        """The pairs' cosines (P,)."""
        return pair_cosines(vectors, rows, self.compared())


def pair_cosines(vectors: np.ndarray, rows: Sequence[int], pairs: np.ndarray) -> np.ndarray:
    """Cosines (P,) float64 of pairs (P,2) of texts whose vectors are those `rows` of (M,D)."""
    units, places = unit_rows(vectors), np.asarray(rows)[pairs]  # (P,2)
    return np.asarray(np.einsum("pd,pd->p", units[places[:, 0]], units[places[:, 1]]))


def bootstrap(
    task: JudgedTask,
    evidence: np.ndarray,
    score: str = "",
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
    among: np.ndarray | None = None,
) -> np.ndarray:
    """Scores of recipes with evidence (R,E) on resampled units, the same draws for all recipes: (R,resamples).

    Args:
        among: positions of the units that are drawn; all by default.
    """
    scorer = task.scorer(evidence, score or task.score_names[0])
    found = []
    for counts in draws(task.units if among is None else len(among), resamples=resamples, seed=seed):
        if among is not None:
            drawn, counts = counts, np.zeros((len(counts), task.units))
            counts[:, among] = drawn
        found.append(scorer(counts))
    return np.concatenate(found, axis=1)


def scores_of_parts(task: JudgedTask, evidence: np.ndarray, parts: np.ndarray, score: str = "") -> np.ndarray:
    """Scores (R,B) on some of the units each time: parts (B,U) bool; recipe by recipe, as memory goes."""
    counts, name = parts.astype(np.float64), score or task.score_names[0]
    some = max(1, BLOCK_VALUES * 4 // max(evidence.shape[1], 1))
    found = [task.scorer(np.array(evidence[at : at + some]), name)(counts) for at in range(0, len(evidence), some)]
    return np.concatenate(found)


def permutation_p(
    task: JudgedTask, evidence: np.ndarray, score: str = "", *, resamples: int = RESAMPLES, seed: int = 0
) -> float:
    """Two-sided p of "both recipes are alike", whose evidence is (2,E): what they say of a unit changes places.

    NaN where a score is undefined or has no such test; 1 for recipes that judge every unit alike.
    """
    from scipy import stats

    name = score or task.score_names[0]
    made = task.paired(evidence, name) if task.units > 1 else None
    if made is None or not np.isfinite(task.scores(evidence, name)).all():
        return math.nan
    (first, second), scored = made
    if np.array_equal(first, second):
        return 1.0

    def difference(a: np.ndarray, b: np.ndarray, axis: int = -1) -> Any:
        # rounded: sums in another order differ in their last digits, and equal ones must count as equal
        lead = (scored(np.atleast_2d(a)) - scored(np.atleast_2d(b))).round(9)
        return lead if a.ndim > 1 else lead[0]

    test = stats.permutation_test(
        (first, second),
        difference,
        permutation_type="samples",
        vectorized=True,
        n_resamples=resamples,
        batch=max(1, BLOCK_VALUES // task.units),
        rng=np.random.default_rng(seed),
    )
    return float(test.pvalue)


def with_interval(task: JudgedTask, evidence: np.ndarray, score: str) -> dict[str, float]:
    """A score of evidence (E,) as "all", with the 95 % bootstrap interval as "low" and "high"."""
    low, high = interval(bootstrap(task, evidence[None], score)[0])
    return {"all": float(task.scores(evidence[None], score)[0]), "low": low, "high": high}
