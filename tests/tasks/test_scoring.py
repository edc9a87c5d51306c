"""Judgements of any kind as scikit-learn's scorers: the score of `evaluate`, in a grid search and in its workers."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from essent import EncoderTransformer
from essent.errors import UnknownNameError
from essent.selection.evaluation import evaluate
from essent.tasks.base import LabeledTask
from essent.tasks.examples import Example
from essent.tasks.labels import LabelTask
from essent.tasks.locate import scorer
from essent.tasks.retrieval import RetrievalTask

WORDS = "cats dogs rain hills music bread winter trains".split()
RECIPES = ["mean", "weights=idf | zscore", "layers=1"]


def text(number: int, kind: str = "about") -> str:
    return f"A line {kind} {WORDS[number % 8]} and {WORDS[number * 5 % 7]} with {number} words."


def labels() -> LabelTask:
    return LabelTask("l", tuple(Example((text(n),), WORDS[n % 3], ("train", "test")[n % 4 == 3]) for n in range(60)))


def retrieval() -> RetrievalTask:
    queries, corpus = {f"q{n}": text(n) for n in range(20)}, {f"d{n}": text(n, "of") for n in range(30)}
    return RetrievalTask("r", queries, corpus, {f"q{n}": {f"d{n}": 1} for n in range(20)}, query_prompt="query: ")


@pytest.mark.parametrize("build", [labels, retrieval])
def test_a_grid_search_scores_as_an_evaluation(build: Callable[[], LabeledTask], bert: Path) -> None:
    scored = scorer(build())
    texts = scored.task.texts()
    assert isinstance(scored.task, RetrievalTask) or len(texts) == 45  # the test part is not read
    search = GridSearchCV(
        EncoderTransformer(str(bert)),
        {"recipe": RECIPES},
        scoring=scored,
        cv=[(range(len(texts)), range(len(texts)))],
        error_score="raise",
    ).fit(texts)
    alone = evaluate(str(bert), RECIPES, [build().for_choice()])
    expected = [alone[recipe][0].main_score for recipe in RECIPES]
    assert search.cv_results_["mean_test_score"] == pytest.approx(expected, abs=1e-3)
    assert search.best_params_["recipe"] == RECIPES[expected.index(max(expected))]


def test_another_score_of_a_file_and_of_a_pipeline(bert: Path, tmp_path: Path) -> None:
    file = tmp_path / "classes.jsonl"
    file.write_text("".join(json.dumps({"text": text(n), "label": n % 3}) + "\n" for n in range(60)))
    scored = pickle.loads(pickle.dumps(scorer(file, "f1_macro")))  # noqa: S301 — as worker processes get it
    steps = make_pipeline(EncoderTransformer(str(bert)), StandardScaler()).fit(scored.task.texts())
    macro = scored(steps)
    assert macro != scorer(file)(steps)
    assert 0 <= macro <= 100
    assert scorer(file, "accuracy@2").score == "accuracy@2"


def test_unscorable_tasks() -> None:
    with pytest.raises(UnknownNameError, match=r"l \(classification\) has no score 'spearman'\. Known: accuracy"):
        scorer(labels(), "spearman")
