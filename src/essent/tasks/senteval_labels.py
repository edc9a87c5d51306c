"""SentEval's folder layout of classification data (what its `get_transfer_data.bash` fills), read as it stands."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from essent.errors import DataError
from essent.tasks.data import Row, check_file, read_text, split_lines


@dataclass(frozen=True)
class ClassFiles:
    """One file a class, one text a line, no parts; ISO-8859-1 where a file is not UTF-8."""

    folder: str
    names: Mapping[str, str]  # class -> file

    def files(self, root: Path) -> list[Path]:
        """The files below a root."""
        return [root / self.folder / file for file in self.names.values()]

    def rows(self, root: Path) -> Iterator[Row]:
        """Rows with text and label.

        Raises:
            DataError: a file is missing.
        """
        for label, path in zip(self.names, self.files(root), strict=True):
            for number, line in enumerate(_lines(path), start=1):
                if line.strip():
                    yield Row(f"{path}, line {number}", {"text": line.strip(), "label": label})


@dataclass(frozen=True)
class PartFiles:
    """One file a part, one example a line, its columns apart by tabs.

    Attributes:
        paths: part -> file below the root.
        columns: what a row has -> number of the column, from 0.
        header: lines before the first example.
        colon: no tabs: the class stands before the first colon, the text after the first space (TREC).
    """

    paths: Mapping[str, str]
    columns: Mapping[str, int]
    header: int = 0
    colon: bool = False

    def files(self, root: Path) -> list[Path]:
        """The files below a root."""
        return [root / path for path in self.paths.values()]

    def rows(self, root: Path) -> Iterator[Row]:
        """Rows with the columns and their split.

        Raises:
            DataError: a file is missing or a line too short.
        """
        for part, path in zip(self.paths, self.files(root), strict=True):
            for number, line in enumerate(_lines(path), start=1):
                if number <= self.header or not line.strip():
                    continue
                where = f"{path}, line {number}"
                yield Row(where, {**self._values(where, line), "split": part})

    def _values(self, where: str, line: str) -> dict[str, str]:
        if self.colon:
            label, colon, rest = line.partition(":")
            if not colon or " " not in rest:
                raise DataError(f"{where}: expected CLASS:detail and a text, e.g. 'NUM:dist How far is it?'.")
            return {"label": label, "text": rest.partition(" ")[2].strip()}
        parts = line.split("\t")
        if len(parts) <= max(self.columns.values()):
            raise DataError(f"{where}: {len(parts)} columns, at least {max(self.columns.values()) + 1} are expected.")
        return {name: parts[place] for name, place in self.columns.items()}


def _lines(path: Path) -> list[str]:
    """Lines of a file in UTF-8, or else in ISO-8859-1, as these corpora of the 2000s are."""
    check_file(path)
    try:
        return split_lines(read_text(path))
    except DataError:
        return split_lines(path.read_bytes().decode("iso-8859-1"))
