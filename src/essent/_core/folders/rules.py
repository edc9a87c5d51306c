"""Safe values of the keys by which a model's folder could run code, read files outside or download.

Other keys are plain settings: they are passed unchanged to sentence-transformers and transformers, whatever version
wrote them (`essent._core.folders.contents` warns about keys that a library ignores).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Kind:
    """The allowed values of a key; `expected` describes them in errors."""

    expected: str
    allows: Callable[[Any], bool]


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 10**31  # 1e30 means no limit


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and not set("/\\") & set(value)


def _has_path(value: Any) -> bool:
    return any(map(_has_path, value)) if isinstance(value, list) else isinstance(value, str) and not _is_name(value)


TEXT = Kind("a string", lambda value: isinstance(value, str))
WHOLE = Kind("a whole number", _whole)
LIMIT = Kind("a number above 0", lambda value: type(value) in (int, float) and 0 < value < float("inf"))
LAYERS = Kind("a whole number up to 10,000", lambda value: _whole(value) and value <= 10_000)
ANYTHING = Kind("anything", lambda value: True)
NULL = Kind("null", lambda value: value is None)
PLAIN = Kind("a string, a number, true, false or null", lambda v: v is None or isinstance(v, (str, bool, int, float)))
NO_PATH = Kind(
    "a value without / and \\, which name other folders and repositories", lambda value: not _has_path(value)
)
FILE_NAME = Kind(
    "the name of a file in the folder itself, or null",
    lambda value: value is None or (_is_name(value) and value not in ("", "..")),
)
WEIGHTS = Kind(
    "the name of a safetensors file in the folder itself",
    lambda value: _is_name(value) and value.endswith((".safetensors", ".safetensors.index.json")),
)


def optional(kind: Kind) -> Kind:
    """Allow null as well."""
    return either(kind, NULL)


def either(*kinds: Kind) -> Kind:
    """Allow the values of any of the kinds."""
    return Kind(" or ".join(kind.expected for kind in kinds), lambda value: any(kind.allows(value) for kind in kinds))


def listed(kind: Kind) -> Kind:
    """Allow lists of such values."""
    return Kind(f"a list (each value: {kind.expected})", lambda v: isinstance(v, list) and all(map(kind.allows, v)))


def mapping(kind: Kind) -> Kind:
    """Allow objects with such values."""
    return Kind(
        f"an object (each value: {kind.expected})", lambda v: isinstance(v, dict) and all(map(kind.allows, v.values()))
    )


def one_of(*values: Any) -> Kind:
    """Allow only these values."""
    return Kind(
        " or ".join(map(repr, values)), lambda value: any(value == v and type(value) is type(v) for v in values)
    )


@dataclass(frozen=True)
class Rule:
    """The allowed values of the keys of a file, or of an object in it.

    Attributes:
        keys: kinds, or rules for objects, by key.
        unlisted: the kind of unlisted keys.
        endings: kinds of unlisted keys by their ending; they take precedence over `unlisted`.
        deep: whether the rule also holds for objects below unlisted keys.
    """

    keys: Mapping[str, Kind | Rule]
    unlisted: Kind = ANYTHING
    endings: Mapping[str, Kind] = field(default_factory=dict)
    deep: bool = False

    def kind_of(self, key: str) -> Kind | Rule:
        """Return the kind or rule of a key."""
        if key in self.keys:
            return self.keys[key]
        return next((kind for ending, kind in self.endings.items() if key.endswith(ending)), self.unlisted)


# -- transformers -----------------------------------------------------------------------------------------------------

ATTENTION = one_of("eager", "sdpa", "flash_attention_2", "flash_attention_3", "flex_attention", None)
DTYPE = one_of("float32", "float16", "bfloat16", "float64", "auto", None)
# Keys of a configuration that select other kernels, other weights or other number formats.
STEERING: dict[str, Kind] = {
    **dict.fromkeys(
        ("attn_implementation", "_attn_implementation", "_attn_implementation_internal"),
        either(ATTENTION, mapping(ATTENTION)),
    ),
    **dict.fromkeys(
        ("_experts_implementation", "experts_implementation"), one_of("eager", "grouped_mm", "batched_mm", None)
    ),
    **dict.fromkeys(
        ("quantization_config", "compression_config", "distributed_config", "use_kernels", "kernel_config"),
        one_of(None, False),
    ),
    "transformers_weights": optional(WEIGHTS),
    "torch_dtype": DTYPE,
    "dtype": DTYPE,
}
# Arguments of from_pretrained that select what is read, and from where. In config.json they have no effect.
SAFETY: dict[str, Kind] = {
    "trust_remote_code": one_of(False),
    "weights_only": one_of(True),
    "use_safetensors": one_of(True, None),
}
ELSEWHERE = dict.fromkeys(
    (
        "adapter_kwargs adapter_name allow_all_kernels auto_map cache_dir code_revision config force_download "
        "gguf_file local_files_only model_type offload_folder proxies resume_download return_unused_kwargs revision "
        "subfolder token use_auth_token variant _commit_hash _configuration_file _from_auto _from_pipeline"
    ).split(),
    NULL,
)
CONFIG = Rule(
    {
        **STEERING,
        "configuration_files": optional(listed(FILE_NAME)),
        **dict.fromkeys(("num_hidden_layers", "num_layers", "n_layers", "n_layer"), optional(LAYERS)),
    },
    deep=True,
)  # it can have an auto_map, which is ignored without trust_remote_code
ARGUMENTS = Rule(
    {**STEERING, **SAFETY, **ELSEWHERE},
    NO_PATH,
    {"_token": ANYTHING, **dict.fromkeys(("_file", "_filename", "_path", "_dir"), NULL)},
    deep=True,
)
TOKENIZER = Rule(
    {
        "trust_remote_code": one_of(False),
        "init_inputs": Kind("an empty list", lambda value: value == []),
        "fast_tokenizer_files": optional(listed(FILE_NAME)),
        "tokenizer_object": NULL,
        "model_max_length": optional(LIMIT),
        # paths on the machine that wrote them, which transformers ignores: it reads the files of the folder
        **dict.fromkeys(("tokenizer_file", "vocab_file", "merges_file", "special_tokens_map_file"), optional(TEXT)),
    },
    endings={"_file": FILE_NAME},
)
SPECIAL_TOKENS = Rule({}, endings={"_file": FILE_NAME})

# -- sentence-transformers --------------------------------------------------------------------------------------------

SENTENCE_TRANSFORMERS: dict[str, Kind] = {
    "prompts": optional(mapping(optional(TEXT))),
    "default_prompt_name": optional(TEXT),
    "similarity_fn_name": one_of("cosine", "dot", "euclidean", "manhattan", None),
    "truncate_dim": optional(Kind("a whole number above 0", lambda value: _whole(value) and value > 0)),
    "model_type": TEXT,
}
MODULE = Rule({"name": TEXT, "path": TEXT, "type": TEXT, "kwargs": listed(TEXT)})
OLD_ARGUMENTS = {"model_args": "model_kwargs", "config_args": "config_kwargs", "tokenizer_args": "processor_kwargs"}
_WORD_TOKENIZERS = ("TransformersTokenizerWrapper", "WhitespaceTokenizer", "PhraseTokenizer")


def is_stock_class(path: str, names: Collection[str]) -> bool:
    """Whether a dotted path names one of these classes inside sentence-transformers."""
    *packages, name = path.split(".")
    return packages[:1] == ["sentence_transformers"] and name in names and all(p.isidentifier() for p in packages)


MODULE_SETTINGS = Rule(
    {
        **dict.fromkeys((*OLD_ARGUMENTS, *OLD_ARGUMENTS.values()), ARGUMENTS),
        "processing_kwargs": optional(mapping(mapping(PLAIN))),
        "backend": one_of("torch"),
        "cache_dir": NULL,
        "max_seq_length": optional(WHOLE),
        "activation_function": Kind(
            "a class of torch.nn, such as 'torch.nn.modules.linear.Identity'",
            lambda value: isinstance(value, str) and value.startswith("torch.nn."),
        ),
        "tokenizer_class": Kind(
            "a tokenizer of sentence-transformers",
            lambda value: isinstance(value, str) and is_stock_class(value, _WORD_TOKENIZERS),
        ),
    },
    endings={"_name_or_path": NULL},
)
# The modules for text, and the settings file of each.
MODULES: dict[str, str] = {
    "Transformer": "sentence_bert_config.json",
    "StaticEmbedding": "",
    "WordEmbeddings": "wordembedding_config.json",
    "CNN": "cnn_config.json",
    "LSTM": "lstm_config.json",
    "Router": "router_config.json",
    "Asym": "router_config.json",
    **dict.fromkeys(
        ("Pooling", "Normalize", "Dense", "LayerNorm", "Dropout", "WordWeights", "WeightedLayerPooling", "BoW"),
        "config.json",
    ),
}
WITHOUT_WEIGHTS = ("Pooling", "Normalize", "Dropout", "BoW", "Router", "Asym")
