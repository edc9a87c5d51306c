"""An Encoder as a scikit-learn transformer of texts, for pipelines and searches over recipes."""

from __future__ import annotations

import copy
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
from sentence_transformers import SentenceTransformer
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin, clone
from sklearn.utils import Tags

from essent._core.folders.contents import is_essent_folder, is_exported_folder
from essent._core.texts import check_texts
from essent._core.types import ModelLike, TextsLike
from essent.encoder.encoder import Encoder
from essent.encoder.pipeline.cache import PooledCache
from essent.encoder.pipeline.kept_states import KeptStates, StatesStore
from essent.errors import InputError, not_fitted
from essent.model.loading import load, open_model
from essent.recipe.recipe import Recipe
from essent.recipe.sources.layers import reads_mlm_head

_loader_lock = Lock()
POOLED_BYTES = 2**30  # bytes of pooled vectors kept in a temporary folder, after which they are forgotten
STATES_BYTES = 2**30  # bytes of hidden states kept in memory, after which no more are
_pooled: list[PooledCache] = []
_states = StatesStore(STATES_BYTES)
_last: list[tuple[Any, SentenceTransformer]] = []  # the last model that was loaded by name, with what it was loaded by


class EncoderTransformer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Texts (N) to sentence vectors (N,K) by a recipe, which learns from the texts of `fit` alone.

    The model is loaded in `fit`. One that is loaded by name stays in memory for the next fit on it, so that a search
    over recipes reads its weights once; `forget_model` frees it. A loaded one is shared between copies. Pooled vectors
    are kept by weights, recipe and text: a text goes through the model once for all folds and all shapings. When it
    comes for the second time, for another recipe or other counts, its hidden states are kept too (1 GiB in all), and
    it does not go through the model again.

    Args:
        model: a hub name, a folder, or a loaded SentenceTransformer, as `Encoder` takes them.
        recipe: a Recipe or its text form; None: what the model's own modules amount to.
        prompt_name, prompt: put before every text; by default the model's default prompt.
        batch_size: texts of a batch, see `Encoder.encode`.
        normalize_embeddings: scale vectors to length 1.
        truncate_dim: only the first dimensions.
        device: "cpu", "cuda" …; None: the best there is.
        show_progress_bar: whether bars count the texts.
        cache: a folder that keeps pooled vectors for later runs; by default they are kept while this process runs.
        options: SentenceTransformer's other keyword arguments (revision, token, trust_remote_code …).

    Attributes:
        encoder_: the fitted Encoder; `encoder_.save(folder)` keeps it.
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
        cache: str | Path | None = None,
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
        self.cache = cache
        self.options = options

    def fit(self, X: TextsLike, y: Any = None) -> EncoderTransformer:
        """Load the model, and learn from the texts what the recipe learns, if anything.

        Args:
            X: a list or column of texts.
            y: ignored.

        Raises:
            InputError: no texts, or something that is not a text.
            RecipeError, UnsupportedRecipeError, ModelError: see `Encoder`.
        """
        texts = _checked(X)
        self.encoder_ = self._load().fit(texts, **self._reading())
        return self

    def fit_transform(self, X: TextsLike, y: Any = None) -> np.ndarray:
        """`fit`, then the vectors (N,K) float32 of the same texts, which go through the model once."""
        texts = _checked(X)
        self.encoder_ = self._load()
        vectors = self.encoder_.fit_encode(texts, **self._reading(), **self._finishing())
        return np.asarray(vectors, np.float32)

    def transform(self, X: TextsLike) -> np.ndarray:
        """Vectors (N,K) float32 of a list or column of texts.

        Raises:
            NotFittedError: `fit` must come first.
            InputError: something that is not a text.
        """
        if not hasattr(self, "encoder_"):
            raise not_fitted(f"This {type(self).__name__} is not fitted yet: call fit first.")
        texts = check_texts(X)
        if not texts:
            return np.empty((0, self._n_features_out), np.float32)
        vectors = self.encoder_.encode(texts, **self._reading(), **self._finishing())
        return np.asarray(vectors, np.float32)

    def _load(self) -> Encoder:
        options = {**(self.options or {}), **({} if self.device is None else {"device": self.device})}
        recipe, model = None if self.recipe is None else Recipe.parse(self.recipe), self.model
        if not isinstance(model, (str, Path)) or _has_its_own_recipe(model, options):
            encoder = Encoder(model, recipe, **options)
        else:
            model = _opened(model, options, recipe is not None and reads_mlm_head(recipe.layers))
            encoder = Encoder(model, recipe)
        encoder.cache = _cache_of(self.cache)
        if isinstance(model, SentenceTransformer):
            encoder.states = KeptStates(load(model, [encoder.recipe], {}).backbone, _states)
        return encoder

    def _reading(self) -> dict[str, Any]:
        return {
            "prompt_name": self.prompt_name,
            "prompt": self.prompt,
            "batch_size": self.batch_size,
            "show_progress_bar": self.show_progress_bar,
        }

    def _finishing(self) -> dict[str, Any]:
        return {"normalize_embeddings": self.normalize_embeddings, "truncate_dim": self.truncate_dim}

    @property
    def _n_features_out(self) -> int:  # for scikit-learn's names of what comes out
        dimensions = int(self.encoder_.get_embedding_dimension() or 0)
        return dimensions if self.truncate_dim is None else min(dimensions, self.truncate_dim)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = tags.input_tags.one_d_array = True
        tags.input_tags.two_d_array = False
        tags.transformer_tags.preserves_dtype = []
        return tags

    def __sklearn_clone__(self) -> EncoderTransformer:
        """An unfitted copy that shares a loaded model, which scikit-learn would copy with all its weights."""
        settings = self.get_params(deep=False)
        clone_ = type(self)(**{k: v if k == "model" else clone(v, safe=False) for k, v in settings.items()})
        for name in ("_sklearn_output_config", "_metadata_request"):  # what set_output and the like have set
            if hasattr(self, name):
                setattr(clone_, name, copy.deepcopy(getattr(self, name)))
        return clone_


