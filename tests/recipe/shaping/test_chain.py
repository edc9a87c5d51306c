"""Chains and steps: what each must do, also as scikit-learn's transformers; affine ones against their definitions."""

import pickle

import numpy as np
import pandas as pd
import pytest
import sklearn
import sklearn.decomposition
import sklearn.exceptions
import torch
from safetensors.numpy import load, save
from shaping_vectors import cosines, sentence_like
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from essent.errors import InputError, NotFittedError, RecipeError
from essent.recipe.shaping import affine as affine_module
from essent.recipe.shaping.affine import PCA, AllButTheTop, Centre, EmbedFilter, Moments, Whiten, ZScore
from essent.recipe.shaping.base import Normalize, Shaper, shapers
from essent.recipe.shaping.chain import Chain
from essent.recipe.shaping.nonlinear import Flow, QuantileUniform
from samples import daily

FLOW = "flow:epochs=1,transforms=2,hidden=8"
CHAINS = [
    "centre|abtt:1|whiten:4|normalize",
    "normalize|zscore|whiten",
    "zscore|quantile|centre|normalize",
    f"abtt|{FLOW}|zscore",
]
VECTORS = sentence_like(90, 6)


def build(text: str) -> Chain:
    return Chain.parse(text.split("|"))


DEGENERATE = {
    "two rows": VECTORS[:2],
    "constant column": np.where(np.arange(6) == 1, 0.1, VECTORS),
    "equal columns": np.repeat(VECTORS[:, :1], 6, axis=1),
    "fewer rows than columns": VECTORS[:4],
    "tiny": VECTORS * 1e-30,
    "large": VECTORS * 1e15,
}


@pytest.mark.parametrize("name", DEGENERATE)
@pytest.mark.parametrize("text", ["zscore|quantile|centre|normalize", "whiten|zscore", "abtt|whiten"])
def test_degenerate_data_gives_finite_distinct_vectors(name: str, text: str) -> None:
    vectors = DEGENERATE[name]
    if "abtt" in text and name in ("two rows", "equal columns"):  # which have one component
        with pytest.raises(InputError, match="would remove all"):
            build(text).fit(vectors)
        return
    for kind in (np.float64, np.float32):
        chain = build(text).fit(vectors.astype(kind))
        shaped = chain.transform(vectors.astype(kind))
        assert np.isfinite(shaped).all()
        assert shaped.any(axis=1).sum() >= len(shaped) - 1  # at most the mean itself is zero
        assert len(np.unique(shaped, axis=0)) > 1
        assert np.isfinite(chain.transform(VECTORS.astype(kind) * np.abs(vectors).max())).all()


@pytest.mark.parametrize("text", ["zscore", "abtt", "quantile", FLOW, CHAINS[1]])
def test_unfittable_data_is_refused(text: str) -> None:
    for vectors, message in (
        (VECTORS[:1], "got 1 sample,.*at least 2 texts"),
        (np.zeros((8, 6)), "got 8 samples whose vectors are equal.*at least 2 texts"),
        (np.zeros((0, 6)), "0 sample"),
        (np.where(np.arange(90)[:, None] >= 88, np.nan, VECTORS), "2 of 90 vectors have NaN .* first in row 88"),
    ):
        with pytest.raises(InputError, match=message):
            build(text).fit(vectors)
    with pytest.raises(InputError, match=r"6 dimensions.*\(90, 5\)"):
        build(text).fit(VECTORS).transform(VECTORS[:, :5])


EQUAL_UP_TO_ROUNDING = np.outer(1 + 1e-12 * (np.arange(9) % 2), VECTORS[0])


@pytest.mark.parametrize(
    ("text", "vectors", "message"),
    [
        ("centre|whiten", EQUAL_UP_TO_ROUNDING, "9 samples whose vectors are equal"),
        ("normalize|whiten", EQUAL_UP_TO_ROUNDING, "9 samples whose vectors are equal"),
        ("abtt:2", VECTORS[:3], "n_samples=3, .* have only 2"),
        ("whiten:1|abtt:1", VECTORS, "n_samples=90, .* have only 1"),
    ],
)
def test_rounding_is_no_spread_and_the_last_component_stays(text: str, vectors: np.ndarray, message: str) -> None:
    with pytest.raises(InputError, match=message):
        build(text).fit(vectors)


