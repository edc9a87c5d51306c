"""EncoderTransformer: an Encoder in scikit-learn's pipelines, searches and copies."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import sklearn.exceptions
import torch
from sentence_transformers import SentenceTransformer
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import check_estimator
from transformers import AutoModel

import essent
import essent.encoder.estimator
from essent import Encoder, EncoderTransformer, Recipe
from essent.encoder.estimator import forget_model
from essent.errors import InputError, ModelError, NotFittedError, RecipeError, UnsupportedRecipeError
from essent.model.backbone import Backbone
from essent.recipe.types import Tokens
from families import CORPUS
from samples import TEXTS

opened = essent.encoder.estimator.open_model
TRAIN, LABELS = CORPUS[:24], np.arange(24) % 2


@pytest.fixture(autouse=True)
def nothing_loaded() -> Iterator[None]:
    essent.encoder.estimator.forget_model()
    yield
    essent.encoder.estimator.forget_model()


@pytest.mark.parametrize("recipe", [None, "mean layers=1", "weights=idf | zscore | whiten:5", "ditto:1-1"])
def test_transform_matches_the_encoder(bert: Path, recipe: str | None) -> None:
    transformer = EncoderTransformer(bert, recipe, batch_size=4, device="cpu").fit(TRAIN)
    expected = Encoder(bert, recipe, device="cpu").fit(TRAIN).encode(TEXTS)
    for texts in (TEXTS, pd.Series(TEXTS, index=range(3, 3 + len(TEXTS))), np.array(TEXTS), pa.array(TEXTS)):
        vectors = transformer.transform(texts)
        assert vectors.dtype == np.float32
        np.testing.assert_allclose(vectors, expected, atol=1e-5)
    assert transformer.transform([]).shape == (0, expected.shape[1])
    assert transformer.encoder_.recipe == Recipe.parse(recipe or "mean")


def test_every_setting_reaches_the_encoder(bert: Path) -> None:
    settings = {"prompt_name": "query", "normalize_embeddings": True, "truncate_dim": 5}
    transformer = EncoderTransformer(bert, "mean | zscore", **settings, options={"prompts": {"query": "the "}}).fit(
        TRAIN
    )
    encoder = Encoder(bert, "mean | zscore", prompts={"query": "the "}).fit(TRAIN, prompt_name="query")
    np.testing.assert_allclose(transformer.transform(TEXTS), encoder.encode(TEXTS, **settings), atol=1e-5)
    transformer.set_params(prompt_name=None, prompt="a ").fit(TRAIN)
    encoder.fit(TRAIN, prompt="a ")
    expected_vectors = encoder.encode(TEXTS, prompt="a ", normalize_embeddings=True, truncate_dim=5)
    np.testing.assert_allclose(transformer.transform(TEXTS), expected_vectors, atol=1e-5)


def test_a_search_over_recipes_loads_the_model_once(bert: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = []

    def count(*positional: Any, **named: Any) -> SentenceTransformer:
        loaded.append(positional)
        return opened(*positional, **named)

    monkeypatch.setattr(essent.encoder.estimator, "open_model", count)
    pipeline = make_pipeline(EncoderTransformer(bert), LogisticRegression(max_iter=50))
    recipes = ["mean", "weights=idf | zscore", "mean layers=1"]
    search = GridSearchCV(pipeline, {"encodertransformer__recipe": recipes}, cv=2, error_score="raise")
    search.fit(TRAIN, LABELS)
    assert len(loaded) == 1
    assert search.predict(TEXTS).shape == (len(TEXTS),)
    best = Encoder(bert, search.best_params_["encodertransformer__recipe"]).fit(TRAIN)
    np.testing.assert_allclose(search.best_estimator_[0].transform(TEXTS), best.encode(TEXTS), atol=1e-5)


def test_only_the_training_texts_are_learned_from(bert: Path) -> None:
    transformer = EncoderTransformer(bert, "mean | zscore").fit(TRAIN)
    before = transformer.transform(TEXTS)
    transformer.transform(TRAIN[:3])
    np.testing.assert_array_equal(transformer.transform(TEXTS), before)
    assert not np.allclose(before, EncoderTransformer(bert, "mean | zscore").fit(TRAIN[:6]).transform(TEXTS), atol=1e-3)


def test_a_changed_model_is_reloaded(folder_of: Callable[[str], Path], tmp_path: Path) -> None:
    first, second = folder_of("bert"), folder_of("distilbert")
    for folder in (first, second, first):
        vectors = EncoderTransformer(folder, "mean").fit(TRAIN).transform(TEXTS)
        np.testing.assert_allclose(vectors, Encoder(folder, "mean").encode(TEXTS), atol=1e-5)
    changing = tmp_path / "model"
    for folder in (first, second):
        SentenceTransformer(str(folder), device="cpu").save(str(changing))
        vectors = EncoderTransformer(changing, "mean").fit(TRAIN).transform(TEXTS)
        np.testing.assert_allclose(vectors, Encoder(folder, "mean").encode(TEXTS), atol=1e-5)


def test_a_loaded_model_is_shared_and_not_copied(shell_of: Callable[[str], SentenceTransformer]) -> None:
    shell = shell_of("bert")
    transformer = EncoderTransformer(shell, "mean | zscore").set_output(transform="pandas").fit(TRAIN)
    copied = clone(transformer)
    assert copied.model is shell
    assert not hasattr(copied, "encoder_")
    assert copied.get_params() == transformer.get_params()
    frame = copied.fit(TRAIN).transform(pd.Series(TEXTS, index=range(3, 3 + len(TEXTS))))
    assert (
        list(frame.columns)
        == list(transformer.get_feature_names_out())
        == [f"encodertransformer{n}" for n in range(32)]
    )
    assert frame.index[0] == 3
    assert set(copied.encoder_.parameters()) == set(transformer.encoder_.parameters())


def test_pickle_and_clone(bert: Path) -> None:
    transformer = EncoderTransformer(bert, "weights=idf | zscore").fit(TRAIN)
    again = pickle.loads(pickle.dumps(transformer))  # noqa: S301
    np.testing.assert_array_equal(again.transform(TEXTS), transformer.transform(TEXTS))
    assert not hasattr(pickle.loads(pickle.dumps(clone(transformer))), "encoder_")  # noqa: S301


def test_a_saved_encoder_is_fitted_separately(bert: Path, tmp_path: Path) -> None:
    Encoder(bert, "mean | zscore").fit(TRAIN).save(str(tmp_path / "saved"))
    transformer = EncoderTransformer(str(tmp_path / "saved")).fit(TRAIN[:6])
    expected = Encoder(bert, "mean | zscore").fit(TRAIN[:6]).encode(TEXTS)
    np.testing.assert_allclose(transformer.transform(TEXTS), expected, atol=1e-4)
    with pytest.raises(RecipeError):
        EncoderTransformer(str(tmp_path / "saved"), "mean").fit(TRAIN)


def test_a_column_of_a_frame(bert: Path) -> None:
    frame = pd.DataFrame({"text": TRAIN, "length": [float(len(text)) for text in TRAIN]})
    columns = make_column_transformer((EncoderTransformer(bert, "mean"), "text"), remainder="passthrough")
    assert columns.fit_transform(frame).shape == (24, 33)
    with pytest.raises(InputError, match="give one column"):
        EncoderTransformer(bert, "mean").fit(frame)


def test_errors_are_raised_in_fit(bert: Path) -> None:
    with pytest.raises(sklearn.exceptions.NotFittedError, match="call fit first") as caught:
        EncoderTransformer(bert).transform(TEXTS)
    assert isinstance(caught.value, NotFittedError)
    with pytest.raises(InputError, match="at least one text"):
        EncoderTransformer(bert).fit([])
    with pytest.raises(InputError, match="got str"):
        EncoderTransformer(bert).fit("one text")
    with pytest.raises(InputError, match="Text 1 is NoneType"):
        EncoderTransformer(bert).fit(["a", None])  # type: ignore[list-item]
    with pytest.raises(RecipeError):
        EncoderTransformer(bert, "meen").fit(TRAIN)
    with pytest.raises(ModelError, match="A bare BertModel"):
        EncoderTransformer(AutoModel.from_pretrained(bert)).fit(TRAIN)
    with pytest.raises(UnsupportedRecipeError):
        EncoderTransformer(bert, "mean layers=9").fit(TRAIN)


def test_scikit_learns_own_checks(bert: Path) -> None:
    with pytest.warns(UserWarning, match="Can't test estimator"):  # scikit-learn has none for texts but the interface's
        check_estimator(EncoderTransformer(str(bert)))


# -- what is kept between fits ----------------------------------------------------------------------------------------


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many texts went through the model, pass by pass."""
    batch_sizes: list[int] = []
    run = Backbone.states

    def counting(backbone: Backbone, tokens: Tokens, *arguments: Any) -> Any:
        batch_sizes.append(len(tokens))
        return run(backbone, tokens, *arguments)

    monkeypatch.setattr(Backbone, "states", counting)
    return batch_sizes


