"""One data set of a search: the scored examples, the texts to fit on, the compared pairs; and the test data."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from essent._core.arguments import check_options, check_size
from essent._core.machine import AUTO, precision_of
from essent._core.registry import did_you_mean
from essent._core.texts import check_texts
from essent.errors import InputError, UnknownNameError
from essent.recipe.recipe import Recipe
from essent.selection.annotation import AnnotatedPairs
from essent.selection.label_free import TEACHER, Pairs, Teacher
from essent.selection.program import TextPairs
from essent.selection.topics import CRITERIA, MEASURES, SIMILARITY, TOPICS, Topics, check_judged, is_label_free
from essent.tasks.base import LabeledTask
from essent.tasks.data import rows_of
from essent.tasks.locate import load_labelled


@dataclass
class SearchSettings:
    """Settings of the passes, as in `essent.search`.

    Raises:
        InputError: a setting out of its range, or an unknown option.
    """

    memory: float = 0.5
    batch_size: int = 32
    seed: int = 0
    precision: str = AUTO
    progress: bool = False
    work: str | Path | None = None
    options: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.memory > 0:
            raise InputError(f"memory={self.memory!r}: must be a positive number of GiB.")
        self.batch_size, self.seed = check_size(self.batch_size, "batch_size"), check_size(self.seed, "seed", 0)
        self.precision, self.options = precision_of(self.precision), check_options(self.options)


@dataclass(frozen=True, eq=False)
class SearchData:
    """One data set of a search.

    A recipe's row in the store contains the cosines of the task's pairs (if it compares pairs), then those of
    `extra_pairs`, then the task's evidence (if the task reads vectors), then the measures of `topics`.

    Attributes:
        task: the labelled task; None without labels.
        texts: the texts that recipes learn from.
        criteria: scores of the task, or the criterion without labels; the first ranks.
        extra_pairs: pairs of texts that are compared in addition to the task's own.
        teacher, topics: the criterion without labels, which reads `extra_pairs`; None if it is not used.
        use: what vectors are for; decides without labels, and with a few judged pairs.
        combined: the criterion without labels that ranks together with a few judged pairs; "" for none.
    """

    name: str
    task: LabeledTask | None
    texts: tuple[str, ...]
    criteria: tuple[str, ...]
    extra_pairs: tuple[tuple[str, str], ...] = ()
    teacher: Teacher | None = None
    topics: Topics | None = None
    use: str = SIMILARITY
    combined: str = ""

    @classmethod
    def of(
        cls,
        data: Any,
        folder: str | Path | None,
        criterion: str | Sequence[str],
        seed: int,
        use: str = SIMILARITY,
        columns: Mapping[str, str] | None = None,
    ) -> SearchData:
        """Read the data and check the criteria.

        Raises:
            InputError, DataError, UnknownNameError: no data, or a criterion that the data do not have.
        """
        name, task, texts = read_data(data, folder, columns)
        pairs: Pairs = []
        criteria = tuple(dict.fromkeys([criterion] if isinstance(criterion, str) else criterion))
        default: tuple[str, ...] = (CRITERIA[use],)
        combined = ""
        if task is not None:
            units, default = task.items(), task.score_names[:1]
            if isinstance(task, AnnotatedPairs):
                check_judged(use)
                combined = "" if criteria else CRITERIA[use]
                default = (*default, CRITERIA[use])
            elif all(len(unit) == 2 for unit in units):
                pairs = [(unit[0], unit[1]) for unit in units]
        criteria = criteria or default
        names = () if task is None else task.score_names
        if unknown := [spec for spec in criteria if not is_label_free(spec) and spec not in names]:
            hint = did_you_mean(unknown[0], [*names, TEACHER, TOPICS])
            scores = ", ".join(names) or "none, as it has no labels"
            raise UnknownNameError(f"Unknown criterion {unknown[0]!r}. {hint} The scores of {name}: {scores}.")
        label_free = list(filter(is_label_free, criteria))
        if len(label_free) > 1:
            raise InputError(f"The criteria {' and '.join(label_free)} both read no labels. Use one.")
        if label_free == [TOPICS]:
            topics = Topics.of(texts, seed)
            return cls(name, task, tuple(texts), criteria, topics.halves, None, topics, use, combined)
        teacher = Teacher.of(texts, pairs, seed) if label_free else None
        return cls(name, task, tuple(texts), criteria, teacher.pairs if teacher else (), teacher, None, use, combined)

    @property
    def score(self) -> str | None:
        """The requested score by labels; None without one."""
        return next((spec for spec in self.criteria if not is_label_free(spec)), None)

    @property
    def compared(self) -> np.ndarray:
        """Positions in the task's texts (E,2) of the pairs whose cosines are its evidence."""
        pairs = None if self.task is None else self.task.compared()
        return np.empty((0, 2), np.int64) if pairs is None else pairs

    @property
    def vector_task(self) -> LabeledTask | None:
        """The task if it is scored and reads the vectors themselves: classes, clusters, retrieval."""
        return self.task if self.task is not None and self.score and self.task.compared() is None else None

    @property
    def reads_vectors(self) -> bool:
        """Whether the task or the criterion reads the vectors themselves."""
        return self.vector_task is not None or self.topics is not None

    @property
    def extra(self) -> slice:
        """The columns of a row that contain the cosines of `extra_pairs`."""
        start = len(self.compared)
        return slice(start, start + len(self.extra_pairs))

    @property
    def evidence(self) -> slice:
        """The columns of a row that contain the task's evidence."""
        if (task := self.vector_task) is not None:
            return slice(self.extra.stop, self.extra.stop + task.evidence_size)
        return slice(0, self.extra.start)

    @property
    def measures(self) -> slice:
        """The columns of a row that contain the measures of `topics`."""
        start = max(self.extra.stop, self.evidence.stop)
        return slice(start, start + len(MEASURES) * (self.topics is not None))

    def vector_evidence(self, vectors: np.ndarray, pairs: TextPairs) -> Iterator[tuple[slice, np.ndarray]]:
        """Yield columns of a row, and the numbers in them, that are computed from a recipe's vectors (M,D).

        Args:
            pairs: the texts of these vectors, as from `text_pairs`.
        """
        if (task := self.vector_task) is not None:
            yield self.evidence, task.evidence(vectors, pairs.fit.tolist())
        if self.topics is not None:
            halves = pairs.pairs[self.extra]
            texts = vectors[pairs.fit[self.topics.rows]]
            yield self.measures, self.topics.measure(texts, vectors[halves[:, 0]], vectors[halves[:, 1]])

    def text_pairs(self, prompts: Mapping[str, str], default: str) -> TextPairs:
        """Return the texts with the model's prompts, and the pairs that are compared."""
        texts = [default + text for text in self.texts] if self.task is None else self.task.texts_for(prompts, default)
        pairs = [(texts[first], texts[second]) for first, second in self.compared]
        return TextPairs.of([*pairs, *((default + a, default + b) for a, b in self.extra_pairs)], texts)

    def identity(self, model: str, recipes: Sequence[Recipe], pairs: TextPairs) -> dict[str, Any]:
        """Return the values that distinguish this search from others."""
        contents = {
            "data": json.dumps([pairs.texts, pairs.pairs.tolist(), pairs.fit.tolist()]),
            # classes, answers, how vectors are scored
            "judgements": "" if (task := self.vector_task) is None else repr(task),
            "recipes": "\n".join(map(str, recipes)),
        }
        return {"model": model, **{key: hashlib.sha256(text.encode()).hexdigest() for key, text in contents.items()}}


