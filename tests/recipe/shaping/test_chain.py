"""Chains: folding, states, what every step must do; the affine steps against loops and scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from safetensors.numpy import load, save
from shaping_reference import all_but_the_top, centre, cosines, pca, sentence_like, soft_zca, whiten, zscore

from essent.errors import InputError
from essent.recipe.shaping import affine as affine_module
from essent.recipe.shaping.affine import Moments, Whiten, ZScore
from essent.recipe.shaping.base import Affine, Normalize, shapers
from essent.recipe.shaping.chain import Chain

FLOW = "flow:epochs=1,transforms=2,hidden=8"
SPECS = ["centre", "zscore", "abtt", "whiten:3", "normalize", "quantile", FLOW]
CHAINS = [
    "centre|abtt:1|whiten:4|normalize",
    "normalize|zscore|whiten",
    "zscore|quantile|centre|normalize",
    f"abtt|{FLOW}|zscore",
]
VECTORS = sentence_like(90, 6)


def build(text: str) -> Chain:
    return Chain.parse(text.split("|"))


@pytest.mark.parametrize(
    ("spec", "shortest"),
    [
        *((spec, spec) for spec in [*SPECS[:-1], "quantile:50", "quantile:seed=3", "flow:learning_rate=1e-05"]),
        ("abtt:2", "abtt"),
        ("whiten:4,eps=0.1", "whiten:4,0.1"),
        ("whiten:eps=0", "whiten"),
        ("filter:2", "filter"),
        ("filter:8", "filter:8"),
        ("flow:epochs=5", "flow"),
        ("flow:2,seed=4", "flow:epochs=2,seed=4"),
    ],
)
def test_a_spec_leaves_defaults_out_and_builds_the_same_step(spec: str, shortest: str) -> None:
    assert shapers.create(spec).spec() == shortest
    assert shapers.create(shortest).get_params() == shapers.create(spec).get_params()


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
def test_nothing_is_learned_from_equal_vectors(text: str) -> None:
    for vectors, came in ((VECTORS[:1], "1 sample,"), (np.zeros((8, 6)), "8 samples whose vectors are equal")):
        with pytest.raises(InputError, match=rf"got {came}.*at least 2 texts"):
            build(text).fit(vectors)


@pytest.mark.parametrize("text", ["zscore", "quantile", "normalize|zscore", FLOW])
def test_unfittable_data_is_refused(text: str) -> None:
    gap = np.where(np.arange(90)[:, None] >= 88, np.nan, VECTORS)
    for wrong, message in ((gap, "2 of 90 vectors have NaN .* first in row 88"), (np.zeros((0, 6)), "0 sample")):
        with pytest.raises(InputError, match=message):
            build(text).fit(wrong)
    with pytest.raises(InputError, match=r"6 dimensions.*\(90, 5\)"):
        build(text).fit(VECTORS).transform(VECTORS[:, :5])


def test_chains_without_learned_steps_need_no_fit() -> None:
    np.testing.assert_array_equal(Chain().transform(VECTORS), VECTORS)
    unit = build("normalize")
    assert unit.is_fitted
    assert not Chain([*Chain().steps, *unit.steps]).needs_fit
    vectors = np.concatenate([np.zeros((1, 6)), VECTORS])
    lengths = np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    np.testing.assert_allclose(unit.transform(vectors), vectors / lengths, atol=1e-12)


@pytest.mark.parametrize("text", CHAINS)
def test_a_chain_equals_its_steps_in_turn(text: str) -> None:
    """Fitted as a whole, with moments carried through, and run as folded maps; it lets gradients pass."""
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
    vectors = torch.from_numpy(VECTORS).requires_grad_()
    module = chain.module()
    assert not [parameter for parameter in module.parameters() if parameter.requires_grad]
    module(vectors).square().sum().backward()
    assert vectors.grad is not None
    assert torch.isfinite(vectors.grad).all()


def test_neighbouring_affine_steps_fold_into_a_single_map() -> None:
    folded = build("zscore|abtt|normalize|centre|whiten:2").fit(VECTORS).folded()
    assert [type(part) for part in folded] == [Affine, Normalize, Affine]
    assert build("centre|normalize").fit(VECTORS).as_affine() is None
    first, second = ZScore().fit(VECTORS), Whiten(3).fit(VECTORS + 2)  # fitted apart
    whole = Chain([first, second]).as_affine()
    assert whole is not None
    by_hand = (VECTORS - whole.mean) @ whole.matrix + whole.offset
    np.testing.assert_allclose(second.transform(first.transform(VECTORS)), by_hand, atol=1e-8)


@pytest.mark.parametrize(("text", "kind"), list(zip(CHAINS, [np.float32, np.float64] * 2, strict=True)))
def test_a_state_stored_as_safetensors_gives_the_same_bits(text: str, kind: type) -> None:
    vectors = VECTORS.astype(kind)
    chain = build(text).fit(vectors)
    state = chain.state()
    assert all(isinstance(value, np.ndarray) and value.flags.c_contiguous for value in state.values())
    again = Chain.from_state(chain.specs(), load(save(state)))
    assert again.is_fitted
    assert again.transform(vectors).tobytes() == chain.transform(vectors).tobytes()


# -- affine steps -----------------------------------------------------------------------------------------------------

SENTENCES = sentence_like(60, 7)
DEAD = [3, 11, 17]


def with_dead_columns() -> tuple[np.ndarray, np.ndarray]:
    """Vectors with three columns constant up to float noise, as all-MiniLM-L6-v2's 127, 223 and 319; and without."""
    vectors = sentence_like(400, 24, seed=3)
    vectors[:, DEAD] = [0.31, -0.02, 1.7] + 1e-8 * np.random.default_rng(5).standard_normal((400, 3))
    return vectors, np.delete(vectors, DEAD, axis=1)


