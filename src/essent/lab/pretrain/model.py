"""The masked language model of a run: load or build it, untie its embeddings, train its WordPiece tokenizer."""

from __future__ import annotations

import contextlib
import json
import string
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from huggingface_hub.errors import StrictDataclassError
from torch import nn
from transformers import MODEL_FOR_MASKED_LM_MAPPING, AutoConfig, AutoModelForMaskedLM, AutoTokenizer
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from essent._core.folders.contents import guarded, opening, weight_shapes
from essent._core.hub import file_options, reach_model
from essent._core.registry import did_you_mean
from essent._core.texts import mend_surrogates
from essent.errors import InputError, ModelError
from essent.lab.pretrain.settings import SIZES, Start
from essent.model.weights import require_weights

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
LETTERS = 1000  # number of most frequent letters that get a token; a word with another letter is [UNK]


def train_word_pieces(texts: Sequence[str], size: int = 30_522) -> Any:
    """Train a lower-case `BertTokenizer` on texts; equal texts give the same vocabulary file, byte for byte.

    Args:
        texts: the texts to learn from.
        size: maximum number of tokens of the vocabulary; few texts give fewer.
    """
    from tokenizers.implementations import BertWordPieceTokenizer
    from transformers import BertTokenizer

    readable = [mend_surrogates(text) for text in texts]
    learning: Any = BertWordPieceTokenizer()
    # The most frequent letters are chosen here, since tokenizers' choice among rare ones differs between runs.
    counts = Counter(chain.from_iterable(map(learning.normalizer.normalize_str, readable)))
    letters = sorted((c for c in counts if not c.isspace()), key=lambda c: (-counts[c], c))[:LETTERS]
    # tokenizers numbers "##a" and the like in the order of a hash table and breaks ties by these numbers, so two runs
    # differ. As special tokens they have fixed numbers; in the resulting tokenizer they are ordinary tokens.
    # A letter within a word is no punctuation and no Chinese character: BERT splits there.
    marks = [c in string.punctuation or unicodedata.category(c)[0] == "P" or "\u4e00" <= c <= "\u9fff" for c in letters]
    pieces = [f"##{letter}" for letter, splits in zip(letters, marks, strict=True) if not splits]
    learning.train_from_iterator(
        readable,
        vocab_size=size,
        min_frequency=0,
        limit_alphabet=len(letters),
        initial_alphabet=letters,
        special_tokens=[*SPECIAL, *pieces],
        show_progress=False,
    )
    return BertTokenizer(learning.get_vocab(), model_max_length=512)


# -- tokenizer and configuration --------------------------------------------------------------------------------------


def read_config(start: Start) -> Any:
    """Read the configuration of an existing model, or of a new one: a name in `SIZES` or a config.json.

    Raises:
        InputError: both a model and a configuration or neither of them, or an unknown size.
        ModelError: the model cannot be loaded, or is not a masked language model.
    """
    model = start.model
    if (model is None) == (start.config is None):
        sizes = ", ".join(SIZES)
        raise InputError(f"model={model!r} and config={start.config!r}: pass one; config is {sizes} or a config.json.")
    if model is not None:
        options = reach_model(model, dict(start.options))
        with opening(model, options):
            config = AutoConfig.from_pretrained(model, **guarded(options))
    else:
        config = _new_config(str(start.config))
    if type(config) not in MODEL_FOR_MASKED_LM_MAPPING or config.is_encoder_decoder:
        raise ModelError(
            f"transformers has no masked language model for model_type={config.model_type!r}. Use an encoder "
            "such as bert, roberta, distilbert, electra, mpnet, deberta-v2 or modernbert."
        )
    return config


