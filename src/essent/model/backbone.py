"""The transformer of an encoder: from `Tokens` to `States`. Most code specific to transformers' models is here.

One pass returns all required layers and attention diagonals. Layers above the highest required one are not computed,
and static rows need no pass.
"""

from __future__ import annotations

import copy
import inspect
from functools import cached_property
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from essent._core.compat import (
    attention_of,
    cache_argument,
    can_set_attention,
    hidden_states_of,
    let_capture,
    own_hooks,
    set_attention,
)
from essent._core.machine import AUTO, FLOAT32, check_bfloat16
from essent.errors import ModelError
from essent.model.attention import (
    DIAGONAL,
    PROJECTED,
    SHORT_ATTENTION,
    AttentionRecorder,
    recorder_in_use,
    watch_projections,
)
from essent.model.capabilities import is_causal
from essent.model.computing import computing
from essent.model.mlm_head import MaskedLMHead
from essent.model.weights import in_float32, require_rows
from essent.recipe.tokens import Vocabulary
from essent.recipe.types import Hidden, RequiredOutputs, States, Tokens

LAYER_LISTS = ("layer_types", "mlp_layer_types")  # one entry per layer in some families' configurations
MIN_PREFIX = 3  # tokens that are worth a cache of their keys and values
FINAL_NORMS = ("final_norm", "final_layer_norm", "ln_f", "norm")  # applied after the last layer by some families


