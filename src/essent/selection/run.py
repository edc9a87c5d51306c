"""`search`: many recipes on one model, one pass a template, ranked by labels or without them.

recipes of a space ─ passes (sweep) ─ cosines of pairs ─ shaping (shaped) ─ scores ─ leaderboard ─ checks on other data
"""

from __future__ import annotations

import contextlib
import inspect
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from sentence_transformers import SentenceTransformer

from essent.model import load, read_capabilities
from essent.pipeline import digest_of_backbone
from essent.recipe import Recipe
from essent.registry import did_you_mean
from essent.selection.checks import HeldOut, check_on, held_out
from essent.selection.judging import Scored, judged, judged_without_labels
from essent.selection.leaderboard import Leaderboard, Trial, ranked
from essent.selection.program import Program
from essent.selection.question import LABELS, Question
from essent.selection.settings import BASELINES, Settings
from essent.selection.shaped import score_shaped
from essent.selection.space import REFERENCE, Space, find_space
from essent.selection.store import Store
from essent.selection.sweep import Sweep
from essent.selection.verdict import decided_by_tests
from essent.tasks import PairTask, library_versions
from essent.types import InputError, ModelLike

WEIGHED = 20_000  # tokens that a criterion on token weights sees
GIB = 2**30


def search(
    model: ModelLike,
    data: Any,
    space: str | Path | Space = "full",
    *,
    criterion: str | Sequence[str] = (),
    test: Sequence[PairTask | str] = (),
    folder: str | Path | None = None,
    settings: Settings | None = None,
    options: dict[str, Any] | None = None,
    **changes: Any,
) -> Leaderboard:
    """Score every recipe of a space on pairs of sentences, from one forward pass a template.

    Args:
        model: a hub name, a folder, or a SentenceTransformer.
        data: scored pairs (a PairTask, a task's name such as "stsb.dev", a file of pairs, or in memory as
            `PairTask.from_rows` takes them), or without labels: a list of texts, or of pairs of texts. What recipes
            learn (idf, shaping) they learn from all of these texts.
        space: "heads", "layers", "weights", "shaping", "full", a YAML file of grids, or a Space.
        criterion: what ranks the recipes, see `essent.selection.criteria`; of several, the first ranks and all are
            shown. By default "spearman" with gold scores, the best label-free criterion without.
        test: tasks on which the winner is compared with the baselines; it is not chosen on them.
        folder: local data for task names, as in `essent.tasks.load_task`.
        settings, changes: see `Settings`; `search(…, memory=2, seed=1)` sets single fields. Keyword arguments of
            SentenceTransformer (device, revision …) may stand here or in `options`.

    Raises:
        RecipeError, UnknownNameError, DataError, InputError: before the model is loaded.
        UnsupportedRecipeError: the model can run no recipe of the space; before its weights are read.
    """
    started = time.perf_counter()
    changes, options = _split(changes, options or {})
    how = replace(settings or Settings(), **changes)
    found = find_space(space)
    question = Question.of(data, folder, criterion, how.seed)
    others = held_out(test, folder, question.pairs.fit_texts(), question.scored_pairs)
    capabilities = read_capabilities(model, options)
    recipes, left_out = found.expand(capabilities)
    compared = ("static",) if capabilities.only_static and how.baselines == BASELINES else how.baselines
    baselines = list(dict.fromkeys(Recipe.parse(text) for text in compared))
    recipes = list(dict.fromkeys([*recipes, *baselines]))
    reference = REFERENCE.expand(capabilities)[0] if question.is_relative else []
    every = list(dict.fromkeys([*recipes, *reference]))
    loaded = load(model, every, options)
    loaded.backbone.to(loaded.settings["device"])
    program = Program(every, loaded.backbone)
    pairs = question.pairs.after(loaded.default_prompt)
    rows = [plan.rows_digest for one in program.passes for plan in one.singles if plan.rows_digest]
    identity = {
        **question.identity(model_name(model), every),
        "prompt": loaded.default_prompt,
        "memory": how.memory,
        "batch_size": how.batch_size,
        "weights": "" if how.work is None else digest_of_backbone(loaded.backbone, *rows),
    }
    with _work_folder(how.work) as place:
        store = Store(place, identity, len(every), len(pairs.pairs), kept=how.work is not None)
        sweep = Sweep(
            program,
            pairs,
            store,
            memory=int(how.memory * GIB),
            batch_size=how.batch_size,
            progress=how.progress,
            weighed=WEIGHED if question.reads_weights else 0,
        )
        sweep.run()
        score_shaped(sweep, pairs, store, progress=how.progress)
        board = _board(question, sweep, recipes, reference, [str(b) for b in baselines], how)
    notes = list(board.notes)
    if left_out:
        notes.append(f"{left_out} recipes of the space {found.name!r} were left out: this model cannot run them.")
    provenance = {
        "model": model_name(model),
        "data": question.name,
        "space": found.name,
        "recipes": len(recipes),
        "reference": len(reference),
        "passes": len(program.passes),
        "texts": len(question.pairs.texts),
        "pairs": len(question.pairs.pairs),
        "encoded": sweep.encoded,
        "seed": how.seed,
        "seconds": round(time.perf_counter() - started, 2),
        "versions": library_versions(),
    }
    source = (model, tuple(question.pairs.fit_texts()), dict(options))
    board = replace(board, notes=tuple(notes), provenance=provenance, _source=source)
    return tested(board, model, others, how, options)


