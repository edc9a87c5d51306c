"""Searches over templates: slot by slot (PromptBERT 4.2, Table 4), or over candidates that a T5 has generated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from sentence_transformers import SentenceTransformer

from essent._core.types import ModelLike
from essent.errors import InputError, UnsupportedRecipeError
from essent.lab.templates.generate import Candidate
from essent.lab.templates.grammar import PROMPT_BERT
from essent.model.loading import open_model, read_capabilities
from essent.model.template import check_room, make_frame
from essent.recipe.recipe import MASK
from essent.recipe.sources.layers import parse_mix, reads_mlm_head
from essent.selection.leaderboard import Leaderboard, ranked
from essent.selection.run import BASELINES, model_name, search
from essent.selection.search_data import SearchData
from essent.selection.space import Grammar, Grid, Space
from essent.selection.verdict import HeldOut, held_out, judged, tested
from essent.tasks.base import LabeledTask


@dataclass(frozen=True)
class Step:
    """One slot's search: every candidate template with its score, and the choice."""

    slot: str
    scores: dict[str, float]
    chosen: str


@dataclass(frozen=True)
class TemplateSearch:
    """What a greedy search found.

    Attributes:
        template: the best one, better than the baselines or not.
        steps: in the order of the search.
        board: every template that was tried, and the baselines; its leader is the best template, its `best` a baseline
            unless that is shown to be better.
    """

    template: str
    steps: tuple[Step, ...]
    board: Leaderboard


@dataclass(frozen=True)
class GeneratedSearch:
    """What a search over generated templates found.

    Attributes:
        template: the best one, better than the baselines or not.
        candidates: all that were tried, most probable for the generator first.
        left_out: those that the model's tokenizer joins with the text, or that leave no room for it.
        board: as in `TemplateSearch`.
    """

    template: str
    candidates: tuple[Candidate, ...]
    left_out: tuple[str, ...]
    board: Leaderboard


def search_templates(
    model: ModelLike,
    data: Any,
    grammar: Grammar = PROMPT_BERT,
    *,
    weights: str = "mask",
    layers: str = "L",
    shaping: str = "",
    test: Sequence[LabeledTask | str] = (),
    baselines: Sequence[str] = BASELINES,
    work: str | Path | None = None,
    options: dict[str, Any] | None = None,
    **settings: Any,
) -> TemplateSearch:
    """Greedy search over a grammar's slots, in the order of its choices; each candidate is one pass, none runs twice.

    Args:
        data, test, baselines, work: as in `essent.search`.
        options: SentenceTransformer's keyword arguments (device, revision …).
        settings: further arguments of `essent.search` (criterion, folder, seed, batch_size, memory …).
        weights, layers, shaping: how the template's tokens become a vector: by default its [MASK] in the last layer.

    Raises:
        UnsupportedRecipeError: the model has no mask token and the grammar needs one.
    """
    if not grammar.choices:
        raise InputError(f"The template grammar {grammar.text!r} has no slots to search.")
    tests = _held_out(test, data, settings)
    shell = _opened(model, layers, weights, MASK in grammar.text, options or {})
    chosen = grammar.first()
    boards: list[Leaderboard] = []
    steps: list[Step] = []
    scores: dict[str, float] = {}
    for slot, choices in grammar.choices.items():
        templates = {choice: grammar.fill({**chosen, slot: choice}) for choice in choices}
        new = tuple(template for template in dict.fromkeys(templates.values()) if template not in scores)
        if new:
            space = Space((Grid(templates=new, layers=(layers,), weights=(weights,), shaping=(shaping,)),), name=slot)
            step: dict[str, Any] = {**settings, "top": len(new) + len(baselines)}
            step |= {"baselines": () if boards else baselines, "work": None if work is None else Path(work) / slot}
            board = search(shell, data, space, **step)
            boards.append(board)
            scores |= {t.recipe.template: t.scores[board.criterion] for t in board.trials if t.recipe.template}
        chosen[slot] = max(choices, key=lambda choice: float(np.nan_to_num(scores[templates[choice]], nan=-np.inf)))
        steps.append(Step(slot, {template: scores[template] for template in templates.values()}, chosen[slot]))
    template = grammar.fill(chosen)
    board = _decided(_merged(boards), boards, template, shell, data, settings)
    board = replace(board, provenance={**board.provenance, "model": model_name(model)})
    return TemplateSearch(template, tuple(steps), _tested(board, shell, tests, settings))


