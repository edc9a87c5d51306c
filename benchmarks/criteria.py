"""How far the criterion without labels can be trusted, against the score by labels, on models and data of yours.

python benchmarks/criteria.py --model [NAME=]DIR [--model …] --data [KIND:]FILE[:N] [--data …] [--cases cases.tsv]

Of each data set N units are drawn at random (seed 0). One pass per model and data set gives every recipe of the spaces
its score by labels and by `teacher`. Printed for each space: rank correlation with the labelled score / points that the
first recipe by `teacher` loses against the best by labels / points that it gains over `mean`.

`--cases` appends what `teacher` sees of its first recipe and of each baseline, and what labels say of the two: a row a
model, data set, space and baseline. `benchmarks/label_free_cases.tsv` was made like this, and
`benchmarks/label_free_rule.py` compares rules by which a search without labels keeps a baseline.
"""

from __future__ import annotations

import argparse
import csv
import json
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from essent.model.loading import read_capabilities
from essent.recipe.recipe import Recipe
from essent.selection.label_free import TEACHER
from essent.selection.run import BASELINES, run_passes
from essent.selection.search_data import SearchData, SearchSettings
from essent.selection.space import REFERENCE, SPACES
from essent.selection.verdict import best_of, folds_of
from essent.tasks.base import LabeledTask
from essent.tasks.clusters import ClusterTask
from essent.tasks.comparison import Scored, scores_of_parts
from essent.tasks.data import located_rows
from essent.tasks.labels import LabelTask
from essent.tasks.locate import load_task

DRAWS = 300
COLUMNS = ("model", "data", "kind", "units", "space", "score", "leader", "baseline", "rho", "best", "by_labels", "gain",
           "lead", "deviations", "level")  # fmt: skip


def sampled(given: str) -> LabeledTask:
    """`FILE:N` or `KIND:FILE:N`: N rows of a file, drawn at random; probes and k-means made cheap, alike for all."""
    rest, _, most = given.rpartition(":")
    name, count = (rest, int(most)) if most.isdigit() else (given, 0)
    kind, _, path = name.rpartition(":")
    rows = [dict(row.values) for row in located_rows(Path(path))]
    drawn = np.random.default_rng(0).permutation(len(rows))[: count or len(rows)]
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / Path(path).name
        place.write_text("".join(json.dumps(rows[number]) + "\n" for number in sorted(drawn)))
        task = load_task(f"{kind}:{place}" if kind else place)
    if isinstance(task, ClusterTask):
        return replace(task, seeds=(0, 1, 2), starts=1)
    return replace(task, nested=False, folds=5, strengths=(0.03,)) if isinstance(task, LabelTask) else task