def tested(
    board: Leaderboard, model: ModelLike, tests: Sequence[HeldOut], how: Settings, options: dict[str, Any]
) -> Leaderboard:
    """The leaderboard with its leader scored on other tasks, which then decide whether a baseline is kept."""
    if not tests:
        return board
    checks = check_on(
        model,
        board.leader,
        board.baselines,
        tests,
        batch_size=how.batch_size,
        seed=how.seed,
        progress=how.progress,
        options=options,
    )
    return decided_by_tests(board, checks)


def _split(changes: Mapping[str, Any], options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Fields of `Settings`, and what else SentenceTransformer takes.

    Raises:
        InputError: neither takes it.
    """
    fields = list(Settings.__dataclass_fields__)
    known = [name for name in inspect.signature(SentenceTransformer.__init__).parameters if name != "self"]
    for name in changes:
        if name not in fields and name not in known:
            raise InputError(f"search takes no {name!r}. {did_you_mean(name, [*fields, *known])}")
    others = {name: value for name, value in changes.items() if name not in fields}
    return {name: value for name, value in changes.items() if name in fields}, {**options, **others}


def _board(
    question: Question,
    sweep: Sweep,
    recipes: Sequence[Recipe],
    reference: Sequence[Recipe],
    baselines: Sequence[str],
    how: Settings,
) -> Leaderboard:
    """Rank the recipes, with intervals of the first and of the baselines, and decide what is the best."""
    store = sweep.store
    order = {recipe: number for number, recipe in enumerate(sweep.program.recipes)}
    settled = question.settled(store.cosines, [order[recipe] for recipe in reference])
    scores = settled.scores(sweep, len(recipes))
    trials = [
        Trial(recipe, {name: float(values[number]) for name, values in scores.items()})
        for number, recipe in enumerate(recipes)
    ]
    first = question.wanted[0]
    listed = list(dict.fromkeys([*(t.recipe for t in ranked(trials, first)[: how.top]), *map(Recipe.parse, baselines)]))
    rows = {str(recipe): order[recipe] for recipe in listed}
    if question.gold is not None and LABELS in scores:
        count = len(question.gold)
        names = [str(recipe) for recipe in recipes]
        scored = Scored(names, store.cosines[: len(recipes), :count], question.gold, question.pairs.pairs[:count])
        return judged(trials, first, baselines, scored, list(rows), seed=how.seed)
    return judged_without_labels(trials, first, baselines, store.cosines, rows, settled, how.seed)


def model_name(model: ModelLike) -> str:
    """What a model is called in provenance."""
    if isinstance(model, (str, Path)):
        return str(model)
    size = sum(parameter.numel() for parameter in model.parameters())
    return f"{type(model).__name__} with {size} parameters"


@contextlib.contextmanager
def _work_folder(work: str | Path | None) -> Iterator[Path]:
    if work is not None:
        yield Path(work)
        return
    with tempfile.TemporaryDirectory(prefix="essent-search-", ignore_cleanup_errors=True) as place:
        yield Path(place) / "work"
