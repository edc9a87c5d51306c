"""`essent train`, `essent distill` and `essent improve`: the commands that make an encoder from texts."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Group, Parameter

from essent._core.atomic import remove_leftovers
from essent.cli import options as opt
from essent.cli.console import is_quiet, prepare_torch, show_lines, show_note
from essent.cli.files import check_folder, expand_groups, listed, read_corpus, read_files, read_labelled
from essent.errors import InputError

# -- train ------------------------------------------------------------------------------------------------------------


@Parameter(name="*", group=Group("Training (defaults: the preset's)", sort_key=0))
@dataclass(frozen=True)
class TrainingOptions:
    """Settings of `essent.training.Settings`; None is the preset's value."""

    recipe: opt.Recipe = None
    """Recipe of the trained encoder: prompt or prompt-denoised; for simcse, cls, mean or another; for decoders,
    prompteol or about."""
    batch_size: int | None = None
    """Texts or pairs per step; the other texts of a batch are the negatives."""
    learning_rate: float | None = None
    """Learning rate of AdamW without weight decay, decreasing linearly to 0."""
    epochs: float | None = None
    """Number of passes over the texts or pairs."""
    max_steps: int | None = None
    """Number of steps, instead of epochs."""
    max_seq_length: int | None = None
    """Maximum number of tokens per text, without special tokens and template."""
    precision: Literal["float32", "bfloat16"] | None = None
    """Number format; bfloat16 is mixed precision."""
    lora: int | None = None
    """Rank of LoRA adapters, such as 16, which are trained instead of the weights and merged at the end; 0 for none."""


def train(
    *,
    model: opt.Model,
    output: opt.Output,
    texts: opt.AnyTexts = None,
    pairs: opt.Folder = None,
    column: opt.Column = "text",
    preset: Literal["promptbert-unsup", "promptbert-sup", "simcse-unsup", "simcse-sup", "optiprompt", "prompteol"]
    | None = None,
    validate: opt.Labels = None,
    columns: opt.Columns = None,
    resume: bool = False,
    training: TrainingOptions = TrainingOptions(),
    run: opt.Run = opt.Run(),
) -> None:
    """Train a model contrastively and save it as an encoder.

    The objectives of PromptBERT and SimCSE pull two views of a text together and push the other texts of the batch
    away. The views come from dropout or different templates; with --pairs, they are a text and its positive. The preset
    optiprompt freezes the model and trains the words of a template as free vectors; prompteol is for decoders, with
    LoRA.

    Ctrl-C saves a checkpoint. --resume continues from the last checkpoint, with the same weights as an uninterrupted
    run; with more steps or epochs, it extends a run. --force starts over.

    ```console
    $ essent train -m bert-base-uncased --texts wiki1m.txt --validate stsb.dev -o my-promptbert
    $ essent train -m bert-base-uncased --pairs nli.csv --preset simcse-sup --validate stsb.dev -o my-simcse
    $ essent train -m bert-base-uncased --texts wiki1m.txt --preset optiprompt --validate stsb.dev -o my-template
    $ essent train -m ./my-decoder --pairs nli.csv --preset prompteol --lora 16 --validate stsb.dev -o my-decoder-lora
    ```

    Args:
        model: A model on the hub, or a folder.
        output: Folder of the encoder and its checkpoints.
        texts: Unlabelled texts: one per line, or .jsonl, .csv, .tsv or .parquet with --column.
        pairs: File of pairs instead of texts: columns anchor, positive and optionally negative (or premise, entailment,
            contradiction; sent0, sent1, hard_neg).
        column: Column with the texts, in .jsonl, .csv, .tsv and .parquet files.
        preset: Settings of a paper. Default: PromptBERT's, for texts or for pairs.
        validate: Labelled data of any kind, as in search; the checkpoint with the best score becomes the encoder.
        resume: Continue from the last checkpoint in the output folder.
    """
    prepare_torch("essent train")
    from essent.training.checkpoints import check_unfinished
    from essent.training.examples import read_examples
    from essent.training.run import train as run_training

    if not (run.force or resume):
        check_unfinished(output)
    check_folder(output, run.force or resume)
    if (texts is None) == (pairs is None):
        raise InputError("Pass either --texts (unlabelled) or --pairs (anchor, positive and optionally negative).")
    examples: Any = read_files(texts or [], column) if pairs is None else read_examples(pairs)
    task = read_labelled(validate, columns)
    encoder = run_training(
        model,
        examples,
        preset or ("promptbert-unsup" if pairs is None else "promptbert-sup"),
        output=output,
        validate=task,
        resume=resume,
        force=run.force,
        device=run.device,
        progress=not is_quiet(),
        options=run.hub_options,
        note=show_note,
        **opt.changes(training),
    )
    history = json.loads((output / "training.json").read_text(encoding="utf-8"))
    for note in history["notes"]:
        show_note(note)
    show_note(f"{output}: {history['steps']} steps on {history['examples']} examples, {encoder.recipe}")
    if task is not None:
        best = f"{history['best_score']:.2f} after {history['best_step']} steps"
        show_lines([f"{task.name}: {history['before']:.2f} before, {best}"])


