"""Template denoising: what the template alone contributes, subtracted from its own tokens (PromptBERT 4.3).

The template is encoded with an empty slot, the position ids after the slot shifted by the number of tokens of the
sentence. The bias depends on that number only: one pass per length, kept for the next texts of the same length.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from essent.model.backbone import RequiredOutputs
from essent.recipe.tokens.ids import Frame
from essent.recipe.types import Tokens

if TYPE_CHECKING:
    from essent.model.backbone import Backbone


def debias(hidden: torch.Tensor, tokens: Tokens, frame: Frame, layer: int, backbone: Backbone) -> torch.Tensor:
    """Subtract the empty template's states from the template's tokens; the user's words stay as they are.

    Args:
        hidden: states of the layer, (B,T,D).

    Returns:
        (B,T,D)
    """
    words = tokens.content.sum(dim=1)  # (B,)
    lengths, inverse = words.unique(return_inverse=True)
    bias = template_states(frame, layer, lengths.tolist(), backbone, hidden)[inverse]  # (B,F,D)
    template = tokens.attention_mask & ~tokens.content  # (B,T), F of them in every row
    rank = (template.long().cumsum(dim=1) - 1).clamp(min=0)  # (B,T)
    shift = bias.gather(1, rank.unsqueeze(-1).expand(-1, -1, hidden.shape[-1]))  # (B,T,D)
    return hidden - shift * template.unsqueeze(-1)


def template_states(
    frame: Frame, layer: int, lengths: list[int], backbone: Backbone, like: torch.Tensor
) -> torch.Tensor:
    """States of the empty template for each length of the missing sentence: (len(lengths), F, D).

    Kept between calls except while gradients flow: then the model is changing.
    """
    if torch.is_grad_enabled():
        return _run(frame, layer, lengths, backbone, like.device)
    cached = backbone.template_states
    key = (frame, layer, like.dtype, like.device)
    missing = [length for length in lengths if (key, length) not in cached]
    if missing:
        for length, states in zip(missing, _run(frame, layer, missing, backbone, like.device), strict=True):
            cached[key, length] = states
    return torch.stack([cached[key, length] for length in lengths])


def _run(frame: Frame, layer: int, lengths: list[int], backbone: Backbone, device: torch.device) -> torch.Tensor:
    ids = torch.tensor([[*frame.before, *frame.after]] * len(lengths), device=device)  # (U,F)
    attended = torch.ones_like(ids, dtype=torch.bool)
    index = torch.arange(len(frame), device=device).expand(len(lengths), -1)  # (U,F)
    shift = torch.tensor(lengths, device=device).unsqueeze(1)  # (U,1)
    positions = torch.where(index >= len(frame.before), index + shift, index)
    states = backbone.states(Tokens(ids, attended, ~attended), RequiredOutputs(frozenset({layer})), positions)
    return states.hidden[layer]
