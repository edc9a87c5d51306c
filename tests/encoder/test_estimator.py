"""EncoderTransformer: an Encoder in scikit-learn's pipelines, searches and copies."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import sklearn.exceptions
from sentence_transformers import SentenceTransformer
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import check_estimator

from essent import Encoder, EncoderTransformer
from essent.errors import NotFittedError, RecipeError
from families import CORPUS
from samples import TEXTS

TRAIN = CORPUS[:24]


@pytest.mark.parametrize("recipe", [None, "weights=idf*ditto:1-1 | zscore | whiten:5"])
def test_transform_matches_the_encoder(bert: Path, recipe: str | None) -> None:
    transformer = EncoderTransformer(bert, recipe, batch_size=4, device="cpu").fit(TRAIN)
    expected = Encoder(bert, recipe, device="cpu").fit(TRAIN).encode(TEXTS)
    vectors = transformer.transform(pd.Series(TEXTS))
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(vectors, expected, atol=1e-5)
    assert transformer.transform([]).shape == (0, expected.shape[1])
    copied = pickle.loads(pickle.dumps(transformer))  # noqa: S301
    np.testing.assert_array_equal(copied.transform(TEXTS), vectors)
    fitted = transformer.fit(TRAIN).transform(TRAIN)
    np.testing.assert_allclose(clone(transformer).fit_transform(text for text in TRAIN), fitted, atol=1e-5)


def test_every_setting_reaches_the_encoder(bert: Path) -> None:
    settings = {"normalize_embeddings": True, "truncate_dim": 5}
    prompts = {"prompts": {"query": "the "}}
    transformer, encoder = (
        EncoderTransformer(bert, "mean | zscore", **settings, options=prompts),
        Encoder(bert, "mean | zscore", **prompts),
    )
    for prompt in ({"prompt_name": "query", "prompt": None}, {"prompt_name": None, "prompt": "a "}):
        vectors = transformer.set_params(**prompt).fit(TRAIN).transform(TEXTS)
        expected = encoder.fit(TRAIN, **prompt).encode(TEXTS, **prompt, **settings)
        np.testing.assert_allclose(vectors, expected, atol=1e-5)


def test_a_loaded_model_is_shared_and_not_copied(shell: SentenceTransformer) -> None:
    transformer = EncoderTransformer(shell, "mean | zscore").set_output(transform="pandas").fit(TRAIN)
    copied = clone(transformer)
    assert copied.model is shell
    assert not hasattr(copied, "encoder_")
    assert copied.get_params() == transformer.get_params()
    frame = copied.fit(TRAIN).transform(pd.Series(TEXTS, index=range(3, 3 + len(TEXTS))))
    assert list(frame.columns) == [f"encodertransformer{n}" for n in range(32)]
    assert frame.index[0] == 3
    assert set(copied.encoder_.parameters()) == set(transformer.encoder_.parameters())


def test_a_saved_encoder_is_fitted_separately(bert: Path, tmp_path: Path) -> None:
    Encoder(bert, "mean | zscore").fit(TRAIN).save(str(tmp_path / "saved"))
    transformer = EncoderTransformer(str(tmp_path / "saved")).fit(TRAIN[:6])
    expected = Encoder(bert, "mean | zscore").fit(TRAIN[:6]).encode(TEXTS)
    np.testing.assert_allclose(transformer.transform(TEXTS), expected, atol=1e-4)


def test_errors_are_raised_in_fit(bert: Path) -> None:
    frame = pd.DataFrame({"text": TRAIN, "length": [float(len(text)) for text in TRAIN]})
    columns = make_column_transformer((EncoderTransformer(bert, "mean"), "text"), remainder="passthrough")
    assert columns.fit_transform(frame).shape == (24, 33)
    with pytest.raises(sklearn.exceptions.NotFittedError, match="call fit first") as caught:
        EncoderTransformer(bert).transform(TEXTS)
    assert isinstance(caught.value, NotFittedError)
    with pytest.raises(RecipeError, match="meen"):
        EncoderTransformer(bert, "meen").fit(TRAIN)
    with pytest.warns(UserWarning, match="Can't test estimator"):  # scikit-learn has none for texts but the interface's
        check_estimator(EncoderTransformer(str(bert)))


@pytest.mark.slow
def test_searches_over_recipes(bert: Path, shell: SentenceTransformer, tmp_path: Path) -> None:
    """With a shared model; worker processes and a memory of steps change nothing."""
    texts, classes = [*TRAIN[:8], *TEXTS], [0, 1] * 8

    def grid(model: Any, **settings: Any) -> GridSearchCV:
        steps = make_pipeline(EncoderTransformer(model, "mean"), LogisticRegression())
        recipes = {"encodertransformer__recipe": ["mean", "first-last", "weights=idf | zscore", "ditto:2-1"]}
        return GridSearchCV(steps, recipes, cv=3, error_score="raise", **settings)

    alone, with_memory = grid(shell).fit(texts, classes), grid(str(bert))
    best = Encoder(bert, alone.best_params_["encodertransformer__recipe"]).fit(texts)
    np.testing.assert_allclose(alone.best_estimator_[0].transform(TEXTS), best.encode(TEXTS), atol=1e-5)
    with_memory.estimator.memory = str(tmp_path / "memory")
    for search in (grid(str(bert), n_jobs=2), with_memory, clone(with_memory)):
        search.fit(texts, classes)
        np.testing.assert_array_equal(search.cv_results_["mean_test_score"], alone.cv_results_["mean_test_score"])
        np.testing.assert_allclose(search.predict_proba(TEXTS), alone.predict_proba(TEXTS), atol=1e-4)
