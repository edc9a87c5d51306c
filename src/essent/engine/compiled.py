"""CompiledEncoder, a SentenceTransformer whose whole recipe is one graph in OpenVINO or onnxruntime."""

from __future__ import annotations

import logging
import shutil
import tempfile
import weakref
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules.input_module import InputModule
from transformers import PreTrainedTokenizerBase

from essent._core.arguments import check_path, with_checked_arguments
from essent._core.compat import settings_of
from essent._core.display import text_progress
from essent._core.machine import SHORT
from essent._core.texts import check_texts, distinct_texts
from essent._core.types import NamesItsModel
from essent.encoder.calibrated import CalibratedTransformer
from essent.encoder.saving.save import GOLDEN_TEXTS
from essent.engine.gain import Loss, cosines, measure_loss, texts_to_judge
from essent.engine.graph import Graph, convert, graph_of, quantize
from essent.engine.runtime import Batch, Runtime, runtime_of
from essent.errors import EngineError, InputError
from essent.recipe.tokens.ids import Frame, batches, framed_ids, pad_arrays

logger = logging.getLogger(__name__)
WINDOW = 2048  # texts tokenized ahead while the previous ones are computed
WINDOW_CHARACTERS = 2**22  # limits windows of long texts: all their ids are in memory before truncation
GRAPH_TOLERANCE = 1e-5  # of float32, relative to the longest vector if that is above 1
TOLERANCES = {"openvino": GRAPH_TOLERANCE, "onnx": 1e-4}
LOWEST_COSINE = {"bfloat16": 0.999, "int8": 0.5}  # with float32; rounding alone does not go below
CALIBRATION_TEXTS = 300


@dataclass(frozen=True)
class GraphInputs:
    """Settings that turn texts into ids: the frame around them, the maximum length, the padding id."""

    frame: Frame
    max_seq_length: int | None
    pad_id: int


