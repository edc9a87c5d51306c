"""`essent search`: the best recipe for a model and data, one pass per template."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from essent._core.lazy import check_torch
from essent.cli import options as opt
from essent.cli.ask import annotated_pairs, check_ask
from essent.cli.console import results, show_note, silence_libraries
from essent.cli.files import check_folder, check_output, write_json_file
from essent.cli.report import check_report, write_page
from essent.cli.texts import expand_groups, read_files
from essent.errors import InputError

if TYPE_CHECKING:
    from essent.selection.leaderboard import Leaderboard


@Parameter(name="*")
@dataclass(frozen=True)
class SearchOptions(opt.Run):
    """Options of both searches, over recipes and over templates."""

    criterion: Annotated[list[str] | None, Parameter(alias="-c")] = None
    """What ranks the recipes; of several the first, all are shown. Default: the main score of the data (spearman,
    accuracy, ndcg@10 …), the recommended label-free criterion without labels."""
    test: list[str] | None = None
    """Report the best recipe on these tasks or files; nothing is chosen on them."""
    data_folder: opt.Folder = None
    """Folder of the named tasks: DIR/sts/NAME.jsonl. Default: the hub."""
    top: opt.Count = 20
    """Rows to show."""
    output: Annotated[Path | None, Parameter(alias="-o")] = None
    """Save the best recipe, fitted on the data, as a folder."""
    json_file: opt.Json = None
    """Write every trial; - is standard output."""
    work: opt.Folder = None
    """Folder for intermediate results; the same command resumes from them."""
    batch_size: opt.BatchSize = 32
    """Texts of about 64 tokens per batch."""
    precision: opt.Precision = "auto"
    """Arithmetic: auto is float32 on CPUs; bfloat16 where the machine has such arithmetic."""

    def check_outputs(self) -> None:
        """Refuse outputs that cannot be written, before anything is computed."""
        if self.output is not None:
            check_folder(self.output, self.force)
        check_output(self.json_file, self.force)

    @property
    def passes(self) -> dict[str, Any]:
        """Keyword arguments of whatever runs the passes."""
        shared = {name: getattr(self, name) for name in ("batch_size", "precision", "progress")}
        return {**shared, "report": None if self.quiet else show_note}

    @property
    def arguments(self) -> dict[str, Any]:
        """Keyword arguments of both searches."""
        searched = {"criterion": self.criterion or [], "folder": self.data_folder, "test": expand_groups(self.test)}
        return {**self.passes, **searched, "top": self.top}


def search(
    *,
    model: opt.Model,
    data: opt.Data = None,
    texts: opt.AnyTexts = None,
    column: opt.Column = "text",
    space: Annotated[str, Parameter(alias="-s")] = "full",
    ask: Annotated[int | None, Parameter(group=opt.INPUTS)] = None,
    ask_file: opt.Folder = None,
    report: opt.Report = None,
    options: SearchOptions = SearchOptions(),
) -> None:
    """Find the best recipe for a model.

    Heads, layers, weights, shaping and templates take one forward pass per template. The recipes are ranked on --data
    by the score of its kind, or without labels on --texts for the similarity of sentences. A baseline stays the answer
    unless the first recipe is significantly better: on --test, or else by cross-validation. Test parts of --data are
    not read.

    ```console
    $ essent search -m bert-base-uncased --data stsb.dev --test stsb sickr -o best --report search.png
    $ essent search -m ./my-model --data my-pairs.csv --space heads --top 5
    $ essent search -m ./my-model --data my-classes.csv my-queries/
    $ essent search -m ./my-model --texts corpus.txt --space weights
    $ essent search -m ./my-model --texts corpus.txt --ask 50 --ask-file pairs.csv
    ```

    Args:
        model: A model on the hub, or a folder.
        data: Labels to choose on: tasks such as stsb.dev or trec, files, folders. The columns tell the kind: scored
            pairs, duplicates, triplets, classes, clusters, retrieval; or KIND:FILE. Of several, the mean rank decides.
        texts: Choose without labels on these texts; running text must be in its order.
        column: Column with the texts, in .jsonl, .csv, .tsv and .parquet files.
        space: The space: heads, layers, weights, shaping, full, or a .yaml file of grids.
        ask: Choose this number of pairs of --texts to annotate by hand, the pairs that separate the recipes best.
        ask_file: A .csv or .jsonl file for --ask: written to be filled in, and used once it has scores. Default: the
            terminal asks, and ask.csv holds the answers.
        report: Write a picture (.png) or a page (.html, .md): heads × layers, the layer curve, the first rows.
    """
    check_ask(ask, ask_file, texts)
    options.check_outputs()
    check_report(report, options.force)
    check_torch("essent search")
    from essent.selection.run import annotate
    from essent.selection.run import search as run_search
    from essent.selection.space import find_space

    find_space(space)  # an unknown space is refused before data are read
    inputs = _read(data, texts, column, options.data_folder)
    silence_libraries()
    work = options.work
    if ask is not None:
        first, work = (None, None) if work is None else (work / "ask", work / "search")
        choose = partial(annotate, model, inputs, space, count=ask, work=first, **options.passes, **options.options)
        inputs = annotated_pairs(ask_file, inputs, choose, options.note)
        if inputs is None:
            return
    board = run_search(model, inputs, space, work=work, **options.arguments, **options.options)
    show_board(board, options)
    write_json_file(options.json_file, board.to_json)
    if report is not None:
        write_page([], [board], report)
    save_best(board, options.output)


def save_best(board: Leaderboard, folder: Path | None) -> None:
    """Write the best recipe as an encoder, where a folder is given."""
    if folder is not None:
        board.encoder().save(str(folder))
        show_note(f"Saved {board.best} to {folder}.")


def _read(data: Sequence[str] | None, texts: Sequence[Path] | None, column: str, folder: Path | None) -> Any:
    from essent.tasks.locate import load_labelled

    if (data is None) == (texts is None):
        raise InputError("Give either --data (labels of any kind) or --texts (texts without labels).")
    if data is None:
        return read_files(texts or [], column)
    tasks = [load_labelled(name, folder) for name in expand_groups(data)]
    return tasks[0] if len(tasks) == 1 else tasks


def show_board(board: Leaderboard, options: SearchOptions) -> None:
    """Print the leaderboard, the comparisons with the baselines and the verdict."""
    console = results(options.json_file)
    console.print(board.table(options.top))
    for line in board.summary():
        console.print(line, markup=False)
    for note in board.notes:
        options.note(note)
    provenance = board.provenance
    options.note(
        f"{provenance['recipes']} recipes, {provenance['passes']} forward pass{'es' * (provenance['passes'] != 1)} "
        f"over {provenance['texts']} texts, {provenance['seconds']:.0f} s."
    )
