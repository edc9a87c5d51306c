"""Digests of everything that determines a vector: weights, configuration, tokenizer, recipe, token counts."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn

from essent._core.compat import weights_of
from essent._core.machine import BFLOAT16
from essent.recipe.tokens.ids import tokenizer_digest
from essent.recipe.types import CorpusStats

if TYPE_CHECKING:
    from essent.model.backbone import Backbone

NOT_COMPUTED = ("_name_or_path", "transformers_version")  # entries of a configuration without effect on vectors
BLOCK = 1024  # 8-byte words per sum


def key_of(model: str, recipe: str, stats: CorpusStats | None) -> str:
    """Return the cache key of a recipe's rows, from the digests of model and recipe and the token counts."""
    total = hashlib.sha256(f"{model}\n{recipe}\n".encode())
    if stats is not None:
        total.update(str(stats.texts).encode() + stats.document_frequency.tobytes() + stats.count.tobytes())
    return total.hexdigest()[:32]


def digest_of_backbone(backbone: Backbone, *settings: object) -> str:
    """Return the digest of a backbone's parameters, configuration, tokenizer, maximum length and other settings."""
    config = {key: value for key, value in backbone.model.config.to_dict().items() if key not in NOT_COMPUTED}
    computed = json.dumps(config, sort_keys=True, default=str)
    passes = [BFLOAT16] if backbone.precision == BFLOAT16 else []
    return digest_of(
        backbone, computed, tokenizer_digest(backbone.tokenizer), backbone.max_seq_length, *passes, *settings
    )


def digest_of(model: nn.Module, *settings: object) -> str:
    """Return a digest of a model's parameters and settings, which distinguishes weights under the same name.

    Every weight is read each time, because torch's version counters miss changes through `.data`. Of each weight, the
    digest contains the sums of its 8-byte words modulo 2^64, across blocks and within blocks, which take a tenth of the
    time of SHA-256. A changed byte changes both sums, and so do swapped weights.
    """
    total = hashlib.sha256(repr(settings).encode())
    for name, value in sorted(weights_of(model).items()):
        total.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
        content = value.detach().cpu().contiguous().flatten().view(dtype=torch.uint8).numpy()
        whole = len(content) // (8 * BLOCK) * (8 * BLOCK)
        blocks = content[:whole].view(np.uint64).reshape(-1, BLOCK)
        for part in (blocks.sum(axis=0), blocks.sum(axis=1), content[whole:]):
            total.update(part.data)
    return total.hexdigest()
