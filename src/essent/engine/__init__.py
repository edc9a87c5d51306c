"""Whole recipes as one graph: OpenVINO and onnxruntime on the CPU; compile, export, load.

A graph runs without torch: its runtime is imported alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from essent.lazy import lazy_door

if TYPE_CHECKING:
    from essent.engine.choice import ENGINES as ENGINES
    from essent.engine.choice import EngineChoice as EngineChoice
    from essent.engine.choice import Offer as Offer
    from essent.engine.choice import check_graph as check_graph
    from essent.engine.choice import choose
    from essent.engine.choice import computing_in as computing_in
    from essent.engine.choice import offer_bfloat16 as offer_bfloat16
    from essent.engine.compiled import TOLERANCES as TOLERANCES
    from essent.engine.compiled import CompiledEncoder, compile
    from essent.engine.compiled import measure_loss as measure_loss
    from essent.engine.files import load
    from essent.engine.files import read_about as read_about
    from essent.engine.gain import Gain, compare
    from essent.engine.gain import texts_to_compare as texts_to_compare
    from essent.engine.libraries import ALL_FILES as ALL_FILES
    from essent.engine.loss import Loss
    from essent.engine.loss import texts_to_judge as texts_to_judge
    from essent.engine.runtime import Run as Run
    from essent.engine.runtime import runtime_of as runtime_of

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
    "load": "essent.engine.files",
    "measure_loss": "essent.engine.compiled",
    "offer_bfloat16": "essent.engine.choice",
    "read_about": "essent.engine.files",
    "runtime_of": "essent.engine.runtime",
    "texts_to_compare": "essent.engine.gain",
    "texts_to_judge": "essent.engine.loss",
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
