"""The catalogue of published data sets: where they are, and in which parts they are scored.

Pinned revisions are those of the `mteb` package (`mteb/tasks/STS/eng/*.py`). Revisions of the labelled texts could not
be confirmed and are not pinned; a note in each result states this.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

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
class DataSet:
    """A published data set.

    Attributes:
        name: of the task; of pairs on the test split, the other splits are "name.dev" and "name.train".
        kind: "pairs", "classification" or "clustering".
        hub: repository of the data set on the hub; None for data sets read from files only.
        revision: pinned commit of that repository; None if none could be confirmed.
        splits: splits of pairs, each of which is a task.
        parts: published parts of classes, of train, dev and test; empty: cross-validation.
        hub_splits: our split or part -> its name on the hub. Classes consist of all of them: a dev part that is not in
            `parts` is added to the training part.
        columns: of the repository by role, if they differ from the usual ones.
        scale: lowest and highest gold score of pairs, or class of soft targets; None for classes.
        stem: name of the files if it differs from `name`: "sickr" for soft targets from SICK-R's scores.
        size: number of texts of published clusters.
        note: added to the notes of every result; of pairs, only of those from the hub.
    """

    name: str
    kind: str = "pairs"
    hub: str | None = None
    revision: str | None = None
    splits: tuple[str, ...] = ("test",)
    parts: tuple[str, ...] = ()
    hub_splits: Mapping[str, str] = field(default_factory=lambda: ON_HUB)
    columns: Mapping[str, str] = field(default_factory=dict)
    scale: tuple[int, int] | None = None
    stem: str = ""
    size: int = 0
    note: str = ""


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
    rows = [row for row in DATA_SETS.values() if kind in {None, row.kind}]
    return [row.name if split == "test" else f"{row.name}.{split}" for row in rows for split in row.splits]


def find_row(name: str) -> tuple[DataSet, str]:
    """Return the row and the split of a task name.

    Raises:
        UnknownNameError: no such task or split; the message lists all tasks.
    """
    base, _, split = name.partition(".")
    row, split = DATA_SETS.get(base), split or "test"
    if row is None or split not in row.splits:
        hint = did_you_mean(name.lower(), task_names())
        known = "" if hint.startswith("Known") else f" Tasks: {', '.join(task_names())}."
        raise UnknownNameError(f"Unknown task {name!r}. {hint}{known}")
    return row, split


def _pairs(name: str, repository: str, revision: str | None, scale: tuple[int, int] = (0, 5), **more: Any) -> DataSet:
    return DataSet(name, "pairs", repository, revision, scale=scale, **more)


def _classes(name: str, parts: tuple[str, ...] = (), hub: str | None = None, **more: Any) -> DataSet:
    return DataSet(name, "classification", hub, parts=parts, **more)


TRAIN_AND_TEST = {"train": "train", "test": "test"}
DATA_SETS = {
    data_set.name: data_set
    for data_set in (
        _pairs("sts12", "mteb/sts12-sts", "a0d554a64d88156834ff5ae9920b964011b16384"),
        # without SMT, which may not be redistributed
        _pairs("sts13", "mteb/sts13-sts", "7e90230a92c190f1bf69ae9002b8cea547a64cca"),
        _pairs("sts14", "mteb/sts14-sts", "6031580fec1f6af667f0bd2da0a551cf4f0b2375"),
        _pairs("sts15", "mteb/sts15-sts", "ae752c7c21bf194d8b67fd573edf7ae58183cbe3"),
        _pairs("sts16", "mteb/sts16-sts", "4d8694f8f0e0100860b497b999b3dbed754a0513"),
        _pairs("stsb", *STSB, splits=SPLITS),
        _pairs(
            "sickr",
            "mteb/sickr-sts",
            "20a6d6f312dd54037fe07a32d58e5e168867909d",
            (1, 5),
            splits=SPLITS,
            hub_splits={"test": "test"},
            note="mteb/sickr-sts holds all 9,927 pairs of SICK as its test split; the papers report the 4,927 of the "
            "SemEval test split, so give local files to compare with them.",
        ),
        # Abdalla et al. 2023: 5,500 pairs in one split, both sentences in one column
        _pairs("str", "vkpriya/str-2022", None, (0, 1), hub_splits={"test": "train"}),
        _classes("mr"),
        _classes("cr", hub="SetFit/SentEval-CR", hub_splits=TRAIN_AND_TEST),
        _classes("subj", hub="SetFit/subj", hub_splits=TRAIN_AND_TEST),
        _classes("mpqa"),
        _classes(
            "sst2",
            PARTS,
            "SetFit/sst2",
            note="Trained on 6,920 whole sentences, as in SentEval; Stankevičius trains on 67,349 phrases.",
        ),
        _classes(
            "trec",
            ("train", "test"),
            "SetFit/TREC-QC",
            hub_splits=TRAIN_AND_TEST,
            columns={"text": "text", "label": "label_coarse"},
        ),
        _classes(
            "mrpc",
            ("train", "test"),
            "SetFit/mrpc",
            columns={"sentence1": "text1", "sentence2": "text2", "label": "label"},
        ),
        _classes("sst5", PARTS, "SetFit/sst5"),
        _classes("scicite", PARTS),
        _classes("sicke", PARTS),
        _classes("sickr-soft", PARTS, scale=(1, 5), stem="sickr"),
        _classes("stsb-soft", PARTS, STSB[0], revision=STSB[1], scale=(1, 5), stem="stsb"),
        DataSet("agnews", "clustering", size=8000),
        DataSet("biomedical", "clustering", size=20000),
        DataSet("googlets", "clustering", size=11109),
        DataSet("searchsnippets", "clustering", size=12340),
        DataSet("stackoverflow", "clustering", size=20000),
        DataSet("tweet", "clustering", size=2472),
    )
}
