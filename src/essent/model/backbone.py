"""Tokens to `States`: the file that knows transformers' models.

One pass gives every layer that is asked for and the attention diagonal of every head that is asked for; layers above
the highest one read are not computed, and nothing at all runs for static rows.
"""

from __future__ import annotations

import copy
import inspect
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from essent._core.arithmetic import AUTO, FLOAT32, check_bfloat16, computing
from essent._core.compat import (
    attention_of,
    can_set_attention,
    hidden_states_of,
    let_capture,
    set_attention,
    without_capturing,
)
from essent.errors import ModelError
from essent.model.attention import DIAGONAL, SHORT_ATTENTION, DiagonalRecorder, recorder_in_use
from essent.model.mlm_head import MaskedLMHead
from essent.model.weights import require_rows
from essent.recipe.tokens.ids import Vocabulary
from essent.recipe.types import States, Tokens

LAYER_LISTS = ("layer_types", "mlp_layer_types")  # one entry a layer in some families' configurations
FINAL_NORMS = ("final_norm", "final_layer_norm", "ln_f", "norm")  # applied after the last layer by some families


@dataclass(frozen=True)
class RequiredOutputs:
    """What a pass must give: layers 0…L, the static rows, heads (layer, head) counted from 1."""

    layers: frozenset[int] = frozenset()
    static: bool = False
    attention_heads: frozenset[tuple[int, int]] = frozenset()

    @cached_property
    def depth(self) -> int | None:
        """The highest layer that must run; None when the transformer is not needed at all."""
        return max([*self.layers, *(layer for layer, _ in self.attention_heads)], default=None)

    def __or__(self, other: RequiredOutputs) -> RequiredOutputs:
        return RequiredOutputs(
            self.layers | other.layers, self.static or other.static, self.attention_heads | other.attention_heads
        )


