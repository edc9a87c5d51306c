"""Files of a model's folder: names, safe reading, digests and paths; and whether a folder can be replaced.

essent/files.json   {"format": 1, "files": {"config.json": {"bytes": 751, "sha256": "…"}, …}}

It has the SHA-256 and length of every file, written when a folder is saved, to detect changed files and name them. The
model card is not listed: users edit it, and no vector depends on it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Collection, Iterable, Iterator
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from essent._core.atomic import write_text
from essent.errors import DamagedError, DataError, EssentError, InputError, ModelError, RecipeError

if TYPE_CHECKING:
    import numpy as np

# -- names ------------------------------------------------------------------------------------------------------------

STATE_FOLDER = "essent"  # the subfolder of essent's own files
ENCODER, GRAPH = f"{STATE_FOLDER}/encoder.json", f"{STATE_FOLDER}/engine.json"  # the metadata of each kind of folder
# Files that transformers and sentence-transformers look for in the folder of a text model, and files that engines look
# for beside a graph. Vectors can depend on them. Other files are never opened.
READ = """
    config.json generation_config.json *processor_config.json
    tokenizer.json tokenizer_config.json special_tokens_map.json added_tokens.json vocab.json vocab.txt merges.txt
    bpe.codes tekken.json *.model
    model*.safetensors model.safetensors.index.json pytorch_model*.bin pytorch_model.bin.index.json
    adapter_config.json adapter_model.*
    modules.json config_sentence_transformers.json sentence_*_config.json wordembedding_config.json
    *tokenizer_config.json cnn_config.json lstm_config.json router_config.json
    model.xml model.bin model.onnx model.onnx.data
""".split()  # *.model: vocabularies of sentencepiece and tiktoken; transformers uses the first file


def is_read(name: str) -> bool:
    """Whether libraries look for a file of this name in a model's folder."""
    return any(fnmatch(name, pattern) for pattern in READ)


# -- reading ----------------------------------------------------------------------------------------------------------

LARGEST = 32 * 2**20  # bytes of a JSON settings file; a tokenizer.json, which can be larger, is not read here


def read_json(path: Path | None, kind: type = dict) -> Any:
    """Read a JSON file; None if there is no such file.

    Raises:
        DamagedError: too large, not JSON, or not of this type; the message names the file.
    """
    if path is None or not path.is_file():
        return None
    if (size := path.stat().st_size) > LARGEST:
        raise DamagedError(f"{path} has {size:,} bytes; a settings file can have at most {LARGEST:,}.")
    try:
        content = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise DamagedError(f"{path} is damaged: it is not JSON that can be read: {error}") from error
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


# -- digests ----------------------------------------------------------------------------------------------------------

DIGESTS = f"{STATE_FOLDER}/files.json"
FORMAT = 1
NOT_LISTED = ("README.md", DIGESTS)
SMALL = 4 * 2**20  # bytes; digests of smaller files are compared at every loading
SHA256 = re.compile("[0-9a-f]{64}")
MEND = "Download or copy the folder again, or save the model again"


def write_digests(root: Path) -> None:
    """Write the digests of the folder's present files, including subfolders."""
    files = {
        path.relative_to(root).as_posix(): {"bytes": path.stat().st_size, "sha256": digest_of_file(path)}
        for path in sorted(root.rglob("*"))
        if path.is_file() and path.relative_to(root).as_posix() not in NOT_LISTED
    }
    write_text(root / DIGESTS, json.dumps({"format": FORMAT, "files": files}, indent=1))  # names may not be UTF-8


