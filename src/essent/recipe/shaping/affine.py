"""Affine maps: what centring, z-scores, whitening and all-but-the-top all are, and why a chain of them is one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from essent.errors import InputError


@dataclass(frozen=True)
class Affine:
    """y = (x − mean) · matrix + offset, float64: `mean` (D,), `matrix` (D,K), `offset` (K,)."""

    mean: np.ndarray
    matrix: np.ndarray
    offset: np.ndarray

    @classmethod
    def of(cls, mean: np.ndarray, matrix: np.ndarray) -> Affine:
        """The map without an offset."""
        return cls(mean, matrix, np.zeros(matrix.shape[1]))

    def followed_by(self, following: Affine) -> Affine:
        """One map that does this one, then the following."""
        offset = (self.offset - following.mean) @ following.matrix + following.offset  # (K,)
        return Affine(self.mean, self.matrix @ following.matrix, offset)

    def module(self) -> nn.Module:
        """The map for tensors."""
        return AffineModule(self)


class Fixed(nn.Module):
    """A module whose arrays follow `.to(device)` but keep their type: `.half()` must not round what was fitted."""

    def _apply(self, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> Any:
        def moved(tensor: torch.Tensor) -> torch.Tensor:
            changed = fn(tensor)
            return changed if changed.dtype == tensor.dtype else tensor.to(changed.device)

        return super()._apply(moved, recurse)


class AffineModule(Fixed):
    """Applies an Affine to (B,D) tensors, half types in float32; its arrays are buffers."""

    mean: torch.Tensor
    matrix: torch.Tensor  # (D,K), or its diagonal (D,)
    offset: torch.Tensor

    def __init__(self, affine: Affine) -> None:
        super().__init__()
        self.register_buffer("mean", torch.from_numpy(affine.mean.copy()))
        self.register_buffer("matrix", torch.from_numpy(_diagonal(affine.matrix).copy()))
        self.register_buffer("offset", torch.from_numpy(affine.offset.copy()))

    def forward(self, vectors: torch.Tensor) -> torch.Tensor:
        """Map vectors (…,D) to (…,K) by the matrix and the offset."""
        check_width(vectors, self.mean.shape[0])
        kind = torch.float64 if vectors.dtype == torch.float64 else torch.float32
        centred = vectors.to(kind) - self.mean.to(kind)  # (B,D)
        matrix = self.matrix.to(kind)
        turned = centred * matrix if matrix.ndim == 1 else centred @ matrix
        return (turned + self.offset.to(kind)).to(vectors.dtype)  # (B,K)


def _diagonal(matrix: np.ndarray) -> np.ndarray:
    """The diagonal of a matrix that has nothing else, as those of centring and z-scores; any other matrix unchanged."""
    diagonal = np.diag(matrix)
    alone = matrix.shape[0] == matrix.shape[1] and np.count_nonzero(matrix) == np.count_nonzero(diagonal)
    return diagonal if alone else matrix


def check_width(vectors: torch.Tensor, dimensions: int) -> None:
    """Refuse vectors of another width than the fit saw."""
    if vectors.ndim != 2 or vectors.shape[1] != dimensions:
        raise InputError(
            f"The shaping was fitted on vectors of {dimensions} dimensions, shape (N,{dimensions}); "
            f"got {tuple(vectors.shape)}."
        )
