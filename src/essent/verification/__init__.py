"""Verify saved folders, find problems of models, compare servers with folders."""

from essent.verification.golden import Verification, verify
from essent.verification.report import Problem, Report, check

__all__ = ["Problem", "Report", "Verification", "check", "verify"]
