"""Tables run again: every one on tiny models, its cells equal to what `evaluate` gives."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from reproduce_helpers import text

from essent import Encoder, evaluate
from essent.errors import InputError
from essent.lab.explain.importance import backbone_of, head_agreement, impact_agreement
from essent.lab.reproduce.run import Reproduction, run_table
from essent.lab.reproduce.show import agrees, render, settings_of, summary, to_dict
from essent.lab.reproduce.tables import find_table, tables
from essent.tasks.locate import load_pairs, load_task

CORPUS = [text(number) for number in range(40, 70)]
SELECTED = {"avg.", "BERT", "RE", "Avg."}  # rows and columns of the tables with k-means and classifiers, for time
FAMILY = {"roberta": "roberta", "sroberta-nli": "roberta", "electra": "electra"}
SAME = {f"stankevicius-A{part}" for part in (*range(2, 9), *range(10, 15))}  # as A1 and A9 on another task


def models_for(name: str, deep: Callable[[str], str]) -> dict[str, str]:
    def family(role: str) -> str:
        return "roberta" if "roberta" in role else FAMILY.get(role, "bert")

    return {role: deep(family(role)) for role in find_table(name).roles}


def values(done: Reproduction) -> dict[tuple[str, str], float]:
    return {(m.cell.row, m.cell.column): m.score.value for m in done.cells if m.score is not None}


LARGE = (
    "stankevicius-4",
    "stankevicius-5",
    "stankevicius-A1",
    "promptbert-15",
    "promptbert-6",
    "ditto-3",
    "promptbert-5",
    "promptbert-1",
)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow if name in LARGE else ())  # others are of the same kinds
        for name in tables()
        if name not in SAME
    ],
)
def test_every_table_runs(name: str, deep: Callable[[str], str], toy_data: Path) -> None:
    large = name in {"stankevicius-4", "stankevicius-5", "stankevicius-A9"}
    selected = SELECTED.__contains__ if large else lambda name: True
    done = run_table(
        find_table(name),
        models_for(name, deep),
        data=toy_data,
        corpus=CORPUS,
        most_seeds=1,
        rows=selected,
        columns=selected,
    )
    for measured in done.cells:
        if measured.cell.missing is None:
            assert not measured.problem, measured
            assert measured.score is not None
            assert math.isfinite(measured.score.value), measured
        else:
            assert measured.problem == measured.cell.missing
    content = json.loads(json.dumps(to_dict(done), allow_nan=False))
    assert len(content["cells"]) == len(done.cells)
    assert render(done).row_count > 0
    assert "cells agree" in summary(done)
    assert settings_of(done)


@pytest.mark.slow
def test_cells_match_evaluate(deep: Callable[[str], str], toy_data: Path) -> None:
    model = deep("bert")
    row_names = {
        "avg.",
        "avg. + zscore",
        "idf^T + quantile-u^W",
        "idf^W + whiten",
        "-biases + normalize",
        "[MASK] + whiten^W",
    }
    reproduction = run_table(
        find_table("stankevicius-A1"), {"bert": model}, data=toy_data, corpus=CORPUS, rows=row_names.__contains__
    )
    done = values(reproduction)
    assert "reverse of their" in find_table("stankevicius-A1").note
    for row, column, recipe, fit, counts in (
        ("avg.", "T0", "t0-mean", None, None),
        ("avg. + zscore", "BERT", "layers=1+L | zscore", None, None),
        ("idf^T + quantile-u^W", "T4", "template=T4 weights=idf | quantile", CORPUS, CORPUS),
        ("idf^W + whiten", "BERT", "layers=1+L weights=idf | whiten", None, None),
        ("-biases + normalize", "BERT", "layers=1+L weights=remove | normalize", None, None),
        ("[MASK] + whiten^W", "T0", "template=T0 weights=mask | whiten", CORPUS, None),
    ):
        ((result,),) = evaluate(
            model, [recipe], ["sts12"], data=toy_data, fit_texts=fit, frequency_texts=counts
        ).values()
        assert done[row, column] == pytest.approx(result.main_score, abs=1e-3), (row, column)
    seeds = [f"layers=random:768,{seed} weights=content" for seed in range(5)]
    scores = [result.main_score for (result,) in evaluate(model, seeds, ["sts12"], data=toy_data).values()]
    assert done["avg.", "RE"] == pytest.approx(np.mean(scores), abs=1e-3)


def test_averaged_columns(deep: Callable[[str], str], toy_data: Path, tmp_path: Path) -> None:
    model, table = deep("bert"), find_table("stankevicius-A1")
    columns, rows = {"Avg.", "BERT + Avg."}, {"avg. + zscore", "idf^T"}
    options = {"data": toy_data, "columns": columns.__contains__, "rows": rows.__contains__}
    done = values(run_table(table, {"bert": model}, corpus=CORPUS, cache=tmp_path, **options))
    (folder,) = tmp_path.glob("contexts-*")
    last = backbone_of(model).last
    for row, column, recipe in (
        ("avg. + zscore", "Avg.", f"layers=avg:{folder}@1+avg:{folder}@L | zscore"),
        ("idf^T", "Avg.", f"layers=avg:{folder}@1+avg:{folder}@{last} weights=idf"),
        ("idf^T", "BERT + Avg.", f"layers=1+L+avg:{folder}@1+avg:{folder}@L weights=idf"),
    ):
        ((result,),) = evaluate(model, [recipe], ["sts12"], data=toy_data, frequency_texts=CORPUS).values()
        assert done[row, column] == pytest.approx(result.main_score, abs=1e-3), (row, column)
    again = run_table(table, {"bert": model}, corpus=CORPUS, contexts=folder, **options)
    assert values(again) == pytest.approx(done)
    without = run_table(table, {"bert": model}, **options)
    assert "no averaged token vectors and no corpus given" in {m.problem for m in without.cells}
    two = run_table(table, {"bert": [model, deep("electra")]}, contexts=folder, **options)
    assert {m.problem for m in two.cells} == {"averaged token vectors belong to one model, several were given"}


@pytest.mark.slow
def test_corpus_measures(deep: Callable[[str], str], toy_data: Path) -> None:
    model, corpus = deep("bert"), CORPUS
    four = values(run_table(find_table("ditto-4"), {"bert": model}, data=toy_data, corpus=corpus))
    agreement = head_agreement(model, load_pairs("stsb", toy_data).texts(), frequency_texts=corpus)
    assert four["Ditto Head 2-12", "Pear."] == pytest.approx(agreement.pearson[1, 11])
    three = values(run_table(find_table("ditto-3"), {"bert": model}, data=toy_data, corpus=corpus))
    assert three["BERT", "Spear."] == pytest.approx(impact_agreement(model, corpus).spearman)
    assert all(abs(value) <= 100 for value in [*three.values(), *four.values()])  # correlations × 100
    units = Encoder(model, recipe="static").encode(corpus, normalize_embeddings=True).astype(np.float64)
    cosines = units @ units.T
    five = values(run_table(find_table("ditto-5"), {"bert": model}, data=toy_data, corpus=corpus))
    apart = cosines[~np.eye(len(corpus), dtype=bool)].mean()
    assert five["BERT static avg.", "avg. Cosine Similarity"] == pytest.approx(apart, abs=1e-5)
    promptbert_1 = run_table(find_table("promptbert-1"), {"bert": model}, data=toy_data, corpus=corpus)
    static = {
        m.cell.column: m.score.value
        for m in promptbert_1.cells
        if m.score is not None and m.cell.settings["recipe"] == "static"
    }
    assert static["Sentence anisotropy"] == pytest.approx(cosines.mean(), abs=1e-5)
    two = values(run_table(find_table("promptbert-2"), {"bert": model}, data=toy_data))
    table = backbone_of(model).static_table.detach().double().numpy()
    unit = table / np.linalg.norm(table, axis=1, keepdims=True)
    every = unit @ unit.T
    assert two["bert-base-uncased", "average cosine similarity"] == pytest.approx(
        every[~np.eye(len(unit), dtype=bool)].mean(), abs=1e-6
    )


def test_several_checkpoints(tmp_path: Path, deep: Callable[[str], str], toy_data: Path) -> None:
    electra = deep("electra")  # any other model will do
    table = find_table("promptbert-10")
    both = values(run_table(table, {"promptbert-unsup": [deep("bert"), electra]}, data=toy_data))
    alone = [
        values(run_table(table, {"promptbert-unsup": m}, data=toy_data))["PromptBERT", "Mean"]
        for m in (deep("bert"), electra)
    ]
    assert both["PromptBERT", "Max"] == pytest.approx(max(alone))
    assert both["PromptBERT", "Min"] == pytest.approx(min(alone))
    assert both["PromptBERT", "Mean"] == pytest.approx(np.mean(alone))


def test_problems_are_named(folder_of: Callable[[str], Path], toy_data: Path, tmp_path: Path) -> None:
    shallow = str(folder_of("bert"))  # 3 layers of 4 heads
    done = run_table(find_table("ditto-6"), {"bert": shallow}, data=toy_data)
    problems = {m.cell.row: m.problem for m in done.cells if m.problem}
    assert "there is no head 1-10" in problems["BERT first-last Ditto (Ours)"]
    assert problems["BERT first-last TF-IDF (Ours)"] == "no corpus given"
    assert problems["Sup. SBERT first-last avg."] == "no model given for sbert"
    assert problems["BERT last manual and continuous prompt"] == "a trained continuous template"
    assert ("BERT static avg.", "Avg.") in values(done)
    gpt = run_table(find_table("ditto-6"), {"bert": str(folder_of("gpt2"))}, data=toy_data)
    assert any("not on this model" in m.problem for m in gpt.cells if m.cell.row == "BERT last manual prompt")
    nothing = run_table(find_table("ditto-6"), {"bert": shallow}, data=tmp_path)
    assert {m.problem for m in nothing.cells if m.cell.row == "BERT static avg."} == {
        *(f"no data for {name}" for name in ("sts12", "sts13", "sts14", "sts15", "sts16", "stsb", "sickr"))
    }
    missing = run_table(find_table("ditto-6"), {"bert": str(tmp_path / "no")}, data=toy_data)
    assert {m.problem for m in missing.cells if m.cell.row == "BERT static avg."} == {"model not loaded"}
    with pytest.raises(InputError, match="has no model 'llama'; it has bert"):
        run_table(find_table("ditto-6"), {"llama": shallow}, data=toy_data)


def test_missing_model_is_named(folder_of: Callable[[str], Path], toy_data: Path, tmp_path: Path) -> None:
    options = {"data": toy_data, "corpus": CORPUS, "most_seeds": 1, "rows": {"avg."}.__contains__}
    done = run_table(find_table("stankevicius-A6"), {"bert": str(tmp_path / "no-such-model")}, **options)
    problems = {m.cell.column: m.problem for m in done.cells}
    assert problems["BERT"] == "model not loaded"
    assert problems["Avg."].startswith("no averaged token vectors: There is no model folder")


def test_agreement(deep: Callable[[str], str], toy_data: Path) -> None:
    done = run_table(find_table("heros-1"), {"bert": deep("bert")}, data=toy_data)
    by_column = {(m.cell.row, m.cell.column): m for m in done.cells}
    assert agrees(by_column["Heros", "Lev"]) in {True, False}
    assert by_column["Heros", "Lev"].difference == by_column["Heros", "Lev"].score.value - 0.1  # type: ignore[union-attr]
    assert load_task("stsb", toy_data).digest() == done.sources["stsb"]["sha256"]
