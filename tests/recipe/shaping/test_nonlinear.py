"""The quantile map against scikit-learn's QuantileTransformer; the flow towards a Gaussian, the same every time."""

import sys

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from shaping_vectors import sentence_like
from sklearn.preprocessing import QuantileTransformer

from essent.errors import MissingDependencyError
from essent.recipe.shaping.chain import Chain
from essent.recipe.shaping.nonlinear import Flow, QuantileUniform

ODD = [0.1, 1 / 3, -0.7, 2**0.5, 0.1 + 0.2]  # drawn again and again: ties of values that arithmetic rounds


def assert_equals_scikit_learn(vectors: np.ndarray, new: np.ndarray, count: int = 1000) -> None:
    step = QuantileUniform(count).fit(vectors)
    theirs = QuantileTransformer(n_quantiles=min(count, len(vectors)), random_state=0).fit(vectors)
    np.testing.assert_array_equal(step.quantiles_.T, theirs.quantiles_)
    np.testing.assert_allclose(step.transform(new), theirs.transform(new), atol=1e-6)


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_equals_scikit_learn_on_awkward_columns(kind: type) -> None:
    random = np.random.default_rng(2)
    columns = [
        random.integers(0, 6, 2500) / 3,  # ties
        np.where(random.random(2500) < 0.9, 0.25, random.standard_normal(2500)),
        np.full(2500, 0.1),
        1 + np.arange(2500) * 2.3e-16,  # neighbouring floats
        random.standard_cauchy(2500),
        random.choice(random.standard_normal(400), 2500),  # beside a shared value, one bit moves all rows
        1000 + random.standard_normal(2500) * 1e-2,
    ]
    vectors = np.stack(columns, axis=1).astype(kind)
    between = (vectors[:-1] + vectors[1:]) / 2
    new = np.concatenate([vectors, between, [vectors.min(axis=0) - 1, vectors.max(axis=0) + 1]]).astype(kind)
    for count in (37, 1000):
        assert_equals_scikit_learn(vectors, new, count)


@settings(max_examples=30, deadline=None)
@given(
    vectors=arrays(np.float64, (12, 3), elements=st.sampled_from(ODD) | st.floats(-5, 5)),
    new=arrays(np.float64, (9, 3), elements=st.sampled_from(ODD) | st.floats(-6, 6)),
    count=st.integers(2, 15),
)
def test_equals_scikit_learn_on_anything(vectors: np.ndarray, new: np.ndarray, count: int) -> None:
    assume((vectors != vectors[0]).any())
    assert_equals_scikit_learn(vectors, np.concatenate([vectors, new]), count)


def test_draws_scikit_learns_subsample() -> None:
    vectors = sentence_like(700, 4)
    expected = QuantileTransformer(n_quantiles=250, subsample=250, random_state=7).fit_transform(vectors)
    np.testing.assert_allclose(QuantileUniform(300, 250, 7).fit_transform(vectors), expected, atol=1e-12)


def test_a_nan_stays_a_nan_and_infinity_goes_to_the_ends() -> None:
    module = QuantileUniform().fit(sentence_like(40, 3)).module()
    shaped = module(torch.tensor([[float("nan"), float("inf"), -float("inf")]]))
    assert shaped[0, 0].isnan()
    assert shaped[0, 1:].tolist() == [1.0, 0.0]


SMALL_FLOW = "flow:epochs=2,transforms=2,hidden=16,batch_size=32"


@pytest.mark.parametrize(
    ("spec", "kind"),
    [*(("quantile", kind) for kind in (torch.float16, torch.bfloat16, torch.float32)), (SMALL_FLOW, torch.float16)],
)
def test_converted_modules_keep_what_was_learned(spec: str, kind: torch.dtype) -> None:
    vectors = torch.from_numpy(sentence_like(40, 3)).to(kind)
    chain = Chain.parse([spec]).fit(vectors)
    module, converted = chain.module(), chain.module().to(kind)
    assert [buffer.dtype for buffer in converted.buffers()] == [buffer.dtype for buffer in module.buffers()]
    assert converted(vectors).dtype == kind
    torch.testing.assert_close(converted(vectors), module(vectors), rtol=0, atol=0)


# -- the flow ---------------------------------------------------------------------------------------------------------


def test_training_raises_the_likelihood_of_held_out_vectors() -> None:
    random = np.random.default_rng(0)
    curve = random.standard_normal((700, 4))
    curve[:, 1] += curve[:, 0] ** 2  # what no affine map makes Gaussian
    held_out = torch.from_numpy(curve[300:])
    modules = [Flow(epochs, 2, 32, 32).fit(curve[:300]).module() for epochs in (1, 8)]
    short, long = (module.network().log_prob(module.first(held_out).float()).mean() for module in modules)
    assert long > short + 0.1


def test_a_seed_gives_the_same_bytes_and_leaves_torchs_generator_alone() -> None:
    vectors = sentence_like(80, 6)
    before = torch.random.get_rng_state()
    first, again, other = (
        Chain.parse([spec]).fit_transform(vectors) for spec in (SMALL_FLOW, SMALL_FLOW, f"{SMALL_FLOW},seed=1")
    )
    assert torch.equal(before, torch.random.get_rng_state())
    assert first.tobytes() == again.tobytes()
    assert not np.array_equal(first, other)


def test_without_zuko_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "zuko", None)
    with pytest.raises(MissingDependencyError, match=r"essent\[flow\]"):
        Flow().fit(sentence_like(8, 3))
