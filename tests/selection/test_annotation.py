"""Pairs to judge: which are chosen, their file, and the search on a few judgements and the texts behind them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from essent import Encoder, search
from essent.errors import DataError, InputError
from essent.selection.annotation import (
    AnnotatedPairs,
    Annotation,
    choose_pairs,
    read_annotated,
    read_pairs,
    write_pairs,
)
from essent.selection.run import annotate
from essent.tasks.pairs import PairTask
from selection_samples import PAIRS, TASK, planted

TEXTS = [text for text in TASK.texts() if text]


@pytest.fixture(scope="module")
def annotation(shell: Any) -> Annotation:
    return annotate(shell, [pair[:2] for pair in PAIRS], "weights", count=20)


# -- which pairs ------------------------------------------------------------------------------------------------------


def test_disputed_pairs_and_strata() -> None:
    cosines = np.linspace(0, 1, 100) + 0.02 * np.random.default_rng(0).normal(size=(6, 100))
    cosines[:3, 55] += 0.2  # three of the recipes disagree on this pair, which stays near its stratum
    cosines[3:, 55] -= 0.2
    indices, reasons = choose_pairs(cosines, 20, np.random.default_rng(0))
    assert len(set(indices.tolist())) == len(reasons) == 20
    disputed = [index for index, reason in zip(indices, reasons, strict=True) if "disagree" in reason]
    assert (len(disputed), 55 in disputed) == (10, True)
    assert set(indices // 10) == set(range(10))  # the whole scale


def test_the_order_is_random_and_the_seed_decides() -> None:
    cosines = np.random.default_rng(0).normal(size=(6, 60))
    constant = np.concatenate([cosines, np.full((2, 60), 0.5), np.full((1, 60), np.nan)])  # these are ignored
    first, again, other = (
        choose_pairs(rows, 30, np.random.default_rng(seed))[0]
        for rows, seed in ((cosines, 1), (constant, 1), (cosines, 2))
    )
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
    assert abs(np.corrcoef(np.arange(30), cosines.mean(axis=0)[first])[0, 1]) < 0.6  # not in the order of similarity
    for count in (1, 2, 7, 59, 60):
        assert len(set(choose_pairs(cosines, count, np.random.default_rng(0))[0].tolist())) == count


def test_chosen_pairs_come_from_the_data(shell: Any, annotation: Annotation) -> None:
    assert set(annotation.pairs) <= {pair[:2] for pair in PAIRS}
    assert len(annotation.pairs) == len(annotation.reasons) == 20
    first, again = (annotate(shell, TEXTS, "weights", count=15, seed=3) for _ in range(2))
    assert first.pairs == again.pairs
    assert len(set(map(frozenset, first.pairs))) == 15
    assert {text for pair in first.pairs for text in pair} <= set(TEXTS)
    pairs = [pair[:2] for pair in PAIRS[:10]]
    for data, count, message in (
        (pairs * 2, 99, "Cannot select 99 pairs to annotate: the data has only 10"),
        (TASK, 5, "already has labels"),
        (pairs, 0, "count=0"),
    ):
        with pytest.raises(InputError, match=message):
            annotate(shell, data, "weights", count=count)
    with pytest.raises(InputError, match="Unknown option 'criterion'"):
        annotate(shell, TEXTS, "weights", criterion=None)


# -- the file ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".csv", ".jsonl"])
def test_pairs_file_round_trip(suffix: str, tmp_path: Path) -> None:
    pairs = [('A "quoted", text', "über\nzwei Zeilen", 2.5), ("b", "c", None), ("d", "e", 0.0)]
    write_pairs(tmp_path / f"judge{suffix}", pairs)
    assert read_pairs(tmp_path / f"judge{suffix}") == pairs


def test_unscored_pairs_and_foreign_texts_give_notes(annotation: Annotation, tmp_path: Path) -> None:
    annotation.write(tmp_path / "judge.csv")
    pairs = read_pairs(tmp_path / "judge.csv")
    with pytest.raises(DataError, match="none of the 20 pairs has a score"):
        read_annotated(tmp_path / "judge.csv", annotation.source)
    write_pairs(tmp_path / "judge.csv", [(first, second, 1.0) for first, second, _ in pairs[:4]] + pairs[4:])
    task = annotation.with_scores(tmp_path / "judge.csv")
    assert len(task) == 4
    assert any("16 of 20 pairs have no score" in note for note in task.notes)
    foreign = read_annotated(tmp_path / "judge.csv", [text for pair in pairs[:3] for text in pair[:2]])
    assert any("1 of the 4 annotated pairs contain a text that is not in the" in note for note in foreign.notes)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("sentence1,sentence2,score\na,b,3\nc,d,\ne,f,much\n", r"line 4: 'score' must be a finite number, not 'much'"),
        ("sentence1,sentence2\na,b\n", "line 2: no column 'score'"),
    ],
)
def test_bad_files_name_their_line(content: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "judge.csv").write_text(content, "utf-8")
    with pytest.raises(DataError, match=rf"judge\.csv, {message}"):
        read_pairs(tmp_path / "judge.csv")
    with pytest.raises(DataError, match=r"judge\.txt: expected a \.csv or \.jsonl file"):
        write_pairs(tmp_path / "judge.txt", [("a", "b", None)])


# -- the choice -------------------------------------------------------------------------------------------------------


def test_judgements_and_the_teacher_rank_recipes_fitted_on_all_texts(shell: Any, annotation: Annotation) -> None:
    task = annotation.with_scores([float(n % 6) for n in range(20)])
    everything = [pair[0] for pair in PAIRS] + [pair[1] for pair in PAIRS]
    assert task.texts() == everything
    board = search(shell, task, "weights")
    encoder = Encoder(shell, "layers=static weights=idf").fit(everything)
    alone = PairTask("alone", task.pairs).run(encoder).metrics["spearman"]["all"]
    assert board.find("layers=static weights=idf").scores["spearman"] == pytest.approx(alone, abs=1e-3)
    without = search(shell, [pair[:2] for pair in PAIRS], "weights")
    assert board.criterion == "judged + teacher"
    for trial in board.trials:
        teacher = without.find(trial.recipe).scores["teacher"]
        assert trial.scores["teacher"] == pytest.approx(teacher, abs=1e-9, nan_ok=True)
        expected = (20 * trial.scores["spearman"] + 30 * 100 * trial.scores["teacher"]) / 50
        assert trial.scores["judged + teacher"] == pytest.approx(expected, nan_ok=True)
    assert "Ranked by 20 annotated pairs" in " ".join(board.notes)


def test_judgements_find_the_planted_recipe(shell: Any) -> None:
    truth = planted(shell, "layers=static weights=idf", noise=0.0)
    annotated = annotate(shell, [pair[:2] for pair in truth.pairs], "weights", count=50)
    gold = {pair[:2]: pair.score for pair in truth.pairs}
    task = annotated.with_scores([gold[pair] for pair in annotated.pairs])
    board = search(shell, task, "weights", criterion="spearman")
    assert set(board.trials[0].scores) == {"spearman"}
    assert board.find("layers=static weights=idf").scores["spearman"] > 99.9


def test_annotated_pairs_of_new_texts() -> None:
    task = AnnotatedPairs("own", (("new one", "a", 1.0), ("b", "new two", 2.0)), all_texts=("a", "b", "a"))
    assert task.texts() == ["a", "b", "a", "new one", "new two"]
    assert task.compared().tolist() == [[3, 0], [1, 4]]
    assert task.without(np.array([True, False])).texts() == ["a", "b", "a", "new two"]
