"""A static recipe as one table: weights and affine shaping are folded into the rows, and a text is their mean.

g(1/n Σ_t u_t h_t) with an affine g(x) = (x − m) M + b is the mean of the rows (u_t h_t − m) M + b. Such a table is
sentence-transformers' StaticEmbedding and can be read by model2vec; encoding is as fast as tokenizing.
"""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from safetensors.numpy import load_file, save_file
from sentence_transformers.base.modules import Normalize
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from tokenizers import Tokenizer

from essent.encoder.pipeline.plan import by_token, weights_by_token
from essent.errors import EssentError, InputError
from essent.recipe.pooling import mix_sources
from essent.recipe.shaping.affine import Affine
from essent.recipe.shaping.base import Normalize as UnitLength
from essent.recipe.tokens.ids import dropped_ids, fast_backend
from essent.recipe.weighting.base import ByToken
from essent.recipe.weighting.frequency import Sif

if TYPE_CHECKING:
    from essent.encoder.pipeline.module import RecipeModule

NEGLIGIBLE = 1e-9  # of the largest weight: a removed token, which counts only in texts without other tokens
STORED = ("float32", "float16", "int8")
HALF = float(np.finfo(np.float16).max)


class NoStockModulesError(EssentError):
    """Error: no standard sentence-transformers modules compute this recipe; the message names the part that differs."""


def folded(module: RecipeModule) -> tuple[np.ndarray, bool]:
    """Fold a recipe on a table of token vectors (essent.model.token_rows) into one table.

    Weights that are scaled to sum 1 in each text (idf) change the length of the vector: they fold when the shaping ends
    in unit length and does not move the origin.

    Returns:
        The rows (V,K) float32 by token id, and whether their mean is scaled to length 1.

    Raises:
        NoStockModulesError: names the part of the recipe that does not fold.
    """
    plan, backbone = module.plan, module.backbone
    if not backbone.only_static or len(plan.frame):
        raise NoStockModulesError("special tokens around a text count in its mean")
    if plan.recipe.reduce != "sum":
        raise NoStockModulesError(f"reduce={plan.recipe.reduce} is not a mean")
    affine, unit = _shaping(module)
    tokens = 1 + max(backbone.tokenizer.get_vocab().values())
    weights, scaled = _weights(module)
    linear = affine is None or bool(np.abs(affine.offset - affine.mean @ affine.matrix).max(initial=0.0) <= 1e-12)
    if (scaled or dropped_ids(backbone.tokenizer) or not weights[:tokens].all()) and not (unit and linear):
        raise NoStockModulesError(
            f"weights={'*'.join(plan.recipe.weights)} are divided by their sum in each text, and the shaping "
            + ("does not end in normalize" if not unit else "moves the origin")
        )
    tables = [plan.rows_of(source, backbone).detach().cpu().double() for source in plan.sources]
    rows = mix_sources(tables, plan.factors).numpy()[:tokens]  # (V,D)
    weights = np.where(weights > 0, weights, NEGLIGIBLE * weights.max(initial=0.0))[:tokens]
    table = rows * weights[:, None]
    if affine is not None:
        table = (table - affine.mean) @ affine.matrix + affine.offset  # (V,K)
    table[dropped_ids(backbone.tokenizer)] = 0.0
    return table.astype(np.float32), unit


def _shaping(module: RecipeModule) -> tuple[Affine | None, bool]:
    steps = module.chain.folded()
    unit = bool(steps) and isinstance(steps[-1], UnitLength)
    inner = steps[:-1] if unit else steps
    if len(inner) > 1 or not all(isinstance(step, Affine) for step in inner):
        raise NoStockModulesError(f"the shaping {' | '.join(module.recipe.shaping)} is not affine")
    return (inner[0] if inner else None), unit


