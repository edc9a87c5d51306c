"""Commands for masked language models: `essent lab templates`, the best template; `essent lab pretrain`, from texts."""

from __future__ import annotations

import os
from functools import partial
from typing import Annotated, Any

from cyclopts import Group, Parameter
from cyclopts.validators import Number

from essent._core.atomic import write_json
from essent.cli import options as opt
from essent.cli.console import prepare_torch, set_quiet, show_lines, show_note, wants_progress
from essent.cli.files import expand_groups, read_files, read_pairs, write_json_file
from essent.cli.search import SearchOptions, save_best, show_board
from essent.lab.pretrain.settings import Pretraining

LEARNING = Group("Learning", sort_key=1)


def templates(
    *,
    model: opt.Model,
    data: Annotated[list[str], Parameter(alias="-d")],
    grammar: str | None = None,
    t5: str | None = None,
    candidates: Annotated[int | None, Parameter(validator=Number(gte=2))] = None,
    layers: str = "L",
    shaping: str = "",
    options: SearchOptions = SearchOptions(),
) -> None:
    """Find the best template for a model.

    Templates are ranked by the score of their [MASK] on scored pairs, with one forward pass per template (PromptBERT
    4.2). They are all templates of a grammar; or, with --t5, a T5 writes the words between definitions and their terms,
    by a beam search over all pairs at once.

    ```console
    $ essent lab templates -m bert-base-uncased --data stsb.dev --test stsb --json templates.json
    $ essent lab templates -m ./my-mlm --data pairs.jsonl --t5 t5-large --work work
    ```

    Args:
        model: A model on the hub, or a folder.
        data: Scored pairs to choose on: tasks such as stsb.dev, or files; several are joined.
        grammar: promptbert (default; the candidates of its Table 4), or a .yaml file with a template and the choices
            for its slots.
        t5: Generate the templates with this T5 on the hub, e.g. t5-large, or folder.
        candidates: For --t5: number of templates. Default: 500.
        layers: Layers of the [MASK] vector, as a mix.
        shaping: Shaping chain for the vectors, such as zscore.
    """
    if t5 is None:
        opt.refuse({"--candidates": candidates}, "needs a T5. Pass --t5 t5-large, or a folder.")
    else:
        opt.refuse({"--grammar": grammar}, "and --t5 exclude each other.")
    options.check_outputs()
    prepare_torch("essent lab templates")
    from essent.lab.templates import search as tools

    names = expand_groups(data)
    pairs: Any = names[0] if len(names) == 1 else read_pairs(names, options.data_folder)
    generated: list[tools.Candidate] = []
    if t5 is None:
        choices = tools.find_grammar(grammar or "promptbert").templates()
    else:
        generated = tools.generate_templates(
            t5, candidates=candidates or tools.CANDIDATES, progress=wants_progress(), device=options.device
        )
        choices = [candidate.template for candidate in generated]
        show_note(f"{len(choices)} templates by {t5}.")
    arguments = {"layers": layers, "shaping": shaping, "work": options.work, **options.arguments, **options.options}
    board = tools.search_templates(model, pairs, choices, **arguments)
    show_board(board, options)
    best = next(trial.recipe.template for trial in board.trials if trial.recipe.template)
    show_lines([f"Best template: {best}"], options.json_file)
    everything = {**board.to_dict(), "template": best, "generated": [row._asdict() for row in generated]}
    write_json_file(options.json_file, partial(write_json, value=everything, indent=1))
    save_best(board, options.output)


def pretrain(
    *,
    texts: opt.Texts,
    output: opt.Output,
    column: opt.Column = "text",
    model: Annotated[str | None, Parameter(alias="-m")] = None,
    settings: Annotated[Pretraining | None, Parameter(name="*", group=LEARNING)] = None,
    resume: bool = False,
    run: opt.Run = opt.Run(),
) -> None:
    """Pretrain a masked language model.

    Training starts from scratch or from an existing model. Some tokens are masked, and the model learns to predict them
    from the others (BERT). transformers, sentence-transformers and essent load the output folder. Ctrl-C saves a
    checkpoint; --resume continues from it, with the same weights as an uninterrupted run.

    ```console
    $ essent lab pretrain -t texts.txt --config mini --tokenizer bert-base-uncased --epochs 3 -o my-model
    $ essent lab pretrain -t domain.txt -m bert-base-uncased --epochs 1 --learning-rate 5e-5 -o adapted
    ```

    Args:
        texts: Texts to learn from: one per line, or .jsonl, .csv, .tsv or .parquet with --column.
        output: Folder of the model and its checkpoints.
        column: Column with the texts, in .jsonl, .csv, .tsv and .parquet files.
        model: An existing model to train further.
        resume: Continue from the last checkpoint in the output folder.
    """
    prepare_torch("essent lab pretrain")
    from essent.lab.pretrain.run import pretrain as run_pretraining

    corpus = read_files(texts, column)
    if os.environ.get("RANK", "0") != "0":  # only the first process of torchrun prints
        set_quiet(True)
    outcome = run_pretraining(
        corpus,
        output,
        settings or Pretraining(),
        model=model,
        resume=resume,
        force=run.force,
        device=run.device,
        progress=wants_progress(),
        note=show_note,
        **run.hub_options,
    )
    show_note(f"{output}: {outcome['steps']} steps, held-out loss {outcome['held_out_loss']:.3f}")
