"""Scores of every kind against scikit-learn or the formula, of all units, of draws, and of parts; comparisons."""

import tracemalloc
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import average_precision_score, f1_score, ndcg_score, v_measure_score

from essent.errors import DataError
from essent.tasks.base import LabeledTask
from essent.tasks.comparison import Comparison, Scored, bootstrap, compare, compare_each, scores_of_parts
from essent.tasks.examples import Example
from essent.tasks.labels import LabelTask
from essent.tasks.locate import as_task
from essent.tasks.pairs import DuplicateTask, PairTask, TripletTask
from essent.tasks.retrieval import RetrievalTask, nearest
from selection_samples import clusters, duplicates, triplets

COUNT = 40


def task_of(gold: np.ndarray) -> PairTask:
    return PairTask("pairs", tuple((f"a{n}", f"b{n}", float(score)) for n, score in enumerate(gold)))  # type: ignore[arg-type]


def labels() -> LabelTask:
    return LabelTask("l", tuple(Example((f"t{n}",), "abc"[n % 3]) for n in range(COUNT)), folds=3)


def retrieval() -> RetrievalTask:
    queries = {f"q{n}": f"query {n}" for n in range(COUNT)}
    corpus = {f"d{n}": f"document {n}" for n in range(2 * COUNT)}
    return RetrievalTask("r", queries, corpus, {f"q{n}": {f"d{n}": 2, f"d{n + 7}": 1} for n in range(COUNT)})


def vectors_of(task: LabeledTask, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(len(task.texts()), 6))


def evidence_of(task: LabeledTask) -> np.ndarray:
    """The evidence of three recipes."""
    return np.stack([task.evidence(vectors_of(task, seed), range(len(task.texts()))) for seed in range(3)])