def digest_of_file(path: Path) -> str:
    """Return the SHA-256 of a file as hexadecimal digits."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def has_digests(root: Path) -> bool:
    """Whether the folder has a list of digests; essent 0.1 wrote none."""
    return (root / DIGESTS).is_file()


def listed_names(root: Path) -> set[str]:
    """Return the names of the top-level files and folders that were saved with the folder."""
    return {name.partition("/")[0] for name in _read_digests(root)}


def check_digests(root: Path, *, whole: bool) -> int:
    """Compare a folder with its list, and return the number of listed files.

    Args:
        whole: compare the digest of every file; otherwise every length, and the digests of files up to 4 MiB.

    Raises:
        DamagedError: a file is missing, has changed, or was added where libraries read it; the message names it.
    """
    listed = _read_digests(root)
    for name, entry in listed.items():
        path = root / name
        if not path.is_file():
            raise DamagedError(f"{path} is missing: it was saved with this model. {MEND}.")
        size = path.stat().st_size
        if size != entry["bytes"]:
            raise DamagedError(f"{path} has changed since it was saved: it has {size:,} bytes. {MEND}.")
        if (whole or size <= SMALL) and digest_of_file(path) != entry["sha256"]:
            raise DamagedError(f"{path} has changed since it was saved: its SHA-256 differs. {MEND}.")
    folders = {(root / name).parent for name in (*listed, DIGESTS)}
    for path in sorted(path for folder in folders for path in folder.glob("*") if path.is_file()):
        name = path.relative_to(root).as_posix()
        if name not in listed and name not in NOT_LISTED and is_read(path.name):
            raise DamagedError(f"{path} was not saved with this model, but libraries would read it. Remove it.")
    return len(listed)


def _read_digests(root: Path) -> dict[str, dict[str, Any]]:
    path = root / DIGESTS
    content = read_json(path)
    if content is None:
        raise DamagedError(f"There is no file {path}: the folder has no digests of its files.")
    files = content.get("files")
    if content.get("format") != FORMAT or not isinstance(files, dict) or not all(map(_is_entry, files, files.values())):
        raise DamagedError(
            f"{path} is damaged, or of a newer essent: expected format {FORMAT}, bytes and sha256 of each file."
        )
    return files


def _is_entry(name: str, entry: Any) -> bool:
    inside = not name.startswith("/") and ".." not in name.split("/") and "\\" not in name
    return (
        inside
        and isinstance(entry, dict)
        and type(entry.get("bytes")) is int
        and isinstance(entry.get("sha256"), str)
        and SHA256.fullmatch(entry["sha256"]) is not None
    )


# -- places -----------------------------------------------------------------------------------------------------------


def check_places(root: Path, *folders: Path, also: Collection[str] = ()) -> None:
    """Raise an error for special files and links to files outside the model, among the files that libraries read.

    Args:
        root: the model's folder.
        folders: folders of the model; by default the root and essent's own subfolders.
        also: names of further files that are read.

    Raises:
        DamagedError: names the file and the fix.
    """
    inside = [root.resolve()]
    inside += [folder.parent / "blobs" for folder in inside[0].parents if folder.name == "snapshots"]  # the hub's cache

    def leaves(path: Path) -> bool:
        return not any(path.resolve().is_relative_to(folder) for folder in inside)

    for folder in folders or (root, root / STATE_FOLDER, root / STATE_FOLDER / "tokenizer"):
        if leaves(folder):
            raise DamagedError(f"{folder} is a link to a folder outside the model's folder. Replace it by the folder.")
        whole = folder.is_relative_to(root / STATE_FOLDER)  # essent reads every file there
        for path in sorted(folder.glob("*")):
            if not (whole or is_read(path.name) or path.name in also or path.suffix == ".safetensors"):
                continue
            if path.is_symlink() and leaves(path):
                raise DamagedError(
                    f"{path} is a link to {os.readlink(path)!r}, outside the model's folder. Replace it by the file."
                )
            if path.exists() and not path.is_dir() and not path.is_file():
                raise DamagedError(f"{path} is a pipe or a device, not a regular file. Remove it.")


def is_inside(path: str) -> bool:
    """Whether a path named in a file of the folder is relative and stays inside the folder."""
    parts = PurePosixPath(path.replace("\\", "/"))
    return not parts.is_absolute() and ".." not in parts.parts and ":" not in path and "\0" not in path


# -- replacing --------------------------------------------------------------------------------------------------------


def check_replaceable(path: Path, kind: str) -> None:
    """Raise an error for a path where a model must not be written.

    Args:
        kind: of the new model, ENCODER or GRAPH; it can replace only a model of the same kind.

    Raises:
        ModelError: the path is a file, or a folder with another model or with files that libraries read with a model.
    """
    if path.is_file():
        raise ModelError(f"{str(path)!r} is a file, but a model is saved as a folder. Choose another name.")
    if _is_own(path, kind):
        return
    models = (GRAPH, ENCODER, DIGESTS, "modules.json", "config.json")
    if model_file := next((name for name in models if (path / name).is_file()), None):
        raise ModelError(f"The folder {str(path)!r} holds another model ({model_file}). Choose another folder.")
    names = sorted(entry.name for entry in path.iterdir() if is_read(entry.name)) if path.is_dir() else []
    if names:
        raise ModelError(
            f"The folder {str(path)!r} contains {names[0]}, which libraries would read with the model. Move the file, "
            "or choose another folder."
        )


def files_to_keep(path: Path, kind: str, older: Iterable[str] = ()) -> list[str]:
    """Return the relative paths of a folder's files and subfolders that are not part of the model saved there before.

    Args:
        kind: of the model, ENCODER or GRAPH.
        older: further names that versions of essent without digests wrote, in addition to names that libraries read.
    """
    entries = sorted(path.iterdir()) if path.is_dir() else []
    if not _is_own(path, kind):
        return [entry.name for entry in entries]
    if has_digests(path):
        own = {*_read_digests(path), DIGESTS}
    else:
        own = {entry.name for entry in entries if is_read(entry.name)} | {*older, STATE_FOLDER}
    subfolders = {folder.as_posix() for name in own for folder in PurePosixPath(name).parents}
    retained: list[str] = []
    while entries:
        entry = entries.pop()
        name = entry.relative_to(path).as_posix()
        if name in subfolders and entry.is_dir():
            entries += entry.iterdir()
        elif name not in own:
            retained.append(name)
    return sorted(retained)


def _is_own(path: Path, kind: str) -> bool:
    """Whether a model of this kind was saved there; an encoder can have a head that no recipe describes."""
    if (path / (GRAPH if kind == ENCODER else ENCODER)).is_file():
        return False
    if (path / kind).is_file():
        return True
    return kind == ENCODER and has_digests(path) and "modules.json" in listed_names(path)
