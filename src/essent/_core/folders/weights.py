"""Names and shapes of a model's weights, from the headers of its safetensors files, without reading the weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from essent._core.folders.contents import find_file
from essent._core.folders.reading import read_json

WEIGHTS = "model.safetensors"


def weight_shapes(name: str, hub: dict[str, Any], subfolder: str = "", file: str = WEIGHTS) -> dict[str, list[int]]:
    """Return the shape of every tensor by name; {} if the weights are not safetensors.

    Args:
        name: a folder, or a name on the hub.
        hub: see `essent._core.hub.file_options`.
        subfolder: the transformer's folder, "" for the root.
        file: the weights' file name; if it is split into parts, its index is read.
    """
    path = find_file(name, file, hub, subfolder) or find_file(name, f"{file}.index.json", hub, subfolder)
    if path is None:
        return {}
    if path.suffix != ".json":
        return _shapes_in(path)
    parts = sorted(set((read_json(path) or {}).get("weight_map", {}).values()))
    paths = [find_file(name, part, hub, subfolder) for part in parts]
    return {tensor: shape for part in paths if part is not None for tensor, shape in _shapes_in(part).items()}


def _shapes_in(path: Path) -> dict[str, list[int]]:
    from safetensors import safe_open

    with safe_open(path, framework="np") as weights:
        return {tensor: weights.get_slice(tensor).get_shape() for tensor in weights.keys()}  # noqa: SIM118
