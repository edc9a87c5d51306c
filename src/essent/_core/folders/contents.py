"""Open a model folder, and read its metadata: whether essent saved it, its settings, modules and weights.

essent/encoder.json        the recipe, the golden texts, versions
essent/state.safetensors   token counts, learned shaping, golden vectors
essent/files.json          length and SHA-256 of every file, see `essent._core.folders.files`
essent/engine.json         replaces encoder.json for a graph that `essent save --format openvino` wrote
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from essent._core.folders.check import (
    ANYTHING,
    TEXT,
    TRUST,
    WHOLE,
    Kind,
    check_model,
    listed,
    mapping,
    one_of,
    optional,
)
from essent._core.folders.files import ENCODER, GRAPH, check_places, read_json
from essent._core.hub import EXPECTED, file_options, find_file, reach_model
from essent.errors import DamagedError, EssentError, MissingDependencyError, ModelError, RecipeError

# -- metadata ---------------------------------------------------------------------------------------------------------

ABOUT, ARRAYS = "encoder.json", "state.safetensors"
FORMAT = 1
LAYOUTS = ("stock", "legacy")
_ENTRIES = {
    "recipe": mapping(ANYTHING),
    "text": TEXT,
    "layers": WHOLE,
    "max_length": optional(WHOLE),
    "texts_counted": optional(WHOLE),
    "portable": one_of(True, False),
    "reason": TEXT,
    "golden_texts": listed(TEXT),
    "provenance": mapping(ANYTHING),
    "table": one_of("bare", "folded", None),
}


def check_layout(layout: str) -> None:
    """Raise an error for an unknown layout.

    Raises:
        RecipeError: lists the layouts.
    """
    if layout not in LAYOUTS:
        raise RecipeError(f"Unknown layout {layout!r}. Known: {', '.join(LAYOUTS)}.")


# -- kinds of folders -------------------------------------------------------------------------------------------------


def is_essent_folder(name: str, options: dict[str, Any]) -> bool:
    """Whether a folder, or a repository on the hub, was saved by an Encoder.

    Raises:
        ModelError: no such folder.
    """
    if not Path(name).is_dir() and (Path(name).exists() or name.count("/") != 1):
        return False
    options = reach_model(name, options)
    try:
        return find_file(name, ENCODER, file_options(options)) is not None
    except (OSError, ValueError):
        return False  # no such repository or no network: loading the model raises


def is_exported_folder(name: str) -> bool:
    """Whether a folder contains a graph that `essent save --format openvino` wrote; `essent.load` reads it."""
    return (Path(name) / GRAPH).is_file()


def is_bare_table(name: str, options: dict[str, Any]) -> bool:
    """Whether an Encoder's folder is only a table of token vectors, on which other recipes run.

    Raises:
        ModelError: see `read_about`; or a link to a file outside the folder.
    """
    if Path(name).is_dir():
        check_places(Path(name))
    path = find_file(name, ENCODER, file_options(options))
    return path is not None and read_about(path).get("table") == "bare"


# -- files ------------------------------------------------------------------------------------------------------------


def read_about(path: Path) -> dict[str, Any]:
    """Read encoder.json, and check every entry that loading needs.

    Raises:
        ModelError: the file is missing, damaged, or of another format.
    """
    metadata = read_json(path)
    if metadata is None:
        raise ModelError(f"There is no file {str(path)!r}. Save the encoder with Encoder.save or essent save.")
    if metadata.get("format") != FORMAT:
        raise ModelError(f"{str(path)!r} has format {metadata.get('format')!r} instead of {FORMAT}. Upgrade essent.")
    check_entries(path, {"provenance": {}, "table": None, **metadata}, _ENTRIES)
    return dict(metadata)


def check_entries(path: Path, entries: Mapping[str, Any], kinds: Mapping[str, Kind]) -> None:
    """Raise DamagedError if an entry of a metadata file is missing or has a value that is not allowed."""
    for name, kind in kinds.items():
        if name not in entries or not kind.allows(entries[name]):
            current = f"{entries[name]!r:.60}" if name in entries else "missing"
            raise DamagedError(f"{path} is damaged: {name!r} must be {kind.expected}, but is {current}.")


def read_settings(root: Path) -> dict[str, Any]:
    """Read config_sentence_transformers.json of a checked folder; {} if there is none.

    Raises:
        ModelError: an unknown default prompt.
    """
    settings = read_json(root / "config_sentence_transformers.json") or {}
    prompts, name = settings.get("prompts") or {}, settings.get("default_prompt_name")
    if name is not None and name not in prompts:
        raise ModelError(f"{str(root)!r}: default prompt {name!r:.60}, not one of: {', '.join(prompts) or 'none'}.")
    return dict(settings)


def saved_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return saved prompts, similarity and dimensions as arguments of SentenceTransformer's __init__."""
    prompts = {key: value for key, value in (config.get("prompts") or {}).items() if value is not None}
    named = {key: config.get(key) for key in ("default_prompt_name", "similarity_fn_name", "truncate_dim")}
    return {"prompts": prompts or None, **named}


