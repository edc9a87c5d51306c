"""What a search is asked: a data set with judgements, or texts and the pairs that criteria make of them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from essent._core.registry import did_you_mean
from essent._core.texts import check_texts
from essent.errors import InputError, UnknownNameError
from essent.recipe.recipe import Recipe
from essent.recipe.weighting.frequency import inverse_document_frequency
from essent.selection.asked import TEACHER, AskedPairs
from essent.selection.combined import Criterion, PseudoPairs, criteria, default_criterion
from essent.selection.criterion import is_label_free
from essent.selection.pairs import TextPairs
from essent.selection.sweep import Sweep
from essent.tasks.base import LabeledTask
from essent.tasks.data import rows_of
from essent.tasks.kinds import COLUMNS
from essent.tasks.locate import load_labelled
from essent.tasks.result import SCORE_NAMES

Parts = tuple[tuple[Criterion, PseudoPairs, slice], ...]


@dataclass(frozen=True)
class Question:
    """One data set of a search.

    A recipe's row in the store has the cosines of the task's pairs, where it compares pairs, then those of each
    criterion's own pairs, then what the task keeps of vectors, where it takes those.

    Attributes:
        task: the judgements; None without labels.
        texts: what recipes learn from.
        wanted: criteria: a score of the task, or criteria without labels; the first ranks.
        parts: the criteria without labels, their pairs, and where these are in a row.
        given: the pairs that the user gave, without a task.
        weight: of this data set among several.
    """

    name: str
    task: LabeledTask | None
    texts: tuple[str, ...]
    wanted: tuple[str, ...]
    parts: Parts
    given: tuple[tuple[str, str], ...] = ()
    weight: float = 1.0

    @classmethod
    def of(
        cls, data: Any, folder: str | Path | None, criterion: str | Sequence[str], seed: int, weight: float = 1.0
    ) -> Question:
        """Read the data and check the criteria.

        Raises:
            InputError, DataError, UnknownNameError: no data, or a criterion that it cannot answer.
        """
        name, task, texts, given = read_data(data, folder)
        if len(set(texts)) < 2:
            raise InputError(f"{name}: all texts are equal; give at least 2 texts that differ.")
        specs = [criterion] if isinstance(criterion, str) else list(criterion)
        if isinstance(task, AskedPairs):
            specs = specs or [task.score_names[0], TEACHER]
            given = task.all_pairs
        for spec in specs:
            task = task.scored_by(spec) if task is not None else None
        wanted = list(dict.fromkeys(_checked(spec, name, task) for spec in specs))
        wanted = wanted or [task.score_names[0] if task is not None else default_criterion()]
        pairs = task.compared() if task is not None else None
        end, parts = 0 if pairs is None else len(pairs), []
        for spec in filter(is_label_free, wanted):
            made = criteria.create(spec)
            pseudo = made.pairs(texts, _pairs_of(task, given), seed)
            parts.append((made, pseudo, slice(end, end + len(pseudo.first))))
            end += len(pseudo.first)
        return cls(name, task, tuple(texts), tuple(wanted), tuple(parts), tuple(given), weight)

    @property
    def score(self) -> str | None:
        """The score with labels that is wanted."""
        return next((spec for spec in self.wanted if not is_label_free(spec)), None)

    @property
    def has_prior(self) -> bool:
        """Whether the score by TEACHER counts beside that of a few judgements."""
        return isinstance(self.task, AskedPairs) and self.wanted == (self.score, TEACHER)

    @property
    def takes_vectors(self) -> bool:
        """Whether the task needs the vectors themselves: classes, clusters, retrieval."""
        return self.task is not None and self.score is not None and self.task.compared() is None

    @property
    def place(self) -> slice:
        """Where a row of the store has the task's evidence."""
        if self.task is None:
            return slice(0, 0)
        start = self.parts[-1][2].stop if self.parts else 0
        return slice(start, start + self.task.evidence_size) if self.takes_vectors else slice(0, self._own_pairs)

    @property
    def width(self) -> int:
        """The numbers of a row."""
        return max(int(where.stop) for where in (self.place, *(where for _, _, where in self.parts)))

    @property
    def _own_pairs(self) -> int:
        pairs = None if self.task is None else self.task.compared()
        return 0 if pairs is None else len(pairs)

    def learned(self, prompts: Mapping[str, str]) -> list[str]:
        """What a saved encoder learns from: the texts, with the prompts of queries and documents."""
        if self.task is None or self.task.kind != "retrieval":
            return list(self.texts)
        return self.task.texts_for(prompts)

    def text_pairs(self, prompts: Mapping[str, str], default: str) -> TextPairs:
        """The texts with the model's prompts, and the pairs that are compared."""
        texts = [default + text for text in self.texts] if self.task is None else self.task.texts_for(prompts, default)
        own = None if self.task is None else self.task.compared()
        pairs = [] if own is None else [(texts[first], texts[second]) for first, second in own]
        for _, pseudo, _ in self.parts:
            pairs += [(default + a, default + b) for a, b in zip(pseudo.first, pseudo.second, strict=True)]
        return TextPairs.of(pairs, texts)

    def identity(self, model: str, recipes: Sequence[Recipe], pairs: TextPairs) -> dict[str, Any]:
        """What tells one search from another."""
        data = json.dumps([pairs.texts, pairs.pairs.tolist(), pairs.fit.tolist()]).encode()
        listed = "\n".join(map(str, recipes)).encode()
        judged = repr(self.task) if self.takes_vectors else ""  # classes, answers and how vectors are judged
        return {
            "model": model,
            "data": hashlib.sha256(data).hexdigest(),
            "judgements": hashlib.sha256(judged.encode()).hexdigest(),
            "recipes": hashlib.sha256(listed).hexdigest(),
            "weighed": self.reads_weights,
        }

    @property
    def reads_weights(self) -> bool:
        """Whether a criterion reads token weights."""
        return any(made.reads_weights for made, _, _ in self.parts)

    @property
    def is_relative(self) -> bool:
        """Whether a criterion compares recipes with others: a fixed set of recipes must then run along."""
        return any(made.relative for made, _, _ in self.parts)

    @property
    def judged_items(self) -> list[tuple[str, ...]]:
        """The texts of the units whose labels are read."""
        return self.task.read_items() if self.task is not None and self.score is not None else []

    def settled(self, rows: np.ndarray, reference: Sequence[int]) -> Question:
        """The question with relative criteria settled by the rows (R,width) of the reference recipes."""
        if not self.is_relative:
            return self
        known = np.array(rows[list(reference)])
        parts = tuple((made, made.settled(known[:, where], pseudo), where) for made, pseudo, where in self.parts)
        return replace(self, parts=parts)

    def label_free_scores(self, sweep: Sweep, count: int) -> dict[str, np.ndarray]:
        """Scores (R,) of the first R = `count` recipes by every criterion without labels."""
        rows, found = sweep.store.rows[:count], {}
        for made, pseudo, where in self.parts:
            read = weight_scores(made, sweep)[:count] if made.reads_weights else None
            found[made.spec()] = made.score(np.asarray(rows[:, where]), pseudo) if read is None else read
        return found


