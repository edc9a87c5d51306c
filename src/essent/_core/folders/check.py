"""Check before loading that a folder, or a repository on the hub, runs no code and reads or downloads nothing else.

The tables list the safe values of the keys by which a model could run code, read files outside or download. Other keys
are plain settings: they are passed unchanged to sentence-transformers and transformers, whatever version wrote them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from essent._core.folders.files import (
    ENCODER,
    GRAPH,
    STATE_FOLDER,
    check_digests,
    check_places,
    has_digests,
    is_inside,
    read_json,
)
from essent._core.hub import file_options, find_file, has_file
from essent.errors import DamagedError

# -- values -----------------------------------------------------------------------------------------------------------


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


def optional(kind: Kind) -> Kind:
    """Allow null as well."""
    return Kind(f"{kind.expected} or null", lambda value: value is None or kind.allows(value))


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


TEXT = Kind("a string", lambda value: isinstance(value, str))
WHOLE = Kind("a whole number", _whole)
ANYTHING = Kind("anything", lambda value: True)
PLAIN = Kind("a string, a number, true, false or null", lambda v: v is None or isinstance(v, (str, bool, int, float)))
NULL = one_of(None)
FILE_NAME = Kind(
    "the name of a file in the folder itself, or null",
    lambda value: value is None or (_is_name(value) and value not in ("", "..")),
)
WEIGHTS = Kind(
    "the name of a safetensors file in the folder itself",
    lambda value: _is_name(value) and value.endswith((".safetensors", ".safetensors.index.json")),
)

# -- tables -----------------------------------------------------------------------------------------------------------

# The kinds of keys, or tables of objects, by key or by a pattern such as "*_file"; they hold for nested objects too.
Table: TypeAlias = "Mapping[str, Kind | Table]"
STOCK = "sentence_transformers."


def is_stock_class(path: str, names: Collection[str]) -> bool:
    """Whether a dotted path names one of these classes inside sentence-transformers."""
    *packages, name = path.split(".")
    return packages[:1] == ["sentence_transformers"] and name in names and all(p.isidentifier() for p in packages)


ATTENTION = one_of("eager", "sdpa", "flash_attention_2", "flash_attention_3", "flex_attention", None)
DTYPE = one_of("float32", "float16", "bfloat16", "float64", "auto", None)
# Keys of a configuration that select other kernels, other weights or other number formats.
STEERING: Table = {
    **dict.fromkeys(
        ("attn_implementation", "_attn_implementation", "_attn_implementation_internal"),
        Kind(ATTENTION.expected, lambda value: ATTENTION.allows(value) or mapping(ATTENTION).allows(value)),
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
CONFIG: Table = {  # it can have an auto_map, which is ignored without trust_remote_code
    **STEERING,
    "configuration_files": optional(listed(FILE_NAME)),
    **dict.fromkeys(
        ("num_hidden_layers", "num_layers", "n_layers", "n_layer"),
        optional(Kind("a whole number up to 10,000", lambda value: _whole(value) and value <= 10_000)),
    ),
}
# Arguments of from_pretrained that select what is read, and from where.
ARGUMENTS: Table = {
    **STEERING,
    "trust_remote_code": one_of(False),
    "weights_only": one_of(True),
    "use_safetensors": one_of(True, None),
    **dict.fromkeys(
        (
            "adapter_kwargs adapter_name allow_all_kernels auto_map cache_dir code_revision config force_download "
            "gguf_file local_files_only model_type offload_folder proxies resume_download return_unused_kwargs "
            "revision subfolder token use_auth_token variant _commit_hash _configuration_file _from_auto "
            "_from_pipeline *_file *_filename *_path *_dir"
        ).split(),
        NULL,
    ),
    "*_token": ANYTHING,
    "*": Kind("a value without / and \\, which name other folders and repositories", lambda v: not _has_path(v)),
}
TOKENIZER: Table = {
    "trust_remote_code": one_of(False),
    "init_inputs": Kind("an empty list", lambda value: value == []),
    "fast_tokenizer_files": optional(listed(FILE_NAME)),
    "tokenizer_object": NULL,
    "model_max_length": optional(Kind("a number above 0", lambda v: type(v) in (int, float) and 0 < v < float("inf"))),
    # paths on the machine that wrote them, which transformers ignores: it reads the files of the folder
    **dict.fromkeys(("tokenizer_file", "vocab_file", "merges_file", "special_tokens_map_file"), optional(TEXT)),
    "*_file": FILE_NAME,
}
SENTENCE_TRANSFORMERS: dict[str, Kind] = {
    "prompts": optional(mapping(optional(TEXT))),
    "default_prompt_name": optional(TEXT),
    "similarity_fn_name": one_of("cosine", "dot", "euclidean", "manhattan", None),
    "truncate_dim": optional(Kind("a whole number above 0", lambda value: _whole(value) and value > 0)),
    "model_type": TEXT,
}
WORD_TOKENIZERS = ("TransformersTokenizerWrapper", "WhitespaceTokenizer", "PhraseTokenizer")
MODULE_SETTINGS: Table = {
    "*_args": ARGUMENTS,
    "*_kwargs": ARGUMENTS,
    "backend": one_of("torch"),
    "cache_dir": NULL,
    "activation_function": Kind(
        "a class of torch.nn, such as 'torch.nn.modules.linear.Identity'",
        lambda value: isinstance(value, str) and value.startswith("torch.nn."),
    ),
    "tokenizer_class": Kind(
        "a tokenizer of sentence-transformers",
        lambda value: isinstance(value, str) and is_stock_class(value, WORD_TOKENIZERS),
    ),
    "*_name_or_path": NULL,
    "processing_kwargs": optional(mapping(mapping(PLAIN))),
    "word_weights": ANYTHING,  # of WordWeights, by word
}
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
ROUTERS = ("Router", "Asym")
WITHOUT_WEIGHTS = ("Pooling", "Normalize", "Dropout", "BoW", *ROUTERS)
# In folders with essent's code; essent does not run that code: it has the class itself.
OWN_CLASS = "essent_module.RecipeModule"
TRUST = "Read this code, and if you trust it, run it with trust_remote_code=True (--trust-remote-code)."
LEGACY_SETTINGS = tuple(
    f"sentence_{name}_config.json" for name in "roberta distilbert camembert albert xlm-roberta xlnet".split()
)

# -- checks -----------------------------------------------------------------------------------------------------------


def check_model(name: str, options: Mapping[str, Any]) -> None:
    """Raise an error for a model whose files would run code, or read anything outside the model.

    Args:
        name: a folder, or a name on the hub; only its settings files are downloaded here.
        options: SentenceTransformer's; with a true `trust_remote_code` only the digests are checked.

    Raises:
        DamagedError: names the file, the key, the allowed values, and the fix.
    """
    hub, root = file_options(options), Path(name)
    if not options.get("trust_remote_code"):
        if root.is_dir():
            check_places(root)
        find, has = partial(find_file, name, hub=hub), partial(has_file, name, hub=hub)
        for file, table in _tables(name, find, has):
            if (path := find(file)) is not None:
                _check_values(path, "", read_json(path), table)
    if root.is_dir() and has_digests(root):
        check_digests(root, whole=False)


Find: TypeAlias = "Callable[[str], Path | None]"
Has: TypeAlias = "Callable[[str], bool]"


def _tables(name: str, find: Find, has: Has) -> Iterator[tuple[str, Table]]:
    """Yield each settings file that libraries read, with its table; refuse other modules and weights on the way."""
    yield "config_sentence_transformers.json", SENTENCE_TRANSFORMERS
    for folder, kind in _modules(find, has):
        if Path(name, folder).is_dir():
            check_places(Path(name), Path(name, folder))
        if kind == "Transformer":
            yield from _settings_of_transformer(folder, find)
            yield f"{folder}config.json", CONFIG
            if (adapter := find(f"{folder}adapter_config.json")) is not None:
                raise DamagedError(
                    f"{adapter} makes this an adapter of another model. Merge both with PEFT's merge_and_unload()."
                )
            yield from _tokenizer(folder, guarded=True)
        elif MODULES[kind]:
            yield folder + MODULES[kind], MODULE_SETTINGS
        if kind == "WordEmbeddings":
            yield from _tokenizer(folder)
        if kind not in WITHOUT_WEIGHTS:
            _check_weights(name, folder, find, has)
    if find(ENCODER) is not None:
        for folder in (f"{STATE_FOLDER}/", f"{STATE_FOLDER}/tokenizer/"):
            yield f"{folder}config.json", CONFIG
            yield from _tokenizer(folder)
    if find(GRAPH) is not None:
        yield from _tokenizer("")


def _settings_of_transformer(folder: str, find: Find) -> Iterator[tuple[str, Table]]:
    """Yield the files up to the first that is not empty: sentence-transformers reads on after an empty one."""
    for file in (folder + name for name in (MODULES["Transformer"], *LEGACY_SETTINGS)):
        if (path := find(file)) is not None:
            yield file, MODULE_SETTINGS
            if read_json(path):
                return


def _tokenizer(folder: str, *, guarded: bool = False) -> Iterator[tuple[str, Table]]:
    """Yield a tokenizer's settings; if `guarded`, the library that reads them is told not to follow `auto_map`."""
    yield f"{folder}tokenizer_config.json", TOKENIZER if guarded else {**TOKENIZER, "auto_map": NULL}
    yield f"{folder}special_tokens_map.json", {"*_file": FILE_NAME}


