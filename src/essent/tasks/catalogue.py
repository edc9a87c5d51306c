"""The data sets, one row each: `add(Pairs("stsb", hub=…, revision=…, scale=(0, 5)))`, `add(Labels("trec", …))`.

Revisions are those that the `mteb` package pins (`mteb/tasks/STS/eng/*.py`). The rows of labelled texts stand in
`labelled_sets`. SentEval's own folder layout (the folder its `get_transfer_data.bash` fills) is read as it stands.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from essent.errors import DataError
from essent.tasks.data import Pair, Row, pairs_from_rows, read_text, split_lines
from essent.tasks.senteval_labels import ClassFiles, PartFiles


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


SPLITS = ("test", "dev", "train")


@dataclass(frozen=True)
class Pairs:
    """A data set of sentence pairs with gold scores.

    Attributes:
        name: of the task on its test split; the others are called "name.dev" and "name.train".
        hub: the data set's repository on the hub, None when it is only read from files.
        revision: the pinned commit of that repository; None when none could be confirmed.
        scale: lowest and highest gold score.
        splits: the splits that the data set has.
        hub_splits: what those splits are called on the hub; one that is absent is not there.
        hub_note: what differs on the hub, added to every result from there.
        senteval: where SentEval's folder layout keeps it.
    """

    kind: ClassVar[str] = "pairs"
    name: str
    hub: str | None = None
    revision: str | None = None
    scale: tuple[float, float] = (0, 5)
    splits: tuple[str, ...] = ("test",)
    hub_splits: Mapping[str, str] = field(
        default_factory=lambda: {"test": "test", "dev": "validation", "train": "train"}
    )
    hub_note: str = ""
    senteval: SubsetFiles | SplitTables | None = None


@dataclass(frozen=True)
class Labels:
    """A data set of labelled texts or pairs.

    Attributes:
        name: of the task.
        parts: published with train, dev and test; empty: cross-validation.
        scale: lowest and highest class of soft targets, None for classes.
        stem: the name of its files, when it is not its own: "sickr" for soft targets from SICK-R's scores.
        hub: the data set's repository on the hub, None when it is only read from files.
        revision: the pinned commit of that repository; None when none could be confirmed.
        hub_splits: our part -> the split there, when they are not called train, validation, test; all of them together
            are the data set: a dev part that is not published is trained on.
        hub_note: what differs on the hub, added to every result from there.
        note: what every result says.
        senteval: where SentEval's folder layout keeps it.
    """

    kind: ClassVar[str] = "classification"
    splits: ClassVar[tuple[str, ...]] = ("test",)
    name: str
    parts: tuple[str, ...] = ()
    scale: tuple[int, int] | None = None
    stem: str | None = None
    hub: str | None = None
    revision: str | None = None
    hub_splits: Mapping[str, str] = field(default_factory=dict)
    hub_note: str = ""
    note: str = ""
    senteval: ClassFiles | PartFiles | None = None


@dataclass(frozen=True)
class Clusters:
    """A data set of short texts with classes, read from files.

    Attributes:
        name: of the task.
        classes: how many the published data set has.
        size: how many texts it has.
    """

    kind: ClassVar[str] = "clustering"
    splits: ClassVar[tuple[str, ...]] = ("test",)
    name: str
    classes: int
    size: int


_rows: dict[str, Pairs | Labels | Clusters] = {}


def add(row: Pairs | Labels | Clusters) -> None:
    """Put a data set into the catalogue, under its name.

    Raises:
        ValueError: the name is taken, or holds a dot, a slash or a colon (those mark a split, a file and a kind).
    """
    if row.name != row.name.lower() or not row.name or set(row.name) & set("./\\:"):
        raise ValueError(f"A task name is lower case, without dots, slashes and colons: {row.name!r}.")
    if _rows.get(row.name, row) != row:
        raise ValueError(f"The task name {row.name!r} is taken.")
    _rows[row.name] = row


def listed() -> Mapping[str, Pairs | Labels | Clusters]:
    """The rows that were put there, by name."""
    return _rows


STS7 = ("sts12", "sts13", "sts14", "sts15", "sts16", "stsb", "sickr")  # the seven that the papers average

add(
    Pairs(
        "sts12",
        hub="mteb/sts12-sts",
        revision="a0d554a64d88156834ff5ae9920b964011b16384",
        senteval=SubsetFiles(
            "STS/STS12-en-test", ("MSRpar", "MSRvid", "SMTeuroparl", "surprise.OnWN", "surprise.SMTnews")
        ),
    )
)
add(
    Pairs(  # without SMT, which may not be redistributed
        "sts13",
        hub="mteb/sts13-sts",
        revision="7e90230a92c190f1bf69ae9002b8cea547a64cca",
        senteval=SubsetFiles("STS/STS13-en-test", ("FNWN", "headlines", "OnWN")),
    )
)
add(
    Pairs(
        "sts14",
        hub="mteb/sts14-sts",
        revision="6031580fec1f6af667f0bd2da0a551cf4f0b2375",
        senteval=SubsetFiles(
            "STS/STS14-en-test", ("deft-forum", "deft-news", "headlines", "images", "OnWN", "tweet-news")
        ),
    )
)
add(
    Pairs(
        "sts15",
        hub="mteb/sts15-sts",
        revision="ae752c7c21bf194d8b67fd573edf7ae58183cbe3",
        senteval=SubsetFiles(
            "STS/STS15-en-test", ("answers-forums", "answers-students", "belief", "headlines", "images")
        ),
    )
)
add(
    Pairs(
        "sts16",
        hub="mteb/sts16-sts",
        revision="4d8694f8f0e0100860b497b999b3dbed754a0513",
        senteval=SubsetFiles(
            "STS/STS16-en-test", ("answer-answer", "headlines", "plagiarism", "postediting", "question-question")
        ),
    )
)
add(
    Pairs(
        "stsb",
        hub="mteb/stsbenchmark-sts",
        revision="b0fddb56ed78048fa8b90373c8a3cfc37b684831",
        splits=SPLITS,
        senteval=SplitTables(
            {split: f"STS/STSBenchmark/sts-{split}.csv" for split in SPLITS}, score=4, sentence1=5, sentence2=6
        ),
    )
)
add(
    Pairs(
        "sickr",
        hub="mteb/sickr-sts",
        revision="20a6d6f312dd54037fe07a32d58e5e168867909d",
        scale=(1, 5),
        splits=SPLITS,
        hub_splits={"test": "test"},
        hub_note="mteb/sickr-sts holds all 9,927 pairs of SICK as its test split; the papers report the 4,927 of the "
        "SemEval test split, so give local files to compare with them.",
        senteval=SplitTables(
            {"test": "SICK/SICK_test_annotated.txt", "dev": "SICK/SICK_trial.txt", "train": "SICK/SICK_train.txt"},
            score=3,
            sentence1=1,
            sentence2=2,
            header=1,
        ),
    )
)
add(
    Pairs(  # Abdalla et al. 2023: 5,500 pairs in one split, both sentences in one column
        "str",
        hub="vkpriya/str-2022",
        revision=None,
        scale=(0, 1),
        hub_splits={"test": "train"},
        hub_note="The revision of vkpriya/str-2022 is not pinned: none could be confirmed.",
    )
)
