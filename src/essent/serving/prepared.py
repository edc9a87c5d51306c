"""Models as the server runs them: verified, loaded, compiled, and described, each in a process of its own."""

from __future__ import annotations

import hashlib
import json
import logging
import multiprocessing
import os
import signal
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from essent._core.folders.contents import ABOUT, is_essent_folder, is_exported_folder, read_about
from essent._core.folders.files import STATE_FOLDER
from essent._core.machine import AUTO, BFLOAT16, FLOAT32
from essent.engine.compiled import TOLERANCES, CompiledEncoder
from essent.engine.runtime import RUNTIMES
from essent.errors import EngineError, MissingDependencyError, ModelError, RecipeError
from essent.recipe.reading import Reading, reading_of
from essent.serving.run import STOPPING
from essent.serving.worker import Source, ignore_stop_signals
from essent.static.encoder import StaticEncoder, open_encoder
from essent.tasks.calibration import Calibration
from essent.tasks.sample import sample_pairs_path
from essent.verification.golden import verify
from essent.version import __version__

if TYPE_CHECKING:
    from essent.encoder.encoder import Encoder


logger = logging.getLogger(__name__)
STATIC_TEXTS = ("A man is playing a large flute.", "How far is the moon from the earth?")
OWN_TOLERANCE = 1e-4  # formats below float32: differences of the same graph between batches
BANDS = (("unrelated", 0.0, 1.0), ("alike in part", 2.0, 3.5), ("same meaning", 4.0, 5.0))  # scores of pairs


@dataclass(frozen=True)
class Description:
    """The recipe, fit and check of a model, as `/recipe` returns them.

    Attributes:
        digest: digest of the recipe and its golden vectors.
        engine, precision: static, openvino, onnx or torch, and its number format.
        fitted_on: what the recipe was fitted on, if it was.
        golden_vectors: number of `texts`, `allowed_difference`, and `differences` per way of loading, which are empty
            for models that essent did not save.
    """

    model: str
    recipe: str
    digest: str
    engine: str
    precision: str
    dimensions: int
    unit_length: bool
    max_tokens: int | None
    similarity: str
    prompts: dict[str, str]
    default_prompt: str | None
    fitted_on: str | None
    golden_vectors: dict[str, Any]
    essent: str = __version__


@dataclass(frozen=True)
class Prepared:
    """A model that can be served.

    Attributes:
        name: the name by which requests select it.
        source: what the engine loads.
        golden_texts, golden: texts, and the vectors (N,K) that the engine must reproduce.
        token_weights: weight per token (V,) if the recipe's weights depend on the token alone, otherwise None.
        calibration: the calibration of the model's cosines; None if it has none.
        typical: the quantiles of the model's cosines by label of pairs, as `/compare` returns them.
    """

    name: str
    description: Description
    source: Source
    reading: Reading
    golden_texts: list[str]
    golden: np.ndarray
    token_weights: np.ndarray | None
    calibration: Calibration | None
    typical: list[dict[str, Any]]

    @cached_property
    def static(self) -> StaticEncoder | None:
        """The static encoder, if it is one. It runs in the HTTP process, and `reading` truncates its texts."""
        if self.source.engine != "static":
            return None
        return StaticEncoder(replace(StaticEncoder.load(self.source.folder).table, limit=None))

    def ids(self, texts: list[str]) -> list[np.ndarray]:
        """Return the ids of each text, not truncated: (T,) int32 each."""
        if self.static is None:
            return [np.array(ids, np.int32) for ids in self.reading.framed(texts)]
        ids, lengths = self.static.ids(texts)
        return [ids[start:stop] for start, stop in pairwise([0, *np.cumsum(lengths).tolist()])]


def named(model: str) -> tuple[str, str]:
    """Split `NAME=MODEL` into name and model; by default, the name is the last part of the folder."""
    name, equals, source = model.partition("=")
    if equals and name and "/" not in name and not Path(model).exists():
        return name, source
    path = Path(model)
    return (path.resolve().name if path.exists() else model), model