def search_candidates(
    model: ModelLike,
    data: Any,
    candidates: Sequence[Candidate],
    *,
    weights: str = "mask",
    layers: str = "L",
    options: dict[str, Any] | None = None,
    **arguments: Any,
) -> GeneratedSearch:
    """Score generated templates (`generate_templates`) on a data set; each is one pass (PromptBERT 4.2).

    Args: as in `search_templates`, of which this is the search of one slot.

    Raises:
        InputError: no candidates that the model can take.
        UnsupportedRecipeError: the model has no mask token.
    """
    shell = _opened(model, layers, weights, True, options or {})
    usable = tuple(candidate for candidate in candidates if _can_frame(shell, candidate.template))
    if not usable:
        raise InputError(f"None of {len(candidates)} generated templates can be used with this model.")
    grammar = Grammar("{candidate}", {"candidate": tuple(candidate.template for candidate in usable)})
    searched = search_templates(shell, data, grammar, weights=weights, layers=layers, **arguments)
    provenance = {**searched.board.provenance, "model": model_name(model), "space": "generated templates"}
    rejected = tuple(candidate.template for candidate in candidates if candidate not in usable)
    return GeneratedSearch(searched.template, usable, rejected, replace(searched.board, provenance=provenance))


def _opened(model: ModelLike, layers: str, weights: str, masks: bool, options: dict[str, Any]) -> SentenceTransformer:
    """The whole model, once for all templates."""
    if (masks or weights == "mask") and not read_capabilities(model, options).mask:
        raise UnsupportedRecipeError("This model has no mask token; give a grammar without [MASK] and weights=last.")
    return open_model(model, options, with_mlm_head=reads_mlm_head(parse_mix(layers)))


def _can_frame(shell: SentenceTransformer, template: str) -> bool:
    try:
        check_room(make_frame(shell.tokenizer, template), template, shell.max_seq_length)
    except UnsupportedRecipeError:
        return False
    return True


def _held_out(test: Sequence[LabeledTask | str], data: Any, settings: dict[str, Any]) -> list[HeldOut]:
    folder = settings.get("folder")
    searched = SearchData.of(data, folder, settings.get("criterion", ()), 0)
    return held_out(test, folder, searched.texts, searched.labelled_items)


def _tested(
    board: Leaderboard, shell: SentenceTransformer, tests: Sequence[HeldOut], settings: dict[str, Any]
) -> Leaderboard:
    shared: dict[str, Any] = {"batch_size": 32, "seed": 0, "progress": False}
    shared |= {name: settings[name] for name in shared if name in settings}
    return tested(board, shell, tests, **shared, options={}, score=board.criterion)


def _decided(
    board: Leaderboard,
    boards: Sequence[Leaderboard],
    template: str,
    shell: SentenceTransformer,
    data: Any,
    settings: dict[str, Any],
) -> Leaderboard:
    """The leaderboard with the best template as its leader, and the verdict between that and the baselines."""
    winner = next((str(trial.recipe) for trial in board.trials if trial.recipe.template == template), None)
    if not board.is_scored or winner is None or not np.isfinite(board.find(winner).scores[board.criterion]):
        return board
    if boards[0].judgements:
        scored = [step_board.judgements[0] for step_board in boards]
        rows = {name: row for own in scored for name, row in zip(own.names, own.evidence, strict=True)}
        every = replace(scored[0], names=list(rows), evidence=np.stack(list(rows.values())))
        arguments = (board.trials, board.criterion, board.baselines, [every], list(rows))
        decided = judged(*arguments, seed=settings.get("seed", 0), winner=winner)
    else:  # the verdict without labels belongs to the last recipe that leads: the winner beside the baselines alone
        decided = search(shell, data, Space(named=(winner,)), **{**settings, "baselines": board.baselines})
        decided = replace(decided, trials=board.trials, winner=winner)
        first = str(board.trials[0].recipe)
        if first in board.baselines:
            decided = replace(decided, kept=first, verdict=f"No template does better than {first}, which is kept.")
    return replace(decided, provenance=board.provenance, _source=board._source)


def _merged(boards: Sequence[Leaderboard]) -> Leaderboard:
    """One leaderboard of all steps, not judged yet; the baselines ran in the first step."""
    first = boards[0]
    trials = ranked([trial for board in boards for trial in board.trials], first.criterion)
    sums = {name: sum(board.provenance[name] for board in boards) for name in ("passes", "seconds")}
    provenance = {**first.provenance, "space": "template grammar", "recipes": len(trials), "passes": sums["passes"]}
    provenance["seconds"] = round(sums["seconds"], 2)
    fields: dict[str, Any] = {"notes": first.notes, "provenance": provenance, "_source": first._source}
    return Leaderboard(first.criterion, trials, first.baselines, **fields)
