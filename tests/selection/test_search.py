"""The search against one encoder at a time: the same vectors and scores, in any portions, killed and resumed."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer

from command_line import write_rows
from essent import Encoder
from essent.errors import DataError, InputError, RecipeError, UnknownNameError, UnsupportedRecipeError
from essent.model.backbone import Backbone
from essent.recipe.recipe import Recipe
from essent.selection.annotation import AnnotatedPairs
from essent.selection.leaderboard import Leaderboard
from essent.selection.run import run_passes, search
from essent.selection.search_data import SearchData, SearchSettings
from essent.selection.space import Grid, Space
from essent.selection.sweep import Store, Sweep
from essent.tasks.examples import Pair
from essent.tasks.pairs import PairTask
from near_ties import Watched, one_by_one
from samples import daily
from selection_samples import PAIRS, TASK, Shells, labels, planted

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
    (
        "template=0.7*bert+-0.3*T0 weights=mask | zscore",
        "template=about+one-word weights=last",
        "echo | centre",
        "prompt-denoised",
        "reduce=max",
        "reduce=dct:2 | zscore",
        "random",
        "layers=0+L reduce=power:3 weights=idf",
    ),
)
ATTENTION_STATES = (
    "layers=value:L weights=position",
    "layers=attention:2-out+L",
    "template=about layers=attention:L-out weights=last",
)


def passes(shell: SentenceTransformer, space: Space, memory: float) -> dict[str, np.ndarray]:
    """Recipe -> cosines (P,) of the task's pairs."""
    settings = SearchSettings(memory, batch_size=8, precision="float32")
    with run_passes(shell, space, [SearchData.of(TASK, None, (), 0)], (), settings) as run:
        return dict(zip(map(str, run.recipes), np.array(run.sweeps[0].store.rows), strict=True))


def assert_scores_of_single_encoders(shell: SentenceTransformer, *boards: Leaderboard) -> None:
    """As near to `evaluate` with each recipe alone as pairs can be ranked.

    A few recipes have no score, since they give all texts one vector, such as [CLS] in layer 0.
    """
    recipes = [str(trial.recipe) for trial in boards[0].trials if np.isfinite(trial.scores["spearman"])]
    assert len(recipes) > 0.9 * len(boards[0].trials)
    for text, watched in one_by_one(shell, recipes, TASK).items():
        for board in boards:
            assert board.find(text).scores["spearman"] == watched.expected(text), text


@pytest.mark.parametrize(
    "family", daily(["bert", "roberta", "albert", "modernbert", "t5", "gpt2", "mpnet"], "bert", "gpt2")
)
def test_cosines_match_single_encoders(shell_of: Shells, family: str) -> None:
    of_attention = () if family == "mpnet" else ATTENTION_STATES  # which it cannot return
    stored = passes(shell_of(family), Space(MIXED.grids, (*MIXED.named, *of_attention)), 0.5)
    differing = sorted(text for text, cosines in stored.items() if np.ptp(cosines) > 1e-4)  # not [CLS] in layer 0
    assert len(differing) > 0.9 * len(stored)
    chosen = np.random.default_rng(0).choice(differing, 25, replace=False).tolist()
    for text, alone in one_by_one(
        shell_of(family), [*chosen, *(str(Recipe.parse(text)) for text in of_attention)], TASK
    ).items():
        np.testing.assert_allclose(stored[text], alone.cosines, rtol=0, atol=alone.rounding(text), err_msg=text)


