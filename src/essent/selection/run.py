"""`search`: many recipes on one model, one pass per template, ranked by labels or without them; `annotate`.

recipes of a space ─ passes, shaping, evidence (sweep) ─ scores, leaderboard, other data (verdict)
"""

from __future__ import annotations

import inspect
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from sentence_transformers import SentenceTransformer

from essent._core import clock
from essent._core.arguments import check_size
from essent._core.arithmetic import AUTO, precision_of
from essent._core.registry import did_you_mean
from essent._core.types import ModelLike
from essent.encoder.pipeline.digests import digest_of_backbone
from essent.errors import InputError
from essent.model.loading import load, read_capabilities
from essent.recipe.recipe import Recipe
from essent.selection.annotation import Annotation, choose_pairs, distinct_pairs
from essent.selection.label_free import candidate_pairs
from essent.selection.leaderboard import Leaderboard
from essent.selection.program import Program
from essent.selection.search_data import SearchData, read_data
from essent.selection.space import REFERENCE, Space, find_space
from essent.selection.store import Store
from essent.selection.sweep import GIB, Sweep, score_stored
from essent.selection.verdict import held_out, make_board, tested
from essent.tasks.base import LabeledTask, prompt_note
from essent.tasks.result import library_versions

BASELINES = ("mean", "first-last")


def search(
    model: ModelLike,
    data: Any,
    space: str | Path | Space = "full",
    *,
    criterion: str | Sequence[str] = (),
    weights: Sequence[float] = (),
    test: Sequence[LabeledTask | str] = (),
    folder: str | Path | None = None,
    baselines: Sequence[str] = BASELINES,
    top: int = 20,
    seed: int = 0,
    memory: float = 0.5,
    batch_size: int = 32,
    precision: str = AUTO,
    work: str | Path | None = None,
    progress: bool = False,
    report: Callable[[str], None] | None = None,
    **options: Any,
) -> Leaderboard:
    """Score every recipe of a space on a data set, from one forward pass per template.

    Args:
        model: a hub name, a folder, or a SentenceTransformer.
        data: labels of any kind (a task, its name such as "stsb.dev", a file or a folder as in
            `essent.tasks.load_task`, or rows in memory), or without labels: a list of texts, or of pairs of texts. A
            test part is not read. What recipes learn (idf, shaping) they learn from all of these texts. Several data
            sets are a list of tasks or of `Path`: each is searched, and the mean of the ranks decides.
        space: "heads", "layers", "weights", "shaping", "full", a YAML file of grids, or a Space.
        criterion: what ranks the recipes: a score of the data ("spearman", "accuracy", "f1_macro", "ndcg@10" …), or
            without labels "teacher", or "teacher:FILE" with a file of running text; of several, the first ranks and all
            are shown. By default the main score of the data, without labels "teacher".
        weights: of several data sets, one each; by default all count alike.
        test: tasks on which the winner is compared with the baselines; it is not chosen on them.
        folder: local data for task names, as in `essent.tasks.load_task`.
        baselines: recipes that the winner is compared with; added to the space. Of a static model "static" by default.
        top: rows that get an interval.
        seed: of resampling and of what the criterion without labels draws.
        memory: GiB for hidden states and pooled vectors, beside the model itself.
        precision: of the passes: auto, which is float32 on a CPU, float32, or bfloat16 where the machine computes in
            it. Sums over tokens, attention diagonals, shaping and scores are in float32 or float64 whatever it is.
        work: a folder for intermediate results; a search that was killed resumes there. None: a temporary one.
        report: called with a sentence that says how much each data set asks for: recipes, passes, texts.
        options: SentenceTransformer's keyword arguments (device, revision …).

    Raises:
        RecipeError, UnknownNameError, DataError, InputError: before the model is loaded.
        UnsupportedRecipeError: the model can run no recipe of the space; before its weights are read.
    """
    started = clock.elapsed()
    check_size(top, "top")
    settings = _checked(memory, batch_size, seed, precision, progress, options)
    space = find_space(space)
    data_sets = _data_sets(data, folder, criterion, weights, seed)
    texts = [text for own in data_sets for text in own.texts]
    tests = held_out(test, folder, texts, [unit for own in data_sets for unit in own.labelled_items])
    with run_passes(model, space, data_sets, baselines, work=work, report=report, **settings) as run:
        board = make_board(data_sets, run.sweeps, run.recipes, run.reference, run.baselines, top=top, seed=seed)
    notes = [*board.notes, *(note for own in data_sets if own.task for note in own.task.notes)]
    prompts, default = run.prompts, run.default_prompt
    for own in data_sets:
        applied = own.task.prompts_for(prompts, default) if own.task else {"texts": default}
        notes += [f"{own.name}: {note}" for note in prompt_note(applied)]
    if len(data_sets) > 1:
        notes.append(
            "Ranked by the mean of the ranks on the data sets. What a recipe learns, it learns on each by itself; a "
            "saved encoder learns it on all texts."
        )
    if run.skipped:
        notes.append(f"{run.skipped} recipes of the space {space.name!r} were left out: this model cannot run them.")
    provenance = {
        "model": model_name(model),
        "data": " + ".join(own.name for own in data_sets),
        "space": space.name,
        "recipes": len(run.recipes),
        "reference": len(run.reference),
        "passes": len(run.sweeps[0].program.passes) * len(data_sets),
        "texts": sum(len(sweep.data.texts) for sweep in run.sweeps),
        "units": sum(own.task.units for own in data_sets if own.task),
        "pairs": sum(len(sweep.data.pairs) for sweep in run.sweeps),
        "encoded": sum(sweep.encoded for sweep in run.sweeps),
        "seed": seed,
        "precision": settings["precision"],
        "seconds": round(clock.elapsed() - started, 2),
        "versions": library_versions(),
    }
    # the default prompt is not among them: an Encoder puts it before what it learns from
    learned = [text for own in data_sets for text in own.texts_to_learn_from({} if default else prompts)]
    board = replace(board, notes=tuple(notes), provenance=provenance, _source=(model, tuple(learned), dict(options)))
    score = data_sets[0].score or ""
    return tested(
        board, model, tests, batch_size=batch_size, seed=seed, progress=progress, options=options, score=score
    )


