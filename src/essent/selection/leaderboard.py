"""The results of `search`: every recipe with its scores, and the comparison of the leader with the baselines."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from essent._core.atomic import write_json
from essent._core.display import TextDisplay, rendered
from essent._core.lazy import optional_import
from essent.encoder.encoder import Encoder
from essent.errors import InputError
from essent.recipe.layers import LAYER
from essent.recipe.recipe import Recipe
from essent.tasks.comparison import Comparison, Scored
from essent.tasks.result import plain

if TYPE_CHECKING:
    import pandas as pd
    from rich.table import Table

FORMAT = "essent-leaderboard/1"


@dataclass(frozen=True)
class Trial:
    """A recipe and its scores.

    Attributes:
        scores: by criterion. With labels, the name of the score ("spearman", "accuracy") with values ×100; with
            several data sets, the mean of the ranks, then one score per data set.
        interval: 95 % bootstrap interval of the score that ranks, for the first rows and the baselines.

    Example:
        >>> from essent import search
        >>> board = search("sentence-transformers/all-MiniLM-L6-v2", "pairs.jsonl", "weights")
        >>> trial = board.find("mean")
        >>> {name: round(score) for name, score in trial.scores.items()}
        {'spearman': 77}
    """

    recipe: Recipe
    scores: Mapping[str, float]
    interval: tuple[float, float] | None = None


@dataclass(frozen=True)
class Check:
    """The leader and the baselines on test data that the choice did not use.

    Attributes:
        task: name of the task.
        units: number of scored pairs, texts, queries …
        scores: score ×100 with its interval, by recipe: the leader and the baselines.
        comparisons: the leader compared with each baseline.
        left_out: units that are also labelled in the search's data; they are excluded from `units`.
        unit: what is labelled, in the plural.
        score: name of the score.

    Example:
        >>> from essent import search
        >>> model, test = "sentence-transformers/all-MiniLM-L6-v2", ["data/sts/stsb.jsonl"]
        >>> board = search(model, "pairs.jsonl", "weights", test=test)
        >>> print(board.checks[0].summary())
        stsb, spearman of 40 pairs that the recipes were not chosen on.
    """

    task: str
    units: int
    scores: Mapping[str, tuple[float, float, float]]
    comparisons: tuple[Comparison, ...]
    left_out: int = 0
    unit: str = "pairs"
    score: str = "spearman"

    def summary(self) -> str:
        """Describe the test data, and the units that were excluded."""
        sentence = f"{self.task}, {self.score} of {self.units} {self.unit} that the recipes were not chosen on"
        if self.left_out:
            sentence += f"; {self.left_out} {self.unit} that are also in the search's data are excluded"
        return f"{sentence}."


@dataclass(frozen=True)
class Leaderboard(TextDisplay):
    """The ranked recipes of a search, with the recipe that it recommends.

    Attributes:
        criterion: the score that ranks.
        trials: best first; NaN scores last, equal scores in the order of the space.
        baselines: text forms of the recipes that the leader is compared with.
        comparisons: the leader compared with each baseline on the search's data. They are optimistic, since the leader
            was chosen there.
        checks: the same on test data.
        held_out: with labels, the cross-validated gain of choosing the best recipe over each baseline. It decides if
            there are no checks.
        notes: sentences that readers of the scores need.
        provenance: model, data, space, counts, seconds, versions, as plain values.
        kept: the baseline that is `best` because the leader is not significantly better; None: `best` is the leader.
        verdict: which recipe is `best` and why, in one sentence.
        judgements: evidence of the first rows and the baselines on each data set, for tests of your own; not saved.

    Example:
        >>> from essent import search
        >>> board = search("sentence-transformers/all-MiniLM-L6-v2", "pairs.jsonl", "weights")
        >>> str(board.best), len(board.trials)
        ('mean', 27)
        >>> board.encoder().encode(["A text."]).shape
        (1, 384)
    """

    criterion: str
    trials: tuple[Trial, ...]
    baselines: tuple[str, ...] = ()
    comparisons: tuple[Comparison, ...] = ()
    checks: tuple[Check, ...] = ()
    notes: tuple[str, ...] = ()
    provenance: Mapping[str, Any] = field(default_factory=dict)
    kept: str | None = None
    verdict: str = ""
    held_out: tuple[Comparison, ...] = ()
    judgements: tuple[Scored, ...] = field(default=(), repr=False, compare=False)
    _source: tuple[Any, tuple[str, ...], dict[str, Any]] | None = field(default=None, repr=False, compare=False)

    def __repr__(self) -> str:
        best = f"best {self._best_name!r}" if self.is_scored else "none with a score"
        return f"Leaderboard({len(self.trials)} recipes by {self.criterion!r}, {best})"

    @property
    def leader(self) -> Recipe:
        """The recipe ranked first, whether or not it beats the baselines.

        Raises:
            InputError: no recipe has a score.
        """
        if not self.is_scored:
            raise InputError(f"No recipe has a score: {self.criterion!r} is undefined for all of them.")
        return self.trials[0].recipe

    @property
    def best(self) -> Recipe:
        """The leader if it is significantly better than the baselines, otherwise the retained baseline.

        Raises:
            InputError: no recipe has a score.
        """
        leader = self.leader
        return leader if self.kept is None else Recipe.parse(self.kept)

    @property
    def is_scored(self) -> bool:
        """Whether any recipe has a score."""
        return any(math.isfinite(trial.scores[self.criterion]) for trial in self.trials)

    def find(self, recipe: Recipe | str) -> Trial:
        """Return the trial of a recipe.

        Raises:
            InputError: the recipe was not in the search.
        """
        parsed = Recipe.parse(recipe)
        for trial in self.trials:
            if trial.recipe == parsed:
                return trial
        raise InputError(f"The recipe {str(parsed)!r} was not in the search.")

    def encoder(self) -> Encoder:
        """Return `best` as an Encoder on the search's model, fitted on the search's texts.

        Raises:
            InputError: the leaderboard is not the result of a search, or no recipe has a score.
        """
        if self._source is None:
            raise InputError("This leaderboard has no model: search did not return it. Use Encoder(model, board.best).")
        model, texts, options = self._source
        encoder = Encoder(model, self.best, **options).fit(texts)
        origin = self.provenance
        searched = ", ".join(f"{name} {origin[name]}" for name in ("space", "data", "seed") if name in origin)
        ranked = f"{len(self.trials):,} recipes, ranked by `{self.criterion}` from {len(texts):,} texts."
        encoder.chosen = (f"`essent search` ({searched}): {ranked}", self.verdict)  # for the model card
        return encoder

    # -- views ------------------------------------------------------------------------------------------------------

    def heads(self) -> tuple[str, np.ndarray] | None:
        """Return the layer mix with the most heads of plain Ditto, and their scores (layers, heads); NaN: not tried."""
        scores_by_mix: dict[str, dict[tuple[int, ...], float]] = {}
        for recipe, score in self._plain():
            name, _, head = recipe.weights[0].partition(":")
            if name == "ditto" and len(recipe.weights) == 1:
                mix = "+".join(source for source, _ in recipe.layers)
                scores_by_mix.setdefault(mix, {})[tuple(map(int, head.split("-")))] = score
        if not scores_by_mix:
            return None
        mix, scores = max(scores_by_mix.items(), key=lambda entry: (len(entry[1]), entry[0] == "0+L"))
        heads = np.array(list(scores))  # (heads,2)
        grid = np.full(heads.max(axis=0), np.nan)
        grid[tuple(heads.T - 1)] = list(scores.values())
        return mix, grid

    def layers(self) -> dict[str, dict[str, float]]:
        """Return the scores of plain means by layer: {"alone": {"static": …, "0": …, "L": …}, "with 0": {"1": …}}."""
        curves: dict[str, dict[str, float]] = {"alone": {}, "with 0": {}}
        for recipe, score in self._plain():
            (*lower, (name, factor)) = recipe.layers
            if recipe.weights != ("uniform",):
                continue
            if not lower and (name == "static" or LAYER.fullmatch(name)):
                curves["alone"][name] = score
            elif lower == [("0", factor)]:
                curves["with 0"][name] = score
        return {name: curve for name, curve in curves.items() if len(curve) > 2}

    def _plain(self) -> Iterator[tuple[Recipe, float]]:
        """Yield recipes without template and shaping, with their scores."""
        for trial in self.trials:
            if trial.recipe.template is None and not trial.recipe.shaping:
                yield trial.recipe, trial.scores[self.criterion]

    def table(self, top: int = 20) -> Table:
        """Return the first trials and the baselines as a table of `rich`."""
        from rich import box
        from rich.table import Table
        from rich.text import Text

        intervals = list(map(_low_high, self.trials))
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for name in ("#", *(self.trials[0].scores if self.trials else ())):
            table.add_column(name, justify="right")
        if has_intervals := any(intervals):
            table.add_column("95 % interval")
        table.add_column("recipe", overflow="fold")
        for rank, (trial, interval) in enumerate(zip(self.trials, intervals, strict=True), start=1):
            recipe = str(trial.recipe)
            if rank <= top or recipe in self.baselines:
                style = "bold" if recipe == self._best_name else "cyan" if recipe in self.baselines else ""
                cells = [str(rank), *map(_score_text, trial.scores.values()), *[interval] * has_intervals]
                table.add_row(*cells, Text(recipe), style=style)
        return table

    @property
    def _best_name(self) -> str:
        return str(self.best) if self.is_scored else ""

    def summary(self) -> Iterator[str]:
        """Yield comparisons with the baselines line by line, the verdict last."""
        for check in self.checks:
            yield check.summary()
            yield from (f"  {s:6.2f}  [{low:.2f}, {high:.2f}]  {name}" for name, (s, low, high) in check.scores.items())
            yield from (f"  {comparison.summary()}" for comparison in check.comparisons)
        yield from (comparison.summary() for comparison in self.comparisons)
        if self.verdict:
            yield self.verdict

    def __str__(self) -> str:
        return "\n".join([rendered(self.table()), *self.summary()])

    def frame(self) -> pd.DataFrame:
        """Return a data frame with one row per trial, best first, numbered from 1.

        Columns: recipe, scores by name, low and high of the interval, and whether the recipe is a baseline.

        Raises:
            MissingDependencyError: pandas is not installed.
        """
        pandas = optional_import("pandas", "data")
        rows = [
            {"recipe": recipe, **trial.scores, "low": low, "high": high, "baseline": recipe in self.baselines}
            for trial in self.trials
            for recipe, (low, high) in [(str(trial.recipe), trial.interval or (math.nan, math.nan))]
        ]
        frame: pd.DataFrame = pandas.DataFrame(rows, pandas.RangeIndex(1, len(rows) + 1))
        return frame

    # -- data form --------------------------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """Return plain values; NaN becomes None."""
        trials = [{"recipe": str(t.recipe), "scores": t.scores, "interval": t.interval} for t in self.trials]
        values = {
            "format": FORMAT,
            "criterion": self.criterion,
            "trials": trials,
            "baselines": self.baselines,
            "best": self._best_name or None,
            "verdict": self.verdict,
            **{name: list(map(asdict, getattr(self, name))) for name in ("held_out", "comparisons", "checks")},
            "notes": self.notes,
            "provenance": self.provenance,
        }
        return dict(plain(values))

    def to_json(self, path: str | Path) -> None:
        """Write `to_dict` to a file."""
        write_json(path, self.to_dict(), indent=1)


def rank_trials(trials: Sequence[Trial], criterion: str) -> tuple[Trial, ...]:
    """Sort trials, best first, NaN last, ties in their order."""
    scores = np.array([trial.scores[criterion] for trial in trials], np.float64)
    return tuple(trials[i] for i in np.argsort(-scores, kind="stable"))  # NumPy sorts NaN last


def _low_high(trial: Trial) -> str:
    """Return a trial's interval as text; "" without one."""
    low, high = trial.interval or (math.nan, math.nan)
    return "" if math.isnan(low) else f"{_score_text(low)} – {_score_text(high)}"


def _score_text(score: float) -> str:
    return "–" if math.isnan(score) else f"{score:.2f}" if abs(score) >= 1.5 else f"{score:.4f}"
