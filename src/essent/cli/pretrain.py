"""`essent pretrain`: texts in, a masked language model out."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from essent.cli import options as opt
from essent.cli.settings import with_help, with_options
from essent.cli.texts import read_files
from essent.lab.pretrain import Pretraining

START, LENGTH, LEARNING = "What it starts from", "How long", "Learning"
PANELS = {
    "": LEARNING,
    "untied": START,
    **dict.fromkeys(("max_steps", "epochs"), LENGTH),
    **dict.fromkeys(("validate_every", "precision"), opt.RUN),
}


@with_help({opt.INPUTS: "held_out", START: "model config tokenizer vocabulary"})
@with_options(Pretraining, PANELS, metavars={"precision": "float32|bfloat16"})
@with_options(opt.Run, into="run")
def pretrain(
    texts: Annotated[
        list[Path], opt.texts("Texts to learn from: one a line, or .jsonl, .csv, .tsv or .parquet with --column.")
    ],
    output: Annotated[Path, opt.output("DIR", "Folder of the model; checkpoints stand below it.")],
    column: opt.Column = "text",
    held_out: opt.Files = None,
    model: opt.AnyModel = None,
    config: Annotated[str | None, typer.Option(metavar="SIZE|FILE")] = None,
    tokenizer: Annotated[str | None, typer.Option(metavar="NAME|DIR")] = None,
    vocabulary: Annotated[int, typer.Option(min=100)] = 30_522,
    *,
    settings: Pretraining,
    resume: opt.Resume = False,
    run: opt.Run,
) -> None:
    """Train a masked language model, from scratch or from a model that exists.

    Some tokens are hidden, and the model learns to predict them from the others (BERT). The output is a folder that
    transformers, sentence-transformers and essent load. Ctrl-C saves a checkpoint; --resume goes on from it to the same
    weights.

    \b
    [dim]$[/] essent pretrain -t texts.txt --config mini --epochs 3 -o my-model
    [dim]$[/] essent pretrain -t domain.txt -m bert-base-uncased --epochs 1 --learning-rate 5e-5 -o adapted

    Args:
        held_out: texts to measure on, not to learn from. Default: one in a hundred.
        model: an existing model to go on training.
        config: a new model: tiny, mini, small, medium or base (BERT's), or a config.json of any encoder.
        tokenizer: the tokenizer of a new model. Default: word pieces are learned from the texts.
        vocabulary: the most word pieces that are learned.
    """
    found = read_files(texts, column)
    measured = None if held_out is None else read_files(held_out, column)
    from essent.lab.pretrain import Start
    from essent.lab.pretrain import pretrain as train

    run.calm()
    if os.environ.get("RANK", "0") != "0":  # of the processes that torchrun starts the first one speaks
        run = replace(run, quiet=True)
    options = opt.model_options(None, run.revision, run.trust_remote_code)
    result = train(
        found,
        output,
        Start(model, config, tokenizer, vocabulary, options),
        settings,
        held_out=measured,
        resume=resume,
        force=run.force,
        device=run.device,
        progress=run.progress,
        note=run.note,
    )
    run.note(f"{output}: {result.steps} steps, held-out loss {result.loss:.3f}, accuracy {result.accuracy:.3f}")