class EngineModule(InputModule):
    """A module that tokenizes texts and runs a converted graph.

    Args:
        runtime: the engine with its file.
        tokenizer: the model's tokenizer.
        inputs: frame, maximum length, padding id.
        dimensions: K of the vectors.
    """

    save_in_root: bool = True
    modalities: list[Any] = ["text"]  # noqa: RUF012  (the base class declares it so)

    def __init__(
        self, runtime: Runtime, tokenizer: PreTrainedTokenizerBase, inputs: GraphInputs, dimensions: int
    ) -> None:
        super().__init__()
        self.runtime = runtime
        self.tokenizer = self.reader = tokenizer  # InputModule declares the first with another type
        self.inputs = inputs
        self.dimensions = dimensions

    def ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Tokenize texts to ids in their frame, truncated to the maximum length."""
        return framed_ids(self.reader, self.inputs.frame, list(texts), self.max_seq_length)

    def batch(self, sequences: Sequence[list[int]]) -> tuple[np.ndarray, np.ndarray]:
        """Pad sequences to a batch for the graph: ids and attention mask (B,T) int64, padded on the right."""
        ids, attention_mask = pad_arrays(sequences, self.inputs.pad_id)
        return ids, attention_mask.astype(np.int64)

    def forward(self, features: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        """Raise: a graph runs on texts, not on features."""
        raise EngineError("A compiled encoder runs on texts, not on features: call CompiledEncoder.encode.")

    # -- many texts -------------------------------------------------------------------------------------------------

    def vectors(self, texts: Sequence[str], batch_size: int, advance: Callable[[int], object]) -> np.ndarray:
        """Compute the vectors (N,K) of distinct texts in their order; call `advance` with the number of texts done.

        Texts are processed longest first by characters, so that windows tokenized ahead contain texts of similar
        length. Within a window, batches are formed by number of tokens (essent.recipe.tokens.ids.batches).
        """
        vectors = np.empty((len(texts), self.dimensions), np.float32)

        def keep(rows: np.ndarray, batch_vectors: np.ndarray) -> None:
            vectors[rows] = batch_vectors
            advance(len(rows))

        if len(texts) == 1:  # without the thread of `_batches`
            keep(np.arange(1), self.runtime.one(*self.batch(self.ids(texts))))
            return vectors
        with closing(self._batches(texts, batch_size)) as padded:
            first, second = next(padded), next(padded, None)
            if second is None:  # one batch: all threads on it
                keep(first[0], self.runtime.one(*first[1:]))
            else:
                self.runtime.many(chain([first, second], padded), keep)
        return vectors

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

    # -- as a module of sentence-transformers -----------------------------------------------------------------------

    def get_embedding_dimension(self) -> int:
        """Return the number of dimensions of a vector."""
        return self.dimensions

    @property
    def max_seq_length(self) -> int | None:
        """The maximum length in tokens; None without a limit."""
        return self.inputs.max_seq_length

    @max_seq_length.setter
    def max_seq_length(self, value: int | None) -> None:
        raise EngineError(
            f"max_seq_length={value!r}: a compiled encoder has a fixed maximum length of {self.max_seq_length} tokens. "
            "Set it before compiling."
        )

    def save(self, output_path: str, *args: Any, safe_serialization: bool = True, **kwargs: Any) -> None:
        """Raise: `CompiledEncoder.save` writes the graph."""
        raise EngineError("A module of a compiled encoder cannot be saved alone: call CompiledEncoder.save.")


def _windows(order: np.ndarray, lengths: np.ndarray) -> Iterator[np.ndarray]:
    """Split `order` (N,), longest first, into windows of at most WINDOW texts, and fewer if they are long."""
    start = 0
    while start < len(order):
        size = max(1, min(WINDOW, WINDOW_CHARACTERS // max(int(lengths[order[start]]), 1)))
        yield order[start : start + size]
        start += size


class CompiledEncoder(CalibratedTransformer, metaclass=NamesItsModel):
    """A SentenceTransformer that runs as one graph on the CPU; made by `compile` or `load`.

    `encode`, `similarity` and prompts work as in SentenceTransformer.

    Args:
        module: the engine with its file and tokenizer.
        recipe: the text form of the recipe.
        loss: the loss of a precision below float32.
        settings: prompts, similarity … for SentenceTransformer.

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
        self, module: EngineModule, recipe: str, loss: Loss | None = None, settings: dict[str, Any] | None = None
    ) -> None:
        super().__init__(modules=[module], device="cpu", **(settings or {}))
        self.recipe = recipe
        self.loss = loss
        self.golden: tuple[list[str], np.ndarray] = ([], np.zeros((0, module.dimensions), np.float32))

    @property
    def engine_module(self) -> EngineModule:
        """The module with tokenizer and runtime."""
        return cast("EngineModule", self[0])

    @property
    def precision(self) -> str:
        """The precision of the computation (float32, bfloat16 or int8); the vectors are float32."""
        return self.engine_module.runtime.precision

    def __repr__(self) -> str:
        runtime = self.engine_module.runtime
        return (
            f"CompiledEncoder({self.recipe!r}, engine={runtime.engine!r}, precision={runtime.precision!r}, "
            f"threads={runtime.threads}, streams={runtime.streams})"
        )

    encode = with_checked_arguments(SentenceTransformer.encode)

    def _inference(self, inputs: list[Any], **arguments: Any) -> torch.Tensor:
        """Run SentenceTransformer.encode's inner loop: each distinct text once, in batches by number of tokens."""
        texts: list[str] = inputs
        if arguments["output_value"] != "sentence_embedding":
            raise InputError(
                f"output_value={arguments['output_value']!r}: a compiled encoder computes only sentence vectors. Use "
                "an Encoder for token vectors."
            )
        module = self.engine_module
        prompt = arguments.get("prompt")
        distinct, inverse = distinct_texts([prompt + text for text in texts] if prompt else texts)
        if not distinct:
            return torch.empty(0, module.dimensions)
        with text_progress(len(distinct), bool(arguments.get("show_progress_bar"))) as update:
            distinct_vectors = module.vectors(distinct, arguments["batch_size"], update)
        vectors = torch.from_numpy(distinct_vectors if len(distinct) == len(texts) else distinct_vectors[inverse])
        return self._finished(vectors, texts, arguments.get("truncate_dim"), arguments.get("normalize_embeddings"))

    def start_multi_process_pool(self, *args: Any, **kwargs: Any) -> Any:
        """Raise: one compiled encoder already uses every core.

        Raises:
            EngineError: always.
        """
        raise EngineError("A compiled encoder already uses every core. Set their number with threads= and streams=.")

    def save(self, path: str, *args: Any, **kwargs: Any) -> None:
        """Save graph, tokenizer, recipe and golden vectors to a folder for `essent.load`."""
        from essent.engine.files import save_compiled

        save_compiled(self, Path(check_path(path)))


