"""An Encoder in `mteb.evaluate`, and tasks of essent as tasks of MTEB."""

import json
import sys
from pathlib import Path
from typing import Any

import mteb
import numpy as np
import pytest

from essent import Encoder
from essent.errors import InputError
from essent.selection.mteb import _task_class, identify, to_mteb
from essent.tasks.examples import MinimalPair
from essent.tasks.geometry import GeometryTask
from essent.tasks.heros import HerosTask
from essent.tasks.pairs import PairTask
from essent.tasks.result import Result
from families import CORPUS
from selection_samples import PAIRS, clusters, duplicates, labels

# mteb's own: it passes a deprecated argument to itself, and calls sentence-transformers by an old name
pytestmark = [
    pytest.mark.filterwarnings("ignore:The fill_missing parameter is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:The `get_sentence_embedding_dimension` method has been renamed:FutureWarning"),
]

TINY = PairTask("tiny", PAIRS[:6], source={"split": "dev"})
HEROS = HerosTask(
    "heros",
    tuple(
        MinimalPair(text, changed, kind)
        for text in CORPUS[:4]
        for kind, changed in (("Synonym", text.replace(" ", " very ", 1)), ("Antonym", "No " + text))
    ),
)


def evaluate(model: Any, *tasks: Any, cache: Path | None = None) -> Any:
    stored = cache and mteb.ResultCache(cache)
    return mteb.evaluate(model, list(tasks), cache=stored, co2_tracker=False, show_progress_bar=False)


@pytest.fixture(scope="module")
def encoder(bert: Path) -> Encoder:
    return Encoder(bert, "first-last weights=idf | zscore", device="cpu").fit(TINY.texts())


# -- models in MTEB ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("named", [True, False])
def test_a_cache_distinguishes_encoders(named: bool, bert: Path, tmp_path: Path) -> None:
    for recipe, first in (("mean", 0), ("first-last", 0), ("mean | zscore", 0), ("mean | zscore", 3)):
        encoder = Encoder(bert, recipe, device="cpu").fit(TINY.texts()[first:])
        if named:
            revisions = {identify(encoder, "me/tiny").model_card_data.base_model_revision for _ in range(2)}
            assert len(revisions) == 1
        score = evaluate(encoder, to_mteb(TINY), cache=tmp_path)[0].get_score()
        assert 100 * score == pytest.approx(TINY.run(encoder).main_score, abs=1e-4)
    models = [json.loads(path.read_text("utf-8"))["name"] for path in tmp_path.rglob("model_meta.json")]
    assert (len(models), "me/tiny" in models) == (4, named)
    for name in ("  ", None):
        with pytest.raises(InputError, match="must be a text such as"):
            identify(encoder, name)  # type: ignore[arg-type]


# -- tasks of essent in MTEB ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", [TINY, HEROS, labels()], ids=lambda task: type(task).__name__)
def test_scores_in_mteb(task: Any, encoder: Encoder, tmp_path: Path) -> None:
    from_mteb, own = evaluate(encoder, to_mteb(task), cache=tmp_path)[0], task.run(encoder)
    (path,) = tmp_path.rglob("essent.*.json")
    read = Result.from_dict(mteb.TaskResult.from_disk(path).scores["test"][0]["essent_result"])
    scores = from_mteb.scores["test"][0]
    divisor = 1 if own.main is None else 100
    for metric, values in own.metrics.items():
        for key, value in values.items():
            assert scores[f"{metric}.{key}"] == pytest.approx(value / divisor, abs=1e-6, nan_ok=True)
        assert read.metrics[metric] == pytest.approx(values, abs=2e-6, nan_ok=True)
    if own.main is not None:
        assert 100 * from_mteb.get_score() == pytest.approx(own.main_score, abs=1e-6)
    assert (from_mteb.task_name, from_mteb.dataset_revision) == (f"essent.{task.name}", task.digest())
    assert (read.task, read.n, read.main, read.notes) == (own.task, own.n, own.main, own.notes)


def test_main_scores_in_mteb(encoder: Encoder) -> None:
    single = HerosTask("single", tuple(pair for pair in HEROS.pairs if pair.subset == "Synonym"))
    constant = PairTask("constant", tuple(pair._replace(score=1.0) for pair in TINY.pairs))
    geometry = GeometryTask.of_pairs(TINY)
    from_mteb = evaluate(encoder, *map(to_mteb, (HEROS, geometry, single, constant)))
    shares = list(HEROS.run(encoder).metrics["ranked_above"].values())
    isoscore = geometry.run(encoder).metrics["isoscore"]["all"]
    expected = [1 - np.mean(shares), isoscore, np.nan, np.nan]  # no comparison, and no correlation
    assert [results.get_score() for results in from_mteb] == pytest.approx(expected, abs=1e-6, nan_ok=True)


def test_metadata_in_mteb() -> None:
    task = to_mteb(TINY, languages=["deu-Latn"])
    assert isinstance(task, mteb.AbsTask)
    assert (task.languages, task.metadata.name) == (["deu"], "essent.tiny")
    types = [to_mteb(own).metadata.type for own in (TINY, HEROS, labels(), clusters(), duplicates())]
    assert types == ["STS", "STS", "Classification", "Clustering", "PairClassification"]
    task.unload_data()
    task.load_data()
    assert task.dataset["default"]["test"]["text"][:] == TINY.texts()
    assert task._calculate_descriptive_statistics_from_split("test") == {"num_samples": 12}


def test_to_mteb_refusals() -> None:
    with pytest.raises(InputError, match="cannot be part of a file name"):
        to_mteb(PairTask("a/b", TINY.pairs))
    with pytest.raises(InputError, match=r"(?s)rejects the task 'tiny'"):
        to_mteb(TINY, languages=["english"])


def test_tasks_need_mteb(monkeypatch: pytest.MonkeyPatch) -> None:
    _task_class.cache_clear()
    monkeypatch.setitem(sys.modules, "mteb", None)
    with pytest.raises(ImportError, match=r'pip install "essent\[mteb\]"'):
        to_mteb(TINY)
