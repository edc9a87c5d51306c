"""Parts: Parquet files that are written whole, and whose footers say of what they were made. They are the manifest."""

from __future__ import annotations

import errno
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from essent._core.atomic import remove_leftovers, replacing_file
from essent._core.lazy import optional_import
from essent.bulk.places import EXTRA, difference
from essent.bulk.settings import EMBEDDING
from essent.errors import DataError

FORMAT = 1
KEY = b"essent"
NAME = re.compile(r"part-([0-9]{5,})-([0-9]{6,})\.parquet")
SHARED_MODEL = "_model"  # the weights that worker processes map, while they run
LEFT = re.compile(rf"\.(part-[0-9]{{5,}}-[0-9]{{6,}}\.parquet|{SHARED_MODEL})\.")  # temporary names
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@dataclass(frozen=True)
class Part:
    """One file of the output.

    Attributes:
        name: of the file.
        start, stop: the range of its source, see `Unit`.
        rows: of the output.
        statuses: how many rows of each.
        about: what it was made of: `run`, the values that all parts of a run share, and `source`.
        loss: of a smaller number format, on some of its vectors.
        first: for each status without a vector the number of its first row in the part.
    """

    name: str
    start: int
    stop: int
    rows: int
    statuses: Mapping[str, int]
    about: Mapping[str, Any] = field(default_factory=dict, repr=False)
    loss: Mapping[str, float] | None = None
    first: Mapping[str, int] = field(default_factory=dict)

    def footer(self) -> str:
        """What the footer says, as JSON; the same for the same part."""
        values = {
            "format": FORMAT,
            **self.about,
            "unit": {"start": self.start, "stop": self.stop},
            "rows": self.rows,
            "statuses": dict(self.statuses),
            "first": dict(self.first),
            "loss": None if self.loss is None else dict(self.loss),
        }
        return json.dumps(values, ensure_ascii=True, sort_keys=True)


class PartWriter:
    """Writes the tables of one part, a row group each, into a temporary file."""

    def __init__(self, path: Path, schema: Any) -> None:
        parquet = optional_import("pyarrow.parquet", EXTRA)
        leaves = leaf_paths(schema)
        vectors = {leaf for leaf in leaves if leaf.partition(".")[0] == EMBEDDING}
        self._writer = parquet.ParquetWriter(
            path,
            schema,
            compression={leaf: "NONE" if leaf in vectors else "ZSTD" for leaf in leaves},
            use_dictionary=[leaf for leaf in leaves if leaf not in vectors],
            write_statistics=[leaf for leaf in leaves if leaf not in vectors],
        )

    def write(self, table: Any) -> None:
        """One row group more."""
        self._writer.write_table(table, row_group_size=max(table.num_rows, 1))

    def finish(self, part: Part) -> None:
        """Write the footer."""
        self._writer.add_key_value_metadata({KEY: part.footer().encode()})
        self._writer.close()

    def abandon(self) -> None:
        """Close the file, which is not kept."""
        with suppress(Exception):  # the error that led here is the one to raise
            self._writer.close()


def leaf_paths(schema: Any) -> list[str]:
    """Paths of the columns of numbers and texts, as Parquet stores them: `embedding.list.element`."""
    arrow, parquet = optional_import("pyarrow", EXTRA), optional_import("pyarrow.parquet", EXTRA)
    sink = arrow.BufferOutputStream()
    parquet.ParquetWriter(sink, schema).close()
    found = parquet.read_metadata(arrow.BufferReader(sink.getvalue())).schema
    return [found.column(number).path for number in range(len(found))]


@contextmanager
def writing(folder: Path, name: str, schema: Any) -> Iterator[PartWriter]:
    """A part that appears in the folder when the block ends without an error.

    Raises:
        DataError: the disk is full, or the folder can no longer be written to.
    """
    try:
        with replacing_file(folder / name) as temporary:
            writer = PartWriter(temporary, schema)
            try:
                yield writer
            except BaseException:
                writer.abandon()
                raise
    except OSError as error:
        raise cannot_write(folder, error) from error


