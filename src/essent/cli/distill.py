"""`essent distill`: a static encoder of a model, from one pass over a corpus."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Group, Parameter

from essent._core.atomic import remove_leftovers
from essent._core.lazy import check_torch
from essent.cli import options as opt
from essent.cli.check import show_lines
from essent.cli.console import results, silence_libraries
from essent.cli.files import check_folder
from essent.cli.texts import expand_groups, listed, read_corpus, read_labelled
from essent.errors import InputError

if TYPE_CHECKING:
    from essent.static.distillation import TaskScores
    from essent.static.table import Choice, Material
    from essent.tasks.base import LabeledTask

CHECKPOINT = "distill.safetensors"
TABLE = Group("Table", sort_key=0)
WORDS = Annotated[int, Parameter(group=TABLE)]
TEXT = Annotated[str, Parameter(group=TABLE)]


def distill(
    *,
    model: opt.Model,
    texts: opt.Texts,
    output: opt.Output,
    recipe: opt.Recipe = None,
    column: Annotated[list[str] | None, Parameter(group=opt.INPUTS)] = None,
    layers: TEXT = "L",
    weights: TEXT = "uniform",
    ridge: Annotated[float, Parameter(group=TABLE)] = 0.1,
    shaping: TEXT = "",
    dimensions: Annotated[int | None, Parameter(group=TABLE)] = None,
    dtype: Annotated[Literal["float32", "float16", "int8"], Parameter(group=TABLE)] = "float32",
    words: WORDS = 0,
    expressions: WORDS = 0,
    unseen: Annotated[Literal["alone", "static", "zero", "mean"], Parameter(group=TABLE)] = "alone",
    contexts: Annotated[Path | None, Parameter(group=opt.OUTPUTS)] = None,
    validate: Annotated[list[str] | None, Parameter(group=opt.INPUTS)] = None,
    test: Annotated[list[str] | None, Parameter(group=opt.INPUTS)] = None,
    data_folder: opt.Folder = None,
    batch_size: opt.BatchSize = 32,
    precision: opt.Precision = "auto",
    run: opt.Run = opt.Run(),
) -> None:
    """Distil a model into a static encoder.

    A static encoder is one table of token vectors, as fast as tokenising. Every token's states are averaged over its
    occurrences in the corpus, then fitted to the model's own sentence vectors by least squares. The folder loads with
    essent, sentence-transformers (StaticEmbedding) and model2vec. The same command resumes a run that was killed.

    ```console
    $ essent distill -m all-MiniLM-L6-v2 -t texts.txt -o minilm-static
    $ essent distill -m bert-base-uncased -t a.jsonl b.jsonl -o static --validate stsb.dev --test stsb sickr
    ```

    Args:
        model: A model on the hub, or a folder.
        texts: Texts like those to be encoded: one per line, or .jsonl, .csv, .tsv or .parquet. Each different text
            counts once.
        output: The folder to write.
        recipe: Recipe of the vectors that the table is fitted to. Default: the model's own.
        column: Columns with the texts. Default: text, or both sentences of pairs.
        layers: Layers whose states are averaged, as a mix: L, L-1+L, 0+L.
        weights: Weights by token, or a product of them: uniform, sif:1e-2, idf, remove.
        ridge: Strength λ of the ridge regression that fits the averages to the model's own sentence vectors; 0 takes
            the averages alone.
        shaping: An affine chain, fitted on the corpus's static vectors: centre, abtt:2, whiten:256.
        dimensions: Dimensions of a row. Default: the model's.
        dtype: Number format of the rows.
        words: Maximum number of whole words added to the vocabulary.
        expressions: Maximum number of expressions of two words added to the vocabulary.
        unseen: Rows of tokens that the corpus lacks.
        contexts: Folder for the averages, for recipes with layers=avg:DIR.
        validate: Choose layers, weights, ridge and shaping on these labels of any kind, e.g. stsb.dev.
        test: Tasks on which the static encoder is compared with the model.
        data_folder: Folder of the named tasks: DIR/sts/NAME.jsonl. Default: the hub.
        batch_size: Texts of about 64 tokens per batch.
        precision: Arithmetic: auto is float32 on CPUs; bfloat16 where the machine has such arithmetic.
    """
    check_folder(_without_checkpoint(output), run.force)
    if contexts is not None:
        check_folder(contexts, run.force or (output / CHECKPOINT).is_file())  # a killed run may have written it
    check_torch("essent distill")
    from essent.encoder.encoder import Encoder
    from essent.static.distillation import collect, compare, make_encoder
    from essent.static.gather import Settings
    from essent.static.table import Choice, check_choice
    from essent.tasks.locate import load_task
    from essent.verification.golden import verify

    choice = Choice(layers, weights, ridge, shaping)
    if validate is not None and choice != Choice():
        raise InputError("--validate chooses layers, weights, ridge and shaping: give either it or these.")
    check_choice(choice, dtype, dimensions)
    corpus = read_corpus(texts, column)
    tests = [load_task(name, data_folder) for name in expand_groups(test)]
    if other := next((task.name for task in tests if not task.has_main), None):
        raise InputError(f"--test: {other} has no single main score to compare; essent evaluate shows its numbers.")
    validation = None if validate is None else read_labelled(expand_groups(validate), data_folder, run.quiet)
    silence_libraries()
    settings = Settings(
        unseen=unseen,
        state=output / CHECKPOINT,
        renew=run.force,
        batch_size=batch_size,
        precision=precision,
        progress=not run.quiet,
        note=run.note,
    )
    run.note(f"{len(corpus)} texts of {listed(texts)}, each once")
    material, _ = collect(
        model,
        corpus,
        layers=None if validation is not None or contexts is not None else [choice.layers],
        words=words,
        expressions=expressions,
        teacher=recipe,
        dimensions=dimensions,
        settings=settings,
        options=run.options,
    )
    if contexts is not None:
        material.contexts.save(contexts)
    if validation is not None:
        choice = _choose(material, validation, run)
    distilled = make_encoder(material, choice, dimensions=dimensions, dtype=dtype, progress=run.progress)
    distilled.encoder.save(str(output))
    (output / CHECKPOINT).unlink(missing_ok=True)
    verification = verify(str(output))
    if not run.quiet:
        for line in distilled.summary():
            run.note(line)
        show_lines([f"{output}: {verification.recipe}", *verification.summary()])
    if tests:
        teacher = Encoder(model, recipe, **run.options)
        _show_comparison(compare(distilled, partial(teacher.encode, batch_size=batch_size), tests))


def _without_checkpoint(output: Path) -> Path:
    """A folder that a killed run left, perhaps while it saved the encoder, counts as an empty folder."""
    remove_leftovers(output / CHECKPOINT)
    return output / "none" if (output / CHECKPOINT).is_file() else output


def _choose(material: Material, validation: LabeledTask, run: opt.Run) -> Choice:
    from essent.static.distillation import find_choice

    trials = find_choice(material, validation, report=lambda score, choice: run.note(f"{score:6.2f}  {choice}"))
    best_score, best = trials[0]
    run.note(f"Best of {len(trials)} on {validation.name}: {best_score:.2f}  {best}")
    return best


def _show_comparison(rows: Sequence[TaskScores]) -> None:
    """A table of both scores, task by task."""
    from rich.table import Table

    table = Table("task", "model", "static", "kept", "tokens in the corpus", box=None)
    for row in rows:
        table.add_row(
            row.task, f"{row.model:.2f}", f"{row.static:.2f}", f"{row.share:.1f} %", f"{100 * row.coverage:.1f} %"
        )
    table.add_row("average", "", "", f"{sum(row.share for row in rows) / len(rows):.1f} %", "")
    results().print(table)
