"""Tables run again: every one on tiny models, its cells equal to what `evaluate` gives."""

import math
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import numpy as np
import pytest
from scipy import stats

from essent import Encoder, evaluate
from essent.errors import InputError
from essent.lab.explain.importance import head_agreement, impact_agreement
from essent.lab.reproduce.published import find_table, only_tasks, tables
from essent.lab.reproduce.results import (
    Reproduction,
    Score,
    mean_over_seeds,
    mean_over_tasks,
    render,
    score_of,
    settings_of,
    summary,
)
from essent.lab.reproduce.run import run_table
from essent.static.gather import average_contexts
from essent.tasks.locate import load_pairs
from essent.tasks.result import Result
from families import Folders
from selection_samples import text

CORPUS = [text(number) for number in range(40, 70)]
SELECTED = {"avg.", "BERT", "RE", "Avg."}  # rows and columns of the tables with k-means and classifiers, for time
# Tables with the settings of others: of A1 and A9 on another task, of 4, ditto-6 and promptbert-9 with other models.
SAME = {f"stankevicius-A{part}" for part in (*range(2, 9), *range(10, 15))}
SAME |= {"stankevicius-5", "ditto-1", "promptbert-5", "promptbert-6", "promptbert-15"}
QUICK = {"ditto-6", "promptbert-9", "heros-1"}


def values(done: Reproduction) -> dict[tuple[str, str], float]:
    return {(m.cell.row, m.cell.column): m.score.value for m in done.cells if m.score is not None}


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] * (name not in QUICK)) for name in tables() if name not in SAME],
)
def test_every_table_runs(name: str, deep: Callable[[str], str], toy_data: Path) -> None:
    options = {"data": toy_data, "corpus": CORPUS, "most_seeds": 1}
    if name in {"stankevicius-4", "stankevicius-A9"}:
        options |= {"rows": SELECTED.__contains__, "columns": SELECTED.__contains__}
    table = find_table(name)
    done = run_table(table, {role: deep("roberta" if "roberta" in role else "bert") for role in table.roles}, **options)
    for measured in done.cells:
        assert measured.problem == (measured.cell.missing or ""), measured
        assert measured.problem or math.isfinite(measured.score.value), measured
    assert render(done).row_count > 0
    assert "cells agree" in summary(done)
    assert settings_of(done)


def test_cells_match_evaluate(deep: Callable[[str], str], toy_data: Path, tmp_path: Path) -> None:
    model, seeds = deep("bert"), [f"layers=random:768,{seed} weights=content" for seed in range(5)]
    backbone = Encoder(model).module.backbone
    average_contexts(backbone, CORPUS, layers=[1, backbone.last])[0].save(tmp_path / "a b")
    contexts = "avg:" + quote(str(tmp_path / "a b"))
    cells = {  # recipes (their mean), texts that shaping is fitted on, texts that tokens are counted in
        ("avg.", "T0"): (["t0-mean"], None, None),
        ("avg. + zscore", "Avg."): ([f"layers={contexts}@1+{contexts}@L | zscore"], None, None),
        ("idf^T", "BERT + Avg."): ([f"layers=1+L+{contexts}@1+{contexts}@L weights=idf"], None, CORPUS),
        ("idf^T + quantile-u^W", "T4"): (["template=T4 weights=idf | quantile"], CORPUS, CORPUS),
        ("-biases + normalize", "BERT"): (["layers=1+L weights=remove | normalize"], None, None),
        ("[MASK] + whiten^W", "T0"): (["template=T0 weights=mask | whiten"], CORPUS, None),
        ("avg.", "RE"): (seeds, None, None),
    }
    rows, columns = (set(names).__contains__ for names in zip(*cells, strict=True))
    options = {"data": toy_data, "corpus": CORPUS, "rows": rows, "columns": columns}
    done = values(run_table(find_table("stankevicius-A1"), {"bert": model}, **options))
    for cell, (recipes, fit, counts) in cells.items():
        by_recipe = evaluate(model, recipes, ["sts12"], data=toy_data, fit_texts=fit, frequency_texts=counts)
        scores = [result.main_score for (result,) in by_recipe.values()]
        assert done[cell] == pytest.approx(np.mean(scores), abs=1e-3), cell


