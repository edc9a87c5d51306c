"""MTEB, both ways: an Encoder in `mteb.evaluate`, tasks of essent as tasks of MTEB, saved results read back."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import mteb
import numpy as np
import pytest
from datasets import Dataset
from mteb.abstasks import AbsTaskRetrieval, AbsTaskSTS
from mteb.abstasks.task_metadata import TaskMetadata
from sentence_transformers import SentenceTransformer

from essent import Encoder
from essent.errors import DataError, InputError
from essent.selection.mteb import as_experiment, compare_mteb_results, identify, read_mteb_results, to_mteb
from essent.tasks.comparison import Scored, compare
from essent.tasks.examples import MinimalPair, Pair
from essent.tasks.geometry import GeometryTask
from essent.tasks.heros import HerosTask
from essent.tasks.pairs import PairTask
from essent.tasks.result import Result
from essent.tasks.retrieval import RetrievalTask
from families import CORPUS
from selection_samples import clusters, duplicates, labels

# mteb's own: it passes a deprecated argument to itself, and calls sentence-transformers by an old name
pytestmark = [
    pytest.mark.filterwarnings("ignore:The fill_missing parameter is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:The `get_sentence_embedding_dimension` method has been renamed:FutureWarning"),
]

SENTENCES = list(dict.fromkeys(CORPUS))
ROWS = [(SENTENCES[a], SENTENCES[b], a + b / 8) for a, b in ((0, 1), (1, 5), (6, 7), (2, 3), (4, 0), (3, 6))]
PAIRS = PairTask("tiny", tuple(Pair(*row) for row in ROWS), source={"split": "dev"})
HEROS = HerosTask(
    "heros",
    tuple(
        MinimalPair(text, changed, kind)
        for text in SENTENCES[:4]
        for kind, changed in (("Synonym", text.replace(" ", " very ", 1)), ("Antonym", "No " + text))
    ),
)
GEOMETRY = GeometryTask("geometry.tiny", tuple(PAIRS.texts()), ((SENTENCES[0], SENTENCES[1]),))


def metadata_of(name: str, kind: str, main_score: str) -> TaskMetadata:
    """The metadata of a task in memory."""
    return TaskMetadata(
        name=name,
        description="A few examples.",
        type=kind,
        category="t2t",
        main_score=main_score,
        eval_langs=["eng-Latn"],
        dataset={"path": "in-memory", "revision": "1"},
    )


class TinySTS(AbsTaskSTS):
    """The same pairs as `PAIRS`, as MTEB's own kind of task, in memory."""

    metadata = metadata_of("TinySTS", "STS", "cosine_spearman")

    def load_data(self, **options: Any) -> None:
        columns = dict(zip(("sentence1", "sentence2", "score"), map(list, zip(*ROWS, strict=True)), strict=True))
        self.dataset = {"default": {"test": Dataset.from_dict(columns)}}
        self.data_loaded = True


def evaluate(model: Any, *tasks: Any, cache: Path | None = None, **options: Any) -> Any:
    options |= {"cache": cache and mteb.ResultCache(cache), "co2_tracker": False, "show_progress_bar": False}
    return mteb.evaluate(model, list(tasks), **options)


@pytest.fixture(scope="module")
def encoder(bert: Path) -> Encoder:
    return Encoder(bert, "first-last weights=idf | zscore", device="cpu").fit(PAIRS.texts())


# -- models in MTEB ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("named", [True, False])
def test_a_cache_distinguishes_encoders(named: bool, bert: Path, tmp_path: Path) -> None:
    for recipe, first in (("mean", None), ("first-last", None), ("mean | zscore", 0), ("mean | zscore", 3)):
        encoder = Encoder(bert, recipe, device="cpu")
        if first is not None:
            encoder.fit(PAIRS.texts()[first:])
        if named:
            revisions = {identify(encoder, "me/tiny").model_card_data.base_model_revision for _ in range(2)}
            assert len(revisions) == 1
        score = evaluate(encoder, to_mteb(PAIRS), cache=tmp_path)[0].get_score()
        assert 100 * score == pytest.approx(PAIRS.run(encoder).main_score, abs=1e-4)
    models = [result.provenance["model"] for result in read_mteb_results(tmp_path)]
    assert (len(models), "me/tiny" in models) == (4, named)
    for name in ("  ", None):
        with pytest.raises(InputError, match="must be a text such as"):
            identify(encoder, name)  # type: ignore[arg-type]


