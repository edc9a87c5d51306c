"""CompiledEncoder: a SentenceTransformer whose whole recipe is one graph in OpenVINO or onnxruntime."""

from __future__ import annotations

import json
import logging
import shutil
import tempfile
import weakref
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.numpy import save_file
from sentence_transformers import SentenceTransformer

from essent._core.arguments import check_path, with_checked_arguments
from essent._core.arithmetic import SHORT
from essent._core.atomic import replacing_folder
from essent._core.compat import settings_of
from essent._core.folders.digests import write_digests
from essent._core.folders.names import GRAPH, STATE_FOLDER
from essent._core.folders.places import check_replaceable, names_to_keep
from essent._core.progress import text_progress
from essent._core.texts import check_texts, distinct_texts
from essent._core.types import NamesItsModel
from essent.encoder.calibrated import CalibratedTransformer
from essent.encoder.saving.save import GOLDEN_TEXTS
from essent.engine.convert import convert, quantise
from essent.engine.graph import Graph, graph_of
from essent.engine.libraries import ALL_FILES
from essent.engine.loss import Loss, cosines, loss_of, texts_to_judge
from essent.engine.module import EngineModule, GraphInputs
from essent.engine.runtime import hidden_instructions, runtime_of
from essent.errors import EngineError, InputError
from essent.recipe.tokens.ids import batches, pad
from essent.tasks.calibration import write_calibration
from essent.version import __version__

logger = logging.getLogger(__name__)
FORMAT = 2  # 1 listed the digests of the graph alone, in engine.json
GRAPH_FILE = "engine.json"

TOLERANCES = {"openvino": 1e-5, "onnx": 1e-4}  # of float32, relative to the longest vector where that is above 1
LOWEST_COSINE = {"bfloat16": 0.999, "int8": 0.5}  # with float32; below, something else than rounding has gone wrong
CALIBRATION_TEXTS = 300


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
        if len(distinct) == 1:
            distinct_vectors = module.vectors(distinct, 1)
        else:
            progress = bool(arguments.get("show_progress_bar"))
            with text_progress(len(distinct), progress) as update:
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
    folder = Path(tempfile.mkdtemp(prefix="essent-"))
    try:
        convert(graph, engine, folder)
        if precision == "int8":
            quantise(folder / "model.xml", _calibration_batches(graph, calibrating[:CALIBRATION_TEXTS]))
        runtime = kind(folder, precision, threads, streams)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    weakref.finalize(runtime, shutil.rmtree, folder, ignore_errors=True)  # it reads its files as long as it lives
    recipe = graph.module
    inputs = GraphInputs(recipe.plan.frame, recipe.backbone.max_seq_length, recipe.backbone.pad_id)
    golden = golden_vectors(graph, model)
    module = EngineModule(runtime, recipe.tokenizer, inputs, golden.shape[1])
    compiled = CompiledEncoder(module, text_of(graph), settings=settings_of(model))
    compiled.golden = list(GOLDEN_TEXTS), golden
    compiled.calibration = getattr(model, "calibration", None)
    check_golden(compiled, "The converted graph")
    if precision != "float32":
        spare_texts = [*judging, *calibrating[CALIBRATION_TEXTS:]]
        compiled.loss = measure_loss(model, compiled, texts_to_judge(spare_texts, calibrating[:CALIBRATION_TEXTS]))
        logger.warning("%s in %s: %s.", compiled.recipe, precision, compiled.loss)
    return compiled


def text_of(graph: Graph) -> str:
    """What the graph computes, for people."""
    tail = [type(step).__name__ for step in graph.tail]
    return " + ".join([str(graph.module.recipe), *tail])


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


def golden_vectors(graph: Graph, model: SentenceTransformer) -> np.ndarray:
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
    scale = max(float(np.linalg.norm(own, axis=1).max()), 1.0)
    same = (
        cosines(own, vectors).min() > 0.98 if noisy else np.abs(own - vectors).max() / scale <= TOLERANCES["openvino"]
    )
    if not same:
        raise EngineError(f"The graph of {text_of(graph)!r} does not compute what the model does; please report it.")
    return vectors