@pytest.mark.parametrize(
    "task",
    [task_of(np.arange(COUNT) % 5), duplicates(), triplets(), labels(), clusters(), retrieval()],
    ids=lambda task: task.kind,
)
def test_evidence_gives_scores_of_all_of_draws_of_parts_and_comparisons(task: LabeledTask) -> None:
    """Counts of 0 and 1 are the score of a task with those units alone, where evidence is unit by unit."""
    evidence = evidence_of(task)
    assert evidence.shape == (3, task.evidence_size)
    whole = np.ones((1, task.units), bool)
    for name in task.score_names:
        scores = task.scores(evidence, name)
        for number in range(3):
            metrics = task.score_vectors(vectors_of(task, number)).metrics[name]
            assert scores[number] == pytest.approx(metrics.get("all", metrics.get("mean")), abs=1e-9), name
        np.testing.assert_allclose(scores_of_parts(task, evidence, whole, name)[:, 0], scores)
        if name != "spearman":  # whose ranks are the same too, but for the ties that every pair has with itself
            np.testing.assert_allclose(task.scorer(evidence, name)(2.0 * whole)[:, 0], scores, atol=1e-9)
        scored = Scored(task, name, ("first", "copy", "other"), evidence[[0, 0, 2]])
        identical, different = compare_each([scored], [("first", "copy"), ("first", "other")])
        assert (identical.p, 0 < different.p <= 1) == (1, True)
    part = np.arange(task.units) % 4 > 0
    if isinstance(task, (PairTask, DuplicateTask, TripletTask, RetrievalTask)):
        alone = task.without(~part).scores(evidence.reshape(3, -1, task.units)[:, :, part].reshape(3, -1))
        np.testing.assert_allclose(scores_of_parts(task, evidence, part[None])[:, 0], alone, atol=1e-9)
    score, resampled = task.scores(evidence), bootstrap(task, evidence, resamples=200)
    np.testing.assert_array_equal(resampled, bootstrap(task, evidence, resamples=200))
    assert (np.quantile(resampled, 0.001, axis=1) <= score + 1e-9).all()
    assert (score <= np.quantile(resampled, 0.999, axis=1) + 1e-9).all()
    assert bootstrap(task, evidence, resamples=50, among=np.arange(task.units // 2)).shape == (3, 50)


def test_against_scikit_learn() -> None:
    task, evidence = duplicates(), evidence_of(duplicates()).round(1)  # ties
    expected = [100 * average_precision_score([pair[2] for pair in task.pairs], row) for row in evidence]
    np.testing.assert_allclose(task.scores(evidence), expected)
    probe, predictions = labels(), evidence_of(labels())
    predicted = np.array(["a", "b", "c"])[predictions.astype(int)]
    expected = [100 * f1_score([e.target for e in probe.examples], row, average="macro") for row in predicted]
    np.testing.assert_allclose(probe.scores(predictions, "f1_macro"), expected)
    grouped, rows = clusters(), evidence_of(clusters())
    runs = [[v_measure_score([e.target for e in grouped.examples], run) for run in row.reshape(2, -1)] for row in rows]
    np.testing.assert_allclose(grouped.scores(rows, "v_measure"), 100 * np.mean(runs, axis=1))


def test_retrieval_against_the_formula(monkeypatch: pytest.MonkeyPatch) -> None:
    task = retrieval()
    vectors, rows = vectors_of(task), np.arange(3 * COUNT)
    result = task.score_vectors(vectors)
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    cosines = unit[:COUNT] @ unit[COUNT:].T
    grades = 2 * np.eye(COUNT, 2 * COUNT) + np.eye(COUNT, 2 * COUNT, 7)
    ranked = np.take_along_axis(grades, np.argsort(-cosines, axis=1), axis=1)[:, :10] > 0
    first = np.where(ranked.any(axis=1), 1 / (1 + ranked.argmax(axis=1)), 0)
    gain = 100 * ndcg_score(grades, cosines, k=10)  # linear gains, as trec_eval has them
    expected = {"ndcg@10": gain, "mrr@10": 100 * first.mean(), "recall@10": 100 * ranked.sum() / (2 * COUNT)}
    assert {name: result.metrics[name]["all"] for name in expected} == pytest.approx(expected, abs=1e-4)
    assert result.metrics["ndcg@10"]["low"] < gain < result.metrics["ndcg@10"]["high"]
    monkeypatch.setattr("essent.tasks.retrieval.BLOCK", 500)
    np.testing.assert_array_equal(task.evidence(vectors, rows), result.evidence)


def test_nearest_orders_anisotropic_vectors() -> None:
    """An anisotropic model: float32 products of the vectors themselves would rank their own rounding."""
    rng = np.random.default_rng(0)
    vectors = np.ones(64) + 1e-4 * rng.normal(size=(300, 64))
    units = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    apart = np.linalg.norm(units[:20, None] - units[20:], axis=2)
    rows = np.arange(len(units))
    distances = np.take_along_axis(apart, nearest(units, rows[:20], rows[20:], 210)[:, :10], axis=1)
    np.testing.assert_allclose(distances, np.sort(apart, axis=1)[:, :10], atol=1e-6)


MANY = {f"d{n}": f"document {n}" for n in range(6000)}


@pytest.mark.parametrize(
    "task",
    [
        RetrievalTask("r", {"q": "query"}, MANY, {"q": {"d7": 1}}),
        LabelTask("l", tuple(Example((text,), text[-1:]) for text in MANY.values()), folds=2, strengths=(1e-3,)),
    ],
    ids=lambda task: task.kind,
)
def test_evidence_takes_no_copies_in_float64(task: LabeledTask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("essent.tasks.retrieval.BLOCK", 2**14)
    monkeypatch.setattr("essent.tasks.probes.ROWS", 64)
    vectors = np.random.default_rng(0).normal(size=(len(task.texts()), 200)).astype(np.float32)
    tracemalloc.start()
    task.evidence(vectors, range(len(vectors)))
    _, peak = tracemalloc.get_traced_memory()  # NumPy's, and not torch's
    tracemalloc.stop()
    assert peak < 3 * vectors.nbytes
    assert task.working_bytes(200) > vectors.nbytes


@pytest.mark.parametrize(
    ("query_prompt", "prompts", "first", "last"),
    [
        ("query: ", {"document": "to: ", "query": "x: "}, "query: query 0", "to: document 79"),
        (None, {"query": "ask: ", "document": ""}, "ask: query 0", "document 79"),
        (None, {"default": "default: "}, "default: query 0", "default: document 79"),
    ],
)
def test_prompts_for_queries_and_documents(query_prompt: str | None, prompts: dict, first: str, last: str) -> None:
    encoded: list[str] = []

    def encode(texts: list[str], prompt: str) -> np.ndarray:
        assert prompt == ""
        encoded.extend(texts)
        return np.eye(len(texts))

    task = replace(retrieval(), query_prompt=query_prompt)
    task.run(SimpleNamespace(encode=encode, prompts=prompts, default_prompt_name="default"))
    assert (encoded[0], encoded[-1]) == (first, last)


def test_duplicate_threshold_and_triplet_ties() -> None:
    triplet = TripletTask("t", (("a", "b", "b"), ("a", "b", "c")))
    assert triplet.run(lambda texts: [[1, 0], [1, 1], [0, 1]]).main_score == 75
    task = DuplicateTask("d", (("a", "a", True), ("b", "b", True), ("a", "b", False), ("b", "a", False)))
    result = task.run(lambda texts: np.eye(2))
    assert 0 < result.provenance["threshold"] <= 1
    assert result.main_score == result.metrics["f1"]["all"] == result.metrics["accuracy"]["all"] == 100


def test_for_choice_leaves_the_test_part_out() -> None:
    train, dev, test = (
        tuple(Example((f"{part} {n}",), "ab"[n % 2], part) for n in range(20)) for part in ("train", "dev", "test")
    )
    chosen = LabelTask("l", train + dev + test).for_choice()
    assert chosen.for_choice() is chosen
    assert (chosen.items(), len(chosen.read_items())) == ([example.texts for example in dev], 40)
    assert chosen.notes[-1].endswith("scored on the dev part; `essent evaluate` scores the test part.")
    without_dev = LabelTask("l", train + test).for_choice()
    assert (without_dev.folds, without_dev.nested, len(without_dev)) == (5, False, 20)
    assert "on the train part, by logistic regression by 5-fold cross-validation" in without_dev.notes[-1]
    assert "by 3-fold cross-validation, its strength chosen on the same folds" in labels().for_choice().notes[0]
    assert len(LabelTask("l", train + test).without(np.arange(20) < 5).items()) == 15
    published = LabelTask("l", train + dev)  # as GLUE publishes them
    assert published.for_choice().items() == chosen.items()
    with pytest.raises(DataError, match="no test part to score"):
        published.score_vectors(np.zeros((40, 2)))


def test_equal_texts_share_a_fold() -> None:
    """Random labels cannot be learned by heart from a copy of the text."""
    rng = np.random.default_rng(0)
    examples = tuple(Example((f"t{n}",), "ab"[kind]) for n, kind in enumerate(rng.integers(0, 2, 60)))
    vectors = np.tile(rng.normal(size=(60, 128)), (2, 1))
    assert 25 < LabelTask("l", 2 * examples).for_choice().score_vectors(vectors).main_score < 75


@pytest.mark.parametrize(("count", "differing", "p"), [(17, 1, 2 * (16 / 17) ** 17), (5, 5, 2 / 2**5)])
def test_few_differing_units_are_not_significant(count: int, differing: int, p: float) -> None:
    task = TripletTask("t", tuple((f"a{n}", f"b{n}", f"c{n}") for n in range(count)))
    cosines = np.repeat([[1.0, 0.0], [1.0, 0.0]], count, axis=1)
    cosines[1, :differing] = -1
    comparison = compare([Scored(task, "accuracy", "ab", cosines)], "a", "b")
    assert comparison.p == pytest.approx(p, rel=0.1)
    assert not comparison.is_better
    assert "No significant difference between a and b" in comparison.summary()


def test_a_query_does_not_answer_itself() -> None:
    """Paraphrases both ways: each text is a query and a document, and nearest to itself."""
    rows = [{"query": a, "positive": b} for n in range(20) for a, b in ((f"a{n}", f"b{n}"), (f"b{n}", f"a{n}"))]
    task: Any = as_task(rows)
    vectors = [np.random.default_rng(int(text[1:])).normal(size=8) + 0.01 * (text[0] == "a") for text in task.texts()]
    assert task.score_vectors(vectors).main_score > 99
    assert replace(task, ignore_identical_ids=False).score_vectors(vectors).main_score < 80
    same = as_task([{"query": text, "positive": text} for text in "ab"])
    assert same.run(lambda texts: np.eye(2)[: len(texts)]).main_score == 100


def test_ids_may_be_numbers_and_queries_without_documents_are_excluded() -> None:
    task = RetrievalTask("r", {1: "q", 2: "p"}, {1: "a", 2: "b"}, {1: {2: np.int64(1)}})  # type: ignore[dict-item]
    assert (list(task.queries), task.notes) == (["1"], ("1 queries without a relevant document are excluded.",))
    assert task.run(lambda texts: np.eye(3)[: len(texts)]).main_score > 0


# -- comparisons: intervals and p values against scipy; a recipe does not differ from itself --------------------------


def compared(gold: np.ndarray, first: np.ndarray, second: np.ndarray) -> Comparison:
    scored = Scored(task_of(gold), "spearman", ("a", "b"), np.stack([first, second]))
    return compare([scored], "a", "b")


def sample(pairs: int = 120, ties: bool = False) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(1)
    gold = generator.integers(0, 6, pairs).astype(np.float64)
    rows = gold + generator.normal(size=(3, pairs)) * np.array([[0.5], [1.0], [4.0]])
    return (rows.round() if ties else rows).astype(np.float32), gold


@pytest.mark.parametrize("ties", [False, True])
def test_scores_and_draws_are_scipys(ties: bool) -> None:
    rows, gold = sample(30, ties)
    task = task_of(gold)
    drawn = [np.arange(30), *np.random.default_rng(5).integers(30, size=(20, 30))]
    scores = [task.scores(rows), *bootstrap(task, rows, resamples=20, seed=5).T]
    expected = [[100 * stats.spearmanr(row[pairs], gold[pairs]).statistic for row in rows] for pairs in drawn]
    np.testing.assert_allclose(scores, expected, atol=1e-9)


def test_clear_no_and_undefined_differences() -> None:
    rows, gold = sample()
    same_ranks = compared(gold, rows[0], np.exp(rows[0].astype(np.float64)))
    assert (same_ranks.difference, same_ranks.low, same_ranks.high, same_ranks.p) == (0, 0, 0, 1)
    clear = compared(gold, rows[0], rows[2])
    assert clear.is_better
    assert clear.p < 0.01
    assert clear.summary().startswith("a is better than b by +")
    assert compared(gold, rows[2], rows[0]).summary().startswith("a is worse than b by -")
    undefined = compared(gold, np.ones_like(gold), rows[1])
    assert np.isnan(undefined.p)
    assert "cannot be compared: a score is undefined" in undefined.summary()
    assert np.isnan(task_of(gold[:1]).scores(rows[:, :1])).all()


def test_p_agrees_with_the_interval_and_is_uniform_without_a_difference() -> None:
    comparisons = []
    for seed in range(100):
        generator = np.random.default_rng(seed)
        gold = generator.normal(size=50)
        comparisons.append(compared(gold, *(gold + generator.normal(size=(2, 50)))))
    p_values = [comparison.p for comparison in comparisons]
    assert stats.kstest(p_values, "uniform").pvalue > 0.01
    for comparison in comparisons:
        if not 0.045 < comparison.p < 0.055:  # where an end of the interval is between two draws
            assert (comparison.p < 0.05) == (comparison.low > 0 or comparison.high < 0)
