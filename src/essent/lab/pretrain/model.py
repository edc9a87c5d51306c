"""The masked language model of a run: loaded or built, tied or untied, its logits at masked tokens, its WordPieces."""

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

from essent._core.folders.opening import guarded, opening
from essent._core.folders.weights import weight_shapes
from essent._core.hub import file_options, reach_model
from essent._core.registry import did_you_mean
from essent._core.texts import mend_surrogates
from essent.errors import InputError, ModelError
from essent.lab.pretrain.settings import SIZES
from essent.model.weights import require_weights

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
LETTERS = 1000  # the most frequent ones get a token; a word with any other is [UNK]


def train_word_pieces(texts: Sequence[str], size: int = 30_522) -> Any:
    """A lower-case `BertTokenizer` with a vocabulary learned from texts. Equal texts give equal bytes.

    Args:
        size: the most tokens of the vocabulary; few texts give fewer.
    """
    from tokenizers.implementations import BertWordPieceTokenizer
    from transformers import BertTokenizer

    readable = [mend_surrogates(text) for text in texts]
    learning: Any = BertWordPieceTokenizer()
    # The most frequent letters are chosen here, as tokenizers' choice among rare ones differs between runs.
    counts = Counter(chain.from_iterable(map(learning.normalizer.normalize_str, readable)))
    letters = sorted((c for c in counts if not c.isspace()), key=lambda c: (-counts[c], c))[:LETTERS]
    # tokenizers numbers "##a" and the like in the order of a hash table and breaks ties by these numbers, so that two
    # runs differ. Given as special tokens they have fixed numbers; in the tokenizer that comes out they are ordinary.
    pieces = [f"##{letter}" for letter in letters if _may_continue(letter)]
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


def _may_continue(letter: str) -> bool:
    """Whether a letter may stand within a word: BERT's pre-tokenizer cuts at punctuation and around Chinese."""
    punctuation = letter in string.punctuation or unicodedata.category(letter).startswith("P")
    return not punctuation and not "\u4e00" <= letter <= "\u9fff"


# -- tokenizer and configuration --------------------------------------------------------------------------------------


def read_config(model: str | None, config: str | None, options: dict[str, Any]) -> Any:
    """The configuration of a model to go on with, or of one to build: a name of `SIZES` or a config.json.

    Raises:
        InputError: both or neither, an unknown size.
        ModelError: nothing to load there, or no masked language model.
    """
    if (model is None) == (config is None):
        raise InputError(
            "Give a model to go on with, or the config of a new one"
            f" ({', '.join(SIZES)}, or a config.json): {'both were' if model else 'none was'} given."
        )
    if model is not None:
        options = reach_model(model, options)
        with opening(model, options):
            configuration = AutoConfig.from_pretrained(model, **guarded(options))
    else:
        configuration = _new(str(config))
    if type(configuration) not in MODEL_FOR_MASKED_LM_MAPPING or configuration.is_encoder_decoder:
        raise ModelError(
            f"transformers has no masked language model for model_type={configuration.model_type!r}; "
            "encoders such as bert, roberta, distilbert, electra, mpnet, deberta-v2 and modernbert have one."
        )
    return configuration


def _new(name: str) -> Any:
    values = _read(name)
    kind = str(values.pop("model_type"))
    if kind not in CONFIG_MAPPING:
        raise InputError(f"{name}: model_type={kind!r} is unknown. {did_you_mean(kind, list(CONFIG_MAPPING))}")
    try:
        config = CONFIG_MAPPING[kind](**values)
    except (TypeError, ValueError, StrictDataclassError) as error:
        raise InputError(f"{name}: {' '.join(str(error).split())}") from None
    if "vocab_size" not in values:
        config.vocab_size = 0  # `fit_config` takes that of the tokenizer
    return config