# -- tasks of essent in MTEB ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", [PAIRS, HEROS, labels()], ids=lambda task: type(task).__name__)
def test_scores_in_mteb(task: Any, encoder: Encoder, tmp_path: Path) -> None:
    from_mteb, own = evaluate(encoder, to_mteb(task), cache=tmp_path)[0], task.run(encoder)
    (read,) = read_mteb_results(tmp_path)
    scores = from_mteb.scores["test"][0]
    divisor = 1 if own.main is None else 100
    for metric, values in own.metrics.items():
        for key, value in values.items():
            assert scores[f"{metric}.{key}"] == pytest.approx(value / divisor, abs=1e-6, nan_ok=True)
        assert read.metrics[metric] == pytest.approx(values, abs=2e-6, nan_ok=True)
    if own.main is not None:
        assert 100 * from_mteb.get_score() == pytest.approx(own.main_score, abs=1e-6)
        assert abs(from_mteb.get_score()) <= 1
    assert (from_mteb.task_name, from_mteb.dataset_revision) == (f"essent.{task.name}", task.digest())
    assert (read.task, read.n, read.main, read.notes) == (own.task, own.n, own.main, own.notes)
    assert set(read.subsets) == set(own.subsets)
    model, split = encoder.model_card_data.model_name, own.provenance.get("split")  # of the data: MTEB has only "test"
    expected = {"sha256": task.digest(), "mteb": from_mteb.mteb_version, "model": model, "split": split}
    assert {name: read.provenance.get(name) for name in expected} == expected


def test_main_scores_in_mteb(encoder: Encoder, tmp_path: Path) -> None:
    single = HerosTask("single", tuple(pair for pair in HEROS.pairs if pair.subset == "Synonym"))
    constant = PairTask("constant", tuple(pair._replace(score=1.0) for pair in PAIRS.pairs))
    tasks = (HEROS, GEOMETRY, single, constant)
    scores = [results.get_score() for results in evaluate(encoder, *map(to_mteb, tasks), cache=tmp_path)]
    shares = list(HEROS.run(encoder).metrics["ranked_above"].values())
    isoscore = GEOMETRY.run(encoder).metrics["isoscore"]["all"]
    assert scores[:2] == pytest.approx([1 - np.mean(shares), isoscore], abs=1e-6)
    assert np.isnan(scores[2:]).all()  # no comparison, and no correlation
    constant_read, _, _, single_read = read_mteb_results(tmp_path)
    assert math.isnan(constant_read.main_score)
    assert "constant gold scores" in constant_read.notes[0]
    assert single_read.metrics["ranked_above"] == {}


def test_metadata_in_mteb() -> None:
    task = to_mteb(PAIRS, languages=["deu-Latn"])
    assert isinstance(task, mteb.AbsTask)
    assert (task.languages, task.metadata.name) == (["deu"], "essent.tiny")
    types = [to_mteb(own).metadata.type for own in (PAIRS, HEROS, labels(), clusters(), duplicates())]
    assert types == ["STS", "STS", "Classification", "Clustering", "PairClassification"]
    task.unload_data()
    task.load_data()
    assert task.dataset["default"]["test"]["text"][:] == PAIRS.texts()
    assert task._calculate_descriptive_statistics_from_split("test") == {"num_samples": 12}


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("a/b", {}, "cannot be part of a file name"),
        ("", {}, "cannot be part of a file name"),
        ("a", {"languages": ["english"]}, "rejects the task 'a'"),
    ],
)
def test_to_mteb_refusals(name: str, options: dict, message: str) -> None:
    with pytest.raises(InputError, match=f"(?s){message}"):
        to_mteb(PairTask(name, PAIRS.pairs), **options)


