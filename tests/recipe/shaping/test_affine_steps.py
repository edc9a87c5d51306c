"""Centre, z-score, all-but-the-top and whitening against loops and scikit-learn, and where the data has no spread."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from shaping_reference import all_but_the_top, centre, cosines, sentence_like, whiten, zscore
from sklearn.decomposition import PCA
from sklearn.preprocessing import StandardScaler

from essent.errors import InputError, RecipeError
from essent.recipe.shaping import affine as affine_module
from essent.recipe.shaping.affine import AllButTheTop, Centre, Moments, Whiten, ZScore
from essent.recipe.shaping.chain import Chain

VECTORS = sentence_like(60, 7)
DEAD = [3, 11, 17]


def with_dead_columns() -> tuple[np.ndarray, np.ndarray]:
    """Vectors with three columns constant up to float noise, as all-MiniLM-L6-v2's 127, 223 and 319; and without."""
    vectors = sentence_like(400, 24, seed=3)
    vectors[:, DEAD] = [0.31, -0.02, 1.7] + 1e-8 * np.random.default_rng(5).standard_normal((400, 3))
    return vectors, np.delete(vectors, DEAD, axis=1)


def test_centre_equals_its_definition() -> None:
    np.testing.assert_allclose(Centre().fit(VECTORS).transform(VECTORS), centre(VECTORS), atol=1e-12)


def test_zscore_equals_its_definition_and_scikit_learn() -> None:
    shaped = ZScore().fit(VECTORS).transform(VECTORS)
    np.testing.assert_allclose(shaped, zscore(VECTORS), atol=1e-10)
    np.testing.assert_allclose(shaped, StandardScaler().fit_transform(VECTORS), atol=1e-10)


@pytest.mark.parametrize("d", [0, 1, 2, 5])
def test_abtt_equals_its_definition(d: int) -> None:
    np.testing.assert_allclose(AllButTheTop(d).fit(VECTORS).transform(VECTORS), all_but_the_top(VECTORS, d), atol=1e-10)


@pytest.mark.parametrize("count", [None, 1, 4, 7])
def test_whiten_equals_its_definition_and_pca(count: int | None) -> None:
    shaped = Whiten(count).fit(VECTORS).transform(VECTORS)
    assert shaped.shape == (60, count or 7)
    for reference in (whiten(VECTORS, count or 7), PCA(count, whiten=True).fit_transform(VECTORS)):
        np.testing.assert_allclose(shaped @ shaped.T, reference @ reference.T, atol=1e-6)


def test_whiten_gives_the_identity_covariance() -> None:
    np.testing.assert_allclose(np.cov(Whiten().fit(VECTORS).transform(VECTORS).T), np.eye(7), atol=1e-9)


def test_whiten_gives_the_same_bytes_twice() -> None:
    assert Whiten().fit(VECTORS).matrix_.tobytes() == Whiten().fit(VECTORS.copy()).matrix_.tobytes()


@pytest.mark.parametrize("step", [ZScore(), Whiten()])
@pytest.mark.parametrize("kind", [np.float64, np.float32])
def test_dead_columns_change_no_cosine(step: ZScore | Whiten, kind: type) -> None:
    vectors, alive = with_dead_columns()
    shaped = step.fit(vectors.astype(kind)).transform(vectors.astype(kind))
    without = step.fit(alive.astype(kind)).transform(alive.astype(kind))
    np.testing.assert_allclose(cosines(shaped), cosines(without), atol=1e-3)


def test_dead_columns_stay_small_after_a_zscore() -> None:
    vectors, _ = with_dead_columns()
    shaped = ZScore().fit(vectors).transform(vectors)
    assert np.abs(shaped[:, DEAD]).max() < 1e-6
    np.testing.assert_allclose(np.delete(shaped, DEAD, axis=1).std(axis=0), 1.0)


def test_noise_is_relative_to_the_scale() -> None:
    for scale in (1e-12, 1e9):
        np.testing.assert_allclose(ZScore().fit(VECTORS * scale).transform(VECTORS * scale), zscore(VECTORS), atol=1e-8)
        np.testing.assert_allclose(
            cosines(Whiten().fit(VECTORS * scale).transform(VECTORS * scale)), cosines(whiten(VECTORS, 7)), atol=1e-6
        )


