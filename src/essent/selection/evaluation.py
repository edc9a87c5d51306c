"""`evaluate`: recipes × tasks, with one load, shared forward passes, and shaping fitted per task or on other texts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from torch import nn

from essent._core.arguments import ModelLike, check_size
from essent._core.folders.contents import is_essent_folder, is_exported_folder
from essent._core.hub import path_of
from essent._core.machine import AUTO, precision_of
from essent._core.texts import check_texts
from essent.encoder.encoder import open_as_it_is
from essent.encoder.plan import Plan, chain_of, count_frames, pool_texts
from essent.engine.compiled import CompiledEncoder
from essent.engine.files import computing_in
from essent.engine.files import load as load_exported
from essent.errors import DataError, InputError
from essent.model.loading import load
from essent.model.token_rows import is_static
from essent.model.weights import move
from essent.recipe.recipe import Recipe
from essent.recipe.shaping.chain import Chain
from essent.selection.program import cut_to, without_shaping
from essent.selection.results import Evaluation
from essent.tasks.base import Task, TaskLike, prompt_note
from essent.tasks.locate import as_task
from essent.tasks.result import Result

# Every model can run these, and papers compare with them: no attention head, no [MASK].
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
    model: ModelLike | Sequence[ModelLike],
    recipes: Sequence[Recipe | str],
    tasks: Sequence[TaskLike],
    *,
    data: str | Path | None = None,
    columns: Mapping[str, str] | None = None,
    fit_texts: Sequence[str] | None = None,
    frequency_texts: Sequence[str] | None = None,
    batch_size: int = 32,
    progress: bool = False,
    max_seq_length: int | None = None,
    precision: str = AUTO,
    **options: Any,
) -> Evaluation:
    """Score models and recipes on tasks, in one pass per model and template over the distinct texts of each task.

    Frequencies (idf), shaping and flow are learned separately for each task, from all its texts: both sides of all
    pairs, with duplicates. This is the papers' protocol (superscript T).

    Args:
        model: a hub name, a folder, or a SentenceTransformer; or a list of them, which are compared.
        recipes: recipes or their text forms. An empty list scores the models as they are: a saved Encoder with its
            fitted state, an exported graph, a sentence-transformers model with its own pooling, any object with
            `encode`.
        tasks: tasks of any kind; names, files or folders for `essent.tasks.load_task`; or rows in memory: a data
            frame, a `datasets.Dataset`, a list of dictionaries or of (sentence1, sentence2, score). The columns
            determine the kind of the rows.
        data: folder of local data for task names, as in `essent.tasks.load_task`.
        columns: names of the columns of files and of rows by role, if they differ from the usual ones, such as
            {"text": "body", "label": "category"}; see `essent.tasks.load_task`.
        fit_texts: fit the shaping on these instead of each task's texts (superscript W).
        frequency_texts: count tokens on these instead of each task's texts (idf^W).
        batch_size: texts per forward pass; objects with their own `encode` choose it themselves.
        progress: show a progress bar.
        max_seq_length: maximum number of tokens per text, template included; by default the model's own limit. The
            papers' clustering truncates at 64.
        precision: number format of the computation: auto (float32 on a CPU), float32 or bfloat16.
        options: SentenceTransformer's keyword arguments (device, revision …).

    Returns:
        A dictionary from recipes, or "model · recipe", to results. `print` shows the differences from the first row
        with their paired intervals, then the table; `compare` tests two rows, `frame` returns a data frame.

    Raises:
        RecipeError, UnknownNameError, DataError: before the model is loaded.
        UnsupportedRecipeError: the model cannot run a recipe; before its weights are read.

    Example:
        >>> from essent import evaluate
        >>> model = "sentence-transformers/all-MiniLM-L6-v2"
        >>> results = evaluate(model, ["mean", "static"], ["pairs.jsonl"])
        >>> results
        <Evaluation: 2 rows on pairs>
        >>> results.compare("static", "mean").summary()
        'static is worse than mean by -42.04 [-56.48, -28.61], p ≤ 0.002.'
    """
    precision = precision_of(precision)
    check_size(batch_size, "batch_size")
    for name, values in (("recipes", recipes), ("tasks", tasks)):
        is_table = any(hasattr(values, attribute) for attribute in ("score_vectors", "columns", "column_names"))
        if is_table or isinstance(values, (str, Path, Recipe)):
            raise InputError(f"{name} must be a list: use [{values!r:.60}] instead of a {type(values).__name__}.")
    parsed = list(dict.fromkeys(map(Recipe.parse, recipes)))
    loaded_tasks = _load_tasks(tasks, data, columns)
    if not parsed and not all(setting is None for setting in (fit_texts, frequency_texts, max_seq_length)):
        raise InputError("fit_texts, frequency_texts and max_seq_length need recipes, but recipes is empty.")
    computed_in = {} if precision == AUTO else {"precision": precision}
    passes: dict[str, Any] = {
        "batch_size": batch_size,
        "progress": progress,
        "max_seq_length": max_seq_length,
        "precision": precision,
    }
    results: list[Result] = []
    for name, each in _named(model, options).items():
        if parsed:
            bench = Bench(each, parsed, options=options, **passes)
            scored = _score_recipes(bench, loaded_tasks, fit_texts, frequency_texts)
        else:
            opened = _open_unchanged(each, options, precision)
            scored = _score_unchanged(opened, loaded_tasks, batch_size=batch_size, show_progress_bar=progress)
        results += [result.with_provenance(model=name, **computed_in) for result in scored]
    return Evaluation.of(results, loaded_tasks)


def _named(model: ModelLike | Sequence[ModelLike], options: dict[str, Any]) -> dict[str, ModelLike]:
    """Return models by their names for provenance; a name listed twice counts once, loaded models are numbered.

    Raises:
        InputError: no models.
        ModelError: a model that does not exist, before another has run for an hour.
    """
    models: list[Any] = list(model) if isinstance(model, (list, tuple)) else [model]
    if not models:
        raise InputError("No models: evaluate needs at least one, for example ['bert-base-uncased'].")
    named: dict[str, ModelLike] = {}
    for each in models:
        name = model_name(each)
        if isinstance(each, (str, Path)):
            if len(models) > 1:
                path_of(name)
        elif name in named:
            name = f"{name} {len(named) + 1}"
        named[name] = each
    return named


def _score_recipes(
    bench: Bench, tasks: Sequence[Task], fit_texts: Sequence[str] | None, frequency_texts: Sequence[str] | None
) -> Iterator[Result]:
    origin: dict[str, Any] = {
        "max_seq_length": bench.backbone.max_seq_length,
        "prompt": bench.prompt or None,
        "fitted_on": "task" if fit_texts is None else "other texts",
        "frequencies_from": "task" if frequency_texts is None else "other texts",
    }
    for task in tasks:
        for recipe, vectors in bench.vectors(task, fit_texts, frequency_texts):
            result = _with_prompts(task.score_vectors(vectors), task, bench.prompts, bench.prompt)
            yield result.with_provenance(**origin, recipe_digest=recipe.digest(), recipe=str(recipe))


def _score_unchanged(encoder: Any, tasks: Sequence[Task], **settings: Any) -> Iterator[Result]:
    if not isinstance(encoder, (SentenceTransformer, CompiledEncoder)):
        settings = {}  # an object of any class with `encode`
    label = str(getattr(encoder, "recipe", type(encoder).__name__))
    prompts = getattr(encoder, "prompts", None)
    prompts = prompts if isinstance(prompts, Mapping) else {}
    default = prompts.get(getattr(encoder, "default_prompt_name", None) or "", "")
    for task in tasks:
        result = _with_prompts(task.run(encoder, **settings), task, prompts, default)
        yield result.with_provenance(fitted_on="as saved", recipe=label)


def _with_prompts(result: Result, task: Task, prompts: Mapping[str, str], default: str) -> Result:
    return replace(result, notes=(*result.notes, *prompt_note(task.prompts_for(prompts, default))))


def _open_unchanged(model: ModelLike, options: dict[str, Any], precision: str) -> Any:
    """Return a model, loaded if it is a name or a folder, as an encoder with its own recipe and fitted state."""
    encoder: Any = model
    if isinstance(model, (str, Path)):
        name = str(model)
        encoder = load_exported(name) if is_exported_folder(name) else open_as_it_is(name, options)
    if precision == AUTO:
        return encoder
    if not isinstance(encoder, (SentenceTransformer, CompiledEncoder)):
        raise InputError(f"A {type(encoder).__name__} has its own precision. Omit precision=, which needs a model.")
    return computing_in(encoder, precision)


def _load_tasks(tasks: Sequence[TaskLike], data: str | Path | None, columns: Mapping[str, str] | None) -> list[Task]:
    """Return the tasks.

    Raises:
        InputError: no tasks, or two with one name.
        DataError: a task without a test part.
    """
    loaded = [as_task(task, data, number, columns) for number, task in enumerate(tasks, start=1)]
    if not loaded:
        raise InputError("No tasks: evaluate needs at least one, for example ['stsb'].")
    names = [task.name for task in loaded]
    if duplicates := [name for name in names if names.count(name) > 1]:
        raise InputError(f"Two tasks have the name {duplicates[0]!r}. Remove one, or rename its file.")
    for task in loaded:
        if getattr(task, "units", 1) == 0:
            raise DataError(
                f"The task {task.name!r} has no test part to score. `search` can choose on its other parts."
            )
    return loaded


def model_name(model: ModelLike) -> str:
    """Return a model's name for provenance: its name or folder, or the type of a loaded model."""
    return str(model) if isinstance(model, (str, Path)) else type(model).__name__


