"""All uses of undocumented names of torch, transformers and sentence-transformers.

`tests/core/test_compat.py` checks that these names exist and behave as expected, with the newest and oldest versions
that pyproject.toml allows (`make test-oldest`). In addition, `Encoder` overrides sentence-transformers'
`_inference`, and the trainers override `_save`, `_load_best_model` and
`_load_optimizer_and_scheduler` of their libraries.
"""

from __future__ import annotations

import inspect
import logging
import re
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial, update_wrapper
from types import MethodType
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base import model as base_model
from torch import nn
from transformers import DynamicCache, PretrainedConfig, PreTrainedModel
from transformers.utils import output_capturing

from essent._core.arguments import check_prompt
from essent._core.machine import cpu_capabilities

# -- torch ------------------------------------------------------------------------------------------------------------


def is_amd_with_avx512() -> bool:
    """Return whether the CPU is one of AMD with AVX-512; False also with a torch that does not tell (2.6)."""
    capabilities = cpu_capabilities()
    return str(capabilities.get("cpu_name", "")).startswith("AMD") and bool(capabilities.get("avx512_f"))


def onednn_linear(rows: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """Compute rows (…,I) · weightᵀ (I,O) + bias (O,) by the operation that torch.compile chooses for frozen weights.

    torch defines no gradients for it.
    """
    product: torch.Tensor = torch.ops.mkldnn._linear_pointwise(rows, weight, bias, "none", [], "")
    return product


# -- sentence-transformers --------------------------------------------------------------------------------------------


def settings_of(model: SentenceTransformer) -> dict[str, Any]:
    """Return a model's settings besides its modules, as arguments of SentenceTransformer's __init__.

    It reads `_similarity_fn_name`, because `similarity_fn_name` sets a default if none was chosen.
    """
    return {
        "prompts": {key: value for key, value in model.prompts.items() if value is not None} or None,
        "default_prompt_name": model.default_prompt_name,
        "similarity_fn_name": model._similarity_fn_name,
        "truncate_dim": model.truncate_dim,
    }


@contextmanager
def without_loading_messages() -> Iterator[None]:
    """Hide what both libraries log while they load: missing weights, which are an error of essent, a default prompt."""

    def is_unrelated(record: logging.LogRecord) -> bool:
        return not re.search("LOAD REPORT|^Default prompt name is set to", record.getMessage())

    loggers = [logging.getLogger(name) for name in ("transformers.modeling_utils", base_model.__name__)]
    for logger in loggers:
        logger.addFilter(is_unrelated)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(is_unrelated)


def config_of(model: SentenceTransformer) -> dict[str, Any]:
    """Return the content of config_sentence_transformers.json."""
    return dict(model._get_model_config())


def write_stock_card(model: SentenceTransformer, folder: str, name: str | None, datasets: list[str] | None) -> None:
    """Write sentence-transformers' own model card."""
    model._create_model_card(folder, name, datasets)


def prompt_of(model: SentenceTransformer, prompt: str | None, prompt_name: str | None) -> str:
    """Return the text that `encode` puts before every text: `prompt`, the named prompt, or the model's default."""
    check_prompt(prompt, prompt_name, model.prompts)
    return model._resolve_prompt(prompt, prompt_name) or ""


def device_for(model: SentenceTransformer, device: Any) -> torch.device:
    """Return the device on which `encode` computes for its argument `device`."""
    resolved: torch.device = model._resolve_inference_device(device)
    return resolved


# -- transformers -----------------------------------------------------------------------------------------------------

_CAPTURING = output_capturing.__name__  # the module whose hooks collect hidden states and attentions
_INSTALLED = "_output_capturing_hooks_installed"


def unread_weights(model: nn.Module) -> list[str]:
    """Return the names of the weights that transformers did not find in the checkpoint.

    transformers marks the weights that it has read, and initializes only the remaining ones at random.
    sentence-transformers does not pass on `output_loading_info`, which contains the same names. Offloaded weights are
    read when they are used.
    """
    by_design = getattr(model, "_keys_to_ignore_on_load_missing", None) or ["(?!)"]  # the default matches nothing
    expected = re.compile("|".join(by_design))
    unread = {
        id(tensor): name
        for name, tensor in reversed(model.state_dict(keep_vars=True).items())
        if not (getattr(tensor, "_is_hf_initialized", False) or tensor.is_meta or expected.search(name))
    }
    return list(reversed(unread.values()))


def can_set_attention(model: PreTrainedModel | type[PreTrainedModel]) -> bool:
    """Whether the model calls attention through transformers' interface; MPNet and DeBERTa-v2 do not."""
    return bool(model._can_set_attn_implementation())


def attention_of(config: PretrainedConfig) -> str | None:
    """Return the name of the attention implementation of a configuration."""
    implementation: str | None = getattr(config, "_attn_implementation", None)
    return implementation


def set_attention(config: PretrainedConfig, name: str) -> None:
    """Set the registered attention `name` without the checks of the setter, which searches the hub for the name."""
    if getattr(config, "_attn_implementation_internal", name) != name:
        config._attn_implementation_internal = name


def hidden_states_of(model: PreTrainedModel, layers: list[int]) -> list[int] | bool:
    """Return the argument `output_hidden_states` with which `hidden_states[k]` is layer k for each of these layers.

    Since transformers 5.23, a list retains only these layers. Older versions get True, for all layers: there, a list
    retained other layers or counted them differently.
    """
    selects = hasattr(output_capturing, "selected_hidden_states") and bool(getattr(model, "_can_record_outputs", None))
    return layers if selects else True


def cache_argument(model: PreTrainedModel) -> str:
    """Return the name under which `forward` takes and returns the cache of keys and values; "" without a cache.

    It is also "" if the model does not declare causal attention (BertGeneration without is_decoder), or if a layer has
    no keys and values that can be repeated for several rows (linear attention, convolutions).
    """
    names = inspect.signature(model.forward).parameters
    repeats = all(hasattr(layer, "batch_repeat_interleave") for layer in DynamicCache(config=model.config).layers)
    if not repeats or not any(getattr(module, "is_causal", False) for module in model.modules()):
        return ""
    return next((name for name in ("cache", "past_key_values") if name in names), "")  # past_key_values until 5.23


def attend_in_both_directions(model: PreTrainedModel) -> None:
    """Let the tokens of a decoder see later tokens too: transformers' masks read `is_causal` in the configuration.

    `AutoConfig.from_pretrained(…, is_causal=False)` ignores names that the file or the class does not have.
    """
    for module in model.modules():
        if isinstance(config := getattr(module, "config", None), PretrainedConfig):
            config.is_causal = False


def let_capture(module: PreTrainedModel) -> None:
    """Register an unpickled model in transformers' table of models whose hidden states can be collected."""
    registry: Any = output_capturing._CAN_RECORD_REGISTRY  # until 5.22 a dict by class name
    registry[str(module.__class__) if type(registry) is dict else module] = module._can_record_outputs


def own_hooks(view: nn.Module, module: nn.Module) -> None:
    """Give a shallow copy of a module its own hooks, except those that collect states: these belong to the original.

    accelerate's hook of a module that a device map has placed replaces `forward` by one that runs the original.
    """
    view._forward_hooks = OrderedDict(
        (key, hook) for key, hook in module._forward_hooks.items() if getattr(hook, "__module__", "") != _CAPTURING
    )
    vars(view).pop(_INSTALLED, None)
    if is_placed(module):
        replaced = MethodType(vars(module)["_old_forward"].__func__, view)
        forward = update_wrapper(partial(vars(module)["forward"].func, view), replaced)
        vars(view).update(_old_forward=replaced, forward=forward)


# -- accelerate: modules on several devices or on disk ----------------------------------------------------------------


def is_placed(module: nn.Module) -> bool:
    """Whether accelerate moves this very module's inputs or weights when it runs, according to a `device_map`."""
    return "_hf_hook" in vars(module)


def weights_of(model: nn.Module) -> Mapping[str, torch.Tensor]:
    """Return the state of a model by name, with the weights that a `device_map` has left on disk or in main memory."""
    state: Mapping[str, torch.Tensor] = model.state_dict()
    if any(tensor.is_meta for tensor in state.values()):
        from accelerate.utils.modeling import get_state_dict_offloaded_model

        state = get_state_dict_offloaded_model(model)
    return state
