"""SentEval's own folder layout (the folder its `get_transfer_data.bash` fills), read as it stands."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from essent.errors import DataError
from essent.tasks.data import Pair, Row, pairs_from_rows, read_text, split_lines


@dataclass(frozen=True)
class SubsetFiles:
    """A year of SemEval: `STS.input.NAME.txt` (two sentences, tab between) and `STS.gs.NAME.txt` (score) a subset.

    An empty line in the `gs` file is a pair that nobody scored: it is left out, as SentEval does.
    """

    folder: str
    subsets: tuple[str, ...]

    def files(self, root: Path, split: str) -> list[Path]:
        """The files of `split` under `root`: a year has a test split only."""
        if split != "test":
            return []
        kinds = ("input", "gs")
        return [root / self.folder / f"STS.{kind}.{name}.txt" for name in self.subsets for kind in kinds]

    def read(self, root: Path, split: str) -> list[Pair]:
        """Read all subsets, in the order of the row.

        Raises:
            DataError: a file is missing, a line is malformed, or the two files differ in length.
        """
        files = self.files(root, split)
        rows: list[Row] = []
        for name, sentences, scores in zip(self.subsets, files[::2], files[1::2], strict=True):
            rows.extend(_scored(name, sentences, scores))
        return pairs_from_rows(rows)


def _scored(subset: str, sentences: Path, scores: Path) -> Iterator[Row]:
    lines, golds = split_lines(read_text(sentences)), split_lines(read_text(scores))
    if len(lines) != len(golds):
        raise DataError(f"{sentences} has {len(lines)} lines, but {scores} has {len(golds)}.")
    for number, (line, gold) in enumerate(zip(lines, golds, strict=True), start=1):
        if not gold.strip():
            continue
        first, tab, rest = line.partition("\t")
        if not tab:
            raise DataError(f"{sentences}, line {number}: two sentences with a tab between them are expected.")
        second = rest.split("\t")[0]
        yield Row(
            f"{scores}, line {number}",
            {"sentence1": first, "sentence2": second, "score": gold, "subset": subset},
        )


@dataclass(frozen=True)
class SplitTables:
    """One tab-separated file a split, without quoting; columns by number, from 0.

    `paths` maps the split to the file below the root; `header` is the number of lines before the first pair.
    """

    paths: Mapping[str, str]
    score: int
    sentence1: int
    sentence2: int
    header: int = 0

    def files(self, root: Path, split: str) -> list[Path]:
        """The file of `split` under `root`, none when there is no such split."""
        return [root / self.paths[split]] if split in self.paths else []

    def read(self, root: Path, split: str) -> list[Pair]:
        """Read the pairs of one split.

        Raises:
            DataError: the file is missing, or a line has too few columns or a score that is not a number.
        """
        path = root / self.paths[split]
        wanted = {"sentence1": self.sentence1, "sentence2": self.sentence2, "score": self.score}
        rows = []
        for number, line in enumerate(split_lines(read_text(path)), start=1):
            if number <= self.header or not line.strip():
                continue
            columns = line.split("\t")
            if len(columns) <= max(wanted.values()):
                raise DataError(
                    f"{path}, line {number}: {len(columns)} columns, at least {max(wanted.values()) + 1} are expected."
                )
            rows.append(Row(f"{path}, line {number}", {name: columns[place] for name, place in wanted.items()}))
        if not rows:
            raise DataError(f"{path} has no rows.")
        return pairs_from_rows(rows)
