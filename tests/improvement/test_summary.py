"""What an improvement says before it begins, and about the worth of its gain."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from improvement_helpers import duplicates

from essent.improvement.summary import _unused, purpose, suggested
from essent.selection.topics import misfit
from essent.tasks.clusters import ClusterTask
from essent.tasks.examples import Example

CLUSTERS = ClusterTask("topics", tuple(Example((f"text {number}",), str(number % 2)) for number in range(20)))


def test_the_first_line_says_what_is_optimized() -> None:
    default = purpose((), None)
    assert default.startswith("Optimizes the similarity of sentences, by the criterion teacher, without labels.")
    assert "It is not known whether this helps clusters, classes or retrieval" in default
    assert "not known" not in purpose((), "similarity")
    assert purpose((), "retrieval") == "Optimizes retrieval, by the criterion teacher, without labels."
    assert purpose((CLUSTERS,), None) == "Optimizes clusters, by the labels of topics."
    assert purpose((), "clusters") == "Optimizes clusters, by the criterion topics, without labels."


def test_labels_of_another_use_are_noted() -> None:
    (note,) = misfit((CLUSTERS, duplicates(20)), "similarity")
    assert note.startswith("The labels of topics (clustering) measure clusters, not similarity. The labels decide")
    assert misfit((CLUSTERS,), "clusters") == misfit((CLUSTERS,), None) == []


@pytest.mark.parametrize(
    ("spent", "budget", "used"),
    [
        (90.2, 90.0, "90 of 90 s, 0.2 s more than the budget"),
        (181.0, 180.0, "3.0 of 3.0 minutes, 1.0 s more than the budget"),
        (120.0, 180.0, "2.0 of 3.0 minutes"),
    ],
)
def test_a_budget_that_was_exceeded_is_reported(spent: float, budget: float, used: str) -> None:
    run: Any = SimpleNamespace(
        settings={"seconds": budget}, spent=spent, missing={}, complete=["all is done"], skipped={}
    )
    assert [*_unused(run)] == [f"Used: {used}. Nothing is left to do: all is done."]


@pytest.mark.parametrize(("seconds", "budget"), [(59.0, "1m"), (61.0, "2m"), (1000.0, "17m"), (50_000.0, "14h")])
def test_a_suggested_budget_is_long_enough(seconds: float, budget: str) -> None:
    assert suggested(seconds) == budget
