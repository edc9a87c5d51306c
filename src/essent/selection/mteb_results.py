"""MTEB's saved results as results of essent, and models compared by them.

Source: the layout of mteb 2.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np

from essent._core.registry import did_you_mean
from essent.errors import DataError, EssentError, InputError
from essent.selection.results import Evaluation
from essent.tasks.base import LabeledTask, TaskLike
from essent.tasks.locate import load_labelled
from essent.tasks.pairs import PairTask
from essent.tasks.result import Result, read_json
from essent.tasks.retrieval import RetrievalTask

SPLIT = "test"
MODEL_FILE = "model_meta.json"
PREDICTIONS = "_predictions.json"  # after the name of a task; `mteb.evaluate(…, prediction_folder=…)`
OWN = "essent_result"  # key of the complete result of an essent task among MTEB's scores
EVIDENCE = "essent_evidence"  # key of the evidence of an essent task among MTEB's predictions
NO_METRICS = {"hf_subset", "languages", "mteb_version", OWN}
# words in names of metrics that are not fractions
NO_FRACTIONS = {"threshold", "mse", "rmse", "mae", "time", "seconds", "num", "samples"}
SAME_SCORE = 0.05  # points ×100: more is another order of the pairs, or other labels


def read_mteb_results(path: str | Path) -> list[Result]:
    """Read MTEB's saved results: one result per task and split, in the order of the file names.

    MTEB's fractions become ×100, as everywhere in essent. These stay unchanged: thresholds and errors (by their name),
    metrics with values outside of [-1, 1], and all metrics of a file whose main score is outside. MTEB does not save
    which metric is the main one, so the main score is a separate metric "main_score"; its key is "all", or "mean" (the
    unweighted mean over subsets, as in MTEB) if there are several. MTEB does not save the number of examples either:
    n is 0. Results of essent's own tasks (see `to_mteb`) are complete, but rounded by MTEB to six decimals.

    Args:
        path: a task's JSON file, a file of ModelResult or BenchmarkResults, or a folder that contains any number of
            them at any depth, each with `model_meta.json` beside it.

    Raises:
        DataError: no results at this path, or a file that is not MTEB's.

    Example:
        >>> import json
        >>> from pathlib import Path
        >>> from essent.selection.mteb import read_mteb_results
        >>> scores = {"test": [{"hf_subset": "default", "languages": ["eng-Latn"], "main_score": 0.7725}]}
        >>> _ = Path("STS12.json").write_text(json.dumps({"task_name": "STS12", "scores": scores}))
        >>> [(result.task, result.main_score) for result in read_mteb_results("STS12.json")]
        [('STS12', 77.25)]
    """
    path = Path(path).expanduser()
    files = [path]
    if path.is_dir():
        names = sorted(path.rglob("*.json"))
        files = [file for file in names if file.name != MODEL_FILE and not file.name.endswith(PREDICTIONS)]
    if not files:
        raise DataError(f"The folder {path} contains no results of MTEB: no JSON file except {MODEL_FILE}.")
    return [result for file in files for result in _file_results(file)]


def _file_results(path: Path) -> Iterator[Result]:
    content = _json(path)
    try:
        if "mteb_dataset_name" in content:
            raise DataError("written before MTEB 1.11; convert it with `mteb.TaskResult.from_disk` and `to_disk`")
        if "model_results" in content or "task_results" in content:
            for model in content.get("model_results", [content]):
                for task in model["task_results"]:
                    yield from _task_results(task, model["model_name"], model.get("model_revision"))
        else:
            model_file = path.parent / MODEL_FILE
            model = _json(model_file) if model_file.is_file() else {}
            experiment = ", ".join(f"{key}={value}" for key, value in (model.get("experiment_kwargs") or {}).items())
            name = model.get("name")
            yield from _task_results(content, f"{name} ({experiment})" if experiment else name, model.get("revision"))
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
        kind = "" if isinstance(error, DataError) else f"{type(error).__name__}: "
        raise DataError(f"{path} is not a result of MTEB: {kind}{error}.") from None


def _json(path: Path) -> dict[str, Any]:
    content = read_json(path)
    if not isinstance(content, dict):
        raise DataError(f"{path} is not a result of MTEB: expected a JSON object, not a {type(content).__name__}.")
    return content


def _task_results(content: Mapping[str, Any], model: str | None, revision: str | None) -> Iterator[Result]:
    """Yield the results of one TaskResult, one per split."""
    name, splits = content["task_name"], content["scores"]
    if not isinstance(name, str) or not splits:
        raise DataError(f"the task is {name!r} and its scores are {splits!r}")
    numbers = {
        split: {str(entry["hf_subset"]): _numbers(entry) for entry in entries} for split, entries in splits.items()
    }
    _scale_fractions([scores for subsets in numbers.values() for scores in subsets.values()])
    date = content.get("date")
    if isinstance(date, (int, float)):  # seconds since 1970, as `to_disk` writes it
        date = datetime.fromtimestamp(date, timezone.utc).isoformat(timespec="seconds")
    origin = {
        "model": model,
        "model_revision": revision,
        "mteb": content.get("mteb_version"),
        "dataset_revision": content.get("dataset_revision"),
        "evaluation_time": content.get("evaluation_time"),
        "date": None if date is None else str(date),
    }
    provenance = {key: entry for key, entry in origin.items() if entry is not None}
    for split, entries in splits.items():
        if not entries:
            raise DataError(f"the split {split!r} of {name!r} has no scores")
        if OWN in entries[0]:  # its name contains the part of the data
            yield Result.from_dict(entries[0][OWN]).with_provenance(**provenance)
            continue
        languages = sorted({language for entry in entries for language in entry["languages"]})
        split_provenance = {**provenance, "split": split, "languages": languages}
        yield _split_result(name if split == SPLIT else f"{name}.{split}", numbers[split], split_provenance)


def _split_result(name: str, subsets: Mapping[str, dict[str, float]], provenance: dict[str, Any]) -> Result:
    """Return the result of one split, from the scores of its subsets by metric."""
    first, *others = subsets.values()
    key = "mean" if others else "all"
    metrics = {
        metric: {key: math.fsum(scores[metric] for scores in subsets.values()) / len(subsets)}
        for metric in first
        if all(metric in scores for scores in others)
    }
    undefined = [subset for subset, scores in subsets.items() if math.isnan(scores["main_score"])]
    notes = (f"The main score is undefined for: {', '.join(undefined)}.",) if undefined else ()
    is_split = list(subsets) != ["default"]
    by_subset = {subset: {"n": 0, **scores} for subset, scores in subsets.items()} if is_split else {}
    return Result(name, metrics, by_subset, 0, provenance, notes, ("main_score", key))


def _numbers(entry: Mapping[str, Any]) -> dict[str, float]:
    """Return the main score and the metrics of a subset, without lists and mappings (single runs, single classes)."""
    main = math.nan if entry["main_score"] is None else entry["main_score"]
    numbers = {
        metric: float(number)
        for metric, number in {**entry, "main_score": main}.items()
        if metric not in NO_METRICS and isinstance(number, (int, float)) and not isinstance(number, bool)
    }
    if "main_score" not in numbers:
        raise DataError(f"the main score is {main!r}, not a number")
    return numbers


def _scale_fractions(scores: Sequence[dict[str, float]]) -> None:
    """Multiply by 100 the metrics that are fractions in the scores of all subsets and splits of a file."""
    outside = {metric for subset in scores for metric, number in subset.items() if abs(number) > 1}
    for subset in () if "main_score" in outside else scores:
        for metric in subset.keys() - outside:
            if NO_FRACTIONS.isdisjoint(metric.lower().split("_")):
                subset[metric] *= 100.0


# -- comparison of models ----------------------------------------------------------------------------------------------


def compare_mteb_results(paths: Sequence[str | Path], labels: Mapping[str, TaskLike] | None = None) -> Evaluation:
    """Compare models by MTEB's saved results: one row per model and revision, its difference from the first.

    MTEB's results have no scores of single examples, so a difference has no interval, and the comparison says so. The
    predictions that `mteb.evaluate(…, prediction_folder=…)` saves have the similarities of pairs (STS), the ranked
    documents (retrieval), and the values of single examples for essent's tasks of any kind. With the labels of such a
    task, its difference is paired and has an interval.

    Args:
        paths: files and folders, as in `read_mteb_results`. Predictions (NAME_predictions.json) may be anywhere in the
            folders.
        labels: labels by the name of the task, such as {"STSBenchmark": "stsb"}, as in `essent.evaluate`: scored pairs
            in MTEB's order, or retrieval with MTEB's ids; for a task of essent, the task itself.

    Raises:
        DataError: no results at a path; no predictions of a task with labels; or labels with which the predictions do
            not have the score that MTEB saved.
        InputError: labels of a task without results.

    Example:
        >>> import json
        >>> from pathlib import Path
        >>> from essent.selection.mteb import compare_mteb_results
        >>> for model, score in (("a", 0.7725), ("b", 0.8011)):
        ...     folder = Path("mteb", model)
        ...     folder.mkdir(parents=True)
        ...     scores = {"test": [{"hf_subset": "default", "languages": ["eng-Latn"], "main_score": score}]}
        ...     _ = (folder / "STS12.json").write_text(json.dumps({"task_name": "STS12", "scores": scores}))
        ...     _ = (folder / "model_meta.json").write_text(json.dumps({"name": f"me/{model}", "revision": "1"}))
        >>> comparison = compare_mteb_results(["mteb/a", "mteb/b"])
        >>> {model: result.main_score for model, (result,) in comparison.items()}
        {'me/a': 77.25, 'me/b': 80.11}
    """
    if isinstance(paths, (str, Path)):
        paths = [paths]
    results = []
    for result in (result for path in paths for result in read_mteb_results(path)):
        origin = result.provenance  # the recipe, which tells rows of one model apart, is the model's revision
        recipe = origin.get("recipe") or origin.get("model_revision") or "as it is"
        results.append(result.with_provenance(model=str(origin.get("model") or "a model"), recipe=str(recipe)))
    names = list(dict.fromkeys(result.task for result in results))
    tasks: dict[str, LabeledTask] = {}
    for name, source in (labels or {}).items():
        if name not in names:
            raise InputError(f"There are no results of the task {name!r}. {did_you_mean(name, names)}")
        tasks[name] = replace(load_labelled(source), name=name)
    predictions = _predictions(paths) if tasks else {}
    results = [_with_evidence(r, tasks[r.task], predictions) if r.task in tasks else r for r in results]
    evaluation = Evaluation.of(results, ())
    in_every_row = set.intersection(*({result.task for result in row} for row in evaluation.values()))
    return Evaluation(evaluation, [task for name, task in tasks.items() if name in in_every_row])


def own_name(task: str) -> str:
    """Return MTEB's name of a task of essent."""
    return f"essent.{task}"


