"""The module of a compiled encoder: texts to ids, ids through the engine."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import torch
from sentence_transformers.base.modules.input_module import InputModule
from transformers import PreTrainedTokenizerBase

from essent._core.texts import check_texts
from essent.engine.runtime import Batch, Runtime
from essent.errors import EngineError
from essent.recipe.tokens.ids import Frame, batches, framed_ids, pad

WINDOW = 2048  # texts tokenised ahead while the ones before are computed,
WINDOW_LETTERS = 2**22  # fewer where they are long: their ids are all in memory before they are cut


@dataclass(frozen=True)
class GraphInputs:
    """How texts become ids: the frame around them, the most tokens, the id of padding."""

    frame: Frame
    max_seq_length: int | None
    pad_id: int


class EngineModule(InputModule):
    """Runs a converted graph.

    Args:
        runtime: the engine with its file.
        tokenizer: the model's own.
        reading: frame, maximum length, padding.
        dimensions: K of the vectors.
    """

    save_in_root: bool = True
    modalities: list[Any] = ["text"]  # noqa: RUF012  (the base class declares it so)

    def __init__(
        self, runtime: Runtime, tokenizer: PreTrainedTokenizerBase, inputs: GraphInputs, dimensions: int
    ) -> None:
        super().__init__()
        self.runtime = runtime
        self.tokenizer = self.reader = tokenizer  # InputModule knows the first, with a type of its own
        self.inputs = inputs
        self.dimensions = dimensions

    def ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids of each text in its frame, cut to the maximum length."""
        return framed_ids(self.reader, self.inputs.frame, list(texts), self.max_seq_length)

    def batch(self, sequences: Sequence[list[int]]) -> tuple[np.ndarray, np.ndarray]:
        """One batch as the graph takes it: ids and attention mask (B,T) int64, padded on the right."""
        tokens = pad(sequences, self.inputs.frame, self.inputs.pad_id)
        return tokens.ids.numpy(), tokens.attention_mask.long().numpy()

    def preprocess(self, inputs: Any, prompt: str | None = None, **kwargs: Any) -> dict[str, Any]:
        """Texts to features `input_ids` and `attention_mask` (B,T).

        Raises:
            InputError: an input that is not a text.
        """
        texts = check_texts(inputs)
        ids, attention_mask = self.batch(self.ids([prompt + text for text in texts] if prompt else texts))
        return {"input_ids": torch.from_numpy(ids), "attention_mask": torch.from_numpy(attention_mask)}

    def forward(self, features: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        """Features to `sentence_embedding` (B,K)."""
        ids, attention_mask = (features[name].cpu().numpy() for name in ("input_ids", "attention_mask"))
        features["sentence_embedding"] = torch.from_numpy(self.runtime.one(ids, attention_mask))
        return features

    # -- many texts -------------------------------------------------------------------------------------------------

    def vectors(self, texts: Sequence[str], batch_size: int, advance: Any = lambda count: None) -> np.ndarray:
        """Vectors (N,K) of distinct texts in their order; `advance` is told how many texts are done.

        Texts are taken longest first by their letters, so that the windows that are tokenised ahead hold texts of
        nearly the same length; within a window batches are made by tokens (essent.recipe.tokens.ids.batches).
        """
        vectors = np.empty((len(texts), self.dimensions), np.float32)
        if len(texts) == 1:
            vectors[:] = self.runtime.one(*self.batch(self.ids(texts)))
            return vectors

        def keep(rows: np.ndarray, batch_vectors: np.ndarray) -> None:
            vectors[rows] = batch_vectors
            advance(len(rows))

        with closing(self._batches(texts, batch_size)) as padded:
            first, second = next(padded), next(padded, None)
            if second is None:  # one batch: all threads on it
                keep(first[0], self.runtime.one(*first[1:]))
            else:
                self.runtime.many(chain([first, second], padded), keep)
        return vectors

    def _batches(self, texts: Sequence[str], batch_size: int) -> Generator[Batch, None, None]:
        letters = np.array([len(text) for text in texts])  # (N,)
        order = np.argsort(-letters, kind="stable")  # (N,)
        windows = list(_windows(order, letters))
        with ThreadPoolExecutor(1) as ahead:

            def tokenised(rows: np.ndarray) -> Future[list[list[int]]]:
                return ahead.submit(self.ids, [texts[row] for row in rows])

            coming = tokenised(windows[0])
            for number, rows in enumerate(windows):
                sequences = coming.result()
                if number + 1 < len(windows):
                    coming = tokenised(windows[number + 1])
                for chosen in batches([len(s) for s in sequences], batch_size):
                    yield rows[chosen], *self.batch([sequences[i] for i in chosen])

    # -- as a module of sentence-transformers -----------------------------------------------------------------------

    def get_embedding_dimension(self) -> int:
        """The number of dimensions of a vector."""
        return self.dimensions

    @property
    def max_seq_length(self) -> int | None:
        """The most tokens of a text; None without a limit."""
        return self.inputs.max_seq_length

    @max_seq_length.setter
    def max_seq_length(self, value: int | None) -> None:
        raise EngineError(
            f"A compiled encoder keeps its maximum length of {self.max_seq_length} tokens: set it before compiling."
        )

    def save(self, output_path: str, *args: Any, safe_serialization: bool = True, **kwargs: Any) -> None:
        """Write the graph and what loads it into a folder."""
        raise EngineError("A compiled encoder is saved as a whole: CompiledEncoder.save.")


def _windows(order: np.ndarray, letters: np.ndarray) -> Iterator[np.ndarray]:
    """Parts of `order` (N,), longest first, of at most WINDOW texts and about WINDOW_LETTERS letters."""
    start = 0
    while start < len(order):
        size = max(1, min(WINDOW, WINDOW_LETTERS // max(int(letters[order[start]]), 1)))
        yield order[start : start + size]
        start += size
