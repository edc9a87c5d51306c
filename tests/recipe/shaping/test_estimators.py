"""Steps and chains as scikit-learn's transformers: its own checks, pipelines, copies."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest
import sklearn
import sklearn.exceptions
from shaping_vectors import sentence_like
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import check_estimator

import essent.errors
from essent.errors import InputError, RecipeError
from essent.recipe.shaping.affine import PCA, AllButTheTop, Centre, EmbedFilter, Whiten, ZScore
from essent.recipe.shaping.base import Normalize, Shaper, shapers
from essent.recipe.shaping.chain import Chain
from essent.recipe.shaping.nonlinear import Flow, QuantileUniform
from samples import daily

VECTORS = sentence_like(60, 6)
SETTINGS = {
    "check_do_not_raise_errors_in_init_or_set_params": "settings are checked when they are given, as a recipe's must be"
}
STEPS: dict[str, tuple[Shaper | Chain, dict[str, str]]] = {
    "centre": (Centre(), {}),
    "zscore": (ZScore(), {}),
    "abtt": (AllButTheTop(1), SETTINGS),
    "whiten": (Whiten(), SETTINGS),
    "pca": (PCA(2), SETTINGS),
    "filter": (EmbedFilter(1), SETTINGS),
    "quantile": (QuantileUniform(50), SETTINGS),
    "normalize": (Normalize(), {}),
    "flow": (Flow(epochs=1, transforms=1, hidden=2), SETTINGS),
    "chain": (
        Chain([ZScore(), Whiten(), Normalize()]),
        {"check_estimators_overwrite_params": "the steps are fitted in place, as a Pipeline's are"},
    ),
}


@pytest.mark.parametrize("name", daily(STEPS, "zscore", "quantile", "chain"))
def test_scikit_learns_own_checks(name: str) -> None:
    step, expected = STEPS[name]
    results = check_estimator(clone(step), expected_failed_checks=expected, on_skip=None)
    assert len(results) > 30
    assert {result["check_name"] for result in results if result["status"] == "xfail"} == set(expected)
    assert set(STEPS) == {*shapers, "chain"}


def test_a_chain_in_grid_search_clone_and_pickle() -> None:
    labels = VECTORS[:, 0] > np.median(VECTORS[:, 0])
    pipeline = make_pipeline(Chain(), LogisticRegression())
    grid = {"chain__steps": [[ZScore()], [ZScore(), Whiten(np.int64(2))], [QuantileUniform(9), Normalize()]]}
    search = GridSearchCV(pipeline, grid, cv=2, error_score="raise").fit(VECTORS, labels)
    fitted = search.best_estimator_[0]
    assert fitted.is_fitted
    assert not clone(fitted).is_fitted
    again = pickle.loads(pickle.dumps(fitted))  # noqa: S301
    np.testing.assert_array_equal(again.transform(VECTORS), fitted.transform(VECTORS))
    by_hand = Chain([clone(step) for step in fitted.steps]).fit(VECTORS).transform(VECTORS)
    np.testing.assert_array_equal(fitted.fit_transform(VECTORS, labels), by_hand)  # the labels are not the moments
    assert repr(Chain([ZScore(), Whiten(2)])) == "Chain(steps=[ZScore(), Whiten(n_components=2)])"


def test_arrays_whatever_scikit_learns_global_output_is() -> None:
    expected = Whiten(2).fit_transform(VECTORS)
    with sklearn.config_context(transform_output="pandas"):
        np.testing.assert_array_equal(Chain([Whiten(2)]).fit_transform(VECTORS), expected)


@pytest.mark.parametrize("step", [ZScore(), QuantileUniform(), Flow(), Chain([Normalize(), ZScore()])])
def test_unfitted_estimators_raise_sklearns_error(step: Shaper | Chain) -> None:
    with pytest.raises(sklearn.exceptions.NotFittedError, match="call fit first") as caught:
        clone(step).transform(VECTORS)
    assert isinstance(caught.value, essent.errors.NotFittedError)
    again = pickle.loads(pickle.dumps(caught.value))  # noqa: S301  # as from a worker process
    assert (type(again), str(again)) == (type(caught.value), str(caught.value))
    assert type(again).__name__ == "NotFittedError"


def test_what_scikit_learn_refuses_is_refused() -> None:
    with pytest.raises(InputError, match=r"(?s)Expected vectors of shape \(N,D\): .*could not convert string to float"):
        Chain([QuantileUniform(), ZScore()]).fit(pd.DataFrame({"a": [1.0, 2.0], "b": ["one", "two"]}))
    with pytest.raises(RecipeError):
        Whiten().set_params(n_components=0).fit(VECTORS)
