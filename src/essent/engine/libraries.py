"""The engines' libraries, imported without their telemetry, and the names of the files that they read; no torch."""

from __future__ import annotations

import os
import sys
from threading import Lock
from types import ModuleType

import numpy as np

from essent._core.lazy import optional_import

FILES = {"openvino": "model.xml", "onnx": "model.onnx"}
ALL_FILES = ("model.xml", "model.bin", "model.onnx", "model.onnx.data")  # the last where onnx has more than 2 GB
_tables_lock = Lock()


def openvino() -> ModuleType:
    """The library, without its telemetry: importing it sends a message to its makers unless that package is missing.

    Its tables of number types are made here, by one thread. They are made at the first use of a tensor, and two threads
    that meet there wait for each other for ever: one has the table's guard and wants the interpreter's lock, the other
    the reverse (seen in 2026.4, in 3 of 100 starts with two streams).
    """
    if "openvino" not in sys.modules and "openvino_telemetry" not in sys.modules:
        sys.modules["openvino_telemetry"] = None  # type: ignore[assignment]  # `import` then says it is not installed
    with _tables_lock:
        library = optional_import("openvino", "openvino")
        _ = library.Tensor(np.zeros(1, np.int64)).data
    return library


def onnxruntime() -> ModuleType:
    """The library, without its telemetry."""
    os.environ.setdefault("ORT_TELEMETRY_DISABLED", "1")
    return optional_import("onnxruntime", "onnx")
