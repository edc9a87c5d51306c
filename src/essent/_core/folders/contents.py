"""Read a model folder's metadata: whether essent saved it, its settings and modules.

essent/encoder.json        the recipe, the golden texts, versions
essent/state.safetensors   token counts, learned shaping, golden vectors
essent/files.json          length and SHA-256 of every file, see `essent._core.folders.digests`
essent/engine.json         replaces encoder.json for a graph that `essent save --format openvino` wrote
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from essent._core.folders.names import STATE_FOLDER
from essent._core.folders.places import check_places
from essent._core.folders.reading import read_json
from essent._core.hub import file_options, reach_model
from essent._core.lazy import needs_torch
from essent.errors import DamagedError, ModelError, RecipeError
from essent.version import __version__

ABOUT, ARRAYS = "encoder.json", "state.safetensors"
FORMAT = 1
LAYOUTS = ("stock", "legacy")
_ENTRY_TYPES: dict[str, tuple[type, ...]] = {
    "recipe": (dict,),
    "text": (str,),
    "layers": (int,),
    "max_length": (int, type(None)),
    "texts_counted": (int, type(None)),
    "portable": (bool,),
    "reason": (str,),
    "golden_texts": (list,),
}
_TABLES = ("bare", "folded", None)


def check_layout(layout: str) -> None:
    """Refuse an unknown layout.

    Raises:
        RecipeError: lists the layouts.
    """
    if layout not in LAYOUTS:
        raise RecipeError(f"Unknown layout {layout!r}. Known: {', '.join(LAYOUTS)}.")


# -- kinds of folders -------------------------------------------------------------------------------------------------


def is_essent_folder(name: str, options: dict[str, Any]) -> bool:
    """Whether a folder, or a repository on the hub, was saved by an Encoder.

    Raises:
        ModelError: the name is neither a folder nor cached, and the hub cannot be reached.
    """
    if Path(name).is_dir():
        return (Path(name) / STATE_FOLDER / ABOUT).is_file()
    if Path(name).exists() or Path(name).is_absolute() or name.startswith(".") or name.count("/") != 1:
        return False
    options = reach_model(name, options)
    try:
        return find_file(name, ABOUT, file_options(options), STATE_FOLDER) is not None
    except (OSError, ValueError):
        return False  # no such repository or no network: loading the model raises


def is_exported_folder(name: str) -> bool:
    """Whether a folder contains a graph that `essent save --format openvino` wrote; `essent.load` reads it."""
    return (Path(name) / STATE_FOLDER / "engine.json").is_file()


def is_bare_table(name: str, options: dict[str, Any]) -> bool:
    """Whether an Encoder's folder is only a table of token vectors, on which other recipes run.

    Raises:
        ModelError: see `read_about`; or a link to a file outside the folder.
    """
    if Path(name).is_dir():
        check_places(Path(name))
    path = find_file(name, ABOUT, file_options(options), STATE_FOLDER)
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
        raise ModelError(
            f"{str(path)!r} has format {metadata.get('format')!r} (essent {metadata.get('essent')}); this essent "
            f"{__version__} reads format {FORMAT}. Upgrade essent."
        )
    for name, allowed in _ENTRY_TYPES.items():
        if name not in metadata or not isinstance(metadata[name], allowed):
            kinds = " or ".join("null" if kind is type(None) else kind.__name__ for kind in allowed)
            current = f"{metadata[name]!r:.60}" if name in metadata else "missing"
            raise DamagedError(f"{path} is damaged: {name!r} must be {kinds}, but is {current}.")
    if not all(isinstance(text, str) for text in metadata["golden_texts"]):
        raise DamagedError(f"{path} is damaged: 'golden_texts' must be a list of strings.")
    if metadata.get("table") not in _TABLES:
        raise DamagedError(
            f"{path} is damaged: 'table' must be 'bare', 'folded' or null, not {metadata['table']!r:.60}."
        )
    return dict(metadata)


def read_settings(root: Path) -> dict[str, Any]:
    """Read config_sentence_transformers.json; {} if there is none.

    Raises:
        ModelError: not JSON, prompts that are not texts, or an unknown default prompt.
    """
    settings = read_json(root / "config_sentence_transformers.json") or {}
    prompts, name = settings.get("prompts") or {}, settings.get("default_prompt_name")
    if not isinstance(prompts, dict) or not all(isinstance(text, (str, type(None))) for text in prompts.values()):
        raise ModelError(f"{str(root)!r}: prompts must be an object from names to texts, not {prompts!r:.60}.")
    if name is not None and (not isinstance(name, str) or name not in prompts):
        raise ModelError(
            f"{str(root)!r}: the default prompt {name!r:.60} is not among the prompts ({', '.join(prompts) or 'none'})."
        )
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
    listed = None if path is None else read_json(path, list)
    if listed is not None and not all(isinstance(module, dict) for module in listed):
        raise ModelError(f"{path}: expected a list of objects, not {listed!r:.60}.")
    return None if listed is None else list(listed)


def read_config(name: str, hub: dict[str, Any]) -> dict[str, Any] | None:
    """Read config.json of a folder or hub name; None if there is none.

    Raises:
        ModelError: not JSON, or not an object.
    """
    path = find_file(name, "config.json", hub)
    return None if path is None else read_json(path)


def find_file(name: str, file: str, hub: dict[str, Any], subfolder: str = "") -> Path | None:
    """Return the path of a file of a folder, or of a repository on the hub, which is downloaded; None if missing."""
    with needs_torch(f"Reading {name!r}"):
        from sentence_transformers.util import load_file_path  # late: static encoders do not need it

    path = load_file_path(name, file, subfolder=subfolder, **hub)
    return None if path is None else Path(path)
