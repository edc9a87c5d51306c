"""`evaluate`: recipes × tasks, with one load, shared forward passes, and shaping fitted per task or on other texts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sentence_transformers import SentenceTransformer

from essent._core.arguments import check_size
from essent._core.folders.contents import is_essent_folder, is_exported_folder
from essent._core.machine import AUTO
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
    """Score recipes on tasks, in one pass per template over the texts of each task.

    Frequencies (idf), shaping and flow are learned separately for each task, from all its texts: both sides of all
    pairs, with duplicates. This is the papers' protocol (superscript T).

    Args:
        model: a hub name, a folder, or a SentenceTransformer.
        recipes: recipes or their text forms. An empty list scores the model as it is: a saved Encoder with its fitted
            state, an exported graph, a sentence-transformers model with its own pooling, any object with `encode`.
        tasks: tasks of any kind; names, files or folders for `essent.tasks.load_task`; or rows in memory: a data
            frame, a `datasets.Dataset`, a list of dictionaries or of (sentence1, sentence2, score). The columns
            determine the kind of the rows.
        data: folder of local data for task names, as in `essent.tasks.load_task`.
        fit_texts: fit the shaping on these instead of each task's texts (superscript W).
        frequency_texts: count tokens on these instead of each task's texts (idf^W).
        batch_size: texts per forward pass.
        progress: show a progress bar.
        cache: a folder of pooled vectors, reused by later runs with the same weights. By default, vectors are cached
            for this run only: a text that several tasks share is encoded once.
        max_seq_length: maximum number of tokens per text, template included; by default the model's own limit. The
            papers' clustering truncates at 64.
        shots: score labelled texts also with this many labels per class: (8, 16, 64) adds "accuracy@8" and so on, each
            the mean of ten draws.
        engine, precision: engine and precision of the model, see `essent.engine.EngineChoice`. Recipes share their
            passes in torch; in openvino and onnx, each recipe has its own graph.
        report: called with (recipe text, result) after each result.
        options: SentenceTransformer's keyword arguments (device, revision …).

    Returns:
        A dictionary from the text form of a recipe to its results, in the order of the tasks; other spellings of a
        recipe are accepted as keys. `compare` and `comparisons` test differences, `to_frame` returns a data frame.

    Raises:
        RecipeError, UnknownNameError, DataError: before the model is loaded.
        UnsupportedRecipeError: the model cannot run a recipe; before its weights are read.

    Example:
        >>> from essent import evaluate
        >>> model = "sentence-transformers/all-MiniLM-L6-v2"
        >>> results = evaluate(model, ["mean", "static"], ["pairs.jsonl"])
        >>> {recipe: round(result.main_score) for recipe, (result,) in results.items()}
        {'mean': 77, 'static': 35}
    """
    for name, value in (("recipes", recipes), ("tasks", tasks)):
        is_table = any(hasattr(value, attribute) for attribute in ("score_vectors", "columns", "column_names"))
        if is_table or isinstance(value, (str, Path, Recipe)):
            raise InputError(f"{name} must be a list: use [{value!r:.60}] instead of a {type(value).__name__}.")
    choice = EngineChoice(engine, precision)
    parsed = list(dict.fromkeys(Recipe.parse(recipe) for recipe in recipes))
    loaded_tasks = _with_shots([as_task(task, data, number) for number, task in enumerate(tasks, start=1)], shots)
    names = [task.name for task in loaded_tasks]
    if twice := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
        raise InputError(f"Two tasks have the name {twice[0]!r}. Remove one, or rename its file.")
    if unjudged := [task.name for task in loaded_tasks if getattr(task, "units", 1) == 0]:
        raise DataError(f"The task {unjudged[0]!r} has no test part to score. `search` can choose on its other parts.")
    if not loaded_tasks:
        raise InputError("No tasks: evaluate needs at least one, for example ['stsb'].")
    if not parsed and (fit_texts is not None or frequency_texts is not None):
        raise InputError("fit_texts and frequency_texts are used by recipes only, but recipes is empty.")
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
    """Yield an encoder's result on every task, without fitting anything."""
    is_name = isinstance(model, (str, Path))
    exported = is_name and is_exported_folder(str(model))
    if max_seq_length is not None and (exported or not is_name):
        raise InputError("max_seq_length needs the name or folder of a model that is not a graph.")
    encoder: Any = model
    if is_name:
        encoder = load_exported(str(model)) if exported else open_as_it_is(str(model), options)
    if max_seq_length is not None:
        encoder.max_seq_length = min(max_seq_length, encoder.max_seq_length or max_seq_length)
    if not choice.is_default:
        if not isinstance(encoder, SentenceTransformer):
            name = type(encoder).__name__
            raise InputError(f"A {name} has its own engine. Omit engine= and precision=, which need a torch model.")
        encoder = choose(encoder, choice.engine, choice.precision)
    label = str(getattr(encoder, "recipe", type(encoder).__name__))
    prompts = getattr(encoder, "prompts", None)
    prompts = prompts if isinstance(prompts, Mapping) else {}
    default = prompts.get(getattr(encoder, "default_prompt_name", None) or "", "")
    for task in tasks:
        yield label, _noted(task.run(encoder), task, prompts, default).with_provenance(fitted_on="as saved")


def _noted(result: Result, task: Task, prompts: Mapping[str, str], default: str) -> Result:
    """Return the result with a note about the prompts before its texts."""
    return replace(result, notes=(*result.notes, *prompt_note(task.prompts_for(prompts, default))))


def _with_shots(tasks: list[Task], shots: Sequence[int]) -> list[Task]:
    """Return the tasks, with accuracy with few labels as a further score of labelled texts.

    Raises:
        InputError: shots are not whole numbers above 0, or no task has labelled texts.
    """
    if isinstance(shots, (int, str)) or any(type(shot) is not int or shot < 1 for shot in shots):
        raise InputError(f"shots={shots!r}: must be a list of numbers of labels per class, such as [8, 16, 64].")
    if shots and tasks and not any(isinstance(task, LabelTask) and task.scale is None for task in tasks):
        raise InputError(
            f"{', '.join(task.name for task in tasks)}: accuracy with few labels needs labelled texts. Add a task "
            "such as trec, or a file with the columns text and label."
        )
    for shot in shots:
        tasks = [task.scored_by(f"accuracy@{shot}") if isinstance(task, LabelTask) else task for task in tasks]
    return tasks


def name_of(model: ModelLike) -> str:
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
        choice: engine and precision. A graph is made per recipe, and per task too if the recipe counts tokens.
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
        """Return the vectors (N,K) before shaping by recipe, from the cache or from one pass per template."""
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
        """Return the graph of a recipe with its token counts."""
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
        """Return the shaped vectors (N,K) of texts, or of a task's texts, for every recipe.

        Each text is preceded by the model's default prompt, or by the prompt that the task selects.
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
