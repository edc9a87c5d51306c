"""Centre, z-score, all-but-the-top and whitening against loops and scikit-learn, and where the data has no spread."""

from __future__ import annotations

import numpy as np
import pytest
from shaping_reference import all_but_the_top, centre, cosines, pca, sentence_like, soft_zca, whiten, zscore

from essent.errors import InputError
from essent.recipe.recipe import Recipe
from essent.recipe.shaping import affine as affine_module
from essent.recipe.shaping.affine import Moments, Whiten, ZScore
from essent.recipe.shaping.chain import Chain

VECTORS = sentence_like(60, 7)
DEAD = [3, 11, 17]


def with_dead_columns() -> tuple[np.ndarray, np.ndarray]:
    """Vectors with three columns constant up to float noise, as all-MiniLM-L6-v2's 127, 223 and 319; and without."""
    vectors = sentence_like(400, 24, seed=3)
    vectors[:, DEAD] = [0.31, -0.02, 1.7] + 1e-8 * np.random.default_rng(5).standard_normal((400, 3))
    return vectors, np.delete(vectors, DEAD, axis=1)


@pytest.mark.parametrize(
    ("spec", "reference"),
    [
        ("centre", centre(VECTORS)),
        ("zscore", zscore(VECTORS)),
        *((f"abtt:{d}", all_but_the_top(VECTORS, d)) for d in (0, 5)),
        *((f"whiten:{count}", whiten(VECTORS, count)) for count in (4, 7)),
        ("pca:4", pca(VECTORS, 4)),
    ],
)
def test_steps_equal_their_definitions(spec: str, reference: np.ndarray) -> None:
    shaped = Chain.parse([spec]).fit(VECTORS).transform(VECTORS)
    assert shaped.shape == reference.shape
    if spec.startswith(("whiten", "pca")):  # the signs of components are arbitrary
        np.testing.assert_allclose(np.abs(shaped), np.abs(reference), atol=1e-8)
    else:
        np.testing.assert_allclose(shaped, reference, atol=1e-10)


def test_soft_whitening_lies_between_whitening_and_centring() -> None:
    for eps in (1e-3, 0.1, 2.0):
        shaped = Chain.parse([f"whiten:eps={eps}"]).fit(VECTORS).transform(VECTORS)
        np.testing.assert_allclose(cosines(shaped), cosines(soft_zca(VECTORS, eps)), atol=1e-8)
    nearly_centred = Whiten(eps=1e9).fit(VECTORS).transform(VECTORS)
    np.testing.assert_allclose(cosines(nearly_centred), cosines(centre(VECTORS)), atol=1e-6)
    assert str(Recipe.parse("mean | whiten:4,eps=0.1 | pca:2")) == "mean | whiten:4,0.1 | pca:2"
    assert Recipe.parse("mean | whiten:eps=0") == Recipe.parse("mean | whiten")


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
