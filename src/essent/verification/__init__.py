"""Is this folder what was saved, and is its encoder healthy: each problem with the command that fixes it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from essent._core.lazy import lazy_door

if TYPE_CHECKING:
    from essent.verification.checks import CHECKS, diagnose
    from essent.verification.finding import Check, Diagnosis, Finding
    from essent.verification.golden import Verification, verify

__all__ = [
    "CHECKS",
    "Check",
    "Diagnosis",
    "Finding",
    "Verification",
    "diagnose",
    "verify",
]

__getattr__, __dir__ = lazy_door(
    __name__,
    {
        "CHECKS": "essent.verification.checks",
        "Check": "essent.verification.finding",
        "Diagnosis": "essent.verification.finding",
        "Finding": "essent.verification.finding",
        "Verification": "essent.verification.golden",
        "diagnose": "essent.verification.checks",
        "verify": "essent.verification.golden",
    },
)
