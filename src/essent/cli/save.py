"""`essent save`: a model with its recipe as a folder for sentence-transformers, or as a graph."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Group, Parameter

from essent._core.folders.files import ENCODER, GRAPH
from essent.cli import options as opt
from essent.cli.console import is_quiet, prepare_torch, show_lines, show_note, wants_progress
from essent.cli.files import check_folder, listed, read_files, read_labelled
from essent.errors import NotFittedError
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
    run: opt.Run = opt.Run(),
) -> None:
    """Save a model with its recipe as a folder.

    Plain sentence-transformers loads the folder if it can run the recipe; otherwise the reason is printed. The saved
    folder is loaded again to check that it gives the same vectors. A recipe that learns something (idf, shaping) needs
    --fit. To convert a folder that essent saved to another format, or to add calibrated similarities, omit --recipe.

    The formats openvino and onnx write one graph, from token ids to shaped vectors, for fast inference on CPUs. Its
    vectors are compared with torch's before anything is written. bfloat16 and int8 reduce quality; the loss is printed.

    ```console
    $ essent save -m bert-base-uncased -r "first-last | whiten:256" --fit corpus.txt -o my-model
    $ essent save -m bert-base-uncased -r mean --calibrate corpus.txt --match-pairs duplicates.csv -o my-model
    $ essent save -m my-model --format legacy -o for-servers
    $ essent save -m my-model --format openvino -o my-model-openvino
    $ essent save -m my-model --format openvino --precision int8 -o my-model-int8
    ```

    Args:
        model: A model on the hub, or a folder.
        output: The folder to write.
        recipe: Recipe of the vectors. Default: the recipe or pooling of the model's folder, otherwise mean.
        format: stock for sentence-transformers; legacy for servers such as vLLM and TEI (older class paths and flags);
            openvino or onnx for a graph.
        fit: Texts to fit the recipe on (token counts, shaping), the papers' superscript W.
        column: Column with the texts, in .jsonl, .csv, .tsv and .parquet files.
        precision: Number format of a graph.
        calibrate: Texts like those that you will encode: adds calibrated similarities, the share of random pairs that
            are less similar. Not for a graph.
        match_pairs: Duplicates or scored pairs; calibrated similarities are then the probability of a match.
        match_score: Minimum score of a scored pair that counts as a match.
    """
    is_graph = format in GRAPHS
    check_folder(output, run.force, GRAPH if is_graph else ENCODER)
    match_options = {"--match-pairs": match_pairs, "--match-score": match_score}
    if is_graph:
        from essent.engine.runtime import runtime_of

        opt.refuse({"--calibrate": calibrate, **match_options}, f"calibrates an encoder, not a graph ({format}).")
        runtime_of(format, precision)
    else:
        graph_precision = None if precision == "float32" else precision
        opt.refuse({"--precision": graph_precision}, "is for graphs. Add --format openvino or --format onnx.")
        if calibrate is None:
            opt.refuse(match_options, "needs --calibrate FILES with texts.")
    parsed = None if recipe is None else Recipe.parse(recipe)
    fit_texts, calibration = (None if files is None else read_files(files, column) for files in (fit, calibrate))
    prepare_torch("essent save")
    from essent.encoder.encoder import Encoder, open_as_it_is
    from essent.verification.golden import verify

    pairs = read_labelled(match_pairs)
    options = {**run.options, "device": "cpu"} if is_graph else run.options
    encoder: Any = open_as_it_is(model, options) if is_graph and parsed is None else Encoder(model, parsed, **options)
    note_unused(encoder, fit)
    if fit_texts is not None and learns(encoder):
        encoder.fit(fit_texts, show_progress_bar=wants_progress())
    elif needs_texts(encoder):
        raise NotFittedError(f"The recipe {str(encoder.recipe)!r} must be fitted on texts. Pass them with --fit FILE.")
    if is_graph:
        from essent.engine.conversion import compile

        compiled = compile(encoder, format, precision=precision)
        compiled.save(str(output))
        megabytes = sum(file.stat().st_size for file in output.rglob("*") if file.is_file()) / 1e6
        show_note(f"{output}: {compiled.recipe}, {format} {precision}, {megabytes:.1f} MB; load it with essent.load")
        return
    if calibration is not None:
        encoder.calibrate(calibration, pairs, match_score=match_score, show_progress_bar=wants_progress())
        show_note(f"Calibrated similarity: {encoder.calibration}.")
    encoder.save(str(output), layout=format)
    verification = verify(str(output))
    if not is_quiet():
        show_lines([f"{output}: {verification.recipe}", *verification.summary()])


# -- fitting, also for `essent encode` ---------------------------------------------------------------------------------


def learns(encoder: Any) -> bool:
    """Return whether the recipe learns from texts; graphs, static encoders and plain models never do."""
    module = getattr(encoder, "module", None)
    return module is not None and bool(module.plan.reads_stats or module.chain.needs_fit)


def needs_texts(encoder: Any) -> bool:
    """Return whether the recipe must be fitted before it can encode."""
    try:
        if learns(encoder):
            encoder.module.require_fit()
    except NotFittedError:
        return True
    return False


def note_unused(encoder: Any, fit: Sequence[Path] | None) -> None:
    """Print a note if the encoder does not use the texts of --fit."""
    if fit and not learns(encoder):
        recipe = getattr(encoder, "recipe", None) or "The model"
        show_note(f"{recipe} has nothing to fit: --fit {listed(fit)} is ignored.")