def _predictions(paths: Sequence[str | Path]) -> dict[tuple[Any, ...], dict[str, Any]]:
    """Return the first predictions in the folders by the name of the task, the model and its revision."""
    predictions: dict[tuple[Any, ...], dict[str, Any]] = {}
    for path in paths:
        for file in sorted(Path(path).expanduser().rglob(f"*{PREDICTIONS}")):
            content = _json(file)
            model = content.get("mteb_model_meta", {})
            key = file.name.removesuffix(PREDICTIONS), model.get("model_name"), model.get("revision")
            predictions.setdefault(key, content)
    return predictions


def _with_evidence(result: Result, task: LabeledTask, predictions: Mapping[tuple[Any, ...], dict[str, Any]]) -> Result:
    """Return a result with the values of single examples, computed from MTEB's predictions.

    Raises:
        DataError: no predictions, or predictions that do not have the saved score with these labels.
    """
    origin = result.provenance
    is_own, model = "sha256" in origin, origin["model"]
    split = SPLIT if is_own else origin["split"]
    name = own_name(result.task) if is_own else result.task.removesuffix(f".{split}")
    subset = "default" if is_own else next(iter(result.subsets), "default")
    prediction = predictions.get((name, model, origin.get("model_revision")), {}).get(subset, {}).get(split)
    if prediction is None or (len(result.subsets) > 1 and not is_own):
        raise DataError(
            f"There are no predictions of {model} for {result.task}, of which MTEB saves one file per model and task: "
            f"{name}{PREDICTIONS}. Run mteb.evaluate(…, prediction_folder=FOLDER) with one FOLDER per model, in a path."
        )
    try:
        evidence = _evidence(task, prediction)
        score = float(task.scores(evidence[None])[0])
    except (EssentError, AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        reason = str(error) if isinstance(error, EssentError) else f"{type(error).__name__}: {error}."
        raise DataError(f"The predictions of {model} for {result.task} do not fit the labels: {reason}") from None
    if not abs(score - result.main_score) <= SAME_SCORE:
        raise DataError(
            f"The predictions of {model} for {result.task} score {score:.2f} with these labels, but MTEB saved "
            f"{result.main_score:.2f}. Give MTEB's own examples, in its order."
        )
    return replace(result, evidence=evidence, n=task.units)


def _evidence(task: LabeledTask, prediction: Any) -> np.ndarray:
    """Return the evidence (E,) of saved predictions: cosines of pairs, or scores of the ranked documents."""
    if EVIDENCE in prediction:
        return np.asarray(prediction[EVIDENCE], np.float64)
    if isinstance(task, RetrievalTask):
        return task.evidence_of_run({query: prediction[query] for query in task.queries})
    if not isinstance(task, PairTask):
        raise InputError(f"expected scored pairs or retrieval, not {task.kind}.")
    if len(cosines := np.asarray(prediction["cosine_scores"], np.float64)) != task.units:
        raise InputError(f"{len(cosines)} similarities of {task.units} pairs.")
    return cosines
