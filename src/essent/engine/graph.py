"""A whole recipe as one function of tensors, ids to vectors, without data-dependent branches, and its conversion.

ids, mask ─ content ─ transformer up to the layer read, diagonals ─ mix α ─ weights ω ─ reduce Σ ─ shaping g ─ vectors
"""

from __future__ import annotations

import contextlib
import logging
import sys
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Normalize
from sentence_transformers.base.modules.input_module import InputModule
from sentence_transformers.sentence_transformer.modules import LayerNorm, Pooling, StaticEmbedding
from torch import nn

from essent._core.lazy import optional_import
from essent.encoder.encoder import Encoder
from essent.encoder.module import RecipeModule
from essent.engine.runtime import FILES, onnxruntime, openvino
from essent.errors import EngineError, ModelError, RecipeError
from essent.recipe.layers import format_mix
from essent.recipe.shaping.base import Affine
from essent.recipe.shaping.chain import Chain
from essent.recipe.shaping.nonlinear import QuantileUniform
from essent.recipe.tokens import content_of
from essent.recipe.types import Tokens

TAILS = (Dense, LayerNorm, Normalize)  # supported modules after the pooling of a sentence-transformers model


class Graph(nn.Module):
    """A fitted recipe as a module from ids and attention mask (B,T), padded on the right, to vectors (B,K).

    Keys and values of a decoder's tokens before the text are constants: the first ids of a row are not read.

    Args:
        module: the fitted recipe.
        tail: sentence-transformers modules that follow it, each from features to features.

    Raises:
        NotFittedError: the recipe has learned parts and `fit` has not been called.
        EngineError: a recipe that reads the masked-LM head, removes a template's bias, adds several templates or has a
            quantile map.
    """

    def __init__(self, module: RecipeModule, tail: Sequence[nn.Module] = ()) -> None:
        super().__init__()
        module.require_fit()
        if module.plan.reads_mlm_head:
            raise EngineError(
                f"layers={format_mix(module.recipe.layers)} cannot be converted: it runs the masked-LM head only at "
                "masks, and a graph computes the same for every token. Use the recipe 'prompt', which reads the state "
                "of [MASK]."
            )
        if any(source.debiased for source in module.plan.sources):
            raise EngineError(
                f"layers={format_mix(module.recipe.layers)} cannot be converted: template denoising runs the model a "
                "second time. Use the recipe 'prompt'."
            )
        if len(module.plan.frames) > 1:
            raise EngineError(
                f"The recipe {str(module.recipe)!r} adds several templates, and a graph computes one. Use one template."
            )
        self.module = module
        frame = module.plan.frame
        self.prefix = frame.prefix if frame.after else frame.prefix[:-1]  # a row has at least one more token
        self.shaping = shaping_graph(module.chain)
        self.tail = nn.ModuleList(tail)

    def forward(self, ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """Compute vectors (B,K) from ids and attention mask, both (B,T) int64."""
        plan, backbone = self.module.plan, self.module.backbone
        tokens = Tokens(ids, attention_mask.bool(), content_of(attention_mask.bool(), plan.frame), self.prefix)
        states = backbone.states(tokens, plan.required)
        pooled, _, _ = plan.pool(tokens, states, backbone, self.module.stats)
        features = {"sentence_embedding": self.shaping(pooled)}
        for step in self.tail:
            features = step(features)
        embedding: torch.Tensor = features["sentence_embedding"]
        return embedding

    def pad(self, sequences: Sequence[list[int]]) -> tuple[torch.Tensor, ...]:
        """Pad sequences of ids on the right to a batch: ids and attention mask, both (B,T) int64."""
        return tuple(self.module.pad(sequences).values())

    @property
    def text(self) -> str:
        """The recipe and the further modules, as text."""
        return " + ".join([str(self.module.recipe), *(type(step).__name__ for step in self.tail)])

    @contextlib.contextmanager
    def for_export(self) -> Iterator[None]:
        """Pad on the right, and disable training and gradients, for the export."""
        backbone = self.module.backbone
        self.eval()
        backbone.pads_right = True
        try:
            with torch.no_grad():
                yield
        finally:
            backbone.pads_right = False


# -- shaping ----------------------------------------------------------------------------------------------------------


def shaping_graph(chain: Chain) -> nn.Module:
    """Convert the chain to modules that can be exported: affine maps in float32.

    Raises:
        EngineError: a quantile map.
    """
    parts: list[nn.Module] = []
    for step in chain.folded():
        if isinstance(step, QuantileUniform):
            raise EngineError(
                f"The shaping step {step.spec()!r} cannot be converted: rounding to float32 moves values across close "
                "quantiles. torch runs it (engine='torch')."
            )
        part = step.module()
        if isinstance(step, Affine):
            for name, values in list(part.named_buffers()):
                part.register_buffer(name, values.float())
        parts.append(part)
    return nn.Sequential(*parts)


# -- sentence-transformers models -------------------------------------------------------------------------------------


def graph_of(model: SentenceTransformer) -> Graph:
    """Build the graph of an Encoder, or of a sentence-transformers model.

    A sentence-transformers model starts with Transformer or WordEmbeddings followed by Pooling, or with
    StaticEmbedding; any of Dense, LayerNorm and Normalize may follow.

    Raises:
        EngineError: a module that does not convert.
        NotFittedError: the recipe has learned parts and `fit` has not been called.
    """
    if types := {str(p.dtype) for p in model.parameters() if p.dtype != torch.float32}:
        raise EngineError(
            f"A graph needs float32 weights, but this model has {', '.join(sorted(types))}. Load it with "
            "model_kwargs={'dtype': torch.float32}, and set the precision of the graph with precision=."
        )
    if isinstance(model, Encoder):
        if len(model) > 1:
            raise EngineError(
                f"Cannot make a graph of an Encoder with {model[1]!r} after its recipe. Add the step to the recipe's "
                "shaping."
            )
        return Graph(model.module)
    modules = list(model)
    is_table = bool(modules) and isinstance(modules[0], StaticEmbedding)  # includes the pooling
    length = 1 if is_table else 2  # modules before the tail
    tail = modules[length:]
    unsupported = [module for module in tail if not isinstance(module, TAILS)]
    if unsupported or not (is_table or (len(modules) > 1 and isinstance(modules[1], Pooling))):
        raise EngineError(
            f"Cannot make a graph of {(unsupported or modules or [model])[0]!r}. Supported: an essent Encoder; "
            "models of a Transformer and a Pooling, or of a StaticEmbedding, each optionally followed by any of "
            f"{', '.join(kind.__name__ for kind in TAILS)}."
        )
    try:
        recipe = Encoder(SentenceTransformer(modules=modules[:length], device="cpu"))
    except (ModelError, RecipeError) as error:
        raise EngineError(f"Cannot make a graph of this model: {error}") from error
    return Graph(recipe.module, tail)


# -- files for an engine ----------------------------------------------------------------------------------------------

EXAMPLE = ("A man is playing a large flute.", "How far is the moon?", "the")
INPUTS = ("input_ids", "attention_mask")  # names that other programs can rely on
DYNAMIC_SHAPES = ({0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC},) * 2


def convert(graph: Graph, engine: str, folder: Path) -> None:
    """Write the graph in float32, with dynamic batch size and length.

    Raises:
        EngineError: the engine lacks an operation of the model; the message names it.
        MissingDependencyError: the engine's library is not installed.
    """
    if engine == "openvino":
        openvino()
    else:
        optional_import("onnxscript", "convert")
        onnxruntime()
    try:
        with graph.for_export(), _quiet():
            example = graph.pad(graph.module.ids(EXAMPLE))
            graph(*example)  # creates the tables of the first use before the export
            write = _write_openvino if engine == "openvino" else _write_onnx
            write(graph, example, folder / FILES[engine])
    except Exception as error:  # converters raise any class
        family = graph.module.backbone.family
        reason = next((line for line in reversed(str(error).strip().splitlines()) if line.strip()), "no reason given")
        raise EngineError(
            f"The recipe {str(graph.module.recipe)!r} on a {family} does not convert to {engine}: "
            f"{type(error).__name__}: {reason.strip()[:300]}"
        ) from error


def _write_openvino(graph: Graph, example: tuple[torch.Tensor, ...], path: Path) -> None:
    ov = openvino()
    from openvino.frontend.pytorch import ConversionExtension

    program = torch.export.export(graph, example, dynamic_shapes=DYNAMIC_SHAPES, strict=False)
    extension = ConversionExtension("aten.diagonal.default", _diagonal)
    model = ov.convert_model(program, extension=[extension])
    for position, name in enumerate(INPUTS):
        model.inputs[position].get_tensor().set_names({name})
    model.outputs[0].get_tensor().set_names({"vectors"})
    ov.save_model(model, path, compress_to_fp16=False)


def _diagonal(context: Any) -> Any:
    """Gather the diagonal, which OpenVINO lacks: entries 0, T+1, 2(T+1) … of the last two dimensions flattened."""
    from openvino import opset14 as ops

    matrix = context.get_input(0)  # (…,T,T)
    rank = matrix.get_partial_shape().rank.get_length()
    length = ops.gather(ops.shape_of(matrix), ops.constant(rank - 1), ops.constant(0))
    unity, zero = ops.constant(np.int64(1)), ops.constant(np.int64(0))
    every = ops.multiply(ops.range(zero, length, unity, "i64"), ops.add(length, unity))
    flat = ops.reshape(matrix, ops.constant(np.array([0] * (rank - 2) + [-1])), special_zero=True)
    return ops.gather(flat, every, ops.constant(rank - 2)).outputs()


def _write_onnx(graph: Graph, example: tuple[torch.Tensor, ...], path: Path) -> None:
    program = torch.onnx.export(
        graph,
        example,
        dynamo=True,
        verbose=False,
        input_names=list(INPUTS),
        output_names=["vectors"],
        dynamic_shapes=DYNAMIC_SHAPES,
    )
    assert program is not None  # noqa: S101  (of `dynamo=True`)
    for node in program.model.graph.all_nodes():
        node.metadata_props.clear()  # paths of source files on this machine
    program.save(str(path))


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silence converters' warnings, which a user cannot act on; failures are raised."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def quantize(path: Path) -> None:
    """Quantize the weights of an OpenVINO file, model.xml, to int8 in place.

    Raises:
        MissingDependencyError: nncf is not installed.
    """
    ov = openvino()
    with _quiet(), contextlib.redirect_stdout(sys.stderr):  # its progress bars and its logger
        nncf = optional_import("nncf", "convert")
        model = ov.Core().read_model(path)
        quantized = nncf.compress_weights(model, mode=nncf.CompressWeightsMode.INT8_SYM)
        new_path = path.with_name("int8.xml")
        ov.save_model(quantized, new_path, compress_to_fp16=False)
        del model, quantized
    new_path.replace(path)
    new_path.with_suffix(".bin").replace(path.with_suffix(".bin"))


# -- a graph in a SentenceTransformer ---------------------------------------------------------------------------------


class GraphModule(InputModule):
    """A module of sentence-transformers that tokenizes texts and runs a compiled encoder's graph."""

    modalities: list[Any] = ["text"]  # noqa: RUF012  (the base class declares it so)

    def __init__(self, encoder: Any) -> None:
        super().__init__()
        self.encoder = encoder
        self.tokenizer = encoder.reading.backend

    def preprocess(self, inputs: Any, prompt: str | None = None, **kwargs: Any) -> dict[str, Any]:
        """Return ids and attention mask (B,T) of texts."""
        ids, attention_mask = self.encoder.batch(self.encoder.ids([(prompt or "") + text for text in inputs]))
        return {"input_ids": torch.from_numpy(ids), "attention_mask": torch.from_numpy(attention_mask)}

    def forward(self, features: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        """Add the vectors (B,K), `sentence_embedding`, to ids and attention mask."""
        ids, attention_mask = (features[name].cpu().numpy() for name in INPUTS)
        return {**features, "sentence_embedding": torch.from_numpy(self.encoder.runtime.one(ids, attention_mask))}

    def get_embedding_dimension(self) -> int:
        """Return the number of dimensions of a vector."""
        return int(self.encoder.width)

    @property
    def max_seq_length(self) -> int | None:
        """The maximum length in tokens; None without a limit."""
        limit: int | None = self.encoder.max_seq_length
        return limit

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Raise: `CompiledEncoder.save` writes the graph.

        Raises:
            EngineError: always.
        """
        raise EngineError("A SentenceTransformer of a graph cannot be saved: call CompiledEncoder.save.")
