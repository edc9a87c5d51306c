"""`essent search`: the best recipe for a model and data, one pass per template."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from essent.cli import options as opt
from essent.cli.console import prepare_torch, results, show_lines, show_note, wants_progress
from essent.cli.files import check_folder, check_output, check_report, write_json_file, write_page
from essent.cli.texts import expand_groups, read_files
from essent.errors import InputError

if TYPE_CHECKING:
    from essent.selection.annotation import AnnotatedPairs, Annotation, ScoredPair
    from essent.selection.leaderboard import Leaderboard

ASK_FILE = Path("ask.csv")  # where the answers of the terminal are kept


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
        check_folder(self.output, self.force)
        check_output(self.json_file, self.force)

    @property
    def passes(self) -> dict[str, Any]:
        """Keyword arguments of whatever runs the passes."""
        settings = {"batch_size": self.batch_size, "precision": self.precision}
        return {**settings, "progress": wants_progress(), "report": show_note}

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
    if ask is None:
        opt.refuse({"--ask-file": ask_file}, "belongs to --ask N.")
    if texts is None:
        opt.refuse({"--ask": ask}, "chooses pairs of unlabelled texts to judge; give these with --texts.")
    options.check_outputs()
    check_report(report, options.force)
    prepare_torch("essent search")
    from essent.selection.run import annotate
    from essent.selection.run import search as run_search
    from essent.selection.space import find_space

    find_space(space)  # an unknown space is refused before data are read
    inputs = _read(data, texts, column, options.data_folder)
    work = options.work
    if ask is not None:
        first, work = (None, None) if work is None else (work / "ask", work / "search")
        choose = partial(annotate, model, inputs, space, count=ask, work=first, **options.passes, **options.options)
        inputs = annotated_pairs(ask_file, inputs, choose)
        if inputs is None:
            return
    board = run_search(model, inputs, space, work=work, **options.arguments, **options.options)
    show_board(board, options)
    write_json_file(options.json_file, board.to_json)
    if report is not None:
        write_page([], [board], report)
    save_best(board, options.output)


def _read(data: Sequence[str] | None, texts: Sequence[Path] | None, column: str, folder: Path | None) -> Any:
    from essent.tasks.locate import load_labelled

    if (data is None) == (texts is None):
        raise InputError("Give either --data (labels of any kind) or --texts (texts without labels).")
    if data is None:
        return read_files(texts or [], column)
    if unlabelled := [name for name in data if name.lower().endswith(".txt")]:
        raise InputError(f"{unlabelled[0]} has no labels. Texts without labels are for --texts.")
    tasks = [load_labelled(name, folder) for name in expand_groups(data)]
    return tasks[0] if len(tasks) == 1 else tasks


# -- pairs to annotate ------------------------------------------------------------------------------------------------


def on_terminal() -> bool:
    """Whether somebody can answer."""
    return sys.stdin.isatty()


def annotated_pairs(ask_file: Path | None, texts: list[str], choose: Callable[[], Annotation]) -> AnnotatedPairs | None:
    """Annotated pairs of the texts, from a file or from whoever sits at the terminal.

    Args:
        ask_file: None asks on the terminal, and keeps the answers in ASK_FILE.
        choose: gives the pairs to annotate; called where there is no file yet.

    Returns:
        None where a file has been written that is to be filled in first.

    Raises:
        DataError: a file of another kind, a score that is not a number, or none at all.
    """
    from essent.selection.annotation import read_annotated, read_pairs

    file, answers = ask_file or ASK_FILE, ask_file is None and on_terminal()
    check_output(file, True, (".csv", ".jsonl"))
    if not file.exists():
        annotation = choose()
        annotation.write(file)
        if not answers:
            show_note(
                f"{len(annotation.pairs)} pairs to judge are in {file}. Fill in the column score, for example from 0 "
                "(unrelated) to 5 (the same meaning), and run the same command again; pairs may be left without a "
                "score."
            )
            return None
    if answers:
        _ask_all(read_pairs(file), file)
    return read_annotated(file, texts)


def _ask_all(pairs: list[ScoredPair], file: Path) -> None:
    """Ask for the scores that are missing, and write the file after each answer."""
    from essent.selection.annotation import write_pairs

    missing = [index for index, (_, _, score) in enumerate(pairs) if score is None]
    if missing:
        show_note(
            "How alike in meaning are the two texts? 0 (unrelated) to 5 (the same meaning); s skips a pair, q stops. "
            f"Every answer is kept in {file} at once."
        )
    for number, index in enumerate(missing, start=1):
        first, second, _ = pairs[index]
        print(f"\n{number} of {len(missing)}\n  {first}\n  {second}", file=sys.stderr)  # noqa: T201
        answer = _answer()
        if answer == "q":
            return
        if answer != "s":
            pairs[index] = (first, second, float(answer))
            write_pairs(file, pairs)


def _answer() -> str:
    """A number on the scale, "s" or "q"; the end of the input is "q"."""
    while True:
        print("score: ", end="", file=sys.stderr, flush=True)  # noqa: T201
        line = sys.stdin.readline()
        answer = line.strip().lower().replace(",", ".") if line else "q"
        with suppress(ValueError):
            if answer in ("s", "q") or 0 <= float(answer) <= 5:
                return answer
        show_note(f"{answer!r} is not a number from 0 to 5, nor s or q.")


# -- output -----------------------------------------------------------------------------------------------------------


def save_best(board: Leaderboard, folder: Path | None) -> None:
    """Write the best recipe as an encoder, where a folder is given."""
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
