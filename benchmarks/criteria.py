"""How far criteria without labels can be trusted: each against the score by labels, on models and data of yours.

python benchmarks/criteria.py --model [NAME=]DIR [--model …] --data [KIND:]FILE[:N] [--data …] [--cases cases.tsv]

Of each data set N units are drawn at random (seed 0). One pass a model and data set gives every recipe of the spaces
its score by labels and by every criterion. Printed for each criterion and space: rank correlation with the labelled
score / points that its first recipe loses against the best by labels / points that it gains over `mean`.

`--cases` appends what `teacher` sees of its first recipe and of each baseline, and what labels say of the two: a row a
model, data set, space and baseline. `src/essent/selection/label_free_cases.tsv` was made like this, and
`benchmarks/label_free_rule.py` makes the rule of it by which a search without labels keeps a baseline.
"""

from __future__ import annotations

import argparse
import csv
import json
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from essent.model.loading import load, read_capabilities
from essent.recipe.recipe import Recipe
from essent.selection.program import Program
from essent.selection.question import Question
from essent.selection.run import _Runner
from essent.selection.settings import BASELINES, Settings
from essent.selection.space import REFERENCE, SPACES
from essent.selection.verdict import Judged, _folds, best_of
from essent.tasks.base import LabeledTask
from essent.tasks.clusters import ClusterTask
from essent.tasks.comparison import Scored, scores_of_parts
from essent.tasks.data import located_rows
from essent.tasks.labels import LabelTask
from essent.tasks.locate import load_task

CRITERIA = ("teacher", "consensus", "uniformity", "isotropy")  # and those that `teacher` is made of
DRAWS = 300
COLUMNS = ("model", "data", "kind", "units", "space", "score", "leader", "baseline", "rho", "best", "by_labels", "gain",
           "lead", "deviations", "level", "agreement", "alike", "halves", "perturbed", "length", "lexical",
           "neighbours", "base_halves", "base_perturbed", "base_lexical", "base_neighbours")  # fmt: skip


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
    """One model on one data set: the score of every recipe by labels and by each criterion."""

    def __init__(self, model: str, task: LabeledTask) -> None:
        score, capabilities = task.score_names[0], read_capabilities(model, {})
        self.task, self.question = task, Question.of(task, None, (score, *CRITERIA), 0)
        self.recipes = list(dict.fromkeys([*REFERENCE.expand(capabilities)[0], *map(Recipe.parse, BASELINES)]))
        loaded = load(model, self.recipes, {})
        program = Program(self.recipes, loaded.backbone)
        with tempfile.TemporaryDirectory() as folder:
            runner = _Runner(model, program, self.recipes, loaded, Settings())
            sweep = runner.run(self.question, Path(folder) / "work")
            self.rows = np.array(sweep.store.rows)
        self.names = list(map(str, self.recipes))
        reference = [self.names.index(str(recipe)) for recipe in REFERENCE.expand(capabilities)[0]]
        self.question = self.question.settled(self.rows, reference)
        self.scored = Scored(task, score, self.names, self.rows[:, self.question.place])
        self.labelled = self.scored.scores()
        self.made, self.pseudo, self.where = self.question.parts[0]
        self.witnesses = self.made.witnesses(self.pseudo)
        cosines = self.rows[:, self.where]
        self.by = {made.spec(): made.score(self.rows[:, place], pseudo) for made, pseudo, place in self.question.parts}
        for made, place, pseudo in self.witnesses:
            self.by[made.name] = made.score(cosines[:, place], pseudo)
        members = {name: space.expand(capabilities)[0] for name, space in SPACES.items() if name != "full"}
        members["all"] = self.recipes
        self.spaces = {
            name: [self.names.index(str(recipe)) for recipe in [*recipes, *map(Recipe.parse, BASELINES)]]
            for name, recipes in members.items()
        }

    def judged(self, space: str) -> dict[str, tuple[float, float, float]]:
        """By criterion: rank correlation, points lost against the best by labels, points gained over `mean`."""
        places = np.unique(self.spaces[space])
        labelled, base, found = self.labelled[places], self.labelled[self.names.index("mean")], {}
        for name, scores in self.by.items():
            known = np.isfinite(labelled) & np.isfinite(scores[places])
            chosen = labelled[known][np.argmax(scores[places][known])]
            rho = spearmanr(labelled[known], scores[places][known]).statistic
            found[name] = (float(rho), float(np.nanmax(labelled) - chosen), float(chosen - base))
        return found

    def leaders(self) -> dict[str, int]:
        """The place of the recipe that `teacher` ranks first, by space."""
        scores = np.where(np.isfinite(self.by["teacher"]), self.by["teacher"], -np.inf)
        return {
            name: max(dict.fromkeys(places), key=lambda place: scores[place]) for name, places in self.spaces.items()
        }

    def cases(self) -> Iterator[dict[str, Any]]:
        """What `teacher` and its witnesses see of its first recipe and each baseline, and what labels say.

        A row a space and baseline; none where the baseline itself comes first.
        """
        leaders, bases = self.leaders(), [self.names.index(name) for name in BASELINES]
        shown = list(dict.fromkeys([*leaders.values(), *bases]))
        cosines = self.rows[shown][:, self.where]
        listed = [self.names[place] for place in shown]
        own = Judged.by(self.made, listed, cosines, self.pseudo, 0, DRAWS)
        others = {
            made.name: Judged.by(made, listed, cosines[:, at], pairs, 0, DRAWS) for made, at, pairs in self.witnesses
        }
        for space, leader in leaders.items():
            names = [self.names[place] for place in dict.fromkeys(self.spaces[space])]
            labels = gains_by_labels(self.scored.only(names), BASELINES)
            best, rho = np.nanmax(self.labelled[self.spaces[space]]), self.judged(space)["teacher"][0]
            for base, by_labels in zip(bases, labels, strict=True):
                if base == leader:
                    continue
                both = self.names[leader], self.names[base]
                yield {
                    "space": space, "score": self.scored.score, "leader": both[0], "baseline": both[1], "rho": rho,
                    "best": best - self.labelled[base],  # of the units it was chosen on: optimistic
                    "by_labels": float(by_labels), "gain": self.labelled[leader] - self.labelled[base],
                    "lead": own.score(both[0]) - own.score(both[1]), "deviations": own.deviations(*both),
                    "level": own.score(both[1]), "alike": -self.by["isotropy"][base],
                    "agreement": float(np.mean([np.tanh(one.deviations(*both) / 2) for one in others.values()])),
                    **{name: judged.deviations(*both) for name, judged in others.items()},
                    **{f"base_{name}": judged.score(both[1]) for name, judged in others.items()},
                }  # fmt: skip


def gains_by_labels(found: Scored, baselines: Sequence[str]) -> np.ndarray:
    """Points that the best by labels on four fifths of the units gains over each baseline on the last fifth.

    As `essent.selection.verdict.cross_validated`, without its intervals, which cost more than all the rest here.
    """
    folds = _folds(found.task.items(), 0)
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
            table: dict[str, list[str]] = defaultdict(list)
            for space in measured.spaces:
                for criterion, (rho, lost, over) in measured.judged(space).items():
                    table[criterion].append(f"{rho:5.2f} / {lost:5.2f} / {over:+6.2f}")
            print(" " * 12 + "".join(f"{space:>24}" for space in measured.spaces))
            for criterion, cells in table.items():
                print(f"{criterion:12}" + "".join(f"{cell:>24}" for cell in cells), flush=True)


if __name__ == "__main__":
    main()
