"""A recipe as stock modules (the standard modules of sentence-transformers), if they compute it exactly.

template            the tokenizer's post-processor (ids around the text), its normalizer (dot rule, leading space)
layer mix           WeightedLayerPooling, with every hidden state returned
token weights       WordWeights, if they depend only on the token
reduction           Pooling: mean, max, first token, last token, rising weights
affine shaping      one Dense without activation;  unit length: Normalize
static, random      WordEmbeddings instead of the transformer; StaticEmbedding if the whole recipe is a mean of rows
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from sentence_transformers.base.modules import Dense, Normalize
from sentence_transformers.sentence_transformer.modules import (
    Pooling,
    WeightedLayerPooling,
    WordEmbeddings,
    WordWeights,
)
from tokenizers import Regex, normalizers, processors
from torch import nn
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from essent.encoder.pipeline.plan import Plan, by_token, weights_by_token
from essent.encoder.saving.static_table import NoStockModulesError, stock_modules_of
from essent.model.token_rows import LONG
from essent.recipe.shaping.affine import Affine
from essent.recipe.shaping.base import Normalize as UnitLength
from essent.recipe.sources.layers import format_mix
from essent.recipe.tokens.ids import Frame, dropped_ids, fast_backend
from essent.recipe.weighting.base import ByToken, Weighting

if TYPE_CHECKING:
    from essent.encoder.pipeline.module import RecipeModule

POOLING_OF = {"cls": "cls", "last": "lasttoken", "position": "weightedmean", "uniform": "mean"}
DOT_RULE = Regex(r"(?<=[^.?\"'])\z")  # the end of a text that does not end in . ? " '
QUESTION_MARK = Regex(r"\?\z")
# WordWeights divides by the sum of the weights, at least 1e-9. Weights are therefore scaled up, and a removed token
# has 1e-18 of the largest: negligible beside others, and the plain mean in texts without other tokens.
LARGEST, NEGLIGIBLE = 1e12, 1e-6


def stock_modules(module: RecipeModule) -> list[nn.Module]:
    """Return the stock modules after the Transformer; for static recipes WordEmbeddings and the modules after it.

    Raises:
        NoStockModulesError: names the part of the recipe without a stock module.
    """
    try:
        return stock_modules_of(module)
    except NoStockModulesError:  # the whole recipe is not a mean of rows: convert its parts
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
