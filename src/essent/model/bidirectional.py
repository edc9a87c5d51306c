"""Decoders whose tokens see later tokens too: the option `config_kwargs={"is_causal": False}`."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import torch
from transformers import PreTrainedModel

from essent._core.compat import attend_in_both_directions
from essent.errors import ModelError
from essent.model.capabilities import is_causal

HURTS = (
    "is_causal=False: the tokens of this decoder now see later tokens, as in the first step of LLM2Vec. Without "
    "training in that mode, vectors usually get worse: compare with the model as it is."
)


def is_requested(options: Mapping[str, Any]) -> bool:
    """Return whether a model's options switch causal attention off.

    Raises:
        ModelError: the option is not a bool.
    """
    is_causal_option = (options.get("config_kwargs") or {}).get("is_causal", True)
    if not isinstance(is_causal_option, bool):
        raise ModelError(f"config_kwargs={{'is_causal': {is_causal_option!r}}}: must be True or False.")
    return not is_causal_option


def switch_causal_attention_off(model: PreTrainedModel, options: Mapping[str, Any]) -> None:
    """Let tokens see later tokens if the options ask for it and the checkpoint does not do so itself.

    Warns that this alone usually hurts (LLM2Vec, BehnamGhader et al. 2024, section 2: training follows).

    Raises:
        ModelError: the layers of this family are causal in another way (recurrence, its own masks).
    """
    if not is_requested(options) or not is_causal(model.config):
        return
    unsupported_layers = set(getattr(model.config, "layer_types", None) or ()) - {"full_attention", "sliding_attention"}
    attend_in_both_directions(model)
    if unsupported_layers or not _sees_later_tokens(model):
        raise ModelError(
            f"config_kwargs={{'is_causal': False}} does not make {type(model).__name__} bidirectional: some of its "
            "layers remain causal. Omit it; transformers can switch off only the causal masks that it makes itself."
        )
    warnings.warn(HURTS, stacklevel=2)


@torch.no_grad()
def _sees_later_tokens(model: PreTrainedModel) -> bool:
    """Return whether the first token's state changes with the last token."""
    ids = torch.tensor([[3, 4, 5, 6]], device=model.device)
    inputs = (ids, ids + torch.tensor([0, 0, 0, 1], device=model.device))
    before, after = (model(input_ids=i, attention_mask=torch.ones_like(i)).last_hidden_state[:, 0] for i in inputs)
    return not torch.equal(before, after)
