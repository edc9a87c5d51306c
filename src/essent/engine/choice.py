"""The choice of engine and precision, for every command."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from essent._core.machine import AUTO, BFLOAT16, FLOAT32, PASSES, check_bfloat16, precision_of
from essent.errors import EngineError, InputError

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

    from essent.engine.compiled import CompiledEncoder

ENGINES = (AUTO, "torch", "openvino", "onnx")


@dataclass(frozen=True)
class EngineChoice:
    """The engine and the precision of a model.

    Attributes:
        engine: auto runs a saved graph with its engine and a transformer with torch; openvino and onnx compile the
            model.
        precision: auto is float32 on a CPU and the saved type on a GPU; bfloat16 needs a machine that computes in
            bfloat16.

    Raises:
        EngineError, InputError: an unknown name, or a precision that the engine lacks.
    """

    engine: str = AUTO
    precision: str = AUTO

    def __post_init__(self) -> None:
        if self.engine not in ENGINES:
            raise InputError(f"engine={self.engine!r}; allowed: {', '.join(ENGINES)}.")
        object.__setattr__(self, "precision", precision_of(self.precision, PASSES))
        if self.makes_graph:
            from essent.engine.runtime import runtime_of

            runtime_of(self.engine, self.graph_precision)

    @property
    def makes_graph(self) -> bool:
        """Whether the model is compiled."""
        return self.engine in ("openvino", "onnx")

    @property
    def graph_precision(self) -> str:
        """The precision of the compiled model."""
        return FLOAT32 if self.precision == AUTO else self.precision

    @property
    def is_default(self) -> bool:
        """Whether engine and precision are both auto."""
        return self == EngineChoice()


def choose(
    model: Any,
    engine: str = AUTO,
    precision: str = AUTO,
    *,
    texts: Sequence[str] = (),
    threads: int | None = None,
) -> SentenceTransformer | CompiledEncoder:
    """Return an encoder that runs `model` with an engine and a precision; `model` itself is not modified.

    Args:
        model: an Encoder or a sentence-transformers model, fitted if its recipe has learned parts; or a
            CompiledEncoder.
        engine: auto or torch; openvino or onnx, which compile the model.
        precision: auto, float32 or bfloat16.
        texts: like those that will be encoded; the loss of a graph in bfloat16 is measured on them.
        threads: number of threads of a graph.

    Raises:
        EngineError: the machine or the engine lacks the precision, or the model does not convert.

    Example:
        >>> from essent import Encoder
        >>> from essent.engine import choose
        >>> encoder = Encoder("sentence-transformers/all-MiniLM-L6-v2", "static")
        >>> choose(encoder, "openvino", threads=1)
        CompiledEncoder('static', engine='openvino', precision='float32', threads=1, streams=1)
    """
    chosen = EngineChoice(engine, precision)
    from essent.engine.compiled import CompiledEncoder

    if isinstance(model, CompiledEncoder):
        return check_graph(model, chosen)
    if not chosen.makes_graph:
        return computing_in(model, chosen.precision)
    from essent.engine.conversion import compile

    return compile(model, chosen.engine, precision=chosen.graph_precision, texts=texts, threads=threads)


def check_graph(graph: Any, chosen: EngineChoice) -> CompiledEncoder:
    """Return a compiled encoder if it has the chosen engine and precision.

    Raises:
        EngineError: another engine or precision was chosen.
    """
    runtime = graph.runtime
    if chosen.engine not in (AUTO, runtime.engine) or chosen.precision not in (AUTO, runtime.precision):
        raise EngineError(
            f"The model is compiled for {runtime.engine} in {runtime.precision}. Export it again for "
            f"{chosen.engine if chosen.engine != AUTO else runtime.engine} in {chosen.graph_precision}."
        )
    checked: CompiledEncoder = graph
    return checked


def computing_in(model: SentenceTransformer, precision: str, *, shared: bool = True) -> SentenceTransformer:
    """Run the model's transformer in a precision; pooling and shaping remain in float32.

    Args:
        shared: whether the model is also used elsewhere; a copy is returned then.

    Raises:
        EngineError: the machine lacks the precision.
    """
    if precision == AUTO:
        return model
    import torch

    from essent.encoder.encoder import Encoder

    check_bfloat16(precision, model.device.type)
    if isinstance(model, Encoder) and model.module.plan.is_static:
        return model  # sums of table rows are always float32
    converted = copy.deepcopy(model) if shared else model
    if isinstance(converted, Encoder):
        converted.module.backbone.compute_in(precision)
    elif precision == BFLOAT16:
        first: Any = converted[0]
        first.forward = torch.autocast(converted.device.type, torch.bfloat16)(first.forward)
        first.precision = precision
    else:
        converted.float()
    return converted