def default_recipes(model: str | Path) -> list[str]:
    """Return recipes for a first evaluation of a model; none for folders that essent saved or exported.

    `evaluate` without recipes scores such a folder unchanged.

    Example:
        >>> from essent.selection import default_recipes
        >>> default_recipes("sentence-transformers/all-MiniLM-L6-v2")[:4]
        ['cls', 'mean', 'last2', 'first-last']
    """
    name = str(model)
    if is_exported_folder(name) or is_essent_folder(name, {}):
        return []
    is_local = Path(name).exists()  # a name on the hub is resolved at loading, with its options
    return list(STATIC_RECIPES if is_local and (Path(name).is_file() or is_static(name, {})) else DEFAULT_RECIPES)


class Bench:
    """A backbone with several recipes that share its forward passes.

    Args:
        recipes: recipes that differ in their shaping only also share the pooled vectors.
        precision: number format of the passes.
    """

    def __init__(
        self,
        model: ModelLike,
        recipes: Sequence[Recipe],
        *,
        batch_size: int,
        progress: bool,
        options: dict[str, Any],
        max_seq_length: int | None = None,
        precision: str = AUTO,
    ) -> None:
        check_size(batch_size, "batch_size")
        if max_seq_length is not None:
            check_size(max_seq_length, "max_seq_length")
        loaded = load(model, recipes, options)
        self.backbone, self.prompt = loaded.backbone, loaded.default_prompt
        self.prompts = dict(loaded.settings.get("prompts") or {})
        self.recipes = list(recipes)
        self.backbone.compute_in(precision)
        self.plans = {recipe: Plan(recipe, self.backbone) for recipe in dict.fromkeys(map(without_shaping, recipes))}
        self._chains()  # raises an error for a step that the model cannot give its matrix
        cut_to(self.backbone, list(self.plans.values()))
        if max_seq_length is not None:
            self.backbone.max_seq_length = min(max_seq_length, self.backbone.max_seq_length or max_seq_length)
        move(nn.ModuleList([self.backbone, *self.plans.values()]), loaded.settings["device"])
        self.batch_size, self.progress = batch_size, progress
        self.last_fit: tuple[Any, dict[Recipe, np.ndarray]] = None, {}

    def _pooled(self, texts: Sequence[str], plans: Sequence[Plan], counted: Sequence[str]) -> dict[Recipe, np.ndarray]:
        """Return the vectors (N,K) before shaping by recipe, from one pass per template."""
        stats = count_frames(self.backbone, plans, counted)
        vectors = pool_texts(self.backbone, plans, texts, stats, batch_size=self.batch_size, progress=self.progress)
        return dict(zip((plan.recipe for plan in plans), vectors, strict=True))

    def vectors(
        self,
        texts: Any,
        fit_texts: Sequence[str] | None = None,
        frequency_texts: Sequence[str] | None = None,
    ) -> list[tuple[Recipe, np.ndarray]]:
        """Return the shaped vectors (N,K) of texts, or of a task's texts, for every recipe.

        Each text is preceded by the model's default prompt, or by the prompt that the task selects.
        """
        prompted = texts.texts_for(self.prompts, self.prompt) if hasattr(texts, "texts_for") else self._prompted(texts)
        counted = prompted if frequency_texts is None else self._prompted(frequency_texts)
        pooled = self._pooled(prompted, list(self.plans.values()), counted)
        chains = self._chains()
        pooled_to_fit = pooled
        if fit_texts is not None:
            plans = [self.plans[without_shaping(recipe)] for recipe, chain in chains.items() if chain.needs_fit]
            to_fit = self._prompted(fit_texts)
            key = to_fit, counted if any(plan.reads_stats for plan in plans) else None
            if key != self.last_fit[0]:  # otherwise the same for all tasks
                self.last_fit = key, self._pooled(to_fit, list(dict.fromkeys(plans)), counted)
            pooled_to_fit = self.last_fit[1]
        shaped = []
        for recipe, chain in chains.items():
            unshaped = without_shaping(recipe)
            if chain.needs_fit:
                with torch.inference_mode(False):  # the flow trains
                    chain.fit(pooled_to_fit[unshaped])
            shaped.append((recipe, chain.transform(pooled[unshaped])))
        return shaped

    def _chains(self) -> dict[Recipe, Chain]:
        """Make the unfitted shaping of every recipe."""
        plans = {recipe: self.plans[without_shaping(recipe)] for recipe in self.recipes}
        return {recipe: chain_of(recipe, plan.width, self.backbone) for recipe, plan in plans.items()}

    def _prompted(self, texts: Sequence[str]) -> list[str]:
        return [self.prompt + text for text in check_texts(texts)]
