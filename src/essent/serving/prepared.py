"""The data of a model that a server reads before it runs the model, computed once in a separate process.

Only this process imports torch and transformers, unless the model is a saved graph. The HTTP process needs neither, and
an engine that runs a graph restarts in a second or two.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from essent._core.folders.contents import ABOUT, is_essent_folder, is_exported_folder, read_about
from essent._core.folders.files import STATE_FOLDER
from essent._core.machine import AUTO, BFLOAT16, FLOAT32
from essent.engine.choice import EngineChoice
from essent.engine.compiled import TOLERANCES, CompiledEncoder
from essent.errors import EngineError, MissingDependencyError, ModelError, RecipeError
from essent.recipe.tokens.reading import Reading, reading_of
from essent.serving.worker import Source
from essent.static.encoder import StaticEncoder, open_encoder
from essent.tasks.calibration import Calibration
from essent.verification.golden import verify
from essent.version import __version__

if TYPE_CHECKING:
    from essent.encoder.encoder import Encoder

logger = logging.getLogger(__name__)
STATIC_TEXTS = ("A man is playing a large flute.", "How far is the moon from the earth?")
OWN_TOLERANCE = 1e-4  # formats below float32: differences of the same graph between batches


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
    """

    name: str
    description: Description
    source: Source
    reading: Reading
    golden_texts: list[str]
    golden: np.ndarray
    token_weights: np.ndarray | None
    calibration: Calibration | None

    @cached_property
    def static(self) -> StaticEncoder | None:
        """The static encoder, if it is one. It runs in the HTTP process, and `reading` truncates its texts."""
        if self.source.engine != "static":
            return None
        return StaticEncoder(replace(StaticEncoder.load(self.source.folder).table, limit=None))

    def ids(self, texts: list[str]) -> list[np.ndarray]:
        """Return the ids of each text, not truncated: (T,) int32 each."""
        if self.static is None:
            return self.reading.ids(texts)
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
    encoder, weights, graph_folder = _load(name, source, EngineChoice(engine, precision), folder)
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
    return Prepared(name, description, source_of_engine, reading, list(texts), golden, weights, calibration)


def _load(name: str, source: str, chosen: EngineChoice, folder: Path) -> tuple[Any, np.ndarray | None, str]:
    """Return a StaticEncoder, an Encoder or a CompiledEncoder, its weight per token, and the graph's folder.

    With engine=auto, a model on the CPU is compiled for OpenVINO if possible.
    """
    if chosen.precision == BFLOAT16 and not is_exported_folder(source):
        if chosen.engine == "torch":
            raise EngineError("precision='bfloat16' needs a graph on the CPU: set engine='openvino'.")
        chosen = EngineChoice("openvino" if chosen.engine == AUTO else chosen.engine, BFLOAT16)
    model = open_encoder(source, chosen)
    if isinstance(model, (StaticEncoder, CompiledEncoder)):
        return model, None, source
    from essent.encoder.encoder import Encoder
    from essent.engine.conversion import compile

    weights = _token_weights(model) if isinstance(model, Encoder) else None
    if chosen.makes_graph or (chosen.engine == AUTO and model.device.type == "cpu"):
        kind = chosen.engine if chosen.makes_graph else "openvino"
        try:
            compiled = compile(model, kind, precision=chosen.graph_precision)
        except (EngineError, MissingDependencyError) as error:
            if chosen.makes_graph:
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
    from essent.recipe.weighting.position import Uniform

    plan, vocabulary = model.module.plan, model.module.backbone.vocabulary
    factors = [factor for factor in plan.weightings if not isinstance(factor, Uniform)]
    if plan.recipe.reduce != "sum" or not all(isinstance(factor, ByToken) for factor in factors):
        return None
    tables = [factor.table(vocabulary, model.module.stats) for factor in factors if isinstance(factor, ByToken)]
    weights: np.ndarray = np.prod([np.ones(len(vocabulary)), *tables], axis=0)
    return weights