# -- results of MTEB in essent ----------------------------------------------------------------------------------------


def test_saved_results_are_read(encoder: Encoder, tmp_path: Path) -> None:
    run, own = evaluate(encoder, TinySTS(), to_mteb(PAIRS)), PAIRS.run(encoder)
    from_mteb = run.task_results[0]
    from_mteb.to_disk(tmp_path / "one.json")
    run.to_disk(tmp_path / "model.json")
    mteb.results.BenchmarkResults(model_results=[run]).to_disk(tmp_path / "benchmark.json")
    (read,) = read_mteb_results(tmp_path / "one.json")
    assert abs(own.main_score) > 1  # ×100
    for name, metric in (("main_score", "spearman"), ("cosine_spearman", "spearman"), ("cosine_pearson", "pearson")):
        expected = {"all": pytest.approx(own.metrics[metric]["all"], abs=1e-4)}  # MTEB rounds to six decimals
        assert read.metrics[name] == expected
    assert "euclidean_spearman" in read.metrics
    assert (read.task, read.n, read.subsets, read.notes) == ("TinySTS", 0, {}, ())
    expected = {"model": None, "evaluation_time": from_mteb.evaluation_time, "dataset_revision": "1", "split": "test"}
    assert {name: read.provenance.get(name) for name in expected} == expected
    assert read.provenance["date"].startswith(str(from_mteb.date.year))
    assert Result.from_dict(read.to_dict()) == read
    for name in ("model.json", "benchmark.json"):
        theirs, ours = read_mteb_results(tmp_path / name)
        assert (theirs.task, ours.task) == ("TinySTS", "tiny")
        assert theirs.main_score == pytest.approx(ours.main_score, abs=1e-4)
        assert theirs.provenance["model"] == ours.provenance["model"] == run.model_name


def saved(scores: Any, **more: Any) -> dict:
    return {"task_name": "T", "mteb_version": "2.1.0", "dataset_revision": "r", "scores": scores, **more}


def entry(main: Any, subset: str = "default", **more: Any) -> dict:
    return {"main_score": main, "hf_subset": subset, "languages": ["eng-Latn"], "mteb_version": "2.1.0", **more}


def read_content(content: Any, path: Path) -> list[Result]:
    path.write_text(json.dumps(content), "utf-8")
    return read_mteb_results(path)


def test_subsets_and_splits(tmp_path: Path) -> None:
    scores = {
        "test": [entry(0.5, "en", ndcg=0.25, extra=0.1), entry(0.7, "de", ndcg=0.75)],
        "validation": [entry(None, "en", ndcg=0.5)],
    }
    test, validation = read_content(saved(scores), tmp_path / "T.json")
    assert (test.task, validation.task) == ("T", "T.validation")
    assert test.main == ("main_score", "mean")
    assert test.metrics == {"main_score": {"mean": pytest.approx(60)}, "ndcg": {"mean": pytest.approx(50)}}
    assert test.subsets["en"] == {"n": 0, "main_score": 50.0, "ndcg": 25.0, "extra": 10.0}
    assert math.isnan(validation.main_score)
    assert validation.notes == ("The main score is undefined for: en.",)
    assert validation.metrics["ndcg"] == {"all": 50.0}


