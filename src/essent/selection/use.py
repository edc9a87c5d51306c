"""What vectors are for. A choice without labels is made for one use, since no criterion was shown to serve all."""

from __future__ import annotations

from collections.abc import Sequence

from essent._core.registry import did_you_mean
from essent.errors import UnknownNameError
from essent.selection.label_free import TEACHER
from essent.selection.topics import TOPICS
from essent.tasks.base import LabeledTask

SIMILARITY, CLUSTERS, CLASSES, RETRIEVAL = USES = ("similarity", "clusters", "classes", "retrieval")
USE_OF = {  # by kind of labels
    "pairs": SIMILARITY,
    "duplicates": SIMILARITY,
    "triplets": SIMILARITY,
    "clustering": CLUSTERS,
    "classification": CLASSES,
    "retrieval": RETRIEVAL,
}
UNKNOWN_USE = (
    "Neither labels nor --for were given: recipes are chosen for the similarity of sentences. Whether the choice helps "
    "clusters, classes or retrieval is not known."
)
CRITERIA = {SIMILARITY: TEACHER, CLUSTERS: TOPICS, CLASSES: TOPICS, RETRIEVAL: TEACHER}  # without labels


def is_label_free(criterion: str) -> bool:
    """Return whether a criterion reads no labels, as "topics", "teacher" and "teacher:corpus.txt" do."""
    return criterion == TOPICS or criterion.partition(":")[0] == TEACHER


def check_use(use: str | None) -> str:
    """Return a use by name; similarity by default.

    Raises:
        UnknownNameError: none of `USES`.
    """
    if use is None:
        return SIMILARITY
    if use not in USES:
        raise UnknownNameError(f"Unknown use {use!r}. {did_you_mean(str(use), list(USES))}")
    return use


def uses_of(tasks: Sequence[LabeledTask]) -> str:
    """Return the uses that labels measure, joined by "and"."""
    return " and ".join(dict.fromkeys(USE_OF.get(task.kind, task.kind) for task in tasks))


def described(use: str) -> str:
    """Return a use as part of a sentence."""
    return "the similarity of sentences" if use == SIMILARITY else use


def misfit(tasks: Sequence[LabeledTask], use: str | None) -> list[str]:
    """Return the note that the labels do not measure the use, if that is so; the labels decide."""
    others = [task for task in tasks if use is not None and USE_OF.get(task.kind) != use]
    if not others:
        return []
    names = " and ".join(f"{task.name} ({task.kind})" for task in others)
    return [f"The labels of {names} measure {uses_of(others)}, not {use}. The labels decide: give labels for {use}."]