def annotate(
    model: ModelLike,
    data: Any,
    space: str | Path | Space = "full",
    *,
    count: int = 50,
    baselines: Sequence[str] = BASELINES,
    seed: int = 0,
    memory: float = 0.5,
    batch_size: int = 32,
    precision: str = AUTO,
    work: str | Path | None = None,
    progress: bool = False,
    report: Callable[[str], None] | None = None,
    **options: Any,
) -> Annotation:
    """The pairs whose annotation tells the recipes of a space apart, from one forward pass per template.

    Args:
        model, space, baselines, seed, memory, batch_size, precision, work, report, options: as in `search`.
        data: unlabelled texts, from which near, related and random pairs are drawn, or unlabelled pairs.
        count: N, how many pairs.

    Raises:
        InputError: data with labels, or fewer candidates than are asked for.
        RecipeError, UnknownNameError: before the model is loaded.
        UnsupportedRecipeError: the model can run no recipe of the space.
    """
    check_size(count, "count")
    settings = _checked(memory, batch_size, seed, precision, progress, options)
    space = find_space(space)
    name, task, texts, own_pairs = read_data(data, None)
    if task is not None:
        raise InputError(f"{name} has labels already; pairs to judge are chosen from texts or pairs without.")
    candidates = candidate_pairs(texts, own_pairs, seed)
    distinct = distinct_pairs(candidates, count)
    data_set = SearchData(name, None, tuple(texts), (), tuple(candidates))
    with run_passes(model, space, [data_set], baselines, work=work, report=report, **settings) as run:
        cosines = np.array(run.sweeps[0].store.rows[: len(run.recipes)])[:, distinct]
    indices, reasons = choose_pairs(cosines, count, np.random.default_rng(seed))
    pairs = tuple(candidates[distinct[index]] for index in indices)
    return Annotation(pairs, tuple(reasons), tuple(own_pairs or texts))


def _checked(
    memory: float, batch_size: int, seed: int, precision: str, progress: bool, options: dict[str, Any]
) -> dict[str, Any]:
    """Arguments of `run_passes`.

    Raises:
        InputError: a setting out of its range, or one that neither `search` nor SentenceTransformer takes.
    """
    if not memory > 0:
        raise InputError(f"memory={memory!r} must be a positive number of GiB.")
    check_size(batch_size, "batch_size")
    if type(seed) is not int or seed < 0:
        raise InputError(f"seed={seed!r}: must be a whole number of at least 0.")
    known = [
        name for function in (search, SentenceTransformer.__init__) for name in inspect.signature(function).parameters
    ]
    for name in options:
        if name not in known:
            raise InputError(f"search takes no {name!r}. {did_you_mean(name, known)}")
    settings = {"memory": memory, "batch_size": batch_size, "progress": progress}
    return {**settings, "precision": precision_of(precision), "options": options}


