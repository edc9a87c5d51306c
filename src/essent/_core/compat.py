"""What essent uses of transformers and sentence-transformers beyond their documented names, all in this file.

`tests/test_compat.py` holds that these names exist and mean what they mean here, with the newest and with the oldest
versions that pyproject.toml allows (`make test-oldest`). Besides them, `Encoder` and `CompiledEncoder` override
sentence-transformers' `_inference`, and the trainers their libraries' `_save`, `_load_best_model`
and `_load_optimizer_and_scheduler`.
"""

from __future__ import annotations

import logging
import re
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base import model as base_model
from torch import nn
from transformers import PretrainedConfig, PreTrainedModel
from transformers.utils import output_capturing

from essent._core.arguments import check_prompt

# -- sentence-transformers --------------------------------------------------------------------------------------------


def settings_of(model: SentenceTransformer) -> dict[str, Any]:
    """What a model says beside its modules, as arguments of SentenceTransformer's __init__.

    `similarity_fn_name` itself would choose a similarity where none was chosen yet.
    """
    return {
        "prompts": {key: value for key, value in model.prompts.items() if value is not None} or None,
        "default_prompt_name": model.default_prompt_name,
        "similarity_fn_name": model._similarity_fn_name,
        "truncate_dim": model.truncate_dim,
    }


@contextmanager
def prompts_unannounced() -> Iterator[None]:
    """Keep sentence-transformers from warning of a default prompt; what applies one says so itself."""

    def is_unrelated(record: logging.LogRecord) -> bool:
        return not record.getMessage().startswith("Default prompt name is set to")

    logger = logging.getLogger(base_model.__name__)
    logger.addFilter(is_unrelated)
    try:
        yield
    finally:
        logger.removeFilter(is_unrelated)


def config_of(model: SentenceTransformer) -> dict[str, Any]:
    """What sentence-transformers writes to config_sentence_transformers.json."""
    return dict(model._get_model_config())


def write_stock_card(model: SentenceTransformer, folder: str, name: str | None, datasets: list[str] | None) -> None:
    """Write sentence-transformers' own model card."""
    model._create_model_card(folder, name, datasets)


def prompt_of(model: SentenceTransformer, prompt: str | None, prompt_name: str | None) -> str:
    """The text that `encode` puts before every text: the one given, the one named, or the model's default."""
    check_prompt(prompt, prompt_name, model.prompts)
    return model._resolve_prompt(prompt, prompt_name) or ""


def device_for(model: SentenceTransformer, device: Any) -> torch.device:
    """Where `encode` computes when it is asked for this device, or for none."""
    resolved: torch.device = model._resolve_inference_device(device)
    return resolved


# -- transformers -----------------------------------------------------------------------------------------------------

_CAPTURING = output_capturing.__name__  # the module whose hooks collect hidden states and attentions
_INSTALLED = "_output_capturing_hooks_installed"


def unread_weights(model: nn.Module) -> list[str]:
    """Names of the weights that transformers, when it loaded the model, did not find in the checkpoint.

    It marks what it has read, so that it draws only the rest at random. sentence-transformers does not pass on
    `output_loading_info`, which says the same.
    """
    by_design = getattr(model, "_keys_to_ignore_on_load_missing", None) or ["(?!)"]  # the default matches nothing
    expected = re.compile("|".join(by_design))
    unread = {
        id(tensor): name
        for name, tensor in reversed(model.state_dict(keep_vars=True).items())
        if not getattr(tensor, "_is_hf_initialized", False) and not expected.search(name)
    }
    return list(reversed(unread.values()))


def can_set_attention(model: PreTrainedModel) -> bool:
    """Whether the family calls attention through transformers' interface: not MPNet, not DeBERTa-v2."""
    return bool(model._can_set_attn_implementation())


def attention_of(config: PretrainedConfig) -> str | None:
    """The name of the attention that layers of this configuration call."""
    implementation: str | None = getattr(config, "_attn_implementation", None)
    return implementation


def set_attention(config: PretrainedConfig, name: str) -> None:
    """Have layers of this configuration call the registered attention `name`, without the checks of the setter.

    The setter would look for the name on the hub.
    """
    if getattr(config, "_attn_implementation_internal", name) != name:
        config._attn_implementation_internal = name


def hidden_states_of(model: PreTrainedModel, layers: list[int]) -> list[int] | bool:
    """The argument `output_hidden_states` by which `hidden_states[k]` is layer k for each of these layers.

    A list keeps these layers only. Before transformers 5.23 it kept others, or counted them otherwise.
    """
    selects = hasattr(output_capturing, "selected_hidden_states") and bool(getattr(model, "_can_record_outputs", None))
    return layers if selects else True


def let_capture(module: PreTrainedModel) -> None:
    """Have a model's states collected although it was unpickled, which the table of models that can does not notice."""
    registry: Any = output_capturing._CAN_RECORD_REGISTRY  # until 5.22 by class
    registry[str(module.__class__) if type(registry) is dict else module] = module._can_record_outputs


def without_capturing(view: nn.Module, module: nn.Module) -> None:
    """Give a copy of a module its hooks less those that collect states, which belong to the original."""
    view._forward_hooks = OrderedDict(
        (key, hook) for key, hook in module._forward_hooks.items() if getattr(hook, "__module__", "") != _CAPTURING
    )
    vars(view).pop(_INSTALLED, None)
