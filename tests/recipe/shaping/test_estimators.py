"""Steps and chains as scikit-learn's transformers: its own checks, names of columns, pipelines, copies."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest
import sklearn
import sklearn.exceptions
from scipy import sparse
from shaping_reference import sentence_like
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import check_estimator

import essent.errors
from essent.errors import InputError, RecipeError
from essent.recipe.shaping.affine import PCA, AllButTheTop, Centre, Whiten, ZScore
from essent.recipe.shaping.base import Normalize, Shaper, shapers
from essent.recipe.shaping.chain import Chain
from essent.recipe.shaping.nonlinear import Flow, QuantileUniform
from samples import daily

VECTORS = sentence_like(60, 6)
NAMES = [f"d{n}" for n in range(6)]
FRAME = pd.DataFrame(VECTORS, columns=NAMES, index=range(7, 67))
SETTINGS = {
    "check_do_not_raise_errors_in_init_or_set_params": "settings are checked when they are given, as a recipe's must be"
}
STEPS: dict[str, tuple[Shaper | Chain, dict[str, str]]] = {
    "centre": (Centre(), {}),
    "zscore": (ZScore(), {}),
    "abtt": (AllButTheTop(1), SETTINGS),
    "whiten": (Whiten(), SETTINGS),
    "pca": (PCA(2), SETTINGS),
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


@pytest.mark.parametrize(
    ("step", "names"),
    [
        (ZScore(), NAMES),
        (Normalize(), NAMES),
        (AllButTheTop(), [f"allbutthetop{n}" for n in range(6)]),
        (Chain([ZScore(), Whiten(3), Normalize()]), ["chain0", "chain1", "chain2"]),
    ],
)
def test_frames_come_out_with_names(step: Shaper | Chain, names: list[str]) -> None:
    """One column for one keeps its name; what mixes columns has names of its own."""
    shaped = clone(step).set_output(transform="pandas").fit(FRAME).transform(FRAME)
    assert list(shaped.columns) == names
    assert list(shaped.index) == list(FRAME.index)
    plain = clone(step).fit(VECTORS)
    np.testing.assert_allclose(shaped.to_numpy(), plain.transform(VECTORS), atol=1e-10)
    assert plain.n_features_in_ == 6
    assert len(plain.get_feature_names_out()) == len(names)
    with pytest.raises(ValueError, match="feature names should match"):
        clone(step).fit(FRAME).transform(FRAME.rename(columns={"d0": "other"}))


def test_the_state_excludes_feature_names() -> None:
    """A saved encoder's arrays are what was learned, whatever it was fitted on."""
    for step in (ZScore(), Whiten(2), QuantileUniform(9), Normalize()):
        state = clone(step).fit(FRAME).state()
        assert state.keys() == clone(step).fit(VECTORS).state().keys()
        assert not {"n_features_in_", "feature_names_in_"} & state.keys()
    again = Chain.from_state(("zscore", "whiten:2"), Chain.parse(("zscore", "whiten:2")).fit(VECTORS).state())
    assert again.n_features_in_ == 6
    assert list(again.get_feature_names_out()) == ["chain0", "chain1"]


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


def test_scikit_learns_global_output_changes_nothing_inside() -> None:
    expected = Chain.parse(("zscore", "whiten:2")).fit_transform(VECTORS)
    flow = Flow(1, 1, 2).fit(VECTORS).transform(VECTORS)
    with sklearn.config_context(transform_output="pandas"):
        np.testing.assert_array_equal(Chain.parse(("zscore", "whiten:2")).fit_transform(VECTORS), expected)
        shaped = Flow(1, 1, 2).fit(VECTORS).transform(VECTORS)
    assert isinstance(shaped, pd.DataFrame)
    np.testing.assert_array_equal(shaped.to_numpy(), flow)


@pytest.mark.parametrize("step", [ZScore(), Whiten(), QuantileUniform(), Flow(), Chain.parse(("normalize", "zscore"))])
def test_unfitted_estimators_raise_sklearns_error(step: Shaper | Chain) -> None:
    with pytest.raises(sklearn.exceptions.NotFittedError, match="call fit first") as caught:
        clone(step).transform(VECTORS)
    assert isinstance(caught.value, essent.errors.NotFittedError)
    again = pickle.loads(pickle.dumps(caught.value))  # noqa: S301  # as from a worker process
    assert (type(again), str(again)) == (type(caught.value), str(caught.value))
    assert type(again).__name__ == "NotFittedError"


def test_what_scikit_learn_refuses_is_refused() -> None:
    np.testing.assert_array_equal(ZScore().fit_transform(VECTORS.astype(object)), ZScore().fit_transform(VECTORS))
    for wrong, message in (
        (sparse.csr_array(VECTORS), "dense data is required"),
        (pd.DataFrame({"a": [1.0, 2.0], "b": ["one", "two"]}), "could not convert string to float"),
        (VECTORS[0], "Reshape your data"),
    ):
        with pytest.raises(InputError, match=r"(?s)Expected vectors of shape \(N,D\): .*" + message):
            Chain([QuantileUniform(), ZScore()]).fit(wrong)
    with pytest.raises(RecipeError):
        Whiten().set_params(n_components=0).fit(VECTORS)
