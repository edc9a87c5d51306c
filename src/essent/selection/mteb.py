"""Encoders and tasks of essent for `mteb.evaluate`.

Source: Muennighoff et al. 2023, "MTEB: Massive Text Embedding Benchmark"; the interfaces are those of mteb 2.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, TypeVar

from essent._core.lazy import optional_import
from essent.encoder.module import digest_of, key_of
from essent.errors import InputError
from essent.tasks.base import Task
from essent.tasks.result import Result

__all__ = ["identify", "to_mteb"]

Model = TypeVar("Model")
SPLIT = "test"
OWN = "essent_result"  # key of the complete result among MTEB's scores
TYPES = {  # kind of labels -> MTEB's task type
    "classification": "Classification",
    "clustering": "Clustering",
    "duplicates": "PairClassification",
    "retrieval": "Retrieval",
}


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
    `essent_result`; `essent.tasks.Result.from_dict` reads it.

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
