"""Digests of everything that determines a vector: weights, configuration, tokenizer, recipe, token counts."""

from __future__ import annotations

import hashlib
import json
from threading import Lock
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn

from essent._core.compat import weights_of
from essent._core.machine import BFLOAT16
from essent.recipe.tokens.ids import tokenizer_digest
from essent.recipe.types import CorpusStats

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from essent.model.backbone import Backbone

NOT_COMPUTED = ("_name_or_path", "transformers_version")  # entries of a configuration without effect on vectors
BLOCK = 1024  # 8-byte words per sum
MOST = 64  # cached digests: a grid search has one per depth at which it cuts the model
_digests: dict[str, str] = {}  # by fingerprint, the hash of sums
_lock = Lock()


def key_of(model: str, recipe: str, stats: CorpusStats | None) -> str:
    """Return the cache key of a recipe's rows, from the digests of model and recipe and the token counts."""
    total = hashlib.sha256(f"{model}\n{recipe}\n".encode())
    if stats is not None:
        total.update(str(stats.texts).encode() + stats.document_frequency.tobytes() + stats.count.tobytes())
    return total.hexdigest()[:32]


def digest_of_backbone(backbone: Backbone, *settings: object) -> str:
    """Return the SHA-256 of a backbone's parameters, configuration, tokenizer, maximum length and other settings."""
    config = {key: value for key, value in backbone.model.config.to_dict().items() if key not in NOT_COMPUTED}
    computed = json.dumps(config, sort_keys=True, default=str)
    passes = [BFLOAT16] if backbone.precision == BFLOAT16 else []
    return digest_of(
        backbone, computed, tokenizer_digest(backbone.tokenizer), backbone.max_seq_length, *passes, *settings
    )


def digest_of(model: nn.Module, *settings: object) -> str:
    """Return the SHA-256 of a model's parameters and settings, which distinguishes weights under the same name.

    Every weight is read each time, because torch's version counters miss changes through `.data`. Digests are cached by
    a fingerprint of the weights, which takes a tenth of the time of SHA-256.
    """
    fingerprint = _hashed(model, settings, _sums)
    digest = _digests.get(fingerprint)
    if digest is None:
        digest = _hashed(model, settings, lambda content: [content])
        with _lock:
            if len(_digests) >= MOST:
                _digests.clear()
            _digests[fingerprint] = digest
    return digest


def _hashed(
    model: nn.Module, settings: tuple[object, ...], parts_of: Callable[[np.ndarray], Iterable[np.ndarray]]
) -> str:
    total = hashlib.sha256(repr(settings).encode())
    for name, value in sorted(weights_of(model).items()):
        total.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
        for part in parts_of(value.detach().cpu().contiguous().flatten().view(dtype=torch.uint8).numpy()):
            total.update(part.data)
    return total.hexdigest()


def _sums(content: np.ndarray) -> tuple[np.ndarray, ...]:
    """Return sums of 8-byte words modulo 2^64, across blocks and within blocks, and the remaining bytes.

    A changed byte changes both sums, and so do swapped weights.
    """
    whole = len(content) // (8 * BLOCK) * (8 * BLOCK)
    blocks = content[:whole].view(np.uint64).reshape(-1, BLOCK)
    return blocks.sum(axis=0), blocks.sum(axis=1), content[whole:]
