"""The engines' libraries, imported without their telemetry, and the names of the files that they read; no torch."""

from __future__ import annotations

import os
import sys
from types import ModuleType

from essent.types import optional_import

FILES = {"openvino": "model.xml", "onnx": "model.onnx"}
ALL_FILES = ("model.xml", "model.bin", "model.onnx", "model.onnx.data")  # the last where onnx has more than 2 GB


def openvino() -> ModuleType:
    """The library, without its telemetry: importing it sends a message to its makers unless that package is missing."""
    if "openvino" not in sys.modules and "openvino_telemetry" not in sys.modules:
        sys.modules["openvino_telemetry"] = None  # type: ignore[assignment]  # `import` then says it is not installed
    return optional_import("openvino", "openvino")


def onnxruntime() -> ModuleType:
    """The library, without its telemetry."""
    os.environ.setdefault("ORT_TELEMETRY_DISABLED", "1")
    return optional_import("onnxruntime", "onnx")