# -- distill ----------------------------------------------------------------------------------------------------------

CHECKPOINT = "distill.safetensors"
TABLE = Group("Table", sort_key=0)
TableText = Annotated[str, Parameter(group=TABLE)]


def distill(
    *,
    model: opt.Model,
    texts: opt.Texts,
    output: opt.Output,
    recipe: opt.Recipe = None,
    column: opt.Labels = None,
    layers: TableText = "L",
    weights: TableText = "uniform",
    shaping: TableText = "",
    dimensions: Annotated[int | None, Parameter(group=TABLE)] = None,
    dtype: Annotated[Literal["float32", "float16", "int8"], Parameter(group=TABLE)] = "float32",
    unseen: Annotated[Literal["auto", "alone", "static", "zero", "mean"], Parameter(group=TABLE)] = "auto",
    contexts: Annotated[Path | None, Parameter(group=opt.OUTPUTS)] = None,
    validate: opt.Labels = None,
    columns: opt.Columns = None,
    run: opt.Run = opt.Run(),
) -> None:
    """Distil a model into a static encoder.

    A static encoder is a table of token vectors; encoding is as fast as tokenization. The hidden states of every token
    are averaged over its occurrences in the texts, then fitted to the model's sentence vectors by least squares. The
    folder loads with essent, sentence-transformers (StaticEmbedding) and model2vec. The agreement with the model's
    similarities is measured on a tenth of the texts. Run the same command to resume an interrupted run; at most one
    minute of work is lost.

    ```console
    $ essent distill -m all-MiniLM-L6-v2 -t texts.txt -o minilm-static
    $ essent distill -m bert-base-uncased -t a.jsonl b.jsonl -o static --validate stsb.dev
    $ essent distill -m ./my-decoder -r about -t texts.txt -o decoder-static
    ```

    Args:
        model: A model on the hub, or a folder.
        texts: Texts like those that you will encode: one per line, or .jsonl, .csv, .tsv or .parquet. Duplicates count
            once.
        output: The folder to write.
        recipe: Recipe of the sentence vectors that the table is fitted to, with or without a template. Default: the
            model's own.
        column: Columns with the texts. Default: text, or both sentences of pairs.
        layers: Layers whose hidden states are averaged, as a mix: L, L-1+L, 0+L.
        weights: Token weights, or a product of them: uniform, sif:1e-2, idf, remove.
        shaping: Shaping chain of affine steps, fitted on the static vectors of the texts: centre, abtt:2, whiten:256.
        dimensions: Dimensions of the token vectors. Default: the model's.
        dtype: Number format of the token vectors.
        unseen: Vectors of tokens that the texts lack: alone (the model runs each), static (input rows), zero, mean, or
            auto: alone if this takes no more tokens than the texts, or than a vocabulary of 50,000; otherwise static.
        contexts: Also save the averages in this folder, for recipes with layers=avg:DIR.
        validate: Choose layers, weights, the fit and shaping on these labelled data of any kind, e.g. stsb.dev.
    """
    remove_leftovers(output / CHECKPOINT)
    interrupted = (output / CHECKPOINT).is_file()  # the earlier run may already have written to both folders
    check_folder(output, run.force or interrupted)
    check_folder(contexts, run.force or interrupted, kind="")
    prepare_torch("essent distill")
    from essent.static.distillation import collect, find_choice, make_encoder
    from essent.static.table import Choice, check_choice
    from essent.verification.golden import verify

    choice = Choice(layers, weights, shaping=shaping)
    if validate is not None and choice != Choice():
        raise InputError("--validate chooses layers, weights and shaping: pass either --validate or these options.")
    check_choice(choice, dtype, dimensions)
    corpus = read_corpus(texts, column)
    validation = read_labelled(validate, columns)
    show_note(f"{len(corpus)} distinct texts from {listed(texts)}")
    material, _ = collect(
        model,
        corpus,
        layers=None if validation is not None or contexts is not None else [choice.layers],
        teacher=recipe,
        dimensions=dimensions,
        options=run.options,
        unseen=unseen,
        state=output / CHECKPOINT,
        renew=run.force,
        progress=not is_quiet(),
        note=show_note,
    )
    if contexts is not None:
        material.contexts.save(contexts)
    if validation is not None:
        trials = find_choice(material, validation, report=lambda score, tried: show_note(f"{score:6.2f}  {tried}"))
        best_score, choice = trials[0]
        show_note(f"Best of {len(trials)} on {validation.name}: {best_score:.2f}  {choice}")
    distilled = make_encoder(material, choice, dimensions=dimensions, dtype=dtype, progress=not is_quiet())
    distilled.encoder.save(str(output))
    (output / CHECKPOINT).unlink(missing_ok=True)
    verification = verify(str(output))
    for line in distilled.summary():
        show_note(line)
    if not is_quiet():
        show_lines([f"{output}: {verification.recipe}", str(distilled.teacher_score), *verification.summary()])