def test_scores_in_percent(tmp_path: Path) -> None:
    numbers = {"max_accuracy_threshold": 0.5, "rmse": 0.5, "n_clusters": 7, "accuracy": 1}
    (read,) = read_content(saved({"test": [entry(0.5, **numbers, runs=[{"a": 1}], ok=True)]}), tmp_path / "T.json")
    expected = {**numbers, "main_score": 50.0, "accuracy": 100.0}
    assert {name: values["all"] for name, values in read.metrics.items()} == expected
    (percent,) = read_content(saved({"test": [entry(50.5, accuracy=0.5)]}), tmp_path / "T.json")
    assert (percent.main_score, percent.metrics["accuracy"]["all"]) == (50.5, 0.5)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([], "expected a JSON object, not a list"),
        ({"mteb_dataset_name": "T", "test": {}}, r"before MTEB 1\.11"),
        (saved({}), "its scores are {}"),
        (saved({"test": []}), "the split 'test' of 'T' has no scores"),
        (saved([1]), "AttributeError"),
        (saved({"test": [entry(True)]}), "the main score is True, not a number"),
        (saved({"test": [entry(0.5, essent_result={"task": "T"})]}), "Not a result of essent"),
        (saved({"test": [entry(0.5)]}, date=1e300), "OverflowError|ValueError"),
        ({"task_results": [], "model_results": 3}, "TypeError"),
    ],
)
def test_malformed_files_are_refused(content: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=rf"bad\.json is not a result of MTEB: .*({message})"):
        read_content(content, tmp_path / "bad.json")


def test_unreadable_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"Cannot read the results .*missing\.json"):
        read_mteb_results(tmp_path / "missing.json")
    with pytest.raises(DataError, match="contains no results of MTEB"):
        read_mteb_results(tmp_path)
    for content in (b"\xff{", b"[" * 100000):
        (tmp_path / "bad.json").write_bytes(content)
        with pytest.raises(DataError, match=r"bad\.json is not a JSON file"):
            read_mteb_results(tmp_path)


# -- models compared by MTEB's results ---------------------------------------------------------------------------------


RETRIEVAL = RetrievalTask(
    "tiny retrieval",
    {f"q{number}": f"What of {SENTENCES[2 * number]}" for number in range(4)},
    {f"d{number}": text for number, text in enumerate(SENTENCES[:8])},
    {f"q{number}": {f"d{2 * number}": 1} for number in range(4)},
)


class TinyRetrieval(AbsTaskRetrieval):
    """The queries and documents of `RETRIEVAL`, in memory."""

    metadata = metadata_of("TinyRetrieval", "Retrieval", "ndcg_at_10")

    def load_data(self, **options: Any) -> None:
        sides = {"corpus": RETRIEVAL.corpus, "queries": RETRIEVAL.queries}
        columns = {name: {"id": [*texts], "text": [*texts.values()]} for name, texts in sides.items()}
        columns["corpus"]["title"] = [""] * len(RETRIEVAL.corpus)
        split = {name: Dataset.from_dict(side) for name, side in columns.items()}
        self.dataset = {"default": {"test": {**split, "relevant_docs": RETRIEVAL.relevant, "top_ranked": None}}}
        self.data_loaded = True


@pytest.fixture(scope="module")
def two_models(bert: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Path], list[Encoder]]:
    """Folders with MTEB's results and predictions of two encoders."""
    folders = [tmp_path_factory.mktemp("mteb") for _ in range(2)]
    encoders = [identify(Encoder(bert, recipe, device="cpu"), f"me/{recipe}") for recipe in ("mean", "cls")]
    for folder, encoder in zip(folders, encoders, strict=True):
        options = {"cache": folder / "results", "prediction_folder": folder / "predictions"}
        evaluate(encoder, TinySTS(), TinyRetrieval(), to_mteb(labels()), **options)
    return folders, encoders


def test_recipes_are_experiments_of_one_model(bert: Path, tmp_path: Path) -> None:
    for recipe in ("mean", "cls"):
        evaluate(as_experiment(Encoder(bert, recipe, device="cpu"), "me/tiny"), to_mteb(labels()), cache=tmp_path)
    assert [folder.name for folder in (tmp_path / "results").iterdir()] == ["me__tiny"]
    folders = list(tmp_path.rglob("experiments/*"))
    assert sorted(folder.name for folder in folders) == ["recipe_cls", "recipe_mean"]
    assert sorted(compare_mteb_results(folders)) == ["me/tiny (recipe=cls)", "me/tiny (recipe=mean)"]
    with pytest.raises(InputError, match="expects an Encoder, which has a recipe, not SentenceTransformer"):
        as_experiment(SentenceTransformer(str(bert)), "me/tiny")


