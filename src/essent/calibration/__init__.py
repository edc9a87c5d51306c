"""Calibrated similarity: what a cosine means, as a share of random pairs or as the probability of a match.

No rank changes: both rise strictly with the cosine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from essent.lazy import lazy_door

if TYPE_CHECKING:
    from essent.calibration.calibrating import calibrate, expected_calibration_error
    from essent.calibration.curve import Curve
    from essent.calibration.stored import Calibration

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
        "Calibration": "essent.calibration.stored",
        "Curve": "essent.calibration.curve",
        "calibrate": "essent.calibration.calibrating",
        "expected_calibration_error": "essent.calibration.calibrating",
    },
)