def read_data(
    data: Any, folder: str | Path | None, columns: Mapping[str, str] | None = None
) -> tuple[str, LabeledTask | None, list[str]]:
    """Return the name, labels and texts of a search's data.

    Raises:
        InputError, DataError: no data, or data that cannot be searched.
    """
    if isinstance(data, (str, Path)) and Path(data).suffix == ".txt":
        raise InputError(
            f"{data} contains texts without labels. Pass them as a list: Path({str(data)!r}).read_text().splitlines()."
        )
    is_source = isinstance(data, (str, Path)) or hasattr(data, "score_vectors") or hasattr(data, "columns")
    rows = [data] if is_source or not hasattr(data, "__iter__") else rows_of(data)
    if not rows:
        raise InputError("The data is empty: search needs labels or texts.")
    task: LabeledTask | None = None
    if is_source or isinstance(rows[0], (Mapping, tuple, list)):
        task = load_labelled(data if is_source else rows, folder, columns=columns).for_choice()
        name, texts = task.name, task.texts()
    else:
        name, texts = f"{len(rows)} texts", check_texts(rows)
    if len(set(texts)) < 2:
        raise InputError(f"{name}: all texts are equal. At least 2 different texts are needed.")
    return name, task, texts


# -- test data ---------------------------------------------------------------------------------------------------------


def held_out(
    tests: Sequence[LabeledTask | str],
    folder: str | Path | None,
    labelled: Sequence[tuple[str, ...]],
    columns: Mapping[str, str] | None = None,
) -> list[tuple[LabeledTask, int]]:
    """Return the test tasks without the units that the choice has read, and the number of these units.

    Two texts are equal if they differ in white space and case only; the order of a pair is ignored.

    Args:
        labelled: the texts of the units whose labels the search reads.

    Raises:
        InputError: a task without other units.
    """
    labelled_units = set(map(_normalized, labelled))
    remaining = []
    for test in tests:
        task = load_labelled(test, folder, columns=columns)
        is_labelled = np.array([_normalized(unit) in labelled_units for unit in task.items()])
        if is_labelled.all():
            raise InputError(
                f"The test {task.name!r} is not independent: all of its {task.units} {task.unit} are also in the "
                f"data. Use other {task.unit} as the test."
            )
        remaining.append((task.without(is_labelled) if is_labelled.any() else task, int(is_labelled.sum())))
    return remaining


def _normalized(texts: Sequence[str]) -> frozenset[str]:
    """Return texts, such as the two of a pair, without regard to order, case and white space."""
    return frozenset(" ".join(text.split()).casefold() for text in texts)
