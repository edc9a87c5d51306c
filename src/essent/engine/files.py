"""Load the folder of a graph, an Encoder or a Router, and run a loaded model in another precision."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from essent._core.arguments import check_path
from essent._core.atomic import recover
from essent._core.folders.check import (
    ANYTHING,
    ROUTERS,
    SENTENCE_TRANSFORMERS,
    TEXT,
    WHOLE,
    Kind,
    check_model,
    listed,
    mapping,
    optional,
)
from essent._core.folders.contents import check_entries, read_modules, saved_settings
from essent._core.folders.files import (
    STATE_FOLDER,
    check_digests,
    damage_named,
    digest_of_file,
    read_arrays,
    read_json,
)
from essent._core.lazy import needs_torch
from essent._core.machine import AUTO, BFLOAT16, SHORT, check_bfloat16, precision_of
from essent.engine.compiled import FORMAT, GOLDEN_FILE, GRAPH_FILE, CompiledEncoder, Loss, check_golden
from essent.engine.runtime import ALL_FILES, TOKENIZER_FILES, runtime_of
from essent.errors import DamagedError, EngineError, ModelError
from essent.recipe.reading import Reading
from essent.recipe.tokens import DROPPED, Frame
from essent.tasks.calibration import read_calibration
from essent.version import __version__

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

ENTRIES: dict[str, Kind] = {
    "engine": TEXT,
    "precision": TEXT,
    "recipe": TEXT,
    "inputs": mapping(ANYTHING),
    "dimensions": WHOLE,
    "loss": optional(mapping(ANYTHING)),
    "golden_texts": listed(TEXT),
    **{key: kind for key, kind in SENTENCE_TRANSFORMERS.items() if key != "model_type"},
}


def load(path: str | Path, *, threads: int | None = None) -> CompiledEncoder | SentenceTransformer:
    """Load a compiled encoder or an Encoder from a folder that essent saved, or a model with a Router.

    A compiled encoder is checked against its golden vectors. A folder of sentence-transformers whose Router has modules
    for queries and others for documents becomes a plain SentenceTransformer.

    Args:
        threads: of a compiled encoder; by default the machine's cores.

    Raises:
        ModelError: another folder, or a damaged one.
        EngineError: the graph does not reproduce its golden vectors, or cannot run on this machine.
        MissingDependencyError: the engine's library is not installed.

    Example:
        >>> import essent
        >>> encoder = essent.Encoder("sentence-transformers/all-MiniLM-L6-v2", "static")
        >>> essent.compile(encoder).save("compiled")
        >>> essent.load("compiled", threads=1)
        CompiledEncoder('static', engine='openvino', precision='float32', threads=1)
    """
    root = Path(check_path(path))
    recover(root)
    if not (root / STATE_FOLDER / GRAPH_FILE).is_file():
        return _load_in_torch(root)
    with damage_named(str(path)):
        check_model(str(root), {})
        metadata = read_graph_metadata(root / STATE_FOLDER / GRAPH_FILE)
        if metadata["format"] == FORMAT:  # golden texts read only some rows of the vocabulary
            check_digests(root, whole=True)
        elif metadata.get("files") != {
            name: digest_of_file(root / name) for name in ALL_FILES if (root / name).is_file()
        }:
            raise DamagedError(f"The graph in {str(root)!r} has changed since it was saved. Export it again.")
        golden = read_arrays(root / STATE_FOLDER / GOLDEN_FILE)["golden"]
        expected = len(metadata["golden_texts"]), metadata["dimensions"]
        if golden.shape != expected or not len(golden):
            raise EngineError(
                f"The graph in {str(path)!r} has golden vectors of shape {golden.shape}; expected {expected}, one per "
                "golden text."
            )
        kind = runtime_of(metadata["engine"], metadata["precision"])
        inputs, loss = metadata["inputs"], metadata["loss"]
        compiled = CompiledEncoder(
            kind(root, metadata["precision"], threads),
            _reading(root, inputs),
            inputs["pad_id"],
            metadata["recipe"],
            (metadata["golden_texts"], golden),
            loss=loss and Loss(**{field: loss[field] for field in Loss.__dataclass_fields__}),
            **saved_settings(metadata),
        )
        compiled.calibration = read_calibration(root)
    check_golden(compiled, f"The graph in {str(path)!r}", alone=1)
    return compiled


def _load_in_torch(root: Path) -> SentenceTransformer:
    """Load the folder of an Encoder, or of a model with a Router."""
    if not root.is_dir():
        raise ModelError(f"There is no folder {str(root)!r}. Load models of the hub with essent.Encoder.")
    with needs_torch(f"Loading {str(root)!r}"):
        if (root / STATE_FOLDER / "encoder.json").is_file():
            from essent.encoder.encoder import Encoder

            return Encoder(str(root))
        first = (read_modules(str(root), {}) or [{}])[0]
        if str(first.get("type", "")).rpartition(".")[2] in ROUTERS:
            from essent.model.loading import open_model

            return open_model(str(root), {})
    raise ModelError(
        f"{str(root)!r} was not saved by essent: it has neither {STATE_FOLDER}/{GRAPH_FILE} (a compiled encoder) "
        f"nor {STATE_FOLDER}/encoder.json (an Encoder). Load other models with essent.Encoder."
    )


def _reading(root: Path, inputs: Mapping[str, Any]) -> Reading:
    """Read the tokenizer of a graph; two of its settings were formerly only in the tokenizer's own file."""
    path, settings = root / TOKENIZER_FILES[0], read_json(root / TOKENIZER_FILES[1]) or {}
    if not path.is_file():
        raise ModelError(f"{str(root)!r} has no {path.name}. Export the model again.")
    frame: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in inputs["frame"].items()
    }
    reading = Reading(
        path.read_text("utf-8"),
        Frame(**frame),
        inputs["max_seq_length"],
        inputs.get("cuts_start", settings.get("truncation_side") == "left"),
        tuple(inputs.get("dropped", settings.get(DROPPED)) or ()),
    )
    try:
        reading.backend  # noqa: B018  # it is read here, and then kept
    except Exception as error:  # tokenizers raises the bare class
        raise ModelError(f"Cannot read the tokenizer {path}: {error}") from error
    return reading


