"""`essent heros build` and `essent heros check`: minimal pairs of your own sentences, and their faults."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from essent.atomic import write_json
from essent.cli import options as opt
from essent.cli.console import results, show_note
from essent.cli.files import check_output, write_json_file
from essent.cli.heros_resources import MASKED_MODEL, PARSER, WORDNET, common_misspellings, resources_of
from essent.cli.settings import with_options
from essent.cli.texts import listed, read_files

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from essent.lab.minimal_pairs import PairRow, Quality, Resources
    from essent.tasks import Tokenize

SAMPLE = 2  # pairs a subset
SHOWN = 20  # findings
COLUMNS = {"rouge1": "R1", "rouge2": "R2", "rougeL": "RL", "levenshtein": "Lev", "length": "Len"}


@with_options(opt.Run, into="run")
def build(
    texts: Annotated[list[Path], opt.texts("Texts of one or more sentences.", None)],
    output: Annotated[Path, opt.output("FILE", "A .jsonl file, one minimal pair a line.")],
    originals: Annotated[int, typer.Option("--originals", "-n", min=1, help="Number of original sentences.")] = 1000,
    look_at: Annotated[
        int,
        typer.Option(
            min=1,
            help="With WordNet and --model: sentences looked at for each original; the surest originals are kept.",
        ),
    ] = 20,
    seed: Annotated[int, typer.Option(min=0, help="Seed by which sentences and random changes are drawn.")] = 0,
    model: Annotated[str | None, MASKED_MODEL] = None,
    wordnet: Annotated[Path | None, WORDNET] = None,
    parser: Annotated[str | None, PARSER] = None,
    confidence: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Coefficients of essent heros fit. Default: essent's own.")
    ] = None,
    json_file: Annotated[
        Path | None, opt.json_file("Also write why sentences were left out, and the overlaps.")
    ] = None,
    column: opt.Column = "text",
    batch_size: opt.BatchSize = 64,
    *,
    run: opt.Run,
) -> None:
    """Build minimal pairs in the manner of HEROS from your own sentences (Chiang et al. 2023, section 2).

    Declarative sentences are chosen by their parse, one verb or adjective in each, and six changes made: synonym,
    antonym, random word, typo, negation of the main verb and of the word. The first three need WordNet and a masked
    language model; what is missing is named, and the other subsets are built. The file goes into essent heros
    evaluate.

    \b
    [dim]$[/] essent heros build --texts reviews.txt --output pairs.jsonl --model bert-large-uncased
    [dim]$[/] essent heros evaluate -m all-MiniLM-L6-v2 --data pairs.jsonl
    """
    from essent.lab import minimal_pairs
    from essent.lab.minimal_pairs import Confidence
    from essent.types import DataError, optional_import

    check_output(output, run.force, (".jsonl",))
    check_output(json_file, run.force)
    optional_import("lemminflect", "heros")
    given = read_files(texts, column)
    run.calm()
    options = opt.model_options(None, run.revision, run.trust_remote_code)
    weights = Confidence.load(confidence) if confidence is not None else None
    resources = resources_of(parser, wordnet, model, run.device, batch_size, options)
    resources = replace(resources, confidence=weights)
    unit, tokenize = _tokens(resources, model)
    with _bar(run.progress) as show:
        rows, quality = minimal_pairs.build(given, resources, originals, seed, look_at, show)
    if not rows:
        raise DataError(f"{listed(texts)}: no sentence is suitable. The most frequent reasons: {_reasons(quality)}.")
    minimal_pairs.write_rows(rows, output)
    about = {**minimal_pairs.as_dict(quality, rows, tokenize), "unit": unit}
    write_json_file(json_file, partial(write_json, value=about))
    if not run.quiet:
        _print(rows, quality, unit, tokenize, results(json_file))
        if quality.originals < originals:
            run.note(f"{originals} originals were wanted; the texts give {quality.originals}.")


def check(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Minimal pairs, as essent heros evaluate reads them.")],
    parser: Annotated[str | None, PARSER] = None,
    quiet: opt.Quiet = False,
) -> None:
    """Find pairs that are equal, differ in more than their subset's rule allows, or look ungrammatical.

    Both sentences are parsed. What is found is worth reading, what is not found may still be wrong. Exit code 1 when
    something is found.

    \b
    [dim]$[/] essent heros check pairs.jsonl
    """
    from essent.lab.minimal_pairs import English, Parser, check_rows
    from essent.tasks import load_heros
    from essent.types import VerificationError

    pairs = load_heros(file).pairs
    found = check_rows(pairs, Parser(English(), parser), common_misspellings())
    console = results()
    for one in found[:SHOWN]:
        console.print(f"pair {one.number}, {one.pair.subset}: {one.problem}", markup=False, soft_wrap=True)
        console.print(f"  {one.pair.original}\n  {one.pair.changed}", markup=False, soft_wrap=True)
    if len(found) > SHOWN and not quiet:
        show_note(f"… and {len(found) - SHOWN} more.")
    if found:
        kinds = Counter(one.problem for one in found).most_common()
        shown = "; ".join(f"{number} × {problem}" for problem, number in kinds)
        raise VerificationError(f"{len(found)} of {len(pairs)} pairs break the rule of their subset: {shown}.")
    console.print(f"{len(pairs)} pairs, none breaks the rule of its subset.")


def _tokens(resources: Resources, mlm: str | None) -> tuple[str, Tokenize]:
    """What lengths and distances are counted in: the model's tokens as in the paper, or words and marks."""
    from essent.tasks import words_and_marks

    if resources.model is None:
        return "words and marks", words_and_marks
    return f"tokens of {mlm}", resources.model.tokens


