"""Searches on every kind of labels: each score is that of `evaluate` with the recipe alone, on what may be read."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import rankdata
from sentence_transformers import SentenceTransformer

from essent import Encoder
from essent.recipe.recipe import Recipe
from essent.selection.evaluation import evaluate
from essent.selection.run import search
from essent.selection.space import Grid, Space
from essent.tasks.base import LabeledTask
from essent.tasks.labels import LabelTask
from essent.tasks.retrieval import RetrievalTask
from selection_samples import Shells, clusters, duplicates, labels, retrieval, triplets
from waiting import wait_until

SPACE = Space(
    (Grid(layers=("static", "L"), weights=("uniform", "idf", "ditto:2-1"), shaping=("", "zscore | normalize")),),
    ("random", "reduce=max"),
)


@pytest.mark.parametrize("family", ["bert", pytest.param("gpt2", marks=pytest.mark.slow)])
@pytest.mark.parametrize("make_task", [duplicates, triplets, labels, clusters, retrieval])
def test_scores_match_single_encoders(
    make_task: Callable[[], LabeledTask], family: str, shell_of: Shells, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = make_task()
    chosen, score = task.for_choice(), task.score_names[0]
    run = partial(search, shell_of(family), task, SPACE, top=3, memory=1e-3)
    monkeypatch.setattr("essent.selection.sweep.cores", lambda: 1)
    board, again = run(work=tmp_path / "work"), run(work=tmp_path / "work")
    assert (board.criterion, board.provenance["passes"], board.provenance["units"]) == (score, 1, chosen.units)
    assert f"Measured by {score}, by cross-validation" in board.verdict
    assert (again.provenance["encoded"], again.verdict) == (0, board.verdict)
    assert all(low <= high for low, high in (t.interval for t in board.trials[:3] if t.interval))
    alone = evaluate(shell_of(family), [t.recipe for t in board.trials], [chosen])
    for trial in board.trials:
        # a probe stops within a tolerance of its objective, and rounding may change the order of pairs
        expected = pytest.approx(alone[str(trial.recipe)][0].main_score, abs=100 / chosen.units + 1e-6)
        assert trial.scores[score] == expected, str(trial.recipe)
    monkeypatch.setattr("essent.selection.sweep.cores", lambda: 5)
    assert [trial.scores for trial in run().trials] == [trial.scores for trial in again.trials]


def test_a_test_part_is_not_read_and_decides_by_another_score(
    shell: SentenceTransformer, monkeypatch: pytest.MonkeyPatch
) -> None:
    task, space, sizes = labels(), Space(named=("mean", "static")), []
    real = LabelTask.evidence

    def watched(self: LabelTask, vectors: np.ndarray, rows: Any) -> np.ndarray:
        sizes.append((self.units, len(self.texts())))
        return real(self, vectors, rows)

    monkeypatch.setattr(LabelTask, "evidence", watched)
    board = search(shell, task, space, criterion=("f1_macro", "teacher"), test=[task])
    assert set(sizes[:2]) == {(90, 90)}
    (check,) = board.checks
    assert (check.units, check.unit, check.score, check.left_out) == (30, "texts", "f1_macro", 0)
    assert "On the test (l)" in board.verdict
    assert (board.criterion, list(board.trials[0].scores)) == ("f1_macro", ["f1_macro", "teacher"])
    for scored, score, tolerance in (
        (task.for_choice(), board.find("mean").scores["f1_macro"], 1.2),
        (task, check.scores["mean"][0], 1e-4),
    ):
        (alone,) = evaluate(shell, ["mean"], [scored])["mean"]
        assert score == pytest.approx(next(iter(alone.metrics["f1_macro"].values())), abs=tolerance)
    for trial in search(shell, task.for_choice().texts(), space).trials:
        assert board.find(trial.recipe).scores["teacher"] == pytest.approx(trial.scores["teacher"], abs=1e-6)


def test_several_data_sets_by_the_mean_of_the_ranks(shell: SentenceTransformer) -> None:
    space = Space(named=("mean", "static", "random", "ditto:2-1", "first-last"))
    tasks = [duplicates(), labels(), retrieval()]
    board = search(shell, tasks, space)
    recipes = [trial.recipe for trial in board.trials]
    scores = np.array([[trial.scores[task.name] for trial in board.trials] for task in tasks])
    for task, row in zip(tasks, scores, strict=True):
        alone = search(shell, task, space)
        assert [alone.find(recipe).scores[alone.criterion] for recipe in recipes] == pytest.approx(row, abs=1e-6)
    ranks = np.mean(rankdata(scores, axis=1) / len(recipes), axis=0)
    np.testing.assert_allclose([trial.scores["mean rank"] for trial in board.trials], ranks)
    comparison = board.comparisons[0]
    first, second = (scores[:, recipes.index(Recipe.parse(name))] for name in (comparison.first, comparison.second))
    assert comparison.difference == pytest.approx(np.mean(first - second), abs=1e-6)
    assert (board.criterion, comparison.criterion) == ("mean rank", "mean of the data sets")


def test_a_saved_encoder_learns_from_prompted_queries(shell: SentenceTransformer) -> None:
    board = search(shell, retrieval(), Space(named=("mean weights=idf | zscore",)))
    encoder = replace(board, kept=None).encoder()
    texts = retrieval().texts_for({})
    assert texts[0].startswith("query: ")
    again = Encoder(shell, encoder.recipe).fit(texts)
    np.testing.assert_allclose(encoder.encode(texts[:3]), again.encode(texts[:3]), atol=1e-6)
    assert retrieval().run(encoder).main_score == pytest.approx(board.find(encoder.recipe).scores["ndcg@10"], abs=3.4)


@dataclass(frozen=True)
class Watched(RetrievalTask):
    """Notes how many recipes are judged at the same time; the first ones wait until so many are."""

    awaited: int = 1
    together: list[int] = field(default_factory=list, compare=False, repr=False)
    running: list[int] = field(default_factory=list, compare=False, repr=False)

    def evidence(self, vectors: np.ndarray, rows: Sequence[int]) -> np.ndarray:
        self.running.append(1)
        self.together.append(len(self.running))
        wait_until(lambda: max(self.together) >= self.awaited)
        time.sleep(0.02)  # one more would come meanwhile
        evidence = super().evidence(vectors, rows)
        self.running.pop()
        return evidence


def test_parallel_evidence_fits_the_memory(shell: SentenceTransformer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("essent.selection.sweep.cores", lambda: 3)
    base = retrieval()
    for memory, most in ((0.01, 1), (4.0, 3)):
        task = Watched(base.name, base.queries, base.corpus, base.relevant, awaited=most)
        search(shell, task, SPACE, memory=memory)
        assert max(task.together) == most
