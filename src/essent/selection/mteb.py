"""MTEB, both ways: tasks of essent for `mteb.evaluate`, and what MTEB has saved as results of essent.

    import mteb
    from essent.selection.mteb import identify, read_mteb_results, to_mteb
    from essent.tasks import load_task

    mteb.evaluate(identify(encoder, "me/minilm-zscore"), [to_mteb(load_task("stsb"))])
    read_mteb_results("~/.cache/mteb/results/me__minilm-zscore")

Source: Muennighoff et al. 2023, "MTEB: Massive Text Embedding Benchmark"; layout and interfaces are those of mteb 2.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timezone
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from essent._core.lazy import optional_import
from essent.errors import DataError, InputError
from essent.tasks.base import Task
from essent.tasks.result import Result

__all__ = ["identify", "read_mteb_results", "to_mteb"]

Model = TypeVar("Model")
TYPES = {  # MTEB's, of kinds of labels
    "classification": "Classification",
    "clustering": "Clustering",
    "duplicates": "PairClassification",
    "retrieval": "Retrieval",
}
SPLIT = "test"
MODEL_FILE = "model_meta.json"
OWN = "essent_result"  # where a task of essent keeps its whole result among MTEB's scores
BESIDE_METRICS = {"hf_subset", "languages", "mteb_version", OWN}
NO_FRACTIONS = {"threshold", "mse", "rmse", "mae", "time", "seconds", "num", "samples"}  # words in names of metrics


def identify(encoder: Model, name: str) -> Model:
    """Give an encoder the name and revision under which MTEB keeps its results; returns the encoder.

    An Encoder has a name of its own, made of its model's and its recipe's, and a revision that changes with `fit`; this
    one also tells weights apart that were trained further. The revision is a digest of recipe, weights and what `fit`
    has learned: call it after `fit`. A SentenceTransformer without a name is for MTEB "no_model_name/available".

    Args:
        encoder: an Encoder, or any SentenceTransformer.
        name: "organisation/model".

    Raises:
        InputError: an empty name.
    """
    from essent.encoder.pipeline.digests import digest_of, key_of  # late: results are read without torch

    if not isinstance(name, str) or not name.strip():
        raise InputError(f"A model's name is a text such as 'me/minilm-zscore', not {name!r}.")
    model: Any = encoder
    settings = (model.prompts, model.default_prompt_name, model.truncate_dim, model.max_seq_length)
    recipe = str(getattr(model, "recipe", ""))
    revision = key_of(digest_of(model, settings), recipe, getattr(model[0], "stats", None))
    model.model_card_data.model_name, model.model_card_data.base_model_revision = name, revision
    return encoder


# -- tasks of essent in MTEB -------------------------------------------------------------------------------------------


def to_mteb(task: Task, *, languages: Sequence[str] = ("eng-Latn",)) -> Any:
    """A task of essent as an `mteb.AbsTask`: `mteb.evaluate(model, [to_mteb(task)])`. Nothing is downloaded.

    It is called `essent.{name}`, its data's revision is the task's digest, its one split "test", whatever part of the
    data that is. Its type, which chooses a model's prompts, is MTEB's for its kind, or "STS". Scores are named
    "spearman.all"; as MTEB has fractions, those of a task with a main score, which are ×100 in essent, are divided by
    100; the others stay as they are. The whole result, not divided, stands among them as `essent_result`;
    `read_mteb_results` gives it back.

    HEROS and geometry have no main score: in MTEB HEROS has `kept_closer`, one minus the mean of `ranked_above` (how
    often a change that keeps the meaning looks at least as close as one that alters it), geometry its IsoScore.

    Args:
        languages: of the texts, as MTEB writes them ("eng-Latn"); the tasks of the catalogue are English.

    Raises:
        MissingDependencyError: mteb is not installed.
        InputError: a name that is no file name, or languages that MTEB does not know.
    """
    if not task.name or re.search(r'[/\\:*?"<>|\x00-\x1f]', task.name):
        raise InputError(f"MTEB names files after tasks, and {task.name!r} cannot be part of a file name.")
    return _task_class()(task, list(languages))


@cache
def _task_class() -> Any:
    """The class of all tasks of essent in MTEB; made when it is first needed, as it descends from one of mteb."""
    base: Any = optional_import("mteb", "mteb").AbsTask
    metadata_of = optional_import("mteb.abstasks.task_metadata", "mteb").TaskMetadata
    from datasets import Dataset, DatasetDict
    from torch.utils.data import DataLoader

    class EssentTask(base):
        """A task of essent that encodes through MTEB's model and keeps essent's scores."""

        def __init__(self, task: Task, languages: list[str]) -> None:
            texts, kind = task.texts(), TYPES.get(getattr(task, "kind", ""), "STS")
            self.essent_task = task
            try:
                # an attribute of the task and not of the class: there is one class for all, and `unload_data`, which
                # would throw it away, does nothing here
                self.metadata = metadata_of(
                    name=f"essent.{task.name}",
                    description=f"{task.__class__.__name__} {task.name!r} of essent, {len(texts)} texts, in memory.",
                    dataset={"path": "in-memory", "revision": task.digest()},
                    type=kind,
                    category="t2t" if kind == "STS" else "t2c",
                    eval_splits=[SPLIT],
                    eval_langs=languages,
                    main_score="main_score",
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

            return _scores(self.essent_task.run(encode))

        def _add_main_score(self, scores: dict[str, Any]) -> None:
            """Nothing to do: which score is the main one is known with the result."""

        def _calculate_descriptive_statistics_from_split(self, split: str, **kwargs: Any) -> dict[str, Any]:
            return {"num_samples": len(self.essent_task.texts())}

    return EssentTask


def _scores(result: Result) -> dict[str, Any]:
    """A result as MTEB's scores: one flat mapping of fractions, `main_score` among them."""
    divisor = 1.0 if result.main is None else 100.0
    flat: dict[str, Any] = {
        f"{metric}.{key}": float(value) / divisor
        for metric, values in result.metrics.items()
        for key, value in values.items()
    }
    if result.main is not None:
        main = ".".join(result.main)
    elif (shares := result.metrics.get("ranked_above")) is not None:
        main = "kept_closer"
        flat[main] = 1.0 - math.fsum(shares.values()) / len(shares) if shares else math.nan
    else:
        main = "isoscore.all"
    return {**flat, "main_score": flat[main], OWN: result.to_dict()}


