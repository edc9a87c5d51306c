"""CompiledEncoder, an encoder whose whole recipe is one graph on a CPU, and its accuracy. Does not import torch."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from itertools import chain, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from essent._core.arguments import check_path
from essent._core.display import text_progress
from essent._core.lazy import needs_torch
from essent.engine.numpy_encoder import Keep, NumpyEncoder, unit_length
from essent.engine.runtime import Batch, Runtime
from essent.errors import EngineError
from essent.recipe.reading import Reading
from essent.recipe.tokens import batches, pad_arrays
from essent.tasks.sample import sample_texts

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

WINDOW = 2048  # texts tokenized ahead while the previous ones are computed
WINDOW_CHARACTERS = 2**22  # limits windows of long texts: all their ids are in memory before truncation
GRAPH_TOLERANCE = 1e-5  # of float32, relative to the longest vector if that is above 1
TOLERANCES = {"openvino": GRAPH_TOLERANCE, "onnx": 1e-4}
LOWEST_COSINE = {"bfloat16": 0.999, "int8": 0.5}  # with float32; rounding alone does not go below
CONSTANT = 1e-6  # smaller differences of similarities are rounding
MIN_RANKED, MAX_RANKED = 300, 512  # texts: all their pairs are ranked, 45,000 to 131,000
RANKED = ((0.999, "unchanged"), (0.98, "nearly unchanged"))  # by minimum Spearman


class CompiledEncoder(NumpyEncoder):
    """An encoder that runs as one graph on the CPU, without torch; made by `compile` or `load`.

    `encode`, `similarity` and prompts work as in SentenceTransformer, with arrays instead of tensors.

    Args:
        runtime: the engine with its file; the tokenizer's files are in the same folder.
        reading: the conversion of texts to ids.
        pad_id: the padding id.
        recipe: the text form of the recipe.
        golden: texts, and the vectors (n,K) that torch computed for them.
        loss: the loss of a precision below float32.
        settings: prompts, similarity … of NumpyEncoder.

    Example:
        >>> from essent import Encoder, compile
        >>> encoder = Encoder("sentence-transformers/all-MiniLM-L6-v2", "static weights=idf").fit(["A cat.", "A dog."])
        >>> compiled = compile(encoder, threads=1)
        >>> compiled
        CompiledEncoder('layers=static weights=idf', engine='openvino', precision='float32', threads=1, streams=1)
        >>> compiled.encode(["A short text."]).shape
        (1, 384)
    """

    def __init__(
        self,
        runtime: Runtime,
        reading: Reading,
        pad_id: int,
        recipe: str,
        golden: tuple[list[str], np.ndarray],
        *,
        loss: Loss | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(**settings)
        self.runtime = runtime
        self.reading = reading
        self.pad_id = pad_id
        self.recipe = recipe
        self.golden = golden
        self.loss = loss

    @property
    def width(self) -> int:
        """The number of dimensions K of the graph's vectors."""
        return int(self.golden[1].shape[1])

    @property
    def precision(self) -> str:
        """The precision of the computation (float32, bfloat16 or int8); the vectors are float32."""
        return self.runtime.precision

    @property
    def max_seq_length(self) -> int | None:
        """The maximum length in tokens, fixed when the graph was made; None without a limit."""
        return self.reading.max_seq_length

    def __repr__(self) -> str:
        runtime = self.runtime
        return (
            f"CompiledEncoder({self.recipe!r}, engine={runtime.engine!r}, precision={runtime.precision!r}, "
            f"threads={runtime.threads}, streams={runtime.streams})"
        )

    def ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Tokenize texts to ids in their frame, truncated to the maximum length."""
        return self.reading.framed(list(texts), self.max_seq_length)

    def batch(self, sequences: Sequence[list[int]]) -> tuple[np.ndarray, np.ndarray]:
        """Pad sequences to a batch for the graph: ids and attention mask (B,T) int64, padded on the right."""
        ids, attention_mask = pad_arrays(sequences, self.pad_id)
        return ids, attention_mask.astype(np.int64)

    def _compute(self, texts: list[str], batch_size: int, show_progress_bar: bool, keep: Keep) -> None:
        """Compute the vectors of distinct texts.

        Texts are processed longest first by characters, so that windows tokenized ahead contain texts of similar
        length. Within a window, batches are formed by number of tokens (essent.recipe.tokens.batches).
        """
        if len(texts) == 1:  # without the thread of `_batches`
            keep(slice(1), self.runtime.one(*self.batch(self.ids(texts))))
            return
        progress, tokenized = text_progress(len(texts), show_progress_bar), self._batches(texts, batch_size)
        with progress as advance, closing(tokenized) as padded:

            def keep_and_advance(rows: np.ndarray, vectors: np.ndarray) -> None:
                keep(rows, vectors)
                advance(len(rows))

            first, second = next(padded), next(padded, None)
            if second is None:  # one batch: all threads on it
                keep_and_advance(first[0], self.runtime.one(*first[1:]))
            else:
                self.runtime.many(chain([first, second], padded), keep_and_advance)

    def _batches(self, texts: Sequence[str], batch_size: int) -> Generator[Batch, None, None]:
        """Yield padded batches, and tokenize the next window of texts meanwhile."""
        lengths = np.array([len(text) for text in texts])  # (N,)
        order = np.argsort(-lengths, kind="stable")  # (N,)
        windows = list(_windows(order, lengths))

        def tokenize(rows: np.ndarray) -> list[list[int]]:
            return self.ids([texts[row] for row in rows])

        with ThreadPoolExecutor(1) as executor:
            next_ids = executor.submit(tokenize, windows[0])
            for rows, next_rows in zip_longest(windows, windows[1:]):
                sequences = next_ids.result()
                if next_rows is not None:
                    next_ids = executor.submit(tokenize, next_rows)
                for indices in batches([len(ids) for ids in sequences], batch_size):
                    yield rows[indices], *self.batch([sequences[index] for index in indices])

    def save(self, path: str | Path) -> None:
        """Save graph, tokenizer, recipe and golden vectors to a folder for `essent.load`."""
        from essent.engine.files import save_compiled

        save_compiled(self, Path(check_path(path)))

    def as_sentence_transformer(self) -> SentenceTransformer:
        """Return a SentenceTransformer that runs this graph, for libraries that accept nothing else; it needs torch.

        It forms batches as sentence-transformers does, so `encode` of this class is faster for many texts.
        """
        with needs_torch("A SentenceTransformer"):
            from essent.engine.conversion import GraphTransformer

            return GraphTransformer(self)


def _windows(order: np.ndarray, lengths: np.ndarray) -> Iterator[np.ndarray]:
    """Split `order` (N,), longest first, into windows of at most WINDOW texts, and fewer if they are long."""
    start = 0
    while start < len(order):
        size = max(1, min(WINDOW, WINDOW_CHARACTERS // max(int(lengths[order[start]]), 1)))
        yield order[start : start + size]
        start += size


# -- checks -----------------------------------------------------------------------------------------------------------


def largest_difference(vectors: np.ndarray, golden: np.ndarray) -> float:
    """Return the largest difference of an entry, relative to the longest golden vector if that is above 1.

    It is infinite if the shapes differ or a number is not finite.
    """
    if vectors.shape != golden.shape or not np.isfinite(vectors).all():
        return float("inf")
    scale = max(float(np.linalg.norm(golden, axis=1).max(initial=0.0)), 1.0)
    return float(np.abs(vectors - golden).max(initial=0.0)) / scale


def check_golden(compiled: CompiledEncoder, subject: str, alone: int | None = None) -> None:
    """Compare all texts in one batch, and texts alone, with the golden vectors, which torch computed in float32.

    Args:
        subject: what is checked, for messages.
        alone: number of texts that are also computed alone; by default all. Each length takes an engine some time.

    Raises:
        EngineError: the vectors differ by more than rounding.
    """
    texts, golden = compiled.golden
    runtime, precision = compiled.runtime, compiled.precision
    try:
        together = runtime.one(*compiled.batch(compiled.ids(texts)))
        single = np.concatenate([runtime.one(*compiled.batch(compiled.ids([text]))) for text in texts[:alone]])
    except (RuntimeError, ValueError) as error:
        raise EngineError(f"{subject} does not run: {str(error).strip().splitlines()[-1]}") from error
    for vectors, expected in ((together, golden), (single, golden[:alone])):
        if vectors.shape != expected.shape:
            raise EngineError(f"{subject} returns vectors of shape {vectors.shape}; expected {expected.shape}.")
        if precision == "float32":
            difference, allowed = largest_difference(vectors, expected), TOLERANCES[runtime.engine]
            if not difference <= allowed:
                raise EngineError(
                    f"{subject} does not reproduce torch's vectors: the difference is {difference:.1e}, the limit "
                    f"{allowed:.0e}."
                )
        elif not (lowest := float(cosines(vectors, expected).min())) >= (allowed := LOWEST_COSINE[precision]):
            raise EngineError(
                f"{subject} does not reproduce torch's vectors in {precision}: the lowest cosine is {lowest:.3f}, the "
                f"limit {allowed}. Use precision='float32', or calibrate int8 on texts like yours."
            )


# -- accuracy ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Loss:
    """The accuracy of a graph: cosines of its vectors with torch's float32 vectors of the same texts.

    `spearman` compares the similarities of all pairs of the first 512 texts; 1 is the same order. None of the texts was
    used for calibration.

    Example:
        >>> from essent.engine import Loss
        >>> loss = Loss(texts=400, mean_cosine=0.9998, lowest_cosine=0.9991, spearman=0.9995)
        >>> print(loss)  # as in `compile(encoder, precision="bfloat16").loss`
        The ranking of similarities is unchanged: Spearman 0.9995 over 400 texts; lowest cosine with torch's float32
        vectors 0.99910
    """

    texts: int
    mean_cosine: float
    lowest_cosine: float
    spearman: float

    def __str__(self) -> str:
        change = next((name for minimum, name in RANKED if self.spearman >= minimum), "changed")
        return (
            f"The ranking of similarities is {change}: Spearman {self.spearman:.4f} over "
            f"{self.texts:,} texts; lowest cosine with torch's float32 vectors {self.lowest_cosine:.5f}"
        )


def texts_to_judge(texts: Sequence[str], calibration: Sequence[str]) -> list[str]:
    """Select 300 to 512 distinct texts not used for calibration: the user's, plus essent's sample if these are few."""
    used = set(calibration)
    unseen, samples = ([text for text in dict.fromkeys(t) if text not in used] for t in (texts, sample_texts()))
    if len(unseen) >= MIN_RANKED:
        return unseen[:MAX_RANKED]
    return list(dict.fromkeys([*unseen, *samples]))


def loss_of(exact: np.ndarray, rounded: np.ndarray) -> Loss:
    """Compare the vectors (N,K) of a graph with the exact vectors of the same texts."""
    from scipy.stats import spearmanr

    row_cosines = cosines(exact, rounded)
    similarities = [_similarities(vectors[:MAX_RANKED]) for vectors in (exact, rounded)]
    is_constant = [np.ptp(values) < CONSTANT for values in similarities]  # all texts alike: nothing to rank
    spearman = float(all(is_constant)) if any(is_constant) else float(spearmanr(*similarities).statistic)
    return Loss(len(exact), float(row_cosines.mean()), float(row_cosines.min()), spearman)


def measure_loss(model: SentenceTransformer, compiled: NumpyEncoder, texts: Sequence[str]) -> Loss:
    """Compare a graph's vectors with the model's; see `texts_to_judge` for the texts."""
    exact, rounded = (np.asarray(m.encode(list(texts), show_progress_bar=False), np.float32) for m in (model, compiled))
    return loss_of(exact, rounded)


def _similarities(vectors: np.ndarray) -> np.ndarray:
    """Compute the cosines of all pairs of vectors (N,K), each pair once: (N·(N-1)/2,)."""
    units = unit_length(vectors.astype(np.float64))  # float32 products would rank their rounding
    return np.asarray((units @ units.T)[np.triu_indices(len(units), 1)])


def cosines(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Compute the cosine of each row of (N,K) with the same row of the other, 1 if both are zeros: (N,)."""
    lengths = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    same = ~a.any(axis=1) & ~b.any(axis=1)  # a text without tokens, in a table of token vectors
    return np.where(same, 1.0, np.einsum("nk,nk->n", a, b) / np.maximum(lengths, 1e-30))
