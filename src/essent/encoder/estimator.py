"""A scikit-learn transformer of texts, for pipelines and searches over recipes."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin, clone
from sklearn.utils import Tags

from essent._core.arguments import ModelLike, TextsLike
from essent._core.texts import check_texts
from essent.encoder.encoder import Encoder
from essent.errors import not_fitted
from essent.recipe.recipe import Recipe

FITTING = ("prompt_name", "prompt", "batch_size", "show_progress_bar")  # arguments of `fit`
ENCODING = (*FITTING, "normalize_embeddings", "truncate_dim")  # arguments of `encode`


class EncoderTransformer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """A scikit-learn transformer of texts (N) to sentence vectors (N,K) by a recipe.

    `fit` loads the model. Copies share a loaded model: pass one to a search, which then reads its weights once.

    Args:
        model: a hub name, a folder, or a loaded SentenceTransformer, as for `Encoder`.
        recipe: a Recipe or its text form; None: the recipe of the model's own modules.
        prompt_name, prompt: put before every text; by default the model's default prompt.
        batch_size: texts per batch, see `Encoder.encode`.
        normalize_embeddings: scale vectors to length 1.
        truncate_dim: return only the first dimensions.
        device: "cpu", "cuda" …; None: the best one available.
        show_progress_bar: show progress bars.
        options: SentenceTransformer's other keyword arguments (revision, token, trust_remote_code …).

    Attributes:
        encoder_: the fitted Encoder; `encoder_.save(folder)` saves it.

    Example:
        >>> from sklearn.linear_model import LogisticRegression
        >>> from sklearn.pipeline import make_pipeline
        >>> from essent import EncoderTransformer
        >>> encoder = EncoderTransformer("sentence-transformers/all-MiniLM-L6-v2", "mean | zscore")
        >>> texts = ["A great film.", "I loved it.", "A dull film.", "I hated it."]
        >>> classifier = make_pipeline(encoder, LogisticRegression()).fit(texts, ["good", "good", "bad", "bad"])
        >>> classifier.predict(["I hated this film."]).tolist()
        ['bad']
    """

    def __init__(
        self,
        model: ModelLike,
        recipe: Recipe | str | None = None,
        *,
        prompt_name: str | None = None,
        prompt: str | None = None,
        batch_size: int = 32,
        normalize_embeddings: bool = False,
        truncate_dim: int | None = None,
        device: str | None = None,
        show_progress_bar: bool = False,
        options: dict[str, Any] | None = None,
    ) -> None:
        self.model = model
        self.recipe = recipe
        self.prompt_name = prompt_name
        self.prompt = prompt
        self.batch_size = batch_size
        self.normalize_embeddings = normalize_embeddings
        self.truncate_dim = truncate_dim
        self.device = device
        self.show_progress_bar = show_progress_bar
        self.options = options

    def fit(self, X: TextsLike, y: Any = None) -> EncoderTransformer:
        """Load the model, and fit the recipe on the texts if it has learned parts.

        Args:
            X: a list or column of texts.
            y: ignored.

        Raises:
            InputError: no texts, or a value that is not a str.
            RecipeError, UnsupportedRecipeError, ModelError: see `Encoder`.
        """
        self.encoder_ = self._load().fit(X, **self._settings(FITTING))
        return self

    def fit_transform(self, X: TextsLike, y: Any = None) -> np.ndarray:
        """Fit on texts and return their vectors (N,K) float32, with one pass of the model."""
        self.encoder_ = self._load()
        return self.encoder_.fit_encode(X, **self._settings(ENCODING))

    def transform(self, X: TextsLike) -> np.ndarray:
        """Compute the vectors (N,K) float32 of a list or column of texts.

        Raises:
            NotFittedError: `fit` has not been called.
            InputError: a value that is not a str.
        """
        if not hasattr(self, "encoder_"):
            raise not_fitted(f"This {type(self).__name__} is not fitted yet: call fit first.")
        texts = check_texts(X)
        if not texts:
            return np.empty((0, self._n_features_out), np.float32)
        vectors = self.encoder_.encode(texts, **self._settings(ENCODING))
        return np.asarray(vectors, np.float32)

    def _load(self) -> Encoder:
        device = {} if self.device is None else {"device": self.device}
        return Encoder(self.model, self.recipe, **{**(self.options or {}), **device})

    def _settings(self, names: Sequence[str]) -> dict[str, Any]:
        return {name: getattr(self, name) for name in names}

    @property
    def _n_features_out(self) -> int:  # for scikit-learn's get_feature_names_out
        dimensions = int(self.encoder_.get_embedding_dimension() or 0)
        return dimensions if self.truncate_dim is None else min(dimensions, self.truncate_dim)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = tags.input_tags.one_d_array = True
        tags.input_tags.two_d_array = False
        tags.transformer_tags.preserves_dtype = []
        return tags

    def __sklearn_clone__(self) -> EncoderTransformer:
        """Return an unfitted copy that shares a loaded model; scikit-learn would copy all its weights."""
        settings = self.get_params(deep=False)
        clone_ = type(self)(**{k: v if k == "model" else clone(v, safe=False) for k, v in settings.items()})
        for name in ("_sklearn_output_config", "_metadata_request"):  # of set_output and set_fit_request
            if name in vars(self):
                setattr(clone_, name, copy.deepcopy(vars(self)[name]))
        return clone_
