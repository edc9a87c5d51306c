"""A SentenceTransformer with calibrated similarities."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.util import truncate_embeddings

from essent._core.arguments import TextsLike
from essent._core.compat import prompt_of, without_loading_messages
from essent._core.texts import require_finite
from essent.tasks.calibration import Calibration, calibrate, calibrated_similarities, require_cosine

if TYPE_CHECKING:
    from typing_extensions import Self


class CalibratedTransformer(SentenceTransformer):
    """A SentenceTransformer that can be calibrated.

    Attributes:
        calibration: the map from cosines to calibrated similarities; None before `calibrate`.
    """

    calibration: Calibration | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        with without_loading_messages():
            super().__init__(*args, **kwargs)

    def _finished(
        self, vectors: torch.Tensor, texts: Sequence[str], dimensions: int | None, unit: bool | None
    ) -> torch.Tensor:
        """Truncate the texts' vectors (N,K), normalize them if `unit`, and check that they are finite.

        Args:
            dimensions: None means the model's own.

        Raises:
            NotFiniteError: a vector has NaN or infinite numbers; the message names the text and the cause.
        """
        vectors = truncate_embeddings(vectors, self.truncate_dim if dimensions is None else dimensions)
        vectors = torch.nn.functional.normalize(vectors, p=2, dim=1) if unit else vectors
        checked: torch.Tensor = require_finite(vectors, texts, self.named_parameters())
        return checked

    def calibrate(
        self,
        texts: TextsLike,
        pairs: Any = None,
        *,
        match_score: float | None = None,
        prompt_name: str | None = None,
        prompt: str | None = None,
        batch_size: int = 32,
        show_progress_bar: bool | None = None,
        seed: int = 0,
    ) -> Self:
        """Calibrate the cosines on `texts` for `similarity(…, calibrated=True)`; `save` stores the calibration.

        Without labels, a calibrated similarity is the share of random pairs of these texts that are less similar. With
        labelled pairs, it is the probability that a pair is a match. Both increase with the cosine, so no rank
        changes. Calibrate after every change of the vectors: `fit` removes a calibration, training does not.

        Args:
            texts: up to 1,000 distinct ones are sampled.
            pairs: labelled pairs: duplicates or scored pairs, as a task, a file, a task's name, or rows in memory.
            match_score: the score from which a scored pair counts as a match.
            prompt_name, prompt: put before every text, as in `encode`.
            seed: of the sample.

        Raises:
            InputError: the similarity is not cosine; or see `essent.tasks.calibration.calibrate`.

        Example:
            >>> from essent import Encoder
            >>> from essent.tasks.sample import sample_texts
            >>> encoder = Encoder("sentence-transformers/all-MiniLM-L6-v2", "mean").calibrate(sample_texts()[:50])
            >>> vectors = encoder.encode(["A dog runs.", "A dog is running."])
            >>> round(float(encoder.similarity(vectors[:1], vectors[1:], calibrated=True)), 1)
            1.0
        """
        require_cosine(str(self.similarity_fn_name))
        before = prompt_of(self, prompt, prompt_name)

        def encode(sample: list[str]) -> Any:
            return self.encode(sample, prompt=before, batch_size=batch_size, show_progress_bar=bool(show_progress_bar))

        self.calibration = calibrate(encode, texts, pairs, match_score=match_score, prompt=before, seed=seed)
        return self

    def similarity(self, embeddings1: Any, embeddings2: Any, *, calibrated: bool = False) -> torch.Tensor:
        """Compute the similarity of every vector (N,K) with every vector (M,K): (N,M).

        Args:
            calibrated: return the calibrated similarity instead of the cosine, as float64 on the CPU.

        Raises:
            NotFittedError: `calibrated` is true and `calibrate` has not been called.
            InputError: `calibrated` with a similarity other than cosine.
        """
        cosines = super().similarity(embeddings1, embeddings2)
        return self._calibrated(cosines) if calibrated else cosines

    def similarity_pairwise(self, embeddings1: Any, embeddings2: Any, *, calibrated: bool = False) -> torch.Tensor:
        """Compute the similarity of each vector (N,K) with the same row of the other array: (N,); see `similarity`."""
        cosines = super().similarity_pairwise(embeddings1, embeddings2)
        return self._calibrated(cosines) if calibrated else cosines

    def _calibrated(self, cosines: torch.Tensor) -> torch.Tensor:
        values = cosines.detach().cpu().double().numpy()
        return torch.from_numpy(calibrated_similarities(self.calibration, values, str(self.similarity_fn_name)))
