"""Results that MTEB has saved, as results of essent. Plain JSON: mteb need not be installed."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from essent.errors import DataError
from essent.tasks.result import Result

SPLIT = "test"
MODEL_FILE = "model_meta.json"
OWN = "essent_result"  # where a task of essent keeps its whole result among MTEB's scores
BESIDE_METRICS = {"main_score", "hf_subset", "languages", "mteb_version", OWN}
NO_FRACTIONS = {"threshold", "mse", "rmse", "mae", "time", "seconds", "num", "samples"}  # words in names of metrics


def read_mteb_results(path: str | Path) -> list[Result]:
    """Read what MTEB has saved: one result a task and split, in the order of the file names.

    MTEB's fractions become ×100, as everywhere in essent. Left as they are: thresholds, errors and times, told by their
    names, a metric that leaves [-1, 1], and everything in a file whose main score does. MTEB does not write which
    metric is the main one, so the main score is a metric "main_score" of its own; its key is "all", or "mean" (over
    subsets, unweighted, as MTEB's) where there are several. How many examples there were is not written either: n is 0.
    Results of essent's own tasks (see `to_mteb`) come back whole, rounded by MTEB to six decimals.

    Args:
        path: a task's JSON file, a file of ModelResult or BenchmarkResults, or a folder with any number of them at any
            depth, each with the `model_meta.json` beside it.

    Raises:
        DataError: nothing there, or a file that is not MTEB's.
    """
    path = Path(path).expanduser()
    if not path.is_dir():
        return list(_read(path))
    files = sorted(file for file in path.rglob("*.json") if file.name != MODEL_FILE)
    if not files:
        raise DataError(f"The folder {path} holds no results of MTEB: no JSON file but {MODEL_FILE}.")
    return [result for file in files for result in _read(file)]


def _read(path: Path) -> Iterator[Result]:
    content = _json(path)
    beside = path.parent / MODEL_FILE
    try:
        if "model_results" in content:
            for model in content["model_results"]:
                yield from _of_model(model)
        elif "task_results" in content:
            yield from _of_model(content)
        elif "mteb_dataset_name" in content:
            raise DataError("written before MTEB 1.11; `mteb.TaskResult.from_disk` reads it and `to_disk` renews it")
        else:
            meta = _json(beside) if beside.is_file() else {}
            yield from _of_task(content, {"model": meta.get("name"), "model_revision": meta.get("revision")})
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
        kind = "" if isinstance(error, DataError) else f"{type(error).__name__}: "
        raise DataError(f"{path} is not a result of MTEB: {kind}{error}.") from None


def _json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise DataError(f"Cannot read the results {path}: {error.strerror}.") from None
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} is not a JSON file: {error}.") from None
    if not isinstance(content, dict):
        raise DataError(f"{path} is not a result of MTEB: it holds a {type(content).__name__}, not an object.")
    return content


def _of_model(content: Mapping[str, Any]) -> Iterator[Result]:
    for task in content["task_results"]:
        yield from _of_task(task, {"model": content["model_name"], "model_revision": content.get("model_revision")})


def _of_task(content: Mapping[str, Any], model: Mapping[str, Any]) -> Iterator[Result]:
    """The results of one TaskResult, one a split."""
    name, splits = content["task_name"], content["scores"]
    if not isinstance(name, str) or not splits:
        raise DataError(f"the task is {name!r} and its scores are {splits!r}")
    entries = [entry for entries in splits.values() for entry in entries]
    percent = _fractions(entries)
    known = {
        **model,
        "mteb": content.get("mteb_version"),
        "dataset_revision": content.get("dataset_revision"),
        "evaluation_time": content.get("evaluation_time"),
        "date": _date(content.get("date")),
    }
    about = {key: value for key, value in known.items() if value is not None}
    for split, of_split in splits.items():
        if not of_split:
            raise DataError(f"the split {split!r} of {name} has no scores")
        if OWN in of_split[0]:  # it says itself which part of the data it is about
            yield Result.from_dict(of_split[0][OWN]).with_provenance(**about)
        else:
            languages = sorted({language for entry in of_split for language in entry["languages"]})
            called = name if split == SPLIT else f"{name}.{split}"
            yield _of_split(called, of_split, percent, {**about, "split": split, "languages": languages})


def _of_split(name: str, entries: Sequence[Mapping[str, Any]], percent: set[str], about: Mapping[str, Any]) -> Result:
    subsets = {
        str(entry["hf_subset"]): {
            metric: value * (100.0 if metric in percent else 1.0) for metric, value in _numbers(entry).items()
        }
        for entry in entries
    }
    first = next(iter(subsets.values()))
    common = [metric for metric in first if all(metric in values for values in subsets.values())]
    key = "all" if len(subsets) == 1 else "mean"
    metrics = {m: {key: math.fsum(values[m] for values in subsets.values()) / len(subsets)} for m in common}
    undefined = [subset for subset, values in subsets.items() if math.isnan(values["main_score"])]
    notes = (f"The main score is undefined for: {', '.join(undefined)}.",) if undefined else ()
    shown = {} if list(subsets) == ["default"] else {subset: {"n": 0, **values} for subset, values in subsets.items()}
    return Result(name, metrics, shown, 0, dict(about), notes, ("main_score", key))


def _numbers(entry: Mapping[str, Any]) -> dict[str, float]:
    """The main score and the metrics of a subset; lists and mappings (single runs, single classes) are left out."""
    main = entry["main_score"]
    if isinstance(main, bool) or not isinstance(main, (int, float, type(None))):
        raise DataError(f"the main score is {main!r}, not a number")
    found = {"main_score": math.nan if main is None else float(main)}
    for metric, value in entry.items():
        if metric not in BESIDE_METRICS and isinstance(value, (int, float)) and not isinstance(value, bool):
            found[metric] = float(value)
    return found


def _fractions(entries: Sequence[Mapping[str, Any]]) -> set[str]:
    """The metrics of a file that become ×100."""
    outside: set[str] = set()
    names: set[str] = set()
    for entry in entries:
        numbers = _numbers(entry)
        names |= set(numbers)
        outside |= {metric for metric, value in numbers.items() if abs(value) > 1}
    if "main_score" in outside:
        return set()
    return {metric for metric in names - outside if not NO_FRACTIONS & set(metric.lower().split("_"))}


def _date(value: Any) -> str | None:
    """Seconds since 1970, as `to_disk` writes a date, or a text as it is."""
    if isinstance(value, (int, float)):
        return datetime.fromtimestamp(value, timezone.utc).isoformat(timespec="seconds")
    return value if value is None else str(value)
