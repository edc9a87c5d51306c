"""A compiled encoder as a folder: the engine's file, the tokenizer, what it computes, golden vectors.

model.xml, model.bin  or  model.onnx       the graph (above 2 GB also model.onnx.data)
tokenizer.json …                           the model's own tokenizer
essent/engine.json                         engine, precision, recipe, frame, prompts, golden texts
essent/golden.safetensors                  torch's vectors of the golden texts
"""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

from safetensors.numpy import save_file
from sentence_transformers import SentenceTransformer
from transformers import AutoTokenizer

import essent
from essent.encoder import Encoder
from essent.engine.compiled import CompiledEncoder, Loss, check_golden, describe
from essent.engine.convert import ALL_FILES
from essent.engine.module import EngineModule, Reading
from essent.engine.runtime import runtime_of
from essent.saved import STATE_FOLDER, damage_named, read_arrays, read_json
from essent.tokens import Frame
from essent.types import EngineError, ModelError

FORMAT = 1


def save_compiled(compiled: CompiledEncoder, path: Path) -> None:
    """Write the folder.

    Raises:
        ModelError: the place is a file, or the folder of another model.
    """
    check_place(path)
    module = compiled.engine_module
    source = module.runtime.path
    (path / STATE_FOLDER).mkdir(parents=True, exist_ok=True)
    if source.parent.resolve() != path.resolve():
        for name in ALL_FILES:
            (path / name).unlink(missing_ok=True)  # saved there before, perhaps by the other engine
            if (source.parent / name).is_file():
                shutil.copy(source.parent / name, path / name)
    module.reader.save_pretrained(path)
    save_file({"golden": compiled.golden[1]}, path / STATE_FOLDER / "golden.safetensors")
    about = {"format": FORMAT, "essent": essent.__version__, "files": digests(path), **describe(compiled)}
    text = json.dumps(about, ensure_ascii=False, indent=2)
    (path / STATE_FOLDER / "engine.json").write_text(text, encoding="utf-8")


def check_place(path: Path) -> None:
    """Refuse a file, and a folder that holds another model: graph and tokenizer would make it unreadable.

    Raises:
        ModelError: says which.
    """
    if path.is_file():
        raise ModelError(f"{str(path)!r} is a file; a model is saved as a folder.")
    others = (f"{STATE_FOLDER}/encoder.json", "modules.json", "config.json")
    if found := next((name for name in others if (path / name).is_file()), None):
        raise ModelError(f"The folder {str(path)!r} holds another model ({found}): choose a folder of its own.")


def digests(path: Path) -> dict[str, str]:
    """SHA-256 of each of the engine's files."""
    found = {}
    for file in (path / name for name in ALL_FILES if (path / name).is_file()):
        digest = hashlib.sha256()
        with file.open("rb") as stream:
            while block := stream.read(1 << 20):
                digest.update(block)
        found[file.name] = digest.hexdigest()
    return found


def load(path: str | Path, *, threads: int | None = None, streams: int | None = None) -> SentenceTransformer:
    """Load a folder that essent wrote: a compiled encoder, checked against its golden vectors, or an Encoder.

    Args:
        threads, streams: of a compiled encoder; by default as the machine has them.

    Raises:
        ModelError: not a folder that essent wrote, or a damaged one.
        EngineError: the graph does not give its golden vectors, or cannot run on this machine.
        MissingDependencyError: the engine's library is not installed.
    """
    root = Path(path)
    if not (root / STATE_FOLDER / "engine.json").is_file():
        if (root / STATE_FOLDER / "encoder.json").is_file():
            return Encoder(str(root))
        raise ModelError(
            f"{str(path)!r} was not written by essent: it has neither {STATE_FOLDER}/engine.json (essent export) nor "
            f"{STATE_FOLDER}/encoder.json (essent save). Other models are loaded by essent.Encoder."
        )
    with damage_named(str(path)):
        about = read_json(root / STATE_FOLDER / "engine.json")
        if about.get("format") != FORMAT:
            raise ModelError(
                f"The folder {str(path)!r} has format {about.get('format')!r} (essent {about.get('essent')}); this "
                f"essent {essent.__version__} reads format {FORMAT}. Upgrade essent."
            )
        golden = read_arrays(root / STATE_FOLDER / "golden.safetensors")["golden"]
        _refuse_other_files(root, about["files"])
        compiled = _assemble(root, about, threads, streams)
    compiled.golden = (about["golden_texts"], golden)
    check_golden(compiled, f"The graph in {str(path)!r}")
    return compiled


def _refuse_other_files(root: Path, written: dict[str, str]) -> None:
    """Golden texts read some rows of the vocabulary only: other bytes are found by their digest."""
    found = digests(root)
    odd = sorted(name for name in written.keys() | found.keys() if written.get(name) != found.get(name))
    if odd:
        raise EngineError(
            f"In {str(root)!r} the graph is not the one that was written there ({', '.join(odd)}): export it again."
        )


def _assemble(root: Path, about: dict[str, Any], threads: int | None, streams: int | None) -> CompiledEncoder:
    kind = runtime_of(about["engine"], about["precision"])
    frame = dict(about["reading"].pop("frame"))
    frame |= {side: tuple(frame[side]) for side in ("before", "after")}
    reading = Reading(Frame(**frame), **about["reading"])
    runtime = kind(root, about["precision"], threads, streams)
    module = EngineModule(runtime, AutoTokenizer.from_pretrained(root), reading, about["dimensions"])
    prompts = {key: value for key, value in (about["prompts"] or {}).items() if value is not None}
    settings = {key: about[key] for key in ("default_prompt_name", "similarity_fn_name", "truncate_dim")}
    loss = None if about["loss"] is None else Loss(**about["loss"])
    return CompiledEncoder(module, about["recipe"], loss, {"prompts": prompts or None, **settings})
