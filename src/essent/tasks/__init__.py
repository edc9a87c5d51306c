"""Evaluation tasks: data sets as rows of a catalogue, kinds of score as classes, results as plain values.

A task never sees an encoder, only something with `encode(list of N texts) -> (N,D)`, or such a function:

    from essent.tasks import load_task

    load_task("stsb", data="my-data").run(model).main_score
"""

from essent.tasks.base import Task
from essent.tasks.catalogue import STS7, Clusters, Labels, Pairs, add, task_names
from essent.tasks.clusters import ClusterTask
from essent.tasks.examples import Example
from essent.tasks.geometry import GeometryTask
from essent.tasks.heros import HerosTask
from essent.tasks.heros_files import load_heros
from essent.tasks.labelled_sets import CLASSIFICATION12, CLUSTERING6, TRANSFER7
from essent.tasks.labels import LabelTask
from essent.tasks.locate import load_pairs, load_task
from essent.tasks.pairs import PairTask
from essent.tasks.result import Result, load_results, save_results
from essent.tasks.table import ResultsTable, results_table

__all__ = [
    "CLASSIFICATION12",
    "CLUSTERING6",
    "STS7",
    "TRANSFER7",
    "ClusterTask",
    "Clusters",
    "Example",
    "GeometryTask",
    "HerosTask",
    "LabelTask",
    "Labels",
    "PairTask",
    "Pairs",
    "Result",
    "ResultsTable",
    "Task",
    "add",
    "load_heros",
    "load_pairs",
    "load_results",
    "load_task",
    "results_table",
    "save_results",
    "task_names",
]
