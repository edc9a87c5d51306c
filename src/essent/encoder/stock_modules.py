"""A recipe as stock modules (the standard modules of sentence-transformers), if they compute it exactly.

template            the tokenizer's post-processor (ids around the text), its normalizer (dot rule, leading space)
layer mix           WeightedLayerPooling, with every hidden state returned
token weights       WordWeights, if they depend only on the token
reduction           Pooling: mean, max, first token, last token, rising weights
affine shaping      one Dense without activation;  unit length: Normalize
static, random      WordEmbeddings instead of the transformer; StaticEmbedding if the whole recipe is a mean of rows

A static recipe is one table if weights and affine shaping fold into the rows: g(1/n Σ_t u_t h_t) with an affine
g(x) = (x − m) M + b is the mean of the rows (u_t h_t − m) M + b. Such a table is sentence-transformers' StaticEmbedding
and can be read by model2vec; encoding is as fast as tokenizing.
"""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from safetensors.numpy import load_file, save_file
from sentence_transformers.base.modules import Dense, Normalize
from sentence_transformers.sentence_transformer.modules import (
    Pooling,
    StaticEmbedding,
    WeightedLayerPooling,
    WordEmbeddings,
    WordWeights,
)
from tokenizers import Regex, Tokenizer, normalizers, processors
from torch import nn
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from essent.encoder.plan import Plan, by_token, weights_by_token
from essent.errors import EssentError, InputError
from essent.recipe.layers import format_mix
from essent.recipe.pooling import mix_sources
from essent.recipe.shaping.base import Affine
from essent.recipe.shaping.base import Normalize as UnitLength
from essent.recipe.tokens import Frame, dropped_ids, fast_backend
from essent.recipe.weighting.base import ByToken, Weighting
from essent.recipe.weighting.methods import Sif

if TYPE_CHECKING:
    from essent.encoder.module import RecipeModule

POOLING_OF = {"cls": "cls", "last": "lasttoken", "position": "weightedmean", "uniform": "mean"}
DOT_RULE = Regex(r"(?<=[^.?\"'])\z")  # the end of a text that does not end in . ? " '
QUESTION_MARK = Regex(r"\?\z")
# WordWeights divides by the sum of the weights, at least 1e-9. Weights are therefore scaled up, and a removed token
# has 1e-18 of the largest: negligible beside others, and the plain mean in texts without other tokens.
LARGEST, NEGLIGIBLE = 1e12, 1e-6
REMOVED_WEIGHT = 1e-9  # of the largest weight: a removed token, which counts only in texts without other tokens
STORED = ("float32", "float16", "int8")
HALF = float(np.finfo(np.float16).max)
UNIT = ("normalize",)
LONG = 10**6  # the default limit of WordEmbeddings


class NoStockModulesError(EssentError):
    """Error: no standard sentence-transformers modules compute this recipe; the message names the part that differs."""


def stock_modules(module: RecipeModule) -> list[nn.Module]:
    """Return the stock modules after the Transformer; for static recipes WordEmbeddings and the modules after it.

    Raises:
        NoStockModulesError: names the part of the recipe without a stock module.
    """
    table = folded(module)
    if table is not None:
        rows, unit = table
        return [StaticEmbedding(_limited(module), torch.from_numpy(rows)), *([Normalize()] if unit else [])]
    return [*_source_modules(module), *_pooling_modules(module), *_shaping_modules(module)]


# -- sources ----------------------------------------------------------------------------------------------------------