def _read(name: str) -> dict[str, Any]:
    """The values of a size or of a config.json."""
    if name in SIZES:
        layers, width = SIZES[name]
        values = {"num_hidden_layers": layers, "hidden_size": width}
        return {"model_type": "bert", **values, "num_attention_heads": width // 64, "intermediate_size": 4 * width}
    if not Path(name).is_file():
        hint = did_you_mean(name, list(SIZES))
        raise InputError(f"config={name!r} is neither a file (a config.json with model_type) nor a size. {hint}")
    try:
        read = dict(json.loads(Path(name).read_text(encoding="utf-8")))
        return {**read, "model_type": read["model_type"]}
    except (ValueError, TypeError, KeyError) as error:
        raise InputError(f"{name} is no configuration: JSON with a model_type is expected ({error!r}).") from None


def open_tokenizer(
    model: str | None, tokenizer: str | None, texts: Sequence[str], options: dict[str, Any], vocabulary: int
) -> Any:
    """The model's own tokenizer, a named one, or by default one that is trained on the texts.

    Raises:
        InputError: another tokenizer than the model's own.
        ModelError: nothing to load there, or no mask or padding token in it.
    """
    if model is not None and tokenizer is not None:
        raise InputError(f"A model keeps its own tokenizer: leave out tokenizer={tokenizer!r}, or give a config.")
    if model is None and tokenizer is None:
        return train_word_pieces(texts, vocabulary)
    name = str(model or tokenizer)
    options = reach_model(name, options)
    with opening(name, options):
        loaded_tokenizer = AutoTokenizer.from_pretrained(name, **guarded(options))
    for kind in ("mask", "pad"):
        if getattr(loaded_tokenizer, f"{kind}_token_id") is None:
            raise ModelError(f"The tokenizer of {name!r} has no {kind} token, which masked language modelling needs.")
    return loaded_tokenizer


def fit_config(config: Any, tokenizer: Any, length: int, *, new: bool, untied: bool) -> None:
    """Set what a new model's configuration takes from the tokenizer, and check what it must hold.

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
        raise InputError(f"vocab_size={config.vocab_size} of the model is smaller than the tokenizer's {rows} tokens.")
    positions = getattr(config, "max_position_embeddings", None)
    if positions is not None and positions < length:
        raise InputError(f"max_seq_length={length}: the model has positions for {positions} tokens; take that at most.")


# -- weights ----------------------------------------------------------------------------------------------------------


def open_model(
    model: str | None, config: Any, options: dict[str, Any], *, untied: bool, seed: int
) -> tuple[nn.Module, list[str]]:
    """The model in float32 on the CPU, and the names of the weights that are new: all, or those of a missing head.

    An untied model that was tied begins with two equal matrices.

    Raises:
        ModelError: weights of the encoder itself are missing.
    """
    torch.manual_seed(seed)
    if model is None:
        built = AutoModelForMaskedLM.from_config(config)
        return built.float(), sorted(name for name, _ in built.named_parameters())
    options = reach_model(model, options)
    with opening(model, options):
        loaded, report = AutoModelForMaskedLM.from_pretrained(
            model, dtype=torch.float32, output_loading_info=True, **guarded(options, weights=True)
        )
    missing = sorted(report["missing_keys"])
    if encoder := [name for name in missing if name.startswith(f"{loaded.base_model_prefix}.")]:
        require_weights(model, loaded, weight_shapes(model, file_options(options)), encoder)
    if untied:
        untie(loaded)
    return loaded, missing


def untie(model: Any) -> None:
    """Give the output a matrix (and bias) of its own, equal to what it shared so far (PromptBERT, App. A.2)."""
    output = model.get_output_embeddings()
    owners = Counter(id(weight) for _, weight in model.named_parameters(remove_duplicate=False))
    for name, weight in list(output.named_parameters(recurse=False)):
        if owners[id(weight)] > 1:  # BERT's bias has two names; only one of a shared pair is saved
            setattr(output, name, nn.Parameter(weight.detach().clone()))
    model.config.tie_word_embeddings = False


@contextlib.contextmanager
def logits_at(model: Any, chosen: torch.Tensor) -> Iterator[None]:
    """Within the block a masked language model gives logits (1,M,V) of the M tokens chosen by (B,T), and no others.

    The other logits are most of its work. A prediction head works on each token by itself, so that it gives the same
    logits when a hook on the encoder passes on the states (B,T,D) of the chosen tokens alone, as (1,M,D).
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