def _checked(spec: str, name: str, task: LabeledTask | None) -> str:
    """A criterion without labels in its shortest form, or a score that the task has."""
    if is_label_free(spec):
        return criteria.create(spec).spec()
    if task is not None and spec in task.score_names:
        return spec
    known = "" if task is None else f" It has {task.kind}, which is scored by {', '.join(task.score_names)}."
    if task is None and spec in SCORE_NAMES:
        raise InputError(
            f"The criterion {spec!r} needs labels, and the data ({name}) has none. Kinds with labels: "
            f"{', '.join(COLUMNS)}."
        )
    if spec in SCORE_NAMES:
        raise InputError(f"The criterion {spec!r} does not go with {name}.{known}")
    names = [*(task.score_names if task is not None else ()), *criteria]
    raise UnknownNameError(f"Unknown criterion {spec!r}. {did_you_mean(spec.partition(':')[0], names)}{known}")


def _pairs_of(task: LabeledTask | None, given: Sequence[tuple[str, str]]) -> Sequence[tuple[str, str]]:
    """The pairs that criteria without labels may use."""
    if task is None or isinstance(task, AskedPairs):
        return given
    items = task.items()
    return [(item[0], item[1]) for item in items] if all(len(item) == 2 for item in items) else []


def weight_scores(made: Criterion, sweep: Sweep) -> np.ndarray:
    """Scores (R,) of a criterion on token weights; NaN for recipes that pool by themselves."""
    scores = np.full(len(sweep.program.recipes), np.nan)
    by_block: dict[tuple[int, int], np.ndarray] = {}
    for number, place in enumerate(sweep.program.places):
        if place.block >= 0:
            key = (place.frame, place.block)
            if key not in by_block:
                weights, ids = sweep.token_weights(*key)
                by_block[key] = made.weight_score(weights, inverse_document_frequency(sweep.stats[place.frame])[ids])
            scores[number] = by_block[key][place.row]
    return scores


def read_data(
    data: Any, folder: str | Path | None
) -> tuple[str, LabeledTask | None, list[str], Sequence[tuple[str, str]]]:
    """Name, judgements, texts and pairs without judgements of what `search` was given."""
    if isinstance(data, (str, Path)) and Path(data).suffix == ".txt":
        raise InputError(
            f"{data} has texts without labels; give them as a list: Path({str(data)!r}).read_text().splitlines()."
        )
    if isinstance(data, (str, Path)) or hasattr(data, "score_vectors") or hasattr(data, "columns"):
        task = load_labelled(data, folder).for_choice()
        return task.name, task, task.texts(), []
    items = rows_of(data) if hasattr(data, "__iter__") else [data]
    if not items:
        raise InputError("search needs judgements or texts, got none.")
    if isinstance(items[0], Mapping) or (isinstance(items[0], (tuple, list)) and len(items[0]) > 2):
        task = load_labelled(items, folder).for_choice()
        return task.name, task, task.texts(), []
    if all(isinstance(item, (tuple, list)) and len(item) == 2 for item in items):
        pairs = [(str(a), str(b)) for a, b in items]
        check_texts([text for item in items for text in item])
        return f"{len(items)} pairs", None, [a for a, _ in pairs] + [b for _, b in pairs], pairs
    return f"{len(items)} texts", None, check_texts(items), []
