"""What is wrong with an encoder or a folder, in words, each with the command that mends it; `essent check`."""

from essent.lazy import needs_torch

with needs_torch(__name__):
    from essent.doctor.checks import CHECKS, diagnose
    from essent.doctor.finding import Check, Diagnosis, Finding

__all__ = [
    "CHECKS",
    "Check",
    "Diagnosis",
    "Finding",
    "diagnose",
]
