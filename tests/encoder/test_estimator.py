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
def test_it_gives_what_the_encoder_gives(bert: Path, recipe: str | None) -> None:
    made = EncoderTransformer(bert, recipe, batch_size=4, device="cpu").fit(TRAIN)
    expected = Encoder(bert, recipe, device="cpu").fit(TRAIN).encode(TEXTS)
    for texts in (TEXTS, pd.Series(TEXTS, index=range(3, 3 + len(TEXTS))), np.array(TEXTS), pa.array(TEXTS)):
        vectors = made.transform(texts)
        assert vectors.dtype == np.float32
        np.testing.assert_allclose(vectors, expected, atol=1e-5)
    assert made.transform([]).shape == (0, expected.shape[1])
    assert made.encoder_.recipe == Recipe.parse(recipe or "mean")


def test_every_setting_reaches_the_encoder(bert: Path) -> None:
    settings = {"prompt_name": "query", "normalize_embeddings": True, "truncate_dim": 5}
    made = EncoderTransformer(bert, "mean | zscore", **settings, options={"prompts": {"query": "the "}}).fit(TRAIN)
    encoder = Encoder(bert, "mean | zscore", prompts={"query": "the "}).fit(TRAIN, prompt_name="query")
    np.testing.assert_allclose(made.transform(TEXTS), encoder.encode(TEXTS, **settings), atol=1e-5)
    made.set_params(prompt_name=None, prompt="a ").fit(TRAIN)
    encoder.fit(TRAIN, prompt="a ")
    shown = encoder.encode(TEXTS, prompt="a ", normalize_embeddings=True, truncate_dim=5)
    np.testing.assert_allclose(made.transform(TEXTS), shown, atol=1e-5)