def prepare(name_and_model: str, engine: str, folder: Path, precision: str = AUTO) -> Prepared:
    """Verify a model, load it, and compile it if its engine runs graphs.

    Args:
        name_and_model: `NAME=MODEL`, or a model.
        engine: auto, openvino, onnx or torch.
        folder: an empty folder, for the compiled graph.
        precision: auto, float32, or bfloat16, which needs a graph.

    Raises:
        VerificationError: a folder that essent saved has changed, or does not reproduce its golden vectors.
        EssentError: the model cannot be loaded, or this engine cannot run it.
    """
    name, source = named(name_and_model)
    source = str(Path(source).resolve()) if Path(source).exists() else source
    is_saved = is_exported_folder(source) or (Path(source).is_dir() and is_essent_folder(source, {}))
    verified = verify(source) if is_saved else None
    encoder, weights, graph_folder = _load(name, source, engine, precision, folder)
    texts: Sequence[str] = STATIC_TEXTS
    pad_id, tolerance = 0, 1e-5
    if isinstance(encoder, StaticEncoder):
        table, reading = encoder.table, encoder.reading
        recipe = verified.recipe if verified else repr(encoder)
        weights = np.ones(reading.size) if table.weights is None else table.weights
        loaded = ("static", source, str(table.rows.dtype))
    elif isinstance(encoder, CompiledEncoder):
        texts, reading, pad_id, recipe = encoder.golden[0], encoder.reading, encoder.pad_id, encoder.recipe
        loaded = (encoder.runtime.engine, graph_folder, encoder.precision)
        tolerance = TOLERANCES[loaded[0]] if encoder.precision == FLOAT32 else OWN_TOLERANCE
    else:
        from essent.encoder.save import GOLDEN_TEXTS

        module, backbone, recipe = encoder.module, encoder.module.backbone, str(encoder.recipe)
        if len(module.plan.frames) > 1:
            raise RecipeError(f"{recipe!r} adds several templates, which cannot be served. Use one template.")
        texts, pad_id = GOLDEN_TEXTS, backbone.pad_id
        reading = reading_of(module.tokenizer, module.plan.frame, module.max_seq_length)
        loaded = ("torch", source, str(backbone.static_table.dtype).removeprefix("torch."))
        tolerance = 1e-5 if encoder.device.type == "cpu" else 1e-3
    golden = np.asarray(encoder.encode(list(texts), prompt="", show_progress_bar=False), np.float32)
    if not np.isfinite(golden).all():
        raise ModelError(f"{source!r} returns vectors that are not finite.")
    rounded = np.round(golden.astype(np.float64), 4) + 0.0  # without negative zeros
    metadata = Path(source) / STATE_FOLDER / ABOUT
    fitted_texts = read_about(metadata).get("texts_counted") if metadata.is_file() else None
    description = Description(
        model=name,
        recipe=recipe,
        digest=hashlib.sha256(recipe.encode() + rounded.tobytes()).hexdigest(),
        engine=loaded[0],
        precision=loaded[2],
        dimensions=golden.shape[1],
        unit_length=bool(np.all(np.abs(np.linalg.norm(golden, axis=1) - 1) < 1e-3)),
        max_tokens=reading.max_seq_length,
        similarity=str(encoder.similarity_fn_name),
        prompts={key: text for key, text in encoder.prompts.items() if text is not None},
        default_prompt=encoder.default_prompt_name,
        fitted_on=f"token counts of {fitted_texts:,} texts" if fitted_texts else None,
        golden_vectors={
            "texts": len(texts),
            "allowed_difference": tolerance,
            "differences": dict(verified.differences) if verified else {},
        },
    )
    source_of_engine = Source(*loaded, pad_id, golden.shape[1], reading.max_seq_length)
    calibration = getattr(encoder, "calibration", None)
    typical = _typical_cosines(encoder)
    return Prepared(name, description, source_of_engine, reading, list(texts), golden, weights, calibration, typical)


def _typical_cosines(encoder: Any) -> list[dict[str, Any]]:
    """Return quantiles of the cosines of pairs that people labelled unrelated, partly similar, or the same."""
    rows = [json.loads(line) for line in sample_pairs_path().read_text("utf-8").splitlines()]
    texts = [row[side] for row in rows for side in ("sentence1", "sentence2")]
    unit = np.asarray(encoder.encode(texts, normalize_embeddings=True, show_progress_bar=False), np.float64)
    cosines, scores = np.einsum("nk,nk->n", unit[0::2], unit[1::2]), np.array([row["score"] for row in rows])
    typical = []
    for band, lowest, highest in BANDS:
        inside = cosines[(scores >= lowest) & (scores <= highest)]
        low, median, high = np.quantile(inside, (0.05, 0.5, 0.95)).round(4).tolist()
        typical.append({"pairs": band, "count": len(inside), "low": low, "median": median, "high": high})
    return typical


