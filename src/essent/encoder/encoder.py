"""Encoder: a SentenceTransformer that runs a recipe.

texts ─ template ─ tokens ─ backbone ─ states ─ mix α, weights ω, reduce Σ ─ shaping g ─ vectors
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.util import batch_to_device

from essent._core.arguments import (
    ModelLike,
    TextsLike,
    check_encode,
    check_options,
    check_path,
    check_size,
    with_checked_arguments,
)
from essent._core.compat import device_for, prompt_of
from essent._core.display import NamesItsModel, text_progress
from essent._core.folders.contents import is_essent_folder
from essent._core.hub import file_options, folder_of, reach_model
from essent._core.texts import check_texts, distinct_texts, repeat_in_place, require_finite, texts_to_fit
from essent.encoder.calibrated import CalibratedTransformer
from essent.encoder.late import encode_chunks as _encode_chunks
from essent.encoder.load import load_folder
from essent.encoder.module import RecipeModule, digest_of, key_of
from essent.encoder.plan import PORTION
from essent.encoder.save import packages_of
from essent.encoder.save import write_card as _write_card
from essent.encoder.save import write_folder as _write_folder
from essent.errors import RecipeError
from essent.model.loading import load, open_model
from essent.recipe.recipe import Recipe
from essent.recipe.tokens import portions
from essent.tasks.calibration import read_calibration

logger = logging.getLogger(__name__)


class Encoder(CalibratedTransformer, metaclass=NamesItsModel):
    """A SentenceTransformer that computes sentence embeddings by a recipe, from any pretrained transformer.

    Args:
        model: a hub name, a folder (transformers, sentence-transformers, or one that an Encoder saved), or a loaded
            SentenceTransformer.
        recipe: a Recipe or its text form, `"first-last | zscore"`. None: the recipe of the folder's own modules.
        options: SentenceTransformer's keyword arguments (device, prompts, revision, token, cache_folder,
            trust_remote_code, local_files_only, model_kwargs, truncate_dim …).

    Attributes:
        chosen: how its recipe was chosen, lines for the model card.

    Raises:
        RecipeError: a malformed recipe, or a recipe for a folder that has its own.
        UnsupportedRecipeError: the model cannot run the recipe; raised before its weights are read.
        ModelError: the model cannot be loaded.

    Example:
        >>> from essent import Encoder
        >>> encoder = Encoder("sentence-transformers/all-MiniLM-L6-v2", "first-last weights=idf | zscore")
        >>> texts = ["A man is playing a flute.", "How far is the moon?", "The cat sleeps."]
        >>> encoder.fit(texts).encode(texts).shape
        (3, 384)
    """

    def __init__(self, model: ModelLike, recipe: Recipe | str | None = None, **options: Any) -> None:
        parsed, options = None if recipe is None else Recipe.parse(recipe), check_options(options)
        name = str(model) if isinstance(model, (str, Path)) else None
        options = options if name is None else reach_model(name, options)
        if parsed is None and name is not None and is_essent_folder(name, options):
            module, settings = load_folder(name, options)
            calibration = read_calibration(folder_of(name, options))
        else:
            loaded = load(model, [] if parsed is None else [parsed], options)
            module, settings, calibration = RecipeModule(loaded.backbone, loaded.recipes[0]), loaded.settings, None
        overrides = {key: options[key] for key in settings if options.get(key) is not None}
        super().__init__(modules=[module], **{**settings, **overrides})
        self.calibration = calibration
        self.chosen: tuple[str, ...] = ()
        self._origin = str(id(model)) if name is None else f"{name} {file_options(options)['revision']}"
        short = type(model).__name__ if name is None else Path(name).name
        self.model_card_data.model_name = f"essent/{short}-{module.recipe.digest()[:8]}"
        self._sign()

    def _sign(self) -> None:
        """Put recipe and learned state into the revision, by which MTEB distinguishes the results of encoders."""
        module = self.module
        learned = digest_of(module.shaping or torch.nn.Identity(), self._origin)
        self.model_card_data.base_model_revision = key_of(learned, module.recipe.digest(), module.stats)

    @property
    def module(self) -> RecipeModule:
        """The module that runs the recipe: backbone, plan, token counts, shaping chain."""
        first = self[0]
        if not isinstance(first, RecipeModule):
            raise RecipeError(f"The first module is {type(first).__name__}: it must be the recipe's module.")
        return first

    @property
    def recipe(self) -> Recipe:
        """The recipe that this encoder computes."""
        return self.module.recipe

    def __repr__(self) -> str:
        backbone, after = self.module.backbone, "".join(f", {module!r}" for module in list(self)[1:])
        model = f"{backbone.family}, {backbone.last} layers, dimensions={self.get_embedding_dimension()}"
        return f"Encoder({str(self.recipe)!r}, {model}{after})"

    # -- fit --------------------------------------------------------------------------------------------------------

    def fit(  # type: ignore[override]
        self,
        texts: TextsLike,
        *,
        frequency_texts: TextsLike | None = None,
        prompt_name: str | None = None,
        prompt: str | None = None,
        batch_size: int = 32,
        show_progress_bar: bool | None = None,
    ) -> Encoder:
        """Fit the recipe on texts: token counts (idf), then the shaping of the pooled vectors.

        Duplicated texts count each time, as in the papers. A recipe without learned parts is left unchanged.

        Args:
            texts: the target task's texts, or any others (the papers' superscript W).
            frequency_texts: another corpus for the token counts, e.g. Wikipedia for idf^W with shaping on the task.
            prompt_name, prompt: put before every text, as in `encode`; by default the model's default prompt.

        Returns:
            The encoder itself.

        Raises:
            InputError: no texts, or a value that is not a str.
        """
        before = prompt_of(self, prompt, prompt_name)
        self._learn(texts, frequency_texts, before, batch_size, bool(show_progress_bar))
        return self

    def fit_encode(
        self,
        texts: TextsLike,
        *,
        frequency_texts: TextsLike | None = None,
        prompt_name: str | None = None,
        prompt: str | None = None,
        batch_size: int = 32,
        show_progress_bar: bool | None = None,
        normalize_embeddings: bool = False,
        truncate_dim: int | None = None,
    ) -> np.ndarray:
        """Fit on texts and return their vectors (N,K) float32, with one pass of the model.

        Args:
            texts, frequency_texts, prompt_name, prompt: as in `fit`.
            normalize_embeddings, truncate_dim: as in `encode`.

        Raises:
            InputError: no texts, or a value that is not a str.
        """
        check_encode(self.prompts, {"truncate_dim": truncate_dim})
        fit_texts = check_texts(texts)
        before, progress = prompt_of(self, prompt, prompt_name), bool(show_progress_bar)
        pooled = self._learn(fit_texts, frequency_texts, before, batch_size, progress)
        if pooled is None or len(self) > 1:  # nothing to shape, or further modules
            finishing = {"normalize_embeddings": normalize_embeddings, "truncate_dim": truncate_dim}
            encode = partial(self.encode, prompt=before, batch_size=batch_size, show_progress_bar=progress)
            return np.asarray(encode(fit_texts, **finishing), np.float32)
        with torch.inference_mode():
            parts = [self.module.shaped(part.to(self.device)).cpu() for part in pooled.split(PORTION)]
            return self._finished(torch.cat(parts), fit_texts, truncate_dim, normalize_embeddings).float().numpy()

    def _learn(
        self, texts: TextsLike, frequency_texts: TextsLike | None, before: str, batch_size: int, progress: bool
    ) -> torch.Tensor | None:
        """Fit, and return the texts' pooled vectors (N,K) if the shaping was fitted on them, otherwise None."""
        check_size(batch_size, "batch_size")
        fit_texts = [before + text for text in texts_to_fit(check_texts(texts), "texts")]
        counted = fit_texts
        if frequency_texts is not None:
            counted = [before + text for text in texts_to_fit(check_texts(frequency_texts), "frequency_texts")]
        module, pooled = self.module, None
        if module.plan.reads_stats or module.chain.needs_fit:
            self.calibration = None  # it describes the vectors before this fit
        if module.plan.reads_stats:
            module.stats = module.plan.count(counted, module.backbone)
        if module.chain.needs_fit:
            pooled = self._vectors(fit_texts, batch_size, progress, shape=False)
            require_finite(pooled, fit_texts, self.named_parameters())
            module.fit_chain(pooled)
        self._sign()
        return pooled

    # -- encode -----------------------------------------------------------------------------------------------------

    encode = with_checked_arguments(SentenceTransformer.encode)
    encode_chunks = _encode_chunks

    @torch.inference_mode()
    def _inference(self, inputs: list[Any], **arguments: Any) -> Any:
        """Run SentenceTransformer.encode's inner loop, with batches by number of tokens instead of texts."""
        texts: list[str] = inputs
        if arguments["output_value"] != "sentence_embedding":
            if len(self.module.plan.frames) > 1:  # whose tokens differ
                raise RecipeError(
                    f"{str(self.recipe)!r} adds several templates: it has vectors of texts, not of tokens."
                )
            return super()._inference(texts, **arguments)
        prompt = arguments.get("prompt")
        vectors = self._vectors(
            [prompt + text for text in texts] if prompt else texts,
            arguments["batch_size"],
            bool(arguments.get("show_progress_bar")),
            device=device_for(self, arguments.get("device")),
            on_cpu=bool(arguments.get("save_to_cpu")),
        )
        return self._finished(vectors, texts, arguments.get("truncate_dim"), arguments.get("normalize_embeddings"))

    @torch.inference_mode()
    def _vectors(
        self,
        texts: list[str],
        batch_size: int,
        progress: bool,
        *,
        shape: bool = True,
        device: torch.device | None = None,
        on_cpu: bool = True,
    ) -> torch.Tensor:
        """Compute the vectors of the texts in their order, each distinct text once: (N,K)."""
        module, device = self.module, device or self.device
        module.require_fit(shape)
        self.eval()
        if not texts:
            return torch.empty(0, self.get_embedding_dimension() or 0)
        distinct, inverse = distinct_texts(texts)
        static_pooler = module.static_pooler if len(self) == 1 else None
        vectors: torch.Tensor | None = None
        with text_progress(len(distinct), progress) as update:
            for start, portion in portions(distinct, PORTION):  # not all texts' ids are in memory at once
                computed: Iterable[tuple[Any, torch.Tensor]]
                if static_pooler is not None:  # nothing is padded
                    pooled = static_pooler.pool(static_pooler.ids(portion), module.stats)
                    computed = [(slice(len(portion)), module.shaped(pooled, shape))]
                else:
                    computed = (
                        (rows, self(batch_to_device(batch, device), shape=shape)["sentence_embedding"])
                        for rows, batch in module.batches(portion, batch_size)
                    )
                for rows, batch in computed:
                    if vectors is None:
                        vectors = batch.new_empty(len(texts), batch.shape[1], device="cpu" if on_cpu else device)
                    vectors[start:][rows] = batch.to(vectors.device)
                    update(len(batch))
        assert vectors is not None  # noqa: S101  (there are texts)
        if len(distinct) < len(texts):
            repeat_in_place(vectors, inverse)
        return vectors

    # -- save -------------------------------------------------------------------------------------------------------

    def save(
        self,
        path: str,
        model_name: str | None = None,
        create_model_card: bool = True,
        train_datasets: list[str] | None = None,
        safe_serialization: bool = True,
        *,
        layout: str = "stock",
    ) -> None:
        """Save a folder; plain SentenceTransformer loads it if standard modules compute the recipe exactly.

        Args:
            layout: "stock" (current sentence-transformers), or "legacy": class paths and boolean pooling flags that
                servers such as vLLM and TEI parse.

        Raises:
            NotFittedError: the recipe has learned parts and `fit` has not been called.
            RecipeError: an unknown layout.
            ModelError: the path is a file, or a folder with another model.
        """
        card = partial(self.write_card, name=model_name, datasets=train_datasets) if create_model_card else None
        reason = self.write_folder(Path(check_path(path)), layout, card)
        if reason:
            without = "plain sentence-transformers cannot load this recipe without trust_remote_code=True"
            logger.warning("Saved to %s for essent: %s, because %s.", path, without, reason)
        for part, package in packages_of(self.recipe).items():
            logger.warning("%s: loading needs the package %r, which contains the %s.", path, package, part)

    write_folder = _write_folder
    write_card = _write_card


def open_as_it_is(model: ModelLike, options: dict[str, Any] | None = None) -> SentenceTransformer:
    """Open a model as an Encoder, or as a plain SentenceTransformer if no recipe describes one of its modules."""
    try:
        return Encoder(model, **(options or {}))
    except RecipeError:
        return open_model(model, options or {})
