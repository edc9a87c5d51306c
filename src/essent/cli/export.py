"""`essent export`: a model with its recipe as one graph for OpenVINO or onnxruntime."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from essent.arithmetic import BFLOAT16, FLOAT32, INT8, precision_of
from essent.cli import options as opt
from essent.cli.console import results
from essent.cli.fitting import fit_on
from essent.cli.save import check_folder
from essent.cli.settings import with_help, with_options
from essent.cli.texts import read_files
from essent.types import EngineError


@with_help()
@with_options(opt.Learning, into="learning")
@with_options(opt.Run, into="run", by_hand=("device",))
def export(
    model: opt.Model,
    output: Annotated[Path, opt.output("DIR", "The folder to write.")],
    engine: Annotated[str, typer.Option("--format", metavar="openvino|onnx")] = "openvino",
    recipe: opt.Recipe = None,
    *,
    learning: opt.Learning,
    precision: Annotated[str, typer.Option(metavar="float32|bfloat16|int8")] = "float32",
    calibrate: opt.Files = None,
    compare: opt.Files = None,
    max_seq_length: opt.MaxSeqLength = None,
    run: opt.Run,
) -> None:
    """Write a model with its recipe as one graph, from token ids to shaped vectors, that an engine runs on CPUs.

    Takes models of transformers and sentence-transformers, and folders that essent saved. The graph's vectors are
    compared with torch's before anything is written, and again whenever essent.load reads the folder. int8 costs
    quality, and the loss is printed. --compare measures the gain on this machine: ratios to torch with their spread
    over interleaved rounds, and the loss in similarity.

    \b
    [dim]$[/] essent export -m all-MiniLM-L6-v2 -o minilm-openvino
    [dim]$[/] essent export -m all-MiniLM-L6-v2 -o minilm-openvino --compare texts.txt
    [dim]$[/] essent export -m my-model --precision int8 --calibrate texts.txt -o my-model-int8

    Args:
        engine: the engine that will run it.
        precision: number format of the graph's arithmetic.
        calibrate: for int8: texts like those that will be encoded. Without them only the weights are int8.
        compare: measure on these texts how much faster the graph is than torch, and what it costs.
    """
    check_folder(output, run.force)
    precision = precision_of(precision, (FLOAT32, BFLOAT16, INT8))
    if calibrate is not None and precision != "int8":
        raise EngineError(f"--calibrate is for --precision int8, not {precision!r}.")
    texts = None if calibrate is None else read_files(calibrate, learning.column)
    measured = None if compare is None else read_files(compare, learning.column)
    learned = learning.read()
    from essent.encoder import Encoder, open_as_it_is
    from essent.engine import compare as compare_speed
    from essent.engine import compile, measure_loss, runtime_of, texts_to_compare, texts_to_judge
    from essent.folders import GRAPH, check_replaceable

    runtime_of(engine, precision)
    measured = None if measured is None else texts_to_compare(measured)
    check_replaceable(output, GRAPH)
    run.calm()
    options = {**run.options, "device": "cpu"}
    loaded = open_as_it_is(model, options) if recipe is None else Encoder(model, recipe, **options)
    if max_seq_length is not None:
        loaded.max_seq_length = max_seq_length
    fit_on(loaded, learning, learned, run)
    like = [*(measured or []), *(learned[0] or [])]
    compiled = compile(loaded, engine, precision=precision, calibration=texts, texts=like)
    compiled.save(str(output))
    size = sum(file.stat().st_size for file in output.rglob("*") if file.is_file()) / 1e6
    run.note(f"{output}: {compiled.recipe}, {engine} {precision}, {size:.1f} MB; for essent.load, essent encode")
    if compiled.loss is None and measured is None:
        run.note(f"{measure_loss(loaded, compiled, texts_to_judge(like, ()))}.")
    if measured is not None:
        gain = compare_speed(compiled, loaded, measured, calibration=texts or ())
        results().print(str(gain), markup=False)
