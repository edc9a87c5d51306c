"""`compile`: convert a model into a graph with torch, and check its vectors; and a SentenceTransformer that runs it."""

from __future__ import annotations

import logging
import shutil
import tempfile
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules.input_module import InputModule

from essent._core.compat import settings_of
from essent._core.display import NamesItsModel
from essent._core.machine import SHORT
from essent._core.texts import check_texts
from essent.encoder.calibrated import CalibratedTransformer
from essent.encoder.save import GOLDEN_TEXTS
from essent.engine.compiled import (
    GRAPH_TOLERANCE,
    CompiledEncoder,
    check_golden,
    largest_difference,
    measure_loss,
    texts_to_judge,
)
from essent.engine.graph import Graph, convert, graph_of, quantize
from essent.engine.runtime import TOKENIZER_FILES, runtime_of
from essent.errors import EngineError, InputError
from essent.recipe.reading import reading_of
from essent.recipe.tokens import portions

logger = logging.getLogger(__name__)
CALIBRATION_TEXTS = 300


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
        recipe = graph.module
        recipe.tokenizer.save_pretrained(folder)
        reading = reading_of(recipe.tokenizer, recipe.plan.frame, recipe.backbone.max_seq_length)
        (folder / TOKENIZER_FILES[0]).write_text(reading.tokenizer, encoding="utf-8")
        runtime = kind(folder, precision, threads, streams)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    weakref.finalize(runtime, shutil.rmtree, folder, ignore_errors=True)  # the runtime reads its files later
    golden = list(GOLDEN_TEXTS), _golden_vectors(graph, model)
    compiled = CompiledEncoder(runtime, reading, recipe.backbone.pad_id, graph.text, golden, **settings_of(model))
    compiled.calibration = getattr(model, "calibration", None)
    check_golden(compiled, "The converted graph")
    if precision != "float32":
        compiled.loss = measure_loss(model, compiled, texts_to_judge([*judged_texts, *unused], used))
        logger.warning("%s in %s: %s.", compiled.recipe, precision, compiled.loss)
    return compiled


def _calibration_batches(graph: Graph, texts: list[str]) -> list[tuple[Any, ...]]:
    """Pad texts of similar length to batches of at most 8, as the engine receives them."""
    sequences = sorted(graph.module.ids(texts), key=len) if texts else []
    return [tuple(tensor.numpy() for tensor in graph.pad(part)) for _, part in portions(sequences, 8)]


def _golden_vectors(graph: Graph, model: SentenceTransformer) -> np.ndarray:
    """Compute the graph's vectors of the golden texts with torch, and check that they equal the model's.

    Raises:
        EngineError: the graph computes other vectors than the model.
    """
    with graph.for_export():
        vectors = np.ascontiguousarray(graph(*graph.pad(graph.module.ids(GOLDEN_TEXTS))).numpy(), np.float32)
    dimensions = vectors.shape[1]
    exact = np.asarray(model.encode(list(GOLDEN_TEXTS), prompt="", show_progress_bar=False, truncate_dim=dimensions))
    if largest_difference(vectors, exact) > GRAPH_TOLERANCE:
        raise EngineError(
            f"The graph of {graph.text!r} computes other vectors than the model. This is a bug of essent: please "
            "report it."
        )
    return vectors


# -- a graph as a SentenceTransformer ---------------------------------------------------------------------------------


class GraphModule(InputModule):
    """A module that tokenizes texts and runs a compiled encoder's graph."""

    modalities: list[Any] = ["text"]  # noqa: RUF012  (the base class declares it so)

    def __init__(self, encoder: CompiledEncoder) -> None:
        super().__init__()
        self.encoder = encoder
        self.tokenizer = encoder.reading.backend

    def preprocess(self, inputs: Any, prompt: str | None = None, **kwargs: Any) -> dict[str, Any]:
        """Return ids and attention mask (B,T) of texts."""
        ids, attention_mask = self.encoder.batch(self.encoder.ids([(prompt or "") + text for text in inputs]))
        return {"input_ids": torch.from_numpy(ids), "attention_mask": torch.from_numpy(attention_mask)}

    def forward(self, features: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        """Add the vectors (B,K), `sentence_embedding`, to ids and attention mask."""
        ids, attention_mask = (features[name].cpu().numpy() for name in ("input_ids", "attention_mask"))
        return {**features, "sentence_embedding": torch.from_numpy(self.encoder.runtime.one(ids, attention_mask))}

    def get_embedding_dimension(self) -> int:
        """Return the number of dimensions of a vector."""
        return self.encoder.width

    @property
    def max_seq_length(self) -> int | None:
        """The maximum length in tokens; None without a limit."""
        return self.encoder.max_seq_length

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Raise: `CompiledEncoder.save` writes the graph.

        Raises:
            EngineError: always.
        """
        raise EngineError("A SentenceTransformer of a graph cannot be saved: call CompiledEncoder.save.")


class GraphTransformer(CalibratedTransformer, metaclass=NamesItsModel):
    """A SentenceTransformer on the CPU with graph, prompts, similarity and calibration of a compiled encoder."""

    def __init__(self, encoder: CompiledEncoder) -> None:
        module = GraphModule(encoder)
        super().__init__(modules=[module], device="cpu", **encoder.settings)
        self.calibration = encoder.calibration

    save = save_pretrained = GraphModule.save  # before anything is written