def _source_modules(module: RecipeModule) -> list[nn.Module]:
    plan, backbone = module.plan, module.backbone
    _check_frames(plan)
    if plan.reads_mlm_head:
        raise NoStockModulesError(f"layers={format_mix(plan.recipe.layers)} runs the model's masked-LM head")
    if any(source.debiased for source in plan.sources):
        raise NoStockModulesError("template denoising (L-bias) runs the model a second time")
    if plan.required.attention_heads or plan.required.attention_states:
        fields = f"layers={format_mix(plan.recipe.layers)} weights={'*'.join(plan.recipe.weights)}"
        raise NoStockModulesError(f"{fields} reads attention")
    if plan.is_static:
        if len(plan.sources) > 1 or plan.factors != [1.0]:
            raise NoStockModulesError("several tables are mixed")
        rows = plan.rows_of(plan.sources[0], backbone)
        tokenizer = framed_tokenizer(backbone.tokenizer, plan.frame)
        tokenizer.model_max_length = int(1e30)  # rows have no positions: texts of any length
        limit = (backbone.max_seq_length if backbone.only_static else None) or LONG
        return [WordEmbeddings(tokenizer, rows.detach().float().cpu().clone(), max_seq_length=limit)]
    layers = [source.key for source in plan.sources]
    if not all(isinstance(layer, int) for layer in layers):
        raise NoStockModulesError("token tables and layers are mixed")
    if not backbone.is_stock:
        raise NoStockModulesError(f"a {backbone.family} that stops at layer {backbone.depth} has no final norm")
    if layers == [backbone.top] and plan.factors == [1.0]:
        return []
    if abs(sum(plan.factors) - 1.0) > 1e-9:
        raise NoStockModulesError(f"the layer weights sum to {sum(plan.factors):g}, but WeightedLayerPooling's to 1")
    weights = torch.zeros(backbone.top + 1)
    for source, factor in zip(plan.sources, plan.factors, strict=True):
        weights[source.layer] += factor
    start = int(weights.nonzero()[0])
    return [WeightedLayerPooling(backbone.dimensions, backbone.top, start, nn.Parameter(weights[start:].clone()))]


def _check_frames(plan: Plan) -> None:
    if len(plan.frames) > 1 or plan.frame.between is not None:
        raise NoStockModulesError("its template repeats the text, or it adds several templates")
    if plan.frame.template:
        raise NoStockModulesError(
            "its tokenizer may merge the text with the template; with {tokens} in the place of {text} it cannot"
        )


# -- weights and reduction --------------------------------------------------------------------------------------------


def _pooling_modules(module: RecipeModule) -> list[nn.Module]:
    plan = module.plan
    width = plan.width
    factors = [w for w in plan.weightings if w.name != "uniform"]
    dropped = dropped_ids(module.backbone.tokenizer)
    if dropped and plan.recipe.reduce != "sum":
        raise NoStockModulesError(f"reduce={plan.recipe.reduce} would count tokens that are removed from every text")
    if plan.recipe.reduce == "max" and not factors:
        return [Pooling(width, "max")]
    if plan.recipe.reduce != "sum":
        raise NoStockModulesError(f"no standard module computes reduce={plan.recipe.reduce}")
    if not factors and not dropped:
        return [Pooling(width, "mean")]
    if len(factors) == 1 and factors[0].name in POOLING_OF and not dropped:
        return [Pooling(width, POOLING_OF[factors[0].name])]
    return [_word_weights(module, factors), Pooling(width, "mean")]


def _word_weights(module: RecipeModule, factors: list[Weighting]) -> WordWeights:
    vocabulary = module.backbone.vocabulary
    factors = [factor if module.recipe.template is not None else by_token(factor) for factor in factors]
    if other := [factor for factor in factors if not isinstance(factor, ByToken) or not factor.normalized]:
        raise NoStockModulesError(f"weights={other[0].spec()} is not a fixed weight for each token")
    table = weights_by_token(factors, vocabulary, module.stats)  # (V,)
    table[dropped_ids(module.backbone.tokenizer)] = 0.0
    largest = float(table.max())
    scaled = np.where(table > 0, table / largest * LARGEST, NEGLIGIBLE) if largest > 0 else np.ones_like(table)
    # WordWeights finds weights by name, and names can repeat in padded tables: number them
    names = [str(index) for index in range(len(vocabulary))]
    return WordWeights(names, dict(zip(names, scaled.tolist(), strict=True)))


# -- shaping ----------------------------------------------------------------------------------------------------------


def _shaping_modules(module: RecipeModule) -> list[nn.Module]:
    modules: list[nn.Module] = []
    for step in module.chain.folded():
        if isinstance(step, Affine):
            matrix = step.matrix  # (D,K)
            bias = step.offset - step.mean @ matrix  # (K,)
            dense = Dense(matrix.shape[0], matrix.shape[1], bias=True, activation_function=None)
            dense.linear.weight = nn.Parameter(torch.from_numpy(matrix.T.copy()).float())
            dense.linear.bias = nn.Parameter(torch.from_numpy(bias).float())
            modules.append(dense)
        elif isinstance(step, UnitLength):
            modules.append(Normalize())
        else:
            raise NoStockModulesError(f"the shaping step {step.spec()!r} is not affine")
    return modules


# -- tokenizer --------------------------------------------------------------------------------------------------------