@pytest.mark.parametrize(
    ("spec", "reference"),
    [
        ("centre", centre(SENTENCES)),
        ("zscore", zscore(SENTENCES)),
        *((f"abtt:{d}", all_but_the_top(SENTENCES, d)) for d in (0, 5)),
        *((f"whiten:{count}", whiten(SENTENCES, count)) for count in (4, 7)),
        ("pca:4", pca(SENTENCES, 4)),
    ],
)
def test_steps_equal_their_definitions(spec: str, reference: np.ndarray) -> None:
    shaped = Chain.parse([spec]).fit(SENTENCES).transform(SENTENCES)
    assert shaped.shape == reference.shape
    if spec.startswith(("whiten", "pca")):  # the signs of components are arbitrary
        np.testing.assert_allclose(np.abs(shaped), np.abs(reference), atol=1e-8)
    else:
        np.testing.assert_allclose(shaped, reference, atol=1e-10)


def test_soft_whitening_lies_between_whitening_and_centring() -> None:
    for eps in (1e-3, 0.1, 2.0):
        shaped = Chain.parse([f"whiten:eps={eps}"]).fit(SENTENCES).transform(SENTENCES)
        np.testing.assert_allclose(cosines(shaped), cosines(soft_zca(SENTENCES, eps)), atol=1e-8)
    nearly_centred = Whiten(eps=1e9).fit(SENTENCES).transform(SENTENCES)
    np.testing.assert_allclose(cosines(nearly_centred), cosines(centre(SENTENCES)), atol=1e-6)


@pytest.mark.parametrize("step", [ZScore(), Whiten()])
@pytest.mark.parametrize("kind", [np.float64, np.float32])
def test_dead_columns_change_no_cosine(step: ZScore | Whiten, kind: type) -> None:
    vectors, alive = with_dead_columns()
    shaped = step.fit(vectors.astype(kind)).transform(vectors.astype(kind))
    without = step.fit(alive.astype(kind)).transform(alive.astype(kind))
    np.testing.assert_allclose(cosines(shaped), cosines(without), atol=1e-3)
    assert np.abs(shaped[:, DEAD]).max() < 1e-6 or isinstance(step, Whiten) or kind is np.float32


def test_fewer_rows_than_dimensions_whiten_to_their_rank() -> None:
    vectors = sentence_like(5, 12)
    shaped = Whiten().fit(vectors).transform(vectors)
    assert shaped.shape == (5, 12)
    assert np.count_nonzero(np.abs(shaped).max(axis=0)) == 4  # five points span four directions around their mean
    np.testing.assert_allclose(shaped @ shaped.T, 4 * (np.eye(5) - 0.2), atol=1e-8)


@pytest.mark.parametrize("specs", ["centre|whiten", "normalize|whiten"])
def test_rounding_between_equal_rows_is_no_spread(specs: str) -> None:
    vectors = np.repeat(sentence_like(1, 6), 9, axis=0)
    vectors[::2] *= 1 + 1e-12
    with pytest.raises(InputError, match="9 samples whose vectors are equal"):
        Chain.parse(specs.split("|")).fit(vectors)


@pytest.mark.parametrize(("specs", "rows"), [("abtt:2", 3), ("whiten:1|abtt:1", 9)])
def test_the_last_component_is_not_removed(specs: str, rows: int) -> None:
    with pytest.raises(InputError, match=rf"n_samples={rows}, .* have only \d"):
        Chain.parse(specs.split("|")).fit(sentence_like(rows, 6))


@pytest.mark.parametrize(("rows", "distance"), [(1, 0), (7, 1e3), (50, 1e3)])
def test_moments_are_independent_of_the_blocks(rows: int, distance: float, monkeypatch: pytest.MonkeyPatch) -> None:
    vectors = sentence_like(50, 5)
    monkeypatch.setattr(affine_module, "blocks", lambda array: np.split(array, range(rows, 50, rows)))
    moments = Moments.of(vectors + distance)
    assert moments.count == 50
    np.testing.assert_allclose(moments.mean, vectors.mean(axis=0) + distance, atol=1e-10)
    np.testing.assert_allclose(moments.scatter / 49, np.cov(vectors.T), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(("count", "components", "warns"), [(30, None, True), (80, 40, False)])
def test_whitening_few_vectors_warns(
    count: int, components: int | None, warns: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """With fewer vectors than dimensions all of them end equally far apart, which no score tells."""
    affine_module._warn.cache_clear()
    vectors = np.random.default_rng(0).normal(size=(count, 48))
    shaped = Whiten(components).fit(vectors).transform(vectors)
    assert bool(caplog.records) == warns
    if components is None:
        assert np.ptp(cosines(shaped)[np.triu_indices(count, 1)]) < 1e-6
        assert "whiten learns 48 dimensions from 30 texts" in caplog.text
