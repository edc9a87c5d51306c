"""Recipes × tasks: one load, shared forward passes, shaping fitted on each task's own texts (or on others)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sentence_transformers import SentenceTransformer

from essent._core.arguments import check_size
from essent._core.arithmetic import AUTO
from essent._core.folders.contents import is_essent_folder, is_exported_folder
from essent._core.texts import check_texts
from essent._core.types import ModelLike
from essent.encoder.encoder import Encoder, open_as_it_is
from essent.encoder.pipeline.cache import PooledCache
from essent.encoder.pipeline.digests import digest_of_backbone, key_of
from essent.encoder.pipeline.plan import Plan
from essent.encoder.pipeline.shared_pass import as_module, count_frames, pool_texts
from essent.engine.choice import EngineChoice, choose
from essent.engine.files import load as load_exported
from essent.errors import DataError, InputError
from essent.model.loading import load
from essent.model.token_rows import is_static
from essent.recipe.recipe import Recipe
from essent.recipe.shaping.chain import Chain
from essent.recipe.types import CorpusStats
from essent.selection.by_recipe import ByRecipe
from essent.selection.program import cut_to
from essent.tasks.base import Task, TaskLike, prompt_note
from essent.tasks.labels import LabelTask
from essent.tasks.locate import as_task
from essent.tasks.result import Result

# What every model runs and papers compare with; no attention head, no [MASK].
DEFAULT_RECIPES = (
    "cls",
    "mean",
    "last2",
    "first-last",
    "static",
    "static-remove-biases",
    "first-last | zscore",
    "first-last-idf-zscore",
)
STATIC_RECIPES = (
    "static",
    "static weights=remove",
    "static weights=idf",
    "static weights=sif | abtt:1",
    "static | zscore",
    "static weights=idf | zscore",
)


def evaluate(
    model: ModelLike,
    recipes: Sequence[Recipe | str],
    tasks: Sequence[TaskLike],
    *,
    data: str | Path | None = None,
    fit_texts: Sequence[str] | None = None,
    frequency_texts: Sequence[str] | None = None,
    batch_size: int = 32,
    progress: bool = False,
    cache: str | Path | None = None,
    max_seq_length: int | None = None,
    shots: Sequence[int] = (),
    engine: str = AUTO,
    precision: str = AUTO,
    report: Callable[[str, Result], None] | None = None,
    **options: Any,
) -> ByRecipe:
    """Score recipes on tasks; recipes with one template share one pass over a task's texts.

    What a recipe learns (idf, shaping, flow) is learned anew for each task from all its texts, both sides of all pairs,
    duplicates included: the papers' protocol (superscript T).

    Args:
        model: a hub name, a folder, or a SentenceTransformer.
        recipes: recipes or their text forms; none scores the model as it is: a saved Encoder with what it has learned,
            an exported graph, a sentence-transformers model with its own pooling, anything with `encode`.
        tasks: tasks of any kind, names, files or folders for `essent.tasks.load_task` with `data`, or rows in memory:
            a data frame, a `datasets.Dataset`, a list of dictionaries or of (sentence1, sentence2, score). What rows
            hold is told from their columns.
        fit_texts: fit the shaping on these instead of each task's texts (superscript W).
        frequency_texts: count tokens on these instead of each task's texts (idf^W).
        cache: a folder that keeps pooled vectors for later runs on the same weights; by default a text that several
            tasks share goes through the model once in this run.
        max_seq_length: most tokens of a text, template included; by default the model's own limit. The papers'
            clustering cuts at 64.
        shots: labelled texts are also scored with so many labels of each class, (8, 16, 64): "accuracy@8" and so on,
            the mean of ten draws.
        engine, precision: what runs the model and in which precision, see `essent.engine.EngineChoice`. Recipes share
            their passes in torch; each has a graph of its own in openvino and onnx.
        report: called with (recipe text, result) as soon as each result is there.
        options: SentenceTransformer's keyword arguments (device, revision …).

    Returns:
        For every recipe's text form, the results in the order of the tasks; other spellings of a recipe find them too.
        Its `compare` and `comparisons` say which differences are shown, `to_frame` makes a data frame.

    Raises:
        RecipeError, UnknownNameError, DataError: before the model is loaded.
        UnsupportedRecipeError: before its weights are read.
    """
    for name, value in (("recipes", recipes), ("tasks", tasks)):
        is_table = any(hasattr(value, attribute) for attribute in ("score_vectors", "columns", "column_names"))
        if is_table or isinstance(value, (str, Path, Recipe)):
            raise InputError(f"{name} is a list: give [{value!r:.60}], not a {type(value).__name__} alone.")
    choice = EngineChoice(engine, precision)
    parsed = list(dict.fromkeys(Recipe.parse(recipe) for recipe in recipes))
    loaded_tasks = _with_shots([as_task(task, data, number) for number, task in enumerate(tasks, start=1)], shots)
    names = [task.name for task in loaded_tasks]
    if twice := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
        raise InputError(f"Two tasks are called {twice[0]!r}; leave one out, or rename its file.")
    if unjudged := [task.name for task in loaded_tasks if getattr(task, "units", 1) == 0]:
        raise DataError(f"The task {unjudged[0]!r} has no test part to score; search chooses on what it has.")
    if not loaded_tasks:
        raise InputError("evaluate needs at least one task, e.g. ['stsb'].")
    if not parsed and (fit_texts is not None or frequency_texts is not None):
        raise InputError("fit_texts and frequency_texts are what a recipe learns from; give recipes with them.")
    if parsed:
        bench = Bench(
            model,
            parsed,
            batch_size=batch_size,
            progress=progress,
            options=options,
            cache=cache,
            max_seq_length=max_seq_length,
            choice=choice,
        )
        scored = _score_recipes(bench, loaded_tasks, fit_texts, frequency_texts)
    else:
        scored = _score_as_it_is(model, loaded_tasks, options, max_seq_length, choice)
    computed_by = {
        name: value for name, value in (("engine", choice.engine), ("precision", choice.precision)) if value != AUTO
    }
    results = ByRecipe({}, loaded_tasks)
    for recipe, result in scored:
        result = result.with_provenance(recipe=recipe, model=name_of(model), **computed_by)
        results.setdefault(recipe, []).append(result)
        if report is not None:
            report(recipe, result)
    return results


def _score_recipes(
    bench: Bench, tasks: Sequence[Task], fit_texts: Sequence[str] | None, frequency_texts: Sequence[str] | None
) -> Iterator[tuple[str, Result]]:
    """Every recipe's result on every task."""
    for task in tasks:
        for recipe, vectors in bench.vectors(task, fit_texts, frequency_texts):
            yield (
                str(recipe),
                _noted(task.score_vectors(vectors), task, bench.prompts, bench.prompt).with_provenance(
                    recipe_digest=recipe.digest(),
                    max_seq_length=bench.backbone.max_seq_length,
                    prompt=bench.prompt or None,
                    fitted_on="task" if fit_texts is None else "other texts",
                    frequencies_from="task" if frequency_texts is None else "other texts",
                ),
            )


