"""Chains: folding, streams, states, and what every step must do whatever it computes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load, save
from shaping_reference import normalize, sentence_like
from sklearn.base import clone
from sklearn.pipeline import make_pipeline

from essent.errors import InputError, NotFittedError, UnknownNameError
from essent.recipe.shaping.affine import Affine, Whiten, ZScore
from essent.recipe.shaping.base import Normalize, Shaper, shapers
from essent.recipe.shaping.chain import Chain

FLOW = "flow:epochs=1,transforms=2,hidden=8"
SPECS = ["centre", "zscore", "abtt", "whiten", "whiten:3", "normalize", "quantile", FLOW]
CHAINS = [
    "zscore|normalize",
    "centre|abtt:1|whiten:4|normalize",
    "normalize|zscore|whiten",
    "quantile|zscore",
    "zscore|quantile|centre|normalize",
    f"abtt|{FLOW}|zscore",
]
VECTORS = sentence_like(90, 6)


def build(text: str) -> Chain:
    return Chain.parse(text.split("|"))


@pytest.fixture(scope="module", params=SPECS)
def step(request: pytest.FixtureRequest) -> Shaper:
    return shapers.create(request.param)


def test_the_registry_knows_all_steps() -> None:
    assert {"abtt", "centre", "flow", "normalize", "quantile", "whiten", "zscore"} <= set(shapers)
    with pytest.raises(UnknownNameError, match="zscore"):
        Chain.parse(("zscor",))


@pytest.mark.parametrize(
    "spec",
    [*SPECS, "abtt:3", "quantile:50", "quantile:seed=3", "flow:epochs=5", "flow:2,seed=4", "flow:learning_rate=1e-05"],
)
def test_a_spec_builds_the_same_step_again(spec: str) -> None:
    made = shapers.create(spec)
    again = shapers.create(made.spec())
    assert type(again) is type(made)
    assert again.get_params() == made.get_params()
    assert again.spec() == made.spec()


@pytest.mark.parametrize(
    ("spec", "shortest"), [("abtt:2", "abtt"), ("flow:epochs=5", "flow"), ("whiten:256", "whiten:256")]
)
def test_a_spec_leaves_defaults_out(spec: str, shortest: str) -> None:
    assert shapers.create(spec).spec() == shortest


def test_every_step_is_an_estimator(step: Shaper) -> None:
    fitted = clone(step).fit(VECTORS)
    fresh = clone(fitted)
    assert fresh.get_params() == step.get_params()
    if fresh.needs_fit:
        with pytest.raises(NotFittedError, match="call fit first"):
            fresh.transform(VECTORS)
    np.testing.assert_array_equal(clone(step).fit_transform(VECTORS), fitted.transform(VECTORS))


def test_a_pipeline_equals_the_chain() -> None:
    pipeline = make_pipeline(ZScore(), Whiten(4), Normalize())
    chain = Chain.parse(("zscore", "whiten:4", "normalize"))
    np.testing.assert_allclose(pipeline.fit_transform(VECTORS), chain.fit(VECTORS).transform(VECTORS), atol=1e-8)


def test_every_step_keeps_the_type_and_leaves_its_input_alone(step: Shaper) -> None:
    for kind in (np.float32, np.float64):
        vectors = VECTORS.astype(kind)
        before = vectors.copy()
        shaped = clone(step).fit(vectors).transform(vectors)
        assert shaped.dtype == kind
        assert shaped.shape == (90, step.dim_out(6))
        np.testing.assert_array_equal(vectors, before)


def test_every_step_shapes_a_row_alone_as_in_a_batch(step: Shaper) -> None:
    fitted = clone(step).fit(VECTORS)
    alone = np.concatenate([fitted.transform(VECTORS[i : i + 1]) for i in range(9)])
    np.testing.assert_allclose(alone, fitted.transform(VECTORS)[:9], atol=1e-5 if step.name == "flow" else 1e-10)


EQUAL = {
    "one row": VECTORS[:1],
    "equal rows": np.repeat(VECTORS[:1], 8, axis=0),
    "zeros": np.zeros((8, 6)),
}
DEGENERATE = {
    "two rows": VECTORS[:2],
    "constant column": np.where(np.arange(6) == 1, 0.1, VECTORS),
    "equal columns": np.repeat(VECTORS[:, :1], 6, axis=1),
    "fewer rows than columns": VECTORS[:4],
    "tiny": VECTORS * 1e-30,
    "large": VECTORS * 1e15,
}


@pytest.mark.parametrize("name", DEGENERATE)
@pytest.mark.parametrize("text", [*SPECS, *CHAINS, "whiten|zscore", "abtt|whiten"])
def test_degenerate_data_gives_finite_distinct_vectors(name: str, text: str) -> None:
    vectors = DEGENERATE[name]
    if "abtt" in text and name in ("two rows", "equal columns"):  # which have one component
        with pytest.raises(InputError, match="would leave nothing"):
            build(text).fit(vectors)
        return
    for kind in (np.float64, np.float32):
        chain = build(text).fit(vectors.astype(kind))
        shaped = chain.transform(vectors.astype(kind))
        assert np.isfinite(shaped).all()
        assert shaped.any(axis=1).sum() >= len(shaped) - 1  # at most the mean itself is zero
        assert len(np.unique(shaped, axis=0)) > 1
        assert np.isfinite(chain.transform(VECTORS.astype(kind) * np.abs(vectors).max())).all()


@pytest.mark.parametrize("name", EQUAL)
@pytest.mark.parametrize("text", [spec for spec in (*SPECS, *CHAINS) if spec != "normalize"])
def test_nothing_is_learned_from_equal_vectors(name: str, text: str) -> None:
    count = len(EQUAL[name])
    came = "1 sample," if count == 1 else f"{count} samples whose vectors are equal"
    with pytest.raises(InputError, match=rf"got {came}.*at least 2 texts"):
        build(text).fit(EQUAL[name])
    assert np.isfinite(build("normalize").fit(EQUAL[name]).transform(EQUAL[name])).all()


@pytest.mark.parametrize("text", ["zscore", "quantile", "normalize", FLOW])
@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (np.zeros(6), r"\(N,D\).*\(6,\)"),
        (np.zeros((0, 6)), r"\(N,D\).*\(0, 6\)"),
        (np.zeros((2, 3, 4)), r"\(2, 3, 4\)"),
        (np.array([["a", "b"]]), "Expected numbers"),
        (np.where(np.arange(90)[:, None] >= 88, np.nan, VECTORS), "2 of 90 .* first in row 88"),
        (np.where(np.arange(90)[:, None] == 4, -np.inf, VECTORS), "1 of 90 .* first in row 4"),
    ],
)
def test_unfittable_data_is_refused(text: str, wrong: np.ndarray, message: str) -> None:
    with pytest.raises(InputError, match=message):
        build(text).fit(wrong)


@pytest.mark.parametrize("text", ["zscore", "quantile", FLOW])
def test_another_width_is_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"6 dimensions.*\(90, 5\)"):
        build(text).fit(VECTORS).transform(VECTORS[:, :5])


def test_a_stream_numbers_its_rows_through() -> None:
    batches = np.array_split(np.where(np.arange(90)[:, None] == 71, np.nan, VECTORS), 6)
    for text in ("zscore", "quantile", "normalize|zscore"):
        with pytest.raises(InputError, match="first in row 71"):
            build(text).fit_batches(lambda: iter(batches))


def test_an_empty_or_uneven_stream_is_refused() -> None:
    for text in ("zscore", "quantile", FLOW):
        with pytest.raises(InputError, match="no vectors"):
            build(text).fit_batches(lambda: iter(()))
        with pytest.raises(InputError, match="6 and 5 dimensions"):
            build(text).fit_batches(lambda: iter((VECTORS, VECTORS[:, :5])))


def test_an_unfitted_chain_raises() -> None:
    chain = build("normalize|zscore")
    assert chain.needs_fit
    assert not chain.is_fitted
    for use in (chain.module, chain.state, lambda: chain.transform(VECTORS)):
        with pytest.raises(NotFittedError, match="zscore"):
            use()


def test_chains_without_learned_steps_need_no_fit() -> None:
    assert not Chain()
    assert not Chain().needs_fit
    np.testing.assert_array_equal(Chain().transform(VECTORS), VECTORS)
    unit = build("normalize")
    assert unit
    assert not unit.needs_fit
    assert unit.is_fitted
    np.testing.assert_allclose(unit.transform(VECTORS), normalize(VECTORS), atol=1e-12)


def test_normalize_keeps_zeros_and_equals_torch() -> None:
    vectors = np.concatenate([np.zeros((1, 6)), VECTORS])
    shaped = build("normalize").transform(vectors)
    assert not shaped[0].any()
    np.testing.assert_array_equal(shaped, torch.nn.functional.normalize(torch.from_numpy(vectors)).numpy())


@pytest.mark.parametrize("text", CHAINS)
def test_a_folded_chain_equals_its_steps_in_turn(text: str) -> None:
    chain = build(text).fit(VECTORS)
    step_by_step = VECTORS
    for part in chain.steps:
        step_by_step = part.transform(step_by_step)
    np.testing.assert_allclose(chain.transform(VECTORS), step_by_step, atol=1e-5 if "flow" in text else 1e-8)
    assert chain.dim_out(6) == step_by_step.shape[1]


@pytest.mark.parametrize("text", CHAINS)
def test_moments_carried_through_equal_fitting_in_turn(text: str) -> None:
    chain = build(text).fit(VECTORS)
    step_by_step = VECTORS
    for spec in chain.specs():
        step_by_step = shapers.create(spec).fit(step_by_step).transform(step_by_step)
    shaped = chain.transform(VECTORS)
    np.testing.assert_allclose(shaped @ shaped.T, step_by_step @ step_by_step.T, atol=1e-3 if "flow" in text else 1e-6)


def test_steps_fitted_apart_fold_exactly_too() -> None:
    first, second = ZScore().fit(VECTORS), Whiten(3).fit(VECTORS + 2)
    chain = Chain([first, second])
    np.testing.assert_allclose(chain.transform(VECTORS), second.transform(first.transform(VECTORS)), atol=1e-8)
    whole = chain.as_affine()
    assert whole is not None
    by_hand = (VECTORS - whole.mean) @ whole.matrix + whole.offset
    np.testing.assert_allclose(chain.transform(VECTORS), by_hand, atol=1e-8)


def test_neighbouring_affine_steps_fold_into_a_single_map() -> None:
    folded = build("zscore|abtt|normalize|centre|whiten:2").fit(VECTORS).folded()
    assert [type(part) for part in folded] == [Affine, Normalize, Affine]
    assert folded[2].matrix.shape == (6, 2)
    assert build("centre|normalize").fit(VECTORS).as_affine() is None


@pytest.mark.parametrize("text", ["zscore", "quantile", *CHAINS])
@pytest.mark.parametrize("rows", [1, 7, 90])
def test_a_stream_matches_the_array(text: str, rows: int) -> None:
    streamed = build(text).fit_batches(lambda: iter([VECTORS[i : i + rows] for i in range(0, 90, rows)]))
    whole = build(text).fit(VECTORS)
    # an optimizer carries the last bit of the z-score before it through its steps
    np.testing.assert_allclose(
        streamed.transform(VECTORS), whole.transform(VECTORS), atol=1e-4 if "flow" in text else 1e-8
    )


def test_a_run_of_affine_steps_takes_a_single_pass() -> None:
    starts = []

    def batches() -> Iterator[np.ndarray]:
        starts.append(1)
        yield from np.array_split(VECTORS, 4)

    build("centre|abtt|zscore|whiten:3|normalize").fit_batches(batches)
    assert len(starts) == 1


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10_000), text=st.sampled_from(["zscore|normalize", "normalize|abtt:1|quantile", "quantile"]))
def test_the_order_of_rows_does_not_matter(seed: int, text: str) -> None:
    shuffled = np.random.default_rng(seed).permutation(VECTORS)
    shaped, again = build(text).fit(VECTORS).transform(VECTORS), build(text).fit(shuffled).transform(VECTORS)
    # a value at the end of its column is exactly there or one rounding off: its place moves by less than one quantile
    np.testing.assert_allclose(shaped, again, atol=1e-8)


@pytest.mark.parametrize("text", [*SPECS, *CHAINS])
@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_a_state_stored_as_safetensors_gives_the_same_bits(text: str, kind: type) -> None:
    vectors = VECTORS.astype(kind)
    chain = build(text).fit(vectors)
    state = chain.state()
    assert all(isinstance(value, np.ndarray) and value.flags.c_contiguous for value in state.values())
    again = Chain.from_state(chain.specs(), load(save(state)))
    assert again.is_fitted
    assert again.transform(vectors).tobytes() == chain.transform(vectors).tobytes()


@pytest.mark.parametrize("text", CHAINS)
def test_modules_have_buffers_only_and_pass_gradients(text: str) -> None:
    module = build(text).fit(VECTORS).module()
    assert list(module.parameters()) == []
    vectors = torch.from_numpy(VECTORS).requires_grad_()
    module(vectors).square().sum().backward()
    assert vectors.grad is not None
    assert torch.isfinite(vectors.grad).all()


def test_tensors_behave_like_arrays() -> None:
    for kind in (torch.float32, torch.float64, torch.bfloat16):
        tensor = torch.from_numpy(VECTORS).to(kind)
        assert np.isfinite(build("zscore").fit(tensor).transform(tensor)).all()
    np.testing.assert_array_equal(
        build("whiten").fit(torch.from_numpy(VECTORS)).transform(VECTORS),
        build("whiten").fit(VECTORS).transform(VECTORS),
    )