# -- what MTEB has saved -----------------------------------------------------------------------------------------------


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
        if "mteb_dataset_name" in content:
            raise DataError("written before MTEB 1.11; `mteb.TaskResult.from_disk` reads it and `to_disk` renews it")
        if "model_results" in content or "task_results" in content:
            for model in content.get("model_results", [content]):
                known = {"model": model["model_name"], "model_revision": model.get("model_revision")}
                for task in model["task_results"]:
                    yield from _of_task(task, known)
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
    provenance = {key: value for key, value in known.items() if value is not None}
    for split, of_split in splits.items():
        if not of_split:
            raise DataError(f"the split {split!r} of {name} has no scores")
        if OWN in of_split[0]:  # it says itself which part of the data it is about
            yield Result.from_dict(of_split[0][OWN]).with_provenance(**provenance)
        else:
            languages = sorted({language for entry in of_split for language in entry["languages"]})
            called = name if split == SPLIT else f"{name}.{split}"
            yield _of_split(called, of_split, percent, {**provenance, "split": split, "languages": languages})


def _of_split(
    name: str, entries: Sequence[Mapping[str, Any]], percent: set[str], provenance: Mapping[str, Any]
) -> Result:
    subsets = {
        str(entry["hf_subset"]): {
            metric: value * (100.0 if metric in percent else 1.0) for metric, value in _numbers(entry).items()
        }
        for entry in entries
    }
    first, *others = subsets.values()
    common = [metric for metric in first if all(metric in values for values in others)]
    key = "mean" if others else "all"
    metrics = {m: {key: math.fsum(values[m] for values in subsets.values()) / len(subsets)} for m in common}
    undefined = [subset for subset, values in subsets.items() if math.isnan(values["main_score"])]
    notes = (f"The main score is undefined for: {', '.join(undefined)}.",) if undefined else ()
    by_subset = (
        {} if list(subsets) == ["default"] else {subset: {"n": 0, **values} for subset, values in subsets.items()}
    )
    return Result(name, metrics, by_subset, 0, dict(provenance), notes, ("main_score", key))


def _numbers(entry: Mapping[str, Any]) -> dict[str, float]:
    """The main score and the metrics of a subset; lists and mappings (single runs, single classes) are left out."""
    main = math.nan if entry["main_score"] is None else entry["main_score"]
    numbers = {
        metric: float(value)
        for metric, value in {**entry, "main_score": main}.items()
        if metric not in BESIDE_METRICS and isinstance(value, (int, float)) and not isinstance(value, bool)
    }
    if "main_score" not in numbers:
        raise DataError(f"the main score is {main!r}, not a number")
    return numbers


def _fractions(entries: Sequence[Mapping[str, Any]]) -> set[str]:
    """The metrics of a file that become ×100."""
    numbers = [number for entry in entries for number in _numbers(entry).items()]
    outside = {metric for metric, value in numbers if abs(value) > 1}
    if "main_score" in outside:
        return set()
    return {metric for metric, _ in numbers if not NO_FRACTIONS & set(metric.lower().split("_"))} - outside


def _date(value: Any) -> str | None:
    """Seconds since 1970, as `to_disk` writes a date, or a text as it is."""
    if isinstance(value, (int, float)):
        return datetime.fromtimestamp(value, timezone.utc).isoformat(timespec="seconds")
    return value if value is None else str(value)
