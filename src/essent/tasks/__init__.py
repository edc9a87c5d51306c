"""Evaluation tasks: data sets as rows of a catalogue, kinds of score as classes, results as plain values.

A task never sees an encoder, only something with `encode(list of N texts) -> (N,D)`, or such a function:

    from essent.tasks import load_task

    load_task("stsb", data="my-data").run(model).main_score
"""

from essent.tasks.base import Task
from essent.tasks.catalogue import STS7, Clusters, Labels, Pairs, add, task_names
from essent.tasks.clusters import ClusterTask
from essent.tasks.data import PAIR_COLUMNS, SUFFIXES, Row, located_rows, read_text, split_lines, text_value
from essent.tasks.examples import Example
from essent.tasks.geometry import GeometryTask, average_cosine
from essent.tasks.heros import CHANGED, KEPT, SUBSETS, HerosTask, MinimalPair, comparisons, verdict
from essent.tasks.heros_files import load_heros
from essent.tasks.labelled_sets import CLASSIFICATION12, CLUSTERING6, TRANSFER7
from essent.tasks.labels import LabelTask
from essent.tasks.locate import load_pairs, load_task
from essent.tasks.overlap import PUBLISHED, Tokenize, levenshtein, overlap, words_and_marks
from essent.tasks.pairs import METRICS, SAME_COSINE, PairTask, rows_of
from essent.tasks.result import FORMAT, Result, library_versions, load_results, plain, save_results
from essent.tasks.table import ResultsTable, results_table

__all__ = [
    "CHANGED",
    "CLASSIFICATION12",
    "CLUSTERING6",
    "FORMAT",
    "KEPT",
    "METRICS",
    "PAIR_COLUMNS",
    "PUBLISHED",
    "SAME_COSINE",
    "STS7",
    "SUBSETS",
    "SUFFIXES",
    "TRANSFER7",
    "ClusterTask",
    "Clusters",
    "Example",
    "GeometryTask",
    "HerosTask",
    "LabelTask",
    "Labels",
    "MinimalPair",
    "PairTask",
    "Pairs",
    "Result",
    "ResultsTable",
    "Row",
    "Task",
    "Tokenize",
    "add",
    "average_cosine",
    "comparisons",
    "levenshtein",
    "library_versions",
    "load_heros",
    "load_pairs",
    "load_results",
    "load_task",
    "located_rows",
    "overlap",
    "plain",
    "read_text",
    "results_table",
    "rows_of",
    "save_results",
    "split_lines",
    "task_names",
    "text_value",
    "verdict",
    "words_and_marks",
]