@contextmanager
def _bar(wanted: bool) -> Iterator[Callable[[int, int], None] | None]:
    """What shows how many sentences were looked at, and of how many."""
    if not wanted:
        yield None
        return
    from tqdm import tqdm

    with tqdm(desc="sentences", unit="") as bar:

        def show(seen: int, total: int) -> None:
            bar.total = total
            bar.update(seen - bar.n)

        yield show


def _reasons(quality: Quality) -> str:
    counts = Counter(
        {reason: number for reasons in quality.fallen.values() for reason, number in reasons.items()}
    ).most_common(4)
    return ", ".join(f"{reason} ({number})" for reason, number in counts) or "nothing was read"


def _print(rows: Sequence[PairRow], quality: Quality, unit: str, tokenize: Tokenize, console: Console) -> None:
    from rich.text import Text

    from essent.lab.minimal_pairs import sample

    console.print(_funnel(quality))
    console.print(_overlaps(rows, tokenize))
    console.print(f"Lev and Len in {unit}; the paper's in tokens of bert-base-uncased.", markup=False)
    if quality.good:
        shares = " and ".join(f"{share:.0%} of the {relation}s" for relation, share in quality.good.items())
        console.print(f"By the regression {shares} are good. With a smaller -n more of them are.", soft_wrap=True)
    console.print("A sample of each subset:")
    for subset, some in sample(rows, SAMPLE).items():
        console.print(Text(subset, style="bold"))
        for row in some:
            console.print(Text(f"  {row.original}\n  {row.converted}", no_wrap=False), soft_wrap=True)


def _funnel(quality: Quality) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("filter")
    table.add_column("left", justify="right")
    table.add_column("why others were left out", overflow="fold")
    table.add_row("sentences looked at", str(quality.seen), "")
    for name, left in quality.left.items():
        reasons = list(quality.fallen.get(name, {}).items())
        shown = ", ".join(f"{reason} {number}" for reason, number in reasons[:3])
        table.add_row(name, str(left), Text(shown + (" …" if len(reasons) > 3 else ""), style="dim"))
    return table


def _overlaps(rows: Sequence[PairRow], tokenize: Tokenize) -> Table:
    from rich import box
    from rich.table import Table

    from essent.lab.minimal_pairs import overlaps

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("overlap")
    for name in COLUMNS.values():
        table.add_column(name, justify="right")
    for name, values in overlaps(rows, tokenize).items():
        table.add_row(name, *(f"{values[c]:.2f}" if c == "levenshtein" else f"{values[c]:.1f}" for c in COLUMNS))
    return table