def read_graph_metadata(path: Path) -> dict[str, Any]:
    """Read engine.json and check every entry that loading needs.

    Raises:
        ModelError: the file is damaged or has another format.
    """
    metadata: dict[str, Any] = read_json(path)
    if metadata.get("format") not in (1, FORMAT):
        raise ModelError(
            f"{path} has format {metadata.get('format')!r} (essent {metadata.get('essent')}); this essent "
            f"{__version__} reads format {FORMAT}. Upgrade essent, or export the model again."
        )
    if "inputs" not in metadata and isinstance(metadata.get("reading"), dict):  # names of version 0.1
        max_seq_length = metadata["reading"].pop("max_length", None)
        metadata["inputs"] = {**metadata["reading"], "max_seq_length": max_seq_length}
    metadata["precision"] = SHORT.get(str(metadata.get("precision")), metadata.get("precision"))
    check_entries(path, {**dict.fromkeys(ENTRIES), **metadata}, ENTRIES)
    return metadata


# -- another precision -------------------------------------------------------------------------------------------------


def computing_in(model: Any, precision: str, *, shared: bool = True) -> Any:
    """Run a model's transformer in a precision; pooling and shaping remain in float32.

    Args:
        model: an Encoder or a sentence-transformers model. A graph keeps its own precision.
        precision: float32, or bfloat16 on machines that compute in it; auto is float32 on a CPU and the saved type on a
            GPU.
        shared: whether the model is also used elsewhere; a copy is returned then.

    Raises:
        InputError: an unknown precision.
        EngineError: the machine lacks the precision, or a graph has another one.
    """
    precision = precision_of(precision)
    if precision == AUTO:
        return model
    if isinstance(model, CompiledEncoder):
        if precision != model.precision:
            raise EngineError(f"The graph computes in {model.precision}: save it again with --precision {precision}.")
        return model
    import torch

    from essent.encoder.encoder import Encoder

    check_bfloat16(precision, model.device.type)
    if isinstance(model, Encoder) and model.module.plan.is_static:
        return model  # sums of table rows are always float32
    converted = copy.deepcopy(model) if shared else model
    if isinstance(converted, Encoder):
        converted.module.backbone.compute_in(precision)
    elif precision == BFLOAT16:
        first: Any = converted[0]
        first.forward = torch.autocast(converted.device.type, torch.bfloat16)(first.forward)
        first.precision = precision
    else:
        converted.float()
    return converted