class Backbone(nn.Module):
    """A pretrained transformer and its tokenizer, cut off above the highest layer that is read.

    Args:
        model: a base model (no head) of transformers. Its parameters are shared, it is not changed.
        tokenizer: its fast tokenizer.
        max_seq_length: most tokens of a text, special tokens and template included.
        last: number of layers L that "L" stands for, when `model` has been cut already.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        max_seq_length: int | None = None,
        last: int | None = None,
    ) -> None:
        super().__init__()
        self.last = number_of_layers(model) if last is None else last
        self.model = model
        self.only_static = bool(getattr(model, "only_static", False))  # a table of rows (essent.model.token_rows)
        self.tokenizer = tokenizer
        require_rows(tokenizer, len(self.static_table))
        limits = [limit for limit in (max_seq_length, longest_text(model, tokenizer)) if limit is not None]
        self.max_seq_length: int | None = min(limits, default=None)
        self.template_states: dict[Any, torch.Tensor] = {}  # kept by essent.model.template
        self.mlm_head: MaskedLMHead | None = None  # put there by who loads it
        self.precision = AUTO  # of passes; `compute_in` sets it
        self._route: tuple[int, bool, str] | None = None  # for what attention was routed last, and
        self._is_routed = False  # whether the family lets it be
        self.pads_right = False  # set while essent.engine makes a graph of it, which cannot look at a batch
        self.cut(number_of_layers(model) or None)

    def train(self, mode: bool = True) -> Backbone:
        """Set the mode of training, as in every torch module."""
        if mode:
            self.template_states.clear()  # the model is about to change
        return super().train(mode)

    def __getstate__(self) -> dict[str, Any]:  # for worker processes
        return {**self.__dict__, "_modules": {**self._modules, "model": _mirrored(self.model, {})}}

    def __setstate__(self, state: dict[str, Any]) -> None:  # transformers fills this table when a model is built only
        super().__setstate__(state)
        for module in (m for m in self.model.modules() if isinstance(m, PreTrainedModel)):
            let_capture(module)

    # -- what the model is ------------------------------------------------------------------------------------------

    @property
    def attention_heads(self) -> int:
        """The number of attention heads of a layer."""
        return int(self.model.config.num_attention_heads)

    @property
    def family(self) -> str:
        """The model's type in transformers, such as bert."""
        return str(self.model.config.model_type)

    @property
    def dimensions(self) -> int:
        """The number of dimensions D of a token's state."""
        return int(self.model.config.hidden_size)

    @property
    def static_table(self) -> torch.Tensor:
        """Rows of the input word-embedding table (V,D): no position, no LayerNorm."""
        return torch.as_tensor(self.model.get_input_embeddings().weight)

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """The tokens of the model by their ids."""
        return Vocabulary(self.tokenizer, int(self.static_table.shape[0]))

    @cached_property
    def pad_id(self) -> int:
        """The id that fills batches up."""
        own = len(self.static_table) - 1 if self.only_static else self.tokenizer.pad_token_id  # a row of zeros
        return next((i for i in (own, self.tokenizer.eos_token_id) if i is not None), 0)

    @cached_property
    def position_offset(self) -> int | None:
        """The position id of a text's first token; None when the model takes no position ids (T5)."""
        if "position_ids" not in inspect.signature(self.model.forward).parameters:
            return None
        return first_position(self.model)

    def compute_in(self, precision: str) -> None:
        """Compute passes in a precision from now on; auto is that of the weights.

        Raises:
            EngineError: the device has no such arithmetic.
        """
        check_bfloat16(precision, self.static_table.device.type)
        if precision == FLOAT32 and any(p.dtype != torch.float32 for p in self.model.parameters()):
            self.model = copy.deepcopy(self.model).float()  # somebody else may use the weights
        self.precision = precision
        self.template_states.clear()

    # -- one pass ---------------------------------------------------------------------------------------------------

    def cut(self, depth: int | None) -> None:
        """Drop the layers above `depth` from this backbone; None drops all but the table of token vectors."""
        self.depth = depth
        listed = any(isinstance(getattr(self.model.config, key, None), list) for key in LAYER_LISTS)
        records = getattr(self.model, "_can_record_outputs", None)  # without, as DeBERTa-v2, one layer must stay
        self.top = max(depth or 0, 0 if depth is None or (records and not listed) else 1)
        self.model = truncated(self.model, self.top, self.last)
        if depth is None:
            _keep_only(self.model, self.model.get_input_embeddings())

    @property
    def is_stock(self) -> bool:
        """Whether transformers itself, given the cut model's weights and configuration, computes the same."""
        return self.top == self.last or not self.model.drops_norm

    @property
    def gives_diagonals(self) -> bool:
        """Whether attention diagonals cost hardly anything; elsewhere all of the attention is computed for them."""
        return can_set_attention(self.model)

    def _route_attention(self, for_heads: bool, device: str) -> bool:
        """Route attention through this package's own; False where the family does not use the attention interface.

        It stays in place, as it gives what sdpa gives: switching it back and forth would not be safe when threads
        share the model. Where no heads are wanted it only replaces sdpa of an encoder on a CPU.
        """
        if not can_set_attention(self.model):
            return False
        modules = list(self.model.modules())
        configs = [config for module in modules if (config := getattr(module, "config", None)) is not None]
        causal = any(getattr(module, "is_causal", False) for module in modules)
        for config in configs:
            if for_heads:
                set_attention(config, DIAGONAL)
            elif attention_of(config) == "sdpa" and not causal and device == "cpu":
                set_attention(config, SHORT_ATTENTION)
        return True

    def states(self, tokens: Tokens, required: RequiredOutputs, positions: torch.Tensor | None = None) -> States:
        """Run one batch and keep what is needed; `positions` (B,T) from 0, where they are not the place in the text."""
        hidden: dict[int | str, torch.Tensor] = {}
        if required.static:
            hidden["static"] = nn.functional.embedding(tokens.ids, self.static_table)  # (B,T,D)
        if required.depth is None:
            return States(hidden, {})
        heads, device = required.attention_heads, tokens.ids.device.type
        route = (id(self.model), bool(heads), device)
        if self._route != route:
            self._route, self._is_routed = route, self._route_attention(bool(heads), device)
        recorder = DiagonalRecorder(heads, ~tokens.attention_mask) if heads and self._is_routed else None
        inputs = self._inputs(tokens, required, positions)
        if heads and recorder is None:
            inputs["output_attentions"] = True
        previous = recorder_in_use.set(recorder)
        try:
            with computing(self.precision, device):
                output = self.model(**inputs)
        finally:
            recorder_in_use.reset(previous)
        for layer in required.layers:
            hidden[layer] = output.hidden_states[layer] if layer != self.top else output.last_hidden_state  # (B,T,D)
        if recorder is not None:
            return States(hidden, recorder.diagonals)
        diagonals = {
            (layer, head): output.attentions[layer - 1][:, head - 1]
            .diagonal(dim1=-2, dim2=-1)
            .masked_fill(~tokens.attention_mask, 0.0)  # (B,T)
            for layer, head in heads
        }
        return States(hidden, diagonals)

    def _inputs(self, tokens: Tokens, required: RequiredOutputs, positions: torch.Tensor | None) -> dict[str, Any]:
        """Arguments of the model's forward."""
        inputs: dict[str, Any] = {"input_ids": tokens.ids, "attention_mask": tokens.attention_mask.long()}
        if "use_cache" in inspect.signature(self.model.forward).parameters:
            inputs["use_cache"] = False
        has_padding_first = not self.pads_right and not bool(tokens.attention_mask[:, 0].all())
        if self.position_offset is not None and (has_padding_first or positions is not None):
            if positions is None:
                positions = (tokens.attention_mask.long().cumsum(dim=1) - 1).clamp(min=0)  # (B,T)
            inputs["position_ids"] = positions + self.position_offset
        if inner := sorted(layer for layer in required.layers if layer != self.top):
            # only those layers are kept where the family can choose, all of them otherwise
            inputs["output_hidden_states"] = hidden_states_of(self.model, inner)
        return inputs


