"""`essent heros judge` and `essent heros fit`: readers' judgements of pairs, and the confidence fitted to them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from essent.cli import options as opt
from essent.cli.console import results, show_note
from essent.cli.files import check_output
from essent.cli.heros_resources import MASKED_MODEL, PARSER, WORDNET, resources_of
from essent.cli.settings import with_options


def judge(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Minimal pairs, as essent heros evaluate reads them.")],
    output: Annotated[Path, opt.output("FILE", "A .csv sheet to fill in.")],
    number: Annotated[int, typer.Option("--count", min=1, help="Random pairs of each subset.")] = 100,
    seed: Annotated[int, typer.Option(min=0, help="Seed by which pairs are drawn.")] = 0,
    force: opt.Force = False,
) -> None:
    """Write a sheet for a reader: random pairs of each subset, with an empty column "good" for 1 or 0.

    \b
    [dim]$[/] essent heros judge pairs.jsonl --output sheet.csv
    """
    from essent.lab.minimal_pairs import RULES, write_sheet
    from essent.tasks import load_heros

    check_output(output, force, (".csv",))
    rows = write_sheet(load_heros(file).pairs, output, number, seed)
    console = results()
    console.print(f"{output}: {rows} pairs. Put 1 into the column good where a pair is, otherwise 0:", soft_wrap=True)
    for subset, rule in RULES.items():
        console.print(f"  {subset}: {rule}", markup=False, soft_wrap=True)


@with_options(opt.Run, into="run")
def fit(
    sheets: Annotated[list[Path], typer.Argument(metavar="SHEET…", help="Filled sheets of essent heros judge.")],
    output: Annotated[Path, opt.output("FILE", "A .json file of coefficients, for essent heros build --confidence.")],
    model: Annotated[str, MASKED_MODEL],
    wordnet: Annotated[Path | None, WORDNET] = None,
    parser: Annotated[str | None, PARSER] = None,
    *,
    run: opt.Run,
) -> None:
    """Fit the confidence in synonyms and antonyms to judgements, by what the model and WordNet say of them.

    The file has the digest of the judgements. Fit it anew for another masked language model, or with more judgements;
    those that essent comes with are src/essent/lab/minimal_pairs/data/judgements.tsv.

    \b
    [dim]$[/] essent heros fit sheet.csv --output confidence.json --model bert-large-uncased
    """
    from essent.lab.minimal_pairs import fit_judgements

    check_output(output, run.force, (".json",))
    options = opt.model_options(None, run.revision, run.trust_remote_code)
    resources = resources_of(parser, wordnet, model, run.device, 64, options)
    found, unused = fit_judgements(sheets, resources)
    found.save(output)
    for relation, area in found.fitted_on["held-out area"].items():
        number = found.fitted_on["judgements"][relation]
        results().print(f"{relation}: {number} judgements, held-out area under the curve {area:.2f}")
    if unused:
        show_note(f"{unused} judgements are of words that WordNet does not offer there, or that are excluded now.")
