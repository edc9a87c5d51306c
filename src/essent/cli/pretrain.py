"""`essent pretrain`: texts in, a masked language model out."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from essent.cli import options as opt
from essent.cli import several
from essent.cli.console import calm_libraries, show_note, wants_progress
from essent.cli.texts import read_files

START, LENGTH, LEARNING = "What it starts from", "How long", "Learning"


def pretrain(
    texts: Annotated[list[Path], opt.texts("One text a line, or .jsonl, .csv, .tsv, .parquet with --column.")],
    output: Annotated[Path, opt.output("DIR", "Folder of the model; checkpoints stand below it.")],
    column: opt.Column = "text",
    held_out: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILES",
            help="Texts to measure on, not to learn from. Default: one in a hundred.",
            rich_help_panel=opt.INPUTS,
            callback=several.files,
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option("--model", "-m", metavar="NAME|DIR", help="A model to go on with.", rich_help_panel=START),
    ] = None,
    config: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE|FILE",
            help="A new model: tiny, mini, small, medium or base (BERT's), or a config.json of any encoder.",
            rich_help_panel=START,
        ),
    ] = None,
    tokenizer: Annotated[
        str | None,
        typer.Option(
            metavar="NAME|DIR|train",
            help="Of a new model. Default: train word pieces on the texts.",
            rich_help_panel=START,
        ),
    ] = None,
    vocabulary: Annotated[
        int, typer.Option(min=100, help="Most tokens of a trained tokenizer.", rich_help_panel=START)
    ] = 30_522,
    cased: Annotated[
        bool, typer.Option("--cased", help="A trained tokenizer tells capitals apart.", rich_help_panel=START)
    ] = False,
    untied: Annotated[
        bool,
        typer.Option("--untied", help="An output matrix of its own, not the embedding table.", rich_help_panel=START),
    ] = False,
    max_steps: Annotated[int | None, typer.Option(help="Steps of the run.", rich_help_panel=LENGTH)] = None,
    epochs: Annotated[float | None, typer.Option(help="Times through the texts.", rich_help_panel=LENGTH)] = None,
    minutes: Annotated[
        float | None,
        typer.Option(help="As many steps as fit in, by the speed of the first few.", rich_help_panel=LENGTH),
    ] = None,
    tokens_per_step: Annotated[int, typer.Option(help="Of all sequences together.", rich_help_panel=LEARNING)] = 4096,
    max_seq_length: Annotated[int, typer.Option(help="Tokens of a sequence.", rich_help_panel=LEARNING)] = 64,
    packing: Annotated[
        str,
        typer.Option(
            metavar="whole|stream",
            help="Whole texts together in a sequence, or all joined and cut anywhere.",
            rich_help_panel=LEARNING,
        ),
    ] = "whole",
    learning_rate: Annotated[float, typer.Option(help="The highest.", rich_help_panel=LEARNING)] = 3e-4,
    head_first: Annotated[
        float,
        typer.Option(
            metavar="STEPS",
            help="Steps in which a loaded encoder stays and the head alone learns; below 1 a share of them.",
            rich_help_panel=LEARNING,
        ),
    ] = 0.0,
    warmup: Annotated[
        float, typer.Option(help="Steps in which it rises; below 1 a share of them.", rich_help_panel=LEARNING)
    ] = 0.05,
    schedule: Annotated[
        str,
        typer.Option(metavar="NAME", help="linear, cosine, constant or warmup-stable-decay.", rich_help_panel=LEARNING),
    ] = "linear",
    weight_decay: Annotated[float, typer.Option(help="Of AdamW.", rich_help_panel=LEARNING)] = 0.01,
    mask_probability: Annotated[
        float, typer.Option(help="Share of the tokens to predict.", rich_help_panel=LEARNING)
    ] = 0.15,
    whole_words: Annotated[
        bool, typer.Option("--whole-words", help="Mask words, not tokens.", rich_help_panel=LEARNING)
    ] = False,
    frames: Annotated[
        float,
        typer.Option(
            metavar="SHARE",
            help="Of the texts that are put into frames such as '\" … \" is about … .', for prompts to work.",
            rich_help_panel=LEARNING,
        ),
    ] = 0.0,
    seed: Annotated[int, typer.Option(help="Same seed, same model.", rich_help_panel=LEARNING)] = 0,
    validate_every: Annotated[
        int | None, typer.Option(help="Steps between validations. Default: ten times.", rich_help_panel=opt.RUN)
    ] = None,
    save_every: Annotated[
        int | None, typer.Option(help="Steps between checkpoints. Default: as validated.", rich_help_panel=opt.RUN)
    ] = None,
    precision: Annotated[
        str | None,
        typer.Option(
            metavar="float32|bfloat16", help="Default: bfloat16 where the device has it.", rich_help_panel=opt.RUN
        ),
    ] = None,
    parts: Annotated[
        int, typer.Option(help="Of a step, one after the other, to save memory.", rich_help_panel=opt.RUN)
    ] = 1,
    device: opt.Device = None,
    revision: opt.Revision = None,
    trust_remote_code: opt.Trust = False,
    resume: opt.Resume = False,
    force: opt.Force = False,
    quiet: opt.Quiet = False,
    verbose: opt.Verbose = False,
) -> None:
    """Train a masked language model, from scratch or on.

    A tenth or so of the words is hidden and guessed from the others (BERT). The output is a folder that transformers,
    sentence-transformers and essent load. Ctrl-C saves a checkpoint, --resume goes on from it to the same weights.

    \b
    [dim]$[/] essent pretrain -t texts.txt --config mini --minutes 20 -o my-model
    [dim]$[/] essent pretrain -t domain.txt -m bert-base-uncased --epochs 1 --learning-rate 5e-5 -o adapted
    """
    found = read_files(texts, column)
    measured = None if held_out is None else read_files(held_out, column)
    from essent.pretrain import Pretraining

    settings = Pretraining(
        max_steps=max_steps,
        epochs=epochs,
        minutes=minutes,
        tokens_per_step=tokens_per_step,
        max_seq_length=max_seq_length,
        packing=packing,
        learning_rate=learning_rate,
        head_first=head_first,
        warmup=warmup,
        schedule=schedule,
        weight_decay=weight_decay,
        mask_probability=mask_probability,
        whole_words=whole_words,
        frames=frames,
        untied=untied,
        precision=precision,
        parts=parts,
        validate_every=validate_every,
        save_every=save_every,
        seed=seed,
    )
    from essent.pretrain import Show, Start
    from essent.pretrain import pretrain as run

    calm_libraries(verbose)
    quiet = quiet or os.environ.get("RANK", "0") != "0"  # of the processes that torchrun starts the first one speaks
    options = opt.model_options(None, revision, trust_remote_code)
    result = run(
        found,
        output,
        Start(model, config, tokenizer, vocabulary, cased, options),
        settings,
        held_out=measured,
        resume=resume,
        force=force,
        device=device,
        show=Show() if quiet else Show(wants_progress(quiet), show_note),
    )
    if not quiet:
        show_note(
            f"{output}: {result.steps} steps, {result.tokens:,} tokens, held-out loss {result.loss:.3f}, accuracy "
            f"{result.accuracy:.3f}, {result.tokens_per_second:,.0f} tokens/s"
        )