def test_predictions_are_compared_in_pairs(two_models: tuple[list[Path], list[Encoder]]) -> None:
    folders, encoders = two_models
    tasks = {"TinySTS": PAIRS, "TinyRetrieval": RETRIEVAL, "l": labels()}
    compared = compare_mteb_results(folders, tasks)  # type: ignore[arg-type]
    assert list(compared) == ["me/mean", "me/cls"]
    for name, task in tasks.items():
        results = [task.run(encoder) for encoder in encoders]
        for row, own in zip(compared.values(), results, strict=True):
            (result,) = [result for result in row if result.task == name]
            assert result.main_score == pytest.approx(own.main_score, abs=1e-3)
            assert result.n == task.units
        evidence = np.stack([result.evidence for result in results if result.evidence is not None])
        expected = compare([Scored(task, task.score_names[0], ["me/mean", "me/cls"], evidence)], "me/cls", "me/mean")
        comparison = compared.compare("me/cls", "me/mean", name)
        numbers = [(c.difference, c.low, c.high, c.p) for c in (comparison, expected)]
        assert numbers[0] == pytest.approx(numbers[1], abs=1e-3)
        assert comparison.summary() in str(compared)
    assert "No interval" not in str(compared)


def test_results_without_predictions_have_no_interval(two_models: tuple[list[Path], list[Encoder]]) -> None:
    folders, _ = two_models
    without = compare_mteb_results([folder / "results" for folder in folders])
    sentence = "No interval of the differences on TinyRetrieval, TinySTS, l: the results have no scores"
    assert str(without).startswith(sentence)
    partly = str(compare_mteb_results(folders, {"TinySTS": PAIRS}))
    assert "Compared with me/mean on TinySTS: difference of spearman" in partly
    assert "No interval of the differences on TinyRetrieval, l: " in partly
    assert list(without.frame().model.unique()) == ["me/mean", "me/cls"]


def test_refused_comparisons(two_models: tuple[list[Path], list[Encoder]]) -> None:
    folders, _ = two_models
    other = PairTask("other", tuple(pair._replace(score=-pair.score) for pair in PAIRS.pairs))
    fewer = PairTask("fewer", PAIRS.pairs[1:])
    results = [folder / "results" for folder in folders]
    for paths, labelled, error, message in (
        (folders, {"TinyST": PAIRS}, InputError, "no results of the task 'TinyST'. Did you mean 'TinySTS'"),
        (folders, {"TinySTS": labels()}, DataError, "expected scored pairs or retrieval, not classification"),
        (folders, {"TinySTS": other}, DataError, r"score -?\d+\.\d\d with these labels, but MTEB saved"),
        (folders, {"TinySTS": fewer}, DataError, "do not fit the labels: 6 similarities of 5 pairs"),
        (results, {"TinySTS": PAIRS}, DataError, "no predictions of me/mean for TinySTS.*prediction_folder=FOLDER"),
        (folders, {"TinySTS": RETRIEVAL}, DataError, "do not fit the labels: KeyError: 'q0'"),
    ):
        with pytest.raises(error, match=message):
            compare_mteb_results(paths, labelled)  # type: ignore[arg-type]


def test_reading_needs_no_mteb(tmp_path: Path) -> None:
    path = tmp_path / "T.json"
    path.write_text(json.dumps(saved({"test": [entry(0.5)]})), "utf-8")
    code = (
        "import sys; sys.modules['mteb'] = None\n"
        "from essent.selection.mteb import read_mteb_results, to_mteb\n"
        "from essent.tasks import Pair, PairTask\n"
        f"print(read_mteb_results({str(path)!r})[0].main_score, 'torch' in sys.modules)\n"
        "try: to_mteb(PairTask('t', (Pair('a', 'b', 1.0, None),)))\n"
        "except ImportError as error: print(error)\n"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.startswith("50.0 False\n")
    assert 'pip install "essent[mteb]"' in printed