def forget_model() -> None:
    """Free the model that the last fit by name has left in memory, and the vectors and states that were kept."""
    with _loader_lock:
        _last.clear()
        _pooled.clear()
        _states.clear()


def _cache_of(folder: str | Path | None) -> PooledCache:
    if folder is not None:
        return PooledCache(folder)
    with _loader_lock:
        if not _pooled or _pooled[0].size > POOLED_BYTES:
            _pooled[:] = [PooledCache()]
        return _pooled[0]


def _checked(texts: TextsLike) -> list[str]:
    checked = check_texts(texts)
    if not checked:
        raise InputError("fit needs at least one text, got none.")
    return checked


def _has_its_own_recipe(model: ModelLike, options: dict[str, Any]) -> bool:
    """Whether a folder was saved by an Encoder: what is learned then belongs to its model, which is not shared."""
    return is_exported_folder(str(model)) or is_essent_folder(str(model), options)


def _opened(model: ModelLike, options: dict[str, Any], with_mlm_head: bool) -> SentenceTransformer:
    """A model by its name, loaded unless it is the last one that was and has not changed."""
    key = (str(model), options, with_mlm_head, _files_of(Path(str(model))))
    with _loader_lock:
        if not _last or _last[0][0] != key:
            _last.clear()  # before another is loaded: both need not fit into memory
            _last.append((key, open_model(model, options, with_mlm_head=with_mlm_head)))
        return _last[0][1]


def _files_of(folder: Path) -> list[tuple[str, int, int]]:
    """Names, sizes and times of a folder's files, or of one file."""
    files = sorted(folder.rglob("*")) if folder.is_dir() else [folder] if folder.is_file() else []
    return [(str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in files if path.is_file()]