def _score_as_it_is(
    model: ModelLike, tasks: Sequence[Task], options: dict[str, Any], max_seq_length: int | None, choice: EngineChoice
) -> Iterator[tuple[str, Result]]:
    """An encoder's result on every task, without fitting anything."""
    is_name = isinstance(model, (str, Path))
    exported = is_name and is_exported_folder(str(model))
    if max_seq_length is not None and (exported or not is_name):
        raise InputError("max_seq_length is for models loaded here, not for graphs: set your encoder's own limit.")
    encoder: Any = model
    if is_name:
        encoder = load_exported(str(model)) if exported else open_as_it_is(str(model), options)
    if max_seq_length is not None:
        encoder.max_seq_length = min(max_seq_length, encoder.max_seq_length or max_seq_length)
    if not choice.is_default:
        if not isinstance(encoder, SentenceTransformer):
            raise InputError(f"A {type(encoder).__name__} runs as it is; engine and precision are for models of torch.")
        encoder = choose(encoder, choice.engine, choice.precision)
    label = str(getattr(encoder, "recipe", type(encoder).__name__))
    prompts = getattr(encoder, "prompts", None)
    prompts = prompts if isinstance(prompts, Mapping) else {}
    default = prompts.get(getattr(encoder, "default_prompt_name", None) or "", "")
    for task in tasks:
        yield label, _noted(task.run(encoder), task, prompts, default).with_provenance(fitted_on="as saved")


