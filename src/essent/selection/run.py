"""`search`: many recipes on one model, one pass a template, ranked by labels or without them.

recipes of a space ─ passes (sweep) ─ cosines of pairs ─ shaping (shaped) ─ scores ─ leaderboard ─ checks on other data
"""

from __future__ import annotations

import contextlib
import inspect
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from sentence_transformers import SentenceTransformer

from essent.cache import digest_of_backbone
from essent.evaluation import Bench
from essent.loading import allowed, load
from essent.recipe import Recipe
from essent.registry import did_you_mean
from essent.selection.leaderboard import Check, Leaderboard, Trial, ranked
from essent.selection.program import Program
from essent.selection.question import LABELS, Question
from essent.selection.shaped import cosines_of, score_shaped
from essent.selection.significance import Comparison, bootstrap, compare, interval, spearman
from essent.selection.space import Space, find_space
from essent.selection.store import Store
from essent.selection.sweep import Sweep
from essent.tasks import PairTask, load_pairs
from essent.tasks.result import library_versions
from essent.types import InputError

WEIGHED = 20_000  # tokens that a criterion on token weights sees
GIB = 2**30
BASELINES = ("mean", "first-last")


@dataclass(frozen=True)
class Settings:
    """How a search runs.

    Attributes:
        baselines: recipes that the winner is compared with; added to the space. The default ones are `mean` and
            `first-last`, for a static model `static`.
        top: rows that get an interval.
        seed: of resampling and of what criteria draw.
        memory: GiB for hidden states and pooled vectors, beside the model itself.
        work: a folder to keep results in; a search that was killed goes on there. None: a temporary one.
    """

    baselines: tuple[str, ...] = BASELINES
    top: int = 20
    seed: int = 0
    memory: float = 0.5
    batch_size: int = 32
    work: str | Path | None = None
    progress: bool = False

    def __post_init__(self) -> None:
        if not self.memory > 0:
            raise InputError(f"memory={self.memory!r} must be a positive number of GiB.")
        if self.top < 1 or self.batch_size < 1:
            raise InputError(f"top={self.top!r} and batch_size={self.batch_size!r} must be at least 1.")
        if isinstance(self.seed, bool) or not isinstance(self.seed, int) or self.seed < 0:
            raise InputError(f"seed={self.seed!r} must be a whole number of at least 0.")


