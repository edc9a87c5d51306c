"""`essent lab pretrain`: a masked language model from texts."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

from cyclopts import Group, Parameter

from essent.cli import options as opt
from essent.cli.console import prepare_torch, set_quiet, show_note, wants_progress
from essent.cli.files import read_files
from essent.lab.pretrain.settings import Pretraining

LEARNING = Group("Learning", sort_key=1)


def pretrain(
    *,
    texts: opt.Texts,
    output: opt.Output,
    column: opt.Column = "text",
    held_out: Annotated[list[Path] | None, Parameter(group=opt.INPUTS)] = None,
    model: Annotated[str | None, Parameter(alias="-m")] = None,
    config: str | None = None,
    tokenizer: str | None = None,
    vocabulary: int = 30_522,
    settings: Annotated[Pretraining | None, Parameter(name="*", group=LEARNING)] = None,
    resume: bool = False,
    run: opt.Run = opt.Run(),
) -> None:
    """Pretrain a masked language model.

    Training starts from scratch or from an existing model. Some tokens are masked, and the model learns to predict them
    from the others (BERT). transformers, sentence-transformers and essent load the output folder. Ctrl-C saves a
    checkpoint; --resume continues from it, with the same weights as an uninterrupted run.

    ```console
    $ essent lab pretrain -t texts.txt --config mini --epochs 3 -o my-model
    $ essent lab pretrain -t domain.txt -m bert-base-uncased --epochs 1 --learning-rate 5e-5 -o adapted
    ```

    Args:
        texts: Texts to learn from: one per line, or .jsonl, .csv, .tsv or .parquet with --column.
        output: Folder of the model and its checkpoints.
        column: Column with the texts, in .jsonl, .csv, .tsv and .parquet files.
        held_out: Texts for validation only. Default: one in a hundred of --texts.
        model: An existing model to train further.
        config: Architecture of a new model: tiny, mini, small, medium or base (BERT), or a config.json of any encoder.
        tokenizer: Tokenizer of a new model, a name on the hub or a folder. Default: learn word pieces from the texts.
        vocabulary: Maximum number of word pieces to learn.
        resume: Continue from the last checkpoint in the output folder.
    """
    prepare_torch("essent lab pretrain")
    from essent.lab.pretrain.run import pretrain as run_pretraining
    from essent.lab.pretrain.settings import Start

    corpus = read_files(texts, column)
    held_out_texts = None if held_out is None else read_files(held_out, column)
    if os.environ.get("RANK", "0") != "0":  # only the first process of torchrun prints
        set_quiet(True)
    outcome = run_pretraining(
        corpus,
        output,
        Start(model, config, tokenizer, vocabulary, run.hub_options),
        settings or Pretraining(),
        held_out=held_out_texts,
        resume=resume,
        force=run.force,
        device=run.device,
        progress=wants_progress(),
        note=show_note,
    )
    show_note(f"{output}: {outcome.steps} steps, held-out loss {outcome.loss:.3f}, accuracy {outcome.accuracy:.3f}")
