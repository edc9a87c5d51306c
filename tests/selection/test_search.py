"""The search against one encoder at a time: the same vectors and scores, in any portions, killed and resumed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
import torch
from sentence_transformers import SentenceTransformer

from essent.errors import DataError, InputError, RecipeError, UnknownNameError
from essent.model.capabilities import ModelCapabilities
from essent.model.loading import load
from essent.recipe.recipe import Recipe
from essent.selection.leaderboard import Leaderboard
from essent.selection.program import Program, TextPairs
from essent.selection.run import search
from essent.selection.search_data import SearchData
from essent.selection.space import SPACES, Grid, Space
from essent.selection.store import Store
from essent.selection.sweep import Sweep, score_stored
from essent.tasks.examples import Pair
from essent.tasks.pairs import PairTask
from near_ties import Watched, one_by_one
from samples import daily
from selection_samples import PAIRS, TASK, planted

Shells = Callable[[str], SentenceTransformer]
MIXED = Space(
    (
        Grid(layers=("0+L", "L"), weights=("ditto:*",)),
        Grid(
            templates=(None, "bert"),
            layers=("static", "1", "0.3*1+0.7*L"),
            weights=("uniform", "idf*ditto:2-1", "mask", "sif", "remove"),
            shaping=("", "centre", "zscore | normalize", "whiten:8", "quantile"),
        ),
    ),
    ("prompt-denoised", "reduce=max", "reduce=dct:2 | zscore", "random", "layers=0+L reduce=power:3 weights=idf"),
)


def sweep_of(shell: SentenceTransformer, recipes: list[Recipe], folder: Path, memory: int = 2**26) -> Sweep:
    program = Program(recipes, load(shell, recipes, {}).backbone)
    data = TextPairs.of([(p.sentence1, p.sentence2) for p in TASK.pairs], TASK.texts())
    store = Store(folder, {}, len(recipes), len(data.pairs))
    sweep = Sweep(program, data, store, memory=memory, batch_size=8, progress=False)
    sweep.run()
    return sweep


@pytest.fixture(scope="module")
def large(shell_of: Shells) -> Leaderboard:
    """A search of the mixed space in one portion."""
    return search(shell_of("bert"), TASK, MIXED)


@pytest.fixture(scope="module")
def portions(shell_of: Shells) -> Leaderboard:
    """The same in portions."""
    return search(shell_of("bert"), TASK, MIXED, memory=2e-4)


@pytest.fixture(scope="module")
def alone(shell_of: Shells, large: Leaderboard) -> dict[str, Watched]:
    """Its recipes, one encoder at a time."""
    return one_by_one(shell_of("bert"), scored(large), TASK)


def scored(board: Leaderboard) -> list[str]:
    """The recipes with a score: all but a few that give all texts one vector, as [CLS] in layer 0, which is refused."""
    recipes = [str(trial.recipe) for trial in board.trials if np.isfinite(trial.scores["spearman"])]
    assert len(recipes) > 0.9 * len(board.trials)
    return recipes


def assert_scores_of(board: Leaderboard, alone: dict[str, Watched]) -> None:
    """As near to the recipes alone as pairs can be ranked."""
    assert set(scored(board)) == set(alone)
    for text, watched in alone.items():
        assert board.find(text).scores["spearman"] == watched.expected(text), text


@pytest.mark.parametrize(
    "family", daily(["bert", "roberta", "albert", "modernbert", "t5", "gpt2", "mpnet"], "bert", "gpt2")
)
def test_scores_match_single_encoders(shell_of: Shells, family: str, tmp_path: Path) -> None:
    board = search(shell_of(family), TASK, MIXED)
    recipes = sorted((trial.recipe for trial in board.trials), key=str)
    sweep = sweep_of(shell_of(family), recipes, tmp_path / "work")
    score_stored(sweep, SearchData.of(TASK, None, (), 0), progress=False)
    stored = dict(zip(map(str, sweep.program.recipes), sweep.store.rows, strict=True))
    chosen = np.random.default_rng(0).choice(sorted(scored(board)), 25, replace=False).tolist()
    for text, alone in one_by_one(shell_of(family), chosen, TASK).items():
        np.testing.assert_allclose(stored[text], alone.cosines, rtol=0, atol=alone.rounding(text), err_msg=text)
        assert board.find(text).scores["spearman"] == alone.expected(text), text


def test_pooled_vectors_fit_the_memory(shell_of: Shells, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = 8_000  # bytes: two or three texts a portion, and not all weightings of them at a time
    buffers: list[tuple[int, int]] = []  # weightings pooled at a time, bytes of their buffer
    original = Sweep._pooled

    def noting(self: Sweep, *arguments: Any) -> Iterator[tuple[range, torch.Tensor]]:
        for rows, pooled in original(self, *arguments):
            buffers.append((len(rows), pooled.untyped_storage().nbytes()))
            yield rows, pooled

    monkeypatch.setattr(Sweep, "_pooled", noting)
    heads = MIXED.expand(ModelCapabilities("bert", 3, 4, True))[0]
    sweep_of(shell_of("bert"), [recipe for recipe in heads if not recipe.shaping], tmp_path / "work", memory)
    assert max(rows for rows, _ in buffers) > 1
    assert all(size <= memory // 2 or rows == 1 for rows, size in buffers)


def test_number_of_passes(large: Leaderboard) -> None:
    assert large.provenance["passes"] == 2
    assert large.provenance["encoded"] == 2 * large.provenance["texts"]


def test_the_same_search_gives_the_same_bytes(shell_of: Shells) -> None:
    first, second = (search(shell_of("bert"), TASK, "heads", seed=3).to_dict() for _ in range(2))
    assert {**first, "provenance": 0} == {**second, "provenance": 0}


class KilledError(Exception):
    """Stands for a process that ends at any moment."""


@pytest.mark.parametrize("units", [pytest.param(1, marks=pytest.mark.slow), 4, pytest.param(9, marks=pytest.mark.slow)])
def test_a_killed_search_goes_on_where_it_stopped(
    shell_of: Shells,
    portions: Leaderboard,
    alone: dict[str, Watched],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    units: int,
) -> None:
    settings: dict[str, Any] = {"work": tmp_path / "work", "memory": 2e-4}
    finish, done = Store.finish, []

    def dying(store: Store, unit: str) -> None:
        if len(done) == units:
            raise KilledError
        done.append(unit)
        finish(store, unit)

    monkeypatch.setattr(Store, "finish", dying)
    with pytest.raises(KilledError):
        search(shell_of("bert"), TASK, MIXED, **settings)
    monkeypatch.undo()
    resumed = search(shell_of("bert"), TASK, MIXED, **settings)
    assert resumed.provenance["encoded"] < portions.provenance["encoded"]
    for board in (portions, resumed):
        assert_scores_of(board, alone)
    finished = search(shell_of("bert"), TASK, MIXED, **settings)
    assert finished.provenance["encoded"] == 0


def test_a_folder_of_another_search_is_refused(shell_of: Shells, bert: Path, tmp_path: Path) -> None:
    search(shell_of("bert"), TASK, "heads", work=tmp_path / "work")
    with pytest.raises(DataError, match="holds another search"):
        search(shell_of("bert"), TASK, "layers", work=tmp_path / "work")
    changed = SentenceTransformer(str(bert), device="cpu")
    with torch.no_grad():
        changed[0].model.embeddings.word_embeddings.weight[5] += 1
    with pytest.raises(DataError, match="holds another search"):
        search(changed, TASK, "heads", work=tmp_path / "work")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("mine", "utf-8")
    with pytest.raises(DataError, match="not empty"):
        search(shell_of("bert"), TASK, "heads", work=tmp_path / "full")


def test_winner_baselines_intervals_and_notes(shell_of: Shells) -> None:
    test_task = PairTask("other", (*TASK.pairs[:9], *(Pair(p.sentence2, p.sentence1 + " too", p.score) for p in PAIRS)))
    board = search(shell_of("bert"), TASK, "heads", test=[test_task], top=3, baselines=("mean", "cls"))
    assert isinstance(board, Leaderboard)
    scores = [trial.scores["spearman"] for trial in board.trials]
    assert scores == sorted(scores, reverse=True)
    assert len(board.trials) == 14
    assert all((trial.interval is not None) == (i < 3 or str(trial.recipe) in ("mean", "cls"))
               for i, trial in enumerate(board.trials))  # fmt: skip
    low, high = board.trials[0].interval or (np.nan, np.nan)
    assert low < scores[0] < high
    assert {c.second for c in board.comparisons} == {"mean", "cls"} - {str(board.leader)}
    assert any("optimistic" in note for note in board.notes)
    assert any("within its interval" in note for note in board.notes)
    check = board.checks[0]
    unshared = PairTask("left", test_task.pairs[9:])
    leader = str(board.leader)
    assert check.scores[leader][0] == one_by_one(shell_of("bert"), [leader], unshared)[leader].expected(leader)
    assert (check.task, check.units, check.left_out) == ("other", 60, 9)


def test_the_best_and_the_leader_as_encoders_give_the_same_scores(shell_of: Shells) -> None:
    board = search(shell_of("bert"), TASK, "shaping")
    for encoder, recipe in ((board.encoder(), board.best), (board.encoder(anyway=True), board.leader)):
        assert encoder.recipe == recipe
        alone = Watched.of(TASK)
        alone.run(encoder)
        assert board.find(recipe).scores["spearman"] == alone.expected(recipe)
    assert board.leader == board.trials[0].recipe != board.best
    assert encoder.chosen[-1] == f"`{board.leader}` was taken all the same, as it was asked for."


def test_the_default_prompt_of_a_model_is_searched_with(shell_of: Shells, monkeypatch: pytest.MonkeyPatch) -> None:
    shell = shell_of("bert")
    without = search(shell, TASK, "shaping").trials[0].scores["spearman"]
    monkeypatch.setattr(shell, "prompts", {"query": "the cat of the "})
    monkeypatch.setattr(shell, "default_prompt_name", "query")
    board = search(shell, TASK, "shaping")
    score = board.trials[0].scores["spearman"]
    alone = Watched.of(TASK)
    alone.run(board.encoder(anyway=True))
    assert score == alone.expected(board.leader)
    assert without != alone.expected(board.leader)


def test_pairs_in_memory_and_options_of_the_model(shell_of: Shells) -> None:
    rows = [{"sentence1": p.sentence1, "sentence2": p.sentence2, "score": p.score} for p in TASK.pairs]
    expected = search(shell_of("bert"), PairTask("pairs", tuple(tuple(row.values()) for row in rows)), "layers")
    for data in (rows, pandas.DataFrame(rows), [tuple(row.values()) for row in rows]):
        board = search(shell_of("bert"), data, "layers", device="cpu")
        assert [trial.scores for trial in board.trials] == [trial.scores for trial in expected.trials]
    with pytest.raises(InputError, match="search takes no 'memroy'\\. Did you mean 'memory'"):
        search(shell_of("bert"), rows, "layers", memroy=1)
    with pytest.raises(InputError, match="texts without labels"):
        search(shell_of("bert"), "texts.txt", "layers")


def test_heads_and_layer_curves(shell_of: Shells) -> None:
    board = search(shell_of("bert"), TASK, "heads")
    mix, grid = board.heads() or ("", np.empty(0))
    assert mix == "0+L"
    assert grid.shape == (3, 4)
    assert grid[1, 2] == board.find("ditto:2-3").scores["spearman"]
    curves = search(shell_of("bert"), TASK, "layers").layers()
    assert set(curves["alone"]) == {"static", "0", "1", "2", "L"}
    assert set(curves["with 0"]) == {"1", "2", "L"}
    assert search(shell_of("bert"), TASK, Space(named=("mean",))).heads() is None


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"data": "nowhere.jsonl"}, DataError, "nowhere.jsonl"),
        ({"data": "stbs.dev"}, UnknownNameError, "stsb"),
        ({"data": []}, InputError, "got none"),
        ({"data": ["a", 3]}, InputError, "Text 1 is int"),
        ({"space": "everything"}, UnknownNameError, "'everything'"),
        (
            {"data": ["a text", "another"], "criterion": "spearman"},
            InputError,
            r"needs labels, and the data \(2 texts\)",
        ),
        ({"criterion": "taecher"}, UnknownNameError, "Did you mean 'teacher'"),
        ({"criterion": "teacher:"}, InputError, "without a file of running text"),
        ({"criterion": ["teacher", "teacher:a.txt"]}, InputError, "differ in their running text only"),
        ({"data": ["one text", "one text"]}, InputError, "all texts are equal"),
        ({"memory": 0}, InputError, "memory=0"),
        ({"top": 0}, InputError, "top=0"),
        ({"seed": -1}, InputError, "seed=-1"),
        ({"baselines": ("meen",)}, RecipeError, "meen"),
    ],
)
def test_bad_input_is_refused_before_the_model_is_loaded(
    arguments: dict[str, Any], error: type[Exception], message: str, bert: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("essent.selection.run.load", lambda *_: pytest.fail("the model was loaded"))
    with pytest.raises(error, match=message):
        search(str(bert), arguments.pop("data", TASK), **arguments)


def test_leaderboard_without_scores(shell_of: Shells) -> None:
    board = search(shell_of("bert"), PairTask("one", TASK.pairs[:1]), Space(named=("mean", "first-last | whiten")))
    assert all(np.isnan(trial.scores["spearman"]) for trial in board.trials)
    assert board.comparisons == ()
    assert board.notes == (
        "No recipe has a score: there is one unit of judgement only, or labels or all similarities are constant.",
    )
    with pytest.raises(InputError, match="No recipe has a score"):
        _ = board.best


@pytest.mark.slow  # every template; smaller spaces are searched by the tests above
def test_full_space_on_a_tiny_model(shell_of: Shells) -> None:
    board = search(shell_of("bert"), TASK, "full")
    capabilities = ModelCapabilities("bert", 3, 4, mask=True)
    assert len(board.trials) == len(set(SPACES["full"].expand(capabilities)[0]) | {Recipe.parse("first-last")})
    assert board.provenance["passes"] == 3


# -- without labels ---------------------------------------------------------------------------------------------------


def test_texts_and_pairs_without_labels(shell_of: Shells) -> None:
    for data in (TASK.texts(), [(p.sentence1, p.sentence2) for p in TASK.pairs]):
        board = search(shell_of("bert"), data, "weights")
        scores = [trial.scores["teacher"] for trial in board.trials]
        assert scores == sorted(scores, reverse=True)
        low, high = board.trials[0].interval or (np.nan, np.nan)
        assert low < scores[0] <= high
        assert {c.second for c in board.comparisons} == {"mean", "first-last"} - {str(board.leader)}
        assert {c.criterion for c in board.comparisons} == {"teacher"}
        assert any("similarity of sentences only: for clustering" in note for note in board.notes)


def test_labels_and_teacher_share_a_pass(shell_of: Shells) -> None:
    board = search(shell_of("bert"), TASK, "heads", criterion=("spearman", "teacher"))
    alone = search(shell_of("bert"), TASK, "heads")
    assert board.provenance["passes"] == 1
    assert board.provenance["encoded"] == board.provenance["texts"] > alone.provenance["texts"]
    assert set(board.trials[0].scores) == {"spearman", "teacher"}
    single = one_by_one(shell_of("bert"), [str(trial.recipe) for trial in board.trials], TASK)
    for searched in (alone, board):
        assert_scores_of(searched, single)
    free = search(shell_of("bert"), TASK, "heads", criterion=("teacher", "spearman"))
    assert free.leader == max(board.trials, key=lambda trial: trial.scores["teacher"]).recipe
    assert "Measured by spearman, chosen by teacher and compared by labels" in free.verdict


@pytest.mark.parametrize(
    ("bound", "baseline", "message"),
    [(0.0, None, "is better than cls by +"), (1.0, "cls", "cls is kept: {leader} is better with a probability of")],
)
def test_the_measured_probability_decides_without_labels(
    shell_of: Shells, monkeypatch: pytest.MonkeyPatch, bound: float, baseline: str | None, message: str
) -> None:
    monkeypatch.setattr("essent.selection.probability.THRESHOLD", bound)
    board = search(shell_of("bert"), TASK.texts(), "weights", baselines=("cls",), criterion="teacher")
    assert board.comparisons[0].is_better  # the interval alone would take it
    assert board.kept == baseline
    assert (str(board.best) == "cls") == (baseline == "cls")
    assert message.format(leader=board.leader) in board.verdict
    assert "Chosen without labels; on models like this" in board.verdict


@pytest.mark.slow
def test_a_recipe_has_the_same_score_without_labels_in_every_space(shell_of: Shells) -> None:
    boards = [search(shell_of("bert"), TASK.texts(), space) for space in ("heads", "weights", Space(named=("mean",)))]
    for name in ("mean", "first-last"):
        first, *repeated = (board.find(name).scores["teacher"] for board in boards)
        assert repeated == pytest.approx([first, first], abs=1e-6)
    assert [len(board.trials) for board in boards] == [14, 27, 2]  # what runs along is not ranked
    # where the first recipe is the same its lead and its interval are
    same = search(shell_of("bert"), TASK.texts(), Space(named=(str(boards[0].leader),)))
    for single, ranked in zip(same.comparisons, boards[0].comparisons, strict=True):
        assert (single.low, single.high) == pytest.approx((ranked.low, ranked.high), abs=1e-6)


def test_cross_validated_winner_is_the_best(shell_of: Shells) -> None:
    board = search(shell_of("bert"), planted(shell_of("bert"), "static weights=position"), "weights")
    assert board.best == board.leader == Recipe.parse("static weights=position")
    assert all(comparison.is_better for comparison in board.held_out)
    assert "is better than mean by +" in board.verdict


def test_the_test_decides(shell_of: Shells) -> None:
    shell = shell_of("bert")
    data, test_pairs = (
        planted(shell, "static weights=position"),
        tuple(Pair(p.sentence2, "a " + p.sentence1, 0.0) for p in PAIRS),
    )
    same = search(shell, data, "weights", test=[planted(shell, "static weights=position", pairs=test_pairs)])
    assert same.best == Recipe.parse("static weights=position")
    assert same.verdict.startswith(f"On the test (planted), {same.best} is better than mean by +")
    against = search(shell, data, "weights", test=[planted(shell, "mean", pairs=test_pairs)])
    assert against.leader == same.leader
    assert against.held_out[0].is_better
    assert against.best == Recipe.parse("mean")
    assert "mean is kept: on planted" in against.verdict
    assert "is worse" in against.verdict


# -- what the test has in common with the choice ----------------------------------------------------------------------


def test_shared_pairs_are_excluded(shell_of: Shells) -> None:
    again = [(p.sentence2.upper(), f" {p.sentence1}", p.score) for p in PAIRS[:20]]  # the other way round
    new = [(p.sentence1, f"{p.sentence2} {n}", p.score) for n, p in enumerate(PAIRS[20:])]
    board = search(shell_of("bert"), TASK, Space(named=("mean",)), test=[PairTask("mixed", (*again, *new))])
    (check,) = board.checks
    assert (check.units, check.left_out) == (40, 20)
    assert check.shared_texts == len({p.sentence1 for p in PAIRS[20:]})
    assert check.texts == len({text for pair in new for text in pair[:2]})
    assert "20 pairs that the data of the choice has too are left out" in check.summary()
    assert f"{check.shared_texts} of the {check.texts} texts are in both" in check.summary()
    free = search(shell_of("bert"), TASK.texts(), Space(named=("mean",)), test=[TASK])
    assert (free.checks[0].units, free.checks[0].left_out) == (len(TASK), 0)  # no gold score was seen
    assert free.checks[0].shared_texts == free.checks[0].texts


def test_test_without_new_pairs_is_refused(bert: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("essent.selection.run.load", lambda *_: pytest.fail("the model was loaded"))
    with pytest.raises(InputError, match="all of its 63 pairs are in the data of the choice too"):
        search(str(bert), TASK, "heads", test=[TASK])
