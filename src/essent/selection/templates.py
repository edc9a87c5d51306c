"""Searches over templates: slot by slot (PromptBERT 4.2, Table 4), or over candidates that a T5 has generated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from sentence_transformers import SentenceTransformer

from essent.layers import parse_mix, reads_head
from essent.loading import allowed, open_model
from essent.recipe import MASK
from essent.selection.generate import Candidate
from essent.selection.grammar import PROMPT_BERT, Grammar
from essent.selection.leaderboard import Leaderboard
from essent.selection.question import read_pairs_of
from essent.selection.run import Settings, against, check_on, judged, model_name, search
from essent.selection.space import Grid, Space
from essent.tasks import PairTask, load_pairs
from essent.template import check_room, make_frame
from essent.types import InputError, UnsupportedRecipeError


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
        template: the best one.
        steps: in the order of the search.
        board: every template that was tried, and the baselines.
    """

    template: str
    steps: tuple[Step, ...]
    board: Leaderboard


def search_templates(
    model: Any,
    data: Any,
    grammar: Grammar = PROMPT_BERT,
    *,
    weights: str = "mask",
    layers: str = "L",
    shaping: str = "",
    criterion: str | Sequence[str] = (),
    folder: str | Path | None = None,
    settings: Settings | None = None,
    options: dict[str, Any] | None = None,
    test: Sequence[PairTask | str] = (),
) -> TemplateSearch:
    """Greedy search over a grammar's slots, in the order of its choices; each candidate is one pass, none runs twice.

    Args:
        data, criterion, folder, settings, options, test: as in `essent.search`.
        weights, layers, shaping: how the template's tokens become a vector: by default its [MASK] in the last layer.

    Raises:
        UnsupportedRecipeError: the model has no mask token and the grammar needs one.
    """
    how = settings or Settings()
    if not grammar.choices:
        raise InputError(f"The template grammar {grammar.text!r} has no slots to search.")
    shell = _opened(model, layers, weights, MASK in grammar.text, options or {})
    chosen = grammar.first()
    boards: list[Leaderboard] = []
    steps: list[Step] = []
    scores: dict[str, float] = {}
    for slot, choices in grammar.choices.items():
        candidates = list(dict.fromkeys(grammar.fill({**chosen, slot: choice}) for choice in choices))
        new = tuple(template for template in candidates if template not in scores)
        if new:
            space = Space((Grid(templates=new, layers=(layers,), weights=(weights,), shaping=(shaping,)),), name=slot)
            work = None if how.work is None else Path(how.work) / slot
            step = replace(how, baselines=() if boards else how.baselines, top=len(new) + len(how.baselines), work=work)
            board = search(shell, data, space, criterion=criterion, folder=folder, settings=step)
            boards.append(board)
            scores.update({t.recipe.template: t.scores[board.criterion] for t in board.trials if t.recipe.template})
        filled = [scores[grammar.fill({**chosen, slot: choice})] for choice in choices]
        chosen[slot] = choices[int(np.argmax(np.nan_to_num(filled, nan=-np.inf)))]
        steps.append(Step(slot, {template: scores[template] for template in candidates}, chosen[slot]))
    template = grammar.fill(chosen)
    board = _choosing(_merged(boards, data, folder, how), template, data, folder, how)
    board = replace(board, provenance={**board.provenance, "model": model_name(model)})
    return TemplateSearch(template, tuple(steps), _checked(board, shell, test, folder, how))


@dataclass(frozen=True)
class GeneratedSearch:
    """What a search over generated templates found.

    Attributes:
        template: the best one.
        candidates: all that were tried, most probable for the generator first.
        left_out: those that the model's tokenizer joins with the text, or that leave no room for it.
        board: every template that was tried, and the baselines.
    """

    template: str
    candidates: tuple[Candidate, ...]
    left_out: tuple[str, ...]
    board: Leaderboard