def test_pooled_vectors_fit_the_memory(shell: SentenceTransformer, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = 8_000  # bytes: two or three texts a portion, and not all weightings of them at a time
    buffers: list[tuple[int, int]] = []  # weightings pooled at a time, bytes of their buffer
    original = Sweep._pooled

    def noting(self: Sweep, *arguments: Any) -> Iterator[tuple[range, torch.Tensor]]:
        for rows, pooled in original(self, *arguments):
            buffers.append((len(rows), pooled.untyped_storage().nbytes()))
            yield rows, pooled

    monkeypatch.setattr(Sweep, "_pooled", noting)
    passes(shell, Space(MIXED.grids[:1]), memory / 2**30)
    assert max(rows for rows, _ in buffers) > 1
    assert all(size <= memory // 2 or rows == 1 for rows, size in buffers)


def test_passes_layers_alike_and_repetition(shell: SentenceTransformer) -> None:
    space = Space((*MIXED.grids, Grid(layers=("3", "L", "0+3+L"))), MIXED.named[3:])  # layer 3 is the last
    first, second = (search(shell, TASK, space, seed=3) for _ in range(2))
    assert (first.provenance["passes"], first.provenance["encoded"]) == (2, 2 * first.provenance["texts"])
    assert {**first.to_dict(), "provenance": 0} == {**second.to_dict(), "provenance": 0}
    assert first.find("layers=3").scores == first.find("mean").scores
    (alone,) = one_by_one(shell, ["layers=0+3+L"], TASK).values()
    assert first.find("layers=0+3+L").scores["spearman"] == alone.expected("layers=0+3+L")
    curves = search(shell, TASK, "layers", device="cpu").layers()
    assert (set(curves["alone"]), set(curves["with 0"])) == ({"static", "0", "1", "2", "L"}, {"1", "2", "L"})


class KilledError(Exception):
    """Stands for a process that ends at any moment."""


@pytest.mark.parametrize(
    "units", [pytest.param(1, marks=pytest.mark.slow), 4, pytest.param(12, marks=pytest.mark.slow)]
)
def test_a_killed_search_resumes(
    shell: SentenceTransformer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, units: int
) -> None:
    finish, done = Store.finish, []
    weights, shaping = ("uniform", "idf*ditto:2-1", "sif"), ("", "zscore | normalize", "whiten:8")
    grid = Grid(templates=(None, "bert"), layers=("static", "0.3*1+0.7*L"), weights=weights, shaping=shaping)
    space = Space((MIXED.grids[0], grid), MIXED.named[:3])
    run = partial(search, shell, TASK, space, memory=2e-4)  # GiB: several portions
    uninterrupted = run()

    def dying(store: Store, unit: str) -> None:
        if len(done) == units:
            raise KilledError
        done.append(unit)
        finish(store, unit)

    monkeypatch.setattr(Store, "finish", dying)
    with pytest.raises(KilledError):
        run(work=tmp_path / "work")
    monkeypatch.undo()
    resumed, finished = run(work=tmp_path / "work"), run(work=tmp_path / "work")
    assert resumed.provenance["encoded"] < uninterrupted.provenance["encoded"]
    assert finished.provenance["encoded"] == 0
    assert_scores_of_single_encoders(shell, uninterrupted, resumed)


def test_a_folder_of_another_search_is_refused(shell: SentenceTransformer, bert: Path, tmp_path: Path) -> None:
    run = partial(search, data=TASK, space="heads", work=tmp_path / "work")
    run(shell)
    changed = SentenceTransformer(str(bert), device="cpu")
    with torch.no_grad():
        changed[0].model.embeddings.word_embeddings.weight[5] += 1
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("mine", "utf-8")
    for model, settings, message in (
        (shell, {"space": "layers"}, "contains another search"),
        (changed, {}, "contains another search"),
        (shell, {"work": tmp_path / "full"}, "contains other files"),
    ):
        with pytest.raises(DataError, match=message):
            run(model, **settings)


def test_winner_baselines_intervals_and_notes(shell: SentenceTransformer) -> None:
    unshared = tuple(Pair(p.sentence2, p.sentence1 + " too", p.score) for p in PAIRS)
    shared = [Pair(f" {pair.sentence2.upper()}", pair.sentence1, pair.score) for pair in PAIRS[:9]]
    test_task, baselines = PairTask("other", (*shared, *unshared)), ("mean", "cls")
    board = search(shell, TASK, "heads", test=[test_task], top=3, baselines=baselines)
    mix, grid = board.heads() or ("", np.empty(0))
    assert (mix, grid.shape, grid[1, 2]) == ("0+L", (3, 4), board.find("ditto:2-3").scores["spearman"])
    scores = [trial.scores["spearman"] for trial in board.trials]
    assert (scores, len(scores)) == (sorted(scores, reverse=True), 14)
    measured = [trial for rank, trial in enumerate(board.trials) if rank < 3 or str(trial.recipe) in baselines]
    assert [trial for trial in board.trials if trial.interval is not None] == measured
    low, high = board.trials[0].interval or (np.nan, np.nan)
    assert low < scores[0] < high
    (check,), leader = board.checks, str(board.leader)
    assert {c.second for c in board.comparisons} == {*baselines} - {leader}
    assert all(any(text in note for note in board.notes) for text in ("optimistic", "is not significantly better than"))
    alone = one_by_one(shell, [leader], PairTask("left", unshared))[leader]
    assert check.scores[leader][0] == alone.expected(leader)
    assert (check.task, check.units, check.left_out) == ("other", 60, 9)
    assert "9 pairs that are also in the search's data are excluded" in check.summary()
    (free,) = search(shell, TASK.texts(), Space(named=("mean",)), test=[TASK]).checks
    assert (free.units, free.left_out) == (len(TASK), 0)  # no label was read


def test_encoders_give_the_scores_of_the_search(shell: SentenceTransformer, monkeypatch: pytest.MonkeyPatch) -> None:
    without = search(shell, TASK, "shaping").trials[0].scores["spearman"]
    monkeypatch.setattr(shell, "prompts", {"query": "the cat of the "})
    monkeypatch.setattr(shell, "default_prompt_name", "query")
    board = search(shell, TASK, "shaping")
    for encoder, recipe in ((board.encoder(), board.best), (replace(board, kept=None).encoder(), board.leader)):
        assert encoder.recipe == recipe
        alone = Watched.of(TASK)
        alone.run(encoder)
        assert board.find(recipe).scores["spearman"] == alone.expected(recipe)
    assert without != alone.expected(board.leader)  # the default prompt is searched with
    assert board.leader == board.trials[0].recipe != board.best
    assert encoder.chosen[-1] == board.verdict


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"data": "stbs.dev"}, UnknownNameError, "stsb"),
        ({"data": []}, InputError, "needs labels or texts"),
        ({"data": "texts.txt"}, InputError, "texts without labels"),
        ({"memroy": 1}, InputError, "Unknown option 'memroy'"),
        ({"test": [TASK]}, InputError, "all of its 63 pairs are also in the data"),
        ({"data": ["a text", "another"], "criterion": "spearman"}, UnknownNameError, "scores of 2 texts: none, as"),
        ({"criterion": "taecher"}, UnknownNameError, "Did you mean 'teacher'"),
        ({"criterion": ["teacher", "topics"]}, InputError, "both read no labels"),
        ({"use": "topics"}, UnknownNameError, "Unknown use 'topics'"),
        ({"data": labels(), "criterion": "spearman"}, UnknownNameError, "scores of l: accuracy, f1_macro"),
        ({"data": [TASK, TASK]}, InputError, "have the same name"),
        ({"data": [TASK, labels()], "criterion": "teacher"}, InputError, "ranks recipes on one data set only"),
        ({"data": [TASK, AnnotatedPairs("few", PAIRS)]}, InputError, "on one data set only"),
        ({"data": AnnotatedPairs("few", PAIRS), "use": "retrieval"}, InputError, "Retrieval needs queries"),
        ({"data": ["one text", "one text"]}, InputError, "all texts are equal"),
        ({"data": [("one text", "another text")]}, DataError, r"for pairs a tuple \(sentence1, sentence2, score\)"),
        ({"memory": 0}, InputError, "memory=0"),
        ({"baselines": ("meen",)}, RecipeError, "meen"),
    ],
)
def test_bad_input_is_refused_before_the_model_is_loaded(
    arguments: dict[str, Any], error: type[Exception], message: str, bert: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("essent.selection.run.load", lambda *_: pytest.fail("the model was loaded"))
    with pytest.raises(error, match=message):
        search(str(bert), arguments.pop("data", TASK), **arguments)


def test_columns_of_data_and_tests(shell: SentenceTransformer, tmp_path: Path) -> None:
    names = {"sentence1": "a", "sentence2": "b", "score": "gold"}
    rows = [dict(zip(names.values(), pair[:3], strict=True)) for pair in TASK.pairs]
    test = write_rows(tmp_path / "t.jsonl", ({"a": "x y", "b": f"z {number}", "gold": number} for number in range(9)))
    space = Space(named=("cls",))
    board = search(shell, rows, space, columns=names, test=[str(test)])
    assert board.trials == search(shell, TASK, space).trials
    assert [check.task for check in board.checks] == ["t"]
    with pytest.raises(InputError, match="columns are those of labelled data or tests"):
        search(shell, TASK.texts(), columns=names)


def test_tests_score_the_encoder_that_is_saved(shell: SentenceTransformer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fitted on the texts of the search, not on those of the test, and in the precision of the search."""
    precisions, compute_in = [], Backbone.compute_in
    monkeypatch.setattr(Backbone, "compute_in", lambda self, name: (precisions.append(name), compute_in(self, name))[1])
    searched, other = (PairTask(name, pairs) for name, pairs in (("data", PAIRS[:30]), ("other", PAIRS[30:])))
    name, space = "weights=idf | zscore", Space(named=("weights=idf | zscore",))
    (check,) = search(shell, searched, space, baselines=[], test=[other], precision="float32").checks
    assert precisions == ["float32", "float32"]
    fitted, refitted = (Encoder(shell, name).fit(task.texts()) for task in (searched, other))
    saved, alone = (other.run(encoder).main_score for encoder in (fitted, refitted))
    assert check.scores[name][0] == pytest.approx(saved, abs=1e-9)
    assert saved != pytest.approx(alone, abs=1e-3)


def test_leaderboard_without_scores(shell: SentenceTransformer) -> None:
    board = search(shell, PairTask("one", TASK.pairs[:1]), Space(named=("mean", "first-last | whiten")))
    assert np.isnan([trial.scores["spearman"] for trial in board.trials]).all()
    assert board.comparisons == ()
    assert board.notes[0].startswith("No recipe has a score: there is only one labelled example")
    with pytest.raises(InputError, match="No recipe has a score"):
        _ = board.best


# -- without labels ---------------------------------------------------------------------------------------------------


def test_texts_without_labels(shell: SentenceTransformer) -> None:
    data = TASK.texts()
    board = search(shell, data, "weights")
    scores = [trial.scores["teacher"] for trial in board.trials]
    assert scores == sorted(scores, reverse=True)
    low, high = board.trials[0].interval or (np.nan, np.nan)
    assert low < scores[0] <= high
    assert {c.second for c in board.comparisons} == {"mean", "first-last"} - {str(board.leader)}
    assert any("similarity of sentences only. For clusters" in note for note in board.notes)
    assert (board.kept is None) == all(comparison.is_better for comparison in board.comparisons)
    assert "Worth by labels over mean, in measured cases of such choices: similarity +5.0 points" in board.verdict
    assert board.verdict.endswith("give labels, or 20 pairs that you label with --ask.")
    other = search(shell, data, Space(named=(str(board.leader), "cls")), baselines=("mean",))
    level = board.find("mean").scores["teacher"]
    assert other.find("mean").scores["teacher"] == pytest.approx(level, abs=1e-6)
    assert len(other.trials) == 3  # what runs along is not ranked


def test_a_model_trained_for_sentences_keeps_its_own_pooling(bert: Path, tmp_path: Path) -> None:
    """As a folder or loaded; with labels, its pooling is the first baseline.

    The pooling of a plain transformer is not its own: sentence-transformers gives a decoder that of the last token.
    """
    modules = [Transformer(str(bert)), Pooling(32, "cls"), Normalize()]
    SentenceTransformer(modules=modules, device="cpu").save(str(tmp_path))
    space = Space(named=("first-last weights=position | zscore",))
    for model in (str(tmp_path), SentenceTransformer(str(tmp_path), device="cpu")):
        board = search(model, TASK.texts(), space)
        assert board.baselines == ("cls", "mean", "first-last")
        assert (str(board.best), board.notes) == ("cls", ())
        assert "the baseline cls is retained: the model was trained for sentences" in board.verdict
        assert "trained for sentences" not in search(model, TASK.texts(), space, use="retrieval").verdict
    assert search(str(tmp_path), TASK, space).baselines == ("cls", "mean", "first-last")
    plain = search(SentenceTransformer(modules=modules[:2], device="cpu"), TASK.texts(), space)
    assert (plain.baselines, "trained for sentences" in plain.verdict) == (("mean", "first-last"), False)


def test_labels_and_teacher_share_a_pass(shell: SentenceTransformer) -> None:
    board = search(shell, TASK, "heads", criterion=("spearman", "teacher"))
    assert board.provenance["passes"] == 1
    assert board.provenance["encoded"] == board.provenance["texts"] > len(set(TASK.texts()))
    assert set(board.trials[0].scores) == {"spearman", "teacher"}
    assert_scores_of_single_encoders(shell, board)
    free = search(shell, TASK, "heads", criterion=("teacher", "spearman"))
    assert free.leader == max(board.trials, key=lambda trial: trial.scores["teacher"]).recipe
    assert free.verdict.startswith("Measured for the similarity of sentences by cosine, without labels, by teacher")


def test_cross_validation_or_the_test_decides(shell: SentenceTransformer) -> None:
    recipe = "static weights=position"
    test_pairs = tuple(Pair(p.sentence2, "a " + p.sentence1, 0.0) for p in PAIRS)
    alone, confirmed, refuted = (
        search(
            shell, planted(shell, recipe), "weights", test=[planted(shell, best, pairs=test_pairs) for best in tests]
        )
        for tests in ([], [recipe], ["mean"])
    )
    assert alone.best == alone.leader == confirmed.best == refuted.leader == Recipe.parse(recipe)
    assert all(comparison.is_better for comparison in alone.held_out)
    assert "is better than mean by +" in alone.verdict
    assert confirmed.verdict.startswith(f"On the test (planted), {confirmed.best} is better than mean by +")
    assert (refuted.best, refuted.held_out[0].is_better) == (Recipe.parse("mean"), True)
    assert f"mean is retained: {refuted.leader} is not significantly better, -" in refuted.verdict
    halves = [planted(shell, name, pairs=test_pairs[part::2]) for part, name in enumerate([recipe, "mean"])]
    both = [replace(half, name=str(number)) for number, half in enumerate(halves)]
    mean = search(shell, planted(shell, recipe), Space(named=(recipe,)), baselines=["mean"], test=both)
    gains = [check.comparisons[0].difference for check in mean.checks]
    assert (
        f"On the test (0, 1), the baseline mean is retained: {mean.leader} is not significantly better" in mean.verdict
    )
    assert gains[0] > 0 > gains[1]
    assert f" {np.mean(gains):+.2f} [" in mean.verdict


def test_templates_without_room_are_skipped(shell_of: Shells, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reference recipes of `teacher`, and those of a space; a single recipe without room is refused."""
    shell = shell_of("llama")
    monkeypatch.setattr(shell, "max_seq_length", 64)  # the example has 77 tokens
    longest = Space((Grid(templates=(None, "prompteol-example"), weights=("uniform", "last")),))
    board = search(shell, TASK, longest, criterion=["spearman", "teacher"], baselines=["mean"])
    assert {str(trial.recipe) for trial in board.trials} == {"mean", "last-token"}
    with pytest.raises(UnsupportedRecipeError, match="77 tokens, and the model reads at most 64"):
        search(shell, TASK, Space(named=("prompteol-example",)), baselines=["mean"])
