"""`essent save`: a model with its recipe as one folder, for sentence-transformers or as a graph."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Group, Parameter

from essent._core.arithmetic import BFLOAT16, FLOAT32, INT8, precision_of
from essent._core.lazy import check_torch
from essent.cli import options as opt
from essent.cli.check import show_lines
from essent.cli.console import results, show_note, silence_libraries
from essent.cli.files import check_folder
from essent.cli.texts import expand_groups, listed, read_files, read_labelled
from essent.errors import EngineError, InputError, NotFittedError
from essent.recipe.recipe import Recipe

GRAPHS = ("openvino", "onnx")
CALIBRATION = Group("Calibration", sort_key=0)


def save(
    *,
    model: opt.Model,
    output: opt.Output,
    recipe: opt.Recipe = None,
    format: Literal["stock", "legacy", "openvino", "onnx"] = "stock",
    fit: opt.Fit = None,
    column: opt.Column = "text",
    precision: Annotated[Literal["float32", "bfloat16", "int8"], Parameter(group=opt.RUN)] = "float32",
    calibrate: Annotated[list[Path] | None, Parameter(group=CALIBRATION)] = None,
    match_pairs: Annotated[list[str] | None, Parameter(group=CALIBRATION)] = None,
    match_score: Annotated[float | None, Parameter(group=CALIBRATION)] = None,
    compare: Annotated[list[Path] | None, Parameter(group=opt.INPUTS)] = None,
    max_seq_length: opt.MaxSeqLength = None,
    run: opt.Run = opt.Run(),
) -> None:
    """Save a model with its recipe as a folder.

    Wherever possible it is a folder that plain sentence-transformers loads. A recipe that learns something (idf,
    shaping) needs --fit. A folder that essent saved has its own recipe: without --recipe it is saved again, in another
    format or with calibrated similarities. The folder is loaded again and checked, in every way it promises; if plain
    sentence-transformers cannot load it, the reason is printed.

    The formats openvino and onnx write one graph, from token ids to shaped vectors, that runs on CPUs without torch's
    layers; its vectors are compared with torch's before anything is written. int8 costs quality, and the loss is
    printed.

    ```console
    $ essent save -m bert-base-uncased -r "first-last | whiten:256" --fit corpus.txt -o my-model
    $ essent save -m bert-base-uncased -r mean --calibrate corpus.txt --match-pairs duplicates.csv -o my-model
    $ essent save -m my-model --format legacy -o for-servers
    $ essent save -m my-model --format openvino --compare texts.txt -o my-model-openvino
    $ essent save -m my-model --format openvino --precision int8 --calibrate texts.txt -o my-model-int8
    ```

    Args:
        model: A model on the hub, or a folder.
        output: The folder to write.
        recipe: Recipe of the vectors. Default: the folder's own, else mean.
        format: stock for sentence-transformers; legacy with class paths and flags that servers such as vLLM and TEI
            parse; openvino or onnx for a graph.
        fit: Texts that the recipe learns from (token counts, shaping), the papers' superscript W.
        column: Column with the texts, in .jsonl, .csv, .tsv and .parquet files.
        precision: Arithmetic of a graph.
        calibrate: Texts like those to come. stock and legacy: the saved model says which share of random pairs is less
            similar than a cosine. int8: without them only the weights are int8.
        match_pairs: Duplicates or scored pairs; the saved model then says how probable a match is at a cosine.
        match_score: The score from which on a scored pair counts as a match.
        compare: Measure on these texts how much faster the graph is than torch, and its loss in similarity.
        max_seq_length: Maximum number of tokens per text, its template included. Default: the model's limit.
    """
    check_folder(output, run.force)
    _check_combination(format, precision, calibrate, match_pairs, match_score, compare)
    parsed = None if recipe is None else Recipe.parse(recipe)
    check_torch("essent save")
    from essent._core.folders.names import GRAPH
    from essent._core.folders.places import check_replaceable
    from essent.encoder.encoder import Encoder, open_as_it_is
    from essent.engine.gain import texts_to_compare
    from essent.verification.golden import verify

    texts = {
        name: None if files is None else read_files(files, column)
        for name, files in (("fit", fit), ("calibrate", calibrate), ("compare", compare))
    }
    if texts["compare"] is not None:
        texts["compare"] = texts_to_compare(texts["compare"])
    if format in GRAPHS:
        check_replaceable(output, GRAPH)
    pairs = None if match_pairs is None else read_labelled(expand_groups(match_pairs), None, run.quiet)
    silence_libraries()
    options = run.options if format not in GRAPHS else {**run.options, "device": "cpu"}
    encoder: Any = (
        open_as_it_is(model, options) if parsed is None and format in GRAPHS else Encoder(model, parsed, **options)
    )
    if max_seq_length is not None:
        encoder.max_seq_length = max_seq_length
    note_unused(encoder, fit)
    if texts["fit"] is not None and learns(encoder):
        encoder.fit(texts["fit"], show_progress_bar=run.progress)
    elif needs_texts(encoder):
        raise NotFittedError(f"The recipe {str(encoder.recipe)!r} learns from texts: give them with --fit FILE.")
    if format in GRAPHS:
        _save_graph(encoder, output, format, precision_of(precision, (FLOAT32, BFLOAT16, INT8)), texts, run)
        return
    if texts["calibrate"] is not None:
        encoder.calibrate(texts["calibrate"], pairs, match_score=match_score, show_progress_bar=run.progress)
        run.note(f"A calibrated similarity is the {encoder.calibration}.")
    encoder.save(str(output), layout=format)
    verification = verify(str(output))
    if not run.quiet:
        show_lines([f"{output}: {verification.recipe}", *verification.summary()])


def _check_combination(
    format: str,
    precision: str,
    calibrate: Sequence[Path] | None,
    match_pairs: Sequence[str] | None,
    match_score: float | None,
    compare: Sequence[Path] | None,
) -> None:
    """Refuse options that do not go together, before anything is read.

    Raises:
        InputError, EngineError: names the options.
    """
    if format not in GRAPHS:
        if precision != "float32" or compare is not None:
            option = "--compare" if compare is not None else f"--precision {precision}"
            raise InputError(f"{option} is for graphs: add --format openvino or --format onnx.")
        if calibrate is None and (match_pairs is not None or match_score is not None):
            raise InputError("--match-pairs and --match-score need --calibrate FILES, texts to compare with.")
        return
    from essent.engine.runtime import runtime_of

    if match_pairs is not None or match_score is not None:
        raise InputError(f"--match-pairs and --match-score calibrate an encoder, not a graph ({format}).")
    if calibrate is not None and precision != "int8":
        raise EngineError(f"A graph takes --calibrate for --precision int8 only, not {precision!r}.")
    runtime_of(format, precision)


def _save_graph(
    encoder: Any, output: Path, engine: str, precision: str, texts: dict[str, list[str] | None], run: opt.Run
) -> None:
    """Compile a graph, save it, and print its loss and, with texts to compare, its speed."""
    from essent.engine.compiled import compile
    from essent.engine.gain import compare as compare_speed
    from essent.engine.gain import measure_loss, texts_to_judge

    compared = texts["compare"]
    samples = [*(compared or []), *(texts["fit"] or [])]
    compiled = compile(encoder, engine, precision=precision, calibration=texts["calibrate"], texts=samples)
    compiled.save(str(output))
    megabytes = sum(file.stat().st_size for file in output.rglob("*") if file.is_file()) / 1e6
    run.note(f"{output}: {compiled.recipe}, {engine} {precision}, {megabytes:.1f} MB; for essent.load, essent encode")
    if compiled.loss is None and compared is None:
        run.note(f"{measure_loss(encoder, compiled, texts_to_judge(samples, ()))}.")
    if compared is not None:
        gain = compare_speed(compiled, encoder, compared, calibration=texts["calibrate"] or ())
        results().print(str(gain), markup=False)


# -- what recipes learn from texts, here and in `essent encode` --------------------------------------------------------


def learns(encoder: Any) -> bool:
    """Whether the recipe learns anything from texts; graphs, static encoders and plain models learn nothing."""
    module = getattr(encoder, "module", None)
    return module is not None and bool(module.plan.reads_stats or module.chain.needs_fit)


def needs_texts(encoder: Any) -> bool:
    """Whether the recipe has yet to learn something before it can encode."""
    if not learns(encoder):
        return False
    try:
        encoder.module.require_fit()
    except NotFittedError:
        return True
    return False


def note_unused(encoder: Any, fit: Sequence[Path] | None) -> None:
    """Say that the encoder has no use for the texts of --fit."""
    if fit and not learns(encoder):
        recipe = getattr(encoder, "recipe", None) or "The model"
        show_note(f"{recipe} learns nothing: --fit {listed(fit)} is not used.")
