"""What a task gives back: scores with the provenance that tells how to get them again."""

from __future__ import annotations

import json
import math
import platform
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from essent._core.atomic import write_json
from essent._core.notebook import html_block, html_lines, html_table, html_title
from essent.errors import DataError, InputError

if TYPE_CHECKING:
    import numpy as np

FORMAT = "essent-results/1"
LIBRARIES = ("essent", "numpy", "scipy", "datasets", "sentence-transformers", "transformers", "torch")


@dataclass(frozen=True)
class Result:
    """Scores of one task, correlations ×100; NaN where a correlation is undefined (`notes` says why).

    Attributes:
        task: name of the task, e.g. "sts12" or "stsb.dev".
        metrics: {"spearman": {"all": …, "mean": …, "wmean": …}, "pearson": {…}}. "all" takes all pairs together;
            "mean" and "wmean" (weighted by size) average over the subsets and are absent when the task has none. "low"
            and "high" are the 95 % interval of "all".
        subsets: {subset: {"n": pairs, "spearman": …, "pearson": …}}, in the order of the data.
        n: number of pairs.
        provenance: plain values: where the data came from, its digest, library versions, and what the caller adds.
        notes: sentences a reader of the numbers needs.
        main: metric and key of the main score; None for a task that has no single one.
        evidence: what each unit of judgement was given, see `JudgedTask.evidence`: it lets recipes be compared pair by
            pair, text by text. In memory only; None for tasks without it and for results from a file.
    """

    task: str
    metrics: dict[str, dict[str, float]]
    subsets: dict[str, dict[str, float]]
    n: int
    provenance: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    main: tuple[str, str] | None = ("spearman", "all")
    evidence: np.ndarray | None = field(default=None, repr=False, compare=False)

    @property
    def main_score(self) -> float:
        """The one number that the papers report: for pairs Spearman's correlation over all of them, ×100.

        Raises:
            InputError: the task has no single number (minimal pairs, geometry).
        """
        if self.main is None:
            raise InputError(f"{self.task} has no single main score; its numbers: {', '.join(self.metrics)}.")
        metric, which = self.main
        return self.metrics[metric][which]

    def _repr_html_(self) -> str:
        digits = 2 if self.main is not None else 3
        keys = list(dict.fromkeys(key for scores in self.metrics.values() for key in scores))
        rows = [
            [metric, *(_figure(scores.get(key), digits) for key in keys)] for metric, scores in self.metrics.items()
        ]
        of_subsets = list(dict.fromkeys(key for scores in self.subsets.values() for key in scores))
        subsets = [
            [name, *(_figure(scores.get(key), 0 if key == "n" else digits) for key in of_subsets)]
            for name, scores in self.subsets.items()
        ]
        by = {name: self.provenance[name] for name in ("recipe", "model") if self.provenance.get(name)}
        return html_block(
            html_title(self.task if self.main is None else f"{self.task}: {self.main_score:.2f}"),
            html_lines(f"{name}: {value}" for name, value in by.items()),
            html_table(["", *keys], rows),
            html_table(["subset", *of_subsets], subsets) if subsets else "",
            html_lines(self.notes),
        )

    def with_provenance(self, **extra: Any) -> Result:
        """A copy that also says, e.g., recipe="ditto:1-10", digest=…, model=…."""
        return replace(self, provenance={**self.provenance, **extra})

    def to_dict(self) -> dict[str, Any]:
        """Plain values that JSON can hold, without the evidence; NaN becomes None."""
        values = {part.name: getattr(self, part.name) for part in fields(self) if part.name != "evidence"}
        return dict(plain(values))

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Result:
        """The inverse of `to_dict`.

        Raises:
            DataError: a part is missing or has another type.
        """
        try:
            metrics = {metric: _numbers(scores) for metric, scores in values["metrics"].items()}
            subsets = {name: _numbers(scores) for name, scores in values["subsets"].items()}
            result = cls(
                task=str(values["task"]),
                metrics=metrics,
                subsets={name: {**scores, "n": int(scores["n"])} for name, scores in subsets.items()},
                n=int(values["n"]),
                provenance=dict(values.get("provenance", {})),
                notes=tuple(values.get("notes", ())),
                main=_main(values.get("main", ("spearman", "all"))),
            )
            if result.main is not None:
                float(result.main_score)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise DataError(f"Not a result of essent: {type(error).__name__}: {error}.") from None
        return result


def _figure(value: float | None, digits: int) -> str:
    return "" if value is None else "nan" if math.isnan(value) else f"{value:.{digits}f}"


def _main(value: Any) -> tuple[str, str] | None:
    if value is None:
        return None
    metric, which = value
    return str(metric), str(which)


def plain(value: Any) -> Any:
    """Mappings, sequences and numbers down to what JSON holds; anything else as text."""
    if isinstance(value, Mapping):
        return {str(key): plain(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(part) for part in value]
    if hasattr(value, "item") and not isinstance(value, (str, bytes)):  # a NumPy or torch scalar
        value = value.item()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, (bool, int, str)) else str(value)


def _numbers(scores: Mapping[str, Any]) -> dict[str, float]:
    return {name: math.nan if value is None else value for name, value in scores.items()}


def library_versions() -> dict[str, str]:
    """Versions of Python and of the installed libraries that can move a score."""
    found = {"python": platform.python_version(), **{name: _installed(name) for name in LIBRARIES}}
    return {name: number for name, number in found.items() if number is not None}


@cache
def _installed(library: str) -> str | None:
    """The version of a library; kept, since it is read from a file, which takes longer than a score of 60 pairs."""
    try:
        return version(library)
    except PackageNotFoundError:
        return None


def save_results(results: Iterable[Result], path: str | Path) -> None:
    """Write results as one JSON file; the folder is made when it is not there."""
    write_json(path, {"format": FORMAT, "results": [result.to_dict() for result in results]})


def load_results(path: str | Path) -> list[Result]:
    """Read what `save_results` wrote.

    Raises:
        DataError: no such file, or not such a file.
    """
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise DataError(f"Cannot read the results {path}: {error.strerror}.") from None
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} is not a JSON file: {error}.") from None
    found = content.get("format") if isinstance(content, dict) else None
    if found != FORMAT or not isinstance(content.get("results"), list):
        raise DataError(f"{path} is not a file of results: its format is {found!r}, expected {FORMAT!r}.")
    try:
        return [Result.from_dict(values) for values in content["results"]]
    except DataError as error:
        raise DataError(f"{path}: {error}") from None
