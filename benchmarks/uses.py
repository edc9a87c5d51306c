"""Which measures without labels choose good recipes for clusters and for classes, on models and data of yours.

    python benchmarks/uses.py measure --model NAME=DIR --data texts.jsonl … --texts 500 --out FOLDER
    python benchmarks/uses.py table FOLDER --topics stackoverflow … > tables.md

`measure` draws texts of each file (columns text and label) and writes a case: of one model and data set, the scores by
labels of every recipe, the measures without labels, and the cosines of pairs that a user could judge. The recipes are
the reference of `teacher`, FIXED, and some of the space `auto`, drawn at random; with `--space full auto`, all of these
spaces, and only the measures of `topics` and `teacher`. Existing cases are not measured again.

`table` prints Markdown: the points that each choice gains over `mean` and loses against the best recipe by labels, and
the rank correlation of its criterion with the score. Clusters are shown for the data sets of `--topics`, whose classes
are topics; classes for all. A combination ranks by the mean of the ranks by its measures. For each case, it and the
lead that its first recipe needs over `mean` are chosen on the cases of other data sets and other families of models
(NAME up to a hyphen): by the mean gain plus half of the worst loss.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import rankdata, spearmanr

from essent.model.loading import read_capabilities
from essent.recipe.recipe import Recipe
from essent.selection import topics
from essent.selection.annotation import choose_pairs
from essent.selection.label_free import TEACHER, Teacher, split_words, unit_ranks, words_of
from essent.selection.program import TextPairs
from essent.selection.run import BASELINES, run_passes
from essent.selection.search_data import SearchData, SearchSettings
from essent.selection.space import REFERENCE, SPACES, Space
from essent.selection.topics import TOPICS, Topics
from essent.tasks.base import unit_rows
from essent.tasks.clusters import ClusterTask
from essent.tasks.comparison import with_prior
from essent.tasks.data import located_rows
from essent.tasks.examples import Example, examples_from_rows
from essent.tasks.labels import LabelTask
from vector_measures import CANDIDATES, Vectors, retrieved

SCORES = ("Clusters: accuracy of k-means", "Clusters: V-measure of k-means", "Classes: accuracy of a probe")
OF_TOPICS = SCORES[:2]  # shown for classes that are topics
LEADS = (0.0, 0.05, 0.1, 0.15)
MOST_COMBINED = 5  # measures of a combination
JUDGED, SELECTED, REPEATS = (30, 60), ("random", "strata"), 20  # pairs, how they are selected, and draws
WEIGHTS = (0, 30, 60, 120)  # judged pairs that `topics` counts as
JUDGED_HEAD = "mean gain | worst mean of a case | share of cases above 0 | draws below −1 | draws above 0"
DRAWS = 10_000  # of an interval
MIN_WORDS, MIN_PER_CLASS = 3, 5
DIMENSIONS = 50  # of latent semantic analysis
LAST, CENTRED = "template=about+one-word+prompteol-example weights=last", " | centre | normalize"
FIXED = (
    *("mean", *(f"mean | {step}normalize" for step in ("", "centre | ", "zscore | ", "abtt:1 | ", "abtt | "))),
    *(f"mean | {step} | normalize" for step in ("whiten:64", "whiten", "quantile")),
    *(mix + step for mix in ("first-last", "layers=1+2+L", "layers=L-1+L") for step in ("", CENTRED)),
    *("first-last | normalize", "first-last | zscore | normalize", "layers=0+L weights=idf" + CENTRED),
    *("weights=idf", *(f"weights={name}{CENTRED}" for name in ("idf", "content", "position"))),
)
FIXED_PROMPTS = ("about", "about" + CENTRED, LAST, LAST + CENTRED, f"{LAST} | abtt | normalize")  # of decoders


# -- measure: recipes by labels and by measures without labels ---------------------------------------------------------


@dataclass(frozen=True, eq=False, kw_only=True)
class LabelledTexts(SearchData):
    """Texts with classes. A recipe's row contains cosines of pairs, then SCORES, then measures without `teacher`.

    The pairs are those of `teacher`, the halves of `topics`, and texts with copies that lack three tenths of the words.
    """

    clusters: ClusterTask
    probe: LabelTask
    latent: np.ndarray  # (N,N), cosines by latent semantic analysis
    candidates: tuple[str, ...]  # CANDIDATES, or none of them

    @classmethod
    def of_file(cls, path: Path, count: int, candidates: tuple[str, ...]) -> LabelledTexts:
        """Draw texts of a file, and make the pairs."""
        examples, name, rng = draw_examples(path, count), path.stem, np.random.default_rng(0)
        texts = [example.texts[0] for example in examples]
        teacher, criterion = Teacher.of(texts, (), 0), Topics.of(texts, 0)
        whole = [texts[row] for row in criterion.whole]
        copies = [split_words(words, round(0.3 * len(words)), rng)[1] for words in map(words_of, whole)]
        pairs = (*teacher.pairs, *criterion.halves, *zip(whole, copies, strict=True))
        values, directions = np.linalg.eigh(criterion.lexical.astype(np.float64))
        latent = unit_rows(directions[:, -DIMENSIONS:] * np.sqrt(np.maximum(values[-DIMENSIONS:], 0)))
        clusters = ClusterTask(name, examples, seeds=(0, 1, 2), starts=3)
        probe = LabelTask(name, examples, nested=False, folds=5, strengths=(0.03, 1.0))
        data = {"clusters": clusters, "probe": probe, "latent": latent @ latent.T, "candidates": candidates}
        return cls(name, None, tuple(texts), (TEACHER,), pairs, teacher, criterion, **data)

    @property
    def names(self) -> tuple[str, ...]:
        """The measures of a row."""
        return (*topics.MEASURES, *self.candidates)

    @property
    def measures(self) -> slice:
        """The columns of scores and measures."""
        return slice(self.extra.stop, self.extra.stop + len(SCORES) + len(self.names))

    def vector_evidence(self, vectors: np.ndarray, pairs: TextPairs) -> Iterator[tuple[slice, Any]]:
        """Yield the scores and measures of a recipe; NaN for vectors that are all equal."""
        texts, ends = vectors[pairs.fit], pairs.pairs[self.extra][len(self.teacher.pairs) :]
        first, second = (vectors[row] for row in ends[: len(self.topics.halves)].T)
        whole, copies = (vectors[row] for row in ends[len(self.topics.halves) :].T)
        if not np.ptp(texts, axis=0).any():
            yield self.measures, np.nan
            return
        rows = range(len(texts))
        runs = self.clusters.evidence(texts, rows)[None]
        values = [
            *(self.clusters.scores(runs, name)[0] for name in self.clusters.score_names),
            self.probe.scores(self.probe.evidence(texts, rows)[None], "accuracy")[0],
            *self.topics.measure(texts, first, second),
        ]
        if self.candidates:
            measured = Vectors(texts)
            values += [*measured.geometry(), *measured.graph(), *measured.clusterings(self.topics.lexical)]
            values += [*measured.words(self.topics, self.latent), retrieved(first, second), retrieved(copies, whole)]
        yield self.measures, values


def draw_examples(path: Path, count: int) -> tuple[Example, ...]:
    """Return at most `count` distinct texts of some words, without those of rare classes."""
    rows = [row for row in examples_from_rows(located_rows(path)) if len(row.texts[0].split()) >= MIN_WORDS]
    by_text: dict[str, Example] = {}
    for number in np.random.default_rng(0).permutation(len(rows)):
        by_text.setdefault(rows[number].texts[0], rows[number]._replace(part=None))
    drawn = list(by_text.values())[: min(count, topics.MAX_TEXTS)]
    frequency = Counter(example.target for example in drawn)
    return tuple(example for example in drawn if frequency[example.target] >= MIN_PER_CLASS)


def recipes_for(folder: str, spaces: Sequence[str], count: int) -> Space:
    """Return the fixed recipes, and those of the spaces, or some of `auto`, that are not among the reference."""
    capabilities = read_capabilities(folder, {})
    reference = set(REFERENCE.expand(capabilities)[0])
    searched = [recipe for space in spaces or ["auto"] for recipe in SPACES[space].expand(capabilities)[0]]
    others = [str(recipe) for recipe in dict.fromkeys(searched) if recipe not in reference]
    drawn = sorted(np.random.default_rng(0).permutation(len(others))[: None if spaces else count])
    return Space((), (*FIXED, *FIXED_PROMPTS * capabilities.causal, *(others[number] for number in drawn)), "uses")


def measure(options: argparse.Namespace) -> None:
    """Write the cases of a model that the folder does not contain yet."""
    options.out.mkdir(parents=True, exist_ok=True)
    name, _, folder = options.model.rpartition("=")
    settings = SearchSettings(1.5, precision=options.precision)
    candidates = () if options.space else CANDIDATES
    for path in options.data:
        file = options.out / f"{name}.{path.stem}.npz"
        if not file.exists():
            data = LabelledTexts.of_file(path, options.texts, candidates)
            case = case_of(folder, recipes_for(folder, options.space, options.recipes), data, settings)
            np.savez_compressed(file, model=name, **case)
            print(f"{name}, {path.stem}: {len(case['recipes'])} recipes, {case['size']}", flush=True)


def case_of(folder: str, space: Space, data: LabelledTexts, settings: SearchSettings) -> dict[str, Any]:
    """Measure every recipe of a model on some texts."""
    with run_passes(folder, space, [data], BASELINES, settings) as run:
        rows, recipes = np.array(run.sweeps[0].store.rows), list(map(str, run.sweeps[0].program.recipes))
    cosines, judged = rows[:, : len(data.teacher.pairs)], len(data.teacher.gold[-1])
    teacher = data.teacher.with_reference(cosines[[recipes.index(str(recipe)) for recipe in run.reference]])
    classes = {example.texts[0]: example.target for example in data.probe.examples}
    return {
        "data": data.name,
        "size": f"{len(classes)} texts, {len(set(classes.values()))} classes",
        "recipes": recipes,
        "measures": [*data.names, TEACHER],
        "values": np.column_stack([rows[:, data.measures], teacher.scores(cosines)]),
        "cosines": cosines[:, -judged:].astype(np.float32),
        "same_class": [classes[first] == classes[second] for first, second in teacher.pairs[-judged:]],
    }


# -- table: what choices by the measures gain --------------------------------------------------------------------------


class Case:
    """A model on a data set, and the recipes (R) for which all scores and measures are defined."""

    def __init__(self, path: Path) -> None:
        stored = np.load(path)
        self.model, self.data, self.size = (str(stored[name]) for name in ("model", "data", "size"))
        self.family = self.model.partition("-")[0]
        defined = np.isfinite(stored["values"]).all(axis=1)
        self.scores, measures = np.split(stored["values"][defined], [len(SCORES)], axis=1)  # (R,S), (R,M)
        self.numbers = {str(recipe): number for number, recipe in enumerate(stored["recipes"][defined])}
        self.mean = self.numbers["mean"]
        self.measures = [str(name) for name in stored["measures"]]
        self.ranks = rankdata(measures, axis=0) / len(measures)  # (R,M), 1 is the best
        self.topics = self.ranks[:, : len(topics.MEASURES)].mean(axis=1)  # (R,)
        self.cosines, self.same_class = stored["cosines"][defined].astype(np.float64), stored["same_class"]  # (R,P)

    def choose(self, criteria: np.ndarray, lead: Any = 0.0) -> Any:
        """Return the best recipe by each of some criteria (R,…) if it leads `mean` by `lead`, and `mean` otherwise."""
        leads = criteria.max(axis=0) - criteria[self.mean]
        return np.where(leads >= lead, criteria.argmax(axis=0), self.mean)

    def is_other(self, case: Case) -> bool:
        """Return whether a case has neither this data set nor this family of models."""
        return case.data != self.data and case.family != self.family

    @cached_property
    def judged(self) -> dict[tuple[int, str], np.ndarray]:
        """Correlations (R,REPEATS) of cosines and judgements, by the number of pairs and how they are selected."""
        columns: dict[tuple[int, str], list[np.ndarray]] = {}
        for count, repeat in product(JUDGED, range(REPEATS)):
            rng = np.random.default_rng(repeat)
            pool = rng.permutation(len(self.same_class))[: len(self.same_class) * 3 // 4]
            drawn = rng.choice(len(pool), count, replace=False), choose_pairs(self.cosines[:, pool], count, rng)
            for selected, pairs in zip(SELECTED, drawn, strict=True):
                answers = unit_ranks(self.same_class[pool[pairs]])
                columns.setdefault((count, selected), []).append(unit_ranks(self.cosines[:, pool[pairs]]) @ answers)
        return {key: np.column_stack(correlations) for key, correlations in columns.items()}


class Use:
    """One score by labels on some cases, and tables of what choices gain over `mean` by it."""

    def __init__(self, cases: Sequence[Case], score: int) -> None:
        self.cases, self.scores = cases, [case.scores[:, score] for case in cases]
        self.gains = [scores - scores[case.mean] for scores, case in zip(self.scores, cases, strict=True)]
        self.learned = self.learn()

    def learn(self) -> list[tuple[Any, str]]:
        """Return for each case a recipe by the combination and lead that are best on other cases, and their names."""
        measures = self.cases[0].measures
        sizes, columns = range(1, MOST_COMBINED + 1), range(len(measures))
        members = [list(chosen) for size in sizes for chosen in combinations(columns, size)]
        weights = np.zeros((len(measures), len(members)))  # (M,G)
        for number, combined in enumerate(members):
            weights[combined, number] = 1 / len(combined)
        leads = np.array(LEADS)[:, None]
        recipes = [case.choose(case.ranks @ weights, leads) for case in self.cases]  # (L,G) of each case
        gained = np.stack([gains[numbers] for gains, numbers in zip(self.gains, recipes, strict=True)])
        learned: list[tuple[Any, str]] = []
        for case, numbers in zip(self.cases, recipes, strict=True):
            others = gained[[case.is_other(other) for other in self.cases]]
            if not len(others):
                learned.append((None, "–"))
                continue
            values = others.mean(axis=0) + np.minimum(others.min(axis=0), 0) / 2
            lead, best = np.unravel_index(values.argmax(), values.shape)
            names = ", ".join(measures[column] for column in members[best])
            learned.append((numbers[lead, best], f"{names}; lead {LEADS[lead]:g}"))
        return learned

    def with_learned_lead(self) -> list[Any]:
        """Return for each case the recipe by `topics` with the lead that is best on other cases; None without any."""
        chosen = np.array([[case.choose(case.topics, lead) for lead in LEADS] for case in self.cases])  # (C,L)
        gained = np.array([gains[numbers] for gains, numbers in zip(self.gains, chosen, strict=True)])
        learned: list[Any] = []
        for case, numbers in zip(self.cases, chosen, strict=True):
            others = gained[[case.is_other(other) for other in self.cases]]
            values = others.mean(axis=0) + np.minimum(others.min(axis=0), 0) / 2 if len(others) else None
            learned.append(None if values is None else numbers[values.argmax()])
        return learned

    def print_cases(self) -> None:
        print_head("model | data | combination chosen on other cases | its gain | score of `mean` | best score")
        for case, scores, gains, (recipe, names) in zip(self.cases, self.scores, self.gains, self.learned, strict=True):
            gain = np.nan if recipe is None else gains[recipe]
            print_row(f"{case.model} | {case.data}, {case.size} | {names}", gain, scores[case.mean], scores.max())

    def print_choices(self) -> None:
        """Print `topics`, the combinations chosen on other cases, each measure alone, and each fixed recipe."""
        print_head("choice | cases | mean gain | low | high | worst gain | mean points lost | rank correlation")
        criteria = [case.topics for case in self.cases]
        for lead in LEADS:
            chosen = [case.choose(case.topics, lead) for case in self.cases]
            self.print_choice(f"`{TOPICS}`, lead {lead:g}", chosen, criteria)
        self.print_choice(f"`{TOPICS}`, lead chosen on other cases", self.with_learned_lead(), criteria)
        self.print_choice("combinations chosen on other cases", [recipe for recipe, _ in self.learned])
        for column, name in enumerate(self.cases[0].measures):
            criteria = [case.ranks[:, column] for case in self.cases]
            chosen = [case.choose(case.ranks[:, column]) for case in self.cases]
            self.print_choice(name, chosen, criteria)
        for recipe in (*FIXED, *FIXED_PROMPTS):
            chosen = [case.numbers.get(str(Recipe.parse(recipe))) for case in self.cases]
            self.print_choice(f"`{recipe}`".replace("|", "\\|"), chosen)

    def print_choice(self, name: str, chosen: Sequence[Any], criteria: Sequence[np.ndarray] = ()) -> None:
        """Print the row of a choice: a recipe of each case (None: no choice), by criteria (R,)."""
        defined = [row for row, number in enumerate(chosen) if number is not None]
        if defined:
            gained = np.array([self.gains[row][chosen[row]] for row in defined])
            lost = np.mean([self.gains[row].max() for row in defined] - gained)
            correlations = [spearmanr(*both).statistic for both in zip(self.gains, criteria, strict=False)] or [np.nan]
            interval = self.interval(gained, [self.cases[row] for row in defined])
            row = np.mean(gained), *interval, min(gained), lost, np.mean(correlations)
            print_row(f"{name} | {len(defined)}", *row)

    @staticmethod
    def interval(gained: np.ndarray, cases: Sequence[Case]) -> np.ndarray:
        """Return the 95 % interval of the mean gain: models and data sets are drawn again, with replacement."""
        rng, weights = np.random.default_rng(0), np.ones((DRAWS, len(cases)))
        for names in ([case.family for case in cases], [case.data for case in cases]):
            distinct, numbers = np.unique(names, return_inverse=True)
            weights *= rng.multinomial(len(distinct), np.full(len(distinct), 1 / len(distinct)), DRAWS)[:, numbers]
        weights = weights[weights.any(axis=1)]
        return np.quantile(weights @ gained / weights.sum(axis=1), (0.025, 0.975))

    def judged(self, count: int, selected: str, weight: int, lead: float) -> np.ndarray:
        """Return what choices by judged pairs and `topics` gain (cases,REPEATS), over draws of the pairs."""
        rows = []
        for case, gains in zip(self.cases, self.gains, strict=True):
            criteria = with_prior(case.judged[count, selected], case.topics[:, None], count, weight)
            rows.append(gains[case.choose(np.nan_to_num(criteria, nan=-1), lead)])
        return np.stack(rows)

    def print_judged(self) -> None:
        print_head(f"pairs | weight of `topics` | lead | {JUDGED_HEAD}")
        for count, selected, weight, lead in product(JUDGED, SELECTED, WEIGHTS, LEADS):
            print_judged_row(f"{count} {selected} | {weight} | {lead:g}", self.judged(count, selected, weight, lead))


def print_head(columns: str) -> None:
    print(f"\n| {columns} |\n|{'---|' * (columns.count('|') + 1)}")


def print_judged_row(texts: str, gained: np.ndarray) -> None:
    means = gained.mean(axis=1)  # of the cases
    shares = (means > 0).mean(), (gained < -1).mean(), (gained > 0).mean()
    print_row(texts, gained.mean(), means.min(), *shares)


def print_left_out(uses: Sequence[Use]) -> None:
    """Print gains by 30 judged pairs with the weight and lead that are best for all uses together on other cases."""
    rules = list(product(WEIGHTS, LEADS))
    gained = [np.stack([use.judged(30, "strata", *rule) for rule in rules]) for use in uses]  # (rules,cases,REPEATS)
    print_head(f"weight and lead chosen on other cases | {JUDGED_HEAD}")
    for title, use, own in zip(OF_TOPICS[:1] + SCORES[2:], uses, gained, strict=True):
        left_out = []
        for number, case in enumerate(use.cases):
            others = np.concatenate(
                [
                    gains.mean(axis=2)[:, [case.is_other(other) for other in each.cases]]
                    for each, gains in zip(uses, gained, strict=True)
                ],
                axis=1,
            )
            best = np.argmax(others.mean(axis=1) + np.minimum(others.min(axis=1), 0) / 2)
            left_out.append(own[best, number])
        print_judged_row(title, np.stack(left_out))


def print_row(texts: str, *numbers: float) -> None:
    print(f"| {texts} | {' | '.join('–' if np.isnan(number) else f'{number:.2f}' for number in numbers)} |")


def table(options: argparse.Namespace) -> None:
    """Print the tables of every score."""
    cases = [Case(path) for path in sorted(options.folder.glob("*.npz"))]
    uses: dict[str, Use] = {}
    for score, title in enumerate(SCORES):
        if shown := [case for case in cases if title not in OF_TOPICS or case.data in options.topics]:
            print(f"\n## {title}")
            use = uses[title] = Use(shown, score)
            use.print_cases()
            use.print_choices()
            use.print_judged()
    if len(uses) == len(SCORES) and all(any(map(case.is_other, cases)) for case in cases):
        print("\n## Judged pairs, for clusters and classes")
        print_left_out([uses[SCORES[0]], uses[SCORES[2]]])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    measuring = commands.add_parser("measure", help="write the cases of a model")
    measuring.add_argument("--model", required=True, metavar="NAME=DIR")
    measuring.add_argument("--data", nargs="+", type=Path, required=True, metavar="FILE")
    measuring.add_argument("--texts", type=int, default=500, help=f"of each file, at most {topics.MAX_TEXTS}")
    measuring.add_argument("--recipes", type=int, default=60, help="drawn from the space auto")
    measuring.add_argument("--space", nargs="*", default=[], metavar="NAME", help="spaces of which all are measured")
    measuring.add_argument("--precision", default="float32")
    measuring.add_argument("--out", type=Path, required=True)
    measuring.set_defaults(run=measure)
    printing = commands.add_parser("table", help="print the tables of all cases")
    printing.add_argument("folder", type=Path)
    printing.add_argument("--topics", nargs="*", default=[], metavar="NAME", help="data sets whose classes are topics")
    printing.set_defaults(run=table)
    options = parser.parse_args()
    options.run(options)


if __name__ == "__main__":
    main()
