"""How labelled texts are scored, in words: in an evaluation, and in a choice of recipes."""

from __future__ import annotations

from collections.abc import Collection


def protocol_of(parts: Collection[str | None], folds: int, nested: bool) -> str:
    """How a classifier is learned and scored on examples of these parts, in words."""
    if None in parts:
        where = "inside each fold" if nested else "on the same folds"
        return f"logistic regression by {folds}-fold cross-validation, its strength chosen {where}"
    where = "on the dev part" if "dev" in parts else f"by {folds}-fold cross-validation on the train part"
    return f"logistic regression on the train part, scored on the test part, its strength chosen {where}"


def choice_note(name: str, parts: Collection[str | None], protocol: str, evaluated: str) -> str:
    """What a choice is made on, and why its scores are not those of an evaluation."""
    if "dev" in parts:
        return f"{name}: recipes are chosen and scored on the dev part; `essent evaluate` scores the test part."
    if None not in parts:
        return (
            f"{name}: recipes are chosen and scored on the train part, by {protocol}; "
            "`essent evaluate` scores the test part."
        )
    return (
        f"{name}: scores with all labels are here by {protocol}. `essent evaluate` scores by {evaluated}; "
        "for the same recipe the two may differ, on small data by several points."
    )


def few_labels_note(shot: int) -> str:
    """What accuracy with a few labels is, beside accuracy with all of them."""
    return (
        f"accuracy@{shot} is the mean over ten training sets of {shot} labels per class; `essent evaluate` shows it "
        f"with --shots {shot}, beside the accuracy that is learned from all labels."
    )
