"""The way in to every model that a library loads: its files are checked first, and its errors are turned into one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from essent.folders.check import TRUST, check_model
from essent.folders.reading import read_json
from essent.types import DamagedError, EssentError, ModelError


@contextmanager
def opening(name: str, options: Mapping[str, Any]) -> Iterator[None]:
    """Load a model in this block.

    Args:
        name: a folder, or a name on the hub.
        options: SentenceTransformer's, or those of a `from_pretrained`.

    Raises:
        DamagedError: see `essent.folders.check.check_model`; or a folder that cannot be loaded, says why.
        ModelError: a name that cannot be loaded; says why and what can be done.
    """
    try:
        check_model(name, options)
        yield
    except EssentError:
        raise
    except Exception as error:  # damaged files make libraries raise whatever they stumble over
        # a ValueError like any other, known by its text alone; should the text change, the error is still a ModelError
        if "custom code" in str(error):
            raise DamagedError(
                f"Cannot load the model {name!r}: {_files_with_code(Path(name))} 'auto_map', which would have code of "
                f"the model run. {TRUST} run."
            ) from error
        reason = str(error).strip().splitlines()[0].rstrip(".") if str(error).strip() else ""
        if not isinstance(error, (OSError, ValueError)) or not reason:
            reason = f"{type(error).__name__}: {reason}".rstrip(": ")
        kind = DamagedError if Path(name).is_dir() else ModelError
        raise kind(
            f"Cannot load the model {name!r}: {reason}. Give a folder with config.json, tokenizer.json and weights, or "
            "a hub name while the hub can be reached (HF_HUB_OFFLINE=1 uses only what is cached)."
        ) from error


def _files_with_code(root: Path) -> str:
    found = [path.name for path in sorted(root.glob("*config*.json")) if "auto_map" in (read_json(path) or {})]
    return f"{' and '.join(found)} {'have' if len(found) > 1 else 'has'} the key" if found else "its files have the key"


def guarded(options: Mapping[str, Any], *, weights: bool = False) -> dict[str, Any]:
    """Options for a `from_pretrained` of transformers: no code of the model runs unless the caller allows it.

    Args:
        options: the caller's, whose own choices stay.
        weights: for one that reads weights: only safetensors, which hold no code.
    """
    trusted = bool(options.get("trust_remote_code"))
    safe: dict[str, Any] = {"use_safetensors": True} if weights and not trusted else {}
    return {**safe, **options, "trust_remote_code": trusted}
