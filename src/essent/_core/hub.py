"""Files of a model in a folder or on the hub; check once that the hub can be reached, before libraries ask for files.

huggingface_hub retries each of several files six times: without a network, a mistyped name fails after three minutes.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

from essent._core.arguments import check_path
from essent._core.atomic import recover
from essent._core.lazy import check_torch, needs_torch
from essent.errors import ModelError

SECONDS = 10.0  # timeout of the hub
COMMIT = re.compile("[0-9a-f]{40}")  # a revision whose files never change
REMEMBERED = 30.0  # seconds for which an answer is cached
EXPECTED = (
    "Give a folder with config.json, tokenizer.json and weights, or a hub name while the hub can be reached "
    "(HF_HUB_OFFLINE=1 uses only what is cached)."
)

logger = logging.getLogger(__name__)


def path_of(name: str) -> Path:
    """Return the path of a model, which exists unless the name is one of the hub.

    Raises:
        ModelError: no such folder.
    """
    path = Path(check_path(name, "model"))
    recover(path)  # a run killed while saving may have moved it aside
    looks_local = path.is_absolute() or name.startswith(".") or name.count("/") > 1 or "\\" in name
    if looks_local and not path.exists():
        raise ModelError(f"There is no model folder {name!r}.")
    return path


def reach_model(name: str, options: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the options to load a model with, plus `local_files_only` if the hub cannot be reached.

    The revision becomes one commit, so that all files are of the same one, and cached files need no request. If the hub
    does not tell the commit, it is the cached one; without any, the revision remains, and sentence-transformers warns.

    Raises:
        ModelError: no such folder.
    """
    path, options = path_of(name), dict(options or {})
    if path.exists():
        return options
    check_torch(f"Reading {name!r}")
    if not options.get("local_files_only") and not hub_answers():
        options["local_files_only"] = True
    hub = file_options(options)
    source = {"cache_dir": hub["cache_folder"], "token": hub["token"], "revision": options.get("revision")}
    for is_local in dict.fromkeys((hub["local_files_only"], True)):
        # no such repository, no access, an older huggingface_hub …: reading the first file raises it with the reason
        with suppress(Exception):
            from huggingface_hub import resolve_revision

            return {**options, "revision": resolve_revision(full_name(name), local_files_only=is_local, **source)}
    return options


def hub_answers() -> bool:
    """Whether the hub answers, with any status; True in offline mode, in which its library asks for nothing."""
    from huggingface_hub import constants

    return constants.HF_HUB_OFFLINE or _answers(constants.ENDPOINT, int(time.monotonic() / REMEMBERED))


@contextmanager
def offline_if_unreachable() -> Iterator[None]:
    """Ask the hub for nothing in this block if it does not answer, so that libraries read only what is cached."""
    from huggingface_hub import constants

    before = constants.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = before or not hub_answers()
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before


@cache
def _answers(endpoint: str, period: int) -> bool:
    from huggingface_hub.utils import get_session

    try:
        get_session().head(endpoint, timeout=SECONDS)
    except Exception as error:  # which HTTP library raises it depends on the version
        logger.warning("%s cannot be reached (%s): only what is cached is read.", endpoint, error)
        return False
    return True


def full_name(name: str) -> str:
    """Return the name of a model with its owner, which sentence-transformers adds to names such as all-MiniLM-L6-v2."""
    if "/" in name or Path(name).exists():
        return name
    with needs_torch(f"Reading {name!r}"):
        from sentence_transformers.util import ORIGINAL_TRANSFORMER_MODELS
    return name if name.lower() in ORIGINAL_TRANSFORMER_MODELS else f"sentence-transformers/{name}"


def file_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Select the options, of SentenceTransformer or transformers, that functions for single files accept."""
    revision = options.get("revision")
    return {
        "token": options.get("token"),
        "cache_folder": options.get("cache_folder") or options.get("cache_dir"),  # as in transformers
        "revision": getattr(revision, "resolved", revision),  # the commit, see `reach_model`
        "local_files_only": bool(options.get("local_files_only")),
    }


def find_file(name: str, file: str, hub: Mapping[str, Any]) -> Path | None:
    """Return the path of a file of a folder, or of a repository on the hub, which is downloaded; None if missing.

    Args:
        hub: see `file_options`.
    """
    if Path(name).is_dir():
        return path if (path := Path(name, file)).is_file() else None
    if COMMIT.fullmatch(hub["revision"] or "") and (known := _cached(name, file, hub)) is not None:
        return Path(known) if isinstance(known, str) else None
    with needs_torch(f"Reading {name!r}"):
        from sentence_transformers.util import load_file_path  # imported here: static encoders do not need it

    subfolder, _, last = file.rpartition("/")
    cached = load_file_path(name, last, subfolder=subfolder, **hub)
    return None if cached is None else Path(cached)


def has_file(name: str, file: str, hub: Mapping[str, Any]) -> bool:
    """Whether a folder, or a repository by the cache or else the hub, has a file, which is not downloaded.

    Args:
        hub: see `file_options`.
    """
    if Path(name).is_dir():
        return Path(name, file).is_file()
    from huggingface_hub import HfApi, constants

    cached = _cached(name, file, hub)
    if cached is not None or hub["local_files_only"] or constants.HF_HUB_OFFLINE:
        return isinstance(cached, str)
    return HfApi().file_exists(name, file, revision=hub["revision"], token=hub["token"])


def _cached(name: str, file: str, hub: Mapping[str, Any]) -> Any:
    """Return the path of a cached file, None if nothing is known of it, or another value if it does not exist."""
    from huggingface_hub import try_to_load_from_cache

    return try_to_load_from_cache(name, file, hub["cache_folder"], hub["revision"])


def folder_of(name: str, options: Mapping[str, Any]) -> Path:
    """Return a local folder itself, or a hub model's folder in the cache."""
    if Path(name).is_dir():
        return Path(name)
    from sentence_transformers.util import load_dir_path

    return Path(str(load_dir_path(name, subfolder="", **file_options(options))))
