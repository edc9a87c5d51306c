"""Scores with their standard errors: of one result, of a mean over tasks, over seeds and over checkpoints.

Standard errors: correlations by Bonett & Wright (2000), shares as binomial, k-means from the spread of its runs. Tasks
and seeds are taken as independent. Intervals are 95 %, value ± 1.96 standard errors.
"""

from __future__ import annotations

import math
import tempfile
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from essent.encoder.pipeline.digests import digest_of_backbone
from essent.errors import DataError, EssentError, InputError, UnsupportedRecipeError
from essent.lab.explain.importance import HeadAgreement, backbone_of, head_agreement, impact_agreement
from essent.lab.reproduce.tables import Cell, Table
from essent.model.capabilities import ModelCapabilities, check_recipe
from essent.model.loading import load, read_capabilities
from essent.recipe.recipe import Recipe
from essent.recipe.sources.layers import AverageTable
from essent.selection.evaluation import Bench
from essent.static.gather import Settings, average_contexts
from essent.tasks.base import Task
from essent.tasks.geometry import average_cosine
from essent.tasks.heros import HerosTask
from essent.tasks.heros_files import load_heros
from essent.tasks.locate import load_task
from essent.tasks.overlap import lexical_overlap
from essent.tasks.pairs import PairTask
from essent.tasks.result import Result

NORMAL_95 = 1.96


@dataclass(frozen=True)
class Score:
    """A value and its standard error; NaN where none is known."""

    value: float
    error: float = math.nan

    @property
    def half_width(self) -> float:
        """Of the 95 % interval."""
        return NORMAL_95 * self.error


def score_of(result: Result) -> Score:
    """A result's main score."""
    metric, _ = result.main or ("", "")
    value = result.main_score
    if metric in {"spearman", "pearson"}:
        share = min(abs(value) / 100, 1.0)
        wide = 1 + share**2 / 2 if metric == "spearman" else 1.0
        error = (1 - share**2) * math.sqrt(wide / (result.n - 3)) if result.n > 3 else math.nan
        return Score(value, 100 * error)
    runs = result.provenance.get("runs")
    if runs:
        return Score(value, result.metrics[metric]["std"] / math.sqrt(len(runs)))
    share = value / 100
    return Score(value, 100 * math.sqrt(share * (1 - share) / result.n))


def mean_over_tasks(scores: Sequence[Score]) -> Score:
    """Plain mean of independent scores."""
    value = math.fsum(score.value for score in scores) / len(scores)
    return Score(value, math.sqrt(math.fsum(score.error**2 for score in scores)) / len(scores))


def mean_over_seeds(scores: Sequence[Score]) -> Score:
    """Mean of runs on the same data: its error is that of the data and of the drawing of seeds."""
    count = len(scores)
    value = math.fsum(score.value for score in scores) / count
    between = math.fsum((score.value - value) ** 2 for score in scores) / (count - 1) / count if count > 1 else 0.0
    within = math.fsum(score.error**2 for score in scores) / count
    return Score(value, math.sqrt(within + between))


def over_checkpoints(scores: Sequence[Score], statistic: str) -> Score:
    """Mean (its error that of the data and of the drawing of checkpoints), maximum or minimum."""
    if len(scores) == 1:
        return scores[0]
    if statistic != "mean":
        chosen = {"max": max, "min": min}[statistic]
        return chosen(scores, key=lambda score: score.value)
    return mean_over_seeds(scores)


@dataclass(frozen=True)
class Bound:
    """What a measure may read: a model, a recipe on it, a head "layer-head", tasks, the corpus.

    `memo` is kept for a run of the table: several cells show parts of one measurement.
    """

    model: str
    recipe: Recipe | None
    head: str
    tasks: Sequence[Task]
    corpus: Sequence[str]
    batch_size: int
    progress: bool
    options: dict[str, Any]
    memo: dict[Hashable, Any] = field(default_factory=dict)

    def once(self, what: str, make: Callable[[], Any]) -> Any:
        """What is measured on this model and these tasks, made when it is first asked for."""
        key = (what, self.model, tuple((task.name, *task.texts()) for task in self.tasks))
        if key not in self.memo:
            self.memo[key] = make()
        return self.memo[key]


