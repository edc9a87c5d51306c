"""What runs a model and in which precision: chosen here for every command."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from essent._core.arithmetic import AUTO, BFLOAT16, FLOAT32, PASSES, check_bfloat16, precision_of
from essent.errors import EngineError, InputError

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

ENGINES = (AUTO, "torch", "openvino", "onnx")


@dataclass(frozen=True)
class EngineChoice:
    """What runs a model, and what it computes in.

    Attributes:
        engine: auto runs what the model's folder is, a transformer in torch; openvino and onnx make a graph of it.
        precision: auto is float32 on a CPU, and on a GPU what the model's folder says; bfloat16 where the machine has
            such arithmetic.

    Raises:
        EngineError, InputError: a name that is not known, or an engine that lacks the precision.
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
        """Whether a graph is made of a model."""
        return self.engine in ("openvino", "onnx")

    @property
    def graph_precision(self) -> str:
        """The precision of a graph."""
        return FLOAT32 if self.precision == AUTO else self.precision

    @property
    def is_default(self) -> bool:
        """Whether nothing was chosen."""
        return self == EngineChoice()


def choose(
    model: Any,
    engine: str = AUTO,
    precision: str = AUTO,
    *,
    texts: Sequence[str] = (),
    threads: int | None = None,
) -> SentenceTransformer:
    """An encoder that computes what `model` does, by an engine and in a precision; `model` itself is left as it is.

    Args:
        model: an Encoder or a sentence-transformers model, fitted where its recipe learns something; a graph.
        engine: auto or torch; openvino or onnx, which make a graph of it.
        precision: auto, float32 or bfloat16.
        texts: like those that will be encoded, on which the loss of a graph in bfloat16 is judged.
        threads: of a graph.

    Raises:
        EngineError: the machine or the engine lacks the precision, or no graph can be made of the model.
    """
    chosen = EngineChoice(engine, precision)
    if hasattr(model, "engine_module"):
        graph: SentenceTransformer = check_graph(model, chosen)
        return graph
    if not chosen.makes_graph:
        return computing_in(model, chosen.precision)
    from essent.engine.compiled import compile

    return compile(model, chosen.engine, precision=chosen.graph_precision, texts=texts, threads=threads)


def check_graph(graph: Any, chosen: EngineChoice) -> Any:
    """A graph, which has its engine and precision already.

    Raises:
        EngineError: another engine or precision was asked for.
    """
    runtime = graph.engine_module.runtime
    if chosen.engine not in (AUTO, runtime.engine) or chosen.precision not in (AUTO, runtime.precision):
        raise EngineError(
            f"The model is a graph for {runtime.engine} in {runtime.precision}; export it again for "
            f"{chosen.engine if chosen.engine != AUTO else runtime.engine} in {chosen.graph_precision}."
        )
    return graph


def computing_in(model: SentenceTransformer, precision: str, *, shared: bool = True) -> SentenceTransformer:
    """The model with its transformer's passes in a precision; pooling and shaping stay in float32.

    Args:
        shared: whether somebody else uses the model: the result is then another one.

    Raises:
        EngineError: the machine lacks the precision.
    """
    if precision == AUTO:
        return model
    import torch

    from essent.encoder.encoder import Encoder

    check_bfloat16(precision, model.device.type)
    if isinstance(model, Encoder) and model.module.plan.is_static:
        return model  # rows of a table are added up: nothing is computed in less than float32
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