def _noted(result: Result, task: Task, prompts: Mapping[str, str], default: str) -> Result:
    """The result with a note on the prompts that stood before the texts."""
    return replace(result, notes=(*result.notes, *prompt_note(task.prompts_for(prompts, default))))


def _with_shots(tasks: list[Task], shots: Sequence[int]) -> list[Task]:
    """Labelled texts are made to give accuracy with few labels too; other tasks stay.

    Raises:
        InputError: shots that are no whole numbers above 0, or no labelled texts among the tasks.
    """
    if isinstance(shots, (int, str)) or any(type(shot) is not int or shot < 1 for shot in shots):
        raise InputError(f"shots is a list of numbers of labels a class, such as [8, 16, 64], not {shots!r}.")
    if shots and tasks and not any(isinstance(task, LabelTask) and task.scale is None for task in tasks):
        raise InputError(
            f"{', '.join(task.name for task in tasks)}: accuracy with few labels is a score of labelled texts; add a "
            "task such as trec, or a file with the columns text and label."
        )
    for shot in shots:
        tasks = [task.scored_by(f"accuracy@{shot}") if isinstance(task, LabelTask) else task for task in tasks]
    return tasks


def name_of(model: ModelLike) -> str:
    """What a model is called in provenance: its name or folder; a loaded one by its type, whose text is long."""
    return str(model) if isinstance(model, (str, Path)) else type(model).__name__


def default_recipes(model: str | Path) -> list[str]:
    """A first look at a model; none for what essent saved or exported, which `evaluate` then scores unchanged."""
    name = str(model)
    if is_exported_folder(name) or is_essent_folder(name, {}):
        return []
    is_local = Path(name).exists()  # a name on the hub is asked for when it is loaded, with its options
    return list(STATIC_RECIPES if is_local and (Path(name).is_file() or is_static(name, {})) else DEFAULT_RECIPES)