class Measured:
    """One model on one data set: the score of every recipe by labels and by `teacher`."""

    def __init__(self, model: str, task: LabeledTask) -> None:
        score, capabilities = task.score_names[0], read_capabilities(model, {})
        self.task, data = task, SearchData.of(task, None, (score, TEACHER), 0)
        with run_passes(model, REFERENCE, [data], BASELINES, SearchSettings(precision="float32")) as run:
            rows = np.array(run.sweeps[0].store.rows)
        self.names = list(map(str, run.sweeps[0].program.recipes))
        reference = [self.names.index(str(recipe)) for recipe in run.reference]
        self.scored = Scored(task, score, self.names, rows[:, data.evidence])
        self.labelled, self.cosines = self.scored.scores(), rows[:, data.extra]
        assert data.teacher is not None
        self.teacher = data.teacher.with_reference(self.cosines[reference])
        self.levels = self.teacher.scores(self.cosines)
        members = {name: SPACES[name].expand(capabilities)[0] for name in ("heads", "layers", "weights", "shaping")}
        members["all"] = run.recipes
        self.spaces = {
            name: [self.names.index(str(recipe)) for recipe in [*recipes, *map(Recipe.parse, BASELINES)]]
            for name, recipes in members.items()
        }

    def agreement(self, space: str) -> tuple[float, float, float]:
        """Rank correlation, points lost against the best by labels, points gained over `mean`."""
        chosen = np.unique(self.spaces[space])
        labelled, levels = self.labelled[chosen], self.levels[chosen]
        known = np.isfinite(labelled) & np.isfinite(levels)
        first = labelled[known][np.argmax(levels[known])]
        rho = spearmanr(labelled[known], levels[known]).statistic
        return float(rho), float(np.nanmax(labelled) - first), float(first - self.labelled[self.names.index("mean")])

    def cases(self) -> Iterator[dict[str, Any]]:
        """What `teacher` sees of its first recipe and each baseline, and what labels say.

        A row per space and baseline; none where the baseline itself comes first.
        """
        levels = np.where(np.isfinite(self.levels), self.levels, -np.inf)
        leaders = {name: max(dict.fromkeys(rows), key=lambda row: levels[row]) for name, rows in self.spaces.items()}
        bases = [self.names.index(name) for name in BASELINES]
        listed = list(dict.fromkeys([*leaders.values(), *bases]))
        draws = dict(zip(listed, self.teacher.bootstrap(self.cosines[listed], 0, DRAWS), strict=True))
        for space, leader in leaders.items():
            names = [self.names[row] for row in dict.fromkeys(self.spaces[space])]
            labels = gains_by_labels(self.scored.only(names), BASELINES)
            best, rho = np.nanmax(self.labelled[self.spaces[space]]), self.agreement(space)[0]
            for base, by_labels in zip(bases, labels, strict=True):
                if base == leader:
                    continue
                lead, spread = levels[leader] - levels[base], float((draws[leader] - draws[base]).std())
                yield {
                    "space": space, "score": self.scored.score, "leader": self.names[leader],
                    "baseline": self.names[base], "rho": rho,
                    "best": best - self.labelled[base],  # of the units it was chosen on: optimistic
                    "by_labels": float(by_labels), "gain": self.labelled[leader] - self.labelled[base],
                    "lead": lead, "deviations": lead / spread if spread > 0 else 0.0, "level": levels[base],
                }  # fmt: skip


def gains_by_labels(found: Scored, baselines: Sequence[str]) -> np.ndarray:
    """Points that the best by labels on four fifths of the units gains over each baseline on the last fifth.

    As `essent.selection.verdict.cross_validate`, without its intervals, which cost more than all the rest here.
    """
    folds = folds_of(found.task, 0)
    parts = np.stack([folds == number for number in np.unique(folds)])  # (F,U)
    learned = scores_of_parts(found.task, found.evidence, ~parts, found.score)  # (R,F)
    scores = scores_of_parts(found.task, found.evidence, parts, found.score)
    chosen = [best_of([found], [column]) for column in learned.T]
    bases = [list(found.names).index(name) for name in baselines]
    return np.asarray((scores[chosen, range(len(parts))] - scores[bases]).mean(axis=1))


def write_cases(path: Path, model: str, measured: Measured) -> None:
    """Append the cases of a model and data set to a table."""
    new = not path.exists()
    with path.open("a", newline="") as file:
        table = csv.DictWriter(file, COLUMNS, delimiter="\t", extrasaction="ignore", lineterminator="\n")
        if new:
            table.writeheader()
        for case in measured.cases():
            shown = {key: f"{value:.4g}" if isinstance(value, float) else value for key, value in case.items()}
            task = measured.task
            table.writerow({"model": model, "data": task.name, "kind": task.kind, "units": task.units} | shown)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", action="append", required=True)
    parser.add_argument("--data", action="append", required=True, help="FILE, FILE:N or KIND:FILE:N")
    parser.add_argument("--cases", type=Path, help="append the cases of `teacher` to this table")
    options = parser.parse_args()
    for given in options.data:
        task = sampled(given)
        for named in options.model:
            name, _, folder = named.rpartition("=")
            measured = Measured(folder, task)
            if options.cases:
                write_cases(options.cases, name or Path(folder).name, measured)
            about = f"{task.units} {task.unit}, {measured.scored.score}"
            print(f"\n{name or folder}, {task.name}: {about}; rank correlation / lost / gained")
            for space in measured.spaces:
                rho, lost, over = measured.agreement(space)
                print(f"{space:12}{rho:5.2f} / {lost:5.2f} / {over:+6.2f}", flush=True)


if __name__ == "__main__":
    main()
