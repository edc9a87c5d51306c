"""The contrastive objectives, as rows, and their loss as a pure function of vectors.

    ℓ_i = − log [ exp(cos(e_i, e'_i)/τ) / Σ_j ( exp(cos(e_i, e'_j)/τ) + exp(cos(e_i, n_j)/τ) ) ]

e_i is text i under one view, e'_i its positive under the same or another view, n_j the hard negative of text j where
there are any. With denoising e_i = h_i − ĥ_i: the template's own vector is taken off first.

Source: SimCSE (Gao et al. 2021, eq. 1 and 5); PromptBERT (Jiang et al. 2022, 4.3, eq. 4, Table 8).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from essent._core.registry import did_you_mean
from essent.errors import InputError, UnknownNameError

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Objective:
    """Where the positive of a text comes from.

    Attributes:
        name: of the row.
        templates: how many it needs: 0, none; 1, both views under it, which differ by dropout; 2, one for each view.
        denoised: whether each view's template bias is taken off.
        about: one line.
        source: paper and section.
    """

    name: str
    templates: int
    denoised: bool
    about: str
    source: str


OBJECTIVES: dict[str, Objective] = {
    row.name: row
    for row in (
        Objective("simcse", 0, False, "no template, two dropout views", "SimCSE 3"),
        Objective("same-template", 1, False, "one template, two dropout views", "PromptBERT Table 8"),
        Objective("different-templates", 2, False, "a template for each view", "PromptBERT Table 8"),
        Objective(
            "different-templates-denoised", 2, True, "a template for each view, less its bias", "PromptBERT 4.3, eq. 4"
        ),
        Objective("same-template-denoised", 1, True, "one template less its bias; for pairs", "PromptBERT App. B"),
    )
}


def find_objective(name: str) -> Objective:
    """The row of that name.

    Raises:
        UnknownNameError: no such objective; says the nearest.
    """
    if name not in OBJECTIVES:
        raise UnknownNameError(f"Unknown training objective {name!r}. {did_you_mean(name, list(OBJECTIVES))}")
    return OBJECTIVES[name]


def info_nce(
    anchors: torch.Tensor, positives: torch.Tensor, negatives: torch.Tensor | None = None, *, temperature: float = 0.05
) -> torch.Tensor:
    """InfoNCE over the negatives of a batch: the mean of ℓ_i, a scalar.

    Args:
        anchors: (B,D). A zero vector has cosine 0 with everything.
        positives: (B,D), row i that of anchor i; the other rows are its negatives.
        negatives: (B,D) hard negatives, each a negative of every anchor.
        temperature: τ.

    Raises:
        InputError: other shapes.
    """
    import torch
    from torch.nn import functional

    for name, vectors in (("positives", positives), ("negatives", negatives)):
        if vectors is not None and vectors.shape != anchors.shape:
            raise InputError(f"{name} must have the anchors' shape {tuple(anchors.shape)}, not {tuple(vectors.shape)}.")
    if anchors.ndim != 2 or not len(anchors):
        raise InputError(f"anchors must be (B,D) with at least one row, not {tuple(anchors.shape)}.")
    others = positives if negatives is None else torch.cat([positives, negatives])  # (B,D) or (2B,D)
    with torch.autocast(anchors.device.type, enabled=False):  # cosines of 16 bits have three digits
        exact = torch.promote_types(anchors.dtype, torch.float32)
        units = functional.normalize(anchors.to(exact), dim=1)  # (B,D)
        cosines = units @ functional.normalize(others.to(exact), dim=1).T  # (B,B) or (B,2B)
        return functional.cross_entropy(cosines / temperature, torch.arange(len(anchors), device=anchors.device))


def denoised_info_nce(
    first: torch.Tensor,
    first_bias: torch.Tensor,
    second: torch.Tensor,
    second_bias: torch.Tensor,
    *,
    temperature: float = 0.05,
) -> torch.Tensor:
    """Equation 4 of PromptBERT: InfoNCE between h − ĥ under one template and h' − ĥ' under another.

    Args:
        first, second: h and h' (B,D), the same texts under the two templates.
        first_bias, second_bias: ĥ and ĥ' (B,D), the templates alone, each at the length of its text.
    """
    return info_nce(first - first_bias, second - second_bias, temperature=temperature)