LABELLED_TEXTS, CLASSES = [*TRAIN[:8], *TEXTS], [n % 2 for n in range(8 + len(TEXTS))]


def grid(model: Path, recipes: list[str], **settings: Any) -> GridSearchCV:
    steps = make_pipeline(EncoderTransformer(str(model), "mean"), LogisticRegression())
    return GridSearchCV(steps, {"encodertransformer__recipe": recipes}, cv=3, error_score="raise", **settings)


def test_a_search_computes_each_text_a_single_time(bert: Path, passes: list[int]) -> None:
    grid(bert, ["mean", "mean | centre", "mean | zscore"]).fit(LABELLED_TEXTS, CLASSES)
    assert sum(passes) == len(set(LABELLED_TEXTS))


@pytest.mark.slow
def test_a_search_over_weights_and_layers_computes_each_text_twice(bert: Path, passes: list[int]) -> None:
    recipes = ["mean", "first-last", "weights=idf", "weights=idf | zscore", "layers=1", "ditto:2-1", "first-last-idf"]
    search = grid(bert, recipes).fit(LABELLED_TEXTS, CLASSES)
    assert sum(passes) == 2 * len(set(LABELLED_TEXTS))
    alone = []
    for recipe in recipes:  # the same folds, nothing kept
        for train, test in StratifiedKFold(3).split(LABELLED_TEXTS, CLASSES):
            encoder = Encoder(bert, recipe).fit([LABELLED_TEXTS[i] for i in train])
            fitted = LogisticRegression().fit(
                encoder.encode([LABELLED_TEXTS[i] for i in train]), np.array(CLASSES)[train]
            )
            alone.append(fitted.score(encoder.encode([LABELLED_TEXTS[i] for i in test]), np.array(CLASSES)[test]))
    means = np.array(alone).reshape(-1, 3).mean(axis=1)
    np.testing.assert_allclose(search.cv_results_["mean_test_score"], means)


