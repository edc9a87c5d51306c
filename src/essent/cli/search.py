"""`essent search`: the best recipe for a model and data, with one forward pass per template."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from essent.cli import options as opt
from essent.cli.console import is_quiet, prepare_torch, results, show_lines, show_note
from essent.cli.files import (
    check_folder,
    check_output,
    check_report,
    expand_groups,
    read_files,
    write_json_file,
    write_page,
)
from essent.errors import InputError

if TYPE_CHECKING:
    from essent.selection.leaderboard import Leaderboard


@Parameter(name="*")
@dataclass(frozen=True)
class SearchOptions(opt.Run):
    """Options of both searches, over recipes and over templates."""

    criterion: Annotated[list[str] | None, Parameter(alias="-c")] = None
    """Score that ranks the recipes; further scores are only shown. Default: the main score of the data (spearman,
    accuracy, ndcg@10 …); without labels, the recommended label-free criterion."""
    test: list[str] | None = None
    """Score the best recipe on these tasks or files; the choice never reads them."""
    data_folder: opt.Folder = None
    """Folder of the named tasks: DIR/sts/NAME.jsonl. Default: the hub."""
    top: opt.Count = 20
    """Number of rows to show."""
    output: Annotated[Path | None, Parameter(alias="-o")] = None
    """Fit the best recipe on the data and save it as an encoder in this folder."""
    json_file: opt.Json = None
    """Write all trials as JSON; - is standard output."""
    work: opt.Folder = None
    """Folder for intermediate results; run the same command to resume from them."""
    batch_size: opt.BatchSize = 32
    """Texts of about 64 tokens per batch."""
    precision: opt.Precision = "auto"
    """Number format of the computation; auto is float32 on CPUs, bfloat16 needs hardware support."""

    def check_outputs(self) -> None:
        """Raise an error for outputs that cannot be written, before anything is computed."""
        check_folder(self.output, self.force)
        check_output(self.json_file, self.force)

    @property
    def passes(self) -> dict[str, Any]:
        """Return the keyword arguments of functions that run forward passes."""
        return {"batch_size": self.batch_size, "precision": self.precision, "progress": not is_quiet()}

    @property
    def arguments(self) -> dict[str, Any]:
        """Return the keyword arguments of both searches."""
        return {
            **self.passes,
            "criterion": self.criterion or [],
            "folder": self.data_folder,
            "test": expand_groups(self.test),
            "top": self.top,
        }


def search(
    *,
    model: opt.Model,
    data: opt.Data = None,
    texts: opt.AnyTexts = None,
    use: opt.Use = None,
    columns: opt.Columns = None,
    column: opt.Column = "text",
    space: Annotated[str, Parameter(alias="-s")] = "auto",
    ask: Annotated[int | None, Parameter(group=opt.INPUTS)] = None,
    ask_file: opt.Folder = None,
    report: opt.Report = None,
    options: SearchOptions = SearchOptions(),
) -> None:
    """Find the best recipe for a model.

    All heads, layers, weights and shaping of a template share one forward pass. Recipes are ranked by their score on
    the labelled --data, or by a label-free criterion on --texts. The best recipe replaces a baseline only if it is
    significantly better, on --test or otherwise in cross-validation. The choice never reads the test part of --data.

    ```console
    $ essent search -m bert-base-uncased --data stsb.dev --test stsb sickr -o best --report search.png
    $ essent search -m ./my-model --data my-pairs.csv --space heads --top 5
    $ essent search -m ./my-model --data my-classes.csv my-queries/
    $ essent search -m ./my-model --texts corpus.txt --for clusters
    $ essent search -m ./my-model --texts corpus.txt --for clusters --ask 30 --ask-file pairs.csv
    ```

    Args:
        model: A model on the hub, or a folder.
        data: Labelled data: tasks such as stsb.dev or trec, files, folders. The columns determine the kind (scored
            pairs, duplicates, triplets, classes, clusters, retrieval), or KIND:FILE. With several data sets, the mean
            rank decides.
        texts: Choose without labels on these texts.
        use: What the vectors are for, if there are no labels. Default: similarity.
        column: Column with the texts of --texts, in .jsonl, .csv, .tsv and .parquet files.
        space: Search space: auto (full, or decoder for a causal language model), heads, layers, weights, shaping, full,
            decoder, or a .yaml file of grids.
        ask: Select this number of pairs of --texts to annotate by hand: those on which the recipes disagree most.
        ask_file: The .csv file of --ask: the first run writes the pairs; fill in the scores and run the same command
            again. Default: ask.csv.
        report: Write a page (.html, .md) or a picture (.png): heads × layers, scores by layer, the first rows.
    """
    if ask is None:
        opt.refuse({"--ask-file": ask_file}, "needs --ask N.")
    ask_file = ask_file or Path("ask.csv")
    if texts is None:
        opt.refuse({"--ask": ask}, "selects pairs of unlabelled texts to annotate. Pass the texts with --texts.")
    named_columns = opt.parse_columns(columns)
    options.check_outputs()
    check_report(report, options.force)
    prepare_torch("essent search")
    from essent.selection.annotation import read_annotated, write_pairs
    from essent.selection.run import annotate
    from essent.selection.run import search as run_search
    from essent.selection.space import find_space
    from essent.selection.topics import CRITERIA, TOPICS, check_use

    find_space(space)  # an unknown space is refused before data are read
    inputs = _read_inputs(data, texts, column, options.data_folder, named_columns)
    work = options.work
    if ask is not None:
        check_output(ask_file, True, (".csv",))
        if not ask_file.exists():
            passes = {**options.passes, **options.options}
            pairs = annotate(model, inputs, space, count=ask, use=use, work=work and work / "ask", **passes)
            write_pairs(ask_file, [(*pair, None) for pair in pairs])
            scale = "from 0 (unrelated) to 5 (the same meaning)"
            if CRITERIA[check_use(use)] == TOPICS:
                scale = "1 (they belong to the same group) or 0 (they do not)"
            show_note(
                f"Wrote {ask} pairs to {ask_file}. Fill in the column score, for example {scale}, and run the same "
                "command again. Pairs without a score are skipped."
            )
            return
        inputs = read_annotated(ask_file, inputs)
        work = work and work / f"search-{inputs.digest()[:8]}"  # with other scores, another search
    arguments = {"columns": named_columns, **options.arguments, **options.options}
    board = run_search(model, inputs, space, use=use, work=work, **arguments)
    show_board(board, options)
    write_json_file(options.json_file, board.to_json)
    if report is not None:
        write_page([], report, searches=[board])
    save_best(board, options.output)


def _read_inputs(
    data: Sequence[str] | None,
    texts: Sequence[Path] | None,
    column: str,
    folder: Path | None,
    columns: Mapping[str, str],
) -> Any:
    """Read labelled data (one task or several) or unlabelled texts."""
    from essent.tasks.locate import load_labelled

    if (data is None) == (texts is None):
        raise InputError("Pass either --data (labelled data of any kind) or --texts (texts without labels).")
    if data is None:
        return read_files(texts or [], column)
    if unlabelled := [name for name in data if name.lower().endswith(".txt")]:
        raise InputError(f"{unlabelled[0]} has no labels. Texts without labels are for --texts.")
    tasks = [load_labelled(name, folder, columns=columns) for name in expand_groups(data)]
    return tasks[0] if len(tasks) == 1 else tasks


# -- output -----------------------------------------------------------------------------------------------------------


def save_best(board: Leaderboard, folder: Path | None) -> None:
    """Save the best recipe as an encoder, if a folder is named."""
    if folder is not None:
        board.encoder().save(str(folder))
        show_note(f"Saved {board.best} to {folder}.")


def show_board(board: Leaderboard, options: SearchOptions) -> None:
    """Print the leaderboard, the comparisons with the baselines and the verdict."""
    results(options.json_file).print(board.table(options.top))
    show_lines(board.summary(), options.json_file)
    for note in board.notes:
        show_note(note)
    provenance = board.provenance
    show_note(
        f"{provenance['recipes']} recipes, {provenance['passes']} forward pass{'es' * (provenance['passes'] != 1)} "
        f"over {provenance['texts']} texts, {provenance['seconds']:.0f} s."
    )
