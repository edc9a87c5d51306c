"""Checks that a checkpoint has all weights of its configuration: transformers draws missing ones at random."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterable, Mapping

from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from essent._core.compat import is_placed, unread_weights
from essent.errors import DamagedError, EngineError

MEND = "Get the config.json and the weights that belong together"
Shapes = Mapping[str, list[int]]  # shapes of the tensors of a checkpoint, by name


def require_weights(
    name: str,
    model: nn.Module,
    read_shapes: Callable[[], Shapes],
    missing: Iterable[str] | None = None,
    *,
    trusted: bool = False,
) -> None:
    """Check that all weights of a model are from its checkpoint. A pooler may be missing: no recipe reads it.

    Args:
        model: the loaded model, truncated to the layers that are read.
        read_shapes: returns the shapes of the checkpoint, to find the cause; may be empty.
        missing: names of the weights that the checkpoint lacks, if the loader has reported them.
        trusted: code of the folder may load weights in its own way, so all of them may be reported as missing.

    Raises:
        DamagedError: the message shows some of the missing weights, the probable cause and the fix.
    """
    weights = {key: tensor for key, tensor in model.state_dict().items() if not key.startswith("pooler.")}
    lacking = [key for key in (unread_weights(model) if missing is None else missing) if key in weights]
    if not lacking or (trusted and len(lacking) == len(weights)):
        return
    names = ", ".join(lacking[:3]) + (f" and {len(lacking) - 3} more" if len(lacking) > 3 else "")
    first, without_prefix = re.escape(lacking[0]), re.escape(lacking[0].partition(".")[2])
    shapes = read_shapes()
    alike = next((key for key in shapes if re.fullmatch(rf"(.*\W)?{first}|{without_prefix}", key)), None)
    cause = f"the folder is incomplete, or its config.json belongs to another model. {MEND}"
    if alike is not None:
        cause = f"they have other names in the checkpoint ({alike}). Rename the tensors as transformers saves them"
        if shapes[alike] != (expected := list(weights[lacking[0]].shape)):
            cause = f"{alike} has the shape {shapes[alike]}, and config.json requires {expected}. {MEND}"
    raise DamagedError(f"The weights of {name!r} lack {names}, which would be random numbers: {cause}.")


def require_rows(tokenizer: PreTrainedTokenizerBase, rows: int) -> None:
    """Check that the table of token vectors has a row for every id of the tokenizer.

    Raises:
        DamagedError: an id has no row; the message shows the token and its id.
    """
    vocabulary = tokenizer.get_vocab()
    token = max(vocabulary, key=vocabulary.__getitem__, default=None)
    if token is not None and vocabulary[token] >= rows:
        raise DamagedError(
            f"In the tokenizer, {token!r} has the id {vocabulary[token]}, and the model has vectors for the ids 0 to "
            f"{rows - 1}. Get the tokenizer.json that belongs to the weights, or resize the model's token embeddings."
        )


def in_float32(model: PreTrainedModel) -> PreTrainedModel:
    """Return a copy of a model with weights in float32; other objects may share the original.

    Raises:
        EngineError: the weights are quantized, or not in memory.
    """
    reason = "are quantized" if getattr(model, "is_quantized", False) else ""
    if any(tensor.is_meta for tensor in model.parameters()):
        reason = "are offloaded by device_map"
    if reason:
        raise EngineError(f"precision='float32': the model's weights {reason}. Use precision='auto'.")
    converted: PreTrainedModel = copy.deepcopy(model).float()
    return converted


def move(module: nn.Module, device: str) -> None:
    """Move a module to a device, except the parts that a `device_map` has placed."""
    if not any(map(is_placed, module.modules())):
        module.to(device)
        return
    for child in module.children():
        move(child, device)