@pytest.mark.parametrize("recipe", ["weights=idf", "weights=sif", "weights=idf*ditto:2-1 | zscore", "weights=remove:3"])
def test_cached_states_are_weighted_by_the_counts_of_the_fit(bert: Path, recipe: str) -> None:
    for warm_up_recipe in ("mean", "cls", "ditto:1-1"):
        EncoderTransformer(bert, warm_up_recipe).fit_transform(LABELLED_TEXTS)
    for fitted in (TRAIN[:4], TRAIN[2:7], LABELLED_TEXTS):
        transformer = EncoderTransformer(bert, recipe).fit(fitted)
        expected = Encoder(bert, recipe).fit(fitted)
        np.testing.assert_array_equal(transformer.encoder_.module.stats.count, expected.module.stats.count)
        np.testing.assert_allclose(transformer.transform(LABELLED_TEXTS), expected.encode(LABELLED_TEXTS), atol=2e-5)


@pytest.mark.slow
def test_worker_processes_and_memory_change_nothing(bert: Path, tmp_path: Path) -> None:
    recipes = ["mean", "first-last", "weights=idf | zscore", "ditto:2-1"]
    alone = grid(bert, recipes).fit(LABELLED_TEXTS, CLASSES)
    workers = grid(bert, recipes, n_jobs=2).fit(LABELLED_TEXTS, CLASSES)
    reference_grid = grid(bert, recipes)
    reference_grid.estimator.memory = str(tmp_path / "memory")
    for search in (
        workers,
        reference_grid.fit(LABELLED_TEXTS, CLASSES),
        clone(reference_grid).fit(LABELLED_TEXTS, CLASSES),
    ):
        np.testing.assert_array_equal(search.cv_results_["mean_test_score"], alone.cv_results_["mean_test_score"])
        np.testing.assert_allclose(search.predict_proba(TEXTS), alone.predict_proba(TEXTS), atol=1e-4)


def test_cached_vectors_match_computed_vectors(bert: Path) -> None:
    forget_model()
    reference_grid = EncoderTransformer(str(bert), "weights=idf | zscore")
    first, again = reference_grid.fit(TRAIN).transform(TEXTS), reference_grid.fit(TRAIN).transform(TEXTS)
    np.testing.assert_array_equal(first, again)
    np.testing.assert_allclose(first, Encoder(bert, "weights=idf | zscore").fit(TRAIN).encode(TEXTS), atol=2e-5)


@pytest.mark.parametrize("tensor", ["weight of a layer", "one number of the embeddings", "behind torch's back"])
def test_changed_weights_change_the_vectors(tensor: str, bert: Path) -> None:
    forget_model()
    transformer = EncoderTransformer(str(bert), "mean").fit(TRAIN)
    before = transformer.transform(TEXTS)
    model = transformer.encoder_.module.backbone.model
    with torch.no_grad():
        if tensor == "weight of a layer":
            next(p for name, p in model.named_parameters() if "layer.0" in name).mul_(1.5)
        elif tensor == "behind torch's back":  # which counts changes, and not this one
            next(p for name, p in model.named_parameters() if "layer.0" in name).data.mul_(1.5)
        else:
            ids = transformer.encoder_.module.ids(TEXTS)[0]
            model.get_input_embeddings().weight[ids[1], 3] += 1.0
    after = transformer.transform(TEXTS)
    assert np.abs(after - before).max() > 1e-4
    np.testing.assert_allclose(after, _fresh(transformer), atol=1e-5)
    forget_model()


def _fresh(transformer: EncoderTransformer) -> np.ndarray:
    transformer.encoder_.cache = None
    return transformer.transform(TEXTS)


def test_a_folder_keeps_vectors_for_the_next_run(bert: Path, tmp_path: Path, passes: list[int]) -> None:
    transformer = EncoderTransformer(str(bert), "mean", cache=tmp_path / "kept")
    first = transformer.fit(TRAIN).transform(TEXTS)
    forget_model()
    passes.clear()
    np.testing.assert_array_equal(clone(transformer).fit(TRAIN).transform(TEXTS), first)
    assert passes == []
    assert pickle.loads(pickle.dumps(transformer)).encoder_.cache.folder == tmp_path / "kept"  # noqa: S301
