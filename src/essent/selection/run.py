"""`search`: many recipes on one model, one pass a template, ranked by labels or without them.

recipes of a space ─ passes (sweep) ─ shaping, judging (stored) ─ scores ─ leaderboard (judging) ─ checks on other data
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

from sentence_transformers import SentenceTransformer

from essent._core.arithmetic import BFLOAT16
from essent._core.registry import did_you_mean
from essent._core.types import ModelLike
from essent.encoder.pipeline.digests import digest_of_backbone
from essent.errors import InputError
from essent.model.loading import Loaded, load, read_capabilities
from essent.recipe.recipe import Recipe
from essent.selection.checks import HeldOut, check_on, held_out
from essent.selection.cost import announced
from essent.selection.judging import make_board
from essent.selection.leaderboard import Leaderboard
from essent.selection.program import Program
from essent.selection.question import Question
from essent.selection.settings import BASELINES, Settings
from essent.selection.space import REFERENCE, Space, find_space
from essent.selection.store import Store
from essent.selection.stored import judge_stored
from essent.selection.sweep import Sweep
from essent.selection.verdict import decided_by_tests
from essent.tasks.base import LabeledTask, prompt_note
from essent.tasks.result import library_versions

WEIGHED = 20_000  # tokens that a criterion on token weights sees
GIB = 2**30


def search(
    model: ModelLike,
    data: Any,
    space: str | Path | Space = "full",
    *,
    criterion: str | Sequence[str] = (),
    weights: Sequence[float] = (),
    test: Sequence[LabeledTask | str] = (),
    folder: str | Path | None = None,
    settings: Settings | None = None,
    options: dict[str, Any] | None = None,
    **changes: Any,
) -> Leaderboard:
    """Score every recipe of a space on a data set, from one forward pass a template.

    Args:
        model: a hub name, a folder, or a SentenceTransformer.
        data: judgements of any kind (a task, its name such as "stsb.dev", a file or a folder as in
            `essent.tasks.load_task`, or rows in memory), or without labels: a list of texts, or of pairs of texts. A
            test part is not read. What recipes learn (idf, shaping) they learn from all of these texts. Several data
            sets are a list of tasks or of `Path`: each is searched, and the mean of the ranks decides.
        space: "heads", "layers", "weights", "shaping", "full", a YAML file of grids, or a Space.
        criterion: what ranks the recipes: a score of the data ("spearman", "accuracy", "f1_macro", "ndcg@10" …), or one
            without labels, see `essent.selection.criteria`; of several, the first ranks and all are shown. By default
            the main score of the data, without labels the best label-free criterion.
        weights: of several data sets, one each; by default all count alike.
        test: tasks on which the winner is compared with the baselines; it is not chosen on them.
        folder: local data for task names, as in `essent.tasks.load_task`.
        settings, changes: see `Settings`; `search(…, memory=2, seed=1)` sets single fields. Keyword arguments of
            SentenceTransformer (device, revision …) may stand here or in `options`.

    Raises:
        RecipeError, UnknownNameError, DataError, InputError: before the model is loaded.
        UnsupportedRecipeError: the model can run no recipe of the space; before its weights are read.
    """
    started = time.perf_counter()
    changes, options = split_options(changes, options or {})
    how = replace(settings or Settings(), **changes)
    found = find_space(space)
    questions = _questions(data, folder, criterion, weights, how.seed)
    texts = [text for question in questions for text in question.texts]
    others = held_out(test, folder, texts, [item for question in questions for item in question.judged_items])
    runner = prepare(model, found, questions, how, options)
    program, recipes, reference, left_out = runner.program, runner.recipes, runner.reference, runner.left_out
    with work_folder(how.work) as place:
        folders = [place] if len(questions) == 1 else [place / str(number + 1) for number in range(len(questions))]
        sweeps = [runner.run(question, where) for question, where in zip(questions, folders, strict=True)]
        board = make_board(questions, sweeps, recipes, reference, runner.baselines, top=how.top, seed=how.seed)
    notes = [*board.notes, *(note for question in questions if question.task for note in question.task.notes)]
    prompts, default = dict(runner.loaded.settings.get("prompts") or {}), runner.loaded.default_prompt
    for question in questions:
        applied = question.task.prompts_for(prompts, default) if question.task else {"texts": default}
        notes += [f"{question.name}: {note}" for note in prompt_note(applied)]
    if len(questions) > 1:
        notes.append(
            "Ranked by the mean of the ranks on the data sets. What a recipe learns, it learns on each by itself; a "
            "saved encoder learns it on all texts."
        )
    if left_out:
        notes.append(f"{left_out} recipes of the space {found.name!r} were left out: this model cannot run them.")
    provenance = {
        "model": model_name(model),
        "data": " + ".join(question.name for question in questions),
        "space": found.name,
        "recipes": len(recipes),
        "reference": len(reference),
        "passes": len(program.passes) * len(questions),
        "texts": sum(len(sweep.data.texts) for sweep in sweeps),
        "units": sum(question.task.units for question in questions if question.task),
        "pairs": sum(len(sweep.data.pairs) for sweep in sweeps),
        "encoded": sum(sweep.encoded for sweep in sweeps),
        "seed": how.seed,
        **({"precision": BFLOAT16} if how.precision == BFLOAT16 else {}),
        "seconds": round(time.perf_counter() - started, 2),
        "versions": library_versions(),
    }
    # the default prompt is not among them: an Encoder puts it before what it learns from
    learned = [text for question in questions for text in question.learned({} if default else prompts)]
    source = (model, tuple(learned), dict(options))
    board = replace(board, notes=tuple(notes), provenance=provenance, _source=source)
    return tested(board, model, others, how, options, questions[0].score or "")


def _questions(
    data: Any, folder: str | Path | None, criterion: str | Sequence[str], weights: Sequence[float], seed: int
) -> list[Question]:
    """One data set, or several: a list of tasks or paths (a list of strings is texts without labels)."""
    several = isinstance(data, (list, tuple)) and len(data) > 0 and all(map(_is_data_set, data))
    given = list(data) if several else [data]
    if len(weights) not in (0, len(given)):
        raise InputError(f"{len(weights)} weights for {len(given)} data sets; give one for each, or none.")
    if any(not weight > 0 for weight in weights):
        raise InputError(f"The weights of data sets must be positive, not {list(weights)!r}.")
    questions = [
        Question.of(one, folder, criterion, seed, float(weight))
        for one, weight in zip(given, weights or [1.0] * len(given), strict=True)
    ]
    names = [question.name for question in questions]
    if len(set(names)) < len(names):
        raise InputError(f"Two of the data sets {', '.join(names)} have one name; rename a file, or leave one out.")
    if len(questions) > 1 and any(question.parts for question in questions):
        raise InputError("Several data sets are ranked by their labels; criteria without labels take one data set.")
    return questions


def _is_data_set(item: Any) -> bool:
    return isinstance(item, Path) or hasattr(item, "score_vectors")


def prepare(
    model: ModelLike, found: Space, questions: Sequence[Question], how: Settings, options: dict[str, Any]
) -> Runner:
    """Load a model for the recipes of a space, the baselines, and those that relative criteria compare with."""
    capabilities = read_capabilities(model, options)
    recipes, left_out = found.expand(capabilities)
    compared = ("static",) if capabilities.only_static and how.baselines == BASELINES else how.baselines
    baselines = list(dict.fromkeys(Recipe.parse(text) for text in compared))
    recipes = list(dict.fromkeys([*recipes, *baselines]))
    reference = REFERENCE.expand(capabilities)[0] if any(question.is_relative for question in questions) else []
    every = list(dict.fromkeys([*recipes, *reference]))
    loaded = load(model, every, options)
    loaded.backbone.to(loaded.settings["device"])
    loaded.backbone.compute_in(how.precision)
    program, names = Program(every, loaded.backbone), [str(baseline) for baseline in baselines]
    return Runner(model_name(model), program, recipes, loaded, how, names, reference, left_out)


@dataclass(frozen=True)
class Runner:
    """A program on a loaded model, to be run on each data set.

    Attributes:
        recipes: those that are ranked, the baselines among them.
        reference: those that relative criteria compare with.
        left_out: how many recipes of the space the model cannot run.
    """

    model: str
    program: Program
    recipes: Sequence[Recipe]
    loaded: Loaded
    how: Settings
    baselines: Sequence[str]
    reference: Sequence[Recipe]
    left_out: int

    def run(self, question: Question, folder: Path) -> Sweep:
        """The passes over a data set, and what is judged of each recipe, in the sweep's store."""
        how, every = self.how, self.program.recipes
        prompts = dict(self.loaded.settings.get("prompts") or {})
        pairs = question.text_pairs(prompts, self.loaded.default_prompt)
        rows = [plan.rows_digest for one in self.program.passes for plan in one.singles if plan.rows_digest]
        identity = {
            **question.identity(self.model, every, pairs),
            "prompt": self.loaded.default_prompt,
            "memory": how.memory,
            "batch_size": how.batch_size,
            **({"precision": BFLOAT16} if how.precision == BFLOAT16 else {}),
            "weights": "" if how.work is None else digest_of_backbone(self.loaded.backbone, *rows),
        }
        store = Store(folder, identity, len(every), question.width, kept=how.work is not None)
        sweep = Sweep(
            self.program,
            pairs,
            store,
            memory=int(how.memory * GIB),
            batch_size=how.batch_size,
            progress=how.progress,
            keep=question.takes_vectors,
            weighed=WEIGHED if question.reads_weights else 0,
        )
        if how.report is not None:
            how.report(announced(sweep, question))
        sweep.run()
        judge_stored(sweep, question, pairs, store, progress=how.progress)
        return sweep


def tested(
    board: Leaderboard,
    model: ModelLike,
    tests: Sequence[HeldOut],
    how: Settings,
    options: dict[str, Any],
    score: str,
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
        score=score,
    )
    return decided_by_tests(board, checks)


def split_options(changes: Mapping[str, Any], options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
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


def model_name(model: ModelLike) -> str:
    """What a model is called in provenance."""
    if isinstance(model, (str, Path)):
        return str(model)
    size = sum(parameter.numel() for parameter in model.parameters())
    return f"{type(model).__name__} with {size} parameters"


@contextlib.contextmanager
def work_folder(work: str | Path | None) -> Iterator[Path]:
    """The folder given, or a temporary one."""
    if work is not None:
        yield Path(work)
        return
    with tempfile.TemporaryDirectory(prefix="essent-search-", ignore_cleanup_errors=True) as place:
        yield Path(place) / "work"
