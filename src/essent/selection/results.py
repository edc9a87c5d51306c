"""The results of `evaluate`: by model and recipe, compared, as a table and as a data frame."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from essent._core.display import TextDisplay
from essent._core.lazy import optional_import
from essent._core.registry import did_you_mean
from essent.errors import EssentError, InputError
from essent.recipe.recipe import Recipe
from essent.tasks.base import LabeledTask, Task
from essent.tasks.comparison import Comparison, Scored, compare_each
from essent.tasks.result import Key, Result, results_table, row_labels, short_names

if TYPE_CHECKING:
    import pandas as pd


COLUMNS = ["model", "recipe", "task", "metric", "score", "low", "high", "main", "n"]  # columns of `frame`


class Evaluation(TextDisplay, dict[str, list[Result]]):
    """Results of models and recipes, compared example by example; `evaluate` returns it.

    It is a dictionary from the label of a row to its results, in the order of the tasks. The label is the recipe, with
    several models "model · recipe", or the model if each has one recipe. Other spellings of a recipe, such as
    "whitening", are accepted as keys. `print` shows the differences with their intervals, then the table.

    Args:
        results: results by label, in the order of the rows.
        tasks: the evaluated tasks, for comparisons.

    Attributes:
        tasks: as passed.

    Example:
        >>> from essent import evaluate
        >>> evaluation = evaluate("sentence-transformers/all-MiniLM-L6-v2", ["mean", "cls"], ["pairs.jsonl"])
        >>> evaluation
        <Evaluation: 2 rows on pairs>
        >>> evaluation.compare("cls", "mean").is_better
        False
        >>> list(evaluation.frame().columns)
        ['model', 'recipe', 'task', 'metric', 'score', 'low', 'high', 'main', 'n']
    """

    def __init__(self, results: Mapping[str, list[Result]] | None = None, tasks: Iterable[Task] = ()) -> None:
        super().__init__(results or {})
        self.tasks = tuple(tasks)
        self._tasks = {task.name: task for task in self.tasks if isinstance(task, LabeledTask)}

    @classmethod
    def of(cls, results: Iterable[Result], tasks: Iterable[Task]) -> Evaluation:
        """Group results by model and recipe, model by model; the last result of a task replaces earlier ones."""
        rows: dict[str, dict[str, dict[str, Result]]] = {}
        for result in results:
            model, recipe = result.provenance["model"], result.provenance["recipe"]
            rows.setdefault(model, {}).setdefault(recipe, {})[result.task] = result
        keys: list[Key] = [(model, recipe) for model, recipes in rows.items() for recipe in recipes]
        labels = row_labels(keys, short_names(rows)) if len(rows) > 1 else {key: key[1] for key in keys}
        return cls({labels[key]: list(rows[key[0]][key[1]].values()) for key in keys}, tasks)

    def __missing__(self, key: Any) -> list[Result]:
        name = _normalized(key)
        if name == key or name not in self:
            raise KeyError(key)
        return self[name]

    @property
    def compared(self) -> list[str]:
        """The names of the tasks on which recipes can be compared: all but minimal pairs and geometry."""
        return list(self._tasks)

    @property
    def _has_one_score(self) -> bool:
        """Whether all of these tasks have the same main score, so that its mean is meaningful."""
        return len({task.score_names[0] for task in self._tasks.values()}) == 1

    def compare(self, first: str, second: str, task: str | None = None, *, score: str = "") -> Comparison:
        """Compare two recipes on the same pairs, texts or queries.

        Args:
            task: name of a task; None: the only task, or the mean of all.
            score: name of a score such as "f1_macro" or "v_measure"; by default the main score.

        Returns:
            The difference with its 95 % interval and p value.

        Raises:
            InputError: a recipe or task that is not among the results, or tasks with different scores and no `task`.
        """
        pair = (self._name(first), self._name(second))
        return compare_each(self._scored(task, score, pair), [pair])[0]

    def comparisons(
        self, baseline: str | None = None, task: str | None = None, *, score: str = ""
    ) -> tuple[Comparison, ...]:
        """Compare every recipe with a baseline, by default the first; arguments and errors as in `compare`."""
        names = list(self)
        if not names:
            raise InputError("There are no results to compare. Evaluate at least two recipes.")
        against = names[0] if baseline is None else self._name(baseline)
        pairs = [(name, against) for name in names if name != against]
        return compare_each(self._scored(task, score, names), pairs)

    def summary(self) -> Iterator[str]:
        """Yield a heading, then a sentence per recipe compared with the first, on all tasks together or on each task.

        Yields nothing with fewer than two rows.
        """
        if len(self) < 2:
            return
        for task in [None] if self._has_one_score else self.compared:
            names = [task] if task else self.compared
            where = f"on {names[0]}" if len(names) == 1 else f"on average over {', '.join(names)}"
            name = self._tasks[names[0]].score_names[0]
            yield f"Compared with {next(iter(self))} {where}: difference of {name} ×100 and its 95 % interval, paired."
            yield from (f"  {comparison.summary()}" for comparison in self.comparisons(task=task))

    def notes(self) -> list[str]:
        """Return the distinct notes; a note that only some recipes have lists these recipes.

        The protocols for labelled texts come first.
        """
        labelled = [(recipe, result) for recipe, results in self.items() for result in results]
        protocols = {r.task: r.provenance["protocol"] for _, r in labelled if "protocol" in r.provenance}
        recipes_by_note = {f"{task}: {protocol}.": dict.fromkeys(self) for task, protocol in protocols.items()}
        for recipe, result in labelled:
            for note in result.notes:
                recipes_by_note.setdefault(f"{result.task}: {note}", {})[recipe] = None
        return [
            note if len(recipes) == len(self) else f"{note} ({'; '.join(recipes)})"
            for note, recipes in recipes_by_note.items()
        ]

    def _name(self, recipe: str) -> str:
        """Return the key of a recipe in any spelling."""
        name = recipe if recipe in self else _normalized(recipe)
        if name not in self:
            raise InputError(f"There are no results for {recipe!r}. {did_you_mean(name, list(self))}")
        return name

    def _scored(self, task: str | None, score: str, names: Sequence[str]) -> list[Scored]:
        """Return the evidence of the recipes on one task or on all."""
        if task is not None and task not in self._tasks:
            raise InputError(f"Cannot compare on {task!r}: no such task. {did_you_mean(task, self.compared)}")
        tasks = list(self._tasks.values()) if task is None else [self._tasks[task]]
        if not tasks:
            raise InputError("Cannot compare recipes: these results have no labelled pairs, texts or queries.")
        if len(tasks) > 1 and not score and not self._has_one_score:
            scores = ", ".join(f"{labelled.name} ({labelled.score_names[0]})" for labelled in tasks)
            raise InputError(f"Cannot average the different scores of the tasks: {scores}. Select one with task=….")
        scored = []
        for labelled in tasks:
            score_names = labelled.score_names
            if score and score not in score_names:
                allowed = ", ".join(score_names)
                raise InputError(f"Cannot compare by {score!r} on {labelled.name}. Its scores: {allowed}.")
            evidence = [next(r.evidence for r in self[name] if r.task == labelled.name) for name in names]
            if any(values is None for values in evidence):
                raise InputError(f"The results on {labelled.name} contain no evidence to compare. Evaluate again.")
            scored.append(Scored(labelled, score or score_names[0], list(names), np.array(evidence)))
        return scored

    # -- views ------------------------------------------------------------------------------------------------------

    def frame(self) -> pd.DataFrame:
        """Return a data frame with one row per model, recipe, task and metric.

        It contains the score (×100 for labels), its 95 % interval (NaN without one) and the number of examples. Column
        `main` marks the main score of each task:
        `frame[frame.main].pivot(index=["model", "recipe"], columns="task", values="score")` is the table.

        Raises:
            MissingDependencyError: pandas is not installed.
        """
        pandas = optional_import("pandas", "data")
        labelled = [(label, result) for label, results in self.items() for result in results]
        short = short_names({str(result.provenance.get("model", "")) for _, result in labelled})
        rows = [
            {
                "model": short[str(result.provenance.get("model", ""))],
                "recipe": result.provenance.get("recipe", label),
                "task": result.task,
                "metric": metric,
                "score": scores[_main_key(result, metric)],
                "low": scores.get("low", math.nan),
                "high": scores.get("high", math.nan),
                "main": result.main is not None and metric == result.main[0],
                "n": result.n,
            }
            for label, result in labelled
            for metric, scores in result.metrics.items()
        ]
        frame: pd.DataFrame = pandas.DataFrame(rows, columns=COLUMNS)
        return frame

    def __repr__(self) -> str:
        tasks = dict.fromkeys(result.task for results in self.values() for result in results)
        return f"<{type(self).__name__}: {len(self)} rows on {', '.join(tasks)}>"

    def __str__(self) -> str:
        return "\n".join([*self.summary(), str(results_table(self))])


def _normalized(recipe: Any) -> str:
    """Return the text form of a recipe, or the text itself if it is not a recipe."""
    try:
        return str(Recipe.parse(recipe))
    except EssentError:
        return str(recipe)


def _main_key(result: Result, metric: str) -> str:
    """Return the key of a metric's main number: "all", or another one such as the mean of runs."""
    main_metric, key = result.main or ("", "")
    scores = result.metrics[metric]
    return key if metric == main_metric else "all" if "all" in scores else next(iter(scores))
