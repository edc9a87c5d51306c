"""What an improvement says before it begins."""

from improvement_helpers import duplicates

from essent.improvement.summary import purpose
from essent.selection.topics import misfit
from essent.tasks.clusters import ClusterTask
from essent.tasks.examples import Example

CLUSTERS = ClusterTask("topics", tuple(Example((f"text {number}",), str(number % 2)) for number in range(20)))


def test_the_first_line_says_what_is_optimized() -> None:
    default = purpose((), None, "")
    assert default.startswith("Optimizes the similarity of sentences, by the criterion teacher, without labels.")
    assert "It is not known whether this helps clusters, classes or retrieval" in default
    assert "not known" not in purpose((), "similarity", "")
    assert purpose((), "retrieval", "") == "Optimizes retrieval, by the criterion teacher, without labels."
    assert purpose((CLUSTERS,), None, "") == "Optimizes clusters, by the labels of topics."
    assert purpose((), "clusters", "") == "Optimizes clusters, by the criterion topics, without labels."
    assert purpose((), "classes", "why").endswith("the model's own pooling is retained for classes: why.")


def test_labels_of_another_use_are_noted() -> None:
    (note,) = misfit((CLUSTERS, duplicates(20)), "similarity")
    assert note.startswith("The labels of topics (clustering) measure clusters, not similarity. The labels decide")
    assert misfit((CLUSTERS,), "clusters") == misfit((CLUSTERS,), None) == []
