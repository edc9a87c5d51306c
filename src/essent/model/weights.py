"""Whether a checkpoint has the weights that its configuration asks for: transformers draws missing ones at random."""

from __future__ import annotations

import contextlib
import logging
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from torch import nn
from transformers import PretrainedConfig, PreTrainedTokenizerBase

from essent._core.compat import unread_weights
from essent.errors import DamagedError

MEND = "Get the config.json and the weights that belong together"
Shapes = Mapping[str, list[int]]  # of the tensors of a checkpoint, by their names


def check_sizes(name: str, config: PretrainedConfig, shapes: Shapes, layers: int | None = None) -> None:
    """Refuse numbers of a configuration that the weights contradict, before a model of that size is built.

    Args:
        layers: how many are built, where not all of them are.

    Raises:
        DamagedError: says the number, and what the weights have.
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
    layers = _number(config, "num_hidden_groups") or layers  # ALBERT's layers share so many sets of weights
    if layers is not None and layers > (most := _most_layers(shapes)):
        raise _contradiction(name, "num_hidden_layers", layers, f"there are weights for {most} at most")


def _number(config: PretrainedConfig, key: str) -> int | None:
    number = getattr(config, key, None)
    return number if isinstance(number, int) else None


def require_weights(
    name: str, model: nn.Module, shapes: Shapes, missing: Iterable[str] | None = None, *, trusted: bool = False
) -> None:
    """Refuse a model some of whose weights are not from its checkpoint. A pooler may be missing: no recipe reads it.

    Args:
        model: as it was loaded, cut to what is read.
        shapes: of the checkpoint, to name the cause; may be empty.
        missing: names of the weights that the checkpoint lacks, where the loader has said so.
        trusted: code of the folder may load weights in its own way: then all or none may be missing.

    Raises:
        DamagedError: names some of the weights, the probable cause and the fix.
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
    """Hide transformers' report of weights that are missing or unused: what is read and missing is an error here."""

    def is_no_report(record: logging.LogRecord) -> bool:
        return "LOAD REPORT" not in record.getMessage()

    logger = logging.getLogger("transformers.modeling_utils")
    logger.addFilter(is_no_report)
    try:
        yield
    finally:
        logger.removeFilter(is_no_report)


def require_rows(tokenizer: PreTrainedTokenizerBase, rows: int) -> None:
    """Refuse a tokenizer with ids that the table of token vectors has no row for.

    Raises:
        DamagedError: names the token and its id.
    """
    vocabulary = tokenizer.get_vocab()
    token = max(vocabulary, key=vocabulary.__getitem__, default=None)
    if token is not None and vocabulary[token] >= rows:
        raise DamagedError(
            f"The tokenizer gives {token!r} the id {vocabulary[token]}, and the model has vectors for the ids 0 to "
            f"{rows - 1}. Get the tokenizer.json that belongs to the weights, or resize the model's token embeddings."
        )


def _cause(lacking: list[str], expected: list[int], shapes: Shapes) -> str:
    """Why weights are not there, and what mends it; `expected` is the shape of the first."""
    first, without_prefix = re.escape(lacking[0]), re.escape(lacking[0].partition(".")[2])
    alike = next((key for key in shapes if re.fullmatch(rf"(.*\W)?{first}|{without_prefix}", key)), None)
    if alike is not None and shapes[alike] != expected:
        return f"{alike} has the shape {shapes[alike]}, and config.json asks for {expected}. {MEND}"
    if alike is not None:
        return f"they are named otherwise there ({alike}). Rename the tensors as transformers saves them"
    layers = {next((int(part) for part in key.split(".") if part.isdigit()), -1) for key in lacking}
    if min(layers) >= 0:
        numbers = ", ".join(map(str, sorted(layers)))
        return f"layer {numbers} (from 0) is not there in full, or num_hidden_layers is too high. {MEND}"
    return f"the folder is incomplete, or its config.json is another model's. {MEND}"


def _most_layers(shapes: Shapes) -> int:
    """How often the weight that most layers have occurs: an upper bound, as a layer may have several of its kind."""
    return max(Counter(re.sub(r"\d+", "#", key) for key in shapes).values(), default=0)


def _contradiction(name: str, key: str, number: int, allowed: str) -> DamagedError:
    return DamagedError(
        f"The config.json of {name!r} says {key}={number}, and the weights beside it differ: {allowed}. {MEND}."
    )
