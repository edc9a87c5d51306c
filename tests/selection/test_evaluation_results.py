"""What `evaluate` gives can be compared recipe by recipe, on every kind of judgement, and becomes a frame."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

from essent import Encoder
from essent.errors import InputError, ModelError
from essent.selection.evaluation import default_recipes, evaluate
from essent.selection.results import Evaluation
from essent.tasks.base import LabeledTask
from essent.tasks.comparison import Scored, compare
from essent.tasks.examples import Pair
from essent.tasks.geometry import GeometryTask
from essent.tasks.pairs import PairTask
from essent.tasks.result import load_results, save_results
from families import CORPUS
from selection_samples import TASK, clusters, labels, retrieval

RECIPES = ["mean", "cls", "first-last | zscore"]
GEOMETRY = GeometryTask("geometry", tuple(Pair(*texts, 5.0) for texts in zip(CORPUS[:4], CORPUS[4:8], strict=True)))


@pytest.fixture(scope="module")
def by_recipe(bert: Path) -> Evaluation:
    return evaluate(bert, RECIPES, [TASK, labels(), GEOMETRY])


@pytest.mark.parametrize("labelled", [TASK, labels(), clusters(), retrieval()], ids=lambda task: task.kind)
def test_every_kind_is_compared_on_the_same_units(labelled: LabeledTask, bert: Path) -> None:
    by_recipe = evaluate(bert, RECIPES, [labelled])
    evidence = np.array([result.evidence for (result,) in by_recipe.values()])
    assert evidence.shape == (3, labelled.evidence_size)
    for (result,), score in zip(by_recipe.values(), labelled.scores(evidence), strict=True):
        assert result.main_score == pytest.approx(score)
        scores = result.metrics[labelled.score_names[0]]
        assert scores["low"] <= result.main_score <= scores["high"]
    expected = compare([Scored(labelled, labelled.score_names[0], list(by_recipe), evidence)], "cls", "mean")
    assert by_recipe.compare("cls", "mean") == by_recipe.comparisons()[0] == expected
    assert [c.first for c in by_recipe.comparisons()] == ["cls", "first-last | zscore"]
    assert by_recipe.comparisons("cls")[0].second == "cls"
    together = Evaluation({"unchanged": next(iter(evaluate(bert, [], [labelled]).values())), **by_recipe}, [labelled])
    assert [(c.first, c.second) for c in together.comparisons()][1] == ("cls", "unchanged")


def test_of_several_tasks_the_mean_is_compared(bert: Path) -> None:
    second = PairTask("second", tuple(pair._replace(score=float(n % 4)) for n, pair in enumerate(TASK.pairs)))
    by_recipe = evaluate(bert, RECIPES, [TASK, second])
    both = [by_recipe.compare("cls", "mean", name) for name in ("tiny", "second")]
    mean = by_recipe.compare("cls", "mean")
    assert mean.difference == pytest.approx(np.mean([c.difference for c in both]))
    assert (mean.criterion, 0 < mean.p <= 1) == ("mean of the data sets", True)
    assert by_recipe.compare("cls", "layers=L", "tiny").criterion == "spearman"


def test_compare_refusals(by_recipe: Evaluation, bert: Path) -> None:
    assert by_recipe.compared == ["tiny", "l"]
    for arguments, score, message in (
        (("cls", "mean"), "", r"different scores.*tiny \(spearman\), l \(accuracy\)"),
        (("cls", "maen", "tiny"), "", "no results for 'maen'. Did you mean 'mean'"),
        (("cls", "mean", "tinny"), "", "compare on 'tinny': no such task. Did you mean 'tiny'"),
        (("cls", "mean", "geometry"), "", "compare on 'geometry': no such task"),
        (("cls", "mean", "l"), "spearman", "by 'spearman' on l. Its scores: accuracy, f1"),
    ):
        with pytest.raises(InputError, match=message):
            by_recipe.compare(*arguments, score=score)
    assert by_recipe.compare("cls", "mean", "l", score="f1_macro").criterion == "f1_macro"
    with pytest.raises(InputError, match="these results have no labelled pairs"):
        evaluate(bert, RECIPES[:2], [GEOMETRY]).comparisons()
    with pytest.raises(InputError, match="no results to compare"):
        Evaluation().comparisons()


def test_evidence_stays_in_memory(bert: Path, tmp_path: Path) -> None:
    by_recipe = evaluate(bert, RECIPES[:2], [TASK])
    save_results(by_recipe["mean"], tmp_path / "results.json")
    stale = Evaluation({**by_recipe, "mean": load_results(tmp_path / "results.json")}, by_recipe.tasks)
    with pytest.raises(InputError, match="contain no evidence to compare"):
        stale.comparisons()
    assert copy.deepcopy(by_recipe).comparisons() == by_recipe.comparisons()
    (mean,), (cls,) = by_recipe.values()
    noted = {"mean": [replace(mean, notes=("all", "one", "one"))], "cls": [replace(cls, notes=("all",))]}
    assert Evaluation(noted).notes() == [f"{mean.task}: all", f"{mean.task}: one (mean)"]


def test_the_frame(bert: Path) -> None:
    tasks = [labels(), clusters(), TASK]
    by_recipe = evaluate(bert, RECIPES, tasks)
    frame = by_recipe.frame()
    assert list(frame.columns) == ["model", "recipe", "task", "metric", "score", "low", "high", "main", "n"]
    table = frame[frame.main].pivot(index="recipe", columns="task", values="score")
    for recipe, results in by_recipe.items():
        assert list(table.loc[recipe, [own.name for own in tasks]]) == [result.main_score for result in results]
    accuracies = frame[(frame.metric == "accuracy") & (frame.task == labels().name)]
    assert list(accuracies.recipe) == list(by_recipe)
    assert (accuracies.low <= accuracies.score).all()
    assert len(Evaluation().frame()) == 0


def test_comparisons_in_words(by_recipe: Evaluation) -> None:
    lines = list(by_recipe.summary())
    heads = [line for line in lines if line.startswith("Compared")]
    assert [line.split(":")[0] for line in heads] == [f"Compared with mean on {name}" for name in ("tiny", "l")]
    assert len(lines) == 2 * (1 + len(RECIPES) - 1)
    assert lines[1] == f"  {by_recipe.comparisons(task=TASK.name)[0].summary()}"
    alone = Evaluation(by_recipe, [labels()])
    assert "difference of f1_macro ×100" in next(iter(alone.summary("f1_macro")))
    assert next(iter(alone.summary("pearson"))) == next(iter(alone.summary()))  # it is not a score of this task
    for without in (Evaluation({"mean": by_recipe["mean"]}, [TASK]), Evaluation(by_recipe, [])):
        assert not list(without.summary())


def test_models_are_compared(bert: Path, shell_of: Callable[[str], SentenceTransformer], tmp_path: Path) -> None:
    other = tmp_path / "other"
    Encoder(bert, "cls").save(str(other))
    both = evaluate([bert, other, str(bert)], [], [TASK])
    names = list(both)
    assert names == [f"{folder.parent.name}/{folder.name}" for folder in (bert, other)]
    (comparison,) = both.comparisons()
    assert comparison == replace(
        evaluate(bert, ["mean", "cls"], [TASK]).compare("cls", "mean"), first=names[1], second=names[0]
    )
    lines = str(both).splitlines()
    assert lines[:2] == list(both.summary())
    assert lines[1] == f"  {comparison.summary()}"
    score = max(result.main_score for (result,) in both.values())
    assert f"{score:.2f}" in "".join(lines[2:])
    assert repr(both).startswith("<Evaluation: 2 rows on tiny; highest: ")
    assert repr(both).endswith(f" {score:.2f}>")
    frame = both.frame()
    main = frame[frame.main]
    assert list(main.model) == names
    assert list(main.score) == [result.main_score for (result,) in both.values()]
    assert list(zip(main.task, main.n, strict=True)) == [("tiny", len(TASK))] * 2
    loaded = evaluate([shell_of("bert"), shell_of("distilbert"), bert], ["mean", "cls"], [TASK])
    assert list(loaded)[1:3] == ["SentenceTransformer 1 · cls", "SentenceTransformer 2 · mean"]
    assert loaded["SentenceTransformer 1 · cls"][0].main_score == loaded[f"{names[0]} · cls"][0].main_score


def test_models_that_cannot_be_compared(bert: Path) -> None:
    with pytest.raises(InputError, match=r"No models: evaluate needs at least one"):
        evaluate([], ["mean"], [TASK])
    with pytest.raises(ModelError, match="no-such-folder"):
        evaluate([bert, "./no-such-folder"], ["mean"], [TASK], report=lambda *_: pytest.fail("a model ran"))


def test_one_line(bert: Path) -> None:
    assert repr(Evaluation()) == "<Evaluation: 0 rows on no task>"
    tasks = [TASK, *(replace(TASK, name=f"t{number}") for number in range(3))]
    several = evaluate(bert, ["mean"], tasks)
    assert repr(several) == f"<Evaluation: 1 row on 4 tasks; highest: mean {several['mean'][0].main_score:.2f}>"
    assert repr(evaluate(bert, ["mean"], [TASK, labels()])) == "<Evaluation: 1 row on tiny, l>"


def test_recipes_of_a_first_look(bert: Path, tmp_path: Path) -> None:
    assert "first-last-idf-zscore" in default_recipes(bert)
    assert default_recipes("no/model-of-the-hub") == default_recipes(bert)
    Encoder(bert, "mean").save(str(tmp_path / "saved"))
    assert default_recipes(tmp_path / "saved") == []
    (tmp_path / "vectors.txt").write_text("word 1 2\n", encoding="utf-8")
    assert all(recipe.startswith("static") for recipe in default_recipes(str(tmp_path / "vectors.txt")))
