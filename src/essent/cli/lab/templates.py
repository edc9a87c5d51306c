"""`essent lab templates`: the best template for a model, slot by slot or among those that a T5 writes."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, Literal

from cyclopts import Parameter
from cyclopts.validators import Number

from essent._core.atomic import write_json
from essent.cli import options as opt
from essent.cli.console import prepare_torch, show_lines, show_note, wants_progress
from essent.cli.files import write_json_file
from essent.cli.search import SearchOptions, save_best, show_board
from essent.cli.texts import expand_groups, read_pairs
from essent.errors import InputError

GENERATED = "generated.json"  # in the work folder


def templates(
    *,
    model: opt.Model,
    data: Annotated[list[str], Parameter(alias="-d")],
    method: Literal["greedy", "generate"] = "greedy",
    grammar: str | None = None,
    t5: str | None = None,
    definitions: opt.Folder = None,
    candidates: Annotated[int | None, Parameter(validator=Number(gte=2))] = None,
    longest: Annotated[int | None, Parameter(validator=Number(gte=2))] = None,
    layers: str = "L",
    shaping: str = "",
    options: SearchOptions = SearchOptions(),
) -> None:
    """Find the best template for a model.

    Its [MASK] scores best on pairs of sentences, one forward pass per template (PromptBERT 4.2). greedy tries the
    choices of one slot after the other: in promptbert's grammar the relation, then the wrapping. generate lets a T5
    write the words between definitions and their terms, by a beam search over all pairs at once.

    ```console
    $ essent lab templates -m bert-base-uncased --data stsb.dev --test stsb --json templates.json
    $ essent lab templates -m ./my-mlm --data pairs.jsonl --method generate --t5 t5-large --work work
    ```

    Args:
        model: A model on the hub, or a folder.
        data: Scored pairs to choose on: tasks such as stsb.dev, or files; the pairs of several are put together.
        method: Choose slot by slot in a grammar (greedy), or have templates written by a T5 (generate).
        grammar: For greedy: promptbert (default, the candidates of its Table 4), or a .yaml file with the template and
            choices for its slots.
        t5: For generate: a T5, e.g. t5-large; on the hub or a folder.
        definitions: For generate: a file of word–definition pairs, columns word and definition. Default: the 50 pairs
            in this package.
        candidates: For generate: number of templates to write. Default: 500.
        longest: For generate: maximum number of tokens per filling. Default: 20.
        layers: Layers that are read at the mask, as a mix.
        shaping: A shaping chain for the vectors, such as "zscore".
    """
    of_generation = {"--t5": t5, "--definitions": definitions, "--candidates": candidates, "--longest": longest}
    if method == "greedy":
        opt.refuse(of_generation, "is for --method generate.")
    else:
        opt.refuse({"--grammar": grammar}, "is for --method greedy.")
        if t5 is None:
            raise InputError("--method generate needs a T5 that writes the templates: --t5 t5-large, or a folder.")
    options.check_outputs()
    prepare_torch("essent lab templates")
    from essent.lab.templates.generate import DEFINITIONS, generate_templates, read_definitions
    from essent.lab.templates.grammar import find_grammar
    from essent.lab.templates.search import search_candidates
    from essent.lab.templates.search import search_templates as search_greedily

    names = expand_groups(data)
    pairs: Any = names[0] if len(names) == 1 else read_pairs(names, options.data_folder)
    shared = {"layers": layers, "shaping": shaping, **options.arguments, "options": options.options}
    written: dict[str, Any]
    search: Any
    if method == "greedy":
        search = search_greedily(model, pairs, find_grammar(grammar or "promptbert"), work=options.work, **shared)
        written = {"steps": [{"slot": s.slot, "chosen": s.chosen, "scores": s.scores} for s in search.steps]}
        for step in search.steps:
            show_note(f"{step.slot}: {step.chosen!r}")
    else:
        limits = {"candidates": candidates, "longest": longest}
        keep, work = (None, None) if options.work is None else (options.work / GENERATED, options.work / "search")
        generated = generate_templates(
            str(t5),
            DEFINITIONS if definitions is None else read_definitions(definitions),
            **{name: value for name, value in limits.items() if value},
            progress=wants_progress(),
            device=options.device,
            keep=keep,
        )
        search = search_candidates(model, pairs, generated, work=work, **shared)
        left_out = list(search.left_out)
        written = {"generated": [candidate._asdict() for candidate in search.candidates], "left_out": left_out}
        show_note(f"{len(search.candidates)} templates by {t5}; {len(left_out)} that do not fit left out.")
    board, template = search.board, search.template
    show_board(board, options)
    show_lines([f"Best template: {template}"], options.json_file)
    everything = {**board.to_dict(), "method": method, "template": template, **written}
    write_json_file(options.json_file, partial(write_json, value=everything, indent=1))
    save_best(board, options.output)