def _check_values(path: Path, before: str, content: Mapping[str, Any], table: Table) -> None:
    """Raise an error for values that are not allowed for their key."""
    for key, value in content.items():
        listed_kind = None if "*" in key else table.get(key)
        kind = listed_kind or next((table[pattern] for pattern in table if fnmatchcase(key, pattern)), ANYTHING)
        if isinstance(kind, Kind) and not kind.allows(value):
            raise DamagedError(f"{path}: {before + key!r:.100} must be {kind.expected}, not {value!r:.60}.")
        if isinstance(listed_kind, Kind):
            continue
        for inner in value if isinstance(value, list) else [value]:
            if isinstance(inner, dict):
                _check_values(path, f"{before}{key}.", inner, table if isinstance(kind, Kind) else kind)


# -- modules and weights ----------------------------------------------------------------------------------------------


def _modules(find: Find, has: Has) -> Iterator[tuple[str, str]]:
    """Yield folder ("" or "1_Pooling/") and class of each module; a plain model has a transformer in its root."""
    path = find("modules.json")
    if path is None:
        yield "", "Transformer"
        return
    for module in read_json(path, list) or [None]:
        if not isinstance(module, dict) or not all(isinstance(module.get(key), str) for key in ("path", "type")):
            raise DamagedError(f"{path} is damaged: it must list objects with path and type.")
        own = module["type"] == OWN_CLASS and find(ENCODER) is not None
        folder, kind = _module(path, module["path"], f"{STOCK}Transformer" if own else module["type"])
        yield folder, kind
        if kind in ROUTERS:
            yield from _routed(find, folder)


