"""Tasks of essent for `mteb.evaluate`, and MTEB's saved results as results of essent.

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
TYPES = {  # kind of labels -> MTEB's task type
    "classification": "Classification",
    "clustering": "Clustering",
    "duplicates": "PairClassification",
    "retrieval": "Retrieval",
}
SPLIT = "test"
MODEL_FILE = "model_meta.json"
OWN = "essent_result"  # key of the complete result of an essent task among MTEB's scores
NO_METRICS = {"hf_subset", "languages", "mteb_version", OWN}
# words in names of metrics that are not fractions
NO_FRACTIONS = {"threshold", "mse", "rmse", "mae", "time", "seconds", "num", "samples"}


def identify(encoder: Model, name: str) -> Model:
    """Set the name and revision under which MTEB saves an encoder's results; return the encoder.

    An Encoder already has a name, from its model and recipe, and a revision that changes with `fit`; this revision
    also distinguishes weights that were trained further. It is a digest of recipe, weights and fitted state: call
    `identify` after `fit`. MTEB calls a SentenceTransformer without a name "no_model_name/available".

    Args:
        encoder: an Encoder, or any SentenceTransformer.
        name: "organization/model".

    Raises:
        InputError: an empty name.

    Example:
        >>> from essent import Encoder
        >>> from essent.selection.mteb import identify
        >>> encoder = identify(Encoder("sentence-transformers/all-MiniLM-L6-v2", "static"), "me/minilm-static")
        >>> encoder.model_card_data.model_name
        'me/minilm-static'
    """
    from essent.encoder.pipeline.digests import digest_of, key_of  # imported here: results are read without torch

    if not isinstance(name, str) or not name.strip():
        raise InputError(f"name={name!r}: must be a text such as 'me/minilm-zscore'.")
    model: Any = encoder
    settings = (model.prompts, model.default_prompt_name, model.truncate_dim, model.max_seq_length)
    recipe = str(getattr(model, "recipe", ""))
    revision = key_of(digest_of(model, settings), recipe, getattr(model[0], "stats", None))
    model.model_card_data.model_name, model.model_card_data.base_model_revision = name, revision
    return encoder


# -- tasks of essent in MTEB -------------------------------------------------------------------------------------------


def to_mteb(task: Task, *, languages: Sequence[str] = ("eng-Latn",)) -> Any:
    """Return a task of essent as an `mteb.AbsTask` for `mteb.evaluate(model, [to_mteb(task)])`; nothing is downloaded.

    The MTEB task has the name `essent.{name}`, the task's digest as revision of its data, and one split "test", which
    contains any part of the data. Its type, which selects a model's prompts, is MTEB's for the kind of task, or "STS".
    Scores have names such as "spearman.all". Since MTEB uses fractions, scores of a task with a main score, which
    essent reports ×100, are divided by 100; others are unchanged. The complete result, not divided, is saved as
    `essent_result`; `read_mteb_results` returns it.

    HEROS and geometry have no main score. In MTEB the main score of HEROS is `kept_closer`, one minus the mean of
    `ranked_above` (how often a meaning-preserving change is at least as similar as a meaning-altering one), that of
    geometry its IsoScore.

    Args:
        languages: languages of the texts in MTEB's notation ("eng-Latn"); the tasks of the catalogue are English.

    Raises:
        MissingDependencyError: mteb is not installed.
        InputError: a name that cannot be part of a file name, or languages unknown to MTEB.

    Example:
        >>> from essent.selection.mteb import to_mteb
        >>> from essent.tasks import load_task
        >>> task = to_mteb(load_task("pairs.jsonl"))
        >>> task.metadata.name, task.metadata.type
        ('essent.pairs', 'STS')
    """
    if not task.name or re.search(r'[/\\:*?"<>|\x00-\x1f]', task.name):
        raise InputError(f"The task name {task.name!r} cannot be part of a file name, as MTEB requires. Rename it.")
    return _task_class()(task, list(languages))


@cache
def _task_class() -> Any:
    """Return the class of essent's tasks in MTEB; created on first use, since its base class is mteb's."""
    base: Any = optional_import("mteb", "mteb").AbsTask
    metadata_of = optional_import("mteb.abstasks.task_metadata", "mteb").TaskMetadata
    from datasets import Dataset, DatasetDict
    from torch.utils.data import DataLoader

    class EssentTask(base):
        """A task of essent that encodes with MTEB's model and retains essent's scores."""

        def __init__(self, task: Task, languages: list[str]) -> None:
            texts, kind = task.texts(), TYPES.get(getattr(task, "kind", ""), "STS")
            self.essent_task = task
            try:
                # an attribute of the task and not of the class: all tasks share one class, and `unload_data`, which
                # would remove it, does nothing here
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
                raise InputError(f"MTEB rejects the task {task.name!r}: {error}") from None
            super().__init__()
            self.dataset = {"default": DatasetDict({SPLIT: Dataset.from_dict({"text": texts})})}
            self.data_loaded = True

        def load_data(self, *args: Any, **kwargs: Any) -> None:
            """Do nothing: the texts are in memory."""

        def unload_data(self) -> None:
            """Do nothing: the texts cannot be loaded again."""

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
            """Do nothing: the result determines the main score."""

        def _calculate_descriptive_statistics_from_split(self, split: str, **kwargs: Any) -> dict[str, Any]:
            return {"num_samples": len(self.essent_task.texts())}

    return EssentTask


def _scores(result: Result) -> dict[str, Any]:
    """Return a result as MTEB's scores: one flat mapping of fractions, including `main_score`."""
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
    files = sorted(file for file in path.rglob("*.json") if file.name != MODEL_FILE) if path.is_dir() else [path]
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
            yield from _task_results(content, model.get("name"), model.get("revision"))
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
    fractions = _fractions([scores for subsets in numbers.values() for scores in subsets.values()])
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
        subsets = {
            subset: {metric: number * (100.0 if metric in fractions else 1.0) for metric, number in values.items()}
            for subset, values in numbers[split].items()
        }
        languages = sorted({language for entry in entries for language in entry["languages"]})
        split_provenance = {**provenance, "split": split, "languages": languages}
        yield _split_result(name if split == SPLIT else f"{name}.{split}", subsets, split_provenance)


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


def _fractions(scores: Sequence[Mapping[str, float]]) -> set[str]:
    """Return the metrics of a file that become ×100, from the scores of all subsets and splits."""
    metrics = {metric for subset in scores for metric in subset}
    outside = {metric for subset in scores for metric, number in subset.items() if abs(number) > 1}
    if "main_score" in outside:
        return set()
    return {metric for metric in metrics - outside if not NO_FRACTIONS & set(metric.lower().split("_"))}
