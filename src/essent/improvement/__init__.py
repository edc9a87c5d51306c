"""Make the best encoder from a pretrained model and texts within a time budget: `essent improve`."""

from essent._core.lazy import needs_torch

with needs_torch(__name__):
    from essent.improvement.results import Gain, Improved, Output
    from essent.improvement.run import improve

__all__ = ["Gain", "Improved", "Output", "improve"]