def _new_config(name: str) -> Any:
    """Return the configuration of a size or of a config.json."""
    if name in SIZES:
        layers, width = SIZES[name]
        sizes: dict[str, Any] = {"num_hidden_layers": layers, "num_attention_heads": width // 64, "hidden_size": width}
        sizes |= {"intermediate_size": 4 * width, "vocab_size": 0}  # `fit_config` sets the vocabulary
        return CONFIG_MAPPING["bert"](**sizes)
    if not Path(name).is_file():
        hint = did_you_mean(name, list(SIZES))
        raise InputError(f"config={name!r} is neither a config.json with model_type nor a size. {hint}")
    try:
        fields = {"vocab_size": 0, **json.loads(Path(name).read_text(encoding="utf-8"))}
        return CONFIG_MAPPING[fields.pop("model_type")](**fields)
    except (ValueError, TypeError, KeyError, StrictDataclassError) as error:
        raise InputError(
            f"{name} is not a configuration, a JSON object with a model_type of transformers: "
            f"{' '.join(str(error).split())}"
        ) from None


def open_tokenizer(start: Start, texts: Sequence[str]) -> Any:
    """Open the model's own tokenizer or a named one; by default, train one on the texts.

    Raises:
        InputError: both a model and a tokenizer.
        ModelError: the tokenizer cannot be loaded, or has no mask or padding token.
    """
    if start.model is not None and start.tokenizer is not None:
        raise InputError(
            f"tokenizer={start.tokenizer!r}: an existing model has its own tokenizer. Omit tokenizer=, or use config= "
            "for a new model."
        )
    name = start.model or start.tokenizer
    if name is None:
        return train_word_pieces(texts, start.vocabulary)
    options = reach_model(name, dict(start.options))
    with opening(name, options):
        tokenizer = AutoTokenizer.from_pretrained(name, **guarded(options))
    for kind in ("mask", "pad"):
        if getattr(tokenizer, f"{kind}_token_id") is None:
            raise ModelError(f"The tokenizer of {name!r} has no {kind} token. Masked language modelling needs one.")
    return tokenizer


def fit_config(config: Any, tokenizer: Any, length: int, *, new: bool, untied: bool) -> None:
    """Set the values of a new model's configuration that depend on the tokenizer, and check the sizes.

    Raises:
        InputError: sequences longer than the model's positions, or a vocabulary smaller than the tokenizer's.
    """
    rows = len(tokenizer)
    if new:
        config.vocab_size = config.vocab_size or rows
        for name in ("cls", "sep", "bos", "eos", "pad", "mask"):
            index = getattr(tokenizer, f"{name}_token_id")
            if index is not None and hasattr(config, f"{name}_token_id"):
                setattr(config, f"{name}_token_id", index)
        config.tie_word_embeddings = not untied
    if config.vocab_size < rows:
        raise InputError(f"vocab_size={config.vocab_size} of the model: must be at least {rows}, as in the tokenizer.")
    positions = getattr(config, "max_position_embeddings", None)
    if positions is not None and positions < length:
        raise InputError(f"max_seq_length={length}: must be at most {positions}, the model's number of positions.")


# -- weights ----------------------------------------------------------------------------------------------------------


def open_model(start: Start, config: Any = None, *, untied: bool = False, seed: int = 0) -> tuple[nn.Module, list[str]]:
    """Open the model in float32 on the CPU; also return the names of random weights: all, or those of a missing head.

    A tied model that is untied starts with two equal matrices. `config` is that of a new model.

    Raises:
        ModelError: weights of the encoder itself are missing.
    """
    torch.manual_seed(seed)
    if (name := start.model) is None:
        model = AutoModelForMaskedLM.from_config(config).float()
        return model, sorted(weight for weight, _ in model.named_parameters())
    options = reach_model(name, dict(start.options))
    with opening(name, options):
        model, report = AutoModelForMaskedLM.from_pretrained(
            name, dtype=torch.float32, output_loading_info=True, **guarded(options, weights=True)
        )
    missing = sorted(report["missing_keys"])
    if encoder_weights := [weight for weight in missing if weight.startswith(f"{model.base_model_prefix}.")]:
        require_weights(name, model, lambda: weight_shapes(name, file_options(options)), encoder_weights)
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
