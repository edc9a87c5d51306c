"""Whole recipes as one graph: OpenVINO and onnxruntime on the CPU; compile, export, load.

A graph runs without torch: its runtime is imported alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from essent._core.lazy import lazy_door

if TYPE_CHECKING:
    from essent.engine.choice import choose
    from essent.engine.compiled import CompiledEncoder, compile
    from essent.engine.files import load
    from essent.engine.gain import Gain, compare
    from essent.engine.loss import Loss

_WHERE = {
    "CompiledEncoder": "essent.engine.compiled",
    "Gain": "essent.engine.gain",
    "Loss": "essent.engine.loss",
    "choose": "essent.engine.choice",
    "compare": "essent.engine.gain",
    "compile": "essent.engine.compiled",
    "load": "essent.engine.files",
}

__all__ = [
    "CompiledEncoder",
    "Gain",
    "Loss",
    "choose",
    "compare",
    "compile",
    "load",
]

__getattr__, __dir__ = lazy_door(__name__, _WHERE)
