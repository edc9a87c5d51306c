"""Sources: files, patterns, folders, data sets on disk, compressed files, on any file system of fsspec."""

from __future__ import annotations

import hashlib
import io
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

import fsspec
import pyarrow as pa
from fsspec.compression import compr
from fsspec.implementations.local import LocalFileSystem

from essent._core.registry import did_you_mean
from essent.errors import DataError

KINDS = {
    ".parquet": "parquet", ".pq": "parquet",
    ".arrow": "arrow", ".feather": "arrow", ".ipc": "arrow", ".arrows": "arrow",
    ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl",
    ".csv": "csv", ".tsv": "tsv", ".txt": "text",
}  # fmt: skip
TABLES = ("parquet", "arrow")
PACKED = {".gz": "gzip", ".bz2": "bz2", ".xz": "xz", ".lzma": "xz", ".zst": "zstd", ".zstd": "zstd"}
STAMPS = ("mtime", "ETag", "etag", "LastModified", "last_modified", "updated", "created", "md5")  # of file systems
BLOCK = 2**20
SAMPLE = 65_536  # bytes that are read at the beginning, in the middle and at the end of a file


@dataclass(frozen=True)
class Source:
    """One input file.

    Attributes:
        address: as fsspec takes it; for local files the absolute path.
        kind: parquet, arrow, jsonl, csv, tsv or text.
        packed: how it is compressed, or None.
        print: length, time of the last change and a digest of three samples: what tells it from another file.
    """

    address: str
    kind: str
    packed: str | None = None
    print: dict[str, Any] = field(default_factory=dict)

    @property
    def splits(self) -> bool:
        """Whether ranges can be read independently; otherwise the file is read from its beginning."""
        return self.packed is None and self.kind != "csv"

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return int(self.print["bytes"])

    @contextmanager
    def open(self) -> Iterator[Any]:
        """Open the file for reading, decompressed; only an uncompressed file can seek.

        Raises:
            DataError: it cannot be opened, or read in the block.
        """
        system, path = file_system(self.address)
        try:
            raw = open(path, "rb") if _is_local(system) else system.open(path, "rb")  # noqa: SIM115
        except OSError as error:
            raise DataError(f"{self.address} cannot be opened: {error.strerror or error}.") from error
        try:
            with raw, unpacked(raw, self.packed) as file:
                yield file
        except Exception as error:
            if not isinstance(error, (EOFError, OSError)) and type(error).__module__ not in ("zlib", "_lzma"):
                raise
            raise DataError(
                f"{self.address}: cannot be read to its end ({error or type(error).__name__}). The file is damaged or "
                "incomplete."
            ) from error

    def check_unchanged(self) -> None:
        """Raise DataError if the file has changed since the start of the run, or differs on this node."""
        if changed := difference(self.print, _stamps(*file_system(self.address))):
            raise DataError(
                f"{self.address} is not the file that the run began with ({changed}): it has changed, or is another "
                "one on this machine. The parts written so far are intact. Start over in another folder."
            )


def unpacked(raw: Any, packed: str | None) -> Any:
    """Return a decompressing reader, or the file itself if it is not compressed."""
    if packed == "zstd":
        return io.BufferedReader(pa.CompressedInputStream(raw, packed), BLOCK)
    return raw if packed is None else compr[packed](raw, mode="rb")


def file_system(address: str) -> tuple[Any, str]:
    """Return the file system of an address and the path in it.

    Raises:
        DataError: an unknown protocol, or a library that it needs.
    """
    try:
        system, path = fsspec.core.url_to_fs(address)
    except (ValueError, ImportError) as error:
        raise DataError(f"{address!r} cannot be read: {error}") from error
    return system, path


def find_sources(addresses: Sequence[str]) -> list[Source]:
    """Return the files of the addresses in order; those of a folder or pattern are sorted by name.

    Raises:
        DataError: nothing there, a folder without files that are read, or a format that is not.
    """
    if not addresses:
        raise DataError("Expected at least one source: a file, a folder or a pattern such as 'data/*.parquet'.")
    sources: list[Source] = []
    for address in addresses:
        system, folder = file_system(address)
        for path in _files(system, folder, address):
            kind, packed = kind_of(path)
            name = path if _is_local(system) else system.unstrip_protocol(path)
            sources.append(Source(name, kind, packed, fingerprint(system, path)))
    (address, times), *_ = Counter(source.address for source in sources).most_common(1)
    if times > 1:
        raise DataError(f"{address} is given twice.")
    return sources


