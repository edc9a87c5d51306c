"""A compiled encoder as a folder: the engine's file, the tokenizer, what it computes, golden vectors.

model.xml, model.bin  or  model.onnx       the graph (above 2 GB also model.onnx.data)
tokenizer.json …                           the model's own tokenizer
essent/engine.json                         engine, precision, recipe, frame, prompts, golden texts
essent/golden.safetensors                  torch's vectors of the golden texts
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sentence_transformers import SentenceTransformer
from transformers import AutoTokenizer

from essent._core.arguments import check_path
from essent._core.arithmetic import SHORT
from essent._core.atomic import recover
from essent._core.folders.check import check_folder
from essent._core.folders.contents import saved_settings
from essent._core.folders.digests import check_digests, digest_of_file
from essent._core.folders.names import STATE_FOLDER
from essent._core.folders.opening import guarded
from essent._core.folders.reading import damage_named, read_arrays, read_json
from essent._core.folders.rules import ANYTHING, SENTENCE_TRANSFORMERS, TEXT, WHOLE, Kind, listed, mapping, optional
from essent.encoder.encoder import Encoder
from essent.engine.compiled import FORMAT, GRAPH_FILE, CompiledEncoder, check_golden
from essent.engine.libraries import ALL_FILES
from essent.engine.loss import Loss
from essent.engine.module import EngineModule, GraphInputs
from essent.engine.runtime import runtime_of
from essent.errors import DamagedError, ModelError
from essent.recipe.tokens.ids import Frame
from essent.tasks.calibration import read_calibration
from essent.version import __version__

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


def load(path: str | Path, *, threads: int | None = None, streams: int | None = None) -> SentenceTransformer:
    """Load a folder that essent wrote: a compiled encoder, checked against its golden vectors, or an Encoder.

    Args:
        threads, streams: of a compiled encoder; by default as the machine has them.

    Raises:
        ModelError: not a folder that essent wrote, or a damaged one.
        EngineError: the graph does not give its golden vectors, or cannot run on this machine.
        MissingDependencyError: the engine's library is not installed.
    """
    root = Path(check_path(path))
    recover(root)
    if not (root / STATE_FOLDER / GRAPH_FILE).is_file():
        if (root / STATE_FOLDER / "encoder.json").is_file():
            return Encoder(str(root))
        raise ModelError(
            f"{str(path)!r} was not written by essent: it has neither {STATE_FOLDER}/{GRAPH_FILE} (a graph) nor "
            f"{STATE_FOLDER}/encoder.json (essent save). Other models are loaded by essent.Encoder."
        )
    with damage_named(str(path)):
        check_folder(root)
        metadata = read_graph_metadata(root / STATE_FOLDER / GRAPH_FILE)
        _check_files(root, metadata)
        golden = read_arrays(root / STATE_FOLDER / "golden.safetensors")["golden"]
        compiled = _assemble(root, metadata, threads, streams)
        compiled.calibration = read_calibration(root)
    compiled.golden = (metadata["golden_texts"], golden)
    check_golden(compiled, f"The graph in {str(path)!r}")
    return compiled


def read_graph_metadata(path: Path) -> dict[str, Any]:
    """What engine.json says, with every entry that loading needs.

    Raises:
        ModelError: damaged, or of another format.
    """
    metadata: dict[str, Any] = read_json(path)
    if metadata.get("format") not in (1, FORMAT):
        raise ModelError(
            f"{path} has format {metadata.get('format')!r} (essent {metadata.get('essent')}); this essent "
            f"{__version__} reads format {FORMAT}. Upgrade essent, or export the model again."
        )
    if "inputs" not in metadata and isinstance(metadata.get("reading"), dict):  # its name at first
        longest = metadata["reading"].pop("max_length", None)
        metadata["inputs"] = {**metadata["reading"], "max_seq_length": longest}
    # version 0.1 wrote them
    metadata["precision"] = SHORT.get(str(metadata.get("precision")), metadata.get("precision"))
    for key, kind in ENTRIES.items():
        if not kind.allows(metadata.get(key)):
            raise DamagedError(f"{path} is damaged: {key!r} must be {kind.expected}, and is {metadata.get(key)!r:.60}.")
    return metadata


def _check_files(root: Path, metadata: dict[str, Any]) -> None:
    """Compare every file with its digest: golden texts read some rows of the vocabulary only.

    Raises:
        ModelError: names a file that is missing, changed or added.
    """
    if metadata["format"] == FORMAT:
        check_digests(root, whole=True)
        return
    written = metadata.get("files")
    digests = {name: digest_of_file(root / name) for name in ALL_FILES if (root / name).is_file()}
    if written != digests:
        raise DamagedError(f"In {str(root)!r} the graph has changed since it was written: export it again.")


def _assemble(root: Path, metadata: dict[str, Any], threads: int | None, streams: int | None) -> CompiledEncoder:
    kind = runtime_of(metadata["engine"], metadata["precision"])
    entries = dict(metadata["inputs"])
    frame = dict(entries.pop("frame"))
    frame |= {side: tuple(frame[side]) for side in ("before", "after")}
    inputs = GraphInputs(Frame(**frame), **entries)
    runtime = kind(root, metadata["precision"], threads, streams)
    module = EngineModule(runtime, AutoTokenizer.from_pretrained(root, **guarded({})), inputs, metadata["dimensions"])
    loss = None if metadata["loss"] is None else Loss(**metadata["loss"])
    return CompiledEncoder(module, metadata["recipe"], loss, saved_settings(metadata))
