"""Compile, save and load whole recipes as one graph for OpenVINO or onnxruntime on the CPU.

The runtime is imported without torch.
"""

from essent._core.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