def kind_of(path: str) -> tuple[str, str | None]:
    """Return format and compression by suffix; a file with an unknown suffix has one text per line."""
    suffixes = _suffixes(path)
    packed = PACKED.get(suffixes[-1])
    kind = KINDS.get(suffixes[-2 if packed else -1], "text")
    if packed is not None and kind in TABLES:
        raise DataError(f"{path}: {kind} files have their own compression. Decompress this file first.")
    return kind, packed


def _suffixes(path: str) -> list[str]:
    return ["", "", *map(str.lower, PurePosixPath(path).suffixes)]


def _is_local(system: Any) -> bool:
    return isinstance(system, LocalFileSystem)


def _names(system: Any, folder: str) -> dict[str, str]:
    """Return the paths in a folder by name."""
    return {PurePosixPath(path).name: str(path) for path in system.ls(folder, detail=False)}


def _files(system: Any, path: str, address: str) -> list[str]:
    if any(mark in path for mark in "*?[") and not system.exists(path):
        if matches := sorted(str(name) for name in system.glob(path) if system.isfile(name)):
            return matches
        raise DataError(f"{address!r} matches no file.")
    if system.isfile(path):
        return [path]
    if system.isdir(path):
        return _files_in_folder(system, path, address)
    parent, _, name = path.rstrip("/").rpartition("/")
    names = list(_names(system, parent)) if parent and system.isdir(parent) else []
    raise DataError(f"{address} does not exist. {did_you_mean(name, names[:50]) if names else ''}".rstrip())


def _files_in_folder(system: Any, folder: str, address: str) -> list[str]:
    """Return the files of a data set on disk in its order, or those of a folder with known suffixes by name."""
    names = _names(system, folder)
    if "dataset_dict.json" in names:
        splits = json.loads(system.cat_file(names["dataset_dict.json"])).get("splits", [])
        raise DataError(
            f"{address} is a data set with the splits {', '.join(splits)}. Choose one: {address}/{splits[0]}."
        )
    folder = folder.rstrip("/")
    if {"state.json", "dataset_info.json"} <= names.keys():
        state = json.loads(system.cat_file(names["state.json"]))
        return [f"{folder}/{row['filename']}" for row in state["_data_files"]]
    paths = []
    for path in sorted(map(str, system.find(folder))):
        *_, before, last = _suffixes(path)
        hidden = any(part.startswith((".", "_")) for part in path[len(folder) + 1 :].split("/"))
        if not hidden and (last in KINDS or (last in PACKED and before)):
            paths.append(path)
    if not paths:
        raise DataError(f"{address} is a folder without readable files: {', '.join(KINDS)}, compressed or not.")
    return paths


# -- what tells a file from another -----------------------------------------------------------------------------------


def _stamps(system: Any, path: str) -> dict[str, Any]:
    """Return the length and the file system's metadata of the last change."""
    try:
        system.invalidate_cache(path)
        metadata = system.info(path)
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}.") from error
    stamps = {"bytes": int(metadata["size"])}
    stamp_names = ("mtime",) if _is_local(system) else STAMPS
    return stamps | {name: str(metadata[name]) for name in stamp_names if metadata.get(name) is not None}


def fingerprint(system: Any, path: str) -> dict[str, Any]:
    """Return length, time of the last change, and a digest of three samples of the content."""
    stamps = _stamps(system, path)
    digest, size = hashlib.sha256(), stamps["bytes"]
    starts, length = ((0,), size) if size <= 3 * SAMPLE else ((0, size // 2, size - SAMPLE), SAMPLE)
    try:
        with system.open(path, "rb") as file:
            for start in starts:
                file.seek(start)
                digest.update(file.read(length))
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}.") from error
    return stamps | {"samples": digest.hexdigest()[:32]}


def difference(old: dict[str, Any], new: dict[str, Any]) -> str:
    """Describe the differences of two fingerprints; "" if there are none."""
    return ", ".join(f"{name} {old.get(name)} → {new[name]}" for name in new if old.get(name) != new[name])
