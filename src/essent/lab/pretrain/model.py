"""The masked language model of a run: load or build it, and untie its embeddings."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from huggingface_hub.errors import StrictDataclassError
from torch import nn
from transformers import AutoConfig, AutoModelForMaskedLM, AutoTokenizer, BertConfig

from essent._core.folders.contents import guarded, opening, weight_shapes
from essent._core.hub import file_options, reach_model
from essent._core.registry import did_you_mean
from essent.errors import InputError, ModelError
from essent.lab.pretrain.settings import SIZES
from essent.model.weights import require_weights


def open_tokenizer(name: str, options: Mapping[str, Any]) -> Any:
    """Open the tokenizer of a model.

    Raises:
        ModelError: the tokenizer cannot be loaded, or has no mask or padding token.
    """
    options = reach_model(name, dict(options))
    with opening(name, options):
        tokenizer = AutoTokenizer.from_pretrained(name, **guarded(options))
    for kind in ("mask", "pad"):
        if getattr(tokenizer, f"{kind}_token_id") is None:
            raise ModelError(f"The tokenizer of {name!r} has no {kind} token. Masked language modelling needs one.")
    return tokenizer


def new_model(architecture: str, tokenizer: Any, *, untied: bool) -> Any:
    """Build a model with random weights, in float32 on the CPU, for the vocabulary of a tokenizer.

    Args:
        architecture: a name in `SIZES`, or a config.json.
        untied: whether the output matrix is a parameter of its own.

    Raises:
        InputError: neither a size nor a configuration.
        ModelError: not a masked language model.
    """
    if architecture in SIZES:
        layers, width = SIZES[architecture]
        sizes = {"num_hidden_layers": layers, "num_attention_heads": width // 64, "hidden_size": width}
        config: Any = BertConfig(**sizes, intermediate_size=4 * width)
    else:
        config = _read_config(architecture)
    config.vocab_size, config.tie_word_embeddings = len(tokenizer), not untied
    for name in ("cls", "sep", "bos", "eos", "pad", "mask"):
        index = getattr(tokenizer, f"{name}_token_id")
        if index is not None and hasattr(config, f"{name}_token_id"):
            setattr(config, f"{name}_token_id", index)
    with _only_masked_models(config.model_type):
        return AutoModelForMaskedLM.from_config(config).float()


def _read_config(name: str) -> Any:
    if not Path(name).is_file():
        hint = did_you_mean(name, list(SIZES))
        raise InputError(f"config={name!r} is neither a config.json with model_type nor a size. {hint}")
    try:
        return AutoConfig.for_model(**json.loads(Path(name).read_text(encoding="utf-8")))
    except (ValueError, TypeError, StrictDataclassError) as error:
        raise InputError(
            f"{name} is not a configuration, a JSON object with a model_type of transformers: "
            f"{' '.join(str(error).split())}"
        ) from None


@contextlib.contextmanager
def _only_masked_models(name: str) -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        if "Unrecognized configuration class" not in str(error):
            raise
        raise ModelError(
            f"transformers has no masked language model for {name!r}. Use an encoder such as bert, roberta, "
            "distilbert, electra, mpnet, deberta-v2 or modernbert."
        ) from error


def open_model(name: str, options: Mapping[str, Any], *, untied: bool = False) -> tuple[Any, list[str]]:
    """Open a model in float32 on the CPU; also return the names of weights of a missing head, which are random.

    A tied model that is untied starts with two equal matrices.

    Raises:
        ModelError: not a masked language model, or weights of the encoder itself are missing.
    """
    options = reach_model(name, dict(options))
    with opening(name, options), _only_masked_models(name):
        model, report = AutoModelForMaskedLM.from_pretrained(
            name, dtype=torch.float32, output_loading_info=True, **guarded(options, weights=True)
        )
    missing = sorted(report["missing_keys"])
    if encoder_weights := [weight for weight in missing if weight.startswith(f"{model.base_model_prefix}.")]:
        require_weights(name, model, weight_shapes(name, file_options(options)), encoder_weights)
    if untied:
        untie(model)
    return model, missing


def untie(model: Any) -> None:
    """Separate the output matrix (and bias) from the embedding table, as a copy (PromptBERT, App. A.2)."""
    output = model.get_output_embeddings()
    owners = Counter(id(weight) for _, weight in model.named_parameters(remove_duplicate=False))
    for name, weight in list(output.named_parameters(recurse=False)):
        if owners[id(weight)] > 1:  # BERT's bias has two names; only one of a shared pair is saved
            setattr(output, name, nn.Parameter(weight.detach().clone()))
    model.config.tie_word_embeddings = False


@contextlib.contextmanager
def logits_at(model: Any, chosen: torch.Tensor) -> Iterator[None]:
    """Let a masked language model return only the logits (1,M,V) of the M tokens chosen by a mask (B,T), in this block.

    The other logits are most of the computation. The prediction head treats each token separately, so the logits are
    the same when a hook on the encoder passes on only the states of the chosen tokens, (1,M,D) instead of (B,T,D).
    """

    def select(module: nn.Module, arguments: Any, output: Any) -> Any:
        states = output[0][chosen][None]  # (1,M,D)
        if isinstance(output, tuple):
            return (states, *output[1:])
        output[next(iter(output))] = states
        return output

    handle = model.base_model.register_forward_hook(select)
    try:
        yield
    finally:
        handle.remove()