def _weights(module: RecipeModule) -> tuple[np.ndarray, bool]:
    """Return the weight u_t of each token (V,), and whether weights are scaled to sum 1 per text, not divided by n."""
    factors = [factor for factor in module.plan.weightings if factor.name != "uniform"]
    if other := [factor for factor in factors if not isinstance(by_token(factor), ByToken)]:
        raise NoStockModulesError(f"weights={other[0].spec()} is not a fixed weight for each token")
    weights = weights_by_token(factors, module.backbone.vocabulary, module.stats)
    sifs = sum(isinstance(factor, Sif) for factor in factors)
    if sifs > 1 or not all(factor.normalized or isinstance(factor, Sif) for factor in factors):
        raise NoStockModulesError(f"weights={'*'.join(module.recipe.weights)} are not a mean over the tokens")
    return weights, bool(factors) and not sifs


# -- files ------------------------------------------------------------------------------------------------------------


def stock_modules_of(module: RecipeModule) -> list[torch.nn.Module]:
    """Return StaticEmbedding, followed by Normalize if the recipe ends in it.

    Raises:
        NoStockModulesError: the recipe is not a mean of rows.
    """
    table, unit = folded(module)
    return [StaticEmbedding(_limited(module), torch.from_numpy(table)), *([Normalize()] if unit else [])]


def _limited(module: RecipeModule) -> Tokenizer:
    """Return the tokenizer with the encoder's truncation."""
    backbone = module.backbone
    backend: Tokenizer = copy.deepcopy(fast_backend(backbone.tokenizer))
    if backbone.max_seq_length is not None:
        backend.enable_truncation(backbone.max_seq_length, direction=backbone.tokenizer.truncation_side)
    return backend


def is_trivial(module: RecipeModule) -> bool:
    """Whether the folded rows are the model's own: the recipe is their mean, normalized or not."""
    recipe = module.recipe
    return recipe.weights == ("uniform",) and recipe.layers == (("static", 1.0),) and recipe.shaping in ((), UNIT)


UNIT = ("normalize",)


def write_table(module: RecipeModule, table: np.ndarray, unit: bool, path: Path) -> None:
    """Write the table in model2vec's layout to the root: config.json, model.safetensors, tokenizer.json.

    Rows of 16 or 8 bits have weights (1, or the scale of the row), by which both sentence-transformers and model2vec
    multiply, so that only rounding is lost.
    """
    kind = str(getattr(module.backbone.model.config, "stored", "float32")) if is_trivial(module) else "float32"
    save_file(quantised(table, kind), path / "model.safetensors")
    _limited(module).save(str(path / "tokenizer.json"))
    config: dict[str, Any] = {
        "model_type": "model2vec",
        "architectures": ["StaticModel"],
        "hidden_dim": int(table.shape[1]),
        "normalize": unit,
        "max_length": module.backbone.max_seq_length,
        "embedding_dtype": kind,
    }
    (path / "config.json").write_text(json.dumps(config, indent=2), encoding="utf-8")


def read_table(path: Path) -> np.ndarray:
    """Read the table (V,K) float32 that `write_table` wrote."""
    return _unpacked(load_file(path / "model.safetensors"))


def _unpacked(arrays: dict[str, np.ndarray]) -> np.ndarray:
    table: np.ndarray = arrays["embeddings"].astype(np.float32)
    return table * arrays["weights"][:, None] if "weights" in arrays else table


def quantised(table: np.ndarray, kind: str) -> dict[str, np.ndarray]:
    """Convert a table to `embeddings` (float32, float16, or int8 with 255 steps per row) and `weights` (V,) per row.

    Raises:
        InputError: a number beyond the range of float16; the message names its row.
    """
    if kind == "float32":
        return {"embeddings": np.ascontiguousarray(table, np.float32)}
    largest = np.abs(table).max(axis=1)
    if kind == "float16":
        if largest.max() > HALF:
            row = int(largest.argmax())
            raise InputError(
                f"Row {row} of the table contains {largest[row]:g}, but the maximum of float16 is {HALF:g}. Store the "
                "table as float32."
            )
        return {"embeddings": table.astype(np.float16), "weights": np.ones(len(table), np.float32)}
    scale = np.where(largest > 0, largest / 127, 1.0).astype(np.float32)  # (V,)
    return {"embeddings": np.rint(table / scale[:, None]).clip(-127, 127).astype(np.int8), "weights": scale}


def rounded(table: np.ndarray, kind: str) -> np.ndarray:
    """Return the table (V,K) float32 after storing it in the type."""
    return _unpacked(quantised(table, kind))
