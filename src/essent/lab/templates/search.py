"""Search for templates slot by slot (PromptBERT 4.2, Table 4), or among candidates that a T5 has generated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from sentence_transformers import SentenceTransformer

from essent._core.registry import did_you_mean
from essent._core.types import ModelLike
from essent.errors import DataError, InputError, UnknownNameError, UnsupportedRecipeError
from essent.lab.templates.generate import Candidate
from essent.model.loading import open_model, read_capabilities
from essent.model.template import check_room, make_frame
from essent.recipe.named import MASK
from essent.recipe.sources.layers import parse_mix, reads_mlm_head
from essent.recipe.templates import templates_of
from essent.selection.evaluation import model_name
from essent.selection.leaderboard import Leaderboard, rank_trials
from essent.selection.run import BASELINES, search
from essent.selection.search_data import SearchData, SearchSettings, held_out
from essent.selection.space import Grammar as Grammar  # a public name of this package
from essent.selection.space import Grid, Space, read_yaml
from essent.selection.verdict import decide_by_labels, score_on_tests
from essent.tasks.base import LabeledTask

PROMPT_BERT = Grammar(  # the candidates in PromptBERT's Table 4; relation is searched first, then the wrapping
    "{wrapping} {relation} [MASK] .",
    {
        "relation": ("", "is", "mean", "means"),
        "wrapping": (
            "{text}",
            "This {text}",
            "This sentence of {text}",
            'This sentence of "{text}"',
            'This sentence : "{text}"',
        ),
    },
)


def find_grammar(name: str | Path) -> Grammar:
    """Return the grammar "promptbert", or read one from a YAML file with `template` and a list of choices per slot.

    Raises:
        UnknownNameError: neither a named grammar nor a file.
        DataError: the file cannot be read.
        RecipeError: see `Grammar`.
    """
    if str(name) == "promptbert":
        return PROMPT_BERT
    path = Path(name)
    if path.suffix.lower() not in (".yaml", ".yml", ".json") and not path.is_file():
        hint = did_you_mean(str(name), ["promptbert"])
        raise UnknownNameError(f"Unknown template grammar {str(name)!r}. {hint} A .yaml file is also possible.")
    slots = read_yaml(path)
    template = slots.pop("template", None) if isinstance(slots, dict) else None
    if template is None or not all(isinstance(choices, list) for choices in slots.values()):
        raise DataError(f"{path}: expected `template` and a list of choices for each of its slots, got {slots!r}.")
    texts = {slot: tuple("" if choice is None else str(choice) for choice in slots[slot]) for slot in slots}
    return Grammar(str(template), texts)


@dataclass(frozen=True)
class Step:
    """The search of one slot: every candidate template with its score, and the choice.

    Attributes:
        slot: name of the slot.
        scores: template -> score.
        chosen: the best choice for the slot.

    Example:
        >>> from essent.lab.templates import Grammar, search_templates
        >>> grammar = Grammar("{text} {relation} [MASK] .", {"relation": ("is", "means")})
        >>> (step,) = search_templates("my-mlm", "pairs.jsonl", grammar, baselines=["mean"]).steps
        >>> step.slot, list(step.scores)
        ('relation', ['{text} is [MASK] .', '{text} means [MASK] .'])
    """

    slot: str
    scores: dict[str, float]
    chosen: str


@dataclass(frozen=True)
class TemplateSearch:
    """The result of a greedy search.

    Attributes:
        template: the best template, whether or not it beats the baselines.
        steps: the searched slots, in order.
        board: all scored templates and the baselines. Its `leader` is the best template; its `best` is a baseline
            unless the leader is significantly better.

    Example:
        >>> from essent.lab.templates import Grammar, search_templates
        >>> grammar = Grammar("{text} {relation} [MASK] .", {"relation": ("is", "means")})
        >>> searched = search_templates("my-mlm", "pairs.jsonl", grammar, baselines=["mean"])
        >>> searched.template in grammar.templates(), len(searched.board.trials)  # 2 templates, 1 baseline
        (True, 3)
    """

    template: str
    steps: tuple[Step, ...]
    board: Leaderboard


@dataclass(frozen=True)
class GeneratedSearch:
    """The result of a search among generated templates.

    Attributes:
        template: the best template, whether or not it beats the baselines.
        candidates: all scored candidates, the most probable for the generator first.
        left_out: excluded templates: the model's tokenizer joins them with the text, or they leave no room for it.
        board: as in `TemplateSearch`.

    Example:
        >>> from essent.lab.templates import Candidate, search_candidates
        >>> candidates = [Candidate("Also called [MASK]. {text}", -9.1), Candidate("{text} is a [MASK].", -10.4)]
        >>> searched = search_candidates("my-mlm", "pairs.jsonl", candidates, baselines=["mean"])
        >>> len(searched.candidates), searched.left_out
        (2, ())
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
    """Search for the best template slot by slot, greedily, with one pass per template.

    Args:
        model: a hub name, a folder or a loaded SentenceTransformer.
        grammar: the template with its slots, which are searched in the order of `grammar.choices`.
        weights, layers, shaping: how the template's tokens become a vector: by default its [MASK] in the last layer.
        data, test, baselines, work: as in `essent.search`.
        options: SentenceTransformer's keyword arguments (device, revision …).
        settings: further arguments of `essent.search` (criterion, folder, seed, batch_size, memory …).

    Raises:
        InputError: a grammar without slots.
        UnsupportedRecipeError: the grammar needs a mask token, and the model has none.

    Example:
        >>> from essent.lab.templates import Grammar, search_templates
        >>> grammar = Grammar("{text} {relation} [MASK] .", {"relation": ("is", "means")})
        >>> searched = search_templates("my-mlm", "pairs.jsonl", grammar, baselines=["mean"])
        >>> searched.template.endswith("[MASK] .")
        True
    """
    if not grammar.choices:
        raise InputError(f"The template grammar {grammar.text!r} has no slots to search. Add a slot such as {{word}}.")
    if (MASK in grammar.text or weights == "mask") and not read_capabilities(model, options or {}).mask:
        raise UnsupportedRecipeError("The model has no mask token. Use a grammar without [MASK] and weights='last'.")
    folder = settings.get("folder")
    search_data = SearchData.of(data, folder, settings.get("criterion", ()), 0)
    tests = held_out(test, folder, search_data.texts, search_data.labelled_items)
    shell = open_model(model, options or {}, with_mlm_head=reads_mlm_head(parse_mix(layers)))  # once, with all layers
    chosen = grammar.first()
    boards: list[Leaderboard] = []
    steps: list[Step] = []
    scores: dict[str, float] = {}
    for slot, choices in grammar.choices.items():
        templates = {choice: grammar.fill({**chosen, slot: choice}) for choice in choices}
        if new := tuple(template for template in dict.fromkeys(templates.values()) if template not in scores):
            space = Space((Grid(templates=new, layers=(layers,), weights=(weights,), shaping=(shaping,)),), name=slot)
            step: dict[str, Any] = {**settings, "top": len(new) + len(baselines)}
            step |= {"baselines": () if boards else baselines, "work": None if work is None else Path(work) / slot}
            board = search(shell, data, space, **step)
            boards.append(board)
            scores |= {
                text: t.scores[board.criterion] for t in board.trials for text in templates_of(t.recipe.template)
            }
        chosen[slot] = max(choices, key=lambda choice: float(np.nan_to_num(scores[templates[choice]], nan=-np.inf)))
        steps.append(Step(slot, {template: scores[template] for template in templates.values()}, chosen[slot]))
    template = grammar.fill(chosen)
    board = _merge_steps(boards, template, shell, data, settings)
    board = replace(board, provenance={**board.provenance, "model": model_name(model)})
    shared = {name: settings[name] for name in ("batch_size", "seed", "precision", "progress") if name in settings}
    board = score_on_tests(board, shell, tests, SearchSettings(**shared), board.criterion, search_data.texts)
    return TemplateSearch(template, tuple(steps), board)


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
    """Score generated templates (`generate_templates`) on labelled data, with one pass per template (PromptBERT 4.2).

    Args:
        candidates: the templates. The other arguments are those of `search_templates`.

    Raises:
        InputError: no candidate works with the model.
        UnsupportedRecipeError: the model has no mask token.

    Example:
        >>> from essent.lab.templates import Candidate, search_candidates
        >>> candidates = [Candidate("Also called [MASK]. {text}", -9.1), Candidate("{text} is a [MASK].", -10.4)]
        >>> searched = search_candidates("my-mlm", "pairs.jsonl", candidates, baselines=["mean"])
        >>> searched.template in [candidate.template for candidate in candidates]
        True
    """
    if not read_capabilities(model, options or {}).mask:
        raise UnsupportedRecipeError("The model has no mask token, so its templates cannot have a [MASK].")
    shell = open_model(model, options or {}, with_mlm_head=reads_mlm_head(parse_mix(layers)))
    usable = tuple(candidate for candidate in candidates if _fits_model(shell, candidate.template))
    if not usable:
        raise InputError(f"None of the {len(candidates)} generated templates can be used with this model.")
    grammar = Grammar("{candidate}", {"candidate": tuple(candidate.template for candidate in usable)})
    searched = search_templates(shell, data, grammar, weights=weights, layers=layers, **arguments)
    provenance = {**searched.board.provenance, "model": model_name(model), "space": "generated templates"}
    rejected = tuple(candidate.template for candidate in candidates if candidate not in usable)
    return GeneratedSearch(searched.template, usable, rejected, replace(searched.board, provenance=provenance))


