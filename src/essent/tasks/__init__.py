"""Evaluation tasks: data sets as rows of a catalogue, kinds of score as classes, results as plain values.

A task never sees an encoder, only something with `encode(list of N texts) -> (N,D)`, or such a function:

    from essent.tasks import load_task

    load_task("stsb", data="my-data").run(model).main_score
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from essent.lazy import lazy_door

if TYPE_CHECKING:
    from essent.tasks.base import Task, TaskLike, unit_rows
    from essent.tasks.catalogue import STS7, Clusters, Labels, Pairs, add
    from essent.tasks.clusters import ClusterTask, cores
    from essent.tasks.comparison import (
        SEVERAL,
        Comparison,
        Scored,
        against,
        compare,
        compare_each,
        draws_of,
        mean_of_data_sets,
        with_prior,
    )
    from essent.tasks.data import (
        PAIR_COLUMNS,
        SUFFIXES,
        Pair,
        Row,
        located_rows,
        pairs_from_rows,
        read_text,
        split_lines,
        text_value,
    )
    from essent.tasks.duplicates import DuplicateTask
    from essent.tasks.examples import Example
    from essent.tasks.geometry import GeometryTask, average_cosine
    from essent.tasks.heros import CHANGED, KEPT, SUBSETS, HerosTask, MinimalPair, comparisons, verdict
    from essent.tasks.heros_files import load_heros
    from essent.tasks.judged import JudgedTask, bootstrap, permutation_p, scores_of_parts
    from essent.tasks.kinds import COLUMNS, SCORE_NAMES
    from essent.tasks.label_sets import spread_folds
    from essent.tasks.labelled_sets import CLASSIFICATION12, CLUSTERING6, TRANSFER7
    from essent.tasks.labels import LabelTask
    from essent.tasks.locate import as_task, load_judged, load_pairs, load_task
    from essent.tasks.names import task_names
    from essent.tasks.overlap import PUBLISHED, Tokenize, levenshtein, lexical_overlap, words_and_marks
    from essent.tasks.pairs import METRICS, SAME_COSINE, PairTask, rows_of
    from essent.tasks.resampling import RESAMPLES, interval
    from essent.tasks.result import FORMAT, Result, library_versions, load_results, plain, save_results
    from essent.tasks.retrieval import RetrievalTask
    from essent.tasks.sample import sample_pairs_path, sample_texts
    from essent.tasks.scoring import TaskScorer, scorer
    from essent.tasks.table import ResultsTable, few_labels_tables, results_table
    from essent.tasks.text_files import read_texts
    from essent.tasks.triplets import TripletTask

__all__ = [
    "CHANGED",
    "CLASSIFICATION12",
    "CLUSTERING6",
    "COLUMNS",
    "FORMAT",
    "KEPT",
    "METRICS",
    "PAIR_COLUMNS",
    "PUBLISHED",
    "RESAMPLES",
    "SAME_COSINE",
    "SCORE_NAMES",
    "SEVERAL",
    "STS7",
    "SUBSETS",
    "SUFFIXES",
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
    "Row",
    "Scored",
    "Task",
    "TaskLike",
    "TaskScorer",
    "Tokenize",
    "TripletTask",
    "add",
    "against",
    "as_task",
    "average_cosine",
    "bootstrap",
    "compare",
    "compare_each",
    "comparisons",
    "cores",
    "draws_of",
    "few_labels_tables",
    "interval",
    "levenshtein",
    "lexical_overlap",
    "library_versions",
    "load_heros",
    "load_judged",
    "load_pairs",
    "load_results",
    "load_task",
    "located_rows",
    "mean_of_data_sets",
    "pairs_from_rows",
    "permutation_p",
    "plain",
    "read_text",
    "read_texts",
    "results_table",
    "rows_of",
    "sample_pairs_path",
    "sample_texts",
    "save_results",
    "scorer",
    "scores_of_parts",
    "split_lines",
    "spread_folds",
    "task_names",
    "text_value",
    "unit_rows",
    "verdict",
    "with_prior",
    "words_and_marks",
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
        "cores": "essent.tasks.clusters",
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
        "unit_rows": "essent.tasks.base",
        "verdict": "essent.tasks.heros",
        "with_prior": "essent.tasks.comparison",
        "words_and_marks": "essent.tasks.overlap",
    },
)
