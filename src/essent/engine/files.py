"""Save and load compiled encoders: the engine's file, the tokenizer, the recipe, golden vectors.

model.xml, model.bin  or  model.onnx       the graph (above 2 GB also model.onnx.data)
tokenizer.json …                           the model's own tokenizer
essent/engine.json                         engine, precision, recipe, frame, prompts, golden texts
essent/golden.safetensors                  torch's vectors of the golden texts
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors.numpy import save_file

from essent._core.arguments import check_path
from essent._core.atomic import recover, replacing_folder
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
    GRAPH,
    STATE_FOLDER,
    check_digests,
    check_replaceable,
    damage_named,
    digest_of_file,
    names_to_keep,
    read_arrays,
    read_json,
    write_digests,
)
from essent._core.lazy import needs_torch
from essent._core.machine import SHORT
from essent.engine.compiled import CompiledEncoder, Loss, check_golden
from essent.engine.runtime import ALL_FILES, TOKENIZER_FILES, runtime_of
from essent.errors import DamagedError, EngineError, ModelError
from essent.recipe.reading import Reading
from essent.recipe.tokens import DROPPED, Frame
from essent.tasks.calibration import read_calibration, write_calibration
from essent.version import __version__

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

FORMAT = 2  # format 1, of version 0.1, listed only the graph's digests, in engine.json
GRAPH_FILE, GOLDEN_FILE = "engine.json", "golden.safetensors"
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


def load(
    path: str | Path, *, threads: int | None = None, streams: int | None = None
) -> CompiledEncoder | SentenceTransformer:
    """Load a compiled encoder or an Encoder from a folder that essent saved, or a model with a Router.

    A compiled encoder is checked against its golden vectors. A folder of sentence-transformers whose Router has modules
    for queries and others for documents becomes a plain SentenceTransformer.

    Args:
        threads, streams: of a compiled encoder; see `essent.engine.runtime.Runtime`.

    Raises:
        ModelError: another folder, or a damaged one.
        EngineError: the graph does not reproduce its golden vectors, or cannot run on this machine.
        MissingDependencyError: the engine's library is not installed.

    Example:
        >>> import essent
        >>> encoder = essent.Encoder("sentence-transformers/all-MiniLM-L6-v2", "static")
        >>> essent.compile(encoder).save("compiled")
        >>> essent.load("compiled", threads=1)
        CompiledEncoder('static', engine='openvino', precision='float32', threads=1, streams=1)
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
            kind(root, metadata["precision"], threads, streams),
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


def save_compiled(compiled: CompiledEncoder, path: Path) -> None:
    """Write the folder atomically; files that are not part of an older graph remain in it.

    Raises:
        ModelError: the path is a file, or the folder of another model.
    """
    check_replaceable(path, GRAPH)
    runtime, reading = compiled.runtime, compiled.reading
    texts, golden = compiled.golden
    metadata = {
        "format": FORMAT,
        "essent": __version__,
        "engine": runtime.engine,
        "precision": runtime.precision,
        "recipe": compiled.recipe,
        "inputs": {
            "frame": asdict(reading.frame),
            "max_seq_length": reading.max_seq_length,
            "pad_id": compiled.pad_id,
            "cuts_start": reading.cuts_start,
            "dropped": reading.dropped,
        },
        "dimensions": compiled.width,
        "loss": None if compiled.loss is None else asdict(compiled.loss),
        **compiled.settings,
        "golden_texts": texts,
    }
    with replacing_folder(path, names_to_keep(path, GRAPH, ALL_FILES)) as folder:
        for name in (*ALL_FILES, *TOKENIZER_FILES):
            if (file := runtime.path.with_name(name)).is_file():
                shutil.copy(file, folder / name)
        (folder / STATE_FOLDER).mkdir()
        save_file({"golden": golden}, folder / STATE_FOLDER / GOLDEN_FILE)
        text = json.dumps(metadata, ensure_ascii=False, indent=2)
        (folder / STATE_FOLDER / GRAPH_FILE).write_text(text, encoding="utf-8")
        if compiled.calibration is not None:
            write_calibration(compiled.calibration, folder)
        write_digests(folder)