def read_modules(name: str, hub: dict[str, Any]) -> list[dict[str, Any]] | None:
    """Read the list of sentence-transformers modules of a folder or hub name; None if there is no list.

    Args:
        hub: see `essent._core.hub.file_options`.

    Raises:
        ModelError: not JSON, or not a list of objects.
    """
    path = find_file(name, "modules.json", hub)
    modules: list[dict[str, Any]] | None = read_json(path, list)
    if modules is not None and not all(isinstance(module, dict) for module in modules):
        raise ModelError(f"{path}: expected a list of objects, not {modules!r:.60}.")
    return modules


def read_config(name: str, hub: dict[str, Any]) -> dict[str, Any] | None:
    """Read config.json of a folder or hub name; None if there is none.

    Raises:
        ModelError: not JSON, or not an object.
    """
    content: dict[str, Any] | None = read_json(find_file(name, "config.json", hub))
    return content


# -- weights ----------------------------------------------------------------------------------------------------------

WEIGHTS = "model.safetensors"


def weight_shapes(name: str, hub: dict[str, Any], subfolder: str = "", file: str = WEIGHTS) -> dict[str, list[int]]:
    """Return the shape of every tensor by name; {} if the weights are not safetensors.

    Args:
        name: a folder, or a name on the hub.
        hub: see `essent._core.hub.file_options`.
        subfolder: the transformer's folder, "" for the root.
        file: the weights' file name; if it is split into parts, its index is read.
    """
    shapes: dict[str, list[int]] = {}
    for part in weight_files(name, hub, subfolder, file):
        with open_weights(part) as weights:
            shapes |= {tensor: weights.get_slice(tensor).get_shape() for tensor in weights.keys()}  # noqa: SIM118
    return shapes


def open_weights(path: Path, framework: str = "np") -> Any:
    """Open a safetensors file, whose tensors are read one by one."""
    from safetensors import safe_open

    return safe_open(path, framework=framework)


def weight_files(name: str, hub: dict[str, Any], subfolder: str = "", file: str = WEIGHTS) -> list[Path]:
    """Return the files of the weights; see `weight_shapes`."""
    folder = f"{subfolder}/" if subfolder else ""
    path = find_file(name, folder + file, hub) or find_file(name, f"{folder}{file}.index.json", hub)
    if path is None or path.suffix != ".json":
        return [] if path is None else [path]
    parts = sorted(set((read_json(path) or {}).get("weight_map", {}).values()))
    return [part_path for part in parts if (part_path := find_file(name, folder + part, hub)) is not None]


# -- loading ----------------------------------------------------------------------------------------------------------


@contextmanager
def opening(name: str, options: Mapping[str, Any]) -> Iterator[None]:
    """Check a model's files, then convert the errors of the block that loads it.

    Args:
        name: a folder, or a name on the hub.
        options: SentenceTransformer's, or those of a `from_pretrained`.

    Raises:
        DamagedError: see `essent._core.folders.check.check_model`; or a folder that cannot be loaded, with the reason.
        ModelError: a name that cannot be loaded, with the reason and the fix.
        MissingDependencyError: a library that the model needs is not installed.
    """
    try:
        check_model(name, options)
        yield
    except EssentError:
        raise
    except Exception as error:  # libraries raise any class for damaged files
        # a plain ValueError, recognized by its text; if the text changes, the error is still a ModelError
        if "custom code" in str(error):
            raise DamagedError(f"Cannot load the model {name!r}: the key 'auto_map' would run code. {TRUST}") from error
        reason = str(error).strip().splitlines()[0].rstrip(".") if str(error).strip() else ""
        if isinstance(error, ImportError):  # of transformers, with the command that installs the library
            raise MissingDependencyError(f"Cannot load the model {name!r}: {reason}.") from error
        if not isinstance(error, (OSError, ValueError)) or not reason:
            reason = f"{type(error).__name__}: {reason}".rstrip(": ")
        kind = DamagedError if Path(name).is_dir() else ModelError
        raise kind(f"Cannot load the model {name!r}: {reason}. {EXPECTED}") from error


def guarded(options: Mapping[str, Any], *, weights: bool = False) -> dict[str, Any]:
    """Return options for a `from_pretrained` of transformers; code of the model runs only if the caller allows it.

    Args:
        options: the caller's options, which take precedence.
        weights: whether it loads weights, see `weight_options`.
    """
    trusted = bool(options.get("trust_remote_code"))
    return {**(weight_options(options) if weights else {}), **options, "trust_remote_code": trusted}


def weight_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options to load weights with: safetensors, which contain no code, and adapters of the cache if set.

    With peft installed, transformers looks for adapters on the hub even if all other files are read from the cache.
    """
    safe: dict[str, Any] = {} if options.get("trust_remote_code") else {"use_safetensors": True}
    return {**safe, "adapter_kwargs": {"local_files_only": True}} if options.get("local_files_only") else safe