def search(
    model: Any,
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
    others = [task if isinstance(task, PairTask) else load_pairs(task, folder) for task in test]
    allows = allowed(model, options)
    recipes, left_out = found.expand(allows)
    compared = ("static",) if allows.only_static and how.baselines == BASELINES else how.baselines
    baselines = list(dict.fromkeys(Recipe.parse(text) for text in compared))
    recipes = list(dict.fromkeys([*recipes, *baselines]))
    loaded = load(model, recipes, options)
    loaded.backbone.to(loaded.settings["device"])
    program = Program(recipes, loaded.backbone)
    pairs = question.pairs.after(loaded.default_prompt)
    rows = [plan.rows_digest for one in program.passes for plan in one.singles if plan.rows_digest]
    identity = {
        **question.identity(model_name(model), recipes),
        "prompt": loaded.default_prompt,
        "memory": how.memory,
        "batch_size": how.batch_size,
        "weights": "" if how.work is None else digest_of_backbone(loaded.backbone, *rows),
    }
    with _work_folder(how.work) as place:
        store = Store(place, identity, len(recipes), len(pairs.pairs), kept=how.work is not None)
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
        board = _board(question, sweep, [str(b) for b in baselines], how)
    notes = list(board.notes)
    if left_out:
        notes.append(f"{left_out} recipes of the space {found.name!r} were left out: this model cannot run them.")
    provenance = {
        "model": model_name(model),
        "data": question.name,
        "space": found.name,
        "recipes": len(recipes),
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
    if not others:
        return board
    checks = check_on(model, board.best, [str(b) for b in baselines], others, how, options)
    return replace(board, checks=checks)


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


def check_on(
    model: Any,
    winner: Recipe,
    baselines: Sequence[str],
    tasks: Sequence[PairTask],
    how: Settings,
    options: dict[str, Any],
) -> tuple[Check, ...]:
    """The winner against the baselines on tasks, what they learn learned anew from each task's texts."""
    recipes = list(dict.fromkeys([winner, *map(Recipe.parse, baselines)]))
    bench = Bench(model, recipes, batch_size=how.batch_size, progress=how.progress, options=options)
    checks = []
    for task in tasks:
        gold = np.array([pair.score for pair in task.pairs])
        half = np.arange(len(task))
        pairs = np.stack([half, half + len(task)], axis=1)
        cosines = {
            str(recipe): cosines_of(np.asarray(vectors, np.float32), pairs)
            for recipe, vectors in bench.vectors(task.texts(), None, None)
        }
        rows = np.stack(list(cosines.values()))
        draws = bootstrap(rows, gold, seed=how.seed)
        scores = spearman(rows, gold)
        table = {
            name: (float(score), *interval(draw)) for name, score, draw in zip(cosines, scores, draws, strict=True)
        }
        checks.append(Check(task.name, len(task), table, against(str(winner), baselines, cosines, gold, how.seed)))
    return tuple(checks)


def _board(question: Question, sweep: Sweep, baselines: Sequence[str], how: Settings) -> Leaderboard:
    """Rank the recipes; intervals and comparisons where there are gold scores."""
    recipes, store = sweep.program.recipes, sweep.store
    scores = question.scores(sweep)
    trials = [
        Trial(recipe, {name: float(values[number]) for name, values in scores.items()})
        for number, recipe in enumerate(recipes)
    ]
    order = {recipe: number for number, recipe in enumerate(recipes)}
    first = question.wanted[0]
    gold = question.gold if LABELS in scores else None
    listed = [t.recipe for t in ranked(trials, first)[: how.top]] + [Recipe.parse(text) for text in baselines]
    cosines = {str(r): np.array(store.cosines[order[r], : len(gold)]) for r in listed} if gold is not None else {}
    board = judged(trials, first, baselines, cosines, gold, how.seed)
    notes, kept = _label_free(board, question)
    return replace(board, notes=(*board.notes, *notes), kept=kept)


def _label_free(board: Leaderboard, question: Question) -> tuple[list[str], str | None]:
    """What must be said of a choice without labels, and the baseline to keep when the lead over it says nothing."""
    notes = [pseudo.note for _, pseudo, _ in question.parts if pseudo.note]
    if board.criterion == LABELS:
        return notes, None
    notes.append("Chosen without labels: trust it on a raw language model, not on one trained for sentences.")
    needed = next(made.clear_lead for made, _, _ in question.parts if made.spec() == board.criterion)
    baseline = next(iter(board.baselines), None)
    if needed is None or baseline is None:
        return notes, None
    lead = board.trials[0].scores[board.criterion] - board.find(baseline).scores[board.criterion]
    if not 0 < lead < needed:
        return notes, None
    notes.append(
        f"{board.trials[0].recipe} leads {baseline} by {lead:.3f}, which by {board.criterion!r} says nothing (below "
        f"{needed}): {baseline} is kept."
    )
    return notes, baseline


def judged(
    trials: Sequence[Trial],
    criterion: str,
    baselines: Sequence[str],
    cosines: dict[str, np.ndarray],
    gold: np.ndarray | None,
    seed: int,
) -> Leaderboard:
    """Trials ranked; with gold scores (P,), intervals of those whose cosines are given, and the winner compared."""
    rows = list(ranked(trials, criterion))
    if gold is None:
        return Leaderboard(criterion, tuple(rows), tuple(baselines))
    if np.isnan(rows[0].scores[criterion]):
        note = "No recipe has a score: there is one pair only, or the gold scores or all similarities are constant."
        return Leaderboard(criterion, tuple(rows), tuple(baselines), notes=(note,))
    at = [i for i, trial in enumerate(rows) if str(trial.recipe) in cosines]
    draws = bootstrap(np.stack([cosines[str(rows[i].recipe)] for i in at]), gold, seed=seed)
    for i, draw in zip(at, draws, strict=True):
        rows[i] = replace(rows[i], interval=interval(draw))
    comparisons = against(str(rows[0].recipe), baselines, cosines, gold, seed)
    notes: tuple[str, ...] = ()
    if criterion == LABELS:
        notes = (
            *_notes(draws),
            f"The winner was chosen among {len(rows)} recipes on the pairs it is scored on, so its score there is "
            "optimistic: report it on other data.",
        )
    return Leaderboard(criterion, tuple(rows), tuple(baselines), comparisons, notes=notes, cosines=cosines)


def against(
    winner: str, baselines: Sequence[str], cosines: Mapping[str, np.ndarray], gold: np.ndarray, seed: int
) -> tuple[Comparison, ...]:
    """A recipe against each baseline, by their cosines (P,) and the gold scores (P,)."""
    others = [baseline for baseline in baselines if baseline != winner]
    return tuple(compare((winner, o), (cosines[winner], cosines[o]), gold, seed=seed) for o in others)


def _notes(draws: np.ndarray) -> tuple[str, ...]:
    """A warning when the first row's lead is within its interval."""
    notes = []
    behind = [interval(draws[0] - draw)[0] <= 0 for draw in draws[1:]]
    if any(behind):
        notes.append(
            f"The winner's lead over {sum(behind)} of the {len(behind)} next recipes and baselines is within its "
            "interval: by these pairs alone they are as good."
        )
    return tuple(notes)


def model_name(model: Any) -> str:
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
