"""What `evaluate` gives can be compared recipe by recipe, on every kind of judgement, and becomes a frame."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from essent import Encoder
from essent.errors import InputError
from essent.selection.by_recipe import ByRecipe
from essent.selection.evaluation import default_recipes, evaluate
from essent.tasks.base import LabeledTask
from essent.tasks.comparison import Scored, bootstrap, compare
from essent.tasks.geometry import GeometryTask
from essent.tasks.locate import as_task
from essent.tasks.resampling import interval
from essent.tasks.result import load_results, save_results
from families import CORPUS

RECIPES = ["mean", "cls", "first-last | zscore"]
WORDS = sorted({word for text in CORPUS for word in text.split()})


def texts(count: int, seed: int = 0) -> list[str]:
    word_rows = np.random.default_rng(seed).choice(WORDS, size=(count, 6))
    return [" ".join(row) for row in word_rows]


def task(kind: str) -> LabeledTask:
    listed = enumerate(zip(*(texts(36, seed) for seed in range(3)), strict=True))
    row: dict[str, Callable[[int, str, str, str], dict[str, Any]]] = {
        "pairs": lambda n, a, b, c: {"sentence1": a, "sentence2": b, "score": n % 5},
        "duplicates": lambda n, a, b, c: {"sentence1": a, "sentence2": b, "label": n % 2},
        "triplets": lambda n, a, b, c: {"anchor": a, "positive": b, "negative": c},
        "classification": lambda n, a, b, c: {"text": a, "label": n % 3},
        "clustering": lambda n, a, b, c: {"text": a, "cluster": n % 3},
        "retrieval": lambda n, a, b, c: {"query": a, "positive": b},
    }
    labelled = as_task([row[kind](n, *three) for n, three in listed])
    assert isinstance(labelled, LabeledTask)
    assert labelled.kind == kind
    return labelled


KINDS = ("pairs", "duplicates", "triplets", "classification", "clustering", "retrieval")


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_compared_on_the_same_units(kind: str, bert: Path) -> None:
    labelled = task(kind)
    by_recipe = evaluate(bert, RECIPES, [labelled])
    rows = [result.evidence for (result,) in by_recipe.values()]
    assert all(row is not None and len(row) == labelled.evidence_size for row in rows)
    evidence = np.stack([row for row in rows if row is not None])
    for (result,), score in zip(by_recipe.values(), labelled.scores(evidence), strict=True):
        assert result.main_score == pytest.approx(score)
        low, high = result.metrics[result.main[0]]["low"], result.metrics[result.main[0]]["high"]  # type: ignore[index]
        assert low <= result.main_score <= high
    expected = compare([Scored(labelled, labelled.score_names[0], list(by_recipe), evidence)], "cls", "mean")
    assert by_recipe.compare("cls", "mean") == expected
    assert [c.first for c in by_recipe.comparisons()] == ["cls", "first-last | zscore"]
    assert by_recipe.comparisons()[0] == expected
    assert by_recipe.comparisons("cls")[0].second == "cls"


def test_the_interval_of_a_clustering_is_over_texts(bert: Path) -> None:
    clusters = task("clustering")
    (result,) = evaluate(bert, ["mean"], [clusters])["mean"]
    assert result.evidence is not None
    low, high = interval(bootstrap(clusters, result.evidence[None], "accuracy")[0])
    assert (result.metrics["accuracy"]["low"], result.metrics["accuracy"]["high"]) == (low, high)


def test_the_model_as_it_is_can_be_compared(bert: Path) -> None:
    retrieval = task("retrieval")
    as_it_is, recipes = evaluate(bert, [], [retrieval]), evaluate(bert, ["cls"], [retrieval])
    together = ByRecipe({"unchanged": next(iter(as_it_is.values())), **recipes}, recipes.tasks)
    (comparison,) = together.comparisons()
    assert (comparison.first, comparison.second) == ("cls", "unchanged")


def test_of_several_tasks_the_mean_is_compared(bert: Path) -> None:
    first, second = (
        task("pairs"),
        as_task([(a, b, len(a) % 4) for a, b in zip(texts(30, 5), texts(30, 6), strict=True)], number=2),
    )
    by_recipe = evaluate(bert, RECIPES, [first, second])
    both = [by_recipe.compare("cls", "mean", name) for name in (first.name, second.name)]
    mean = by_recipe.compare("cls", "mean")
    assert mean.difference == pytest.approx(np.mean([c.difference for c in both]))
    assert mean.criterion == "mean of the data sets"
    assert np.isnan(mean.p)
    assert by_recipe.compare("cls", "layers=L", first.name).criterion == "spearman"


def test_compare_refusals(bert: Path) -> None:
    labelled, geometry = task("classification"), GeometryTask("geometry", tuple(texts(20)))
    by_recipe = evaluate(bert, RECIPES, [task("pairs"), labelled, geometry])
    assert by_recipe.compared == ["pairs", "classification"]
    for arguments, message in (
        (("cls", "mean"), r"different scores.*pairs \(spearman\), classification \(accuracy\)"),
        (("cls", "maen", "pairs"), "no results of 'maen'. Did you mean 'mean'"),
        (("cls", "mean", "pears"), "no task 'pears' to compare on. Did you mean 'pairs'"),
        (("cls", "mean", "geometry"), "no task 'geometry'"),
    ):
        with pytest.raises(InputError, match=message):
            by_recipe.compare(*arguments)
    with pytest.raises(InputError, match="not compared by 'spearman' on classification: accuracy, f1_macro"):
        by_recipe.compare("cls", "mean", "classification", score="spearman")
    assert by_recipe.compare("cls", "mean", "classification", score="f1_macro").criterion == "f1_macro"
    with pytest.raises(InputError, match="these results have none"):
        evaluate(bert, RECIPES[:2], [geometry]).comparisons()
    with pytest.raises(InputError, match="no results to compare"):
        ByRecipe().comparisons()


def test_evidence_stays_in_memory(bert: Path, tmp_path: Path) -> None:
    by_recipe = evaluate(bert, RECIPES[:2], [task("pairs")])
    ((result,), _) = by_recipe.values()
    save_results([result], tmp_path / "results.json")
    (again,) = load_results(tmp_path / "results.json")
    assert "evidence" not in (tmp_path / "results.json").read_text()
    assert again.evidence is None
    stale = ByRecipe({"mean": [again], "cls": by_recipe["cls"]}, by_recipe.tasks)
    with pytest.raises(InputError, match="hold nothing to compare them by"):
        stale.comparisons()
    assert copy.deepcopy(by_recipe).comparisons() == by_recipe.comparisons()


def test_to_frame(bert: Path) -> None:
    by_recipe = evaluate(bert, RECIPES, [task("classification"), task("clustering")], shots=(2,))
    frame = by_recipe.to_frame()
    assert list(frame.columns) == ["recipe", "task", "metric", "score", "low", "high", "main", "n"]
    table = frame[frame.main].pivot(index="recipe", columns="task", values="score")
    for recipe, (first, second) in by_recipe.items():
        assert table.loc[recipe, "classification"] == first.main_score
        assert table.loc[recipe, "clustering"] == second.main_score
    few = frame[frame.metric == "accuracy@2"]
    assert list(few.recipe) == list(by_recipe)
    assert (few.low <= few.score).all()
    assert len(ByRecipe().to_frame()) == 0


def test_few_labels_of_labelled_texts_alone(bert: Path) -> None:
    classes, pairs = task("classification"), task("pairs")
    by_recipe = evaluate(bert, ["mean"], [classes, pairs], shots=[2, 4])
    labelled, scored = by_recipe["mean"]
    assert {"accuracy@2", "accuracy@4"} <= set(labelled.metrics)
    assert "accuracy@2" not in scored.metrics
    assert labelled.main_score == evaluate(bert, ["mean"], [classes])["mean"][0].main_score
    for shots in (8, "8", [0], [True], [2.5]):
        with pytest.raises(InputError, match="numbers of labels a class"):
            evaluate("no-such-model", ["mean"], [classes], shots=shots)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="a score of labelled texts"):
        evaluate("no-such-model", ["mean"], [pairs], shots=[2])


def test_comparisons_in_words(bert: Path) -> None:
    pairs, labels = task("pairs"), task("classification")
    both = evaluate(bert, RECIPES, [pairs, labels])
    heads = [line for line in both.summary() if line.startswith("Compared")]
    assert [" ".join(line.split()[:5]) for line in heads] == [
        f"Compared with mean on {of.name}:" for of in (pairs, labels)
    ]
    lines = list(both.summary())
    assert len(lines) == 2 * (1 + len(RECIPES) - 1)
    assert lines[1] == f"  {both.comparisons(task=pairs.name)[0].summary()}"
    alone = ByRecipe(dict(both), [labels])
    assert "difference of f1_macro ×100" in next(iter(alone.summary("f1_macro")))
    assert next(iter(alone.summary("pearson"))) == next(iter(alone.summary()))  # it is not a score of this task
    assert not list(ByRecipe({"mean": both["mean"]}, [pairs]).summary())
    assert not list(ByRecipe(both, []).summary())


def test_notes_name_recipes_unless_all_have_them(bert: Path) -> None:
    by_recipe = evaluate(bert, ["mean", "cls"], [task("pairs")])
    (mean,), (cls,) = by_recipe.values()
    noted = {"mean": [replace(mean, notes=("all", "one", "one"))], "cls": [replace(cls, notes=("all",))]}
    assert ByRecipe(noted).notes() == [f"{mean.task}: all", f"{mean.task}: one (mean)"]


def test_recipes_of_a_first_look(bert: Path, tmp_path: Path) -> None:
    assert "first-last-idf-zscore" in default_recipes(bert)
    assert default_recipes("no/model-of-the-hub") == default_recipes(bert)
    Encoder(bert, "mean").save(str(tmp_path / "saved"))
    assert default_recipes(tmp_path / "saved") == []
    (tmp_path / "vectors.txt").write_text("word 1 2\n", encoding="utf-8")
    assert all(recipe.startswith("static") for recipe in default_recipes(str(tmp_path / "vectors.txt")))
