"""`compile`: convert a model into a graph with torch, and check its vectors."""

from __future__ import annotations

import logging
import shutil
import tempfile
import weakref
from pathlib import Path

import numpy as np
from sentence_transformers import SentenceTransformer

from essent._core.compat import settings_of
from essent._core.machine import SHORT
from essent.encoder.save import GOLDEN_TEXTS
from essent.engine.compiled import CompiledEncoder, check_golden, loss_of
from essent.engine.graph import convert, graph_of, quantize
from essent.engine.runtime import TOKENIZER_FILES, runtime_of
from essent.errors import EngineError, InputError
from essent.recipe.reading import reading_of
from essent.tasks.sample import sample_texts

logger = logging.getLogger(__name__)
EVERY_DIMENSION = 2**31  # whatever the model returns by default


def compile(
    model: SentenceTransformer,
    engine: str = "openvino",
    *,
    precision: str = "float32",
    threads: int | None = None,
) -> CompiledEncoder:
    """Convert an Encoder, or a sentence-transformers model, into one graph, and check its vectors.

    Args:
        model: fitted if its recipe has learned parts; it is not modified.
        engine: "openvino" or "onnx".
        precision: float32; bfloat16, on CPUs with bfloat16 arithmetic; or int8 (OpenVINO only), which converts the
            weights. The loss of bfloat16 and int8 on essent's 320 sample sentences is logged as a warning and stored in
            `loss`.
        threads: number of threads; by default the machine's cores.

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
    if not isinstance(model, SentenceTransformer):
        raise InputError(f"compile expects an Encoder or a SentenceTransformer, not {type(model).__name__}.")
    if model.device.type != "cpu":
        raise EngineError(f"compile expects a model on the CPU, not on {model.device}. Load it with device='cpu'.")
    graph = graph_of(model)
    folder = Path(tempfile.mkdtemp(prefix="essent-"))
    try:
        convert(graph, engine, folder)
        if precision == "int8":
            quantize(folder / "model.xml")
        recipe = graph.module
        recipe.tokenizer.save_pretrained(folder)
        reading = reading_of(recipe.tokenizer, recipe.plan.frame, recipe.backbone.max_seq_length)
        (folder / TOKENIZER_FILES[0]).write_text(reading.tokenizer, encoding="utf-8")
        runtime = kind(folder, precision, threads)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    weakref.finalize(runtime, shutil.rmtree, folder, ignore_errors=True)  # the runtime reads its files later
    golden = model.encode(list(GOLDEN_TEXTS), prompt="", show_progress_bar=False, truncate_dim=EVERY_DIMENSION)
    texts_and_vectors = list(GOLDEN_TEXTS), np.ascontiguousarray(golden, np.float32)
    compiled = CompiledEncoder(
        runtime, reading, recipe.backbone.pad_id, graph.text, texts_and_vectors, **settings_of(model)
    )
    compiled.calibration = getattr(model, "calibration", None)
    check_golden(compiled, "The converted graph")
    if precision != "float32":
        exact, rounded = (np.asarray(m.encode(sample_texts(), show_progress_bar=False)) for m in (model, compiled))
        compiled.loss = loss_of(exact, rounded)
        logger.warning("%s in %s: %s.", compiled.recipe, precision, compiled.loss)
    return compiled
