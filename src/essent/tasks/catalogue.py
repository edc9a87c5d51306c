"""The catalogue of data sets, one row per name: `add(Pairs("stsb", hub=…, revision=…))`, `add(Labels("trec", …))`.

Pinned revisions are those of the `mteb` package (`mteb/tasks/STS/eng/*.py`). Revisions of the labelled texts could not
be confirmed and are not pinned; a note in each result states this.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from essent._core.registry import did_you_mean
from essent.errors import UnknownNameError
from essent.tasks.examples import COLUMNS, PARTS

SPLITS = ("test", "dev", "train")
ON_HUB = {"train": "train", "dev": "validation", "test": "test"}  # essent's name of a split -> the hub's
STS7 = ("sts12", "sts13", "sts14", "sts15", "sts16", "stsb", "sickr")  # the seven tasks that the papers average
TRANSFER7 = ("mr", "cr", "subj", "mpqa", "sst2", "trec", "mrpc")  # averaged in PromptBERT's appendix C
CLASSIFICATION12 = (*TRANSFER7, "sst5", "scicite", "sicke", "sickr-soft", "stsb-soft")  # Stankevičius (2024, Table 3)
CLUSTERING6 = ("agnews", "biomedical", "googlets", "searchsnippets", "stackoverflow", "tweet")  # ibid., Table 2
STSB = ("mteb/stsbenchmark-sts", "b0fddb56ed78048fa8b90373c8a3cfc37b684831")  # repository on the hub, and its revision


@dataclass(frozen=True)
class Pairs:
    """A catalogue row: a data set of sentence pairs with gold scores.

    Attributes:
        name: of the task on its test split; the other splits are "name.dev" and "name.train".
        hub: repository of the data set on the hub; None for data sets read from files only.
        revision: pinned commit of that repository; None if none could be confirmed.
        scale: lowest and highest gold score.
        splits: splits of the data set.
        hub_splits: our split -> its name on the hub; absent splits are not on the hub.
        hub_note: differences on the hub, added to the notes of every result from there.

    Example:
        >>> from essent.tasks import Pairs
        >>> Pairs("my-sts", hub="me/my-sts", scale=(0, 1), splits=("test", "dev")).kind
        'pairs'
    """

    kind = "pairs"
    name: str
    hub: str | None = None
    revision: str | None = None
    scale: tuple[float, float] = (0, 5)
    splits: tuple[str, ...] = ("test",)
    hub_splits: Mapping[str, str] = field(default_factory=lambda: ON_HUB)
    hub_note: str = ""


@dataclass(frozen=True)
class Labels:
    """A catalogue row: a data set of labelled texts or pairs.

    Attributes:
        name: of the task.
        parts: published parts, of train, dev and test; empty: cross-validation.
        scale: lowest and highest class of soft targets; None for classes.
        stem: name of its files if it differs from `name`: "sickr" for soft targets from SICK-R's scores.
        hub: repository of the data set on the hub; None for data sets read from files only.
        revision: pinned commit of that repository; None if none could be confirmed.
        hub_splits: our part -> split on the hub, if they are not called train, validation, test. The data set consists
            of all of them: a dev part that is not in `parts` is added to the training part.
        note: added to the notes of every result.

    Example:
        >>> from essent.tasks import Labels
        >>> row = Labels("my-topics", parts=("train", "test"), hub="me/my-topics")
        >>> row.kind, row.parts
        ('classification', ('train', 'test'))
    """

    kind = "classification"
    splits = ("test",)
    name: str
    parts: tuple[str, ...] = ()
    scale: tuple[int, int] | None = None
    stem: str | None = None
    hub: str | None = None
    revision: str | None = None
    hub_splits: Mapping[str, str] = field(default_factory=dict)
    note: str = ""


@dataclass(frozen=True)
class Clusters:
    """A catalogue row: a data set of short texts with classes, read from files.

    Attributes:
        name: of the task.
        classes: number of classes of the published data set.
        size: number of texts of the published data set.

    Example:
        >>> from essent.tasks import Clusters
        >>> Clusters("my-tickets", classes=12, size=3400).kind
        'clustering'
    """

    kind = "clustering"
    splits = ("test",)
    name: str
    classes: int
    size: int


DataSet = Pairs | Labels | Clusters
_rows: dict[str, DataSet] = {}


def add(row: DataSet) -> None:
    """Add a data set to the catalogue under its name.

    Raises:
        ValueError: the name is taken, or contains a dot, a slash or a colon (they mark a split, a file and a kind).

    Example:
        >>> from essent.tasks import Pairs, add, task_names
        >>> add(Pairs("my-sts", splits=("test", "dev")))
        >>> task_names("pairs")[-2:]
        ['my-sts', 'my-sts.dev']
    """
    if row.name != row.name.lower() or not row.name or set(row.name) & set("./\\:"):
        raise ValueError(f"{row.name!r}: a task name must be lower case, without dots, slashes and colons.")
    if _rows.get(row.name, row) != row:
        raise ValueError(f"The task name {row.name!r} is taken. Choose another name.")
    _rows[row.name] = row


def task_names(kind: str | None = None) -> list[str]:
    """List the task names of the catalogue, in its order; "stsb" is the test split, "stsb.dev" the dev split.

    Args:
        kind: only tasks of this kind: "pairs", "classification", "clustering", "duplicates", "triplets" or "retrieval".

    Raises:
        UnknownNameError: an unknown kind.

    Example:
        >>> from essent.tasks import task_names
        >>> task_names("clustering")
        ['agnews', 'biomedical', 'googlets', 'searchsnippets', 'stackoverflow', 'tweet']
    """
    if kind is not None and kind not in COLUMNS:
        raise UnknownNameError(f"Unknown kind of task {kind!r}. {did_you_mean(kind, list(COLUMNS))}")
    rows = [row for row in _rows.values() if kind in {None, row.kind}]
    return [row.name if split == "test" else f"{row.name}.{split}" for row in rows for split in row.splits]


def find_row(name: str) -> tuple[DataSet, str]:
    """Return the row and the split of a task name; spellings such as "STS-B", "SICK-R" and "agNews" are accepted.

    Raises:
        UnknownNameError: no such task or split; the message lists all tasks.
    """
    base, _, split = name.lower().partition(".")
    row, split = _rows.get(base) or _rows.get(base.replace("-", "")), split or "test"
    if row is None or split not in row.splits:
        hint = did_you_mean(name.lower(), task_names())
        known = "" if hint.startswith("Known") else f" Tasks: {', '.join(task_names())}."
        raise UnknownNameError(f"Unknown task {name!r}. {hint}{known}")
    return row, split


TRAIN_AND_TEST = {"train": "train", "test": "test"}
for data_set in (
    Pairs("sts12", "mteb/sts12-sts", "a0d554a64d88156834ff5ae9920b964011b16384"),
    # without SMT, which may not be redistributed
    Pairs("sts13", "mteb/sts13-sts", "7e90230a92c190f1bf69ae9002b8cea547a64cca"),
    Pairs("sts14", "mteb/sts14-sts", "6031580fec1f6af667f0bd2da0a551cf4f0b2375"),
    Pairs("sts15", "mteb/sts15-sts", "ae752c7c21bf194d8b67fd573edf7ae58183cbe3"),
    Pairs("sts16", "mteb/sts16-sts", "4d8694f8f0e0100860b497b999b3dbed754a0513"),
    Pairs("stsb", *STSB, splits=SPLITS),
    Pairs(
        "sickr",
        "mteb/sickr-sts",
        "20a6d6f312dd54037fe07a32d58e5e168867909d",
        scale=(1, 5),
        splits=SPLITS,
        hub_splits={"test": "test"},
        hub_note="mteb/sickr-sts holds all 9,927 pairs of SICK as its test split; the papers report the 4,927 of the "
        "SemEval test split, so give local files to compare with them.",
    ),
    # Abdalla et al. 2023: 5,500 pairs in one split, both sentences in one column
    Pairs("str", "vkpriya/str-2022", scale=(0, 1), hub_splits={"test": "train"}),
    Labels("mr"),
    Labels("cr", hub="SetFit/SentEval-CR", hub_splits=TRAIN_AND_TEST),
    Labels("subj", hub="SetFit/subj", hub_splits=TRAIN_AND_TEST),
    Labels("mpqa"),
    Labels(
        "sst2",
        PARTS,
        hub="SetFit/sst2",
        note="Trained on 6,920 whole sentences, as in SentEval; Stankevičius trains on 67,349 phrases.",
    ),
    Labels("trec", ("train", "test"), hub="SetFit/TREC-QC", hub_splits=TRAIN_AND_TEST),
    Labels("mrpc", ("train", "test"), hub="SetFit/mrpc", hub_splits=ON_HUB),
    Labels("sst5", PARTS, hub="SetFit/sst5"),
    Labels("scicite", PARTS),
    Labels("sicke", PARTS),
    Labels("sickr-soft", PARTS, scale=(1, 5), stem="sickr"),
    Labels("stsb-soft", PARTS, scale=(1, 5), stem="stsb", hub=STSB[0], revision=STSB[1]),
    Clusters("agnews", classes=4, size=8000),
    Clusters("biomedical", classes=20, size=20000),
    Clusters("googlets", classes=152, size=11109),
    Clusters("searchsnippets", classes=8, size=12340),
    Clusters("stackoverflow", classes=20, size=20000),
    Clusters("tweet", classes=89, size=2472),
):
    add(data_set)