@dataclass(frozen=True)
class Measure:
    """A measure by name; `reads_corpus` when it needs texts beside the tasks'."""

    run: Callable[[Bound], Score]
    reads_corpus: bool = False


def _cosine(bound: Bound, self_pairs: bool) -> Score:
    assert bound.recipe is not None  # noqa: S101 — every row with this measure has one, a test sees to it
    bench = Bench(
        bound.model, [bound.recipe], batch_size=bound.batch_size, progress=bound.progress, options=bound.options
    )
    ((_, vectors),) = bench.vectors(bound.corpus, None, None)
    return Score(average_cosine(vectors, self_pairs=self_pairs))


def _token_cosine(bound: Bound) -> Score:
    table = backbone_of(bound.model, **bound.options).static_table
    return Score(average_cosine(table.detach().float().cpu().numpy()))


def _impact(bound: Bound, which: str) -> Score:
    found = bound.once("impact", lambda: impact_agreement(bound.model, bound.corpus, **bound.options))
    return Score(float(getattr(found, which)))


def _head(bound: Bound, which: str) -> Score:
    texts = [text for task in bound.tasks for text in task.texts()]
    found: HeadAgreement = bound.once(
        "heads", lambda: head_agreement(bound.model, texts, frequency_texts=bound.corpus, **bound.options)
    )
    layer, head = (int(number) - 1 for number in bound.head.split("-"))
    return Score(float(getattr(found, which)[layer, head]))


def _overlap(bound: Bound, which: str) -> Score:
    return Score(float(bound.once("overlap", lambda: _overlaps(bound))[which]))


def _overlaps(bound: Bound) -> dict[str, float]:
    tokenizer = bound.once("tokenizer", lambda: backbone_of(bound.model, **bound.options).tokenizer)
    pairs = [pair for task in bound.tasks for pair in _sides(task)]

    def ids(text: str) -> list[int]:
        return list(tokenizer(text, add_special_tokens=False)["input_ids"])

    return lexical_overlap(pairs, ids)


def _sides(task: Task) -> list[tuple[str, str]]:
    if isinstance(task, HerosTask):
        return [(pair.original, pair.changed) for pair in task.pairs]
    return [(pair.sentence1, pair.sentence2) for pair in task.pairs] if isinstance(task, PairTask) else []


MEASURES = {
    "average-cosine": Measure(lambda bound: _cosine(bound, self_pairs=False), reads_corpus=True),
    "average-cosine-with-self": Measure(lambda bound: _cosine(bound, self_pairs=True), reads_corpus=True),
    "token-cosine": Measure(_token_cosine),
    "impact-pearson": Measure(lambda bound: _impact(bound, "pearson"), reads_corpus=True),
    "impact-spearman": Measure(lambda bound: _impact(bound, "spearman"), reads_corpus=True),
    "head-pearson": Measure(lambda bound: _head(bound, "pearson"), reads_corpus=True),
    "head-spearman": Measure(lambda bound: _head(bound, "spearman"), reads_corpus=True),
    "rouge-1": Measure(lambda bound: _overlap(bound, "rouge1")),
    "rouge-2": Measure(lambda bound: _overlap(bound, "rouge2")),
    "rouge-l": Measure(lambda bound: _overlap(bound, "rougeL")),
    "levenshtein": Measure(lambda bound: _overlap(bound, "levenshtein")),
    "length": Measure(lambda bound: _overlap(bound, "length")),
}


SEVERAL = str | Sequence[str]


@dataclass(frozen=True)
class Measured:
    """What was measured for a cell, with how many seeds, or why it was not."""

    cell: Cell
    score: Score | None = None
    problem: str = ""
    seeds: int = 1

    @property
    def difference(self) -> float | None:
        """Measured less published; None where one of them is missing or the published one is over other tasks."""
        if self.score is None or self.cell.published is None or self.cell.published.over_all:
            return None
        return self.score.value - self.cell.published.value


