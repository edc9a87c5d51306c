"""Checks that a checkpoint has all weights of its configuration: transformers draws missing ones at random."""

from __future__ import annotations

import contextlib
import copy
import logging
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from torch import nn
from transformers import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from essent._core.compat import is_placed, unread_weights
from essent.errors import DamagedError, EngineError

MEND = "Get the config.json and the weights that belong together"
Shapes = Mapping[str, list[int]]  # shapes of the tensors of a checkpoint, by name


def check_sizes(name: str, config: PretrainedConfig, shapes: Shapes, layers: int | None = None) -> None:
    """Check that the sizes of a configuration fit the weights, before a model of that size is built.

    Args:
        layers: the number of layers to build; by default all.

    Raises:
        DamagedError: a size does not fit; the message shows it and the size of the weights.
    """
    dimensions = {size for shape in shapes.values() for size in shape}
    if not dimensions:
        return
    largest, width, heads = max(dimensions), _number(config, "hidden_size"), _number(config, "num_attention_heads")
    if width is not None and width not in dimensions:
        raise _contradiction(name, "hidden_size", width, "no weight has a dimension of that size")
    if width is not None and heads is not None and not 0 < heads <= width:
        raise _contradiction(name, "num_attention_heads", heads, f"with hidden_size={width} it can be 1 to {width}")
    for key in ("vocab_size", "intermediate_size"):
        if (size := _number(config, key) or 0) > largest:
            raise _contradiction(name, key, size, f"the largest dimension of a weight is {largest}")
    layers = _number(config, "num_hidden_layers") if layers is None else layers
    layers = _number(config, "num_hidden_groups") or layers  # ALBERT's layers share this number of sets of weights
    if layers is not None and layers > (most := _most_layers(shapes)):
        raise _contradiction(name, "num_hidden_layers", layers, f"there are weights for {most} at most")


def _number(config: PretrainedConfig, key: str) -> int | None:
    number = getattr(config, key, None)
    return number if isinstance(number, int) else None


def require_weights(
    name: str, model: nn.Module, shapes: Shapes, missing: Iterable[str] | None = None, *, trusted: bool = False
) -> None:
    """Check that all weights of a model are from its checkpoint. A pooler may be missing: no recipe reads it.

    Args:
        model: the loaded model, truncated to the layers that are read.
        shapes: of the checkpoint, to find the cause; may be empty.
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
    cause = _cause(lacking, list(weights[lacking[0]].shape), shapes)
    raise DamagedError(f"The weights of {name!r} lack {names}, which would be random numbers: {cause}.")


@contextlib.contextmanager
def reports_hidden() -> Iterator[None]:
    """Hide transformers' report of missing and unused weights: `require_weights` raises an error instead."""

    def is_no_report(record: logging.LogRecord) -> bool:
        return "LOAD REPORT" not in record.getMessage()

    logger = logging.getLogger("transformers.modeling_utils")
    logger.addFilter(is_no_report)
    try:
        yield
    finally:
        logger.removeFilter(is_no_report)


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


def _cause(lacking: list[str], expected: list[int], shapes: Shapes) -> str:
    """Describe why weights are missing, and the fix; `expected` is the shape of the first."""
    first, without_prefix = re.escape(lacking[0]), re.escape(lacking[0].partition(".")[2])
    alike = next((key for key in shapes if re.fullmatch(rf"(.*\W)?{first}|{without_prefix}", key)), None)
    if alike is not None and shapes[alike] != expected:
        return f"{alike} has the shape {shapes[alike]}, and config.json requires {expected}. {MEND}"
    if alike is not None:
        return f"they have other names in the checkpoint ({alike}). Rename the tensors as transformers saves them"
    layers = {next((int(part) for part in key.split(".") if part.isdigit()), -1) for key in lacking}
    if min(layers) >= 0:
        numbers = ", ".join(map(str, sorted(layers)))
        return f"layer {numbers} (from 0) is incomplete, or num_hidden_layers is too high. {MEND}"
    return f"the folder is incomplete, or its config.json belongs to another model. {MEND}"


def _most_layers(shapes: Shapes) -> int:
    """Return an upper bound of the number of layers: the occurrences of the most frequent name up to numbers."""
    return max(Counter(re.sub(r"\d+", "#", key) for key in shapes).values(), default=0)


def _contradiction(name: str, key: str, number: int, allowed: str) -> DamagedError:
    return DamagedError(f"The config.json of {name!r} has {key}={number}, but the weights differ: {allowed}. {MEND}.")


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
