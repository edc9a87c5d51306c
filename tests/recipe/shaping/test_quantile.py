"""The quantile map against scikit-learn's QuantileTransformer."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from shaping_reference import sentence_like
from sklearn.preprocessing import QuantileTransformer

from essent.recipe.shaping.chain import Chain
from essent.recipe.shaping.quantile import QuantileUniform

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
        "heavy tails": random.standard_cauchy(2500),  # most quantiles fall in one bin of the guide table
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
    count=st.integers(1, 15),
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
    streamed = QuantileUniform(300, 250, 7).fit_batches(lambda: iter(np.array_split(vectors, 9)))
    np.testing.assert_array_equal(streamed.quantiles_, step.quantiles_)


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
