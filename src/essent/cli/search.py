"""`essent search`: the best recipe for a model and data, one pass a template."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from essent.cli import options as opt
from essent.cli import several
from essent.cli.ask import check_ask, judged_pairs
from essent.cli.console import results, show_note
from essent.cli.files import check_output, write_json_file
from essent.cli.save import check_folder
from essent.cli.settings import with_help, with_options
from essent.cli.texts import read_files
from essent.selection import Settings
from essent.types import InputError, optional_import

if TYPE_CHECKING:
    from essent.selection import Leaderboard

FOUND, JUDGED, OUTPUT = "What is searched", "How it is judged", "Output"
PANELS = {
    "": OUTPUT,
    **dict.fromkeys(("criterion", "baseline", "test"), JUDGED),
    **dict.fromkeys(("memory", "seed"), opt.RUN),
}


@dataclass(frozen=True)
class SearchOptions(opt.Run):
    """What both searches take.

    Attributes:
        criterion: what ranks the recipes; of several the first, all are shown. Default: the main score of the data
            (spearman, accuracy, ndcg@10 …), the best label-free criterion without labels.
        baseline: compare the winner with these. Default: mean and first-last.
        test: report the winner on these, not chosen on them.
        top: rows to show.
        save: save the best recipe, fitted on the data, as a folder.
        save_anyway: save the recipe ranked first, also where it is not shown to be better than the baselines.
        work: folder in which results are kept; the same command goes on from them.
        memory: memory for hidden states and vectors, beside the model itself.
        seed: seed of resampling and label-free criteria.
    """

    criterion: Annotated[
        list[str] | None, typer.Option("--criterion", "-c", metavar="NAMES", callback=several.criteria)
    ] = None
    baseline: Annotated[
        list[str] | None,
        typer.Option(metavar="RECIPES", callback=several.recipes, autocompletion=opt.recipe_names),
    ] = None
    test: opt.Tasks = None
    data_folder: opt.DataFolder = None
    top: opt.Count = Settings.top
    save: opt.Folder = None
    save_anyway: bool = False
    json_file: Annotated[Path | None, opt.json_file("Write every trial.", OUTPUT)] = None
    work: opt.Folder = None
    memory: Annotated[float, typer.Option(metavar="GIB")] = Settings.memory
    seed: int = Settings.seed
    batch_size: opt.BatchSize = Settings.batch_size
    precision: opt.Precision = Settings.precision

    def check_outputs(self) -> None:
        """Refuse places that cannot be written before anything is computed."""
        if self.save_anyway and self.save is None:
            raise InputError("--save-anyway belongs to --save DIR.")
        if self.save is not None:
            check_folder(self.save, self.force)
        check_output(self.json_file, self.force)

    def how(self) -> Settings:
        """How the search runs."""
        taken = {name: getattr(self, name) for name in ("top", "seed", "memory", "batch_size", "precision", "work")}
        if self.baseline:
            taken["baselines"] = tuple(self.baseline)
        return Settings(**taken, progress=self.progress, report=None if self.quiet else show_note)

    def question(self) -> dict[str, Any]:
        """What is asked, as keyword arguments of the searches."""
        return {
            "criterion": self.criterion or [],
            "folder": self.data_folder,
            "options": self.options,
            "test": self.test or [],
        }


@with_help({FOUND: "data weight texts space ask ask_file", OUTPUT: "picture"})
@with_options(SearchOptions, PANELS)
def search(
    model: opt.Model,
    data: opt.Data = None,
    weight: Annotated[list[str] | None, typer.Option(metavar="NUMBER", callback=several.names)] = None,
    texts: opt.Texts = None,
    space: Annotated[str, typer.Option("--space", "-s", metavar="NAME|FILE", autocompletion=opt.space_names)] = "full",
    picture: Annotated[Path | None, typer.Option(metavar="FILE.png")] = None,
    column: opt.Column = "text",
    ask: opt.AnyCount = None,
    ask_file: opt.File = None,
    *,
    settings: SearchOptions,
) -> None:
    """Find the best recipe for a model: heads, layers, weights, shaping and templates, one forward pass a template.

    The recipes are ranked on --data by the score of its kind, or without labels on --texts for the similarity of
    sentences. A baseline is kept unless the first recipe is shown to be better: on --test, or else by cross-validation.
    Test parts of --data are not read.

    \b
    [dim]$[/] essent search -m bert-base-uncased --data stsb.dev --test stsb,sickr --save best --picture search.png
    [dim]$[/] essent search -m ./my-model --data my-pairs.csv --space heads --top 5
    [dim]$[/] essent search -m ./my-model --data my-classes.csv,my-queries/ --weight 2 --weight 1
    [dim]$[/] essent search -m ./my-model --texts corpus.txt --space weights
    [dim]$[/] essent search -m ./my-model --texts corpus.txt --ask 50 --ask-file judge.csv

    Args:
        data: judgements to choose on: tasks such as stsb.dev or trec, files, folders. The columns tell the kind: scored
            pairs, duplicates, triplets, classes, clusters, retrieval; or KIND:FILE. Of several, the mean of the ranks
            decides.
        weight: of each --data, when there are several.
        texts: choose without labels on these texts; running text must be in its order.
        space: the space: heads, layers, weights, shaping, full, or a .yaml file of grids.
        picture: draw a picture: heads × layers, the layer curve and the first rows.
        ask: of --texts, N pairs to judge by hand that tell the recipes apart; then search with them.
        ask_file: a .csv or .jsonl file for --ask: written to be filled in, and used once it has scores. Default: the
            terminal asks, and ask.csv keeps the answers.
    """
    check_ask(ask, ask_file, texts)
    settings.check_outputs()
    if picture is not None:
        optional_import("matplotlib", "demo")
        check_output(picture, settings.force, (".png", ".svg", ".pdf"))
    from essent.selection import ask as choose_pairs
    from essent.selection import draw_leaderboard, find_space
    from essent.selection import search as run_search

    find_space(space)  # an unknown one is refused before data are read

    asked: Any = _read_question(data, texts, column, settings.data_folder)
    settings.calm()
    how = settings.how()
    if ask is not None:
        parts = [None if how.work is None else Path(how.work) / part for part in ("ask", "search")]
        given: dict[str, Any] = {"count": ask, "settings": replace(how, work=parts[0]), "options": settings.options}
        asked = judged_pairs(ask_file, asked, partial(choose_pairs, model, asked, space, **given), settings.note)
        if asked is None:
            return
        how = replace(how, work=parts[1])
    board = run_search(
        model, asked, space, weights=several.numbers("--weight", weight, float), settings=how, **settings.question()
    )
    show_board(board, settings)
    write_json_file(settings.json_file, board.to_json)
    if picture is not None:
        draw_leaderboard(board, picture)
    save_choice(board, settings)


def save_choice(board: Leaderboard, settings: SearchOptions) -> None:
    """Write the best recipe, or the one ranked first, as an encoder, where a folder is given."""
    save, anyway = settings.save, settings.save_anyway
    if save is None:
        return
    board.encoder(anyway=anyway).save(str(save))
    if board.kept is None:
        show_note(f"Saved {board.best} to {save}.")
    elif anyway:
        show_note(f"Saved {board.leader} to {save}, which is not shown to be better than {board.kept}.")
    else:
        show_note(f"Saved {board.kept} to {save}; --save-anyway saves {board.leader}.")


def _read_question(data: list[str] | None, texts: list[Path] | None, column: str, folder: Path | None) -> Any:
    from essent.tasks import load_judged

    if (data is None) == (texts is None):
        raise InputError("Give either --data (judgements of any kind) or --texts (texts without labels).")
    if data is None:
        return read_files(texts or [], column)
    tasks = [load_judged(name, folder) for name in data]
    return tasks[0] if len(tasks) == 1 else tasks


def show_board(board: Leaderboard, settings: SearchOptions) -> None:
    """Print the leaderboard, what the winner was compared with, and the verdict."""
    console = results(settings.json_file)
    console.print(board.table(settings.top))
    for line in board.in_words():
        console.print(line, markup=False)
    for note in board.notes:
        settings.note(note)
    about = board.provenance
    settings.note(
        f"{about['recipes']} recipes, {about['passes']} forward pass{'es' * (about['passes'] != 1)} over "
        f"{about['texts']} texts, "
        f"{about['seconds']:.0f} s."
    )