def compile(
    model: SentenceTransformer,
    engine: str = "openvino",
    *,
    precision: str = "float32",
    calibration: Sequence[str] | None = None,
    texts: Sequence[str] | None = None,
    threads: int | None = None,
    streams: int | None = None,
) -> CompiledEncoder:
    """Convert an Encoder, or a sentence-transformers model, into one graph, and check its vectors.

    Args:
        model: fitted if its recipe has learned parts; it is not modified.
        engine: "openvino" or "onnx".
        precision: float32; bfloat16, on CPUs with bfloat16 arithmetic; or int8 (OpenVINO only), which converts weights
            and, with `calibration`, activations too. The loss of bfloat16 and int8 is logged as a warning and stored in
            `loss`.
        calibration: texts like those that will be encoded; the first 300 are used for calibration.
        texts: like those that will be encoded; the loss is measured on them and the rest of `calibration`. If these
            are fewer than 300, essent's 320 sample sentences are added.
        threads, streams: see `essent.engine.runtime.Runtime`.

    Raises:
        EngineError: the model does not convert, the machine lacks the precision, or the vectors differ from torch's.
        NotFittedError: the recipe has learned parts and `fit` has not been called.
        MissingDependencyError: the engine's library is not installed.

    Example:
        >>> from essent import Encoder, compile
        >>> encoder = Encoder("sentence-transformers/all-MiniLM-L6-v2", "static")
        >>> compiled = compile(encoder, "openvino")
        >>> compiled.encode(["A short text."]).shape
        (1, 384)
    """
    precision = SHORT.get(precision, precision)
    kind = runtime_of(engine, precision)
    calibration_texts = list(dict.fromkeys(check_texts(calibration or ())))
    judged_texts = check_texts(texts or ())
    if precision != "int8" and calibration is not None:
        raise EngineError(f"calibration= requires precision='int8', not {precision!r}. Omit calibration=.")
    if not isinstance(model, SentenceTransformer):
        raise InputError(f"compile expects an Encoder or a SentenceTransformer, not {type(model).__name__}.")
    if calibration is not None and not calibration_texts:
        raise InputError("calibration= has no texts. Omit it to convert only the weights to int8.")
    if model.device.type != "cpu":
        raise EngineError(f"compile expects a model on the CPU, not on {model.device}. Load it with device='cpu'.")
    graph = graph_of(model)
    used, unused = calibration_texts[:CALIBRATION_TEXTS], calibration_texts[CALIBRATION_TEXTS:]
    folder = Path(tempfile.mkdtemp(prefix="essent-"))
    try:
        convert(graph, engine, folder)
        if precision == "int8":
            quantize(folder / "model.xml", _calibration_batches(graph, used))
        runtime = kind(folder, precision, threads, streams)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    weakref.finalize(runtime, shutil.rmtree, folder, ignore_errors=True)  # the runtime reads its files later
    recipe = graph.module
    inputs = GraphInputs(recipe.plan.frame, recipe.backbone.max_seq_length, recipe.backbone.pad_id)
    golden = _golden_vectors(graph, model)
    module = EngineModule(runtime, recipe.tokenizer, inputs, golden.shape[1])
    compiled = CompiledEncoder(module, graph.text, settings=settings_of(model))
    compiled.golden = list(GOLDEN_TEXTS), golden
    compiled.calibration = getattr(model, "calibration", None)
    check_golden(compiled, "The converted graph")
    if precision != "float32":
        compiled.loss = measure_loss(model, compiled, texts_to_judge([*judged_texts, *unused], used))
        logger.warning("%s in %s: %s.", compiled.recipe, precision, compiled.loss)
    return compiled