def _fits_model(shell: SentenceTransformer, template: str) -> bool:
    """Whether the tokenizer separates the template from the text, and the template leaves room for a text."""
    try:
        check_room(make_frame(shell.tokenizer, template), template, shell.max_seq_length)
    except UnsupportedRecipeError:
        return False
    return True


def _merge_steps(
    boards: Sequence[Leaderboard], template: str, shell: SentenceTransformer, data: Any, settings: dict[str, Any]
) -> Leaderboard:
    """Merge the leaderboards of all steps; the best template is the leader, and is compared with the baselines."""
    first = boards[0]
    trials = rank_trials([trial for board in boards for trial in board.trials], first.criterion)
    provenance = {**first.provenance, "space": "template grammar", "recipes": len(trials)}
    provenance["passes"] = sum(board.provenance["passes"] for board in boards)
    provenance["seconds"] = round(sum(board.provenance["seconds"] for board in boards), 2)
    merged = Leaderboard(first.criterion, trials, first.baselines, notes=first.notes)
    winner = next((str(trial.recipe) for trial in trials if trial.recipe.template == template), None)
    if merged.is_scored and winner is not None and np.isfinite(merged.find(winner).scores[first.criterion]):
        if first.judgements:
            scored = [board.judgements[0] for board in boards]
            rows = {name: row for own in scored for name, row in zip(own.names, own.evidence, strict=True)}
            scored = [replace(scored[0], names=list(rows), evidence=np.stack(list(rows.values())))]
            merged = replace(merged, winner=winner, notes=())
            merged = decide_by_labels(merged, scored, list(rows), seed=settings.get("seed", 0))
        else:  # without labels, the verdict needs a leaderboard of only the winner and the baselines
            merged = search(shell, data, Space(named=(winner,)), **{**settings, "baselines": first.baselines})
            merged = replace(merged, trials=trials, winner=winner)
            if (best := str(trials[0].recipe)) in first.baselines:
                verdict = f"No template is better than {best}, which is retained."
                merged = replace(merged, kept=best, verdict=verdict)
    return replace(merged, provenance=provenance, _source=first._source)
