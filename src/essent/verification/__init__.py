"""Is this folder what was saved, is its encoder healthy, does that server give the same vectors."""

from essent.verification.golden import Verification, verify
from essent.verification.report import Problem, Report, check

__all__ = ["Problem", "Report", "Verification", "check", "verify"]