def test_fewer_rows_than_dimensions_whiten_to_their_rank() -> None:
    vectors = sentence_like(5, 12)
    shaped = Whiten().fit(vectors).transform(vectors)
    assert shaped.shape == (5, 12)
    assert np.count_nonzero(np.abs(shaped).max(axis=0)) == 4  # five points span four directions around their mean
    np.testing.assert_allclose(shaped @ shaped.T, 4 * (np.eye(5) - 0.2), atol=1e-8)


@pytest.mark.parametrize("specs", ["whiten", "centre|whiten", "normalize|whiten", "zscore|whiten"])
def test_rounding_between_equal_rows_is_no_spread(specs: str) -> None:
    vectors = np.repeat(sentence_like(1, 6), 9, axis=0)
    vectors[::2] *= 1 + 1e-12
    with pytest.raises(InputError, match="9 samples whose vectors are equal"):
        Chain.parse(specs.split("|")).fit(vectors)


@pytest.mark.parametrize(
    ("specs", "rows"), [("abtt:2", 3), ("abtt:4", 5), ("centre|abtt:1", 2), ("whiten:1|abtt:1", 9)]
)
def test_the_last_component_is_not_removed(specs: str, rows: int) -> None:
    with pytest.raises(InputError, match=rf"n_samples={rows}, .* components, and it removes"):
        Chain.parse(specs.split("|")).fit(sentence_like(rows, 6))


@pytest.mark.parametrize("specs", ["zscore", "centre|zscore", "abtt:2|zscore"])
def test_rounding_is_never_scaled_up(specs: str) -> None:
    for rows in (2, 3) if "abtt" not in specs else (4, 5):
        vectors = sentence_like(rows, 6)
        second = sentence_like(4, 6, seed=1)
        shaped = Chain.parse(specs.split("|")).fit(vectors).transform(second)
        smallest = vectors.std(axis=0)[vectors.std(axis=0) > 0].min(initial=1.0)
        assert np.abs(shaped).max() < 100 / smallest


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), rows=st.integers(2, 40), dimensions=st.integers(1, 8))
def test_the_order_of_rows_does_not_matter(seed: int, rows: int, dimensions: int) -> None:
    vectors = sentence_like(rows + dimensions, dimensions, seed)
    shuffled = np.random.default_rng(seed).permutation(vectors)
    for step in (Centre(), ZScore(), *([AllButTheTop(1)] if dimensions > 1 else [])):
        np.testing.assert_allclose(
            step.fit(vectors).transform(vectors), step.fit(shuffled).transform(vectors), atol=1e-8
        )


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), cuts=st.lists(st.integers(1, 49), max_size=4, unique=True))
def test_moments_are_independent_of_the_batches(seed: int, cuts: list[int]) -> None:
    vectors = sentence_like(50, 5, seed)
    streamed = Moments.streamed(np.split(vectors, sorted(cuts)))
    assert streamed.count == 50
    np.testing.assert_allclose(streamed.mean, vectors.mean(axis=0), atol=1e-12)
    np.testing.assert_allclose(streamed.scatter / 49, np.cov(vectors.T), atol=1e-10)


def test_moments_survive_a_mean_far_from_zero() -> None:
    vectors = sentence_like(200, 4)
    far = Moments.streamed(np.array_split(vectors + 1e3, 7))
    np.testing.assert_allclose(far.scatter / 199, np.cov(vectors.T), rtol=1e-6, atol=1e-9)


def test_half_precision_modules_keep_the_fit() -> None:
    step = Whiten().fit(VECTORS)
    module = step.module().half()
    assert module.matrix.dtype == torch.float64
    shaped = module(torch.from_numpy(VECTORS).half())
    assert shaped.dtype == torch.float16
    np.testing.assert_allclose(shaped.float(), step.transform(VECTORS), atol=0.1)


@pytest.mark.parametrize("make", [lambda: AllButTheTop(-1), lambda: Whiten(0), lambda: AllButTheTop("two")])  # type: ignore[arg-type]
def test_settings_out_of_range_are_refused(make: object) -> None:
    with pytest.raises(RecipeError, match="must be an integer"):
        make()  # type: ignore[operator]


@pytest.mark.parametrize(
    ("count", "components", "warns"), [(30, None, True), (64, 40, True), (80, 40, False), (30, 8, False)]
)
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