def _calibration_batches(graph: Graph, texts: list[str]) -> list[tuple[Any, ...]]:
    """Pad texts to batches of at most 8, as the engine receives them."""
    sequences = graph.module.ids(texts) if texts else []
    padded = []
    for indices in batches([len(ids) for ids in sequences], 8):
        for chunk in np.array_split(indices, -(-len(indices) // 8)):
            padded.append(tuple(tensor.numpy() for tensor in graph.pad([sequences[index] for index in chunk])))
    return padded


# -- checks -----------------------------------------------------------------------------------------------------------


def _difference(vectors: np.ndarray, golden: np.ndarray) -> float:
    """Return the largest difference of an entry, relative to the longest golden vector if that is above 1."""
    return float(np.abs(vectors - golden).max()) / max(float(np.linalg.norm(golden, axis=1).max()), 1.0)


def _golden_vectors(graph: Graph, model: SentenceTransformer) -> np.ndarray:
    """Compute the graph's vectors of the golden texts with torch, and check that they equal the model's.

    Raises:
        EngineError: the graph computes other vectors than the model.
    """
    recipe = graph.module
    with graph.for_export():
        vectors = np.ascontiguousarray(graph(*graph.pad(recipe.ids(GOLDEN_TEXTS))).numpy(), np.float32)
    dimensions = vectors.shape[1]
    exact = np.asarray(model.encode(list(GOLDEN_TEXTS), prompt="", show_progress_bar=False, truncate_dim=dimensions))
    is_noisy = any(step.startswith("quantile") for step in recipe.recipe.shaping)  # columns of noise: see QuantileGraph
    is_same = (
        cosines(exact, vectors).min() > 0.98 if is_noisy else _difference(vectors, exact) <= TOLERANCES["openvino"]
    )
    if not is_same:
        raise EngineError(
            f"The graph of {graph.text!r} computes other vectors than the model. This is a bug of essent: please "
            "report it."
        )
    return vectors


def check_golden(compiled: CompiledEncoder, subject: str) -> None:
    """Compare each text alone and all in one batch with the golden vectors, which torch computed in float32.

    Raises:
        EngineError: the vectors differ by more than rounding.
    """
    texts, golden = compiled.golden
    module, precision = compiled.engine_module, compiled.precision
    if golden.shape != (len(texts), module.dimensions) or not texts:
        raise EngineError(
            f"{subject} has golden vectors of shape {golden.shape}; expected ({len(texts)}, {module.dimensions}), one "
            "per golden text."
        )
    try:
        together = module.runtime.one(*module.batch(module.ids(texts)))
        alone = np.concatenate([module.runtime.one(*module.batch(module.ids([text]))) for text in texts])
    except (RuntimeError, ValueError) as error:
        raise EngineError(f"{subject} does not run: {str(error).strip().splitlines()[-1]}") from error
    for vectors in (together, alone):
        if vectors.shape != golden.shape:
            raise EngineError(f"{subject} returns vectors of shape {vectors.shape}; expected {golden.shape}.")
        if precision == "float32":
            difference, allowed = _difference(vectors, golden), TOLERANCES[module.runtime.engine]
            if not difference <= allowed:
                raise EngineError(
                    f"{subject} does not reproduce torch's vectors: the difference is {difference:.1e}, the limit "
                    f"{allowed:.0e}."
                )
        elif not (lowest := float(cosines(vectors, golden).min())) >= (allowed := LOWEST_COSINE[precision]):
            raise EngineError(
                f"{subject} does not reproduce torch's vectors in {precision}: the lowest cosine is {lowest:.3f}, the "
                f"limit {allowed}. Use precision='float32', or calibrate int8 on texts like yours."
            )
