"""What runs a model and in which precision: chosen here for every command, and what the other precision would give."""

from __future__ import annotations

import copy
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from essent._core.arithmetic import AUTO, BFLOAT16, FLOAT32, PASSES, check_bfloat16, has_bfloat16, precision_of
from essent.errors import EngineError, InputError

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

    from essent.engine.loss import Loss
    from essent.tasks.base import LabeledTask

ENGINES = (AUTO, "torch", "openvino", "onnx")
WORTH = 1.2  # times as fast, from which another precision is worth a word
ENOUGH = 2000  # texts from which it is worth trying
TRIED = 64  # texts of the sample
UNITS = 100  # of a task, about


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
    if chosen.makes_graph:
        from essent.engine.compiled import compile

        compiled: SentenceTransformer = compile(
            model, chosen.engine, precision=chosen.graph_precision, texts=texts, threads=threads
        )
        return compiled
    return computing_in(model, chosen.precision)


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
    if isinstance(model, Encoder) and model.module.plan.required.depth is None:
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


# -- what bfloat16 would give ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Offer:
    """What bfloat16 would give on this machine.

    Attributes:
        ratio: how many times as fast it is, the median of three interleaved rounds.
        loss: what it costs.
        quality: what its score ×100 is of, the score in float32 and in bfloat16; None without a task.
    """

    ratio: float
    loss: Loss
    quality: tuple[str, float, float] | None = None

    def __str__(self) -> str:
        speed = f"--precision bfloat16 is {self.ratio:.1f} times as fast here. {self.loss}"
        if self.quality is None:
            return speed
        task_name, exact, rough = self.quality
        return f"{speed}; {task_name} score {rough:.2f} instead of {exact:.2f}"


def offer_bfloat16(model: Any, texts: Sequence[str], task: LabeledTask | None = None) -> Offer | None:
    """What bfloat16 would give, tried on some of the texts, or of a task's units; None where it is not worth it.

    Tried only where the CPU has such arithmetic, the model is a transformer in float32, and there are 2,000 texts or
    more, so that the trial costs little beside them.
    """
    if len(texts) < ENOUGH or not hasattr(model, "module"):  # a static encoder runs without torch
        return None
    import torch

    from essent.encoder.encoder import Encoder

    if not isinstance(model, Encoder) or model.device.type != "cpu" or not has_bfloat16("cpu"):
        return None
    plan = model.module.plan
    backbone = model.module.backbone
    if (
        plan.required.depth is None
        or backbone.precision == BFLOAT16
        or any(p.dtype != torch.float32 for p in backbone.parameters())
    ):
        return None
    distinct = sorted(dict.fromkeys(texts), key=len)
    sample = distinct[:: max(1, len(distinct) // TRIED)][:TRIED]
    units = None if task is None else _sampled_units(task)
    sample = sample if units is None else units.texts()
    import numpy as np

    rounded_model = computing_in(model, BFLOAT16)
    seconds_by_model: tuple[list[float], list[float]] = ([], [])
    vectors = []
    for part in (model, rounded_model):
        vectors.append(np.asarray(part.encode(sample, show_progress_bar=False), np.float32))
    for _ in range(3):
        for part, seconds in zip((model, rounded_model), seconds_by_model, strict=True):
            began = time.perf_counter()
            part.encode(sample, show_progress_bar=False)
            seconds.append(time.perf_counter() - began)
    from essent.engine.loss import loss_of

    ratio = statistics.median(slow / fast for slow, fast in zip(*seconds_by_model, strict=True))
    if ratio < WORTH:
        return None
    quality = None
    if units is not None:
        exact, rough = (units.score_vectors(part_vectors).main_score for part_vectors in vectors)
        quality = f"{units.units} {units.unit} of {units.name}", exact, rough
    return Offer(ratio, loss_of(vectors[0], vectors[1], True), quality)


def _sampled_units(task: LabeledTask) -> LabeledTask:
    """A part of the task: every so-many-th unit."""
    import numpy as np

    excluded = np.ones(task.units, bool)
    excluded[:: max(1, task.units // UNITS)] = False
    return task.without(excluded)
