"""`essent train`: contrastive training of a model on texts or pairs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from essent.cli import options as opt
from essent.cli.console import results
from essent.cli.save import check_folder
from essent.cli.settings import with_help, with_options
from essent.cli.texts import read_files, read_judged
from essent.train import Settings, check_unfinished
from essent.types import InputError, optional_import

WHAT, HOW, CHOSEN = "What it is trained on", "How it is trained, by default as the preset says", "What is kept"
SAVED = ("validate_every", "keep_projection_head")


@with_help({WHAT: "pairs", HOW: "preset continuous template recipe seeds", CHOSEN: "validate test"})
@with_options(
    Settings,
    {"": HOW, **dict.fromkeys(SAVED, CHOSEN)},
    by_hand=("templates", "recipe"),
    preset=True,
    metavars={"precision": "float32|bfloat16|float16"},
)
@with_options(opt.Run, into="run")
def train(
    model: opt.Model,
    output: Annotated[Path, opt.output("DIR", "The folder of the encoder and its checkpoints.")],
    texts: Annotated[list[Path] | None, opt.texts("Unlabelled texts, one a line or a column.", WHAT)] = None,
    pairs: opt.File = None,
    column: opt.Column = "text",
    preset: str | None = None,
    continuous: bool = False,
    template: Annotated[list[str] | None, typer.Option(metavar="NAME|TEXT")] = None,
    recipe: opt.Recipe = None,
    *,
    settings: dict[str, Any],
    seeds: Annotated[int, typer.Option(min=1, metavar="N")] = 1,
    validate: opt.Tasks = None,
    test: opt.Tasks = None,
    data_folder: opt.DataFolder = None,
    resume: opt.Resume = False,
    run: opt.Run,
) -> None:
    """Train a model contrastively, with PromptBERT's objectives or SimCSE's, and save it as an encoder.

    Without labels two views of a text are drawn together and apart from the other texts of the batch; with --pairs a
    text and its positive. The views are dropout's, or different templates'. Ctrl-C saves a checkpoint. --resume goes
    on from the last one to the same weights as without the break, and with more steps or epochs extends a run, finished
    or not; --force begins it anew.

    \b
    [dim]$[/] essent train -m bert-base-uncased --texts wiki1m.txt --validate stsb.dev -o my-promptbert
    [dim]$[/] essent train -m bert-base-uncased --pairs nli.csv --preset simcse-sup --validate stsb.dev -o my-simcse
    [dim]$[/] essent train -m bert-base-uncased --texts wiki1m.txt --continuous --validate stsb.dev -o my-template

    Args:
        pairs: pairs instead: columns anchor, positive and, if you have them, negative (or premise, entailment,
            contradiction; sent0, sent1, hard_neg).
        preset: a paper's settings: promptbert-unsup, promptbert-sup, simcse-unsup, simcse-sup, optiprompt. Default:
            PromptBERT's for what it is trained on.
        continuous: train the template's words as free vectors, the model frozen.
        template: template with {text} and [MASK]; repeat the option for the second view.
        recipe: recipe of the trained encoder: prompt or prompt-denoised; with simcse cls, mean and others.
        seeds: number of runs with different seeds, from --seed upwards; shows mean ± deviation.
        validate: judgements of any kind, as in search; the checkpoint that is best on them is kept.
        test: tasks on which the encoder is scored at the end.
    """
    changes = dict(settings)
    if template:
        changes["templates"] = tuple(template)
    if recipe is not None:
        changes["recipe"] = recipe
    if seeds > 1 and validate is None:
        raise InputError("--seeds compares what the runs reach on the validation pairs: give --validate.")
    if not (run.force or resume):
        check_unfinished(output)
    check_folder(output, run.force or resume)
    data = _read(texts, pairs, column)
    from essent.tasks import load_judged

    task = None if validate is None else read_judged(validate, data_folder, run.quiet)
    tests = [load_judged(name, data_folder) for name in test or []]
    from essent.train import train as train_once
    from essent.train import train_continuous, train_seeds

    run.calm()
    optional_import("datasets", "train").disable_progress_bars()
    changes |= {
        "resume": resume,
        "force": run.force,
        "device": run.device,
        "progress": run.progress,
        "options": opt.model_options(None, run.revision, run.trust_remote_code),
        "note": run.note,
    }
    chosen = preset or ("optiprompt" if continuous else "promptbert-sup" if pairs else "promptbert-unsup")
    by = train_continuous if continuous else train_once
    console = results()
    if seeds > 1 and task is not None:
        spreads = train_seeds(
            model, data, chosen, seeds=seeds, output=output, validate=task, test=tests, trained_by=by, **changes
        )
        for name, spread in spreads.items():
            low, high = spread.smallest, spread.largest
            console.print(f"{name}: {spread} (lowest {low:.2f}, highest {high:.2f}, {seeds} seeds)", markup=False)
        return
    encoder = by(model, data, chosen, output=output, validate=task, **changes)
    about = json.loads((output / "training.json").read_text(encoding="utf-8"))
    for note in about["notes"]:
        run.note(note)
    run.note(f"{output}: {about['steps']} steps on {about['examples']} examples, {encoder.recipe}")
    if task is not None:
        best = f"{about['best_score']:.2f} after {about['best_step']} steps"
        console.print(f"{task.name}: {about['before']:.2f} before, {best}", markup=False)
    for part in tests:
        console.print(f"{part.name}: {part.run(encoder).main_score:.2f}", markup=False)


def _read(texts: list[Path] | None, pairs: Path | None, column: str) -> Any:
    if texts is not None and pairs is None:
        return read_files(texts, column)
    if pairs is None or texts is not None:
        raise InputError("Give either --texts (unlabelled) or --pairs (anchor, positive and perhaps negative).")
    from essent.train import read_examples

    return read_examples(pairs)
