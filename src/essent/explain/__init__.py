"""Looks into a model: which tokens matter to it, and which attention heads know."""

from essent.explain.importance import (
    Agreement,
    HeadAgreement,
    Impact,
    backbone_of,
    head_agreement,
    impact_agreement,
    impact_matrix,
)

__all__ = [
    "Agreement",
    "HeadAgreement",
    "Impact",
    "backbone_of",
    "head_agreement",
    "impact_agreement",
    "impact_matrix",
]