@dataclass(frozen=True)
class Reproduction:
    """A table with its measured cells.

    Attributes:
        cells: block by block, row by row; those that were not asked for are left out.
        models: role -> what was run.
        sources: task -> where its data came from, with its digest.
        corpus: how many texts the corpus had, 0 without one.
    """

    table: Table
    cells: tuple[Measured, ...]
    models: Mapping[str, tuple[str, ...]]
    sources: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    corpus: int = 0

    def _repr_html_(self) -> str:
        from essent.lab.reproduce.show import html_of  # which reads this class

        return html_of(self)


def run_table(
    table: Table,
    models: Mapping[str, SEVERAL] | None = None,
    *,
    data: str | Path | None = None,
    corpus: Sequence[str] | None = None,
    rows: Callable[[str], bool] = lambda name: True,
    columns: Callable[[str], bool] = lambda name: True,
    most_seeds: int | None = None,
    batch_size: int = 32,
    progress: bool = False,
    cache: str | Path | None = None,
    contexts: str | Path | None = None,
    report: Callable[[str], None] = lambda line: None,
    **options: Any,
) -> Reproduction:
    """Run the cells of a table that can be run here.

    Args:
        models: role -> model or several checkpoints of it; roles that are not named are not run. None: the paper's own
            models, from the hub.
        data: a folder for `load_task`; None is the hub.
        corpus: texts for what the paper fitted or counted on other texts, and for measures of a corpus.
        rows, columns: which are wanted, by name.
        most_seeds: at most so many seeds of random embeddings.
        cache: a folder that keeps pooled vectors for later runs.
        contexts: a folder of the model's token vectors averaged over a corpus (`essent distill --contexts`), for the
            columns Avg. and BERT + Avg.; None averages them over `corpus` here.
        report: called with a line of progress.
        options: SentenceTransformer's keyword arguments.

    Raises:
        InputError: a role that the table has not, or no seed.
    """
    given = {
        role: [found] if isinstance(found, str) else list(found)
        for role, found in (table.models if models is None else models).items()
    }
    unknown = set() if models is None else set(given) - set(table.roles)
    if unknown:
        raise InputError(f"{table.name} has no model {sorted(unknown)[0]!r}; it has {', '.join(table.roles)}.")
    if most_seeds is not None and most_seeds < 1:
        raise InputError(f"most_seeds={most_seeds} must be at least 1.")
    wanted = [cell for cell in table.cells() if rows(cell.row) and columns(cell.column)]
    shop = _Workshop(data, list(corpus or []), most_seeds, batch_size, progress, options, report)
    shop.contexts = None if contexts is None else Path(contexts)
    with tempfile.TemporaryDirectory(prefix="essent-reproduce-") as folder:
        shop.cache = cache or folder
        done = [shop.problem(cell, given) or shop.job(cell, given) for cell in wanted]
        for role, found in given.items():
            for model in found:
                shop.run(model, [job for job in done if isinstance(job, _Job) and job.role == role])
        cells = tuple(job.measured(given[job.role]) if isinstance(job, _Job) else job for job in done)
    used = {job.role for job in done if isinstance(job, _Job)}
    ran = {role: tuple(found) for role, found in given.items() if role in used}
    return Reproduction(table, cells, ran, shop.sources, len(shop.corpus))


@dataclass
class _Job:
    """A cell that can be run: its recipes, one a seed, and what came of them by model."""

    cell: Cell
    role: str
    recipes: list[Recipe]
    tasks: list[str]
    counts: str
    fit: str
    scores: dict[str, Score | str] = field(default_factory=dict)  # model -> score, or why there is none

    def measured(self, models: Sequence[str]) -> Measured:
        found = [self.scores[model] for model in models]
        problems = [problem for problem in found if isinstance(problem, str)]
        if problems:
            return Measured(self.cell, problem=problems[0])
        scores = [score for score in found if isinstance(score, Score)]
        score = over_checkpoints(scores, self.cell.settings.get("statistic", "mean"))
        return Measured(self.cell, score, seeds=len(self.recipes))


