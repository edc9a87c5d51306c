"""The settings of a static encoder's table."""

from __future__ import annotations

from dataclasses import dataclass

FITTED = 0.1  # strength of the fit to sentences, by default


@dataclass(frozen=True)
class Choice:
    """How a table is made of context averages.

    Attributes:
        layers: layers whose states are averaged, as a mix: L, L-1+L, 0+L.
        weights: weights by token, or a product of them: uniform, sif:1e-2, idf, remove.
        ridge: strength λ of the ridge regression that fits the averages to the model's own sentence vectors
           ; 0 or None takes the averages alone.
        shaping: an affine chain, fitted on the corpus's static vectors: centre, abtt:2, whiten:256.
    """

    layers: str = "L"
    weights: str = "uniform"
    ridge: float | None = FITTED
    shaping: str = ""

    def __post_init__(self) -> None:
        if self.ridge == 0:
            object.__setattr__(self, "ridge", None)

    def __str__(self) -> str:
        fit = "no fit" if self.ridge is None else f"ridge {self.ridge:g}"
        return " ".join(
            part
            for part in (f"layers={self.layers} weights={self.weights}, {fit}", self.shaping and f"| {self.shaping}")
            if part
        )


@dataclass(frozen=True)
class TableSettings:
    """What a table holds, whatever its rows are made of.

    Attributes:
        dimensions: dimensions of a row, fewer than the model's; by default as many.
        dtype: how rows are stored: float32, float16 or int8.
        words: the most whole words that are added to the vocabulary.
        expressions: the most expressions of two words that are added to the vocabulary.
        unseen: rows of tokens that the corpus lacks: alone, static, zero or mean (essent.static.gather).
    """

    dimensions: int | None = None
    dtype: str = "float32"
    words: int = 0
    expressions: int = 0
    unseen: str = "alone"