def search_candidates(
    model: Any,
    data: Any,
    candidates: Sequence[Candidate],
    *,
    weights: str = "mask",
    layers: str = "L",
    shaping: str = "",
    criterion: str | Sequence[str] = (),
    folder: str | Path | None = None,
    settings: Settings | None = None,
    options: dict[str, Any] | None = None,
    test: Sequence[PairTask | str] = (),
) -> GeneratedSearch:
    """Score generated templates (`essent.selection.generate_templates`) on pairs; each is one pass (PromptBERT 4.2).

    Args: as in `search_templates`.

    Raises:
        InputError: no candidates that the model can take.
        UnsupportedRecipeError: the model has no mask token.
    """
    how = settings or Settings()
    shell = _opened(model, layers, weights, True, options or {})
    taken = [candidate for candidate in candidates if _can_frame(shell, candidate.template)]
    if not taken:
        raise InputError(f"None of {len(candidates)} generated templates can be used with this model.")
    names = tuple(candidate.template for candidate in taken)
    grid = Grid(templates=names, layers=(layers,), weights=(weights,), shaping=(shaping,))
    step = replace(how, top=len(names) + len(how.baselines))
    board = search(shell, data, Space((grid,), name="generated"), criterion=criterion, folder=folder, settings=step)
    board = replace(board, provenance={**board.provenance, "model": model_name(model), "space": "generated templates"})
    template = next(str(trial.recipe.template) for trial in board.trials if trial.recipe.template in names)
    board = _checked(_choosing(board, template, data, folder, how), shell, test, folder, how)
    left_out = tuple(candidate.template for candidate in candidates if candidate not in taken)
    return GeneratedSearch(template, tuple(taken), left_out, board)


def _opened(model: Any, layers: str, weights: str, masks: bool, options: dict[str, Any]) -> SentenceTransformer:
    """The whole model, once for all templates."""
    if (masks or weights == "mask") and not allowed(model, options).mask:
        raise UnsupportedRecipeError("This model has no mask token; give a grammar without [MASK] and weights=last.")
    return open_model(model, options, with_head=reads_head(parse_mix(layers)))


def _can_frame(shell: SentenceTransformer, template: str) -> bool:
    try:
        check_room(make_frame(shell.tokenizer, template), template, shell.max_seq_length)
    except UnsupportedRecipeError:
        return False
    return True


def _choosing(board: Leaderboard, template: str, data: Any, folder: str | Path | None, how: Settings) -> Leaderboard:
    """The leaderboard with the best template as its choice, also where a baseline does better, which is said."""
    first = board.trials[0]
    chosen = next(trial for trial in board.trials if trial.recipe.template == template)
    if chosen.recipe == first.recipe or not np.isfinite(chosen.scores[board.criterion]):
        return replace(board, kept=None)
    _, _, _, gold = read_pairs_of(data, folder)
    comparisons = board.comparisons
    if gold is not None and board.cosines:
        comparisons = against(str(chosen.recipe), board.baselines, board.cosines, gold, how.seed)
    note = f"No template does better than {first.recipe}; the best of them is the choice all the same."
    return replace(board, kept=str(chosen.recipe), comparisons=comparisons, notes=(*board.notes, note))


def _checked(
    board: Leaderboard,
    shell: SentenceTransformer,
    test: Sequence[PairTask | str],
    folder: str | Path | None,
    how: Settings,
) -> Leaderboard:
    """The leaderboard with its choice scored on other tasks."""
    if not test:
        return board
    tasks = [task if isinstance(task, PairTask) else load_pairs(task, folder) for task in test]
    return replace(board, checks=check_on(shell, board.best, list(board.baselines), tasks, how, {}))


def _merged(boards: Sequence[Leaderboard], data: Any, folder: str | Path | None, how: Settings) -> Leaderboard:
    """One leaderboard of all steps; the winner is compared with the baselines, which ran in the first step."""
    trials = [trial for board in boards for trial in board.trials]
    cosines = {name: row for board in boards for name, row in board.cosines.items()}
    _, _, _, gold = read_pairs_of(data, folder)
    first = boards[0]
    merged = judged(trials, first.criterion, first.baselines, cosines, gold if cosines else None, how.seed)
    seconds = round(sum(board.provenance["seconds"] for board in boards), 2)
    passes = sum(board.provenance["passes"] for board in boards)
    provenance = {**first.provenance, "space": "template grammar", "recipes": len(trials), "passes": passes}
    return replace(merged, provenance={**provenance, "seconds": seconds}, _source=first._source)