def _routed(find: Find, router: str) -> Iterator[tuple[str, str]]:
    """Yield folder and class of each module of a router."""
    path = find(f"{router}{MODULES['Router']}") or find(f"{router}config.json")
    types: Any = (read_json(path) or {}).get("types")
    if path is None or not mapping(TEXT).allows(types):
        raise DamagedError(
            f"{path or router + MODULES['Router']} is damaged: 'types' must be an object of class paths."
        )
    for name, type_ in types.items():
        folder, kind = _module(path, name, type_)
        if kind in ROUTERS:
            raise DamagedError(f"{path} has a router inside another one, which essent does not load.")
        yield router + folder, kind


def _module(path: Path, folder: str, kind: str) -> tuple[str, str]:
    """Return folder and bare class of a module, and refuse all but sentence-transformers' modules for text."""
    if not is_inside(folder):
        raise DamagedError(f"{path}: the path of a module, {folder!r:.80}, is outside the model's folder.")
    if is_stock_class(kind, MODULES):
        return "" if folder in ("", ".") else f"{folder}/", kind.rpartition(".")[2]
    fix = "Upgrade: pip install -U sentence-transformers." if kind.startswith(STOCK) else f"It would run code. {TRUST}"
    raise DamagedError(
        f"{path}: the type of the module {folder!r:.80}, {kind!r:.80}, is not one of sentence-transformers' modules "
        f"for text ({', '.join(MODULES)}). {fix}"
    )


def _check_weights(name: str, folder: str, find: Find, has: Has) -> None:
    """Raise an error for pickled weights, and for lists of parts outside the folder."""
    if has(f"{folder}model.safetensors"):
        return
    if (index := find(f"{folder}model.safetensors.index.json")) is not None:
        parts = (read_json(index) or {}).get("weight_map")
        names = parts.values() if isinstance(parts, dict) else [parts]
        if wrong := [part for part in names if not WEIGHTS.allows(part)]:
            raise DamagedError(f"{index}: weight_map names {wrong[0]!r:.80}, not {WEIGHTS.expected}.")
        return
    for file in ("pytorch_model.bin", "pytorch_model.bin.index.json"):
        if has(folder + file):
            raise DamagedError(
                f"{name}/{folder}{file} holds pickled weights, which can run code when they are loaded. Save the "
                "model as safetensors, with sentence-transformers or transformers in an isolated environment."
            )
