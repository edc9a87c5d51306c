"""EncoderTransformer: an Encoder in scikit-learn's pipelines, searches and copies."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import sklearn.exceptions
from sentence_transformers import SentenceTransformer
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import check_estimator
from transformers import AutoModel

from essent import Encoder, EncoderTransformer
from essent.errors import InputError, ModelError, NotFittedError, RecipeError, UnsupportedRecipeError
from families import CORPUS
from samples import TEXTS

TRAIN = CORPUS[:24]
LABELLED_TEXTS, CLASSES = [*TRAIN[:8], *TEXTS], [n % 2 for n in range(8 + len(TEXTS))]


@pytest.mark.parametrize("recipe", [None, "weights=idf*ditto:1-1 | zscore | whiten:5"])
def test_transform_matches_the_encoder(bert: Path, recipe: str | None) -> None:
    transformer = EncoderTransformer(bert, recipe, batch_size=4, device="cpu").fit(TRAIN)
    expected = Encoder(bert, recipe, device="cpu").fit(TRAIN).encode(TEXTS)
    for texts in (TEXTS, pd.Series(TEXTS, index=range(3, 3 + len(TEXTS))), np.array(TEXTS), pa.array(TEXTS)):
        vectors = transformer.transform(texts)
        assert vectors.dtype == np.float32
        np.testing.assert_allclose(vectors, expected, atol=1e-5)
    assert transformer.transform([]).shape == (0, expected.shape[1])
    copied = pickle.loads(pickle.dumps(transformer))  # noqa: S301
    np.testing.assert_array_equal(copied.transform(TEXTS), transformer.transform(TEXTS))
    assert not hasattr(pickle.loads(pickle.dumps(clone(transformer))), "encoder_")  # noqa: S301
    fitted = transformer.fit(TRAIN).transform(TRAIN)
    np.testing.assert_allclose(clone(transformer).fit_transform(text for text in TRAIN), fitted, atol=1e-5)


def test_every_setting_reaches_the_encoder(bert: Path) -> None:
    settings = {"prompt_name": "query", "normalize_embeddings": True, "truncate_dim": 5}
    prompts = {"prompts": {"query": "the "}}
    transformer = EncoderTransformer(bert, "mean | zscore", **settings, options=prompts).fit(TRAIN)
    encoder = Encoder(bert, "mean | zscore", **prompts).fit(TRAIN, prompt_name="query")
    np.testing.assert_allclose(transformer.transform(TEXTS), encoder.encode(TEXTS, **settings), atol=1e-5)
    transformer.set_params(prompt_name=None, prompt="a ").fit(TRAIN)
    encoder.fit(TRAIN, prompt="a ")
    expected_vectors = encoder.encode(TEXTS, prompt="a ", normalize_embeddings=True, truncate_dim=5)
    np.testing.assert_allclose(transformer.transform(TEXTS), expected_vectors, atol=1e-5)


def test_a_loaded_model_is_shared_and_not_copied(shell_of: Callable[[str], SentenceTransformer]) -> None:
    shell = shell_of("bert")
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
    with pytest.raises(RecipeError):
        EncoderTransformer(str(tmp_path / "saved"), "mean").fit(TRAIN)


def test_errors_are_raised_in_fit(bert: Path) -> None:
    frame = pd.DataFrame({"text": TRAIN, "length": [float(len(text)) for text in TRAIN]})
    columns = make_column_transformer((EncoderTransformer(bert, "mean"), "text"), remainder="passthrough")
    assert columns.fit_transform(frame).shape == (24, 33)
    with pytest.raises(sklearn.exceptions.NotFittedError, match="call fit first") as caught:
        EncoderTransformer(bert).transform(TEXTS)
    assert isinstance(caught.value, NotFittedError)
    for texts, message in ((frame, "give one column"), ([], "at least one text")):
        with pytest.raises(InputError, match=message):
            EncoderTransformer(bert).fit(texts)  # type: ignore[arg-type]
    for model, recipe, error in (
        (bert, "meen", RecipeError),
        (AutoModel.from_pretrained(bert), None, ModelError),
        (bert, "mean layers=9", UnsupportedRecipeError),
    ):
        with pytest.raises(error):
            EncoderTransformer(model, recipe).fit(TRAIN)
    with pytest.warns(UserWarning, match="Can't test estimator"):  # scikit-learn has none for texts but the interface's
        check_estimator(EncoderTransformer(str(bert)))


def test_a_search_over_recipes_shares_a_loaded_model(
    bert: Path, shell_of: Callable[[str], SentenceTransformer]
) -> None:
    search = grid(shell_of("bert"), ["mean", "mean | centre", "weights=remove:3*ditto:2-1 | zscore"])
    search.fit(LABELLED_TEXTS, CLASSES)
    best = Encoder(bert, search.best_params_["encodertransformer__recipe"]).fit(LABELLED_TEXTS)
    np.testing.assert_allclose(search.best_estimator_[0].transform(TEXTS), best.encode(TEXTS), atol=1e-5)


def grid(model: Any, recipes: list[str], **settings: Any) -> GridSearchCV:
    steps = make_pipeline(EncoderTransformer(model, "mean"), LogisticRegression())
    return GridSearchCV(steps, {"encodertransformer__recipe": recipes}, cv=3, error_score="raise", **settings)


@pytest.mark.slow
def test_worker_processes_and_memory_change_nothing(bert: Path, tmp_path: Path) -> None:
    recipes = ["mean", "first-last", "weights=idf | zscore", "ditto:2-1"]
    alone = grid(str(bert), recipes).fit(LABELLED_TEXTS, CLASSES)
    with_memory = grid(str(bert), recipes)
    with_memory.estimator.memory = str(tmp_path / "memory")
    for search in (grid(str(bert), recipes, n_jobs=2), with_memory, clone(with_memory)):
        search.fit(LABELLED_TEXTS, CLASSES)
        np.testing.assert_array_equal(search.cv_results_["mean_test_score"], alone.cv_results_["mean_test_score"])
        np.testing.assert_allclose(search.predict_proba(TEXTS), alone.predict_proba(TEXTS), atol=1e-4)