def check_golden(compiled: CompiledEncoder, subject: str) -> None:
    """Compare with the golden vectors, which torch computed in float32; each text alone and all in one batch.

    Raises:
        EngineError: they differ by more than rounding.
    """
    texts, golden = compiled.golden
    module = compiled.engine_module
    width = module.dimensions
    if golden.shape != (len(texts), width) or not texts:
        raise EngineError(f"{subject} has no golden vectors for {len(texts)} texts of {width} dimensions.")
    try:
        together = module.runtime.one(*module.batch(module.ids(texts)))
        alone = np.concatenate([module.runtime.one(*module.batch(module.ids([text]))) for text in texts])
    except (RuntimeError, ValueError) as error:
        hint = hidden_instructions() if module.runtime.engine == "openvino" else ""
        raise EngineError(f"{subject} does not run: {str(error).strip().splitlines()[-1]}{hint}") from error
    for vectors in (together, alone):
        if vectors.shape != golden.shape:
            raise EngineError(f"{subject} gives vectors of shape {vectors.shape}, the golden ones are {golden.shape}.")
        if compiled.precision == "float32":
            scale = max(float(np.linalg.norm(golden, axis=1).max()), 1.0)
            difference, allowed = float(np.abs(vectors - golden).max()) / scale, TOLERANCES[module.runtime.engine]
            if not difference <= allowed:
                raise EngineError(
                    f"{subject} does not give torch's vectors: they differ by {difference:.1e}, allowed is "
                    f"{allowed:.0e}."
                )
        elif not (lowest := float(cosines(vectors, golden).min())) >= LOWEST_COSINE[compiled.precision]:
            allowed = LOWEST_COSINE[compiled.precision]
            raise EngineError(
                f"{subject} does not give torch's vectors in {compiled.precision}: the lowest cosine is {lowest:.3f}, "
                f"allowed is {allowed}. Precision 'float32' keeps them, and int8 needs calibration on texts like yours."
            )


def measure_loss(model: SentenceTransformer, compiled: CompiledEncoder, texts: Sequence[str]) -> Loss:
    """How far the compiled vectors are from the model's own; see `texts_to_judge` for the texts."""
    exact, compiled_vectors = (
        np.asarray(part.encode(list(texts), show_progress_bar=False)) for part in (model, compiled)
    )
    return loss_of(exact, compiled_vectors, True)


def describe(compiled: CompiledEncoder) -> dict[str, Any]:
    """What a saved folder says about it."""
    module = compiled.engine_module
    return {
        "engine": module.runtime.engine,
        "precision": module.runtime.precision,
        "recipe": compiled.recipe,
        "inputs": asdict(module.inputs),
        "dimensions": module.dimensions,
        "loss": None if compiled.loss is None else asdict(compiled.loss),
        **settings_of(compiled),
        "golden_texts": compiled.golden[0],
    }


def save_compiled(compiled: CompiledEncoder, path: Path) -> None:
    """Write the folder, which appears when all of it is written; what lay in it beside an older graph stays.

    Raises:
        ModelError: the place is a file, or the folder of another model.
    """
    check_replaceable(path, GRAPH)
    module = compiled.engine_module
    graph = module.runtime.path.parent
    with replacing_folder(path, names_to_keep(path, GRAPH, ALL_FILES)) as folder:
        for name in ALL_FILES:
            if (graph / name).is_file():
                shutil.copy(graph / name, folder / name)
        module.reader.save_pretrained(folder)
        (folder / STATE_FOLDER).mkdir()
        save_file({"golden": compiled.golden[1]}, folder / STATE_FOLDER / "golden.safetensors")
        metadata = {"format": FORMAT, "essent": __version__, **describe(compiled)}
        text = json.dumps(metadata, ensure_ascii=False, indent=2)
        (folder / STATE_FOLDER / GRAPH_FILE).write_text(text, encoding="utf-8")
        if compiled.calibration is not None:
            write_calibration(compiled.calibration, folder)
        write_digests(folder)