class Backbone(nn.Module):
    """A pretrained transformer and its tokenizer, truncated above the highest required layer.

    Args:
        model: a base model (no head) of transformers. Its parameters are shared; the model is not modified.
        tokenizer: its fast tokenizer.
        max_seq_length: maximum number of tokens per text, special tokens and template included.
        last: number of layers L that "L" stands for, if `model` is already truncated.
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
        self.template_states: dict[Any, torch.Tensor] = {}  # cache of essent.model.template
        self.prefixes: dict[Any, Any] = {}  # the model's outputs for the ids before the text
        self.register_load_state_dict_post_hook(_forget_states)
        self.mlm_head: MaskedLMHead | None = None  # set by essent.model.loading
        self.output_moments: Any = None  # of the output embedding; see essent.model.mlm_head
        self.precision = AUTO  # of passes; `compute_in` sets it
        self._route: tuple[int, bool, str] | None = None  # (model, recorded, device) of the last attention routing
        self._is_routed = False  # whether the model family supports routing
        self.pads_right = False  # set while essent.engine traces a graph, which cannot read values of a batch
        self.cut(None if self.only_static else number_of_layers(model))

    def train(self, mode: bool = True) -> Backbone:
        """Set training mode, as in every torch module."""
        if mode:
            self.forget_states()  # training changes the weights
        return super().train(mode)

    def forget_states(self) -> None:
        """Forget the cached states of templates, which depend on the weights."""
        self.template_states.clear()
        self.prefixes.clear()

    def __getstate__(self) -> dict[str, Any]:  # for worker processes
        modules = {**self._modules, "model": _mirrored(self.model, {})}
        return {**self.__dict__, "_modules": modules, "prefixes": {}}

    def __setstate__(self, state: dict[str, Any]) -> None:  # transformers fills its capture table only in __init__
        super().__setstate__(state)
        for module in (m for m in self.model.modules() if isinstance(m, PreTrainedModel)):
            let_capture(module)

    # -- properties of the model ------------------------------------------------------------------------------------

    @property
    def attention_heads(self) -> int:
        """Number of attention heads per layer."""
        return int(self.model.config.num_attention_heads)

    @property
    def family(self) -> str:
        """Model type in transformers, such as "bert"."""
        return str(self.model.config.model_type)

    @property
    def dimensions(self) -> int:
        """Number of dimensions D of a hidden state."""
        return int(self.model.config.hidden_size)

    @property
    def static_table(self) -> torch.Tensor:
        """Input word-embedding table (V,D), without positions and LayerNorm."""
        return torch.as_tensor(self.model.get_input_embeddings().weight)

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """Tokens of the model by id."""
        return Vocabulary(self.tokenizer, int(self.static_table.shape[0]))

    @cached_property
    def pad_id(self) -> int:
        """Id that pads batches."""
        own = len(self.static_table) - 1 if self.only_static else self.tokenizer.pad_token_id  # a row of zeros
        return next((i for i in (own, self.tokenizer.eos_token_id) if i is not None), 0)

    @cached_property
    def cache_argument(self) -> str:
        """Name of the model's argument for keys and values of earlier tokens; "" if they cannot be reused."""
        return cache_argument(self.model) if is_causal(self.model.config) else ""

    @cached_property
    def position_offset(self) -> int | None:
        """Position id of the first token of a text; None if the model has no position ids (T5)."""
        if "position_ids" not in inspect.signature(self.model.forward).parameters:
            return None
        return first_position(self.model)

    def compute_in(self, precision: str) -> None:
        """Set the precision of passes; "auto" is that of the weights.

        Raises:
            EngineError: the device does not support the precision.
        """
        check_bfloat16(precision, self.static_table.device.type)
        if precision == FLOAT32 and any(p.dtype != torch.float32 for p in self.model.parameters()):
            self.model = in_float32(self.model)
        self.precision = precision
        self.forget_states()

    # -- one pass ---------------------------------------------------------------------------------------------------

    def cut(self, depth: int | None) -> None:
        """Drop the layers above `depth` from this backbone; None retains only the table of token vectors."""
        self.forget_states()
        self.depth = depth
        listed = any(isinstance(getattr(self.model.config, key, None), list) for key in LAYER_LISTS)
        records = getattr(self.model, "_can_record_outputs", None)  # families without it (DeBERTa-v2) need one layer
        self.top = max(depth or 0, 0 if depth is None or (records and not listed) else 1)
        self.model = truncated(self.model, self.top, self.last)
        if depth is None:
            _keep_only(self.model, self.model.get_input_embeddings())

    @property
    def is_stock(self) -> bool:
        """Whether transformers computes the same from the truncated model's weights and configuration."""
        return self.top == self.last or not self.model.drops_norm

    def _route_attention(self, for_heads: bool, device: str) -> bool:
        """Route attention through `essent.model.attention`; return False if the family has no attention interface.

        The route remains set, since it computes the same as sdpa: switching back and forth is not safe when threads
        share the model. Without heads it replaces only the sdpa of an encoder on a CPU.
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
        """Run one batch and return the required states.

        Args:
            positions: (B,T), counted from 0; by default the position of each token in its text.
        """
        hidden: Hidden = {}
        if required.static:
            hidden["static"] = nn.functional.embedding(tokens.ids, self.static_table)  # (B,T,D)
        if required.depth is None:
            return States(hidden, {})
        heads, device = required.attention_heads, tokens.ids.device.type
        records = bool(heads or required.attention_states)
        route = (id(self.model), records, device)
        if self._route != route:
            self._route, self._is_routed = route, self._route_attention(records, device)
        recorder = None
        if records and self._is_routed:
            recorder = AttentionRecorder(heads, ~tokens.attention_mask, required.attention_states)
        if any(kind == PROJECTED for _, kind in required.attention_states):  # in each pass: layers may be replaced
            watch_projections(self.model)
        if len(tokens.prefix) >= MIN_PREFIX and positions is None and self._shares_prefix(tokens, required):
            with computing(self.precision, device, self.model):
                hidden.update(self._after_prefix(tokens, required))
            return States(hidden, {})
        inputs = self._inputs(tokens, required, positions)
        if heads and recorder is None:
            inputs["output_attentions"] = True
        previous = recorder_in_use.set(recorder)
        try:
            with computing(self.precision, device, self.model):
                output = self.model(**inputs)
        finally:
            recorder_in_use.reset(previous)
        hidden.update(self._layers(output, required))
        if recorder is not None:
            return States(hidden | recorder.require_states(self.top), recorder.diagonals)
        matrices = {(layer, head): output.attentions[layer - 1][:, head - 1] for layer, head in heads}  # (B,T,T)
        diagonals = {head: matrix.diagonal(dim1=-2, dim2=-1) for head, matrix in matrices.items()}  # (B,T)
        return States(hidden, {head: d.masked_fill(~tokens.attention_mask, 0.0) for head, d in diagonals.items()})

    def _layers(self, output: Any, required: RequiredOutputs) -> Hidden:
        """Return the required layers of a model's output, each (B,T,D)."""
        return {
            layer: output.hidden_states[layer] if layer != self.top else output.last_hidden_state
            for layer in required.layers
        }

    def _shares_prefix(self, tokens: Tokens, required: RequiredOutputs) -> bool:
        """Return whether the states of the common first tokens can be computed once: they see only each other."""
        reads_attention = required.attention_heads or required.attention_states
        if reads_attention or torch.is_grad_enabled() or not self.cache_argument:
            return False
        if self.pads_right:  # a graph's rows begin with the prefix
            return True
        length = len(tokens.prefix)
        if tokens.ids.shape[1] <= length:
            return False
        first = tokens.ids.new_tensor(tokens.prefix)
        return bool((tokens.attention_mask[:, :length] & (tokens.ids[:, :length] == first)).all())  # padding: right

    def _after_prefix(self, tokens: Tokens, required: RequiredOutputs) -> Hidden:
        """Compute the layers (B,T,D) of tokens whose first P are the same in all rows, with one pass over these P."""
        rows, length = tokens.ids.shape[0], len(tokens.prefix)  # len(tokens) would be fixed in a graph
        key = (tokens.prefix, required.layers, self.static_table.dtype, tokens.ids.device)
        if key not in self.prefixes:
            first = Tokens(tokens.ids[:1, :length], tokens.attention_mask[:1, :length], tokens.content[:1, :length])
            self.prefixes[key] = self.model(**{**self._inputs(first, required, None), "use_cache": True})
        prefix = self.prefixes[key]
        past = copy.copy(getattr(prefix, self.cache_argument))
        past.layers = list(map(copy.copy, past.layers))  # shallow: layers replace their tensors, never write to them
        past.batch_repeat_interleave(rows)
        inputs = self._inputs(tokens, required, None)
        inputs |= {"input_ids": tokens.ids[:, length:], self.cache_argument: past}
        before, after = self._layers(prefix, required), self._layers(self.model(**inputs), required)
        return {layer: torch.cat([before[layer].expand(rows, -1, -1), after[layer]], dim=1) for layer in after}

    def _inputs(self, tokens: Tokens, required: RequiredOutputs, positions: torch.Tensor | None) -> dict[str, Any]:
        inputs: dict[str, Any] = {"input_ids": tokens.ids, "attention_mask": tokens.attention_mask.long()}
        if self.pads_right and self.cache_argument:  # no token sees padding on its right, which may see nothing: NaN
            inputs["attention_mask"] = torch.ones_like(inputs["attention_mask"])
        if "use_cache" in inspect.signature(self.model.forward).parameters:
            inputs["use_cache"] = False
        has_padding_first = not self.pads_right and not bool(tokens.attention_mask[:, 0].all())
        if self.position_offset is not None and (has_padding_first or positions is not None):
            if positions is None:
                positions = (tokens.attention_mask.long().cumsum(dim=1) - 1).clamp(min=0)  # (B,T)
            inputs["position_ids"] = positions + self.position_offset
        if inner := sorted(layer for layer in required.layers if layer != self.top):
            # only these layers are retained if the family supports it, otherwise all
            inputs["output_hidden_states"] = hidden_states_of(self.model, inner)
        return inputs


