"""Which keys the files of a model's folder may have, and which values: tables, one row a key.

Only what is listed here reaches the libraries that build a model. The files are those of sentence-transformers and
transformers, their keys those of the versions that pyproject.toml allows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Kind:
    """The values that a key may have: `expected` says them in words for an error."""

    expected: str
    allows: Callable[[Any], bool]


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 10**31  # 1e30 stands for no limit


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


TEXT = Kind("a string", lambda value: isinstance(value, str))
FLAG = Kind("true or false", lambda value: isinstance(value, bool))
WHOLE = Kind("a whole number", _whole)
SIZE = Kind("a whole number below 10**9", lambda value: _whole(value) and value < 10**9)
LAYERS = Kind(
    "a whole number up to 10,000", lambda value: _whole(value) and value <= 10_000
)  # some are listed one by one
NUMBER = Kind("a finite number", _number)
ANYTHING = Kind("anything", lambda value: True)
NULL = Kind("null", lambda value: value is None)
PLAIN = Kind("a string, a number, true, false or null", lambda v: v is None or isinstance(v, (str, bool, int, float)))
FILE_NAME = Kind(
    "the name of a file in the folder itself, or null",
    lambda value: value is None or (isinstance(value, str) and not set("/\\") & set(value) and value not in ("", "..")),
)


def optional(kind: Kind) -> Kind:
    """The same, or null."""
    return Kind(f"{kind.expected}, or null", lambda value: value is None or kind.allows(value))


def either(*kinds: Kind) -> Kind:
    """What any of the kinds allows."""
    return Kind(" or ".join(kind.expected for kind in kinds), lambda value: any(kind.allows(value) for kind in kinds))


def listed(kind: Kind) -> Kind:
    """A list of such values."""
    return Kind(f"a list (each value: {kind.expected})", lambda v: isinstance(v, list) and all(map(kind.allows, v)))


def mapping(kind: Kind) -> Kind:
    """An object with such values."""
    return Kind(
        f"an object (each value: {kind.expected})", lambda v: isinstance(v, dict) and all(map(kind.allows, v.values()))
    )


def one_of(*values: Any) -> Kind:
    """One of these."""
    return Kind(
        " or ".join(map(repr, values)), lambda value: any(value == v and type(value) is type(v) for v in values)
    )


@dataclass(frozen=True)
class Rule:
    """The keys of a file or of an object in it.

    Attributes:
        keys: kinds, or rules for objects, by key.
        others: what keys that are not listed may be; None refuses them.
        endings: the same for unlisted keys that end so.
    """

    keys: Mapping[str, Kind | Rule]
    others: Kind | None = None
    endings: Mapping[str, Kind] = field(default_factory=dict)

    def kind_of(self, key: str) -> Kind | Rule | None:
        """What a key may be; None where it is unknown."""
        if key in self.keys:
            return self.keys[key]
        return next((kind for ending, kind in self.endings.items() if key.endswith(ending)), self.others)


# -- transformers -----------------------------------------------------------------------------------------------------

ATTENTION = optional(one_of("eager", "sdpa", "flash_attention_2", "flash_attention_3", "flex_attention"))
DTYPE = optional(one_of("float32", "float16", "bfloat16", "float64", "auto"))
SIDE = one_of("left", "right")
# Keys of a configuration that lead elsewhere: other kernels, other weights, other layouts of the numbers.
STEERING: dict[str, Kind] = {
    **dict.fromkeys(
        ("attn_implementation", "_attn_implementation", "_attn_implementation_internal"),
        either(ATTENTION, mapping(ATTENTION)),
    ),
    "_experts_implementation": optional(one_of("eager", "grouped_mm", "batched_mm")),
    "experts_implementation": optional(one_of("eager", "grouped_mm", "batched_mm")),
    **dict.fromkeys(
        ("quantization_config", "compression_config", "distributed_config", "use_kernels", "kernel_config"),
        either(NULL, one_of(False)),
    ),
    "transformers_weights": Kind(
        "the name of a safetensors file in the folder itself, or null",
        lambda v: v is None or (FILE_NAME.allows(v) and v.endswith((".safetensors", ".safetensors.index.json"))),
    ),
    "torch_dtype": DTYPE,
    "dtype": DTYPE,
}
# Arguments of from_pretrained, which choose what is read, and from where. In config.json they have no effect.
SAFETY: dict[str, Kind] = {
    "trust_remote_code": one_of(False),
    "weights_only": one_of(True),
    "use_safetensors": optional(one_of(True)),
}
ELSEWHERE = dict.fromkeys(
    (
        "cache_dir code_revision force_download gguf_file local_files_only name_or_path proxies resume_download "
        "return_unused_kwargs revision subfolder token use_auth_token"
    ).split()
    + "_commit_hash _configuration_file _from_auto _from_pipeline _name_or_path".split(),
    NULL,
)
CONFIG = Rule(
    {
        **STEERING,
        "model_type": TEXT,
        "architectures": optional(listed(TEXT)),
        "configuration_files": optional(listed(FILE_NAME)),
        "auto_map": ANYTHING,  # which nobody follows without trust_remote_code
        **dict.fromkeys(("num_attention_heads", "hidden_size", "vocab_size"), optional(SIZE)),
        **dict.fromkeys(("num_hidden_layers", "num_layers", "n_layers", "n_layer"), optional(LAYERS)),
    },
    ANYTHING,
)
SAFE_SETTINGS = {key: kind for key, kind in STEERING.items() if key != "transformers_weights"} | SAFETY
MODEL_SETTINGS = Rule(
    {**SAFE_SETTINGS, "add_pooling_layer": FLAG, "low_cpu_mem_usage": FLAG, "output_hidden_states": FLAG}
)
CONFIG_SETTINGS = Rule({**STEERING, **SAFETY, **ELSEWHERE, "auto_map": NULL, "model_type": NULL}, PLAIN)
TOKENIZER_SETTINGS = Rule(
    {
        "padding_side": SIDE,
        "truncation_side": SIDE,
        "model_max_length": optional(NUMBER),
        "trust_remote_code": one_of(False),
        **dict.fromkeys(("use_fast", "do_lower_case", "add_eos_token", "add_bos_token", "add_prefix_space"), FLAG),
        **dict.fromkeys(
            ("clean_up_tokenization_spaces", "fix_mistral_regex", "legacy", "strip_accents"), optional(FLAG)
        ),
    }
)
_TOKEN = optional(either(TEXT, mapping(ANYTHING)))
_TOKENS = ("unk", "sep", "pad", "cls", "mask", "bos", "eos")
TOKENIZER = Rule(
    {
        "auto_map": ANYTHING,  # which nobody follows without trust_remote_code
        "trust_remote_code": one_of(False),
        "tokenizer_class": optional(TEXT),
        "model_max_length": optional(Kind("a number above 0", lambda value: _number(value) and value > 0)),
        "padding_side": SIDE,
        "truncation_side": SIDE,
        "added_tokens_decoder": mapping(mapping(ANYTHING)),
        "model_input_names": listed(TEXT),
        **{f"{name}_token": _TOKEN for name in _TOKENS},
        "init_inputs": Kind("an empty list", lambda value: value == []),
        "fast_tokenizer_files": optional(listed(FILE_NAME)),
        "tokenizer_object": NULL,
        # where these lay on the machine that wrote them: transformers looks in the folder all the same
        **dict.fromkeys(("tokenizer_file", "vocab_file", "merges_file", "special_tokens_map_file"), optional(TEXT)),
    },
    ANYTHING,
    {"_file": FILE_NAME},
)
SPECIAL_TOKENS = Rule(
    {}, None, {"_token": _TOKEN, "_tokens": either(listed(either(TEXT, mapping(ANYTHING))), mapping(_TOKEN))}
)

# -- sentence-transformers --------------------------------------------------------------------------------------------

_TASKS = ("feature-extraction", "fill-mask", "sequence-classification", "text-generation", "any-to-any", "retrieval")
TRANSFORMER = Rule(
    {
        "max_seq_length": optional(WHOLE),
        "do_lower_case": FLAG,
        "transformer_task": one_of(*_TASKS),
        "modality_config": mapping(mapping(ANYTHING)),
        "module_output_name": optional(TEXT),
        "processing_kwargs": optional(mapping(mapping(PLAIN))),
        "unpad_inputs": optional(FLAG),
        "query_length": optional(WHOLE),
        "document_length": optional(WHOLE),
        "query_expansion": optional(FLAG),
        **dict.fromkeys(("model_kwargs", "model_args"), MODEL_SETTINGS),
        **dict.fromkeys(("config_kwargs", "config_args"), CONFIG_SETTINGS),
        **dict.fromkeys(("processor_kwargs", "tokenizer_args"), TOKENIZER_SETTINGS),
    }
)
SENTENCE_TRANSFORMERS: dict[str, Kind] = {  # sentence-transformers does not read other keys
    "prompts": optional(mapping(optional(TEXT))),
    "default_prompt_name": optional(TEXT),
    "similarity_fn_name": optional(one_of("cosine", "dot", "euclidean", "manhattan")),
    "truncate_dim": optional(Kind("a whole number above 0", lambda value: _whole(value) and value > 0)),
    "model_type": TEXT,
}
MODULE = Rule({"idx": WHOLE, "name": TEXT, "path": TEXT, "type": TEXT, "kwargs": listed(TEXT)})
_NAMES = {"module_input_name": optional(TEXT), "module_output_name": optional(TEXT)}
_POOLING_FLAGS = (
    "cls_token mean_tokens max_tokens mean_sqrt_len_tokens weightedmean_tokens lasttoken attention"
).split()
_WORDS = {
    "vocab": listed(TEXT),
    "word_weights": mapping(NUMBER),
    "unknown_word_weight": NUMBER,
    "cumulative_term_frequency": FLAG,
}
_WIDTHS = {"embedding_dimension": WHOLE, "word_embedding_dimension": WHOLE}
_WORD_TOKENIZERS = ("TransformersTokenizerWrapper", "WhitespaceTokenizer", "PhraseTokenizer")


def _is_word_tokenizer(value: Any) -> bool:
    return isinstance(value, str) and is_stock_class(value, _WORD_TOKENIZERS)


def is_stock_class(path: str, names: tuple[str, ...]) -> bool:
    """Whether a dotted path leads to one of these classes inside sentence-transformers."""
    *packages, name = path.split(".")
    return packages[:1] == ["sentence_transformers"] and name in names and all(p.isidentifier() for p in packages)


@dataclass(frozen=True)
class ModuleFiles:
    """Files of a module of sentence-transformers: the one with its settings, their rule, and whether it has weights."""

    settings: str
    rule: Rule
    weights: bool = False


MODULES: dict[str, ModuleFiles] = {
    "Transformer": ModuleFiles("sentence_bert_config.json", TRANSFORMER, True),
    "Pooling": ModuleFiles(
        "config.json",
        Rule(
            {
                **_WIDTHS,
                "pooling_mode": either(TEXT, listed(TEXT)),
                "include_prompt": FLAG,
                **{f"pooling_mode_{flag}": FLAG for flag in _POOLING_FLAGS},
            }
        ),
    ),
    "Normalize": ModuleFiles("config.json", Rule(_NAMES, PLAIN)),
    "Dense": ModuleFiles(
        "config.json",
        Rule(
            {
                "in_features": WHOLE,
                "out_features": WHOLE,
                "bias": FLAG,
                "use_residual": FLAG,
                "activation_function": Kind(
                    "a class of torch.nn, such as 'torch.nn.modules.linear.Identity'",
                    lambda value: isinstance(value, str) and value.startswith("torch.nn."),
                ),
                **_NAMES,
            }
        ),
        True,
    ),
    "LayerNorm": ModuleFiles("config.json", Rule({"dimension": WHOLE}), True),
    "Dropout": ModuleFiles("config.json", Rule({"dropout": NUMBER})),
    "StaticEmbedding": ModuleFiles("", Rule({}), True),
    "WordEmbeddings": ModuleFiles(
        "wordembedding_config.json",
        Rule(
            {
                "tokenizer_class": Kind("a tokenizer of sentence-transformers", _is_word_tokenizer),
                "update_embeddings": FLAG,
                "max_seq_length": WHOLE,
            }
        ),
        True,
    ),
    "WordWeights": ModuleFiles("config.json", Rule(_WORDS), True),
    "WeightedLayerPooling": ModuleFiles(
        "config.json", Rule({**_WIDTHS, "layer_start": WHOLE, "num_hidden_layers": WHOLE}), True
    ),
    "BoW": ModuleFiles("config.json", Rule(_WORDS)),
    "CNN": ModuleFiles(
        "cnn_config.json",
        Rule(
            {
                "in_embedding_dimension": WHOLE,
                "in_word_embedding_dimension": WHOLE,
                "out_channels": WHOLE,
                "kernel_sizes": listed(WHOLE),
                "stride_sizes": optional(listed(WHOLE)),
            }
        ),
        True,
    ),
    "LSTM": ModuleFiles(
        "lstm_config.json",
        Rule({**_WIDTHS, "hidden_dim": WHOLE, "num_layers": WHOLE, "dropout": NUMBER, "bidirectional": FLAG}),
        True,
    ),
}