def framed_tokenizer(tokenizer: PreTrainedTokenizerBase, frame: Frame) -> PreTrainedTokenizerBase:
    """Return a copy of the tokenizer that adds the frame to every text, and truncates the text, not the frame.

    A tokenizer without a pad token (GPT-2, Llama) uses its end-of-text token: sentence-transformers pads batches.
    """
    # without a template, its own special tokens are the whole frame
    framed = _with_frame(tokenizer, frame) if frame.plain_text else copy.deepcopy(tokenizer)
    if framed.pad_token is None:
        framed.pad_token = framed.eos_token or framed.unk_token
    return framed


def _with_frame(tokenizer: PreTrainedTokenizerBase, frame: Frame) -> PreTrainedTokenizerBase:
    backend = copy.deepcopy(fast_backend(tokenizer))
    sides = [(name, ids) for name, ids in (("before", frame.before), ("after", frame.after)) if ids]
    pieces = [
        {"id": name, "ids": list(ids), "tokens": [str(backend.id_to_token(i)) for i in ids]} for name, ids in sides
    ]
    single = [*(["before"] if frame.before else []), "$A", *(["after"] if frame.after else [])]
    template = processors.TemplateProcessing(single=single, special_tokens=pieces)
    # a byte-level post-processor only corrects offsets; the template replaces it like any other
    backend.post_processor = template
    steps: list[Any] = [normalizers.Replace(DOT_RULE, ".")] if frame.dot_rule else []
    steps += [normalizers.Replace('"', "'"), normalizers.Replace(QUESTION_MARK, ".")] if frame.quote_rule else []
    steps += [normalizers.Prepend(" ")] if frame.space else []
    steps += [backend.normalizer] if backend.normalizer is not None else []
    backend.normalizer = normalizers.Sequence(steps)
    copied = {
        key: getattr(tokenizer, key)
        for key in ("padding_side", "truncation_side", "model_max_length", "model_input_names")
    }
    # special tokens within a text are plain characters: otherwise the normalizer runs on each part between them
    copied["split_special_tokens"] = True
    return PreTrainedTokenizerFast(tokenizer_object=backend, **copied, **tokenizer.special_tokens_map)


# -- a static recipe as one table -----------------------------------------------------------------------------------


def folded(module: RecipeModule) -> tuple[np.ndarray, bool] | None:
    """Fold a recipe on a table of token vectors (essent.model.token_rows) into one table.

    Weights that are scaled to sum 1 in each text (idf) change the length of the vector: they fold when the shaping ends
    in unit length and does not move the origin.

    Returns:
        The rows (V,K) float32 by token id, and whether their mean is scaled to length 1; None if the recipe is no mean
        of rows.
    """
    plan, backbone = module.plan, module.backbone
    steps = module.chain.folded()
    unit = bool(steps) and isinstance(steps[-1], UnitLength)
    affine = [step for step in steps[: len(steps) - unit] if isinstance(step, Affine)]
    factors = [factor for factor in plan.weightings if factor.name != "uniform"]
    sifs = [factor for factor in factors if isinstance(factor, Sif)]  # divided by the number of tokens
    is_mean = (
        backbone.only_static
        and not len(plan.frame)  # special tokens around a text count in its mean
        and plan.recipe.reduce == "sum"
        and len(affine) == len(steps) - unit <= 1
        and len(sifs) <= 1
        and all(isinstance(by_token(f), ByToken) and (f.normalized or f in sifs) for f in factors)
    )
    if not is_mean:
        return None
    tokens = 1 + max(backbone.tokenizer.get_vocab().values())
    weights = weights_by_token(factors, backbone.vocabulary, module.stats)[:tokens]  # (V,)
    dropped = dropped_ids(backbone.tokenizer)
    scaled = bool(factors) and not sifs  # to sum 1 in each text
    linear = all(np.abs(step.offset - step.mean @ step.matrix).max(initial=0.0) <= 1e-12 for step in affine)
    if (scaled or dropped or not weights.all()) and not (unit and linear):
        return None
    tables = [plan.rows_of(source, backbone).detach().cpu().double() for source in plan.sources]
    rows = mix_sources(tables, plan.factors).numpy()[:tokens]  # (V,D)
    table = rows * np.where(weights > 0, weights, REMOVED_WEIGHT * weights.max(initial=0.0))[:, None]
    for step in affine:
        table = (table - step.mean) @ step.matrix + step.offset  # (V,K)
    table[dropped] = 0.0
    return table.astype(np.float32), unit


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
