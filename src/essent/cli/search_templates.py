"""`essent search-templates`: the best template for a model, slot by slot or among those that a T5 writes."""

from __future__ import annotations

import enum
from dataclasses import replace
from functools import partial
from typing import Annotated, Any

import typer

from essent.atomic import write_json
from essent.cli import options as opt
from essent.cli.console import results, show_note
from essent.cli.files import write_json_file
from essent.cli.search import FOUND, PANELS, SearchOptions, save_choice, show_board
from essent.cli.settings import with_help, with_options
from essent.cli.texts import read_pairs
from essent.types import InputError

KEPT = "generated.json"  # in the work folder


class Method(str, enum.Enum):
    """How templates are found."""

    GREEDY = "greedy"
    GENERATE = "generate"


@with_help({FOUND: "data method grammar t5 definitions candidates longest layers shaping"})
@with_options(SearchOptions, PANELS)
def search_templates(
    model: opt.Model,
    data: Annotated[list[str], opt.DATA],
    method: Method = Method.GREEDY,
    grammar: Annotated[str | None, typer.Option(metavar="NAME|FILE")] = None,
    t5: Annotated[str | None, typer.Option("--t5", metavar="NAME|DIR")] = None,
    definitions: opt.File = None,
    candidates: Annotated[int | None, typer.Option(min=2)] = None,
    longest: Annotated[int | None, typer.Option(min=2)] = None,
    layers: Annotated[str, typer.Option(metavar="MIX")] = "L",
    shaping: Annotated[str, typer.Option(metavar="CHAIN")] = "",
    *,
    settings: SearchOptions,
) -> None:
    """Find a template whose [MASK] scores best on pairs of sentences, one forward pass a template (PromptBERT 4.2).

    greedy tries the choices of one slot after the other: in promptbert's grammar the relation, then the wrapping.
    generate lets a T5 write what stands between definitions and their words, by a beam search over all pairs at once.

    \b
    [dim]$[/] essent search-templates -m bert-base-uncased --data stsb.dev --test stsb --json templates.json
    [dim]$[/] essent search-templates -m ./my-mlm --data pairs.jsonl --method generate --t5 t5-large --work found

    Args:
        data: scored pairs to choose on: tasks such as stsb.dev, or files; the pairs of several are put together.
        method: choose slot by slot in a grammar (greedy), or have templates written by a T5 (generate).
        grammar: for greedy: promptbert (default, the candidates of its Table 4), or a .yaml file with the template and
            choices for its slots.
        t5: for generate: a T5, e.g. t5-large; on the hub or a folder.
        definitions: for generate: word–definition pairs, columns word and definition. Default: the 50 pairs in this
            package.
        candidates: for generate: templates to write. Default: 500.
        longest: for generate: most tokens of a filling. Default: 20.
        layers: layers that are read at the mask.
        shaping: a shaping chain for the vectors, such as "zscore".
    """
    _check_method(
        method,
        {"--grammar": grammar},
        {"--t5": t5, "--definitions": definitions, "--candidates": candidates, "--longest": longest},
    )
    settings.check_outputs()
    from essent.lab.templates.definitions import DEFINITIONS, read_definitions
    from essent.lab.templates.generate import generate_templates
    from essent.lab.templates.search import search_candidates
    from essent.lab.templates.search import search_templates as search_greedily
    from essent.selection.grammar import find_grammar

    settings.calm()
    pairs_of: Any = data[0] if len(data) == 1 else read_pairs(data, settings.data_folder, settings.quiet)
    run, shared = settings.how(), {"layers": layers, "shaping": shaping, **settings.question()}
    written: dict[str, Any]
    if method is Method.GREEDY:
        greedy = search_greedily(model, pairs_of, find_grammar(grammar or "promptbert"), settings=run, **shared)
        board, template = greedy.board, greedy.template
        written = {"steps": [{"slot": s.slot, "chosen": s.chosen, "scores": s.scores} for s in greedy.steps]}
        for step in greedy.steps:
            show_note(f"{step.slot}: {step.chosen!r}")
    else:
        made = generate_templates(
            str(t5),
            DEFINITIONS if definitions is None else read_definitions(definitions),
            **{name: value for name, value in (("candidates", candidates), ("longest", longest)) if value is not None},
            progress=settings.progress,
            device=settings.device,
            keep=None if settings.work is None else settings.work / KEPT,
        )
        under = None if settings.work is None else settings.work / "search"
        found = search_candidates(model, pairs_of, made, settings=replace(run, work=under), **shared)
        board, template = found.board, found.template
        written = {"generated": [one._asdict() for one in found.candidates], "left_out": list(found.left_out)}
        if not settings.quiet:
            show_note(f"{len(found.candidates)} templates by {t5}; {len(found.left_out)} that do not fit left out.")
    show_board(board, settings)
    results(settings.json_file).print(f"Best template: {template}", markup=False)
    if settings.json_file is not None:
        everything = {**board.to_dict(), "method": method.value, "template": template, **written}
        write_json_file(settings.json_file, partial(write_json, value=everything, indent=1))
    save_choice(board, settings)


def _check_method(method: Method, greedy: dict[str, Any], generate: dict[str, Any]) -> None:
    """Refuse options of the other method, and generation without a T5."""
    other, name = (generate, Method.GENERATE) if method is Method.GREEDY else (greedy, Method.GREEDY)
    if given := [option for option, value in other.items() if value is not None]:
        raise InputError(f"{given[0]} belongs to --method {name.value}.")
    if method is Method.GENERATE and generate["--t5"] is None:
        raise InputError("--method generate needs a T5 that writes the templates: --t5 t5-large, or a folder.")
