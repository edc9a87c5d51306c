"""CompiledEncoder: a SentenceTransformer whose whole recipe is one graph in OpenVINO or onnxruntime."""

from __future__ import annotations

import logging
import shutil
import tempfile
import weakref
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules.input_module import InputModule
from transformers import PreTrainedTokenizerBase

from essent._core.arguments import check_path, with_checked_arguments
from essent._core.arithmetic import SHORT
from essent._core.compat import settings_of
from essent._core.progress import text_progress
from essent._core.texts import check_texts, distinct_texts
from essent._core.types import NamesItsModel
from essent.encoder.calibrated import CalibratedTransformer
from essent.encoder.saving.save import GOLDEN_TEXTS
from essent.engine.convert import convert, quantise
from essent.engine.gain import Loss, cosines, measure_loss, texts_to_judge
from essent.engine.graph import Graph, graph_of
from essent.engine.runtime import Batch, Runtime, runtime_of
from essent.errors import EngineError, InputError
from essent.recipe.tokens.ids import Frame, batches, framed_ids, pad

logger = logging.getLogger(__name__)
WINDOW = 2048  # texts tokenised ahead while the ones before are computed,
WINDOW_LETTERS = 2**22  # fewer where they are long: their ids are all in memory before they are cut
TOLERANCES = {"openvino": 1e-5, "onnx": 1e-4}  # of float32, relative to the longest vector where that is above 1
LOWEST_COSINE = {"bfloat16": 0.999, "int8": 0.5}  # with float32; below, something else than rounding has gone wrong
CALIBRATION_TEXTS = 300


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
        inputs: frame, maximum length, padding.
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

    def forward(self, features: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        """Features to vectors: refused, a graph takes texts."""
        raise EngineError("A compiled encoder computes vectors of texts: CompiledEncoder.encode.")

    # -- many texts -------------------------------------------------------------------------------------------------

    def vectors(self, texts: Sequence[str], batch_size: int, advance: Callable[[int], object]) -> np.ndarray:
        """Vectors (N,K) of distinct texts in their order; `advance` is told how many texts are done.

        Texts are taken longest first by their letters, so that the windows that are tokenised ahead hold texts of
        nearly the same length; within a window batches are made by tokens (essent.recipe.tokens.ids.batches).
        """
        vectors = np.empty((len(texts), self.dimensions), np.float32)
        if len(texts) == 1:
            vectors[:] = self.runtime.one(*self.batch(self.ids(texts)))
            advance(1)
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


class CompiledEncoder(CalibratedTransformer, metaclass=NamesItsModel):
    """`encode`, `similarity` and prompts as SentenceTransformer has them; computed by an engine, on the CPU.

    Args:
        module: the engine with its file and tokenizer.
        recipe: what it computes, as text.
        loss: of a precision below float32.
        settings: prompts, similarity … for SentenceTransformer.
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
        """Tokenizer and runtime."""
        module = self[0]
        if not isinstance(module, EngineModule):
            raise EngineError(f"The first module is {type(module).__name__}, no longer an engine.")
        return module

    @property
    def precision(self) -> str:
        """float32, bfloat16 or int8: what is computed in; the vectors are float32."""
        return self.engine_module.runtime.precision

    def __repr__(self) -> str:
        runtime = self.engine_module.runtime
        return (
            f"CompiledEncoder({self.recipe!r}, engine={runtime.engine!r}, precision={runtime.precision!r}, "
            f"threads={runtime.threads}, streams={runtime.streams})"
        )

    encode = with_checked_arguments(SentenceTransformer.encode)

    def _inference(self, inputs: list[Any], **arguments: Any) -> torch.Tensor:
        """SentenceTransformer.encode's inner part: each distinct text once, in batches by tokens, results in order."""
        texts: list[str] = inputs
        if arguments["output_value"] != "sentence_embedding":
            raise InputError("A compiled encoder gives sentence vectors only; token vectors come from an Encoder.")
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
        """Refused: one compiled encoder already keeps every core busy.

        Raises:
            EngineError: always.
        """
        raise EngineError("A compiled encoder already uses every core; choose them with threads= and streams=.")

    def save(self, path: str, *args: Any, **kwargs: Any) -> None:
        """Write a folder that `essent.load` reads: graph, tokenizer, recipe, golden vectors."""
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
        model: fitted where its recipe learns something; left as it is.
        engine: "openvino" or "onnx".
        precision: float32; bfloat16, on CPUs that have it; int8 (OpenVINO): with `calibration` weights and activations,
            without it the weights only. What these two cost is logged as a warning and kept as `loss`.
        calibration: texts like those that will be encoded; the first 300 calibrate.
        texts: like those that will be encoded; with the rest of `calibration` the loss is judged on them. Where they
            are fewer than 300, essent's own 320 sentences are taken too.
        threads, streams: see `essent.engine.runtime.Runtime`.

    Raises:
        EngineError: the model does not convert, the machine lacks the precision, or the vectors differ from torch's.
        NotFittedError: the recipe learns something and `fit` has not been called.
        MissingDependencyError: the engine's library is not installed.
    """
    precision = SHORT.get(precision, precision)
    kind = runtime_of(engine, precision)
    calibrating = [] if calibration is None else list(dict.fromkeys(check_texts(calibration)))
    judging = [] if texts is None else check_texts(texts)
    if precision != "int8" and calibration is not None:
        raise EngineError(f"calibration is for precision='int8', not {precision!r}.")
    if not isinstance(model, SentenceTransformer):
        raise InputError(f"compile takes an Encoder or a SentenceTransformer, not {type(model).__name__}.")
    if calibration is not None and not calibrating:
        raise InputError("calibration has no texts; without calibration= only the weights become int8.")
    if model.device.type != "cpu":
        raise EngineError(f"Graphs are made on the CPU, this model is on {model.device}: load it with device='cpu'.")
    graph = graph_of(model)
    used, spare = calibrating[:CALIBRATION_TEXTS], calibrating[CALIBRATION_TEXTS:]
    folder = Path(tempfile.mkdtemp(prefix="essent-"))
    try:
        convert(graph, engine, folder)
        if precision == "int8":
            quantise(folder / "model.xml", _calibration_batches(graph, used))
        runtime = kind(folder, precision, threads, streams)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    weakref.finalize(runtime, shutil.rmtree, folder, ignore_errors=True)  # it reads its files as long as it lives
    recipe = graph.module
    inputs = GraphInputs(recipe.plan.frame, recipe.backbone.max_seq_length, recipe.backbone.pad_id)
    golden = _golden_vectors(graph, model)
    module = EngineModule(runtime, recipe.tokenizer, inputs, golden.shape[1])
    compiled = CompiledEncoder(module, graph.text, settings=settings_of(model))
    compiled.golden = list(GOLDEN_TEXTS), golden
    compiled.calibration = getattr(model, "calibration", None)
    check_golden(compiled, "The converted graph")
    if precision != "float32":
        compiled.loss = measure_loss(model, compiled, texts_to_judge([*judging, *spare], used))
        logger.warning("%s in %s: %s.", compiled.recipe, precision, compiled.loss)
    return compiled


def _calibration_batches(graph: Graph, texts: list[str]) -> list[tuple[Any, Any]]:
    """Texts as padded batches of at most 8, as the engine will see them."""
    recipe = graph.module
    sequences = recipe.ids(texts) if texts else []
    padded = []
    for chosen in batches([len(s) for s in sequences], 8):
        for part in np.array_split(chosen, -(-len(chosen) // 8)):
            features = recipe.pad([sequences[i] for i in part])
            padded.append((features["input_ids"].numpy(), features["attention_mask"].numpy()))
    return padded


# -- checks -----------------------------------------------------------------------------------------------------------


def _difference(vectors: np.ndarray, golden: np.ndarray) -> float:
    """The largest difference of an entry, relative to the longest golden vector where that is above 1."""
    return float(np.abs(vectors - golden).max()) / max(float(np.linalg.norm(golden, axis=1).max()), 1.0)


def _golden_vectors(graph: Graph, model: SentenceTransformer) -> np.ndarray:
    """The graph's vectors of the golden texts by torch, once they are the model's own.

    Raises:
        EngineError: the graph is not what the model computes.
    """
    recipe = graph.module
    tokens = pad(recipe.ids(GOLDEN_TEXTS), recipe.plan.frame, recipe.backbone.pad_id)
    with graph.for_export():
        vectors = np.ascontiguousarray(graph(tokens.ids, tokens.attention_mask.long()).numpy(), np.float32)
    own = np.asarray(model.encode(list(GOLDEN_TEXTS), prompt="", show_progress_bar=False, truncate_dim=len(vectors[0])))
    noisy = any(spec.startswith("quantile") for spec in recipe.recipe.shaping)  # columns of noise: see QuantileGraph
    if not (cosines(own, vectors).min() > 0.98 if noisy else _difference(vectors, own) <= TOLERANCES["openvino"]):
        raise EngineError(f"The graph of {graph.text!r} does not compute what the model does; please report it.")
    return vectors


def check_golden(compiled: CompiledEncoder, subject: str) -> None:
    """Compare with the golden vectors, which torch computed in float32; each text alone and all in one batch.

    Raises:
        EngineError: they differ by more than rounding.
    """
    texts, golden = compiled.golden
    module, precision = compiled.engine_module, compiled.precision
    if golden.shape != (len(texts), module.dimensions) or not texts:
        raise EngineError(f"{subject} has no golden vectors for {len(texts)} texts of {module.dimensions} dimensions.")
    try:
        together = module.runtime.one(*module.batch(module.ids(texts)))
        alone = np.concatenate([module.runtime.one(*module.batch(module.ids([text]))) for text in texts])
    except (RuntimeError, ValueError) as error:
        raise EngineError(f"{subject} does not run: {str(error).strip().splitlines()[-1]}") from error
    for vectors in (together, alone):
        if vectors.shape != golden.shape:
            raise EngineError(f"{subject} gives vectors of shape {vectors.shape}, the golden ones are {golden.shape}.")
        if precision == "float32":
            difference, allowed = _difference(vectors, golden), TOLERANCES[module.runtime.engine]
            if not difference <= allowed:
                raise EngineError(
                    f"{subject} does not give torch's vectors: they differ by {difference:.1e}, allowed is "
                    f"{allowed:.0e}."
                )
        elif not (lowest := float(cosines(vectors, golden).min())) >= (allowed := LOWEST_COSINE[precision]):
            raise EngineError(
                f"{subject} does not give torch's vectors in {precision}: the lowest cosine is {lowest:.3f}, allowed "
                f"is {allowed}. Precision 'float32' keeps them, and int8 needs calibration on texts like yours."
            )
