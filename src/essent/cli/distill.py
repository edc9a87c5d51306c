"""`essent distill`: a static encoder from one pass over a corpus."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Group, Parameter

from essent._core.atomic import remove_leftovers
from essent.cli import options as opt
from essent.cli.console import is_quiet, prepare_torch, show_lines, show_note, wants_progress
from essent.cli.files import check_folder
from essent.cli.texts import listed, read_corpus, read_labelled
from essent.errors import InputError

if TYPE_CHECKING:
    from essent.static.table import Choice, Material
    from essent.tasks.base import LabeledTask

CHECKPOINT = "distill.safetensors"
TABLE = Group("Table", sort_key=0)
TEXT = Annotated[str, Parameter(group=TABLE)]


def distill(
    *,
    model: opt.Model,
    texts: opt.Texts,
    output: opt.Output,
    recipe: opt.Recipe = None,
    column: opt.Labels = None,
    layers: TEXT = "L",
    weights: TEXT = "uniform",
    shaping: TEXT = "",
    dimensions: Annotated[int | None, Parameter(group=TABLE)] = None,
    dtype: Annotated[Literal["float32", "float16", "int8"], Parameter(group=TABLE)] = "float32",
    contexts: Annotated[Path | None, Parameter(group=opt.OUTPUTS)] = None,
    validate: opt.Labels = None,
    run: opt.Run = opt.Run(),
) -> None:
    """Distil a model into a static encoder.

    A static encoder is one table of token vectors, as fast as tokenization. The hidden states of every token are
    averaged over its occurrences in the corpus, then fitted to the model's sentence vectors by least squares. The
    folder loads with essent, sentence-transformers (StaticEmbedding) and model2vec. Run the same command to resume an
    interrupted run.

    ```console
    $ essent distill -m all-MiniLM-L6-v2 -t texts.txt -o minilm-static
    $ essent distill -m bert-base-uncased -t a.jsonl b.jsonl -o static --validate stsb.dev
    ```

    Args:
        model: A model on the hub, or a folder.
        texts: Texts like those that you will encode: one per line, or .jsonl, .csv, .tsv or .parquet. Repeated texts
            count once.
        output: The folder to write.
        recipe: Recipe of the vectors that the table is fitted to. Default: the model's own.
        column: Columns with the texts. Default: text, or both sentences of pairs.
        layers: Layers whose hidden states are averaged, as a mix: L, L-1+L, 0+L.
        weights: Token weights, or a product of them: uniform, sif:1e-2, idf, remove.
        shaping: Shaping chain, affine, fitted on the static vectors of the corpus: centre, abtt:2, whiten:256.
        dimensions: Dimensions of the token vectors. Default: the model's.
        dtype: Number format of the token vectors.
        contexts: Also save the averages in this folder, for recipes with layers=avg:DIR.
        validate: Choose layers, weights, the fit and shaping on these labelled data of any kind, e.g. stsb.dev.
    """
    check_folder(_without_checkpoint(output), run.force)
    check_folder(contexts, run.force or (output / CHECKPOINT).is_file())  # a killed run may have written it
    prepare_torch("essent distill")
    from essent.static.distillation import collect, make_encoder
    from essent.static.gather import Settings
    from essent.static.table import Choice, check_choice
    from essent.verification.golden import verify

    choice = Choice(layers, weights, shaping=shaping)
    if validate is not None and choice != Choice():
        raise InputError("--validate chooses layers, weights and shaping: pass either --validate or these options.")
    check_choice(choice, dtype, dimensions)
    corpus = read_corpus(texts, column)
    validation = read_labelled(validate)
    settings = Settings(state=output / CHECKPOINT, renew=run.force, progress=not is_quiet(), note=show_note)
    show_note(f"{len(corpus)} distinct texts from {listed(texts)}")
    material, _ = collect(
        model,
        corpus,
        layers=None if validation is not None or contexts is not None else [choice.layers],
        teacher=recipe,
        dimensions=dimensions,
        settings=settings,
        options=run.options,
    )
    if contexts is not None:
        material.contexts.save(contexts)
    if validation is not None:
        choice = _choose(material, validation)
    distilled = make_encoder(material, choice, dimensions=dimensions, dtype=dtype, progress=wants_progress())
    distilled.encoder.save(str(output))
    (output / CHECKPOINT).unlink(missing_ok=True)
    verification = verify(str(output))
    for line in distilled.summary():
        show_note(line)
    if not is_quiet():
        show_lines([f"{output}: {verification.recipe}", *verification.summary()])


def _without_checkpoint(output: Path) -> Path:
    """Treat the folder of an interrupted run, even one that was saving the encoder, as empty."""
    remove_leftovers(output / CHECKPOINT)
    return output / "none" if (output / CHECKPOINT).is_file() else output


def _choose(material: Material, validation: LabeledTask) -> Choice:
    from essent.static.distillation import find_choice

    trials = find_choice(material, validation, report=lambda score, choice: show_note(f"{score:6.2f}  {choice}"))
    best_score, best = trials[0]
    show_note(f"Best of {len(trials)} on {validation.name}: {best_score:.2f}  {best}")
    return best
