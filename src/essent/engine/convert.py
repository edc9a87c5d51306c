"""Convert a `Graph` to files for an engine: OpenVINO's model.xml and model.bin, or model.onnx."""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

import torch

from essent._core.lazy import optional_import
from essent.engine.graph import Graph
from essent.engine.runtime import FILES, onnxruntime, openvino
from essent.errors import EngineError
from essent.recipe.tokens.ids import pad

EXAMPLE = ("A man is playing a large flute.", "How far is the moon?", "the")


def convert(graph: Graph, engine: str, folder: Path) -> None:
    """Write the graph in float32, with dynamic batch size and length.

    Raises:
        EngineError: the engine lacks an operation of the model; the message names it.
        MissingDependencyError: the engine's library is not installed.
    """
    if engine == "openvino":
        openvino()
    else:
        optional_import("onnxscript", "onnx")
        onnxruntime()
    try:
        with graph.for_export(), _quiet():
            write = _write_openvino if engine == "openvino" else _write_onnx
            recipe = graph.module
            tokens = pad(recipe.ids(EXAMPLE), recipe.plan.frame, recipe.backbone.pad_id)
            example = tokens.ids, tokens.attention_mask.long()
            graph(*example)  # creates the tables of the first use before the export
            write(graph, example, folder / FILES[engine])
    except Exception as error:  # converters raise any class
        family = graph.module.backbone.family
        reason = next((line for line in reversed(str(error).strip().splitlines()) if line.strip()), "no reason given")
        raise EngineError(
            f"The recipe {str(graph.module.recipe)!r} on a {family} does not convert to {engine}: "
            f"{type(error).__name__}: {reason.strip()[:300]}"
        ) from error


INPUTS = ("input_ids", "attention_mask")  # names that other programs can rely on
FREE = ({0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC},) * 2


def _write_openvino(graph: Graph, example: tuple[torch.Tensor, ...], path: Path) -> None:
    ov = openvino()
    from openvino.frontend.pytorch import ConversionExtension

    program = torch.export.export(graph, example, dynamic_shapes=FREE, strict=False)
    extension = ConversionExtension("aten.diagonal.default", _diagonal)
    model = ov.convert_model(program, extension=[extension])
    for position, name in enumerate(INPUTS):
        model.inputs[position].get_tensor().set_names({name})
    model.outputs[0].get_tensor().set_names({"vectors"})
    ov.save_model(model, path, compress_to_fp16=False)


def _diagonal(context: Any) -> Any:
    """Gather the diagonal, which OpenVINO lacks: entries 0, T+1, 2(T+1) … of the last two dimensions flattened."""
    import numpy as np
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
        dynamic_shapes=FREE,
    )
    assert program is not None  # noqa: S101  (of `dynamo=True`)
    for node in program.model.graph.all_nodes():
        node.metadata_props.clear()  # paths of source files on this machine
    program.save(str(path))


@contextmanager
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


# -- int8 -------------------------------------------------------------------------------------------------------------


def quantise(path: Path, batches: list[tuple[Any, Any]]) -> None:
    """Quantize an OpenVINO file to int8 in place.

    Args:
        path: model.xml.
        batches: ids and attention masks to calibrate activations on; without any, only the weights become int8.

    Raises:
        MissingDependencyError: nncf is not installed.
    """
    ov = openvino()
    with redirect_stdout(sys.stderr):  # its progress bars, and its logger, which binds the stream at import
        nncf = optional_import("nncf", "openvino")
    with _quiet(), redirect_stdout(sys.stderr):
        model = ov.Core().read_model(path)
        if batches:
            data = nncf.Dataset(batches, lambda batch: dict(zip(INPUTS, batch, strict=False)))
            quantized = nncf.quantize(model, data, subset_size=len(batches), model_type=nncf.ModelType.TRANSFORMER)
        else:
            quantized = nncf.compress_weights(model, mode=nncf.CompressWeightsMode.INT8_SYM)
        beside = path.with_name("int8.xml")
        ov.save_model(quantized, beside, compress_to_fp16=False)
        del model, quantized
    beside.replace(path)
    beside.with_suffix(".bin").replace(path.with_suffix(".bin"))
