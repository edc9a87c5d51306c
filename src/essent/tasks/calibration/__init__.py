"""Calibrated similarity: what a cosine means, as a share of random pairs or as the probability of a match.

No rank changes: both rise strictly with the cosine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from essent._core.lazy import lazy_door

if TYPE_CHECKING:
    from essent.tasks.calibration.calibrating import calibrate, expected_calibration_error
    from essent.tasks.calibration.curve import Curve
    from essent.tasks.calibration.stored import Calibration

__all__ = [
    "Calibration",
    "Curve",
    "calibrate",
    "expected_calibration_error",
]

# who loads a static encoder reads a calibration, and needs neither tasks nor scikit-learn
__getattr__, __dir__ = lazy_door(
    __name__,
    {
        "Calibration": "essent.tasks.calibration.stored",
        "Curve": "essent.tasks.calibration.curve",
        "calibrate": "essent.tasks.calibration.calibrating",
        "expected_calibration_error": "essent.tasks.calibration.calibrating",
    },
)
