"""What vectors are for. A choice without labels is made for one use, since no criterion was shown to serve all."""

from __future__ import annotations

from essent._core.registry import did_you_mean
from essent.errors import UnknownNameError
from essent.selection.label_free import TEACHER
from essent.selection.topics import TOPICS

SIMILARITY, CLUSTERS, CLASSES, RETRIEVAL = USES = ("similarity", "clusters", "classes", "retrieval")
UNKNOWN_USE = (
    "Without labels and --for, recipes are chosen for the similarity of sentences. Whether the choice helps clusters, "
    "classes or retrieval is not known."
)
CRITERIA = {SIMILARITY: TEACHER, CLUSTERS: TOPICS, CLASSES: TOPICS}


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


def criterion_for(use: str) -> str | None:
    """Return the criterion without labels that was shown to help this use; None if there is none."""
    return CRITERIA.get(use)
