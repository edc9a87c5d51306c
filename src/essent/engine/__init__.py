"""Whole recipes as one graph: OpenVINO and onnxruntime on the CPU; compile, export, load."""

from essent.engine.compiled import CompiledEncoder, Loss, compile_encoder
from essent.engine.files import load

__all__ = ["CompiledEncoder", "Loss", "compile_encoder", "load"]
