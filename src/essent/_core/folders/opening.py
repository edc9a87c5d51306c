"""The context in which libraries load models: files are checked first, and libraries' errors become ModelError."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from inspect import signature
from pathlib import Path
from typing import Any

from essent._core.folders.check import ROUTERS, Settings, check_model, code_in, files_of, upgrade_or
from essent._core.folders.reading import read_json
from essent._core.folders.rules import OLD_ARGUMENTS
from essent.errors import DamagedError, EssentError, ModelError

logger = logging.getLogger(__name__)


@contextmanager
def opening(name: str, options: Mapping[str, Any]) -> Iterator[None]:
    """Check a model's files, then convert the errors of the block that loads it.

    Args:
        name: a folder, or a name on the hub.
        options: SentenceTransformer's, or those of a `from_pretrained`.

    Raises:
        DamagedError: see `essent._core.folders.check.check_model`; or a folder that cannot be loaded, with the reason.
        ModelError: a name that cannot be loaded, with the reason and the fix.
    """
    settings: list[Settings] = []
    try:
        settings = check_model(name, options)
        yield
        for module, path, key in _unknown_keys(settings):
            _say_ignored(module, path, key)
    except EssentError:
        raise
    except Exception as error:  # libraries raise any class for damaged files
        # a plain ValueError, recognized by its text; if the text changes, the error is still a ModelError
        if "custom code" in str(error):
            raise DamagedError(f"Cannot load the model {name!r}: {code_in(name, options)}") from error
        if isinstance(error, TypeError) and "unexpected keyword" in str(error):
            for module, path in settings:
                if unknown := [key for key in _keys(read_json(path)) if repr(key) in str(error)]:
                    raise DamagedError(
                        f"{path}: {module} does not support the key {unknown[0]!r:.100}. "
                        f"{upgrade_or(files_of(name, options), 'Remove it.')}"
                    ) from error
        reason = str(error).strip().splitlines()[0].rstrip(".") if str(error).strip() else ""
        if not isinstance(error, (OSError, ValueError)) or not reason:
            reason = f"{type(error).__name__}: {reason}".rstrip(": ")
        kind = DamagedError if Path(name).is_dir() else ModelError
        raise kind(
            f"Cannot load the model {name!r}: {reason}. Give a folder with config.json, tokenizer.json and weights, or "
            "a hub name while the hub can be reached (HF_HUB_OFFLINE=1 uses only what is cached)."
        ) from error


def _keys(content: Any) -> Iterator[str]:
    """Yield the keys of an object and of nested objects."""
    for key, value in content.items() if isinstance(content, dict) else ():
        yield key
        yield from _keys(value)


def _unknown_keys(settings: list[Settings]) -> Iterator[tuple[str, Path, str]]:
    """Yield module, file and key of settings that the installed sentence-transformers does not support."""
    if not settings:
        return
    from sentence_transformers.sentence_transformer import modules

    for module, path in settings:
        kind: Any = getattr(modules, module)
        known = {*signature(kind).parameters, *kind.config_keys, *kind.config_key_renames, *OLD_ARGUMENTS}
        content = kind.load_config(str(path.parent), config_filename=path.name)
        content = content.get("parameters") or {} if module in ROUTERS else content
        yield from ((module, path, key) for key in content if key not in known)


@cache  # once per file
def _say_ignored(module: str, path: Path, key: str) -> None:
    logger.warning("%s: %s does not support the key %r, which is ignored.", path, module, key)


def guarded(options: Mapping[str, Any], *, weights: bool = False) -> dict[str, Any]:
    """Return options for a `from_pretrained` of transformers; code of the model runs only if the caller allows it.

    Args:
        options: the caller's options, which take precedence.
        weights: whether it loads weights; then only from safetensors, which contain no code.
    """
    trusted = bool(options.get("trust_remote_code"))
    safe: dict[str, Any] = {"use_safetensors": True} if weights and not trusted else {}
    return {**safe, **options, "trust_remote_code": trusted}
