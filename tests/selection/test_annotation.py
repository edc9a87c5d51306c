"""Pairs to judge: which are chosen, their file, and the search on a few judgements and the texts behind them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from essent import Encoder, search
from essent.errors import DataError, InputError
from essent.selection.annotation import choose_pairs, read_annotated, read_pairs, write_pairs
from essent.selection.run import annotate
from essent.tasks.pairs import PairTask
from selection_samples import TASK

TEXTS = [text for text in TASK.texts() if text]


# -- which pairs ------------------------------------------------------------------------------------------------------


def test_disputed_pairs_of_the_whole_scale_in_random_order() -> None:
    cosines = np.linspace(0, 1, 100) + 0.02 * np.random.default_rng(0).normal(size=(6, 100))
    cosines[:3, 55] += 0.2  # three of the recipes disagree on this pair, which stays near its stratum
    cosines[3:, 55] -= 0.2
    constant = np.vstack([cosines, cosines[:1] * 0, cosines[:1] * np.nan])  # these are ignored
    first, again, other = (
        choose_pairs(rows, 20, np.random.default_rng(seed)).tolist()
        for rows, seed in ((cosines, 0), (constant, 0), (cosines, 2))
    )
    assert 55 in first
    assert {index // 10 for index in first} == set(range(10))
    assert first == again != other
    assert abs(np.corrcoef(np.arange(20), first)[0, 1]) < 0.6  # not in the order of similarity
    for count in (1, 7, 100):
        assert len(set(choose_pairs(cosines, count, np.random.default_rng(0)).tolist())) == count


def test_chosen_pairs_come_from_the_data(shell: Any) -> None:
    first, again = (annotate(shell, TEXTS, "weights", count=15, seed=3) for _ in range(2))
    assert first == again
    assert len(set(map(frozenset, first))) == 15
    assert {text for pair in first for text in pair} <= set(TEXTS)
    for arguments, message in (
        ({"data": TEXTS[:9], "count": 99}, "Cannot select 99 pairs to annotate: the data has only [12]"),
        ({"data": TASK}, "already has labels"),
        ({"data": TEXTS, "count": 0}, "count=0"),
        ({"data": TEXTS[:9], "count": 9, "use": "classes"}, "at least 50 distinct texts are needed"),
        ({"data": TEXTS, "use": "retrieval"}, "Retrieval needs queries"),
        ({"data": TEXTS, "criterion": None}, "Unknown option 'criterion'"),
    ):
        with pytest.raises(InputError, match=message):
            annotate(shell, space="weights", **arguments)


# -- the file ---------------------------------------------------------------------------------------------------------


def test_pairs_file_round_trip_with_unscored_pairs_and_new_texts(tmp_path: Path) -> None:
    pairs = [('A "quoted", text', "über\nzwei Zeilen", 2.5), ("b", "c\rc", None), ("d", "e", 0.0)]
    write_pairs(tmp_path / "judge.csv", pairs)
    assert read_pairs(tmp_path / "judge.csv") == pairs
    task = read_annotated(tmp_path / "judge.csv", ["b", "d", "b"])
    assert any("1 of 3 pairs have no score" in note for note in task.notes)
    assert task.texts() == ["b", "d", "b", *pairs[0][:2], "e"]
    assert task.compared().tolist() == [[3, 4], [1, 5]]
    assert task.without(np.array([True, False])).texts() == ["b", "d", "b", "e"]
    for rows, message in ((pairs[1:2], "none of the 1 pairs has a score"), (pairs[1:], "all scores are 0")):
        write_pairs(tmp_path / "judge.csv", rows)
        with pytest.raises(DataError, match=message):
            read_annotated(tmp_path / "judge.csv", ["b"])


def test_bad_files_name_their_line(tmp_path: Path) -> None:
    for content, message in (
        ("sentence1,sentence2,score\na,b,3\nc,d,\ne,f,much\n", r"line 4: 'score' must be a finite number, not 'much'"),
        ("sentence1,sentence2\na,b\n", "line 2: no column 'score'"),
    ):
        (tmp_path / "judge.csv").write_text(content, "utf-8")
        with pytest.raises(DataError, match=rf"judge\.csv, {message}"):
            read_pairs(tmp_path / "judge.csv")


# -- the choice -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("use", "criterion", "prior"),
    [("similarity", "teacher", 30), pytest.param("clusters", "topics", 60, marks=pytest.mark.slow)],
)
def test_judgements_and_a_criterion_without_labels_rank_recipes_fitted_on_all_texts(
    use: str, criterion: str, prior: int, shell: Any, tmp_path: Path
) -> None:
    fitted = Encoder(shell, "layers=static weights=idf").fit(TEXTS)
    pairs = annotate(shell, TEXTS, "weights", count=50, use=use)
    first, second = (fitted.encode(list(side), normalize_embeddings=True) for side in zip(*pairs, strict=True))
    gold = np.einsum("pd,pd->p", first, second).tolist()
    write_pairs(tmp_path / "judge.csv", [(*pair, score) for pair, score in zip(pairs, gold, strict=True)])
    task = read_annotated(tmp_path / "judge.csv", TEXTS)
    assert task.texts() == TEXTS
    board, alone, without = (
        search(shell, data, "weights", criterion=requested, use=use)
        for data, requested in ((task, ()), (task, "spearman"), (TEXTS, ()))
    )
    assert (board.criterion, set(alone.trials[0].scores)) == (f"judged + {criterion}", {"spearman"})
    assert alone.find("layers=static weights=idf").scores["spearman"] > 99.9
    expected = PairTask("alone", task.pairs).run(Encoder(shell, "weights=idf").fit(TEXTS)).main_score
    assert board.find("weights=idf").scores["spearman"] == pytest.approx(expected, abs=1e-3)
    for trial in board.trials:
        expected = without.find(trial.recipe).scores[criterion]
        assert trial.scores[criterion] == pytest.approx(expected, abs=1e-9, nan_ok=True)
        both = (50 * trial.scores["spearman"] + prior * 100 * trial.scores[criterion]) / (50 + prior)
        assert trial.scores[board.criterion] == pytest.approx(both, nan_ok=True)
    assert f"Ranked by 50 judged pairs and {criterion}, which counts as {prior}" in " ".join(board.notes)
    assert not any("Ranked by" in note or "The labels decide" in note for note in without.notes)
    assert ("by 50 judged pairs and topics" in board.verdict) == (use == "clusters")