def test_chains_without_learned_steps_need_no_fit() -> None:
    np.testing.assert_array_equal(Chain().transform(VECTORS), VECTORS)
    assert not build("normalize").needs_fit
    vectors = np.concatenate([np.zeros((1, 6)), VECTORS])
    lengths = np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    np.testing.assert_allclose(build("normalize").transform(vectors), vectors / lengths, atol=1e-12)


@pytest.mark.parametrize("text", CHAINS)
def test_a_chain_equals_its_steps_in_turn(text: str) -> None:
    """Fitted as a whole, with moments carried through, and run as folded maps; gradients pass, its state is all."""
    chain = build(text).fit(VECTORS)
    run_in_turn = fitted_in_turn = VECTORS
    for part, spec in zip(chain.steps, chain.specs(), strict=True):
        run_in_turn = part.transform(run_in_turn)
        fitted_in_turn = shapers.create(spec).fit_transform(fitted_in_turn)
    shaped = chain.transform(VECTORS)
    np.testing.assert_allclose(shaped, run_in_turn, atol=1e-5 if "flow" in text else 1e-8)
    np.testing.assert_allclose(
        shaped @ shaped.T, fitted_in_turn @ fitted_in_turn.T, atol=1e-3 if "flow" in text else 1e-6
    )
    assert chain.dim_out(6) == shaped.shape[1]
    again = Chain.from_state(chain.specs(), load(save(chain.state())))
    for kind in (np.float32, np.float64):
        assert again.transform(VECTORS.astype(kind)).tobytes() == chain.transform(VECTORS.astype(kind)).tobytes()
    vectors = torch.from_numpy(VECTORS).requires_grad_()
    module = chain.module()
    assert not [parameter for parameter in module.parameters() if parameter.requires_grad]
    module(vectors).square().sum().backward()
    assert vectors.grad is not None
    assert torch.isfinite(vectors.grad).all()


def test_steps_fitted_apart_run_in_turn() -> None:
    first, second = ZScore().fit(VECTORS), Whiten(3).fit(VECTORS + 2)
    in_turn = second.transform(first.transform(VECTORS))
    np.testing.assert_allclose(Chain([first, second]).transform(VECTORS), in_turn, atol=1e-8)


# -- affine steps -----------------------------------------------------------------------------------------------------

CENTRED = VECTORS - VECTORS.mean(axis=0)
VARIANCES, COMPONENTS = (array[..., ::-1] for array in np.linalg.eigh(np.cov(VECTORS.T)))  # the largest first
TOP = np.linalg.svd(CENTRED)[2][:5]


@pytest.mark.parametrize(
    ("spec", "reference"),
    [
        ("centre", CENTRED),
        ("zscore", StandardScaler().fit_transform(VECTORS)),
        ("abtt:0", CENTRED),
        ("abtt:5", CENTRED - CENTRED @ TOP.T @ TOP),
        ("whiten:4", sklearn.decomposition.PCA(4, whiten=True, svd_solver="full").fit_transform(VECTORS)),
        ("whiten:6", sklearn.decomposition.PCA(6, whiten=True, svd_solver="full").fit_transform(VECTORS)),
        *((f"whiten:eps={eps}", CENTRED @ COMPONENTS / np.sqrt(VARIANCES + eps)) for eps in (1e-3, 2.0)),  # soft-ZCA
        ("pca:4", sklearn.decomposition.PCA(4, svd_solver="full").fit_transform(VECTORS)),
    ],
)
def test_steps_equal_their_definitions(spec: str, reference: np.ndarray) -> None:
    shaped = build(spec).fit_transform(VECTORS)
    assert shaped.shape == reference.shape
    if spec.startswith(("whiten", "pca")):  # the signs of components are arbitrary
        np.testing.assert_allclose(np.abs(shaped), np.abs(reference), atol=1e-8)
    else:
        np.testing.assert_allclose(shaped, reference, atol=1e-10)


