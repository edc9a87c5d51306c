"""The quantile map against scikit-learn's QuantileTransformer; the flow towards a Gaussian, the same every time."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from shaping_reference import sentence_like
from sklearn.preprocessing import QuantileTransformer

from essent.errors import MissingDependencyError
from essent.recipe.shaping.chain import Chain
from essent.recipe.shaping.nonlinear import Flow, QuantileUniform

ODD = [0.1, 1 / 3, -0.7, 2**0.5, 0.1 + 0.2]  # drawn again and again: ties of values that arithmetic rounds


def theirs(
    fitted_on: np.ndarray, vectors: np.ndarray, n_quantiles: int = 1000, seed: int = 0, **more: int
) -> np.ndarray:
    count = min(n_quantiles, len(fitted_on), more.get("subsample", 10_000))  # more than there are vectors: it warns
    transformer = QuantileTransformer(n_quantiles=count, random_state=seed, **more).fit(fitted_on)
    return np.asarray(transformer.transform(vectors))


def ours(fitted_on: np.ndarray, vectors: np.ndarray, *arguments: int) -> np.ndarray:
    return QuantileUniform(*arguments).fit(fitted_on).transform(vectors)


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize(
    "name",
    ["ties", "one value in most rows", "constant", "neighbouring floats", "heavy tails", "far from zero"],
)
def test_equals_scikit_learn_on_awkward_columns(name: str, kind: type) -> None:
    random = np.random.default_rng(2)
    columns = {
        "ties": random.integers(0, 6, 2500) / 3,
        "one value in most rows": np.where(random.random(2500) < 0.9, 0.25, random.standard_normal(2500)),
        "constant": np.full(2500, 0.1),
        "neighbouring floats": 1 + np.arange(2500) * 2.3e-16,
        "heavy tails": random.standard_cauchy(2500),
        "far from zero": 1000 + random.standard_normal(2500) * 1e-2,
    }
    vectors = np.stack([columns[name], np.arange(2500)], axis=1).astype(kind)
    between = (vectors[:-1] + vectors[1:]) / 2
    new = np.concatenate([vectors, between, [vectors.min(axis=0) - 1, vectors.max(axis=0) + 1]]).astype(kind)
    np.testing.assert_allclose(ours(vectors, new), theirs(vectors, new), atol=1e-6)


@pytest.mark.parametrize(("rows", "kind"), [(5, np.float32), (120, np.float64), (700, np.float32)])
def test_equals_scikit_learn_where_values_are_shared_and_not_round(rows: int, kind: type) -> None:
    """A quantile that rounds to one bit beside a shared value moves all its rows by half a place."""
    random = np.random.default_rng(rows)
    values = random.standard_normal(max(2, rows // 6))
    vectors = random.choice(values, (rows, 8)).astype(kind)
    for count in (rows, min(rows, 100), min(rows, 37)):
        np.testing.assert_array_equal(
            QuantileUniform(count).fit(vectors).quantiles_.T,
            QuantileTransformer(n_quantiles=count, random_state=0).fit(vectors).quantiles_,
        )
        np.testing.assert_allclose(ours(vectors, vectors, count), theirs(vectors, vectors, count), atol=1e-6)


@settings(max_examples=30, deadline=None)
@given(
    fitted_on=arrays(np.float64, (12, 3), elements=st.sampled_from(ODD) | st.floats(-5, 5)),
    new=arrays(np.float64, (9, 3), elements=st.sampled_from(ODD) | st.floats(-6, 6)),
    count=st.integers(2, 15),
)
def test_equals_scikit_learn_on_anything(fitted_on: np.ndarray, new: np.ndarray, count: int) -> None:
    assume((fitted_on != fitted_on[0]).any())
    both = np.concatenate([fitted_on, new])
    np.testing.assert_allclose(ours(fitted_on, both, count), theirs(fitted_on, both, count), atol=1e-6)


def test_draws_scikit_learns_subsample() -> None:
    vectors = sentence_like(700, 4)
    step = QuantileUniform(300, 250, 7).fit(vectors)
    assert step.quantiles_.shape == (4, 250)
    expected = theirs(vectors, vectors, 300, 7, subsample=250)
    np.testing.assert_allclose(step.transform(vectors), expected, atol=1e-12)


def test_a_nan_stays_a_nan_and_infinity_goes_to_the_ends() -> None:
    module = QuantileUniform().fit(sentence_like(40, 3)).module()
    shaped = module(torch.tensor([[float("nan"), float("inf"), -float("inf")]]))
    assert shaped[0, 0].isnan()
    assert shaped[0, 1:].tolist() == [1.0, 0.0]


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16, torch.float32])
def test_converted_modules_keep_the_quantiles(kind: torch.dtype) -> None:
    vectors = torch.from_numpy(sentence_like(40, 3)).to(kind)
    chain = Chain.parse(("quantile",)).fit(vectors)
    converted = chain.module().to(kind)
    assert converted[0].quantiles.dtype == torch.float64
    torch.testing.assert_close(converted(vectors), chain.module()(vectors), rtol=0, atol=0)


# -- the flow ---------------------------------------------------------------------------------------------------------

SMALL = {"epochs": 2, "transforms": 2, "hidden": 16, "batch_size": 32}


def log_likelihood(step: Flow, vectors: np.ndarray) -> float:
    """Mean log-density of z-scored vectors under the fitted flow."""
    module = step.module()
    standard = module.first(torch.from_numpy(vectors)).float()
    return float(module.network().log_prob(standard).mean())


def test_training_raises_the_likelihood_of_held_out_vectors() -> None:
    random = np.random.default_rng(0)
    curve = random.standard_normal((700, 4))
    curve[:, 1] += curve[:, 0] ** 2  # what no affine map makes Gaussian
    short, long = (Flow(epochs, 2, 32, 32).fit(curve[:300]) for epochs in (1, 8))
    assert log_likelihood(long, curve[300:]) > log_likelihood(short, curve[300:]) + 0.1


def test_a_seed_gives_the_same_bytes_and_leaves_torchs_generator_alone() -> None:
    vectors = sentence_like(80, 6)
    before = torch.random.get_rng_state()
    first, again = Flow(**SMALL).fit(vectors), Flow(**SMALL).fit(vectors)
    shaped = first.transform(vectors)
    assert torch.equal(before, torch.random.get_rng_state())
    assert shaped.tobytes() == again.transform(vectors).tobytes()
    assert not np.array_equal(shaped, Flow(**SMALL, seed=1).fit(vectors).transform(vectors))


def test_half_precision_keeps_the_weights() -> None:
    vectors = sentence_like(40, 6)
    module = Flow(**SMALL).fit(vectors).module().half()
    assert {buffer.dtype for buffer in module.buffers()} <= {torch.float32, torch.float64, torch.bool}
    assert module(torch.from_numpy(vectors).half()).dtype == torch.float16


def test_without_zuko_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "zuko", None)
    with pytest.raises(MissingDependencyError, match=r"essent\[flow\]"):
        Flow(**SMALL).fit(sentence_like(8, 3))