class Bench:
    """A backbone with several recipes on it that share its passes.

    Args:
        recipes: those that differ only in their shaping share even the pooled vectors.
        choice: what runs them; a graph is made of each recipe, and of one that counts tokens for each task.
    """

    def __init__(
        self,
        model: ModelLike,
        recipes: Sequence[Recipe],
        *,
        batch_size: int,
        progress: bool,
        options: dict[str, Any],
        cache: str | Path | None = None,
        max_seq_length: int | None = None,
        choice: EngineChoice | None = None,
    ) -> None:
        check_size(batch_size, "batch_size")
        if max_seq_length is not None:
            check_size(max_seq_length, "max_seq_length")
        self.choice = choice or EngineChoice()
        loaded = load(model, recipes, options)
        self.model, self.options, self.graphs = model, options, dict[str, Any]()
        self.backbone, self.prompt = loaded.backbone, loaded.default_prompt
        self.prompts = dict(loaded.settings.get("prompts") or {})
        self.recipes = list(recipes)
        if not self.choice.makes_graph:
            self.backbone.compute_in(self.choice.precision)
        self.plans = {recipe: Plan(recipe, self.backbone) for recipe in dict.fromkeys(map(_unshaped, recipes))}
        cut_to(self.backbone, [plan.required for plan in self.plans.values()])
        if max_seq_length is not None:
            self.backbone.max_seq_length = min(max_seq_length, self.backbone.max_seq_length or max_seq_length)
        as_module(self.backbone, list(self.plans.values())).to(loaded.settings["device"])
        self.batch_size, self.progress = batch_size, progress
        self.cache = PooledCache(cache)
        self.digest = "" if cache is None else digest_of_backbone(self.backbone)
        if self.choice.makes_graph:
            self.digest += f" {self.choice.engine} {self.choice.graph_precision}"

    def _pooled(self, texts: Sequence[str], plans: Sequence[Plan], counted: Sequence[str]) -> dict[Recipe, np.ndarray]:
        """Vectors (N,K) before shaping by recipe, from the cache or from one pass per template."""
        stats = count_frames(self.backbone, plans, counted)
        keys = [
            key_of(
                self.digest + plan.rows_digest, plan.recipe.digest(), stats[plan.frame] if plan.reads_stats else None
            )
            for plan in plans
        ]

        def run(missing: list[str]) -> list[np.ndarray]:
            if not self.choice.makes_graph:
                sizes: dict[str, Any] = {"batch_size": self.batch_size, "progress": self.progress}
                return pool_texts(self.backbone, plans, missing, stats, **sizes)
            graphs = [self._graph(key, plan, stats.get(plan.frame)) for key, plan in zip(keys, plans, strict=True)]
            settings = {"prompt": "", "batch_size": self.batch_size, "show_progress_bar": self.progress}
            return [graph.encode(missing, **settings) for graph in graphs]

        vectors = self.cache.vectors(keys, [plan.width(self.backbone) for plan in plans], texts, run)
        return dict(zip((plan.recipe for plan in plans), vectors, strict=True))

    def _graph(self, key: str, plan: Plan, stats: CorpusStats | None) -> Any:
        """The graph of a recipe, with the counts that it was given."""
        if key not in self.graphs:
            encoder = Encoder(self.model, plan.recipe, **self.options)
            encoder.module.stats = stats if plan.reads_stats else None
            if plan.required.depth is not None:
                encoder.max_seq_length = self.backbone.max_seq_length
            self.graphs[key] = choose(encoder, self.choice.engine, self.choice.precision)
        return self.graphs[key]

    def vectors(
        self,
        texts: Any,
        fit_texts: Sequence[str] | None = None,
        frequency_texts: Sequence[str] | None = None,
    ) -> list[tuple[Recipe, np.ndarray]]:
        """Shaped vectors (N,K) of texts, or of a task's texts, by every recipe.

        The model's default prompt stands before each text; a task may want other prompts of the model.
        """
        prompted = texts.texts_for(self.prompts, self.prompt) if hasattr(texts, "texts_for") else self._prompted(texts)
        counted = prompted if frequency_texts is None else self._prompted(frequency_texts)
        pooled = self._pooled(prompted, list(self.plans.values()), counted)
        chains = {recipe: Chain.parse(recipe.shaping) for recipe in self.recipes}
        fitted = pooled
        if fit_texts is not None:
            plans = dict.fromkeys(self.plans[_unshaped(r)] for r, chain in chains.items() if chain.needs_fit)
            fitted = self._pooled(self._prompted(fit_texts), list(plans), counted)
        shaped = []
        for recipe, chain in chains.items():
            if chain.needs_fit:
                with torch.inference_mode(False):  # the flow trains
                    chain.fit(fitted[_unshaped(recipe)])
            shaped.append((recipe, chain.transform(pooled[_unshaped(recipe)])))
        return shaped

    def _prompted(self, texts: Sequence[str]) -> list[str]:
        return [self.prompt + text for text in check_texts(texts)]


def _unshaped(recipe: Recipe) -> Recipe:
    return replace(recipe, shaping=())