class _Workshop:
    """Tasks and scores that the cells of a table share."""

    def __init__(
        self,
        data: str | Path | None,
        corpus: list[str],
        most_seeds: int | None,
        batch_size: int,
        progress: bool,
        options: dict[str, Any],
        report: Callable[[str], None],
    ) -> None:
        self.data, self.corpus, self.most_seeds = data, corpus, most_seeds
        self.batch_size, self.progress, self.options, self.report = batch_size, progress, options, report
        self.cache: str | Path | None = None
        self.contexts: Path | None = None
        self.sources: dict[str, Mapping[str, Any]] = {}
        self.memo: dict[Hashable, Any] = {}
        self._no_averages: EssentError | None = None
        self._tasks: dict[str, Task | str] = {}

    def problem(self, cell: Cell, given: Mapping[str, Any]) -> Measured | None:
        """Why a cell cannot be run, None when it can."""
        if cell.missing is not None:
            return Measured(cell, problem=cell.missing)
        role = cell.settings["model"]
        if role not in given:
            return Measured(cell, problem=f"no model given for {role}")
        if cell.reads_contexts and self.contexts is None and not self.corpus:
            return Measured(cell, problem="no averaged token vectors and no corpus given")
        if cell.reads_contexts and len(given[role]) > 1:
            return Measured(cell, problem="averaged token vectors belong to one model, several were given")
        needs_corpus = "corpus" in (cell.settings.get("fit"), cell.settings.get("counts"))
        measure = cell.settings.get("measure")
        if (needs_corpus or (measure and MEASURES[measure].reads_corpus)) and not self.corpus:
            return Measured(cell, problem="no corpus given")
        for name in self._names(cell):
            found = self.task(name, name in cell.settings.get("lowercase", ()))
            if isinstance(found, str):
                return Measured(cell, problem=found)
        return None

    def job(self, cell: Cell, given: Mapping[str, Sequence[str]]) -> _Job | Measured:
        """What is to be run for a cell that can be run; Measured where the model gives no averages."""
        settings = cell.settings
        try:
            contexts = self._averaged(given[settings["model"]][0]) if cell.reads_contexts else ""
        except EssentError as error:
            return Measured(cell, problem=f"no averaged token vectors: {str(error).splitlines()[0]}")
        limits = [settings.get("most_seeds"), self.most_seeds, settings.get("seeds", 1)]
        seeds = min(limit for limit in limits if limit is not None)
        recipes = [recipe for seed in range(seeds) if (recipe := cell.recipe(seed, contexts)) is not None]
        lowered = settings.get("lowercase", ())
        tasks = [f"{name} lowered" if name in lowered else name for name in self._names(cell)]
        return _Job(
            cell, settings["model"], recipes, tasks, settings.get("counts", "task"), settings.get("fit", "task")
        )

    def _averaged(self, model: str) -> str:
        """The model's token vectors averaged over the corpus, as `avg:` writes their folder.

        Raises:
            EssentError: the model cannot be loaded, or has no states to average; said again for every cell.
        """
        if self._no_averages is not None:
            raise self._no_averages
        if self.contexts is None:
            try:
                self.contexts = self._average(model)
            except EssentError as error:
                self._no_averages = error
                raise
        return AverageTable.of(self.contexts).place.rpartition("@")[0]

    def _average(self, model: str) -> Path:
        """Average them, or find them in the cache."""
        backbone = load(model, [Recipe()], self.options).backbone
        layers = sorted({1, backbone.last})
        self.report(f"{model}: token vectors of layers {layers} averaged over {len(self.corpus)} texts")
        corpus = sha256("\0".join(self.corpus).encode("utf-8", "surrogatepass")).hexdigest()
        folder = Path(str(self.cache)) / f"contexts-{digest_of_backbone(backbone, layers, corpus)[:16]}"
        if not folder.is_dir():
            how = Settings(layers=layers, batch_size=self.batch_size, progress=self.progress)
            averages = average_contexts(backbone, self.corpus, how)[0]
            averages.save(folder)
        return folder

    def _names(self, cell: Cell) -> list[str]:
        return list(cell.settings.get("tasks", ()))

    def task(self, name: str, lowered: bool) -> Task | str:
        """The task, or why its data is not there."""
        key = f"{name} lowered" if lowered else name
        if key not in self._tasks:
            try:
                task = _load(name, self.data)
                self._tasks[key] = _lowered(task) if lowered else task
                self.sources[key] = {"source": task.source.get("source"), "sha256": task.digest()}
            except DataError as error:
                self.report(f"No data for {name}: {str(error).splitlines()[0]}")
                self._tasks[key] = f"no data for {name}"
        return self._tasks[key]

    def run(self, model: str, jobs: list[_Job]) -> None:
        """Score all jobs on one model."""
        if not jobs:
            return
        try:
            offer = read_capabilities(model, self.options)
        except EssentError as error:
            self.report(f"{model}: {error}")
            for job in jobs:
                job.scores[model] = "model not loaded"
            return
        groups: dict[tuple[str, str], list[_Job]] = defaultdict(list)
        for job in jobs:
            if reason := _refusal(job.recipes, offer):
                job.scores[model] = reason
            elif measure := job.cell.settings.get("measure"):
                self.report(f"{model}: {job.cell.row}, {job.cell.column}")
                job.scores[model] = _measured(measure, self._bound(model, job))
            else:
                groups[job.counts, job.fit].append(job)
        for (counts, fit), group in groups.items():
            self._score(model, group, counts, fit)

    def _bound(self, model: str, job: _Job) -> Bound:
        tasks = [task for name in job.tasks if not isinstance(task := self._tasks[name], str)]
        head = job.cell.settings.get("head", "")
        recipe = job.recipes[0] if job.recipes else None
        return Bound(model, recipe, head, tasks, self.corpus, self.batch_size, self.progress, self.options, self.memo)

    def _score(self, model: str, jobs: list[_Job], counts: str, fit: str) -> None:
        """Jobs that learn from the same texts: one bench, each task's texts once."""
        recipes = list(dict.fromkeys(recipe for job in jobs for recipe in job.recipes))
        bench = Bench(
            model,
            recipes,
            batch_size=self.batch_size,
            progress=self.progress,
            options=self.options,
            cache=self.cache,
        )
        found: dict[tuple[Recipe, str], Score] = {}
        for name in dict.fromkeys(name for job in jobs for name in job.tasks):
            task = self._tasks[name]
            if isinstance(task, str):
                continue
            self.report(f"{model}: {name}, {len(recipes)} recipes")
            learned = (self.corpus if fit == "corpus" else None, self.corpus if counts == "corpus" else None)
            for recipe, vectors in bench.vectors(task.texts(), *learned):
                found[recipe, name] = score_of(task.score_vectors(vectors))
        for job in jobs:
            by_seed = [mean_over_tasks([found[recipe, name] for name in job.tasks]) for recipe in job.recipes]
            job.scores[model] = mean_over_seeds(by_seed)


