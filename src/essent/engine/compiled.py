"""CompiledEncoder, an encoder whose whole recipe is one graph on a CPU, its folder and its accuracy, without torch.

model.xml, model.bin  or  model.onnx       the graph (above 2 GB also model.onnx.data)
tokenizer.json …                           the model's own tokenizer
essent/engine.json                         engine, precision, recipe, frame, prompts, golden texts
essent/golden.safetensors                  torch's vectors of the golden texts
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import asdict, dataclass
from itertools import chain, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from safetensors.numpy import save_file

from essent._core.arguments import check_path
from essent._core.atomic import replacing_folder
from essent._core.display import text_progress
from essent._core.folders.files import GRAPH, STATE_FOLDER, check_replaceable, files_to_keep, write_digests
from essent._core.lazy import needs_torch
from essent.engine.numpy_encoder import Keep, NumpyEncoder, unit_length
from essent.engine.runtime import ALL_FILES, TOKENIZER_FILES, Batch, Runtime
from essent.errors import EngineError
from essent.recipe.reading import Reading
from essent.recipe.tokens import batches, pad_arrays
from essent.tasks.calibration import write_calibration
from essent.version import __version__

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

FORMAT = 2  # format 1, of version 0.1, listed only the graph's digests, in engine.json
GRAPH_FILE, GOLDEN_FILE = "engine.json", "golden.safetensors"
WINDOW = 2048  # texts tokenized ahead while the previous ones are computed
WINDOW_CHARACTERS = 2**22  # limits windows of long texts: all their ids are in memory before truncation
TOLERANCES = {"openvino": 1e-5, "onnx": 1e-4}  # of float32, relative to the longest vector if that is above 1
COSINE_TOLERANCES = {"bfloat16": 0.001, "int8": 0.5}  # 1 - cosine with float32; rounding alone stays below
CONSTANT = 1e-6  # smaller differences of similarities are rounding
MAX_RANKED = 512  # texts: all their pairs are ranked, 131,000


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
        CompiledEncoder('layers=static weights=idf', engine='openvino', precision='float32', threads=1)
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
        engine, threads = self.runtime.engine, self.runtime.threads
        return f"CompiledEncoder({self.recipe!r}, engine={engine!r}, precision={self.precision!r}, threads={threads})"

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
        """Save graph, tokenizer, recipe and golden vectors to a folder for `essent.load`.

        The folder is written atomically; files that are not part of an older graph remain in it.

        Raises:
            ModelError: the path is a file, or the folder of another model.
        """
        target, runtime, reading = Path(check_path(path)), self.runtime, self.reading
        check_replaceable(target, GRAPH)
        texts, golden = self.golden
        metadata = {
            "format": FORMAT,
            "essent": __version__,
            "engine": runtime.engine,
            "precision": runtime.precision,
            "recipe": self.recipe,
            "inputs": {
                "frame": asdict(reading.frame),
                "max_seq_length": reading.max_seq_length,
                "pad_id": self.pad_id,
                "cuts_start": reading.cuts_start,
                "dropped": reading.dropped,
            },
            "dimensions": self.width,
            "loss": None if self.loss is None else asdict(self.loss),
            **self.settings,
            "golden_texts": texts,
        }
        with replacing_folder(target, files_to_keep(target, GRAPH, ALL_FILES)) as folder:
            for name in (*ALL_FILES, *TOKENIZER_FILES):
                if (file := runtime.path.with_name(name)).is_file():
                    shutil.copy(file, folder / name)
            (folder / STATE_FOLDER).mkdir()
            save_file({"golden": golden}, folder / STATE_FOLDER / GOLDEN_FILE)
            text = json.dumps(metadata, ensure_ascii=False, indent=2)
            (folder / STATE_FOLDER / GRAPH_FILE).write_text(text, encoding="utf-8")
            if self.calibration is not None:
                write_calibration(self.calibration, folder)
            write_digests(folder)

    def as_sentence_transformer(self) -> SentenceTransformer:
        """Return a SentenceTransformer that runs this graph, for libraries that accept nothing else; it needs torch.

        It forms batches as sentence-transformers does, so `encode` of this class is faster for many texts.
        """
        with needs_torch("A SentenceTransformer"):
            from sentence_transformers import SentenceTransformer

            from essent.engine.graph import GraphModule
        model: Any = SentenceTransformer(modules=[GraphModule(self)], device="cpu", **self.settings)
        model.save = model.save_pretrained = model[0].save  # which refuses before anything is written
        return cast("SentenceTransformer", model)


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
    runtime = compiled.runtime
    try:
        together = runtime.one(*compiled.batch(compiled.ids(texts)))
        single = np.concatenate([runtime.one(*compiled.batch(compiled.ids([text]))) for text in texts[:alone]])
    except (RuntimeError, ValueError) as error:
        raise EngineError(f"{subject} does not run: {str(error).strip().splitlines()[-1]}") from error
    for vectors, expected in ((together, golden), (single, golden[:alone])):
        difference, limit = largest_difference(vectors, expected), TOLERANCES[runtime.engine]
        if compiled.precision != "float32" and np.isfinite(difference):
            difference, limit = 1 - float(cosines(vectors, expected).min()), COSINE_TOLERANCES[compiled.precision]
        if not difference <= limit:  # NaN too
            raise EngineError(
                f"{subject} does not reproduce torch's vectors in {compiled.precision}: the difference is "
                f"{difference:.1e}, the limit {limit:.0e}."
            )


# -- accuracy ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Loss:
    """The accuracy of a graph: cosines of its vectors with torch's float32 vectors of the same texts.

    `spearman` compares the similarities of all pairs of the first 512 texts; 1 is the same order.

    Example:
        >>> from essent.engine import Loss
        >>> loss = Loss(texts=400, mean_cosine=0.9998, lowest_cosine=0.9991, spearman=0.9995)
        >>> print(loss)  # as in `compile(encoder, precision="bfloat16").loss`
        Compared with torch's float32 vectors of 400 texts: Spearman of the similarities 0.9995, lowest cosine 0.99910
    """

    texts: int
    mean_cosine: float
    lowest_cosine: float
    spearman: float

    def __str__(self) -> str:
        return (
            f"Compared with torch's float32 vectors of {self.texts:,} texts: Spearman of the similarities "
            f"{self.spearman:.4f}, lowest cosine {self.lowest_cosine:.5f}"
        )


def loss_of(exact: np.ndarray, rounded: np.ndarray) -> Loss:
    """Compare the vectors (N,K) of a graph with the exact vectors of the same texts."""
    from scipy.stats import spearmanr

    row_cosines = cosines(exact, rounded)
    similarities = [_similarities(vectors[:MAX_RANKED]) for vectors in (exact, rounded)]
    is_constant = [np.ptp(values) < CONSTANT for values in similarities]  # all texts alike: nothing to rank
    spearman = float(all(is_constant)) if any(is_constant) else float(spearmanr(*similarities).statistic)
    return Loss(len(exact), float(row_cosines.mean()), float(row_cosines.min()), spearman)


def _similarities(vectors: np.ndarray) -> np.ndarray:
    """Compute the cosines of all pairs of vectors (N,K), each pair once: (N·(N-1)/2,)."""
    units = unit_length(vectors.astype(np.float64))  # float32 products would rank their rounding
    return np.asarray((units @ units.T)[np.triu_indices(len(units), 1)])


def cosines(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Compute the cosine of each row of (N,K) with the same row of the other, 1 if both are zeros: (N,)."""
    lengths = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    same = ~a.any(axis=1) & ~b.any(axis=1)  # a text without tokens, in a table of token vectors
    return np.where(same, 1.0, np.einsum("nk,nk->n", a, b) / np.maximum(lengths, 1e-30))
