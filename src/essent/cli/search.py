"""`essent search`: the best recipe for a model and data, one pass a template."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from essent.cli import options as opt
from essent.cli.console import calm_libraries, results, show_note, wants_progress
from essent.cli.files import check_output, write_json_file
from essent.cli.save import check_folder
from essent.cli.texts import read_files, read_pairs
from essent.types import InputError

if TYPE_CHECKING:
    from rich.console import Console

    from essent.selection import Leaderboard


def search(
    model: opt.Model,
    data: Annotated[list[str] | None, opt.CHOSEN_ON] = None,
    texts: Annotated[
        list[Path] | None,
        opt.texts("Choose without labels, on these texts; running text in its order.", opt.FOUND),
    ] = None,
    space: Annotated[
        str,
        typer.Option(
            "--space",
            "-s",
            metavar="NAME|FILE",
            help=f"{', '.join(opt.SPACES)}, or a .yaml file of grids.",
            autocompletion=opt.space_names,
            rich_help_panel=opt.FOUND,
        ),
    ] = "full",
    criterion: opt.Criteria = None,
    baseline: opt.Baselines = None,
    test: opt.Checks = None,
    data_folder: opt.DataFolder = None,
    top: opt.Top = 20,
    save: opt.SaveWinner = None,
    save_anyway: opt.SaveAnyway = False,
    json_file: opt.Trials = None,
    picture: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.png", help="Draw heads × layers, the layer curve, the first rows.", rich_help_panel=opt.OUTPUT
        ),
    ] = None,
    work: opt.Work = None,
    memory: opt.Memory = 0.5,
    seed: opt.Seed = 0,
    column: opt.Column = "text",
    batch_size: opt.BatchSize = 32,
    device: opt.Device = None,
    revision: opt.Revision = None,
    trust_remote_code: opt.Trust = False,
    force: opt.Force = False,
    quiet: opt.Quiet = False,
    verbose: opt.Verbose = False,
) -> None:
    """Find the best recipe for a model: heads, layers, weights, shaping and templates, one forward pass a template.

    The recipes are ranked on --data (or without labels on --texts), for the similarity of sentences. A baseline is kept
    unless the first recipe is shown to be better: on --test, or else by cross-validation. A recipe from the table gives
    the same score in essent evaluate.

    \b
    [dim]$[/] essent search -m bert-base-uncased --data stsb.dev --test stsb,sickr --save best --picture search.png
    [dim]$[/] essent search -m ./my-model --data my-pairs.csv --space heads --top 5
    [dim]$[/] essent search -m ./my-model --texts corpus.txt --space weights
    """
    check_outputs(save, json_file, picture, force, save_anyway)
    from essent.selection import Settings, draw_leaderboard
    from essent.selection import search as run_search

    pairs: Any = _read_question(data, texts, column, data_folder, quiet)
    settings = Settings(
        baselines=tuple(baseline) if baseline else ("mean", "first-last"),
        top=top,
        seed=seed,
        memory=memory,
        batch_size=batch_size,
        work=work,
        progress=wants_progress(quiet),
    )
    calm_libraries(verbose)
    board = run_search(
        model,
        pairs,
        space,
        criterion=criterion or [],
        folder=data_folder,
        settings=settings,
        options=opt.model_options(device, revision, trust_remote_code),
        test=test or [],
    )
    show_board(board, top, quiet, results(json_file))
    if json_file is not None:
        write_json_file(json_file, board.to_json)
    if picture is not None:
        draw_leaderboard(board, picture)
    if save is not None:
        save_choice(board, save, save_anyway)


def check_outputs(
    save: Path | None, json_file: Path | None, picture: Path | None, force: bool, save_anyway: bool
) -> None:
    """Refuse places that cannot be written before anything is computed."""
    if save_anyway and save is None:
        raise InputError("--save-anyway belongs to --save DIR.")
    if save is not None:
        check_folder(save, "stock", force)
    if json_file is not None:
        check_output(json_file, force)
    if picture is not None:
        from essent.types import optional_import

        optional_import("matplotlib", "demo")
        check_output(picture, force, (".png", ".svg", ".pdf"))


def save_choice(board: Leaderboard, save: Path, anyway: bool) -> None:
    """Write the best recipe, or the one ranked first, as an encoder."""
    board.encoder(anyway=anyway).save(str(save))
    if board.kept is None:
        show_note(f"Saved {board.best} to {save}.")
    elif anyway:
        show_note(f"Saved {board.leader} to {save}, which is not shown to be better than {board.kept}.")
    else:
        show_note(f"Saved {board.kept} to {save}; --save-anyway saves {board.leader}.")


def _read_question(
    data: list[str] | None, texts: list[Path] | None, column: str, folder: Path | None, quiet: bool
) -> Any:
    if (data is None) == (texts is None):
        raise InputError("Give either --data (scored pairs) or --texts (texts without labels).")
    if data is None:
        return read_files(texts or [], column)
    return data[0] if len(data) == 1 else read_pairs(data, folder, quiet)


def show_board(board: Leaderboard, top: int, quiet: bool, console: Console) -> None:
    """Print the leaderboard, what the winner was compared with, and the verdict."""
    console.print(board.table(top))
    for check in board.checks:
        console.print(check.in_words(), markup=False)
        for recipe, (score, low, high) in check.scores.items():
            console.print(f"  {score:6.2f}  [{low:.2f}, {high:.2f}]  {recipe}", markup=False)
        for comparison in check.comparisons:
            console.print(f"  {comparison.in_words()}", markup=False)
    for comparison in board.comparisons:
        console.print(comparison.in_words(), markup=False)
    if board.verdict:
        console.print(board.verdict, markup=False)
    if quiet:
        return
    for note in board.notes:
        show_note(note)
    about = board.provenance
    show_note(
        f"{about['recipes']} recipes, {about['passes']} forward pass{'es' * (about['passes'] != 1)} over "
        f"{about['texts']} texts, "
        f"{about['seconds']:.0f} s."
    )