def _forget_states(backbone: Any, keys: Any) -> None:  # no method: hooks are pickled with the backbone
    backbone.forget_states()


# -- structure of transformers' models ------------------------------------------------------------------------------


def number_of_layers(model: PreTrainedModel) -> int:
    """Return the number of layers L of a transformer."""
    return int(model.config.num_hidden_layers)


def longest_text(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> int | None:
    """Return the maximum number of tokens: the smaller of tokenizer and position table; None without a limit."""
    positions = getattr(model.config, "max_position_embeddings", None)
    table = positions - first_position(model) if isinstance(positions, int) and positions > 0 else None
    return min((limit for limit in (tokenizer.model_max_length, table) if limit and limit < 10**9), default=None)


def first_position(model: PreTrainedModel) -> int:
    """Return the row of the position table for a text's first token; RoBERTa's start after its padding row."""
    embeddings = getattr(getattr(model, "embeddings", None), "position_embeddings", None)
    padding = getattr(embeddings, "padding_idx", None)
    return 0 if padding is None else padding + 1


def find_layers(model: PreTrainedModel) -> tuple[str, ...] | None:
    """Return the path of attribute names to the list of layers; None if all layers share one module (ALBERT)."""
    depth = number_of_layers(model)
    lists = [
        name for name, module in model.named_modules() if isinstance(module, nn.ModuleList) and len(module) == depth
    ]
    return tuple(min(lists, key=lambda name: name.count(".")).split(".")) if lists and depth else None


def truncated(model: PreTrainedModel, depth: int, last: int) -> PreTrainedModel:
    """Return a copy of the model that stops after `depth` layers, with shared parameters.

    Below the model's last layer the family's final norm is removed, so the output is `hidden_states[depth]` of the
    whole model. Poolers are always removed: no recipe reads them.

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
    """Remove the weights of all other modules from a copy made by `_mirrored`."""
    for module in model.modules():
        if module is not table:
            module._parameters, module._buffers = dict.fromkeys(module._parameters), dict.fromkeys(module._buffers)


def _mirrored(module: nn.Module, copies: dict[int, Any]) -> Any:
    """Copy a tree of modules with shared parameters and separate configurations and hooks.

    transformers selects attention by a configuration that all layers share, and records states by hooks on the
    layers: on layers that two backbones share they would fire twice. The hooks cannot be pickled either.
    """
    if id(module) not in copies:
        view = copies[id(module)] = copy.copy(module)
        own_hooks(view, module)
        if hasattr(module, "config"):
            view.config = copies.setdefault(id(module.config), copy.deepcopy(module.config))
        view._modules = {
            name: None if child is None else _mirrored(child, copies) for name, child in module._modules.items()
        }
    return copies[id(module)]
