"""Evaluation tasks: data sets as rows of a catalogue, kinds of score as classes, results as plain values.

A task never sees an encoder, only something with `encode(list of N texts) -> (N,D)`, or such a function:

    from essent.tasks import load_task

    load_task("stsb", data="my-data").run(model).main_score
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from essent._core.lazy import lazy_door

if TYPE_CHECKING:
    from essent.tasks.base import Task
    from essent.tasks.catalogue import STS7, Clusters, Labels, Pairs, add
    from essent.tasks.clusters import ClusterTask
    from essent.tasks.comparison import Comparison, Scored, compare
    from essent.tasks.data import Pair
    from essent.tasks.duplicates import DuplicateTask
    from essent.tasks.examples import Example
    from essent.tasks.geometry import GeometryTask, average_cosine
    from essent.tasks.heros import HerosTask, MinimalPair, comparisons, verdict
    from essent.tasks.heros_files import load_heros
    from essent.tasks.judged import JudgedTask
    from essent.tasks.labelled_sets import CLASSIFICATION12, CLUSTERING6, TRANSFER7
    from essent.tasks.labels import LabelTask
    from essent.tasks.locate import load_pairs, load_task
    from essent.tasks.names import task_names
    from essent.tasks.overlap import lexical_overlap
    from essent.tasks.pairs import PairTask
    from essent.tasks.result import Result, load_results, save_results
    from essent.tasks.retrieval import RetrievalTask
    from essent.tasks.scoring import TaskScorer, scorer
    from essent.tasks.table import ResultsTable, results_table
    from essent.tasks.text_files import read_texts
    from essent.tasks.triplets import TripletTask

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
    "JudgedTask",
    "LabelTask",
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
    "lexical_overlap",
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

__getattr__, __dir__ = lazy_door(
    __name__,
    {
        "Comparison": "essent.tasks.comparison",
        "Scored": "essent.tasks.comparison",
        "compare": "essent.tasks.comparison",
        "JudgedTask": "essent.tasks.judged",
        "RetrievalTask": "essent.tasks.retrieval",
        "TripletTask": "essent.tasks.triplets",
        "DuplicateTask": "essent.tasks.duplicates",
        "CLASSIFICATION12": "essent.tasks.labelled_sets",
        "CLUSTERING6": "essent.tasks.labelled_sets",
        "ClusterTask": "essent.tasks.clusters",
        "Clusters": "essent.tasks.catalogue",
        "Example": "essent.tasks.examples",
        "GeometryTask": "essent.tasks.geometry",
        "HerosTask": "essent.tasks.heros",
        "LabelTask": "essent.tasks.labels",
        "Labels": "essent.tasks.catalogue",
        "MinimalPair": "essent.tasks.heros",
        "Pair": "essent.tasks.data",
        "PairTask": "essent.tasks.pairs",
        "Pairs": "essent.tasks.catalogue",
        "Result": "essent.tasks.result",
        "ResultsTable": "essent.tasks.table",
        "STS7": "essent.tasks.catalogue",
        "TRANSFER7": "essent.tasks.labelled_sets",
        "Task": "essent.tasks.base",
        "TaskScorer": "essent.tasks.scoring",
        "add": "essent.tasks.catalogue",
        "average_cosine": "essent.tasks.geometry",
        "comparisons": "essent.tasks.heros",
        "load_heros": "essent.tasks.heros_files",
        "load_pairs": "essent.tasks.locate",
        "load_results": "essent.tasks.result",
        "load_task": "essent.tasks.locate",
        "lexical_overlap": "essent.tasks.overlap",
        "read_texts": "essent.tasks.text_files",
        "results_table": "essent.tasks.table",
        "save_results": "essent.tasks.result",
        "scorer": "essent.tasks.scoring",
        "task_names": "essent.tasks.names",
        "verdict": "essent.tasks.heros",
    },
)