# -- shape of transformers' models ----------------------------------------------------------------------------------


def number_of_layers(model: PreTrainedModel) -> int:
    """The number of layers L of a transformer."""
    return int(model.config.num_hidden_layers)


def longest_text(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> int | None:
    """Most tokens the model takes: the lesser of the tokenizer's word and the position table; None without a limit."""
    limit = tokenizer.model_max_length
    limits = [limit] if limit and limit < 10**9 else []
    positions = getattr(model.config, "max_position_embeddings", None)
    if isinstance(positions, int) and positions > 0:
        limits.append(positions - first_position(model))
    return min(limits, default=None)


def first_position(model: PreTrainedModel) -> int:
    """The row of the position table for a text's first token: RoBERTa's positions start after its padding row."""
    embeddings = getattr(getattr(model, "embeddings", None), "position_embeddings", None)
    padding = getattr(embeddings, "padding_idx", None)
    return 0 if padding is None else padding + 1


def find_layers(model: PreTrainedModel) -> tuple[str, ...] | None:
    """Path of attribute names to the list of transformer layers; None where layers share one module (ALBERT)."""
    depth = number_of_layers(model)
    lists: list[list[str]] = [
        name.split(".")
        for name, module in model.named_modules()
        if isinstance(module, nn.ModuleList) and len(module) == depth and depth > 0
    ]
    shortest = min(lists, key=len, default=None)
    return None if shortest is None else tuple(shortest)


def truncated(model: PreTrainedModel, depth: int, last: int) -> PreTrainedModel:
    """A copy of the model that stops after `depth` layers; parameters are shared, the original is untouched.

    Below the model's last layer the family's final norm is left out, so the output is `hidden_states[depth]` of the
    whole model. Poolers are left out in any case: no recipe reads them.

    Raises:
        ModelError: the model's layers cannot be found.
    """
    path = find_layers(model)
    view = _mirrored(model, {})
    for key in (k for k in LAYER_LISTS if isinstance(getattr(view.config, k, None), list)):
        setattr(view.config, key, getattr(view.config, key)[: max(depth, 1)])
    view.config.num_hidden_layers = depth
    if getattr(view, "pooler", None) is not None:
        view.pooler = None
    holder: nn.Module = view
    if path is not None:
        for name in path[:-1]:
            holder = getattr(holder, name)
        if hasattr(holder, "config"):
            holder.config = view.config
        holder._modules[path[-1]] = nn.ModuleList(list(getattr(holder, path[-1]))[:depth])
    elif number_of_layers(model) != depth:
        shared = next((n for n in ("encoder", "transformer") if getattr(view, n, None) is not None), None)
        if shared is None and number_of_layers(model):
            raise ModelError(f"Cannot find the layers of {type(model).__name__}; essent cannot stop at layer {depth}.")
        if shared is not None:
            getattr(view, shared).config = view.config
    norms = [name for name in FINAL_NORMS if isinstance(holder._modules.get(name), nn.Module)]
    view.drops_norm = depth < last and bool(norms)
    if view.drops_norm:
        for name in norms:
            holder._modules[name] = nn.Identity()
    result: PreTrainedModel = view
    return result


def _keep_only(model: nn.Module, table: nn.Module) -> None:
    """Take the weights of all other modules out of a copy that `_mirrored` made."""
    for module in model.modules():
        if module is not table:
            module._parameters, module._buffers = (
                dict.fromkeys(tensors) for tensors in (module._parameters, module._buffers)
            )


def _mirrored(module: nn.Module, copies: dict[int, Any]) -> Any:
    """A copy of a tree of modules with the same parameters, and its own configurations and hooks.

    transformers chooses attention by a configuration that all layers share, and records states by hooks that it puts
    on the layers: on layers that two backbones share they would fire twice. The hooks cannot be pickled either.
    """
    if id(module) not in copies:
        view = copies[id(module)] = copy.copy(module)
        without_capturing(view, module)
        if hasattr(module, "config"):
            view.config = copies.setdefault(id(module.config), copy.deepcopy(module.config))
        view._modules = {
            name: None if child is None else _mirrored(child, copies) for name, child in module._modules.items()
        }
    return copies[id(module)]