def cannot_write(folder: Path, error: OSError) -> Exception:
    """The error for a part that cannot be written; essent's own errors stay."""
    if isinstance(error, DataError):
        return error
    why = "The disk is full" if error.errno in FULL else f"{folder} cannot be written to ({error.strerror or error})"
    return DataError(f"{why}. The parts in {folder} are intact; the same command goes on where this one stopped.")


# -- what is there ----------------------------------------------------------------------------------------------------


def read_parts(folder: Path) -> dict[str, Part]:
    """The parts of a folder by name, in order; reads footers alone.

    Raises:
        DataError: a file with the name of a part that essent did not write, or that is damaged.
    """
    if not folder.is_dir():
        return {}
    names = sorted((entry.name for entry in folder.iterdir() if NAME.fullmatch(entry.name)), key=_order)
    with ThreadPoolExecutor(8) as pool:
        return {part.name: part for part in pool.map(lambda name: read_part(folder / name), names)}


def _order(name: str) -> tuple[int, ...]:
    match = NAME.fullmatch(name)
    return tuple(map(int, match.groups())) if match else ()


def read_part(path: Path) -> Part:
    """What the footer of a part says.

    Raises:
        DataError: not a part, or a damaged one.
    """
    arrow, parquet = optional_import("pyarrow", EXTRA), optional_import("pyarrow.parquet", EXTRA)
    try:
        about = parquet.read_metadata(path)
    except (arrow.ArrowException, OSError) as error:
        said = str(error).strip().splitlines()[0]
        raise DataError(f"{path} is damaged ({said}). Remove it, and run the same command again.") from error
    values = json.loads((about.metadata or {}).get(KEY, b"{}"))
    if values.get("format") != FORMAT:
        raise DataError(f"{path} was not written by `essent encode` of this version. Choose another folder.")
    if values["rows"] != about.num_rows:
        raise DataError(f"{path} is damaged: it has {about.num_rows:,} rows, not {values['rows']:,}. Remove it.")
    unit, kept = values["unit"], {"run": values["run"], "source": values["source"], "versions": values["versions"]}
    statuses = Counter(values["statuses"])
    return Part(path.name, unit["start"], unit["stop"], values["rows"], statuses, kept, values["loss"], values["first"])


def check_same(
    parts: Mapping[str, Part],
    run: Mapping[str, Any],
    sources: Sequence[Mapping[str, Any]],
    folder: Path,
    *,
    some: bool = False,
) -> None:
    """Refuse to go on with parts that were made of something else.

    Args:
        run: the values that all parts share.
        sources: what tells each source from another.
        some: whether `run` has only some of these values yet.

    Raises:
        DataError: says what differs.
    """
    for name, part in parts.items():
        found = [
            f"{key} was {_shown(part.about['run'].get(key))} and is now {_shown(run.get(key))}"
            for key in sorted({*run} if some else {*run, *part.about["run"]})
            if part.about["run"].get(key) != run.get(key)
        ]
        number = int(_order(name)[0])
        made = part.about["source"]
        if number >= len(sources):
            found.append(f"{made['address']} was source {number + 1}, and there are now {len(sources)}")
        elif made["address"] != sources[number]["address"]:
            found.append(f"source {number + 1} was {made['address']} and is now {sources[number]['address']}")
        elif changed := difference(made["print"], sources[number]["print"]):
            found.append(f"{made['address']} has changed: {changed}")
        if found:
            raise DataError(
                f"{folder} holds parts of another run ({name}): {'; '.join(found)}. Choose another folder, give what "
                "was given before, or begin anew with --force."
            )


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 80 else f"{text[:77]}…"


def clean(folder: Path) -> None:
    """Remove what killed runs left of parts, also of those in their place already, and the weights of their workers."""
    if not folder.is_dir():
        return
    left = (LEFT.match(entry.name) for entry in folder.iterdir())
    for name in sorted({match[1] for match in left if match is not None}):
        remove_leftovers(folder / name)


def remove_parts(folder: Path) -> None:
    """Remove the parts of a folder, and nothing else."""
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if NAME.fullmatch(path.name):
            path.unlink()
