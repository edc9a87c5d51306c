"""`search` and `annotate`: many recipes on one model, one pass per template, ranked with or without labels.

recipes of a space ─ passes, shaping, evidence (sweep) ─ scores, leaderboard, test data (verdict)
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from essent._core import machine
from essent._core.arguments import ModelLike, check_size
from essent._core.machine import AUTO
from essent.encoder.module import digest_of_backbone
from essent.errors import InputError
from essent.model.loading import is_trained_for_sentences, load, read_capabilities
from essent.model.template import with_room
from essent.model.weights import move
from essent.recipe.recipe import Recipe
from essent.selection.annotation import PRIOR, AnnotatedPairs, choose_pairs
from essent.selection.evaluation import model_name
from essent.selection.label_free import candidate_pairs
from essent.selection.leaderboard import Leaderboard, Trial, rank_trials
from essent.selection.program import Program
from essent.selection.search_data import SearchData, SearchSettings, held_out, read_data
from essent.selection.space import REFERENCE, Space, find_space
from essent.selection.sweep import Store, Sweep, score_stored
from essent.selection.topics import CRITERIA, TOPICS, Topics, check_judged, check_use, is_label_free, misfit
from essent.selection.verdict import decide_by_labels, decide_by_teacher, decide_by_topics, mean_ranks, score_on_tests
from essent.tasks.base import LabeledTask, prompt_note
from essent.tasks.comparison import Scored
from essent.tasks.examples import NO_TABLE
from essent.tasks.result import library_versions

BASELINES = ("mean", "first-last")
NO_SCORE = "No recipe has a score: there is only one labelled example, or the labels or all similarities are constant."
RANKS = "mean rank"  # over several data sets; 1 for a recipe that is the best on each


def search(
    model: ModelLike,
    data: Any,
    space: str | Path | Space = "auto",
    *,
    use: str | None = None,
    criterion: str | Sequence[str] = (),
    test: Sequence[LabeledTask | str] = (),
    folder: str | Path | None = None,
    columns: Mapping[str, str] | None = None,
    baselines: Sequence[str] = BASELINES,
    top: int = 20,
    seed: int = 0,
    memory: float = 0.5,
    batch_size: int = 32,
    precision: str = AUTO,
    work: str | Path | None = None,
    progress: bool = False,
    **options: Any,
) -> Leaderboard:
    """Score every recipe of a space on your data and compare the best with baselines; one forward pass per template.

    Args:
        model: a hub name, a folder, or a SentenceTransformer.
        data: labelled data of any kind: a task, its name such as "stsb.dev", a file or folder for
            `essent.tasks.load_task`, or rows in memory. Without labels: a list of texts. A test
            part is never read. Recipes learn (idf, shaping) from all of these texts. Several data sets are a list of
            tasks or of `Path`: each is searched separately, and the mean of the ranks decides.
        space: "auto", "heads", "layers", "weights", "shaping", "full", "decoder", a YAML file of grids, or a Space.
        use: what the vectors are for, if there are no labels: similarity (the default), clusters, classes, retrieval.
        criterion: the score that ranks: a score of the data ("spearman", "accuracy", "f1_macro", "ndcg@10" …), or
            without labels "teacher" (similarity) or "topics" (clusters). Of several, the first ranks and decides, and
            all are shown. By default the main score of the data; without labels the criterion of the use.
        test: tasks on which the leader is compared with the baselines, fitted on `data` as they are saved; the choice
            does not read them.
        folder: local data for task names, as in `essent.tasks.load_task`.
        columns: names of the columns of labelled files and rows by role, such as {"text": "body", "label":
            "category"}; see `essent.tasks.load_task`.
        baselines: recipes that the leader is compared with, the most important first; added to the space. By default,
            the own pooling of a model that was trained for sentences comes first, and static models have "static".
        top: number of rows with an interval.
        seed: of resampling and of the pairs that "teacher" draws.
        memory: GiB for hidden states and pooled vectors, in addition to the model.
        batch_size: texts per forward pass.
        precision: of the passes: auto (float32 on a CPU), float32, or bfloat16 on hardware that supports it. Sums over
            tokens, attention diagonals, shaping and scores are always in float32 or float64.
        work: a folder for intermediate results, from which a killed search resumes. None: a temporary folder.
        progress: show progress bars.
        options: SentenceTransformer's keyword arguments (device, revision …).

    Raises:
        RecipeError, UnknownNameError, DataError, InputError: before the model is loaded.
        UnsupportedRecipeError: the model cannot run any recipe of the space; before its weights are read.

    Example:
        >>> from essent import search
        >>> board = search("sentence-transformers/all-MiniLM-L6-v2", "pairs.jsonl", "weights")
        >>> len(board.trials), str(board.best)
        (27, 'mean')
    """
    started = machine.elapsed()
    check_size(top, "top")
    settings = SearchSettings(memory, batch_size, seed, precision, progress, work, options)
    space = find_space(space)
    data_sets = _data_sets(data, folder, columns, criterion, seed, check_use(use))
    tasks = [data_set.task for data_set in data_sets if data_set.task is not None]
    if columns and not test and not tasks:
        raise InputError(NO_TABLE)
    labelled = [item for data in data_sets if data.task is not None and data.score for item in data.task.read_items()]
    tests = held_out(test, folder, labelled, columns)
    with run_passes(model, space, data_sets, baselines, settings) as run:
        board = make_board(run, top, seed)
    notes = [*board.notes, *(note for task in tasks for note in task.notes)]
    if not (CRITERIA[data_sets[0].use] == TOPICS and isinstance(data_sets[0].task, AnnotatedPairs)):
        notes += misfit(tasks, use)
    learned: list[str] = []  # without the default prompt: an Encoder adds it to its fit texts itself
    if combined := data_sets[0].combined:
        prior = PRIOR[combined]
        notes.append(f"Ranked by {tasks[0].units} judged pairs and {combined}, which counts as {prior} more pairs.")
    for data_set in data_sets:
        task, prompts, default = data_set.task, run.prompts, run.default_prompt
        applied = {"texts": default} if task is None else task.prompts_for(prompts, default)
        notes += [f"{data_set.name}: {note}" for note in prompt_note(applied)]
        if task is not None and task.kind == "retrieval":
            learned += task.texts_for({} if default else prompts)
        else:
            learned += data_set.texts
    if len(data_sets) > 1:
        notes.append(
            "Ranked by the mean of the ranks on the data sets. In the search, recipes learn from each data set "
            "separately; a saved encoder learns from all texts."
        )
    if run.skipped:
        notes.append(f"{run.skipped} recipes of the space {space.name!r} were excluded: this model cannot run them.")
    provenance = {
        "model": model_name(model),
        "data": " + ".join(data_set.name for data_set in data_sets),
        "space": space.name,
        "recipes": len(run.recipes),
        "passes": len(run.sweeps[0].program.passes) * len(data_sets),
        "texts": sum(len(sweep.pairs.texts) for sweep in run.sweeps),
        "units": sum(task.units for task in tasks),
        "encoded": sum(sweep.encoded for sweep in run.sweeps),
        "seed": seed,
        "precision": settings.precision,
        "seconds": round(machine.elapsed() - started, 2),
        "versions": library_versions(),
    }
    board = replace(board, notes=tuple(notes), provenance=provenance, _source=(model, tuple(learned), dict(options)))
    return score_on_tests(board, model, tests, settings, data_sets[0].score or "", learned)


def annotate(
    model: ModelLike,
    data: Any,
    space: str | Path | Space = "auto",
    *,
    count: int = 50,
    use: str | None = None,
    seed: int = 0,
    batch_size: int = 32,
    precision: str = AUTO,
    work: str | Path | None = None,
    progress: bool = False,
    **options: Any,
) -> list[tuple[str, str]]:
    """Select the pairs whose labels best tell the recipes of a space apart, from one forward pass per template.

    They are in random order, so that any first part is a sample. `read_annotated` reads a file of them with scores.

    Args:
        model, space, seed, batch_size, precision, work, progress, options: as in `search`.
        data: unlabelled texts, from which near, related and random pairs are drawn.
        count: number of pairs.
        use: as in `search`; for clusters and classes, the texts are checked for the criterion `topics` too.

    Raises:
        InputError: data with labels, fewer candidates than `count`, or texts or a use that `search` would refuse.
        RecipeError, UnknownNameError: before the model is loaded.
        UnsupportedRecipeError: the model cannot run any recipe of the space.

    Example:
        >>> from pathlib import Path
        >>> from essent.selection import annotate
        >>> texts = Path("texts.txt").read_text(encoding="utf-8").splitlines()
        >>> pairs = annotate("sentence-transformers/all-MiniLM-L6-v2", texts, "weights", count=4)
        >>> len(pairs)
        4
    """
    check_size(count, "count")
    settings = SearchSettings(
        batch_size=batch_size, seed=seed, precision=precision, progress=progress, work=work, options=options
    )
    space = find_space(space)
    name, task, texts = read_data(data, None)
    if task is not None:
        raise InputError(f"{name} already has labels. annotate needs texts without labels.")
    check_judged(use := check_use(use))
    if CRITERIA[use] == TOPICS:
        Topics.of(texts, seed)
    candidates = list({frozenset(pair): pair for pair in candidate_pairs(texts, (), seed)}.values())
    if count > len(candidates):
        raise InputError(
            f"Cannot select {count} pairs to annotate: the data has only {len(candidates)}. Give more texts, or use "
            f"--ask {len(candidates)}."
        )
    data_set = SearchData(name, None, tuple(texts), (), tuple(candidates))
    with run_passes(model, space, [data_set], BASELINES, settings) as run:
        cosines = np.array(run.sweeps[0].store.rows[: len(run.recipes)])
    return [candidates[index] for index in choose_pairs(cosines, count, np.random.default_rng(seed))]


def _data_sets(
    data: Any,
    folder: str | Path | None,
    columns: Mapping[str, str] | None,
    criterion: str | Sequence[str],
    seed: int,
    use: str,
) -> list[SearchData]:
    """Read one data set or several: a list of tasks or paths (a list of strings is texts without labels)."""
    sources: Sequence[Any] = data if isinstance(data, (list, tuple)) and data else [data]
    if not all(isinstance(row, Path) or hasattr(row, "score_vectors") for row in sources):
        sources = [data]
    data_sets = [SearchData.of(source, folder, criterion, seed, use, columns) for source in sources]
    names = [data_set.name for data_set in data_sets]
    if len(set(names)) < len(names):
        raise InputError(f"Two of the data sets {', '.join(names)} have the same name. Rename a file, or remove one.")
    all_criteria = [name for data_set in data_sets for name in data_set.criteria]
    if len(data_sets) > 1 and (label_free := next(filter(is_label_free, all_criteria), None)):
        raise InputError(
            f"{label_free!r} ranks recipes on one data set only. Use scores by labels, or search one data set."
        )
    return data_sets


# -- the passes -------------------------------------------------------------------------------------------------------


class Passes(NamedTuple):
    """The outputs of all passes of a search.

    Attributes:
        sweeps: one per data set; their stores contain the rows.
        recipes: the ranked recipes, baselines included; the first rows of each store.
        reference: the reference recipes of `teacher`.
        skipped: number of recipes of the space that the model cannot run.
        trained: whether the model was trained for sentences.
        prompts, default_prompt: of the model.
    """

    sweeps: list[Sweep]
    recipes: list[Recipe]
    baselines: list[str]
    reference: list[Recipe]
    skipped: int
    trained: bool
    prompts: dict[str, str]
    default_prompt: str


@contextmanager
def run_passes(
    model: ModelLike, space: Space, data_sets: Sequence[SearchData], baselines: Sequence[str], settings: SearchSettings
) -> Iterator[Passes]:
    """Run every recipe of a space on every data set; the stores exist within the block."""
    capabilities = read_capabilities(model, settings.options)
    trained = is_trained_for_sentences(model, settings.options)
    recipes, skipped = space.expand(capabilities)
    if capabilities.only_static and tuple(baselines) == BASELINES:
        baselines = ("static",)
    compared = list(dict.fromkeys(map(Recipe.parse, baselines)))
    reference = REFERENCE.expand(capabilities)[0] if any(data.teacher or data.topics for data in data_sets) else []
    loaded = load(model, [*recipes, *compared, *reference], settings.options)
    backbone, prompts = loaded.backbone, dict(loaded.settings.get("prompts") or {})
    if trained and tuple(baselines) == BASELINES and loaded.own is not None:
        own = replace(loaded.own, shaping=())  # without normalize, which changes no cosine
        compared = compared if own in compared else [own, *compared]
    fitting = with_room(recipes, backbone.tokenizer, backbone.max_seq_length)
    skipped += len(recipes) - len(fitting)
    recipes = list(dict.fromkeys([*fitting, *compared]))
    reference = with_room(reference, backbone.tokenizer, backbone.max_seq_length)
    all_recipes = list(dict.fromkeys([*recipes, *reference]))
    move(backbone, loaded.settings["device"])
    backbone.compute_in(settings.precision)
    program, durable = Program(all_recipes, backbone), settings.work is not None
    matrices: list[object] = [plan.rows_digest for plan in program.plans]  # no weights of the backbone
    if backbone.output_moments is not None:
        matrices += backbone.output_moments.mean.tolist()
    digest = digest_of_backbone(backbone, *matrices) if durable else ""
    search_identity = {
        "prompt": loaded.default_prompt,
        "memory": settings.memory,
        "batch_size": settings.batch_size,
        "precision": settings.precision,
        "weights": digest,
    }
    sweeps = []
    with tempfile.TemporaryDirectory(prefix="essent-search-", ignore_cleanup_errors=True) as temporary:
        folder = Path(temporary, "work") if settings.work is None else Path(settings.work)
        for number, data in enumerate(data_sets, start=1):
            pairs = data.text_pairs(prompts, loaded.default_prompt)
            identity = {**data.identity(model_name(model), all_recipes, pairs), **search_identity}
            own_folder = folder if len(data_sets) == 1 else folder / str(number)
            store = Store(own_folder, identity, len(all_recipes), data.measures.stop, durable=durable)
            sweep = Sweep(program, data, pairs, store, settings)
            sweep.run()
            score_stored(sweep)
            sweeps.append(sweep)
        names, default = list(map(str, compared)), loaded.default_prompt
        yield Passes(sweeps, recipes, names, reference, skipped, trained, prompts, default)


# -- the leaderboard --------------------------------------------------------------------------------------------------


def make_board(run: Passes, top: int, seed: int) -> Leaderboard:
    """Rank the recipes, with intervals of the `top` first rows and of the baselines, and choose the best."""
    names, count, baselines = list(map(str, run.recipes)), len(run.recipes), tuple(run.baselines)
    data, rows, teacher = run.sweeps[0].data, run.sweeps[0].store.rows, run.sweeps[0].data.teacher
    scored = [
        Scored(task, score, names, sweep.store.rows[:count, sweep.data.evidence])
        for sweep in run.sweeps
        if (task := sweep.data.task) is not None and (score := sweep.data.score) is not None
    ]
    scores: dict[str, np.ndarray] = {}
    if len(run.sweeps) > 1:
        by_name = {data_set.task.name: data_set.scores() for data_set in scored}
        scores = {RANKS: mean_ranks(list(by_name.values())), **by_name}
    if teacher is not None:
        position = {recipe: number for number, recipe in enumerate(run.sweeps[0].program.recipes)}
        teacher = teacher.with_reference(rows[[position[recipe] for recipe in run.reference]][:, data.extra])
    for spec in data.criteria if len(run.sweeps) == 1 else ():
        if data.topics is not None and spec == TOPICS:  # ranked among the reference recipes too
            scores[spec] = data.topics.scores(rows[:, data.measures])[:count]
        elif teacher is not None and is_label_free(spec):
            scores[spec] = teacher.scores(rows[:count, data.extra])
        else:
            scores[spec] = replace(scored[0], score=spec).scores()
    if data.combined:
        scored = [replace(scored[0], prior=100 * scores[data.combined], prior_units=PRIOR[data.combined])]
        scores = {f"judged + {data.combined}": scored[0].ranking(scores[data.criteria[0]]), **scores}
    criterion = next(iter(scores))
    trials = [
        Trial(recipe, {name: float(values[number]) for name, values in scores.items()})
        for number, recipe in enumerate(run.recipes)
    ]
    board = Leaderboard(criterion, rank_trials(trials, criterion), baselines)
    listed = list(dict.fromkeys([*(str(trial.recipe) for trial in board.trials[:top]), *baselines]))
    if not board.is_scored:
        return replace(board, notes=(NO_SCORE,))
    if TOPICS in (criterion, data.combined):
        return decide_by_topics(board, data.use, pairs=scored[0].task.units if data.combined else 0)
    if teacher is None or not is_label_free(criterion):
        return decide_by_labels(board, scored, listed, seed=seed)
    cosines = np.array(rows[[names.index(name) for name in listed], data.extra])
    return decide_by_teacher(board, listed, cosines, teacher, seed, data.use, trained=run.trained)
