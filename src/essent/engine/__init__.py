"""Whole recipes as one graph: OpenVINO and onnxruntime on the CPU; compile, export, load."""

from essent.lazy import needs_torch

with needs_torch(__name__):
    from essent.engine.compiled import TOLERANCES, CompiledEncoder, Loss
    from essent.engine.compiled import compile_encoder as compile
    from essent.engine.convert import ALL_FILES
    from essent.engine.files import load, read_about
    from essent.engine.gain import Gain, compare, texts_to_compare
    from essent.engine.runtime import runtime_of

__all__ = [
    "ALL_FILES",
    "TOLERANCES",
    "CompiledEncoder",
    "Gain",
    "Loss",
    "compare",
    "compile",
    "load",
    "read_about",
    "runtime_of",
    "texts_to_compare",
]
