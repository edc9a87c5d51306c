"""Whole recipes as one graph: OpenVINO and onnxruntime on the CPU; compile, export, load.

A graph runs without torch: its runtime is imported alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from essent.lazy import lazy_door

if TYPE_CHECKING:
    from essent.engine.choice import ENGINES, EngineChoice, Offer, check_graph, choose, computing_in, offer_bfloat16
    from essent.engine.compiled import TOLERANCES, CompiledEncoder, compile, measure_loss
    from essent.engine.files import load, read_about
    from essent.engine.gain import Gain, compare, texts_to_compare
    from essent.engine.libraries import ALL_FILES
    from essent.engine.loss import Loss, texts_to_judge
    from essent.engine.runtime import Run, cores, runtime_of

_WHERE = {
    "ALL_FILES": "essent.engine.libraries",
    "TOLERANCES": "essent.engine.compiled",
    "CompiledEncoder": "essent.engine.compiled",
    "ENGINES": "essent.engine.choice",
    "EngineChoice": "essent.engine.choice",
    "Gain": "essent.engine.gain",
    "Loss": "essent.engine.loss",
    "Offer": "essent.engine.choice",
    "Run": "essent.engine.runtime",
    "check_graph": "essent.engine.choice",
    "choose": "essent.engine.choice",
    "compare": "essent.engine.gain",
    "compile": "essent.engine.compiled",
    "computing_in": "essent.engine.choice",
    "cores": "essent.engine.runtime",
    "load": "essent.engine.files",
    "measure_loss": "essent.engine.compiled",
    "offer_bfloat16": "essent.engine.choice",
    "read_about": "essent.engine.files",
    "runtime_of": "essent.engine.runtime",
    "texts_to_compare": "essent.engine.gain",
    "texts_to_judge": "essent.engine.loss",
}

__all__ = [
    "ALL_FILES",
    "ENGINES",
    "TOLERANCES",
    "CompiledEncoder",
    "EngineChoice",
    "Gain",
    "Loss",
    "Offer",
    "Run",
    "check_graph",
    "choose",
    "compare",
    "compile",
    "computing_in",
    "cores",
    "load",
    "measure_loss",
    "offer_bfloat16",
    "read_about",
    "runtime_of",
    "texts_to_compare",
    "texts_to_judge",
]

__getattr__, __dir__ = lazy_door(__name__, _WHERE)