# -- improve ----------------------------------------------------------------------------------------------------------


def improve(
    *,
    model: opt.Model,
    texts: opt.Texts,
    output: opt.Output,
    data: opt.Data = None,
    test: opt.Labels = None,
    data_folder: opt.Folder = None,
    columns: opt.Columns = None,
    column: opt.Column = "text",
    budget: str = "30m",
    goal: Literal["quality", "speed", "size"] = "quality",
    use: opt.Use = None,
    run: opt.Run = opt.Run(),
) -> None:
    """Make the best encoder within a time budget.

    The steps are a search of recipes, training, another search, a static table and a graph. Every step is measured on
    --data, or without labels on the texts, before the next step starts; a step without a gain is dropped. The result
    begins with what was optimized, what it gained and what that is worth. Ctrl-C stops the run and the same command
    resumes it; --force starts over.

    ```console
    $ essent improve -m bert-base-uncased --texts corpus.jsonl --budget 60m -o better
    $ essent improve -m ./my-model --texts corpus.jsonl --data dev.csv --test test.csv --goal speed -o better
    ```

    Args:
        model: A model on the hub, or a folder.
        texts: Texts like those that you will encode: at least 50, better thousands.
        output: The folder to write: encoder, static, graph, report.html.
        data: Labelled data of any kind to choose on, as in search. Default: choose without labels.
        test: Tasks on which the results are measured; the choice never reads them.
        data_folder: Folder of the named tasks: DIR/sts/NAME.jsonl. Default: the hub.
        column: Column with the texts, in .jsonl, .csv, .tsv and .parquet files.
        budget: Maximum total time, such as 90s, 30m or 1.5h.
        goal: Which result to recommend: quality (the encoder), speed or size (the static table or the graph, if it
            retains most of the quality).
        use: What the vectors are for. Without labels, it decides the criterion, and only for similarity is the model
            trained. Default: similarity of sentences, or what the labels measure.
    """
    named_columns = opt.parse_columns(columns)
    prepare_torch("essent improve")
    from essent.improvement.run import improve as run_improvement

    improved = run_improvement(
        model,
        read_files(texts, column),
        expand_groups(data),
        output=output,
        test=expand_groups(test),
        folder=data_folder,
        columns=named_columns,
        budget=budget,
        goal=goal,
        use=use,
        options=run.options,
        progress=not is_quiet(),
        force=run.force,
        note=show_note,
    )
    show_lines(improved.summary())
    for note in improved.notes:
        show_note(note)
