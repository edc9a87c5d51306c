"""Run a published table again; the texts of a task are encoded once per model."""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from essent._core.arguments import check_size
from essent.errors import DataError, EssentError, InputError
from essent.lab.explain.importance import backbone_of, head_agreement, impact_agreement
from essent.lab.minimal_pairs.overlap import lexical_overlap
from essent.lab.reproduce.published import Cell, Table
from essent.lab.reproduce.results import (
    Measured,
    Reproduction,
    Score,
    mean_over_seeds,
    mean_over_tasks,
    over_checkpoints,
    score_of,
)
from essent.model.capabilities import check_recipe
from essent.model.loading import load, read_capabilities
from essent.recipe.layers import AverageTable
from essent.recipe.recipe import Recipe
from essent.selection.evaluation import Bench
from essent.static.gather import average_contexts
from essent.tasks.geometry import average_cosine
from essent.tasks.heros import HerosTask, load_heros
from essent.tasks.locate import load_task
from essent.tasks.pairs import PairTask

# Measures besides task scores: cosines of sentences and tokens, word importance, lexical overlap.
COSINES = ("average-cosine", "average-cosine-with-self")
OF_A_CORPUS = (*COSINES, "impact-pearson", "impact-spearman", "head-pearson", "head-spearman")
ROUGE = {"rouge-1": "rouge1", "rouge-2": "rouge2", "rouge-l": "rougeL"}
OVERLAPS = {**ROUGE, "levenshtein": "levenshtein", "length": "length"}
MEASURES = (*OF_A_CORPUS, "token-cosine", *OVERLAPS)


def run_table(
    table: Table,
    models: Mapping[str, str | Sequence[str]] | None = None,
    *,
    data: str | Path | None = None,
    corpus: Sequence[str] | None = None,
    rows: Callable[[str], bool] = lambda name: True,
    columns: Callable[[str], bool] = lambda name: True,
    most_seeds: int | None = None,
    progress: bool = False,
    report: Callable[[str], None] = lambda line: None,
    **options: Any,
) -> Reproduction:
    """Run a published table again, as far as its models and data are available.

    Args:
        table: the table, from `find_table`.
        models: role -> model, or several checkpoints of it; other roles are not run. Default: the paper's models.
        data: a folder for `load_task`; None is the hub.
        corpus: texts for the counts, fits and measures that the paper does not compute on the tasks' own texts.
        rows, columns: functions that select rows and columns by name.
        most_seeds: maximum number of seeds of random embeddings.
        progress: show progress bars.
        report: called with a line about each step.
        options: SentenceTransformer's keyword arguments.

    Raises:
        InputError: a role that the table does not have, or `most_seeds` below 1.

    Example:
        >>> from essent.lab.reproduce import find_table, run_table, summary
        >>> done = run_table(find_table("heros-1"), {"bert": "my-mlm"}, data="data", rows=lambda row: row == "STS-b")
        >>> len(done.cells)
        5
    """
    if models is not None and (unknown := sorted(set(models) - set(table.roles))):
        raise InputError(f"{table.name} has no role {unknown[0]!r}. Its roles are {', '.join(table.roles)}.")
    if most_seeds is not None:
        check_size(most_seeds, "most_seeds")
    by_role = {
        role: (names,) if isinstance(names, str) else tuple(names)
        for role, names in (table.models if models is None else models).items()
    }
    passes = {"batch_size": 32, "progress": progress, "options": options}
    with tempfile.TemporaryDirectory(prefix="essent-reproduce-") as folder:
        run = _Run(data, list(corpus or []), most_seeds, passes, report, Path(folder))
        jobs = [run.plan(cell, by_role) for cell in table.cells() if rows(cell.row) and columns(cell.column)]
        jobs_by_role: dict[str, list[_Job]] = {role: [] for role in by_role}
        for job in jobs:
            if not job.problem:
                jobs_by_role[job.cell.settings["model"]].append(job)
        used = {role: names for role, names in by_role.items() if jobs_by_role[role]}
        for role, names in used.items():
            for model in names:
                run.score(model, [job for job in jobs_by_role[role] if not job.problem])
    return Reproduction(table, tuple(map(_measured, jobs)), used, run.sources, len(run.corpus))