@pytest.mark.slow
def test_corpus_measures(deep: Callable[[str], str], toy_data: Path) -> None:
    model = deep("bert")

    def figures(name: str) -> dict[tuple[str, str], float]:
        return values(run_table(find_table(name), {"bert": model}, data=toy_data, corpus=CORPUS))

    agreement = head_agreement(model, load_pairs("stsb", toy_data).texts(), frequency_texts=CORPUS)
    assert figures("ditto-4")["Ditto Head 2-12", "Pear."] == pytest.approx(agreement.pearson[1, 11])
    assert figures("ditto-3")["BERT", "Spear."] == pytest.approx(impact_agreement(model, CORPUS).spearman)
    units = Encoder(model, recipe="mean").encode(CORPUS, normalize_embeddings=True).astype(np.float64)
    expected = pytest.approx((units @ units.T).mean(), abs=1e-5)
    assert figures("promptbert-1")["bert-base-uncased", "Sentence anisotropy"] == expected


def test_several_checkpoints(deep: Callable[[str], str], toy_data: Path) -> None:
    table = only_tasks(find_table("promptbert-10"), {"stsb"}.__contains__)

    def figures(models: object) -> dict[str, float]:
        done = values(run_table(table, {"promptbert-unsup": models}, data=toy_data))
        return {column: done["PromptBERT", column] for column in ("Max", "Min", "Mean")}

    models = [deep("bert"), deep("electra")]  # any other model will do
    alone = [figures(model)["Mean"] for model in models]
    assert figures(models) == pytest.approx({"Max": max(alone), "Min": min(alone), "Mean": np.mean(alone)})


def test_problems_are_named(folder_of: Folders, toy_data: Path, tmp_path: Path) -> None:
    def problems(model: object, data: Path) -> dict[str, str]:
        done = run_table(find_table("ditto-6"), {"bert": str(model)}, data=data)
        return {m.cell.row: m.problem for m in done.cells if m.cell.column == "Avg."}

    shallow = problems(folder_of("bert"), toy_data)  # 3 layers of 4 heads
    expected = {
        "BERT first-last TF-IDF (Ours)": "no corpus given",
        "Sup. SBERT first-last avg.": "no model given for sbert",
        "BERT last manual and continuous prompt": "a trained continuous template",
        "BERT static avg.": "",
    }
    assert {row: shallow[row] for row in expected} == expected
    assert "there is no head 1-10" in shallow["BERT first-last Ditto (Ours)"]
    assert "not on this model" in problems(folder_of("gpt2"), toy_data)["BERT last manual prompt"]
    assert problems(folder_of("bert"), tmp_path)["BERT static avg."] == "no data for sts12"
    assert problems(tmp_path / "no", toy_data)["BERT static avg."] == "model not loaded"
    with pytest.raises(InputError, match=r"has no role 'llama'\. Its roles are bert"):
        run_table(find_table("ditto-6"), {"llama": "m"}, data=toy_data)
    selected = {"rows": {"idf^T"}.__contains__, "columns": {"Avg."}.__contains__}
    (averaged,) = run_table(find_table("stankevicius-A1"), {"bert": "any"}, **selected).cells
    assert averaged.problem == "no corpus given"


# -- standard errors --------------------------------------------------------------------------------------------------


def score(metric: str, value: float, n: int) -> Score:
    return score_of(Result("t", {metric: {"all": value}}, {}, n, main=(metric, "all")))


def test_error_of_a_correlation_is_its_spread_over_samples() -> None:
    samples = np.random.default_rng(0).multivariate_normal([0, 0], [[1, 0.6], [0.6, 1]], size=(2000, 200))  # (S,N,2)
    for metric, values_of in (("spearman", stats.rankdata(samples, axis=1)), ("pearson", samples)):
        correlations = stats.zscore(values_of, axis=1).prod(axis=2).mean(axis=1)  # (S,)
        measured = score(metric, 100 * float(correlations.mean()), 200)
        assert measured.error == pytest.approx(100 * np.std(correlations), rel=0.1), metric
        assert measured.half_width == 1.96 * measured.error


def test_other_errors_and_means() -> None:
    assert score("accuracy", 80.0, 400).error == pytest.approx(2.0)
    runs = {"mean": 54.0, "std": 3.0}
    result = Result("t", {"accuracy": runs}, {}, 400, {"runs": [50.0, 54.0, 58.0, 54.0]}, main=("accuracy", "mean"))
    assert score_of(result).error == 1.5
    assert math.isnan(score("spearman", 50.0, 3).error)
    assert mean_over_tasks([Score(50, 3), Score(60, 4)]) == Score(55, 2.5)
    seeds = [Score(50, 1.0), Score(54, 1.0)]
    assert mean_over_seeds(seeds) == Score(52, pytest.approx(math.sqrt(1 + 8 / 2)))
    assert mean_over_seeds([Score(50, 2.0)]) == Score(50, 2.0)
