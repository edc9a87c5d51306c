"""Evaluation tasks: data sets as rows of a catalogue, kinds of score as classes, results as plain values.

A task never sees an encoder, only something with `encode(list of N texts) -> (N,D)`, or such a function:

    from essent.tasks import load_task

    load_task("stsb", data="my-data").run(model).main_score
"""

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