def _measured(measure: str, bound: Bound) -> Score | str:
    """A measure's score, or why this model has none."""
    try:
        return MEASURES[measure].run(bound)
    except EssentError as error:
        return f"not on this model: {str(error).splitlines()[0]}"


def _refusal(recipes: Iterable[Recipe], offer: ModelCapabilities) -> str:
    """Why a model cannot run the recipes, empty when it can."""
    try:
        for recipe in recipes:
            check_recipe(recipe, offer)
    except UnsupportedRecipeError as error:
        return f"not on this model: {str(error).splitlines()[0]}"
    return ""


def _load(name: str, data: str | Path | None) -> Any:
    if name != "heros":
        return load_task(name, data)
    if data is None:
        return load_heros("hub")
    found = [Path(data) / f"heros{suffix}" for suffix in (".tsv", ".csv", ".jsonl")]
    return load_heros(str(next((path for path in found if path.is_file()), found[0])))


def _lowered(task: Any) -> PairTask:
    """Scored pairs in lower case (PromptBERT A.1)."""
    pairs = tuple(p._replace(sentence1=p.sentence1.lower(), sentence2=p.sentence2.lower()) for p in task.pairs)
    found: PairTask = replace(task, pairs=pairs, notes=(*task.notes, "Texts lowered."))
    return found
