"""What `evaluate` gives can be compared recipe by recipe, on every kind of judgement, and becomes a frame."""

import copy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from essent import Encoder
from essent.errors import InputError, ModelError
from essent.selection.evaluation import default_recipes, evaluate
from essent.selection.results import Evaluation
from essent.tasks.base import LabeledTask
from essent.tasks.comparison import Scored, compare
from essent.tasks.examples import Pair
from essent.tasks.geometry import GeometryTask
from essent.tasks.pairs import PairTask
from families import CORPUS
from selection_samples import TASK, Shells, clusters, labels, retrieval

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


def test_of_several_tasks_the_mean_is_compared(bert: Path) -> None:
    second = PairTask("second", tuple(pair._replace(score=float(n % 4)) for n, pair in enumerate(TASK.pairs)))
    by_recipe = evaluate(bert, RECIPES, [TASK, second])
    differences = [by_recipe.compare("cls", "mean", name).difference for name in ("tiny", "second")]
    mean = by_recipe.compare("cls", "mean")
    assert mean.difference == pytest.approx(np.mean(differences))
    assert (mean.criterion, 0 < mean.p <= 1) == ("mean of the data sets", True)
    assert by_recipe.compare("cls", "layers=L", "tiny").criterion == "spearman"


def test_compare_refusals(by_recipe: Evaluation, bert: Path) -> None:
    assert by_recipe.compared == ["tiny", "l"]
    for arguments, score, message in (
        (("cls", "mean"), "", r"different scores.*tiny \(spearman\), l \(accuracy\)"),
        (("cls", "maen", "tiny"), "", "no results for 'maen'. Did you mean 'mean'"),
        (("cls", "mean", "tinny"), "", "compare on 'tinny': no such task. Did you mean 'tiny'"),
        (("cls", "mean", "l"), "spearman", "by 'spearman' on l. Its scores: accuracy, f1"),
    ):
        with pytest.raises(InputError, match=message):
            by_recipe.compare(*arguments, score=score)
    assert by_recipe.compare("cls", "mean", "l", score="f1_macro").criterion == "f1_macro"
    with pytest.raises(InputError, match="these results have no labelled pairs"):
        evaluate(bert, RECIPES[:2], [GEOMETRY]).comparisons()
    with pytest.raises(InputError, match="no results to compare"):
        Evaluation().comparisons()


def test_notes_are_told_once(by_recipe: Evaluation) -> None:
    assert copy.deepcopy(by_recipe).comparisons(task="tiny") == by_recipe.comparisons(task="tiny")
    mean, cls = by_recipe["mean"][0], by_recipe["cls"][0]
    noted = {"mean": [replace(mean, notes=("all", "one", "one"))], "cls": [replace(cls, notes=("all",))]}
    assert Evaluation(noted).notes() == ["tiny: all", "tiny: one (mean)"]


def test_the_frame(by_recipe: Evaluation) -> None:
    frame = by_recipe.frame()
    assert list(frame.columns) == ["model", "recipe", "task", "metric", "score", "low", "high", "main", "n"]
    accuracies = frame.query("metric == 'accuracy' and main")
    assert list(accuracies.recipe) == list(by_recipe)
    assert list(accuracies.score) == [results[1].main_score for results in by_recipe.values()]
    assert (accuracies.low <= accuracies.score).all()
    assert set(accuracies.n) == {30}
    assert len(Evaluation().frame()) == 0


def test_comparisons_in_words(by_recipe: Evaluation) -> None:
    lines = list(by_recipe.summary())
    assert [line.split(":")[0] for line in lines[::3]] == [f"Compared with mean on {name}" for name in ("tiny", "l")]
    assert lines[1] == f"  {by_recipe.comparisons(task=TASK.name)[0].summary()}"
    for without in (Evaluation({"mean": by_recipe["mean"]}, [TASK]), Evaluation(by_recipe, [])):
        assert not list(without.summary())


def test_models_are_compared(bert: Path, shell_of: Shells, tmp_path: Path) -> None:
    other = tmp_path / "other"
    Encoder(bert, "cls").save(str(other))
    both = evaluate([bert, other, str(bert)], [], [TASK])
    names = list(both)
    assert names == [f"{folder.parent.name}/{folder.name}" for folder in (bert, other)]
    (comparison,) = both.comparisons()
    assert replace(comparison, first="cls", second="mean") == evaluate(bert, RECIPES, [TASK]).compare("cls", "mean")
    lines = str(both).splitlines()
    assert lines[:2] == [next(both.summary()), f"  {comparison.summary()}"]
    assert all(f"{result.main_score:.2f}" in "".join(lines[2:]) for (result,) in both.values())
    assert repr(both) == "<Evaluation: 2 rows on tiny>"
    assert list(both.frame().query("main").model) == names
    loaded = evaluate([shell_of("bert"), shell_of("distilbert"), bert], ["mean", "cls"], [TASK])
    assert list(loaded)[1:3] == ["SentenceTransformer · cls", "SentenceTransformer 2 · mean"]
    assert loaded["SentenceTransformer · cls"][0].main_score == loaded[f"{names[0]} · cls"][0].main_score


def test_models_that_cannot_be_compared(bert: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match=r"No models: evaluate needs at least one"):
        evaluate([], ["mean"], [TASK])
    monkeypatch.setattr("essent.selection.evaluation.Bench", lambda *_, **__: pytest.fail("a model ran"))
    with pytest.raises(ModelError, match="no-such-folder"):
        evaluate([bert, "./no-such-folder"], ["mean"], [TASK])


def test_recipes_of_a_first_look(bert: Path, tmp_path: Path) -> None:
    assert "first-last-idf-zscore" in default_recipes(bert)
    assert default_recipes("no/model-of-the-hub") == default_recipes(bert)
    Encoder(bert, "mean").save(str(tmp_path / "saved"))
    assert default_recipes(tmp_path / "saved") == []
    (tmp_path / "vectors.txt").write_text("word 1 2\n", encoding="utf-8")
    assert all(recipe.startswith("static") for recipe in default_recipes(str(tmp_path / "vectors.txt")))
