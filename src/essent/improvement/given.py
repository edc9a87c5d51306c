"""What an improvement is given: texts, judgements and tests, checked and kept apart before any model is loaded."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from essent._core.texts import check_texts, mend_surrogates
from essent.errors import InputError
from essent.selection.verdict import held_out
from essent.tasks.judged import JudgedTask
from essent.tasks.locate import load_judged

FEWEST_TEXTS = 50
HELD_OUT, MOST_HELD_OUT = 0.1, 1000  # the share of the texts that nothing is learned from, and the most of them


@dataclass(frozen=True)
class Given:
    """Texts and judgements.

    Attributes:
        texts: different ones, in their order: what is learned from.
        held_out: others, on which similarities are compared.
        tasks: the judgements that everything is chosen on; none: chosen without labels.
        tests: judgements that nothing is chosen on.
        notes: sentences on what was left out.
    """

    texts: tuple[str, ...]
    held_out: tuple[str, ...]
    tasks: tuple[JudgedTask, ...]
    tests: tuple[JudgedTask, ...]
    notes: tuple[str, ...]

    def identity(self) -> dict[str, Any]:
        """Digests of everything, by which a later run knows that it was given the same."""
        listed = json.dumps([self.texts, self.held_out], ensure_ascii=False).encode("utf-8", "surrogatepass")
        return {
            "texts": f"{len(self.texts) + len(self.held_out)} texts, SHA-256 {hashlib.sha256(listed).hexdigest()}",
            "data": [f"{task.name} {task.digest()}" for task in self.tasks],
            "test": [f"{task.name} {task.digest()}" for task in self.tests],
        }


def read_given(texts: Any, data: Any, test: Any, folder: str | Path | None, seed: int) -> Given:
    """Check what was given, and keep apart what must not meet.

    Texts of the tests are left out of the texts, and judgements of the tests that the data have too out of the tests.

    Raises:
        InputError: too few different texts, or a test that the data hold whole.
        DataError, UnknownNameError: judgements that cannot be read.
    """
    tasks = [load_judged(one, folder).for_choice() for one in _listed(data)]
    names = [task.name for task in tasks]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise InputError(f"Two of the data sets are called {twice!r}; rename a file, or leave one out.")
    found = dict.fromkeys(mend_surrogates(text) for text in check_texts(texts) if text.strip())
    _check_count(len(found), "There are")
    judged = [item for task in tasks for item in task.read_items()]
    tests, notes = [], []
    for one in held_out(_listed(test), folder, [], judged):
        tests.append(one.task)
        if one.left_out:
            notes.append(f"{one.left_out} {one.task.unit} of the test {one.task.name} are in the data too: left out.")
    own = frozenset().union(*map(_measured, tests))
    kept = [text for text in found if _plain(text) not in own]
    if gone := len(found) - len(kept):
        notes.append(f"{gone} of the {len(found)} texts are in the tests too: nothing is learned from them.")
        _check_count(len(kept), "Without the texts of the tests there are")
    apart = np.zeros(len(kept), dtype=bool)
    count = min(MOST_HELD_OUT, round(HELD_OUT * len(kept)))
    apart[np.random.default_rng(seed).permutation(len(kept))[:count]] = True
    return Given(
        tuple(text for text, out in zip(kept, apart, strict=True) if not out),
        tuple(text for text, out in zip(kept, apart, strict=True) if out),
        tuple(tasks),
        tuple(tests),
        tuple(notes),
    )


def _listed(given: Any) -> Sequence[Any]:
    """One data set, or a list of them: names, files and tasks; rows in memory are one."""
    if given is None:
        return []
    several = isinstance(given, (list, tuple)) and all(
        isinstance(one, (str, Path)) or hasattr(one, "score_vectors") for one in given
    )
    return list(given) if several else [given]


def _check_count(count: int, words: str) -> None:
    if count < FEWEST_TEXTS:
        raise InputError(
            f"{words} {count} different texts; an encoder is improved on {FEWEST_TEXTS} or more, better on thousands "
            "like those that it will encode."
        )


def _measured(task: JudgedTask) -> set[str]:
    """The texts of a test but for those that its probe learns from: the training file beside a test file."""
    judged, read = ({_plain(text) for item in items for text in item} for items in (task.items(), task.read_items()))
    return {_plain(text) for text in task.texts()} - (read - judged)


def _plain(text: str) -> str:
    """As the tests of a search compare texts: without regard to white space, upper and lower case."""
    return " ".join(text.split()).casefold()