def _load(name: str, source: str, engine: str, precision: str, folder: Path) -> tuple[Any, np.ndarray | None, str]:
    """Return a StaticEncoder, an Encoder or a CompiledEncoder, its weight per token, and the graph's folder.

    With engine=auto, a model on the CPU is compiled for OpenVINO if possible.
    """
    is_halved = precision == BFLOAT16 and not is_exported_folder(source)
    if is_halved and engine == "torch":
        raise EngineError("precision='bfloat16' needs a graph on the CPU: set engine='openvino'.")
    model = open_encoder(source, FLOAT32 if is_halved else precision)
    if isinstance(model, CompiledEncoder) and engine not in (AUTO, model.runtime.engine):
        raise EngineError(f"{name} is a graph of {model.runtime.engine}; save it again with --format {engine}.")
    if isinstance(model, (StaticEncoder, CompiledEncoder)):
        return model, None, source
    from essent.encoder.encoder import Encoder
    from essent.engine.conversion import compile

    weights = _token_weights(model) if isinstance(model, Encoder) else None
    needs_graph = engine in RUNTIMES or is_halved
    if needs_graph or (engine == AUTO and model.device.type == "cpu"):
        kind = engine if engine in RUNTIMES else "openvino"
        try:
            compiled = compile(model, kind, precision=FLOAT32 if precision == AUTO else precision)
        except (EngineError, MissingDependencyError) as error:
            if needs_graph:
                raise
            logger.warning("%s runs in torch: %s", name, error)
        else:
            compiled.save(str(folder))
            return compiled, weights, str(folder)
    if not isinstance(model, Encoder):
        raise EngineError(
            f"{source!r} has modules that no recipe describes, which torch cannot serve: use --engine openvino."
        )
    return model, weights, source


def _token_weights(model: Encoder) -> np.ndarray | None:
    """Return the weight per token (V,) if the recipe's weights depend on the token alone, otherwise None."""
    from essent.recipe.weighting.base import ByToken
    from essent.recipe.weighting.methods import Uniform

    plan, vocabulary = model.module.plan, model.module.backbone.vocabulary
    factors = [factor for factor in plan.weightings if not isinstance(factor, Uniform)]
    if plan.recipe.reduce != "sum" or not all(isinstance(factor, ByToken) for factor in factors):
        return None
    tables = [factor.table(vocabulary, model.module.stats) for factor in factors if isinstance(factor, ByToken)]
    weights: np.ndarray = np.prod([np.ones(len(vocabulary)), *tables], axis=0)
    return weights


# -- the process that prepares a model ---------------------------------------------------------------------------------


def prepare_in_process(model: str, engine: str, folder: Path, precision: str = AUTO) -> Prepared:
    """Run `prepare` in a process, whose end frees the memory of its imports and model.

    Raises:
        EssentError: raised by `prepare`, or the process died.
    """
    folder.mkdir(exist_ok=True)
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(1, context, _initialize_process)
    try:
        with _delayed_signals():
            future = pool.submit(prepare, model, engine, folder, precision)
        return future.result()
    except BrokenProcessPool:
        reason = "The error is printed above; if there is none, most often it lacked memory."
        raise EngineError(f"The process that prepares {model!r} ended unexpectedly. {reason}") from None
    except OSError as error:
        raise ModelError(f"{model!r} cannot be loaded: {error}") from error
    except KeyboardInterrupt:
        for process in multiprocessing.active_children():
            process.kill()
        raise
    finally:
        pool.shutdown()


def _initialize_process() -> None:
    ignore_stop_signals()
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s")
    logging.getLogger("transformers").setLevel(logging.ERROR)
    os.environ.setdefault("TQDM_DISABLE", "1")


@contextmanager
def _delayed_signals() -> Iterator[None]:
    """Delay stop signals until the end of the block: a process that is half started cannot be killed."""
    received: list[int] = []
    handlers = {kind: signal.signal(kind, lambda number, _: received.append(number)) for kind in STOPPING}
    try:
        yield
    finally:
        for kind, handler in handlers.items():
            signal.signal(kind, handler)
    if received:
        raise KeyboardInterrupt