def _data_sets(
    data: Any, folder: str | Path | None, criterion: str | Sequence[str], weights: Sequence[float], seed: int
) -> list[SearchData]:
    """One data set, or several: a list of tasks or paths (a list of strings is texts without labels)."""
    several = (
        isinstance(data, (list, tuple))
        and len(data) > 0
        and all(isinstance(entry, Path) or hasattr(entry, "score_vectors") for entry in data)
    )
    entries = list(data) if several else [data]
    if len(weights) not in (0, len(entries)):
        raise InputError(f"{len(weights)} weights for {len(entries)} data sets; give one for each, or none.")
    if any(not weight > 0 for weight in weights):
        raise InputError(f"The weights of data sets must be positive, not {list(weights)!r}.")
    data_sets = [
        SearchData.of(entry, folder, criterion, seed, float(weight))
        for entry, weight in zip(entries, weights or [1.0] * len(entries), strict=True)
    ]
    names = [own.name for own in data_sets]
    if len(set(names)) < len(names):
        raise InputError(f"Two of the data sets {', '.join(names)} have one name; rename a file, or leave one out.")
    if len(data_sets) > 1 and any(own.teacher for own in data_sets):
        raise InputError("Several data sets are ranked by their labels; criteria without labels take one data set.")
    return data_sets


def model_name(model: ModelLike) -> str:
    """What a model is called in provenance."""
    if isinstance(model, (str, Path)):
        return str(model)
    size = sum(parameter.numel() for parameter in model.parameters())
    return f"{type(model).__name__} with {size} parameters"


# -- the passes -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Passes:
    """What `run_passes` ran.

    Attributes:
        sweeps: of each data set; their stores have the rows.
        recipes: those that are ranked, the baselines among them; the first rows of each store.
        reference: those that `teacher` compares with.
        skipped: how many recipes of the space the model cannot run.
        prompts, default_prompt: the model's.
    """

    sweeps: list[Sweep]
    recipes: list[Recipe]
    baselines: list[str]
    reference: list[Recipe]
    skipped: int
    prompts: dict[str, str]
    default_prompt: str


@contextmanager
def run_passes(
    model: ModelLike,
    space: Space,
    data_sets: Sequence[SearchData],
    baselines: Sequence[str],
    *,
    memory: float,
    batch_size: int,
    precision: str,
    work: str | Path | None,
    progress: bool,
    report: Callable[[str], None] | None,
    options: dict[str, Any],
) -> Iterator[Passes]:
    """Every recipe of a space on every data set, in stores that are read within the block; arguments as in `search`."""
    capabilities = read_capabilities(model, options)
    ranked, skipped = space.expand(capabilities)
    if capabilities.only_static and tuple(baselines) == BASELINES:
        baselines = ("static",)
    compared = list(dict.fromkeys(map(Recipe.parse, baselines)))
    recipes = list(dict.fromkeys([*ranked, *compared]))
    reference = REFERENCE.expand(capabilities)[0] if any(own.teacher for own in data_sets) else []
    every = list(dict.fromkeys([*recipes, *reference]))
    loaded = load(model, every, options)
    backbone, prompts = loaded.backbone, dict(loaded.settings.get("prompts") or {})
    backbone.to(loaded.settings["device"])
    backbone.compute_in(precision)
    program = Program(every, backbone)
    search_identity = {
        "prompt": loaded.default_prompt,
        "memory": memory,
        "batch_size": batch_size,
        "precision": precision,
        "weights": "" if work is None else digest_of_backbone(backbone, *(plan.rows_digest for plan in program.plans)),
    }
    with tempfile.TemporaryDirectory(prefix="essent-search-", ignore_cleanup_errors=True) as temporary:
        folder = Path(temporary) / "work" if work is None else Path(work)
        sweeps = []
        for number, data in enumerate(data_sets, start=1):
            pairs = data.text_pairs(prompts, loaded.default_prompt)
            identity = {**data.identity(model_name(model), every, pairs), **search_identity}
            own_folder = folder if len(data_sets) == 1 else folder / str(number)
            store = Store(own_folder, identity, len(every), data.width, durable=work is not None)
            sizes: dict[str, Any] = {"memory": int(memory * GIB), "batch_size": batch_size, "progress": progress}
            sweep = Sweep(program, pairs, store, **sizes, keep_all=data.takes_vectors)
            if report is not None:
                passes = f"{len(program.passes)} pass{'es' * (len(program.passes) != 1)}"
                report(f"{data.name}: {len(every):,} recipes, {passes} over {len(pairs.texts):,} texts.")
            sweep.run()
            score_stored(sweep, data)
            sweeps.append(sweep)
        yield Passes(sweeps, recipes, list(map(str, compared)), reference, skipped, prompts, loaded.default_prompt)
