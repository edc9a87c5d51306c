"""Searches on every kind of judgement: each score is that of `evaluate` with the recipe alone, on what may be read."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

from essent import Encoder
from essent.errors import InputError, UnknownNameError
from essent.recipe.recipe import Recipe
from essent.selection.evaluation import evaluate
from essent.selection.run import search
from essent.selection.space import Grid, Space
from essent.tasks.base import LabeledTask
from essent.tasks.clusters import ClusterTask
from essent.tasks.examples import Example
from essent.tasks.labels import LabelTask
from essent.tasks.pairs import DuplicateTask, TripletTask
from essent.tasks.retrieval import RetrievalTask
from samples import daily
from waiting import wait_until

Shells = Callable[[str], SentenceTransformer]
WORDS = "cats dogs rain hills music bread winter trains".split()
SPACE = Space(
    (Grid(layers=("static", "L"), weights=("uniform", "idf", "ditto:2-1"), shaping=("", "zscore | normalize")),),
    ("random", "reduce=max"),
)


def text(number: int, kind: str = "about") -> str:
    return f"A line {kind} {WORDS[number % 8]} and {WORDS[number * 5 % 7]} with {number} words."


def pairs(count: int = 40) -> DuplicateTask:
    return DuplicateTask("d", tuple((text(n), text(n + n % 3, "of"), n % 3 == 0) for n in range(count)))


def triplets() -> TripletTask:
    return TripletTask("t", tuple((text(n), text(n, "of"), text(n + 3)) for n in range(40)))


def labels() -> LabelTask:
    parts = ("train",) * 3 + ("test",)
    return LabelTask("l", tuple(Example((text(n),), WORDS[n % 3], parts[n % 4]) for n in range(120)), shots=(2,))


def clusters() -> ClusterTask:
    return ClusterTask("c", tuple(Example((text(n),), WORDS[n % 4]) for n in range(60)), seeds=(0, 1), starts=2)


def retrieval() -> RetrievalTask:
    queries, corpus = {f"q{n}": text(n) for n in range(30)}, {f"d{n}": text(n, "of") for n in range(50)}
    return RetrievalTask("r", queries, corpus, {f"q{n}": {f"d{n}": 1} for n in range(30)}, query_prompt="query: ")


KINDS = [pairs, triplets, labels, clusters, retrieval]


@pytest.mark.parametrize(
    ("make_task", "family"),
    [
        pytest.param(make_task, family, marks=() if family == "bert" or make_task is triplets else pytest.mark.slow)
        for make_task in KINDS
        for family in ("bert", "gpt2")
    ],
)
def test_scores_match_single_encoders(
    make_task: Callable[[], LabeledTask], family: str, shell_of: Shells, tmp_path: Path
) -> None:
    task = make_task()
    board = search(shell_of(family), task, SPACE, top=3, work=tmp_path / "work", memory=1e-3)
    chosen = task.for_choice()
    assert board.criterion == chosen.score_names[0]
    assert board.provenance["passes"] == 1
    assert board.provenance["units"] == chosen.units
    alone = evaluate(shell_of(family), [t.recipe for t in board.trials], [chosen])
    for trial in board.trials:
        # a probe stops within a tolerance of its objective, and pairs may change places by rounding
        near = 100 / chosen.units + 1e-6
        expected = alone[str(trial.recipe)][0].main_score
        assert trial.scores[board.criterion] == pytest.approx(expected, abs=near), str(trial.recipe)
    assert all(low <= high for low, high in (t.interval for t in board.trials[:3] if t.interval))
    again = search(shell_of(family), task, SPACE, top=3, work=tmp_path / "work", memory=1e-3)
    assert (again.provenance["encoded"], [t.scores for t in again.trials]) == (0, [t.scores for t in board.trials])
    assert again.verdict == board.verdict
    assert f"Measured by {board.criterion}, by cross-validation" in board.verdict


def test_a_test_part_is_not_read_and_decides(shell_of: Shells, monkeypatch: pytest.MonkeyPatch) -> None:
    task, sizes = labels(), []
    real = LabelTask.evidence

    def watched(self: LabelTask, vectors: np.ndarray, rows: Any) -> np.ndarray:
        sizes.append((self.units, len(self.texts())))
        return real(self, vectors, rows)

    monkeypatch.setattr(LabelTask, "evidence", watched)
    board = search(shell_of("bert"), task, Space(named=("mean", "ditto:2-1")), test=[task])
    assert set(sizes[:2]) == {(90, 90)}
    (check,) = board.checks
    assert (check.units, check.unit, check.score, check.left_out, check.shared_texts) == (30, "texts", "accuracy", 0, 0)
    alone = evaluate(shell_of("bert"), ["mean"], [task])["mean"][0]
    assert check.scores["mean"][0] == pytest.approx(alone.main_score)
    assert "On the test (l)" in board.verdict


@pytest.mark.parametrize("score", ["f1_macro", "accuracy@2"])
def test_another_score_ranks(score: str, shell_of: Shells) -> None:
    space = Space(named=("mean", "static", "random"))
    board = search(shell_of("bert"), labels(), space, criterion=(score, "accuracy"), test=[labels()])
    assert board.criterion == board.checks[0].score == score
    assert list(board.trials[0].scores) == [score, "accuracy"]
    task = labels().for_choice().scored_by(score)
    alone = evaluate(shell_of("bert"), ["static"], [task])["static"][0]
    assert board.find("static").scores[score] == pytest.approx(alone.metrics[score]["all"], abs=1.2)


def test_v_measure_and_a_criterion_without_labels_beside_classes(shell_of: Shells) -> None:
    board = search(shell_of("bert"), clusters(), SPACE, criterion=("v_measure", "teacher"), top=2)
    assert list(board.trials[0].scores) == ["v_measure", "teacher"]
    assert all(np.isnan(c.p) for c in board.comparisons)
    free = search(shell_of("bert"), clusters().texts(), SPACE, criterion="teacher", top=2)
    for trial in free.trials:
        assert board.find(trial.recipe).scores["teacher"] == pytest.approx(trial.scores["teacher"], abs=1e-6)


def test_rare_duplicates_have_a_verdict(shell_of: Shells) -> None:
    rare = DuplicateTask("rare", tuple((text(n), text(n + n % 9, "of"), n % 9 == 0) for n in range(72)))
    board = search(shell_of("bert"), rare, Space(named=("mean", "static", "random")))
    assert all(np.isfinite(c.low) for c in board.held_out)


def test_training_texts_are_excluded(shell_of: Shells) -> None:
    rows = [Example((text(n),), WORDS[n % 2], "train" if n < 40 else "dev") for n in range(60)]
    data = LabelTask("l", tuple(rows))
    learned = [e._replace(part="test") for e in rows[:10]]
    new = [Example((text(n, "of"),), WORDS[n % 2], "test") for n in range(10)]
    train = [Example((text(n, "for"),), WORDS[n % 2], "train") for n in range(30)]
    board = search(shell_of("bert"), data, Space(named=("mean",)), test=[LabelTask("t", (*train, *learned, *new))])
    assert (board.checks[0].units, board.checks[0].left_out) == (10, 10)


def test_several_data_sets_by_the_mean_of_the_ranks(shell_of: Shells) -> None:
    space = Space(named=("mean", "static", "random", "ditto:2-1", "first-last"))
    tasks = [pairs(), labels(), retrieval()]
    board = search(shell_of("bert"), tasks, space, weights=[2, 1, 1])
    single = [search(shell_of("bert"), task, space) for task in tasks]
    assert board.criterion == "mean rank"
    ranks = []
    for task, task_board in zip(tasks, single, strict=True):
        scores = np.array([task_board.find(trial.recipe).scores[task_board.criterion] for trial in board.trials])
        assert [t.scores[task.name] for t in board.trials] == pytest.approx(scores.tolist(), abs=1e-6)
        ranks.append([(np.sum(scores < score) + (np.sum(scores == score) + 1) / 2) / len(scores) for score in scores])
    expected = np.average(ranks, axis=0, weights=[2, 1, 1])
    np.testing.assert_allclose([t.scores["mean rank"] for t in board.trials], expected)
    lead = board.comparisons[0]
    both = [
        task_board.find(lead.first).scores[task_board.criterion]
        - task_board.find(lead.second).scores[task_board.criterion]
        for task_board in single
    ]
    assert lead.difference == pytest.approx(np.average(both, weights=[2, 1, 1]), abs=1e-6)
    assert lead.criterion == "mean of the data sets"
    encoder = board.encoder(anyway=True)
    assert encoder.recipe == board.leader


def test_bad_questions_are_refused_before_the_model_is_loaded(bert: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("essent.selection.run.load", lambda *_: pytest.fail("the model was loaded"))
    model = str(bert)
    for arguments, message in (
        (
            {"data": labels(), "criterion": "spearman"},
            "does not go with l. It has classification, which is scored by acc",
        ),
        ({"data": labels(), "criterion": "acuracy"}, r"Unknown criterion 'acuracy'\. Did you mean 'accuracy'"),
        ({"data": [pairs(), labels()], "weights": [1]}, "1 weights for 2 data sets"),
        ({"data": [pairs(), labels()], "weights": [1, 0]}, "must be positive"),
        ({"data": [pairs(), pairs()]}, "have one name"),
        ({"data": [pairs(), labels()], "criterion": "teacher"}, "criteria without labels take one data set"),
    ):
        with pytest.raises((InputError, UnknownNameError), match=message):
            search(model, space=SPACE, **arguments)


def test_a_saved_encoder_learns_from_prompted_queries(shell_of: Shells) -> None:
    shell = shell_of("bert")
    board = search(shell, retrieval(), Space(named=("mean weights=idf | zscore",)))
    encoder = board.encoder(anyway=True)
    texts = retrieval().texts_for({})
    assert texts[0].startswith("query: ")
    again = Encoder(shell, encoder.recipe).fit(texts)
    np.testing.assert_allclose(encoder.encode(texts[:3]), again.encode(texts[:3]), atol=1e-6)
    assert retrieval().run(encoder).main_score == pytest.approx(board.find(encoder.recipe).scores["ndcg@10"], abs=3.4)


def test_leaked_units_are_excluded(shell_of: Shells) -> None:
    task = retrieval()
    more = replace(
        task, queries={**task.queries, "q99": "a new question"}, relevant={**task.relevant, "q99": {"d1": 1}}
    )
    board = search(shell_of("bert"), task, Space(named=("mean",)), test=[replace(more, name="more")])
    assert (board.checks[0].units, board.checks[0].left_out, board.checks[0].unit) == (1, 30, "queries")
    with pytest.raises(InputError, match="all of its 30 queries are in the data of the choice"):
        search(shell_of("bert"), task, Space(named=("mean",)), test=[task])


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


def test_parallel_evidence_fits_the_memory(shell_of: Shells, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("essent.selection.sweep.cores", lambda: 3)
    base = retrieval()
    for memory, most in ((0.01, 1), (4.0, 3)):
        task = Watched(base.name, base.queries, base.corpus, base.relevant, awaited=most)
        search(shell_of("bert"), task, SPACE, memory=memory)
        assert max(task.together) == most


@pytest.mark.parametrize("make_task", daily([pairs, labels], pairs))
def test_the_number_of_cores_changes_nothing(
    make_task: Callable[[], LabeledTask], shell_of: Shells, monkeypatch: pytest.MonkeyPatch
) -> None:
    boards = []
    for count in (1, 5):
        monkeypatch.setattr("essent.selection.sweep.cores", lambda count=count: count)
        boards.append(search(shell_of("bert"), make_task(), SPACE, top=3, baselines=()))
    serial, parallel = ({str(trial.recipe): trial.scores for trial in board.trials} for board in boards)
    assert serial == parallel


def test_the_disk_must_have_room(shell_of: Shells, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=1000))
    with pytest.raises(InputError, match=r"need 0\.\d+ GiB .* free"):
        search(shell_of("bert"), labels(), SPACE)
    assert search(shell_of("bert"), pairs(), Space(named=("mean",))).find(Recipe.parse("mean")).scores