def test_a_search_over_recipes_loads_the_model_once(bert: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = []

    def count(*given: Any, **named: Any) -> SentenceTransformer:
        loaded.append(given)
        return opened(*given, **named)

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
    made = EncoderTransformer(bert, "mean | zscore").fit(TRAIN)
    before = made.transform(TEXTS)
    made.transform(TRAIN[:3])
    np.testing.assert_array_equal(made.transform(TEXTS), before)
    assert not np.allclose(before, EncoderTransformer(bert, "mean | zscore").fit(TRAIN[:6]).transform(TEXTS), atol=1e-3)


def test_another_model_or_a_changed_one_is_read_again(folder_of: Callable[[str], Path], tmp_path: Path) -> None:
    first, second = folder_of("bert"), folder_of("distilbert")
    for folder in (first, second, first):
        made = EncoderTransformer(folder, "mean").fit(TRAIN).transform(TEXTS)
        np.testing.assert_allclose(made, Encoder(folder, "mean").encode(TEXTS), atol=1e-5)
    changing = tmp_path / "model"
    for folder in (first, second):
        SentenceTransformer(str(folder), device="cpu").save(str(changing))
        made = EncoderTransformer(changing, "mean").fit(TRAIN).transform(TEXTS)
        np.testing.assert_allclose(made, Encoder(folder, "mean").encode(TEXTS), atol=1e-5)


def test_a_loaded_model_is_shared_and_not_copied(shell_of: Callable[[str], SentenceTransformer]) -> None:
    shell = shell_of("bert")
    made = EncoderTransformer(shell, "mean | zscore").set_output(transform="pandas").fit(TRAIN)
    copied = clone(made)
    assert copied.model is shell
    assert not hasattr(copied, "encoder_")
    assert copied.get_params() == made.get_params()
    frame = copied.fit(TRAIN).transform(pd.Series(TEXTS, index=range(3, 3 + len(TEXTS))))
    assert list(frame.columns) == list(made.get_feature_names_out()) == [f"encodertransformer{n}" for n in range(32)]
    assert frame.index[0] == 3
    assert set(copied.encoder_.parameters()) == set(made.encoder_.parameters())


def test_it_can_be_kept_and_sent(bert: Path) -> None:
    made = EncoderTransformer(bert, "weights=idf | zscore").fit(TRAIN)
    again = pickle.loads(pickle.dumps(made))  # noqa: S301
    np.testing.assert_array_equal(again.transform(TEXTS), made.transform(TEXTS))
    assert not hasattr(pickle.loads(pickle.dumps(clone(made))), "encoder_")  # noqa: S301


def test_a_folder_that_an_encoder_saved_is_fitted_on_its_own(bert: Path, tmp_path: Path) -> None:
    Encoder(bert, "mean | zscore").fit(TRAIN).save(str(tmp_path / "saved"))
    made = EncoderTransformer(str(tmp_path / "saved")).fit(TRAIN[:6])
    expected = Encoder(bert, "mean | zscore").fit(TRAIN[:6]).encode(TEXTS)
    np.testing.assert_allclose(made.transform(TEXTS), expected, atol=1e-4)
    with pytest.raises(RecipeError):
        EncoderTransformer(str(tmp_path / "saved"), "mean").fit(TRAIN)


def test_a_column_of_a_frame(bert: Path) -> None:
    frame = pd.DataFrame({"text": TRAIN, "length": [float(len(text)) for text in TRAIN]})
    columns = make_column_transformer((EncoderTransformer(bert, "mean"), "text"), remainder="passthrough")
    assert columns.fit_transform(frame).shape == (24, 33)
    with pytest.raises(InputError, match="give one column"):
        EncoderTransformer(bert, "mean").fit(frame)


def test_what_is_wrong_is_said_in_fit(bert: Path) -> None:
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
    found: list[int] = []
    run = Backbone.states

    def counting(backbone: Backbone, tokens: Tokens, *rest: Any) -> Any:
        found.append(len(tokens))
        return run(backbone, tokens, *rest)

    monkeypatch.setattr(Backbone, "states", counting)
    return found


SOME, CLASSES = [*TRAIN[:8], *TEXTS], [n % 2 for n in range(8 + len(TEXTS))]


def grid(model: Path, recipes: list[str], **settings: Any) -> GridSearchCV:
    steps = make_pipeline(EncoderTransformer(str(model), "mean"), LogisticRegression())
    return GridSearchCV(steps, {"encodertransformer__recipe": recipes}, cv=3, error_score="raise", **settings)


def test_a_search_computes_each_text_once_for_all_folds_and_shapings(bert: Path, passes: list[int]) -> None:
    grid(bert, ["mean", "mean | centre", "mean | zscore"]).fit(SOME, CLASSES)
    assert sum(passes) == len(set(SOME))


@pytest.mark.slow
def test_a_search_over_other_weights_and_layers_computes_each_text_once_more(bert: Path, passes: list[int]) -> None:
    recipes = ["mean", "first-last", "weights=idf", "weights=idf | zscore", "layers=1", "ditto:2-1", "first-last-idf"]
    search = grid(bert, recipes).fit(SOME, CLASSES)
    assert sum(passes) == 2 * len(set(SOME))
    alone = []
    for recipe in recipes:  # the same folds, nothing kept
        for train, test in StratifiedKFold(3).split(SOME, CLASSES):
            encoder = Encoder(bert, recipe).fit([SOME[i] for i in train])
            fitted = LogisticRegression().fit(encoder.encode([SOME[i] for i in train]), np.array(CLASSES)[train])
            alone.append(fitted.score(encoder.encode([SOME[i] for i in test]), np.array(CLASSES)[test]))
    means = np.array(alone).reshape(-1, 3).mean(axis=1)
    np.testing.assert_allclose(search.cv_results_["mean_test_score"], means)


@pytest.mark.parametrize("recipe", ["weights=idf", "weights=sif", "weights=idf*ditto:2-1 | zscore", "weights=remove:3"])
def test_kept_states_are_weighted_by_the_counts_of_the_fit_alone(bert: Path, recipe: str) -> None:
    for other in ("mean", "cls", "ditto:1-1"):
        EncoderTransformer(bert, other).fit_transform(SOME)
    for fitted in (TRAIN[:4], TRAIN[2:7], SOME):
        made = EncoderTransformer(bert, recipe).fit(fitted)
        expected = Encoder(bert, recipe).fit(fitted)
        np.testing.assert_array_equal(made.encoder_.module.stats.count, expected.module.stats.count)
        np.testing.assert_allclose(made.transform(SOME), expected.encode(SOME), atol=2e-5)


@pytest.mark.slow
def test_worker_processes_and_kept_steps_give_the_same(bert: Path, tmp_path: Path) -> None:
    recipes = ["mean", "first-last", "weights=idf | zscore", "ditto:2-1"]
    alone = grid(bert, recipes).fit(SOME, CLASSES)
    workers = grid(bert, recipes, n_jobs=2).fit(SOME, CLASSES)
    kept = grid(bert, recipes)
    kept.estimator.memory = str(tmp_path / "memory")
    for search in (workers, kept.fit(SOME, CLASSES), clone(kept).fit(SOME, CLASSES)):
        np.testing.assert_array_equal(search.cv_results_["mean_test_score"], alone.cv_results_["mean_test_score"])
        np.testing.assert_allclose(search.predict_proba(TEXTS), alone.predict_proba(TEXTS), atol=1e-4)


def test_kept_vectors_are_those_that_are_computed(bert: Path) -> None:
    forget_model()
    kept = EncoderTransformer(str(bert), "weights=idf | zscore")
    first, again = kept.fit(TRAIN).transform(TEXTS), kept.fit(TRAIN).transform(TEXTS)
    np.testing.assert_array_equal(first, again)
    np.testing.assert_allclose(first, Encoder(bert, "weights=idf | zscore").fit(TRAIN).encode(TEXTS), atol=2e-5)


@pytest.mark.parametrize("tensor", ["weight of a layer", "one number of the embeddings", "behind torch's back"])
def test_other_weights_have_other_vectors(tensor: str, bert: Path) -> None:
    forget_model()
    made = EncoderTransformer(str(bert), "mean").fit(TRAIN)
    before = made.transform(TEXTS)
    model = made.encoder_.module.backbone.model
    with torch.no_grad():
        if tensor == "weight of a layer":
            next(p for name, p in model.named_parameters() if "layer.0" in name).mul_(1.5)
        elif tensor == "behind torch's back":  # which counts changes, and not this one
            next(p for name, p in model.named_parameters() if "layer.0" in name).data.mul_(1.5)
        else:
            ids = made.encoder_.module.ids(TEXTS)[0]
            model.get_input_embeddings().weight[ids[1], 3] += 1.0
    after = made.transform(TEXTS)
    assert np.abs(after - before).max() > 1e-4
    np.testing.assert_allclose(after, _fresh(made), atol=1e-5)
    forget_model()


def _fresh(made: EncoderTransformer) -> np.ndarray:
    made.encoder_.cache = None
    return made.transform(TEXTS)


def test_a_folder_keeps_vectors_for_the_next_run(bert: Path, tmp_path: Path, passes: list[int]) -> None:
    made = EncoderTransformer(str(bert), "mean", cache=tmp_path / "kept")
    first = made.fit(TRAIN).transform(TEXTS)
    forget_model()
    passes.clear()
    np.testing.assert_array_equal(clone(made).fit(TRAIN).transform(TEXTS), first)
    assert passes == []
    assert pickle.loads(pickle.dumps(made)).encoder_.cache.folder == tmp_path / "kept"  # noqa: S301
