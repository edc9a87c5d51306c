"""Tasks of essent as tasks of MTEB."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, Protocol

from essent._core.lazy import optional_import
from essent.errors import InputError
from essent.selection.mteb.results import OWN, SPLIT
from essent.tasks.geometry import GeometryTask
from essent.tasks.heros import HerosTask
from essent.tasks.pairs import PairTask
from essent.tasks.result import Result


class Task(Protocol):
    """What every task of essent has."""

    @property
    def name(self) -> str:
        """Name of the task, e.g. "stsb.dev"."""

    def texts(self) -> list[str]:
        """All texts, duplicates kept."""

    def digest(self) -> str:
        """SHA-256 of the data."""

    def run(self, encode: Callable[[list[str]], Any], /) -> Result:
        """Encode each distinct text once and score."""


def to_mteb(
    task: Task,
    *,
    type: str | None = None,
    main: tuple[str, str] | None = None,
    languages: Sequence[str] = ("eng-Latn",),
) -> Any:
    """A task of essent as an `mteb.AbsTask`: `mteb.evaluate(model, [to_mteb(task)])`. Nothing is downloaded.

    It is called `essent.{name}`, its data's revision is the task's digest, its one split "test", whatever part of the
    data that is. Scores are named "spearman.all"; as MTEB has fractions, those of a task with a main score, which
    are ×100 in essent, are divided by 100; the others stay as they are. The whole result, not divided, stands among
    them as `essent_result`; `read_mteb_results` gives it back.

    Args:
        task: with name, texts, digest and run: PairTask, HerosTask, LabelTask …
        type: MTEB's type of task, which chooses a model's prompts. By default "Classification" for LabelTask,
            "Clustering" for ClusterTask, "PairClassification" for DuplicateTask, "Retrieval" for RetrievalTask, "STS"
            for tasks that compare sentences or vectors.
        main: metric and key of the main score; by default the result's own. HEROS and geometry have none: in MTEB HEROS
            has `kept_closer`, one minus the mean of `ranked_above` (how often a change that keeps the meaning looks at
            least as close as one that alters it), geometry its IsoScore.
        languages: of the texts, as MTEB writes them ("eng-Latn"); the tasks of the catalogue are English.

    Raises:
        MissingDependencyError: mteb is not installed.
        InputError: a name that is no file name, a type that MTEB does not have, or no type for another kind of task.
    """
    if not task.name or re.search(r'[/\\:*?"<>|\x00-\x1f]', task.name):
        raise InputError(f"MTEB names files after tasks, and {task.name!r} cannot be part of a file name.")
    return _task_class()(task, _type_of(task) if type is None else type, main, list(languages))


def _type_of(task: Task) -> str:
    from essent.tasks.clusters import ClusterTask
    from essent.tasks.labels import LabelTask
    from essent.tasks.pairs import DuplicateTask, TripletTask
    from essent.tasks.retrieval import RetrievalTask

    kinds: dict[str, Any] = {
        "Classification": LabelTask,
        "Clustering": ClusterTask,
        "PairClassification": DuplicateTask,
        "Retrieval": RetrievalTask,
        "STS": (PairTask, TripletTask, HerosTask, GeometryTask),
    }
    for name, kind in kinds.items():
        if isinstance(task, kind):
            return name
    raise InputError(f"{task.name}: which of MTEB's types is a {task.__class__.__name__}? Give type=, e.g. 'STS'.")


@cache
def _task_class() -> Any:
    """The class of all tasks of essent in MTEB; made when it is first needed, as it descends from one of mteb."""
    base: Any = optional_import("mteb", "mteb").AbsTask
    metadata_of = optional_import("mteb.abstasks.task_metadata", "mteb").TaskMetadata
    from datasets import Dataset, DatasetDict
    from torch.utils.data import DataLoader

    class EssentTask(base):
        """A task of essent that encodes through MTEB's model and keeps essent's scores."""

        def __init__(self, task: Task, type: str, main: tuple[str, str] | None, languages: list[str]) -> None:
            texts = task.texts()
            self.essent_task, self.main = task, main
            try:
                # an attribute of the task and not of the class: there is one class for all, and `unload_data`, which
                # would throw it away, does nothing here
                self.metadata = metadata_of(
                    name=f"essent.{task.name}",
                    description=f"{task.__class__.__name__} {task.name!r} of essent, {len(texts)} texts, in memory.",
                    dataset={"path": "in-memory", "revision": task.digest()},
                    type=type,
                    category="t2t" if type == "STS" else "t2c",
                    eval_splits=[SPLIT],
                    eval_langs=languages,
                    main_score="main_score" if main is None else ".".join(main),
                    license="not specified",
                    is_public=False,
                )
                self.metadata._validate_metadata()
            except ValueError as error:  # pydantic's too
                raise InputError(f"MTEB does not take the task {task.name!r}: {error}") from None
            super().__init__()
            self.dataset = {"default": DatasetDict({SPLIT: Dataset.from_dict({"text": texts})})}
            self.data_loaded = True

        def load_data(self, *args: Any, **kwargs: Any) -> None:
            """Nothing to do: the texts are there."""

        def unload_data(self) -> None:
            """Nothing to do: the texts cannot be loaded again."""

        def _evaluate_subset(
            self,
            model: Any,
            data_split: Any,
            *,
            hf_split: str,
            hf_subset: str,
            encode_kwargs: Mapping[str, Any],
            **kwargs: Any,
        ) -> dict[str, Any]:
            def encode(texts: list[str]) -> Any:
                rows = Dataset.from_dict({"text": texts})
                return model.encode(
                    DataLoader(rows, batch_size=encode_kwargs.get("batch_size", 32)),
                    task_metadata=self.metadata,
                    hf_split=hf_split,
                    hf_subset=hf_subset,
                    **encode_kwargs,
                )

            return _scores(self.essent_task.run(encode), self.main)

        def _add_main_score(self, scores: dict[str, Any]) -> None:
            """Nothing to do: which score is the main one is known with the result."""

        def _calculate_descriptive_statistics_from_split(self, split: str, **kwargs: Any) -> dict[str, Any]:
            texts = self.essent_task.texts()
            characters = sum(map(len, texts))
            return {"num_samples": len(texts), "number_of_characters": characters, "unique_texts": len(set(texts))}

    return EssentTask


def _scores(result: Result, main: tuple[str, str] | None) -> dict[str, Any]:
    """A result as MTEB's scores: one flat mapping of fractions, `main_score` among them."""
    divisor = 1.0 if result.main is None else 100.0
    flat: dict[str, Any] = {
        f"{metric}.{key}": float(value) / divisor
        for metric, values in result.metrics.items()
        for key, value in values.items()
    }
    chosen = result.main if main is None else main
    if chosen is None and (shares := result.metrics.get("ranked_above")) is not None:
        flat["kept_closer"] = 1.0 - math.fsum(shares.values()) / len(shares) if shares else math.nan
        name = "kept_closer"
    elif chosen is None and "isoscore" in result.metrics:
        name = "isoscore.all"
    elif chosen is None:
        raise InputError(
            f"{result.task} has no main score: give main=, the metric and key of one of {', '.join(flat)}."
        )
    else:
        name = ".".join(chosen)
    if name not in flat:
        raise InputError(f"{result.task} has no score {name!r}; it has {', '.join(flat)}.")
    return {**flat, "main_score": flat[name], OWN: result.to_dict()}
