"""Evaluation tasks: data sets as rows of a catalogue, kinds of score as classes, results as plain values.

A task never sees an encoder, only something with `encode(list of N texts) -> (N,D)`, or such a function:

    from essent.tasks import load_task

    load_task("stsb", data="my-data").run(model).main_score
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from essent.lazy import lazy_door

if TYPE_CHECKING:
    from essent.tasks.base import Task
    from essent.tasks.base import TaskLike as TaskLike
    from essent.tasks.base import prompt_note as prompt_note
    from essent.tasks.base import unit_rows as unit_rows
    from essent.tasks.catalogue import STS7, Clusters, Labels, Pairs, add
    from essent.tasks.clusters import ClusterTask
    from essent.tasks.comparison import SEVERAL as SEVERAL
    from essent.tasks.comparison import Comparison, Scored, compare
    from essent.tasks.comparison import against as against
    from essent.tasks.comparison import compare_each as compare_each
    from essent.tasks.comparison import draws_of as draws_of
    from essent.tasks.comparison import mean_of_data_sets as mean_of_data_sets
    from essent.tasks.comparison import with_prior as with_prior
    from essent.tasks.data import PAIR_COLUMNS as PAIR_COLUMNS
    from essent.tasks.data import SUFFIXES as SUFFIXES
    from essent.tasks.data import Pair
    from essent.tasks.data import Row as Row
    from essent.tasks.data import located_rows as located_rows
    from essent.tasks.data import pairs_from_rows as pairs_from_rows
    from essent.tasks.data import read_text as read_text
    from essent.tasks.data import split_lines as split_lines
    from essent.tasks.data import text_value as text_value
    from essent.tasks.duplicates import DuplicateTask
    from essent.tasks.examples import Example
    from essent.tasks.geometry import GeometryTask, average_cosine
    from essent.tasks.heros import CHANGED as CHANGED
    from essent.tasks.heros import KEPT as KEPT
    from essent.tasks.heros import SUBSETS as SUBSETS
    from essent.tasks.heros import HerosTask, MinimalPair, comparisons, verdict
    from essent.tasks.heros_files import load_heros
    from essent.tasks.judged import JudgedTask
    from essent.tasks.judged import bootstrap as bootstrap
    from essent.tasks.judged import permutation_p as permutation_p
    from essent.tasks.judged import scores_of_parts as scores_of_parts
    from essent.tasks.kinds import COLUMNS as COLUMNS
    from essent.tasks.kinds import SCORE_NAMES as SCORE_NAMES
    from essent.tasks.label_sets import spread_folds as spread_folds
    from essent.tasks.labelled_sets import CLASSIFICATION12, CLUSTERING6, TRANSFER7
    from essent.tasks.labels import LabelTask
    from essent.tasks.locate import as_task as as_task
    from essent.tasks.locate import load_judged as load_judged
    from essent.tasks.locate import load_pairs, load_task
    from essent.tasks.names import task_names
    from essent.tasks.overlap import PUBLISHED as PUBLISHED
    from essent.tasks.overlap import Tokenize as Tokenize
    from essent.tasks.overlap import levenshtein as levenshtein
    from essent.tasks.overlap import lexical_overlap
    from essent.tasks.overlap import words_and_marks as words_and_marks
    from essent.tasks.pairs import METRICS as METRICS
    from essent.tasks.pairs import SAME_COSINE as SAME_COSINE
    from essent.tasks.pairs import PairTask
    from essent.tasks.pairs import rows_of as rows_of
    from essent.tasks.resampling import RESAMPLES as RESAMPLES
    from essent.tasks.resampling import interval as interval
    from essent.tasks.result import FORMAT as FORMAT
    from essent.tasks.result import Result, load_results, save_results
    from essent.tasks.result import library_versions as library_versions
    from essent.tasks.result import plain as plain
    from essent.tasks.retrieval import RetrievalTask
    from essent.tasks.sample import sample_pairs_path as sample_pairs_path
    from essent.tasks.sample import sample_texts as sample_texts
    from essent.tasks.scoring import TaskScorer, scorer
    from essent.tasks.table import ResultsTable, results_table
    from essent.tasks.table import few_labels_tables as few_labels_tables
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
        "SEVERAL": "essent.tasks.comparison",
        "Comparison": "essent.tasks.comparison",
        "Scored": "essent.tasks.comparison",
        "against": "essent.tasks.comparison",
        "compare": "essent.tasks.comparison",
        "compare_each": "essent.tasks.comparison",
        "draws_of": "essent.tasks.comparison",
        "mean_of_data_sets": "essent.tasks.comparison",
        "SCORE_NAMES": "essent.tasks.kinds",
        "COLUMNS": "essent.tasks.kinds",
        "load_judged": "essent.tasks.locate",
        "as_task": "essent.tasks.locate",
        "RESAMPLES": "essent.tasks.resampling",
        "interval": "essent.tasks.resampling",
        "scores_of_parts": "essent.tasks.judged",
        "permutation_p": "essent.tasks.judged",
        "bootstrap": "essent.tasks.judged",
        "JudgedTask": "essent.tasks.judged",
        "RetrievalTask": "essent.tasks.retrieval",
        "TripletTask": "essent.tasks.triplets",
        "DuplicateTask": "essent.tasks.duplicates",
        "CHANGED": "essent.tasks.heros",
        "CLASSIFICATION12": "essent.tasks.labelled_sets",
        "CLUSTERING6": "essent.tasks.labelled_sets",
        "ClusterTask": "essent.tasks.clusters",
        "Clusters": "essent.tasks.catalogue",
        "Example": "essent.tasks.examples",
        "FORMAT": "essent.tasks.result",
        "GeometryTask": "essent.tasks.geometry",
        "HerosTask": "essent.tasks.heros",
        "KEPT": "essent.tasks.heros",
        "LabelTask": "essent.tasks.labels",
        "Labels": "essent.tasks.catalogue",
        "METRICS": "essent.tasks.pairs",
        "MinimalPair": "essent.tasks.heros",
        "PAIR_COLUMNS": "essent.tasks.data",
        "PUBLISHED": "essent.tasks.overlap",
        "Pair": "essent.tasks.data",
        "PairTask": "essent.tasks.pairs",
        "Pairs": "essent.tasks.catalogue",
        "Result": "essent.tasks.result",
        "ResultsTable": "essent.tasks.table",
        "Row": "essent.tasks.data",
        "SAME_COSINE": "essent.tasks.pairs",
        "STS7": "essent.tasks.catalogue",
        "SUBSETS": "essent.tasks.heros",
        "SUFFIXES": "essent.tasks.data",
        "TRANSFER7": "essent.tasks.labelled_sets",
        "Task": "essent.tasks.base",
        "TaskLike": "essent.tasks.base",
        "TaskScorer": "essent.tasks.scoring",
        "Tokenize": "essent.tasks.overlap",
        "add": "essent.tasks.catalogue",
        "average_cosine": "essent.tasks.geometry",
        "comparisons": "essent.tasks.heros",
        "levenshtein": "essent.tasks.overlap",
        "library_versions": "essent.tasks.result",
        "load_heros": "essent.tasks.heros_files",
        "load_pairs": "essent.tasks.locate",
        "load_results": "essent.tasks.result",
        "load_task": "essent.tasks.locate",
        "located_rows": "essent.tasks.data",
        "lexical_overlap": "essent.tasks.overlap",
        "pairs_from_rows": "essent.tasks.data",
        "plain": "essent.tasks.result",
        "read_text": "essent.tasks.data",
        "read_texts": "essent.tasks.text_files",
        "few_labels_tables": "essent.tasks.table",
        "results_table": "essent.tasks.table",
        "rows_of": "essent.tasks.pairs",
        "sample_pairs_path": "essent.tasks.sample",
        "sample_texts": "essent.tasks.sample",
        "save_results": "essent.tasks.result",
        "scorer": "essent.tasks.scoring",
        "split_lines": "essent.tasks.data",
        "spread_folds": "essent.tasks.label_sets",
        "task_names": "essent.tasks.names",
        "text_value": "essent.tasks.data",
        "prompt_note": "essent.tasks.base",
        "unit_rows": "essent.tasks.base",
        "verdict": "essent.tasks.heros",
        "with_prior": "essent.tasks.comparison",
        "words_and_marks": "essent.tasks.overlap",
    },
)
