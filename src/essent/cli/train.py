"""`essent train`: contrastive training of a model on texts or pairs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Group, Parameter

from essent._core.lazy import optional_import
from essent.cli import options as opt
from essent.cli.console import prepare_torch, show_lines, show_note, wants_progress
from essent.cli.files import check_folder
from essent.cli.texts import read_files, read_labelled
from essent.errors import InputError

LEARNING = Group("Training (defaults: the preset's)", sort_key=0)


@Parameter(name="*", group=LEARNING)
@dataclass(frozen=True)
class TrainingOptions:
    """Settings of `essent.training.Settings`; None is the preset's value."""

    recipe: opt.Recipe = None
    """Recipe of the trained encoder: prompt or prompt-denoised; with simcse, cls, mean or another."""
    templates: Annotated[list[str] | None, Parameter(name="--template")] = None
    """Template with {text} and [MASK], or its name; two for objectives with different templates."""
    batch_size: int | None = None
    """Texts (or pairs) per step; also the number of negatives."""
    learning_rate: float | None = None
    """Learning rate of AdamW without weight decay, decreasing linearly to 0."""
    epochs: float | None = None
    """Number of passes over the texts or pairs."""
    max_steps: int | None = None
    """Number of steps, instead of epochs."""
    max_seq_length: int | None = None
    """Maximum number of tokens per text, without special tokens and template."""
    precision: Literal["float32", "bfloat16", "float16"] | None = None
    """Arithmetic; bfloat16 and float16 are mixed precision."""
    seed: int | None = None
    """Seed of the data order, dropout and the projection head."""


def train(
    *,
    model: opt.Model,
    output: opt.Output,
    texts: opt.AnyTexts = None,
    pairs: opt.Folder = None,
    column: opt.Column = "text",
    preset: Literal["promptbert-unsup", "promptbert-sup", "simcse-unsup", "simcse-sup", "optiprompt"] | None = None,
    validate: opt.Labels = None,
    resume: bool = False,
    training: TrainingOptions = TrainingOptions(),
    run: opt.Run = opt.Run(),
) -> None:
    """Train a model contrastively and save it as an encoder.

    The objectives of PromptBERT and SimCSE pull two views of a text together and push the other texts of the batch
    away. The views come from dropout or different templates; with --pairs, they are a text and its positive.
    optiprompt freezes the model and trains the words of a template as free vectors. Ctrl-C saves a checkpoint.
    --resume continues from the last checkpoint, with the same weights as an uninterrupted run; with more steps or
    epochs, it extends a run. --force starts over.

    ```console
    $ essent train -m bert-base-uncased --texts wiki1m.txt --validate stsb.dev -o my-promptbert
    $ essent train -m bert-base-uncased --pairs nli.csv --preset simcse-sup --validate stsb.dev -o my-simcse
    $ essent train -m bert-base-uncased --texts wiki1m.txt --preset optiprompt --validate stsb.dev -o my-template
    ```

    Args:
        model: A model on the hub, or a folder.
        output: Folder of the encoder and its checkpoints.
        texts: Unlabelled texts, one per line or column.
        pairs: File of pairs instead of texts: columns anchor, positive and optionally negative (or premise, entailment,
            contradiction; sent0, sent1, hard_neg).
        column: Column with the texts, in .jsonl, .csv, .tsv and .parquet files.
        preset: A paper's settings. Default: PromptBERT's, for texts or for pairs.
        validate: Labelled data of any kind, as in search; the best checkpoint on them becomes the encoder.
        resume: Continue from the last checkpoint in the output folder.
    """
    prepare_torch("essent train")
    from essent.training.checkpoints import check_unfinished
    from essent.training.run import train as run_training

    chosen = preset or ("promptbert-unsup" if pairs is None else "promptbert-sup")
    if not (run.force or resume):
        check_unfinished(output)
    check_folder(output, run.force or resume)
    examples = _read(texts, pairs, column)
    task = read_labelled(validate)
    optional_import("datasets", "train").disable_progress_bars()
    encoder = run_training(
        model,
        examples,
        chosen,
        output=output,
        validate=task,
        resume=resume,
        force=run.force,
        device=run.device,
        progress=wants_progress(),
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


def _read(texts: Sequence[Path] | None, pairs: Path | None, column: str) -> Any:
    if (texts is None) == (pairs is None):
        raise InputError("Pass either --texts (unlabelled) or --pairs (anchor, positive and optionally negative).")
    if pairs is None:
        return read_files(texts or [], column)
    from essent.training.examples import read_examples

    return read_examples(pairs)