@dataclass
class _Job:
    """A cell, the keys of its tasks, its number of seeds, and its score per model, or why it cannot be run."""

    cell: Cell
    problem: str = ""
    tasks: list[str] = field(default_factory=list)
    seeds: int = 1
    scores: list[Score] = field(default_factory=list)


def _measured(job: _Job) -> Measured:
    if job.problem:
        return Measured(job.cell, problem=job.problem)
    score = over_checkpoints(job.scores, job.cell.settings.get("statistic", "mean"))
    return Measured(job.cell, score)


@dataclass
class _Run:
    """The inputs of `run_table`, and what its cells share: tasks and measurements."""

    data: str | Path | None
    corpus: list[str]
    most_seeds: int | None
    passes: dict[str, Any]  # keyword arguments of Bench
    report: Callable[[str], None]
    cache: Path
    tasks: dict[str, Any] = field(default_factory=dict)  # None for a task without data
    sources: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    shared: dict[tuple[str, ...], Any] = field(default_factory=dict)  # measurements that several cells use

    def plan(self, cell: Cell, models: Mapping[str, Sequence[str]]) -> _Job:
        """Return the job of a cell, with the problem if it cannot be run."""
        settings, role = cell.settings, str(cell.settings.get("model"))
        if cell.missing or role not in models:
            return _Job(cell, cell.missing or f"no model given for {role}")
        sources = (settings.get("fit"), settings.get("counts"))
        if not self.corpus and (cell.reads_contexts or "corpus" in sources or settings.get("measure") in OF_A_CORPUS):
            return _Job(cell, "no corpus given")
        lowercase = settings.get("lowercase", ())
        try:
            tasks = [self._load(name, name in lowercase) for name in settings.get("tasks", ())]
        except DataError as error:
            return _Job(cell, str(error))
        limits = (settings.get("most_seeds"), self.most_seeds, settings.get("seeds", 1))
        return _Job(cell, "", tasks, min(limit for limit in limits if limit is not None))

    def _load(self, name: str, lowercase: bool) -> str:
        """Load a task's data into `tasks`, once, and return its key; raise DataError if there are none."""
        key = f"{name} lowered" if lowercase else name
        if key not in self.tasks:
            self.tasks[key] = None
            try:
                task: Any = _load_heros(self.data) if name == "heros" else load_task(name, self.data)
                self.tasks[key] = task = _lowercased(task) if lowercase else task
                self.sources[key] = {"source": task.source.get("source"), "sha256": task.digest()}
            except DataError as error:
                self.report(f"No data for {name}: {_first_line(error)}")
        if self.tasks[key] is None:
            raise DataError(f"no data for {name}")
        return key

    def _contexts(self, model: str, jobs: Sequence[_Job]) -> str:
        """Return the folder of averaged token vectors for the jobs; "" without jobs, or if these cannot be run."""
        try:
            return self._average(model) if jobs else ""
        except EssentError as error:
            for job in jobs:
                job.problem = f"no averaged token vectors: {_first_line(error)}"
            return ""

    def _average(self, model: str) -> str:
        """Write token vectors averaged over the corpus to a folder, and return it as written in `avg:`."""
        backbone = load(model, [Recipe()], self.passes["options"]).backbone
        layers = sorted({1, backbone.last})
        self.report(f"{model}: averaging token vectors of layers {layers} over {len(self.corpus)} texts")
        folder = Path(tempfile.mkdtemp(dir=self.cache)) / "contexts"
        average_contexts(backbone, self.corpus, layers=layers, progress=self.passes["progress"])[0].save(folder)
        return AverageTable.of(folder).place.rpartition("@")[0]

    def score(self, model: str, jobs: Sequence[_Job]) -> None:
        """Score all jobs on one model."""
        try:
            capabilities = read_capabilities(model, self.passes["options"])
        except EssentError as error:
            self.report(f"{model}: {error}")
            for job in jobs:
                job.problem = "model not loaded"
            return
        contexts = self._contexts(model, [job for job in jobs if job.cell.reads_contexts])
        jobs = [job for job in jobs if not job.problem]
        groups: dict[tuple[str, str], list[tuple[_Job, list[Recipe]]]] = defaultdict(list)  # by texts to learn from
        for job in jobs:
            settings = job.cell.settings
            recipes = [recipe for seed in range(job.seeds) if (recipe := job.cell.recipe(seed, contexts)) is not None]
            try:
                for recipe in recipes:
                    check_recipe(recipe, capabilities)
                if measure := settings.get("measure"):
                    self.report(f"{model}: {job.cell.row}, {job.cell.column}")
                    job.scores.append(Score(float(self._measure(measure, model, job, recipes))))
                else:
                    groups[settings.get("fit", "task"), settings.get("counts", "task")].append((job, recipes))
            except EssentError as error:
                job.problem = f"not on this model: {_first_line(error)}"
        for sources, group in groups.items():
            distinct = list(dict.fromkeys(recipe for _, recipes in group for recipe in recipes))
            bench = Bench(model, distinct, **self.passes)
            fit_texts, count_texts = (self.corpus if source == "corpus" else None for source in sources)
            scores: dict[tuple[Recipe, str], Score] = {}
            for name in dict.fromkeys(name for job, _ in group for name in job.tasks):
                self.report(f"{model}: {name}, {len(distinct)} recipes")
                task = self.tasks[name]
                for recipe, vectors in bench.vectors(task.texts(), fit_texts, count_texts):  # each text encoded once
                    scores[recipe, name] = score_of(task.score_vectors(vectors))
            for job, recipes in group:
                by_seed = [mean_over_tasks([scores[recipe, name] for name in job.tasks]) for recipe in recipes]
                job.scores.append(mean_over_seeds(by_seed))

    def _measure(self, measure: str, model: str, job: _Job, recipes: Sequence[Recipe]) -> float:
        """Compute one of `MEASURES`. Cells that share a measurement compute it once per model and tasks."""
        options = self.passes["options"]
        if measure in COSINES:
            ((_, vectors),) = Bench(model, recipes[:1], **self.passes).vectors(self.corpus, None, None)
            return average_cosine(vectors, self_pairs=measure.endswith("with-self"))
        if measure == "token-cosine":
            return average_cosine(backbone_of(model, **options).static_table.detach().float().cpu().numpy())
        kind, _, coefficient = ("overlap", "", "") if measure in OVERLAPS else measure.partition("-")
        key, tasks = (kind, model, *job.tasks), [self.tasks[name] for name in job.tasks]
        if key not in self.shared:
            if kind == "impact":
                self.shared[key] = impact_agreement(model, self.corpus, **options)
            elif kind == "head":
                texts = [text for task in tasks for text in task.texts()]
                self.shared[key] = head_agreement(model, texts, frequency_texts=self.corpus, **options)
            else:
                pairs = [pair[:2] for task in tasks for pair in task.pairs]
                tokenizer = backbone_of(model, **options).tokenizer
                self.shared[key] = lexical_overlap(
                    pairs, lambda text: tokenizer(text, add_special_tokens=False)["input_ids"]
                )
        if kind == "overlap":
            return float(self.shared[key][OVERLAPS[measure]])
        values = getattr(self.shared[key], coefficient)
        if kind == "head":
            layer, head = (int(number) - 1 for number in job.cell.settings["head"].split("-"))
            return float(values[layer, head])
        return float(values)


def _first_line(error: EssentError) -> str:
    return str(error).splitlines()[0]


def _load_heros(data: str | Path | None) -> HerosTask:
    if data is None:
        return load_heros("hub")
    files = [Path(data) / f"heros{suffix}" for suffix in (".tsv", ".csv", ".jsonl")]
    return load_heros(str(next((path for path in files if path.is_file()), files[0])))


def _lowercased(task: Any) -> PairTask:
    """Return scored pairs in lower case (PromptBERT A.1)."""
    pairs = tuple(p._replace(sentence1=p.sentence1.lower(), sentence2=p.sentence2.lower()) for p in task.pairs)
    lowercased: PairTask = replace(task, pairs=pairs, notes=(*task.notes, "Texts lowered."))
    return lowercased
