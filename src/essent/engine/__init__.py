"""Whole recipes as one graph: OpenVINO and onnxruntime on the CPU; compile, export, load.

A graph runs without torch: its runtime is imported alone.
"""

from essent._core.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
