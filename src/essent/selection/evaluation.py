"""Recipes × tasks: one load, shared forward passes, shaping fitted on each task's own texts (or on others)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sentence_transformers import SentenceTransformer

from essent._core.arguments import check_size
from essent._core.arithmetic import AUTO, has_bfloat16
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
from essent.engine.gain import Offer, offer_bfloat16
from essent.errors import DataError, InputError
from essent.model.loading import load
from essent.model.token_rows import is_static
from essent.recipe.recipe import Recipe
from essent.recipe.shaping.chain import Chain
from essent.recipe.types import CorpusStats
from essent.selection.by_recipe import ByRecipe
from essent.tasks.base import LabeledTask, Task, TaskLike, prompt_note
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
MANY = 2000  # texts, from which on bfloat16 is tried


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
        if isinstance(value, (str, Path, Recipe)) or hasattr(value, "score_vectors"):
            raise InputError(f"{name} is a list, [{str(value)!r}], not {value!r} alone.")
        if hasattr(value, "columns") or hasattr(value, "column_names"):
            raise InputError(f"{name} is a list; give [{type(value).__name__}], not a {type(value).__name__} alone.")
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
    if not parsed:
        return _as_it_is(model, loaded_tasks, report, options, max_seq_length, choice)
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
    results = ByRecipe({str(recipe): [] for recipe in parsed}, loaded_tasks)
    for task in loaded_tasks:
        for recipe, vectors in bench.vectors(task, fit_texts, frequency_texts):
            result = _noted(task.score_vectors(vectors), task, bench.prompts, bench.prompt).with_provenance(
                recipe=str(recipe),
                recipe_digest=recipe.digest(),
                max_seq_length=bench.backbone.max_seq_length,
                prompt=bench.prompt or None,
                model=name_of(model),
                **computed_by(choice),
                fitted_on="task" if fit_texts is None else "other texts",
                frequencies_from="task" if frequency_texts is None else "other texts",
            )
            results[str(recipe)].append(result)
            if report is not None:
                report(str(recipe), result)
    return results


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
    labelled = [isinstance(task, LabelTask) and task.scale is None for task in tasks]
    if shots and tasks and not any(labelled):
        raise InputError(
            f"{', '.join(task.name for task in tasks)}: accuracy with few labels is a score of labelled texts; add a "
            "task such as trec, or a file with the columns text and label."
        )
    for shot in shots:
        tasks = [
            task.scored_by(f"accuracy@{shot}") if isinstance(task, LabelTask) and is_labelled else task
            for task, is_labelled in zip(tasks, labelled, strict=True)
        ]
    return tasks


def name_of(model: ModelLike) -> str:
    """What a model is called in provenance: its name or folder; a loaded one by its type, whose text is long."""
    return str(model) if isinstance(model, (str, Path)) else type(model).__name__


def computed_by(choice: EngineChoice) -> dict[str, str]:
    """What a result says of what ran the model, where that was chosen."""
    named = {"engine": choice.engine, "precision": choice.precision}
    return {name: value for name, value in named.items() if value != AUTO}


def _as_it_is(
    model: ModelLike,
    tasks: Sequence[Task],
    report: Callable[[str, Result], None] | None,
    options: dict[str, Any],
    max_seq_length: int | None,
    choice: EngineChoice,
) -> ByRecipe:
    """Score an encoder without fitting anything."""
    if max_seq_length is not None and not isinstance(model, (str, Path)):
        raise InputError("max_seq_length is for models that are loaded here; set your encoder's own limit instead.")
    exported = isinstance(model, (str, Path)) and is_exported_folder(str(model))
    if exported and max_seq_length is not None:
        raise InputError(f"{str(model)!r} is a saved graph; its maximum length was set when it was saved.")
    encoder: Any = model
    if isinstance(model, (str, Path)):
        encoder = load_exported(str(model)) if exported else open_as_it_is(str(model), options)
    if max_seq_length is not None:
        encoder.max_seq_length = min(max_seq_length, encoder.max_seq_length or max_seq_length)
    if not choice.is_default:
        if not isinstance(encoder, SentenceTransformer):
            raise InputError(f"A {type(encoder).__name__} runs as it is; engine and precision are for models of torch.")
        encoder = choose(encoder, choice.engine, choice.precision)
    label = str(getattr(encoder, "recipe", type(encoder).__name__))
    results = []
    for task in tasks:
        prompts = getattr(encoder, "prompts", None)
        prompts = prompts if isinstance(prompts, Mapping) else {}
        default = prompts.get(getattr(encoder, "default_prompt_name", None) or "", "")
        result = _noted(task.run(encoder), task, prompts, default).with_provenance(
            recipe=label, model=name_of(model), **computed_by(choice), fitted_on="as saved"
        )
        results.append(result)
        if report is not None:
            report(label, result)
    return ByRecipe({label: results}, tasks)


def default_recipes(model: str | Path) -> list[str]:
    """A first look at a model; none for what essent saved or exported, which `evaluate` then scores unchanged."""
    name = str(model)
    if is_exported_folder(name) or is_essent_folder(name, {}):
        return []
    is_local = Path(name).exists()  # a name on the hub is asked for when it is loaded, with its options
    return list(STATIC_RECIPES if is_local and (Path(name).is_file() or is_static(name, {})) else DEFAULT_RECIPES)


def offer_for(model: ModelLike, recipe: Recipe | str, task: Task, options: dict[str, Any]) -> Offer | None:
    """What bfloat16 would give a recipe, less its shaping, tried on a part of a task of pairs; None: not worth it.

    Not tried for recipes that count tokens, for other tasks, and for fewer than 2,000 texts.
    """
    if not isinstance(task, LabeledTask) or task.compared() is None or not isinstance(model, (str, Path)):
        return None
    if len(task.texts()) < MANY or not has_bfloat16("cpu"):
        return None
    if is_exported_folder(str(model)) or is_essent_folder(str(model), {}):
        return None
    encoder = Encoder(model, replace(Recipe.parse(recipe), shaping=()), **options)
    return None if encoder.module.plan.reads_stats else offer_bfloat16(encoder, task.texts(), task)


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
        if not self.choice.makes_graph:
            loaded.backbone.compute_in(self.choice.precision)
        self.model, self.options, self.graphs = model, options, dict[str, Any]()
        self.backbone, self.prompt, self.prompts = (
            loaded.backbone,
            loaded.default_prompt,
            dict(loaded.settings.get("prompts") or {}),
        )
        self.recipes = list(recipes)
        unshaped = dict.fromkeys(replace(recipe, shaping=()) for recipe in recipes)
        self.plans = {recipe: Plan(recipe, self.backbone) for recipe in unshaped}
        depths = [plan.required.depth for plan in self.plans.values()]
        self.backbone.cut(max((d for d in depths if d is not None), default=None))
        if all(depth is None for depth in depths) and not self.backbone.only_static:
            self.backbone.max_seq_length = None
        if max_seq_length is not None:
            self.backbone.max_seq_length = min(max_seq_length, self.backbone.max_seq_length or max_seq_length)
        as_module(self.backbone, list(self.plans.values())).to(loaded.settings["device"])
        self.batch_size, self.progress = batch_size, progress
        self.cache = PooledCache(cache)
        self.digest = "" if cache is None else digest_of_backbone(self.backbone)
        if self.choice.makes_graph:
            self.digest += f" {self.choice.engine} {self.choice.graph_precision}"

    def _pooled(
        self, texts: Sequence[str], recipes: Sequence[Recipe], frequency_texts: Sequence[str]
    ) -> dict[Recipe, np.ndarray]:
        plans = [self.plans[recipe] for recipe in recipes]
        stats = count_frames(self.backbone, plans, frequency_texts)
        keys = [
            key_of(
                self.digest + plan.rows_digest, plan.recipe.digest(), stats[plan.frame] if plan.reads_stats else None
            )
            for plan in plans
        ]

        def run(missing: list[str]) -> list[np.ndarray]:
            if self.choice.makes_graph:
                return [
                    self._graph(key, plan, stats.get(plan.frame)).encode(
                        missing, prompt="", batch_size=self.batch_size, show_progress_bar=self.progress
                    )
                    for key, plan in zip(keys, plans, strict=True)
                ]
            return pool_texts(self.backbone, plans, missing, stats, batch_size=self.batch_size, progress=self.progress)

        vectors = self.cache.vectors(keys, [plan.width(self.backbone) for plan in plans], texts, run)
        return dict(zip(recipes, vectors, strict=True))

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
        pooled = self._pooled(prompted, list(self.plans), counted)
        fitted = pooled
        if fit_texts is not None:
            shaped = dict.fromkeys(replace(r, shaping=()) for r in self.recipes if Chain.parse(r.shaping).needs_fit)
            fitted = self._pooled(self._prompted(fit_texts), list(shaped), counted)
        return [(recipe, self._shaped(recipe, pooled, fitted)) for recipe in self.recipes]

    def _prompted(self, texts: Sequence[str]) -> list[str]:
        return [self.prompt + text for text in check_texts(texts)]

    def _shaped(self, recipe: Recipe, pooled: dict[Recipe, np.ndarray], fitted: dict[Recipe, np.ndarray]) -> np.ndarray:
        chain, plain = Chain.parse(recipe.shaping), replace(recipe, shaping=())
        if chain.needs_fit:
            with torch.inference_mode(False):  # the flow trains
                chain.fit(fitted[plain])
        return chain.transform(pooled[plain])
