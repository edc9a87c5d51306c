"""Which table is best: choices tried on judgements, all from one pass over the corpus."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from scipy import sparse

from essent.recipe.tokens.ids import text_ids
from essent.static.distillation import Choice, Material
from essent.static.regress import bag_matrix
from essent.tasks.base import unit_rows

if TYPE_CHECKING:
    from essent.tasks.base import LabeledTask

WEIGHTS = ("uniform", "sif:0.01", "sif:0.001", "idf")
SHAPINGS = ("", "centre", "abtt:1", "abtt:2")
FITS = (0.03, 0.1, 0.3, 1.0)


@dataclass(frozen=True)
class Trial:
    """A choice and its score."""

    choice: Choice
    score: float


def mixes_of(material: Material) -> list[str]:
    """The layer mixes that are tried: every averaged layer alone, the last two, the first and the last."""
    layers, last = sorted(material.contexts.tables), material.contexts.last
    pairs = [(last - 1, last), (0, last)]
    return [*map(str, layers), *(f"{a}+{b}" for a, b in pairs if a in layers and b in layers and a != b)]


def find_choice(material: Material, task: LabeledTask, *, report: Callable[[Trial], None] | None = None) -> list[Trial]:
    """Try layers × weights × shaping without a fit, then strengths of the fit × shaping on the best of them.

    Args:
        task: judgements of any kind; use none that results are reported on.
        report: called with each trial.

    Returns:
        The trials, best first.
    """
    trials: list[Trial] = []
    token_counts = bag_matrix(text_ids(material.tokenizer, task.texts()), material.rows)

    def run(choices: Sequence[Choice]) -> None:
        for choice in choices:
            trial = Trial(choice, _score(material.table(choice), token_counts, task))
            trials.append(trial)
            if report is not None:
                report(trial)

    run(list(_plain(material)))
    if material.vectors is not None:
        best = max(trials, key=lambda trial: trial.score).choice
        run([replace(best, ridge=ridge, shaping=shaping) for ridge in FITS for shaping in SHAPINGS])
    return sorted(trials, key=lambda trial: -trial.score)


def _plain(material: Material) -> Iterator[Choice]:
    for layers in mixes_of(material):
        for weights in WEIGHTS:
            for shaping in SHAPINGS:
                yield Choice(layers, weights, None, shaping)


def _score(table: np.ndarray, token_counts: sparse.csr_matrix, task: LabeledTask) -> float:
    return float(task.score_vectors(unit_rows(token_counts @ table).astype(np.float32)).main_score)
