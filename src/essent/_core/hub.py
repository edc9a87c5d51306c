"""Check once that a name can be found, before libraries request file after file.

huggingface_hub retries each of several files six times: without a network, a mistyped name fails after three minutes.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from essent._core.arguments import check_path
from essent._core.atomic import recover
from essent._core.lazy import needs_torch
from essent.errors import DataError, ModelError

SECONDS = 10.0  # timeout of the hub
REMEMBERED = 30.0  # seconds for which an answer is cached
# a model with any of these files in the cache counts as cached
ENOUGH = ("config.json", "modules.json", "adapter_config.json", "tokenizer_config.json")

EXPECTED = (
    "Give a folder with config.json, tokenizer.json and weights, or a hub name while the hub can be reached "
    "(HF_HUB_OFFLINE=1 uses only what is cached)."
)

logger = logging.getLogger(__name__)
_answers: dict[str, tuple[float, str]] = {}  # endpoint -> time of the request, and why it cannot be reached


def reach_model(name: str, options: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the options to load a model with, plus `local_files_only` if the hub cannot be reached.

    Args:
        options: of from_pretrained: cache_folder or cache_dir, revision, local_files_only.

    Raises:
        ModelError: no such folder; or neither a folder nor cached, and the hub cannot be reached.
    """
    _check_folder(check_path(name, "model"))
    options = dict(options or {})
    if Path(name).exists() or options.get("local_files_only") or not _is_repository(name):
        return options  # libraries refuse invalid repository names at once
    if not (reason := _unreachable()):
        return options
    # the owner of sentence-transformers' models can be omitted
    repositories = (name,) if "/" in name else (name, f"sentence-transformers/{name}")
    if any(_is_cached(repository, options) for repository in repositories):
        logger.warning("%s: reading %s from the cache.", reason, name)
        return {**options, "local_files_only": True}
    raise ModelError(f"Cannot load the model {name!r}: it is neither a folder nor cached, and {reason}. {EXPECTED}")


def full_name(name: str) -> str:
    """Return the name of a model with its owner, which sentence-transformers adds to names such as all-MiniLM-L6-v2."""
    from sentence_transformers.util import ORIGINAL_TRANSFORMER_MODELS

    if "/" in name or Path(name).exists() or name.lower() in ORIGINAL_TRANSFORMER_MODELS or not _is_repository(name):
        return name
    return f"sentence-transformers/{name}"


def file_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Select the options of SentenceTransformer that its functions for single files accept."""
    shared: dict[str, Any] = {key: options.get(key) for key in ("token", "cache_folder", "revision")}
    return shared | {"local_files_only": bool(options.get("local_files_only"))}


def find_file(name: str, file: str, hub: Mapping[str, Any]) -> Path | None:
    """Return the path of a file of a folder, or of a repository on the hub, which is downloaded; None if missing.

    Args:
        hub: see `file_options`.
    """
    with needs_torch(f"Reading {name!r}"):
        from sentence_transformers.util import load_file_path  # imported here: static encoders do not need it

    subfolder, _, last = file.rpartition("/")
    path = load_file_path(name, last, subfolder=subfolder, **hub)
    return None if path is None else Path(path)


def folder_of(name: str, options: Mapping[str, Any]) -> Path:
    """Return a local folder itself, or a hub model's folder in the cache."""
    if Path(name).is_dir():
        return Path(name)
    from sentence_transformers.util import load_dir_path

    return Path(str(load_dir_path(name, subfolder="", **file_options(options))))


def has_file(name: str, file: str, hub: Mapping[str, Any]) -> bool:
    """Whether a repository has a file, according to the cache or else the hub; the file is not downloaded.

    Args:
        hub: see `file_options`.
    """
    from huggingface_hub import HfApi, constants, try_to_load_from_cache

    cached = try_to_load_from_cache(name, file, hub["cache_folder"], hub["revision"])
    if cached is not None or hub["local_files_only"] or constants.HF_HUB_OFFLINE:
        return isinstance(cached, str)
    return HfApi().file_exists(name, file, revision=hub["revision"], token=hub["token"])


def check_dataset(name: str, instead: str) -> None:
    """Raise an error for a data set that is neither a folder nor cached, if the hub cannot be reached.

    Args:
        instead: how to pass local files, for the message.

    Raises:
        DataError: names the data set and the alternative.
    """
    if Path(name).exists() or not (reason := _unreachable()):
        return
    from datasets import config

    if not (Path(config.HF_DATASETS_CACHE) / name.replace("/", "___")).exists():
        raise DataError(
            f"Cannot load {name!r}: it is neither a folder nor cached, and {reason}. Alternative: {instead}."
        )


def _check_folder(name: str) -> None:
    path = Path(name)
    recover(path)  # a run killed while saving may have moved it aside
    looks_local = path.is_absolute() or name.startswith(".") or name.count("/") > 1 or "\\" in name
    if looks_local and not path.exists():
        beside = sorted(p.name for p in path.parent.iterdir() if p.is_dir())[:8] if path.parent.is_dir() else []
        raise ModelError(
            f"There is no model folder {name!r}." + (f" Beside it: {', '.join(beside)}." if beside else "")
        )


def _is_repository(name: str) -> bool:
    """Whether the name is valid for a repository on the hub."""
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id

    try:
        validate_repo_id(name)
    except HFValidationError:
        return False
    return True


def _is_cached(repository: str, options: Mapping[str, Any]) -> bool:
    from huggingface_hub import try_to_load_from_cache

    cache = options.get("cache_folder") or options.get("cache_dir")
    paths = (try_to_load_from_cache(repository, file, cache, options.get("revision")) for file in ENOUGH)
    return any(isinstance(path, str) for path in paths)


def _unreachable() -> str:
    """Return why the hub cannot be reached; "" if it answers with any status, or in offline mode."""
    from huggingface_hub import constants
    from huggingface_hub.utils import get_session

    if constants.HF_HUB_OFFLINE:
        return ""  # in offline mode the library raises at once
    seconds, endpoint = time.monotonic(), constants.ENDPOINT
    tried_at, reason = _answers.get(endpoint, (-REMEMBERED, ""))
    if seconds - tried_at >= REMEMBERED:
        try:
            get_session().head(endpoint, timeout=SECONDS)
            reason = ""
        except Exception as error:  # which HTTP library raises it depends on the version
            reason = f"{endpoint} cannot be reached ({str(error) or type(error).__name__})"
        _answers[endpoint] = seconds, reason
    return reason