@pytest.mark.parametrize("spec", ["zscore", "whiten"])
@pytest.mark.parametrize("kind", [np.float64, np.float32])
def test_dead_columns_change_no_cosine(spec: str, kind: type) -> None:
    """Three columns constant up to float noise, as all-MiniLM-L6-v2's 127, 223 and 319."""
    vectors, dead = sentence_like(400, 24, seed=3), [3, 11, 17]
    vectors[:, dead] = [0.31, -0.02, 1.7] + 1e-8 * np.random.default_rng(5).standard_normal((400, 3))
    shaped = build(spec).fit_transform(vectors.astype(kind))
    without = build(spec).fit_transform(np.delete(vectors, dead, axis=1).astype(kind))
    np.testing.assert_allclose(cosines(shaped), cosines(without), atol=1e-3)
    assert np.abs(shaped[:, dead]).max() < 1e-6 or spec == "whiten" or kind is np.float32


@pytest.mark.parametrize(("rows", "distance"), [(1, 0), (7, 1e3), (50, 1e3)])
def test_moments_are_independent_of_the_blocks(rows: int, distance: float, monkeypatch: pytest.MonkeyPatch) -> None:
    vectors = sentence_like(50, 5)
    monkeypatch.setattr(affine_module, "blocks", lambda array: np.split(array, range(rows, 50, rows)))
    moments = Moments.of(vectors + distance)
    assert moments.count == 50
    np.testing.assert_allclose(moments.mean, vectors.mean(axis=0) + distance, atol=1e-10)
    np.testing.assert_allclose(moments.scatter / 49, np.cov(vectors.T), rtol=1e-6, atol=1e-9)


def test_whitening_few_vectors_warns(caplog: pytest.LogCaptureFixture) -> None:
    """With fewer vectors than dimensions all of them end equally far apart, which no score tells."""
    affine_module._warn.cache_clear()
    vectors = np.random.default_rng(0).normal(size=(80, 48))
    build("whiten:40").fit(vectors)
    assert not caplog.records
    shaped = build("whiten").fit_transform(vectors[:5])
    assert np.count_nonzero(np.abs(shaped).max(axis=0)) == 4  # five points span four directions around their mean
    np.testing.assert_allclose(shaped @ shaped.T, 4 * (np.eye(5) - 0.2), atol=1e-8)
    assert "whiten learns 48 dimensions from 5 texts" in caplog.text


# -- scikit-learn -----------------------------------------------------------------------------------------------------

STEPS: dict[str, Shaper | Chain] = {
    "centre": Centre(),
    "zscore": ZScore(),
    "abtt": AllButTheTop(1),
    "whiten": Whiten(),
    "pca": PCA(2),
    "filter": EmbedFilter(1),
    "quantile": QuantileUniform(50),
    "normalize": Normalize(),
    "flow": Flow(epochs=1, transforms=1, hidden=2),
    "chain": Chain([ZScore(), Whiten(), Normalize()]),
}
OF_SETTINGS = {
    "check_do_not_raise_errors_in_init_or_set_params": "settings are checked when they are given, as a recipe's must be"
}
OF_CHAINS = {"check_estimators_overwrite_params": "the steps are fitted in place, as a Pipeline's are"}


@pytest.mark.parametrize("name", daily(STEPS, "zscore", "quantile", "chain"))
def test_scikit_learns_own_checks(name: str) -> None:
    step = STEPS[name]
    expected = OF_CHAINS if name == "chain" else OF_SETTINGS if step.get_params() else {}
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
    assert isinstance(caught.value, NotFittedError)
    again = pickle.loads(pickle.dumps(caught.value))  # noqa: S301  # as from a worker process
    assert (type(again), str(again)) == (type(caught.value), str(caught.value))
    assert type(again).__name__ == "NotFittedError"


def test_what_scikit_learn_refuses_is_refused() -> None:
    with pytest.raises(InputError, match=r"(?s)Expected vectors of shape \(N,D\): .*could not convert string to float"):
        Chain([QuantileUniform(), ZScore()]).fit(pd.DataFrame({"a": [1.0, 2.0], "b": ["one", "two"]}))
    with pytest.raises(RecipeError):
        Whiten().set_params(n_components=0).fit(VECTORS)
