"""Read JSON and arrays of untrusted folders; errors name the damaged file."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from essent.errors import DamagedError, DataError, EssentError, InputError, RecipeError

if TYPE_CHECKING:
    import numpy as np

LARGEST = 32 * 2**20  # bytes of a JSON settings file; a tokenizer.json, which can be larger, is not read here


def read_json(path: Path, kind: type = dict) -> Any:
    """Read a JSON file; None if there is no such file.

    Raises:
        DamagedError: too large, nested too deeply, not JSON, or not of this type; the message names the file.
    """
    if not path.is_file():
        return None
    if (size := path.stat().st_size) > LARGEST:
        raise DamagedError(f"{path} has {size:,} bytes; a settings file can have at most {LARGEST:,}.")
    try:
        content = json.loads(path.read_text("utf-8"))
    except RecursionError:
        raise DamagedError(f"{path} is damaged: its JSON is nested too deeply.") from None
    except ValueError as error:
        raise DamagedError(f"{path} is damaged: it is not JSON: {error}") from error
    except OSError as error:
        raise DamagedError(f"{path} cannot be read: {error.strerror or error}.") from error
    if type(content) is not kind:
        raise DamagedError(f"{path} is damaged: expected a {kind.__name__}, found {content!r:.60}.")
    return content


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """Read all arrays of a safetensors file.

    Raises:
        DamagedError: the file is missing or damaged.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        return load_file(path)
    except (OSError, ValueError, TypeError, KeyError, AttributeError, SafetensorError) as error:
        raise DamagedError(f"{path} is damaged: {error}") from error


@contextlib.contextmanager
def damage_named(name: str) -> Iterator[None]:
    """Convert any error of reading a folder that essent wrote to a DamagedError that names the folder.

    Raises:
        DamagedError: the folder is damaged.
    """
    try:
        yield
    except (RecipeError, InputError, DataError) as error:  # caused by the files, not by the caller's arguments
        raise DamagedError(f"The folder {name!r}, which essent wrote, is damaged: {error}") from error
    except EssentError:
        raise
    except Exception as error:  # libraries raise any class; tokenizers raises Exception itself
        first_line = str(error).strip().splitlines()[:1] or [type(error).__name__]
        raise DamagedError(
            f"The folder {name!r}, which essent wrote, is damaged: {type(error).__name__}: {first_line[0]}"
        ) from error
