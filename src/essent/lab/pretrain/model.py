"""Masked language modelling: open or build the model, split and pack texts, mask tokens, and logits at the masks."""

from __future__ import annotations

import contextlib
import copy
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from huggingface_hub.errors import StrictDataclassError
from torch import nn
from transformers import AutoConfig, AutoModelForMaskedLM, AutoTokenizer, BertConfig

from essent._core.folders.contents import guarded, opening, weight_shapes
from essent._core.hub import file_options, reach_model
from essent._core.registry import did_you_mean
from essent._core.texts import check_texts, mend_surrogates
from essent.errors import InputError, ModelError
from essent.lab.pretrain.settings import SIZES
from essent.model.weights import require_weights
from essent.recipe.tokens import fast_backend, portions

SHARE, MAX_HELD_OUT = 0.01, 2000  # share and maximum number of texts that are held out
MIN_SEQUENCES = 64  # held-out sequences; fewer are repeated, each time with other masks
OPEN_SEQUENCES = 64  # the next text goes to the first of the last 64 sequences that has room
IGNORED = -100  # the label of a token that is not predicted


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
        sizes: dict[str, Any] = {"num_hidden_layers": layers, "num_attention_heads": width // 64, "hidden_size": width}
        config: Any = BertConfig(**sizes, intermediate_size=4 * width)
    else:
        config = _read_config(architecture)
    config.vocab_size, config.tie_word_embeddings = len(tokenizer), not untied
    for name in ("cls", "sep", "bos", "eos", "pad", "mask"):
        index = getattr(tokenizer, f"{name}_token_id")
        if index is not None and hasattr(config, f"{name}_token_id"):
            setattr(config, f"{name}_token_id", index)
    with _only_masked_models(config.model_type):
        model = AutoModelForMaskedLM.from_config(config).float()
    _check_encoder(model)
    return model


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


def _check_encoder(model: Any) -> None:
    if model.config.is_encoder_decoder:
        raise ModelError(
            f"{model.config.model_type!r} has a decoder. Use a model that is an encoder alone, such as bert."
        )


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


def open_model(name: str, options: Mapping[str, Any]) -> tuple[Any, list[str]]:
    """Open a model in float32 on the CPU; also return the names of weights of a missing head, which are random.

    Raises:
        ModelError: not a masked language model, or weights of the encoder itself are missing.
    """
    options = reach_model(name, dict(options))
    with opening(name, options), _only_masked_models(name):
        model, report = AutoModelForMaskedLM.from_pretrained(
            name, dtype=torch.float32, output_loading_info=True, **guarded(options, weights=True)
        )
    _check_encoder(model)
    missing = sorted(report["missing_keys"])
    if encoder_weights := [weight for weight in missing if weight.startswith(f"{model.base_model_prefix}.")]:
        require_weights(name, model, lambda: weight_shapes(name, file_options(options)), encoder_weights)
    return model, missing


# -- sequences and masks ----------------------------------------------------------------------------------------------


def split_texts(texts: Sequence[str], seed: int) -> tuple[list[str], list[str]]:
    """Split the distinct texts into training texts and held-out texts: one in a hundred, at least 1 and at most 2000.

    Raises:
        InputError: not texts, or fewer than two of them.
    """
    distinct = list(dict.fromkeys(text for text in check_texts(texts) if text.strip()))
    if len(distinct) < 2:
        raise InputError(f"Cannot train on {len(distinct)} different texts, of which one is held out. Use more texts.")
    count = max(1, min(MAX_HELD_OUT, round(SHARE * len(distinct))))
    held_out = np.sort(np.random.default_rng([seed, 1]).permutation(len(distinct))[:count])
    return np.delete(np.array(distinct, object), held_out).tolist(), [distinct[index] for index in held_out]


def pack(tokenizer: Any, texts: Sequence[str], length: int) -> np.ndarray:
    """Pack texts into sequences of `length` tokens: [CLS] text [SEP] [CLS] text [SEP] …, first fit, in order.

    Only texts that are longer than a sequence are split. Strings that look like special tokens are read as text.

    Args:
        tokenizer: a fast tokenizer.
        texts: the texts to pack.
        length: number of tokens per sequence.

    Returns:
        Token ids (N,T), padded.

    Raises:
        InputError: no room between the special tokens.
    """
    special = tokenizer.num_special_tokens_to_add()
    if length <= special:
        raise InputError(f"max_seq_length={length}: must be at least {special + 1}, for {special} special tokens.")
    fast_backend(tokenizer)  # raises for slow tokenizers, which lack the options below
    own_tokenizer = copy.deepcopy(tokenizer)  # the calls below change its truncation
    options = {"truncation": True, "max_length": length, "return_overflowing_tokens": True}
    sequences = [np.empty((0, length), np.int32)]
    for _, portion in portions(texts):
        encoded = own_tokenizer([mend_surrogates(text) for text in portion], split_special_tokens=True, **options)
        rows: list[list[int]] = []
        for ids in encoded["input_ids"]:  # a long text has several rows
            if len(ids) > special:
                row = next((row for row in rows[-OPEN_SEQUENCES:] if len(row) + len(ids) <= length), None)
                if row is None:
                    rows.append(row := [])
                row.extend(ids)
        padded = [row + [tokenizer.pad_token_id] * (length - len(row)) for row in rows]
        sequences.append(np.array(padded, np.int32).reshape(-1, length))
    return np.concatenate(sequences)


def mask(ids: torch.Tensor, masking: Any) -> dict[str, torch.Tensor]:
    """Mask token ids (B,T), and return them with labels (B,T), which are -100 for tokens that are not predicted.

    `masking` is transformers' collator: of the predicted tokens 80 % are [MASK], 10 % random and 10 % unchanged.
    The random numbers come from the masking's own generator or, if it has none, from torch's on the CPU.
    """
    own_ids, tokenizer = ids.cpu().long(), masking.tokenizer
    unmasked = set(tokenizer.all_special_ids) - {tokenizer.unk_token_id}
    special = torch.isin(own_ids, torch.tensor(sorted(unmasked)))
    masked, labels = masking.torch_mask_tokens(own_ids.clone(), special)
    batch = {"input_ids": masked, "attention_mask": (own_ids != tokenizer.pad_token_id).long(), "labels": labels}
    return {name: values.to(ids.device) for name, values in batch.items()}


def masked_once(ids: np.ndarray, masking: Any, seed: int) -> list[dict[str, torch.Tensor]]:
    """Mask sequences (N,T) once, with masks that all validations share; return at least 64 rows of `mask`.

    Raises:
        InputError: no token is masked.
    """
    seeded = copy.copy(masking)
    seeded.generator = torch.Generator().manual_seed(seed)
    repeated = np.tile(ids, (-(-MIN_SEQUENCES // max(1, len(ids))), 1))
    batch = mask(torch.from_numpy(repeated), seeded)
    if not (batch["labels"] != IGNORED).any():
        raise InputError("The held-out texts contain no token to predict. Use more texts.")
    return [dict(zip(batch, row, strict=True)) for row in zip(*batch.values(), strict=True)]


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
