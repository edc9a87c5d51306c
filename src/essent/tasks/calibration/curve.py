"""A curve from cosines to numbers from 0 to 1 that keeps every rank."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

EDGE = 1 + 1e-5  # cosines of float32 vectors leave [-1, 1] by rounding, though not as far
LINEAR = 1e-6  # the cosine's own part in every value: cosines 1e-9 apart stay apart where a curve is flat


@dataclass(frozen=True)
class Curve:
    """A strictly increasing function of the cosine: straight lines between knots, and a millionth of the cosine itself.

    Cosines closer than 1e-9, which vectors in float32 cannot tell apart, may become equal; no two change places.

    Attributes:
        cosines: of the knots (K,), increasing, from -EDGE to EDGE.
        values: at the knots (K,), in [0, 1], never decreasing.
    """

    cosines: tuple[float, ...]
    values: tuple[float, ...]

    def __call__(self, cosines: Any) -> np.ndarray:
        """The values (float64, of the same shape), in (0, 1)."""
        at = np.clip(np.asarray(cosines, dtype=np.float64), -EDGE, EDGE)
        x, y = np.asarray(self.cosines), np.asarray(self.values)
        left = np.clip(np.searchsorted(x, at, side="right") - 1, 0, len(x) - 2)
        slope = (y[left + 1] - y[left]) / (x[left + 1] - x[left])
        # the product may pass the next knot's value by rounding, and would then stand above what follows it
        line = np.minimum(y[left] + slope * (at - x[left]), y[left + 1])
        found: np.ndarray = (1 - LINEAR) * line + LINEAR * (at / EDGE + 1) / 2
        return found
