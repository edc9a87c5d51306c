"""Evaluation tasks: data sets as rows of a catalogue, kinds of score as classes, results as plain values.

A task never sees an encoder, only something with `encode(list of N texts) -> (N,D)`, or such a function:

    from essent.tasks import load_task

    load_task("stsb", data="my-data").run(model).main_score
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from essent._core.lazy import lazy_door

if TYPE_CHECKING:
    from essent.tasks.base import LabeledTask, Task
    from essent.tasks.catalogue import (
        CLASSIFICATION12,
        CLUSTERING6,
        STS7,
        TRANSFER7,
        Clusters,
        Labels,
        Pairs,
        add,
        task_names,
    )
    from essent.tasks.clusters import ClusterTask
    from essent.tasks.comparison import Comparison, Scored, compare
    from essent.tasks.data import read_texts
    from essent.tasks.examples import Example, MinimalPair, Pair
    from essent.tasks.geometry import GeometryTask, average_cosine
    from essent.tasks.heros import HerosTask, comparisons, load_heros, verdict
    from essent.tasks.labels import LabelTask
    from essent.tasks.locate import TaskScorer, load_pairs, load_task, scorer
    from essent.tasks.pairs import DuplicateTask, PairTask, TripletTask
    from essent.tasks.result import Result, ResultsTable, load_results, results_table, save_results
    from essent.tasks.retrieval import RetrievalTask

__all__ = [
    "CLASSIFICATION12",
    "CLUSTERING6",
    "STS7",
    "TRANSFER7",
    "ClusterTask",
    "Clusters",
    "Comparison",
    "DuplicateTask",
    "Example",
    "GeometryTask",
    "HerosTask",
    "LabelTask",
    "LabeledTask",
    "Labels",
    "MinimalPair",
    "Pair",
    "PairTask",
    "Pairs",
    "Result",
    "ResultsTable",
    "RetrievalTask",
    "Scored",
    "Task",
    "TaskScorer",
    "TripletTask",
    "add",
    "average_cosine",
    "compare",
    "comparisons",
    "load_heros",
    "load_pairs",
    "load_results",
    "load_task",
    "read_texts",
    "results_table",
    "save_results",
    "scorer",
    "task_names",
    "verdict",
]

# a static encoder and `--help` import files of this package, and pay for no kind of task
__getattr__, __dir__ = lazy_door(
    __name__,
    {
        "CLASSIFICATION12": "essent.tasks.catalogue",
        "CLUSTERING6": "essent.tasks.catalogue",
        "ClusterTask": "essent.tasks.clusters",
        "Clusters": "essent.tasks.catalogue",
        "Comparison": "essent.tasks.comparison",
        "DuplicateTask": "essent.tasks.pairs",
        "Example": "essent.tasks.examples",
        "GeometryTask": "essent.tasks.geometry",
        "HerosTask": "essent.tasks.heros",
        "LabelTask": "essent.tasks.labels",
        "LabeledTask": "essent.tasks.base",
        "Labels": "essent.tasks.catalogue",
        "MinimalPair": "essent.tasks.examples",
        "Pair": "essent.tasks.examples",
        "PairTask": "essent.tasks.pairs",
        "Pairs": "essent.tasks.catalogue",
        "Result": "essent.tasks.result",
        "ResultsTable": "essent.tasks.result",
        "RetrievalTask": "essent.tasks.retrieval",
        "STS7": "essent.tasks.catalogue",
        "Scored": "essent.tasks.comparison",
        "TRANSFER7": "essent.tasks.catalogue",
        "Task": "essent.tasks.base",
        "TaskScorer": "essent.tasks.locate",
        "TripletTask": "essent.tasks.pairs",
        "add": "essent.tasks.catalogue",
        "average_cosine": "essent.tasks.geometry",
        "compare": "essent.tasks.comparison",
        "comparisons": "essent.tasks.heros",
        "load_heros": "essent.tasks.heros",
        "load_pairs": "essent.tasks.locate",
        "load_results": "essent.tasks.result",
        "load_task": "essent.tasks.locate",
        "read_texts": "essent.tasks.data",
        "results_table": "essent.tasks.result",
        "save_results": "essent.tasks.result",
        "scorer": "essent.tasks.locate",
        "task_names": "essent.tasks.catalogue",
        "verdict": "essent.tasks.heros",
    },
)
